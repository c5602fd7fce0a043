package worktree

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/session"
	"deepwork/session/git"
)

// A Nested is a repository in a worktree: a submodule, or one that an agent has made, cloned or added as a
// worktree. It is removed with the worktree, without being saved.
type Nested struct {
	Path    string // absolute
	Why     string // it must not go; "" means that a submodule has no work of its own
	Publish string // a command that publishes that work; "" if the work cannot be published
	Discard string // a command that discards it

	name   string // its path in the worktree, with slashes, if git does not add its files
	gitDir string // the git folder of a checked-out submodule
}

// A NestedError says that repositories in worktrees have work that would be lost with them.
type NestedError struct{ Found []Nested }

func (e *NestedError) Error() string {
	var all []string
	for _, n := range e.Found {
		help := "move it elsewhere"
		if n.Publish != "" {
			help = "publish that with: " + n.Publish
		}
		all = append(all, fmt.Sprintf("the repository %s %s; %s; or discard that with: %s", n.Path, n.Why, help,
			n.Discard))
	}
	return strings.Join(all, ". ")
}

// modeRepo is the mode of a tree entry that is another repository's commit: a submodule.
const modeRepo = "160000"

// nested lists the repositories in a source.
func (s *source) nested(ctx context.Context) ([]Nested, error) {
	if !isDir(s.root) {
		return nil, nil
	}

	root, err := os.OpenRoot(s.root)
	if err != nil {
		return nil, err
	}
	defer root.Close()

	staged, others, err := s.listed(ctx)
	if err != nil {
		return nil, err
	}

	var found []Nested
	made := func(name, inIndex string) {
		at := filepath.Join(s.root, filepath.FromSlash(inIndex))
		found = append(found, Nested{
			Path:    at,
			Why:     "was made there",
			Discard: "rm -rf " + session.InShell(at),
			name:    name,
		})
	}
	if isDir(filepath.Join(s.root, ".git")) { // in the place of the worktree's file
		made("", ".git")
	}

	seen := map[string]bool{".": true}
	look := func(dir string) { // finds repositories whose files git adds to the one around them
		for ; !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			if _, err := root.Lstat(filepath.FromSlash(dir + "/.git")); err == nil {
				made("", dir+"/.git")
			}
		}
	}
	for _, line := range git.Fields(staged) {
		info, name, _ := strings.Cut(line, "\t")
		if !strings.HasPrefix(info, modeRepo) {
			// in the place of a file
			if at := filepath.Join(s.root, filepath.FromSlash(name)); isDir(at) && isThere(filepath.Join(at, ".git")) {
				if _, err := root.Lstat(filepath.FromSlash(name)); err == nil {
					made(name, name)
				}
			}

			look(path.Dir(name))
			continue
		}
		at := filepath.Join(s.root, filepath.FromSlash(name))
		list, _ := os.ReadDir(at) // usually missing or empty
		n := Nested{
			Path:    at,
			Why:     "is a submodule that is not checked out, and has files",
			Discard: "rm -rf " + session.InShell(at),
			name:    name,
		}
		if isThere(filepath.Join(at, ".git")) {
			if n, err = s.submodule(ctx, name, nil); err != nil {
				return nil, err
			}
		} else if len(list) == 0 {
			continue
		}
		found = append(found, n)
	}
	for _, name := range git.Fields(others) {
		if dir, ok := strings.CutSuffix(name, "/"); !ok {
			look(path.Dir(name))
		} else if !slices.Contains(s.skip, dir) {
			made(dir, dir)
		}
	}
	if s.admin != "" {
		err = s.hidden(ctx, filepath.Join(s.admin, "modules"), nil, &found)
	}
	return found, err
}

// listed returns what git has staged in the worktree, and what it does not track there. An untracked
// repository is one entry that ends with a slash.
func (s *source) listed(ctx context.Context) (staged, others string, err error) {
	own := *s
	own.index = ""
	if s.admin == "" {
		own.index = filepath.Join(s.tmp, "no-index")
	}
	staged, err = git.Output(ctx, own.call("ls-files", "--stage", "-z"))
	if err != nil {
		return "", "", err
	}

	others, warnings, err := git.Run(ctx, own.call("ls-files", "-z", "--exclude-standard", "--others"))
	if err == nil {
		err = unopened(warnings)
	}
	return staged, others, err
}

// hidden adds the repositories of submodules whose files, but not whose work, are gone: git keeps them below
// dir, which is removed with the worktree. known is as in unpublished.
func (s *source) hidden(ctx context.Context, dir string, known []string, found *[]Nested) error {
	list, err := os.ReadDir(dir)
	if missing(err) {
		return nil
	}
	for _, f := range list {
		at := filepath.Join(dir, f.Name())
		inside, refers := at, known // a folder that is part of a name
		if isThere(filepath.Join(at, "HEAD")) {
			n := Nested{Path: at, Discard: "rm -rf " + session.InShell(at)}
			// the work tree in its config is gone
			in := git.Command{Dir: at, GitDir: at, WorkTree: at, Filters: true, Limit: listLimit}
			if !slices.ContainsFunc(*found, func(n Nested) bool { return n.gitDir == at }) {
				failed := s.unpublished(ctx, &n, in, "git --work-tree=. --git-dir="+session.InShell(at), known)
				if git.ExitCode(failed) > 0 {
					n.Why = "cannot be read (" + failed.Error() + ")"
				} else {
					err = cmp.Or(err, failed)
				}
			}
			if n.Why != "" {
				*found = append(*found, n)
			}
			if inside = filepath.Join(at, "modules"); isDir(inside) {
				refers, _ = links(ctx, in, "HEAD") // nothing without a commit
			}
		}
		if f.IsDir() {
			err = cmp.Or(err, s.hidden(ctx, inside, refers, found))
		}
	}

	return err
}

// unpublished sets why the repository of a submodule must not go, if it has commits that exist nowhere else.
// in and here run git there. The commits in known, or otherwise those from which the attempt began, exist
// elsewhere, though a shallow clone has no branch with them; so does what has a tag from before the attempt.
func (s *source) unpublished(ctx context.Context, n *Nested, in git.Command, here string, known []string) (err error) {
	run := func(args ...string) (out string) {
		in.Args = args
		if err == nil {
			out, err = git.Line(ctx, in)
		}
		return out
	}
	own := run("rev-list", "--max-count=1", "--all", "--not", "--remotes")
	if own == "" {
		return err
	}

	if known == nil && s.base != "" {
		if known, err = links(ctx, inRepo(s.common), s.base); err != nil {
			return err
		}
	}

	list := []string{"rev-list", "--max-count=1", "--ignore-missing"}
	own = run(slices.Concat(list, []string{"--exclude=refs/tags/*", "--all", "--not", "--remotes", "--tags"}, known)...)
	if own == "" {
		own = run(slices.Concat(list, []string{fmt.Sprint("--max-age=", s.madeAt), "--tags", "--not", "--remotes"},
			known)...)
	}
	if own == "" {
		return err
	}

	n.Why = "has commits that are nowhere else"
	if remote, _, _ := strings.Cut(run("remote"), "\n"); remote != "" {
		n.Publish = fmt.Sprintf("%s push %s %s:refs/heads/%s-%.8[3]s", here, session.InShell(remote), own,
			slug(filepath.Base(n.Path), "work"))
	}

	return err
}

// links returns the commits of submodules to which a commit refers.
func links(ctx context.Context, c git.Command, commit string) (ids []string, err error) {
	c.Args = []string{"ls-tree", "-r", "-z", "--full-tree", commit}
	tree, err := git.Output(ctx, c)
	for _, line := range git.Fields(tree) {
		if entry := strings.Fields(line); entry[0] == modeRepo {
			ids = append(ids, entry[2])
		}
	}
	return ids, err
}

// submodule returns why a submodule at a path in the source, or one inside it, must not go, with the commands
// that help. Why is "" if everything in it also exists elsewhere, as known does.
func (s *source) submodule(ctx context.Context, name string, known []string) (n Nested, err error) {
	n = Nested{Path: filepath.Join(s.root, filepath.FromSlash(name)), name: name}
	here := "git -C " + session.InShell(n.Path)
	n.Discard = "rm -rf " + session.InShell(n.Path)
	run := func(args ...string) (out string) {
		if err == nil {
			out, err = git.Line(ctx, gitInside(n.Path, args...))
		}
		return out
	}
	n.gitDir = filepath.FromSlash(run("rev-parse", "--absolute-git-dir"))
	var dirt map[string][]string
	if err == nil {
		dirt, _, err = git.Changes(ctx, gitInside(n.Path), "all")
	}
	remote, _, _ := strings.Cut(run("remote"), "\n")
	if err == nil && len(dirt) == 0 {
		err = s.unpublished(ctx, &n, gitInside(n.Path), here, known)
	}
	switch {
	case git.ExitCode(err) > 0:
		n.Why = "cannot be read (" + err.Error() + ")"
		return n, nil
	case err != nil:
		return n, err
	case len(dirt) > 0:
		n.Why, n.Discard = "has changes that are not committed",
			fmt.Sprintf("%s reset --hard && %[1]s clean -ffd", here)
		if remote != "" {
			n.Publish = fmt.Sprintf("%s add -A && %[1]s commit && %[1]s push %s HEAD:refs/heads/%s", here,
				session.InShell(remote), slug(filepath.Base(n.Path), "work"))
		}
	case n.Why != "":
		n.Discard += " " + session.InShell(n.gitDir)
	}
	for _, line := range git.Fields(run("ls-files", "--stage", "-z")) {
		info, inside, _ := strings.Cut(line, "\t")
		inside = path.Join(name, inside)
		if n.Why == "" && strings.HasPrefix(info, modeRepo) &&
			isThere(filepath.Join(s.root, filepath.FromSlash(inside), ".git")) {
			if n, err = s.submodule(ctx, inside, strings.Fields(info)[1:2]); err != nil {
				return n, err
			}
			n.name = name
		}
	}
	return n, err
}

// gitInside returns a git command for a repository inside the worktree, never for one around it.
func gitInside(dir string, args ...string) git.Command {
	return git.Command{
		Dir:     dir,
		Env:     []string{"GIT_CEILING_DIRECTORIES=" + filepath.Dir(canonical(dir))},
		Args:    args,
		Limit:   listLimit,
		Filters: true,
	}
}
