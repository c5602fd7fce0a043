package worktree

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/session/git"
)

// A Nested is a repository in a worktree: a submodule, or one that an agent has made, cloned or added as
// a worktree. It goes with the worktree.
type Nested struct {
	Path    string // absolute
	Why     string // it has work that is nowhere else; "" means that it has none
	Publish string // a command that publishes that work; "" means that there is none
	Discard string // a command that discards it

	name string // in the worktree, with slashes, if git does not add its files
}

// A NestedError says that repositories in worktrees have work that would be lost with them.
type NestedError struct{ Found []Nested }

func (e *NestedError) Error() string {
	var all []string
	for _, n := range e.Found {
		text := fmt.Sprintf("the repository %s in it %s", n.Path, n.Why)
		if n.Publish != "" {
			text += "; publish that with: " + n.Publish
		} else {
			text += "; move it elsewhere"
		}
		all = append(all, text+"; or discard it with: "+n.Discard)
	}
	return strings.Join(all, ". ")
}

// The modes of a tree's entries.
const (
	modeFile = "100644"
	modeLink = "120000"
	modeRepo = "160000" // a commit of another repository: a submodule
)

// nested lists the repositories in a source. Git adds no file of them, except of those that were made
// in a folder with tracked files.
func (s *source) nested(ctx context.Context) ([]Nested, error) {
	if !isDir(s.root) {
		return nil, nil
	}
	root, err := os.OpenRoot(s.root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	own := *s
	if own.index = ""; s.admin == "" {
		own.index = filepath.Join(s.tmp, "no-index")
	}
	staged, err := git.Output(ctx, own.call("ls-files", "--stage", "-z"))
	if err != nil {
		return nil, err
	}
	others, err := listFiles(ctx, own.call(), "--others")
	if err != nil {
		return nil, err
	}
	var names, foreign []string
	seen := map[string]bool{".": true}
	if isDir(filepath.Join(s.root, ".git")) { // in the place of the worktree's file
		names = append(names, ".")
	}
	look := func(dir string) {
		for ; !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			if slices.Contains(s.skip, dir) {
				continue
			}
			if _, err := root.Lstat(filepath.FromSlash(dir + "/.git")); err == nil {
				names = append(names, dir)
			}
		}
	}
	var found []Nested
	for _, line := range git.Fields(staged) {
		info, name, _ := strings.Cut(line, "\t")
		if !strings.HasPrefix(info, modeRepo) {
			look(path.Dir(name))
			continue
		}
		foreign = append(foreign, name)
		look(name)
		if list, err := os.ReadDir(filepath.Join(s.root, filepath.FromSlash(name))); err == nil && len(list) > 0 && !slices.Contains(names, name) {
			at := filepath.Join(s.root, filepath.FromSlash(name))
			found = append(found, Nested{Path: at, Why: "is a submodule that is not checked out, and has files", Discard: fmt.Sprintf("rm -rf %q", at), name: name})
		}
	}
	for _, name := range others {
		if dir, is := strings.CutSuffix(name, "/"); is {
			foreign = append(foreign, dir)
			look(dir)
		} else {
			look(path.Dir(name))
		}
	}
	for _, name := range names {
		n, err := s.inside(ctx, name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(foreign, name) {
			n.name = "" // git adds its files
		}
		found = append(found, n)
	}
	return found, nil
}

// inside returns what git tells of a repository in the source.
func (s *source) inside(ctx context.Context, name string) (n Nested, err error) {
	n = Nested{Path: filepath.Join(s.root, filepath.FromSlash(name)), name: name}
	if n.Discard = fmt.Sprintf("rm -rf %q", n.Path); name == "." {
		n.Path = filepath.Join(n.Path, ".git")
		n.Discard = fmt.Sprintf("rm -rf %q", n.Path)
		n.Why = "is in the place of the worktree's own .git file"
		return n, nil
	}
	run := func(args ...string) string {
		if err != nil {
			return ""
		}
		var out string
		out, err = git.Line(ctx, within(n.Path, args...))
		return out
	}
	gitDir := run("rev-parse", "--absolute-git-dir")
	if git.ExitCode(err) > 0 {
		n.Why = "cannot be read: " + err.Error()
		return n, nil
	}
	dirt := run("status", "--porcelain", "--untracked-files=all")
	remotes := strings.Fields(run("remote"))
	list := []string{"rev-list", "--max-count=1"}
	for _, ref := range []string{"HEAD", "refs/stash"} {
		if err == nil {
			var id string
			if id, err = commitOf(ctx, within(n.Path), ref); id != "" {
				list = append(list, id)
			}
		}
	}
	if err != nil {
		return n, err
	}
	unborn := len(list) == 2
	common, err := commonDir(gitDir)
	if err != nil {
		return n, err
	}
	goes := isWithin(common, canonical(s.root)) || s.admin != "" && isWithin(common, canonical(s.admin))
	if goes {
		list = append(list, "--branches", "--tags", "--not", "--remotes")
	} else { // a worktree of another repository, whose branches stay
		list = append(list, "--not", "--branches", "--tags", "--remotes")
	}
	push := ""
	if len(remotes) > 0 {
		push = fmt.Sprintf("git -C %q push %s HEAD:refs/heads/%s", n.Path, remotes[0], slug(filepath.Base(n.Path), "work"))
	}
	switch {
	case dirt != "":
		n.Why = "has changes that are not committed"
		n.Discard = fmt.Sprintf("git -C %q reset --hard && git -C %[1]q clean -ffd", n.Path)
		if push != "" {
			n.Publish = fmt.Sprintf("git -C %q add -A && git -C %[1]q commit && %s", n.Path, push)
		}
	case (goes || !unborn) && run(list...) != "":
		n.Why, n.Publish = "has commits that are nowhere else", push
	}
	if err != nil || n.Why != "" {
		return n, err
	}
	return n, s.deeper(ctx, &n)
}

// deeper looks into the submodules of a repository in the source.
func (s *source) deeper(ctx context.Context, n *Nested) error {
	staged, err := git.Output(ctx, within(n.Path, "ls-files", "--stage", "-z"))
	if err != nil {
		return err
	}
	for _, line := range git.Fields(staged) {
		info, name, _ := strings.Cut(line, "\t")
		name = path.Join(n.name, name)
		if !strings.HasPrefix(info, modeRepo) || !isThere(filepath.Join(s.root, filepath.FromSlash(name), ".git")) {
			continue
		}
		inner, err := s.inside(ctx, name)
		if err != nil {
			return err
		}
		if inner.Why != "" {
			inner.name = n.name
			*n = inner
			return nil
		}
	}
	return nil
}

// within returns a git command for a repository inside the worktree, never for one around it.
func within(dir string, args ...string) git.Command {
	return git.Command{Dir: dir, Env: []string{"GIT_CEILING_DIRECTORIES=" + filepath.Dir(canonical(dir))}, Args: args, Limit: listLimit, Filters: true}
}

func isWithin(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// listFiles runs git ls-files without ignored files. An untracked repository is one entry, with a
// slash at its end. Folders that cannot be read are an error.
func listFiles(ctx context.Context, c git.Command, flags ...string) ([]string, error) {
	c.Args = append([]string{"ls-files", "-z", "--exclude-standard"}, flags...)
	out, warnings, err := git.Run(ctx, c)
	if err == nil {
		err = unopened(warnings)
	}
	return git.Fields(out), err
}
