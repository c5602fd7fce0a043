package git

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"deepwork/actor/process"
)

// runs matches the settings with which a repository's own config makes git, or a filter of the user's
// such as LFS, start a program or use the network. The person who prepared the repository wrote them.
var runs = regexp.MustCompile(`^(filter\..*|alias\..*|merge\..*\.driver|diff\..*\.(command|textconv)|diff\.external|` +
	`core\.(fsmonitor|hookspath|sshcommand|askpass|editor|pager|gitproxy|alternaterefscommand|attributesfile)|credential\..*|gpg\..*|sequence\.editor|` +
	`hook\..*|uploadpack\..*|remote\..*\.(uploadpack|receivepack|vcs|proxy|promisor)|protocol\..*|http\..*|url\..*|init\.templatedir|` +
	`lfs\.(customtransfer|extension)\..*|lfs\.(.*\.)?standalonetransferagent)$`)

// bound matches the settings that depend on where the git folder is.
var bound = regexp.MustCompile(`^(core\.(worktree|bare)|include\.path|includeif\..*|extensions\.(worktreeconfig|refstorage|partialclone))$`)

// content matches the settings of the user that concern the content of files. Those that are
// included for some folders only would not be found from another git folder.
var content = regexp.MustCompile(`^(core|filter)\.`)

// configTimeout bounds reading a repository's config, which is the first that is done with it: git
// waits forever for a pipe in the place of a file.
const configTimeout = 8 * time.Second

// guards caches the guards of folders.
var guards struct {
	sync.Mutex
	of map[string]*guard
}

// A guard is the inspected config of the repository that a folder is in.
type guard struct {
	config string   // its settings without those that run something
	users  string   // the same with all settings of the user
	lfs    string   // where LFS has its files: a path that may be relative to the git folder
	hooks  []string // key=value, which disable the hooks in it
	files  []stamp  // the files that were read; nil means that changes cannot be detected
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

// guarded inspects the config of a command's repository. It runs git once per folder and state of the
// config.
func guarded(ctx context.Context, c Command) (*guard, error) {
	user := userConfigs()
	key := strings.Join(append(user, c.Dir, c.GitDir), "\x00")
	guards.Lock()
	g := guards.of[key]
	guards.Unlock()
	if g != nil && g.files != nil && !slices.ContainsFunc(g.files, func(s stamp) bool { return stampOf(s.path) != s }) {
		return g, nil
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
	g = &guard{lfs: "lfs"}
	var config, users strings.Builder
	files := map[string]bool{}
	found, includes := false, false
	for fields := Fields(string(r.Stdout)); len(fields) >= 3; fields = fields[3:] {
		name, value, valued := strings.Cut(fields[2], "\n")
		if file, is := strings.CutPrefix(fields[1], "file:"); is {
			if !filepath.IsAbs(file) {
				file = filepath.Join(c.Dir, file)
			}
			files[file] = true
		}
		own := fields[0] != "system" && fields[0] != "global" && fields[0] != "command"
		if own {
			found = true
			includes = includes || strings.HasPrefix(name, "include") || name == "extensions.worktreeconfig" // which may come into being
		}
		if hook, is := strings.CutPrefix(name, "hook."); is && own {
			if strings.Contains(name, "=") { // -c would take it for another setting
				return nil, &Error{Command: "config", Err: fmt.Errorf("the config of the repository at %s has the setting %q, which cannot be switched off because of the = in it: remove or rename it", c.Dir, name)}
			}
			if end := strings.LastIndex(hook, "."); end >= 0 {
				g.hooks = append(g.hooks, "hook."+hook[:end]+".enabled=false")
			}
		}
		switch {
		case name == "lfs.storage":
			if !own || filepath.IsLocal(value) {
				g.lfs = value
			}
		case bound.MatchString(name), own && runs.MatchString(name), fields[0] == "command":
		default:
			setting(&users, name, value, valued)
			if own || content.MatchString(name) {
				setting(&config, name, value, valued)
			}
		}
	}
	g.config, g.users = config.String(), users.String()
	if found && !includes {
		g.files = []stamp{}
		at := filepath.Join(c.Dir, ".git")
		if fi, err := os.Lstat(at); c.GitDir == "" && (err != nil || !fi.IsDir()) {
			files[at] = true // a file that names the repository, or will
		}
		for _, file := range user {
			files[file] = true // they may come into being
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
	return g, nil
}

// userConfigs returns the paths of the user's own config files, which may be missing.
func userConfigs() []string {
	if file, set := os.LookupEnv("GIT_CONFIG_GLOBAL"); set {
		return []string{file}
	}
	home, _ := os.UserHomeDir() // "" leaves paths that are missing
	return []string{filepath.Join(home, ".gitconfig"), filepath.Join(cmp.Or(os.Getenv("XDG_CONFIG_HOME"), filepath.Join(home, ".config")), "git", "config")}
}

// Once is like Run but does not wait for locks.
func Once(ctx context.Context, c Command) (process.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	g, err := guarded(ctx, c)
	if err != nil {
		return process.Result{}, err
	}
	if !c.User && (slices.Contains(plain, c.Args[0]) || c.Args[0] == "hash-object" && slices.Contains(c.Args, "--no-filters")) {
		return once(ctx, c, slices.Concat(unused, g.hooks))
	}
	own, done, err := apart(ctx, c, g)
	if err != nil {
		return process.Result{}, err
	}
	defer done()
	return once(ctx, own, nil)
}
