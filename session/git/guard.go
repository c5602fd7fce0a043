package git

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"deepwork/actor/process"
)

// runs matches the settings with which a repository's own config makes git start a program or use
// the network. Whoever prepared the repository wrote them; those of the user's and the system's
// config remain in force, so that LFS works.
var runs = regexp.MustCompile(`^(filter\..*\.(clean|smudge|process|required)|merge\..*\.driver|diff\..*\.(command|textconv)|diff\.external|` +
	`core\.(sshcommand|askpass|editor|pager|gitproxy|alternaterefscommand|attributesfile)|credential\..*|gpg\..*|sequence\.editor|` +
	`hook\..*|uploadpack\..*|remote\..*\.(uploadpack|receivepack|vcs|proxy|promisor)|protocol\..*|http\..*|url\..*|init\.templatedir|extensions\.partialclone)$`)

// neutral returns the value that overrides a setting that the user has not set.
func neutral(key string) string {
	switch {
	case strings.HasSuffix(key, ".required"), strings.HasSuffix(key, ".promisor"):
		return "false"
	case strings.HasSuffix(key, ".driver"):
		return "false" // the program false: each merge is a conflict
	case strings.HasPrefix(key, "protocol."):
		return "never"
	case key == "diff.external", strings.HasSuffix(key, ".command"):
		return "true"
	case strings.HasSuffix(key, ".textconv"):
		return "cat"
	}
	return ""
}

// configTimeout bounds reading a repository's config, which is the first that is done with it: git
// waits forever for a pipe in the place of a file.
const configTimeout = 8 * time.Second

// guards caches the guards of folders.
var guards struct {
	sync.Mutex
	of map[string]*guard
}

// A guard overrides settings of the repository that a folder is in.
type guard struct {
	settings []string // key=value
	files    []stamp  // the files that were read; nil means that changes cannot be detected
}

type stamp struct {
	path string
	size int64
	time time.Time
}

func stampOf(path string) stamp {
	if fi, err := os.Stat(path); err == nil {
		return stamp{path, fi.Size(), fi.ModTime()}
	}
	return stamp{path: path}
}

// guarded returns the settings that prevent the config of a command's repository from starting
// programs. It runs git once per folder and state of the config.
func guarded(ctx context.Context, c Command) ([]string, error) {
	key := c.Dir + "\x00" + c.GitDir
	guards.Lock()
	g := guards.of[key]
	guards.Unlock()
	if g != nil && g.files != nil && !slices.ContainsFunc(g.files, func(s stamp) bool { return stampOf(s.path) != s }) {
		return g.settings, nil
	}
	began := time.Now()
	list := c
	list.Args, list.Stdin, list.Limit, list.Config = []string{"config", "--list", "--show-scope", "--show-origin", "--includes", "-z"}, nil, 0, nil
	bounded, cancel := context.WithTimeout(ctx, configTimeout)
	defer cancel()
	r, err := once(bounded, list, nil)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return nil, &Error{Command: "config", Err: fmt.Errorf("git does not read the config of the repository at %s within %v: see whether one of its files, or of those that it includes, is a pipe or a device", c.Dir, configTimeout)}
	}
	if err != nil {
		return nil, err
	}
	g = &guard{}
	users, own := map[string]string{}, map[string]bool{}
	files := map[string]bool{}
	found, includes, elsewhere := false, false, false
	for fields := Fields(string(r.Stdout)); len(fields) >= 3; fields = fields[3:] {
		name, value, _ := strings.Cut(fields[2], "\n")
		if file, is := strings.CutPrefix(fields[1], "file:"); is {
			if !filepath.IsAbs(file) {
				file = filepath.Join(c.Dir, file)
			}
			files[file] = true
		}
		switch fields[0] {
		case "local", "worktree":
			found = true
			own[name] = own[name] || runs.MatchString(name)
			elsewhere = elsewhere || name == "core.worktree"
			includes = includes || strings.HasPrefix(name, "include") || name == "extensions.worktreeconfig" // which may come into being
		default:
			users[name] = value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if !own[name] {
			continue
		}
		if strings.Contains(name, "=") { // -c would take it for another setting
			return nil, &Error{Command: "config", Err: fmt.Errorf("the config of the repository at %s has the setting %q, which cannot be switched off because of the = in it: remove or rename it", c.Dir, name)}
		}
		value, is := users[name]
		if !is {
			value = neutral(name)
		}
		g.settings = append(g.settings, name+"="+value)
	}
	if elsewhere && c.GitDir == "" {
		if err := worksIn(ctx, c, g.settings); err != nil {
			return nil, err
		}
	}
	if found && !includes {
		g.files = []stamp{}
		at := filepath.Join(c.Dir, ".git")
		if fi, err := os.Lstat(at); c.GitDir == "" && (err != nil || !fi.IsDir()) {
			files[at] = true // a file that names the repository, or will
		}
		for file := range files {
			s := stampOf(file)
			if began.Sub(s.time) < time.Second { // it may change again within the resolution of its time
				g.files = nil
				break
			}
			g.files = append(g.files, s)
		}
	}
	guards.Lock()
	defer guards.Unlock()
	if guards.of == nil || len(guards.of) >= 1000 {
		guards.of = make(map[string]*guard)
	}
	guards.of[key] = g
	return g.settings, nil
}

// worksIn refuses a repository whose config makes git work in another folder.
func worksIn(ctx context.Context, c Command, settings []string) error {
	c.Args, c.Stdin, c.Limit = []string{"rev-parse", "--show-toplevel"}, nil, 0
	r, err := once(ctx, c, settings)
	if err != nil {
		return err
	}
	top, dir := strings.TrimRight(string(r.Stdout), "\r\n"), c.Dir
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	if rel, err := filepath.Rel(filepath.FromSlash(top), dir); err != nil || !filepath.IsLocal(rel) {
		return &Error{Command: "config", Err: fmt.Errorf("core.worktree of the repository at %s names the folder %s, which is not around it: remove that setting", c.Dir, top)}
	}
	return nil
}

// Once is like Run but does not wait for locks.
func Once(ctx context.Context, c Command) (process.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	guard, err := guarded(ctx, c)
	if err != nil {
		return process.Result{}, err
	}
	return once(ctx, c, guard)
}
