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

// A CheckedOutError says that a branch cannot be moved, since it is checked out in a worktree that has
// changes or an operation in progress.
type CheckedOutError struct {
	Branch    string
	Path      string   // the worktree
	Files     []string // its changed files, relative, with slashes; or those in the way
	Operation string   // such as rebase; "" means none
	Command   string   // that does the same by hand, once that is resolved
}

func (e *CheckedOutError) Error() string {
	why := "an operation is in progress there: " + e.Operation
	if e.Operation == "" {
		why = fmt.Sprintf("these files are changed there, or are in the way: %q", e.Files)
	}
	return fmt.Sprintf("the branch %s is checked out in %s, and %s; resolve that, or run: %s", e.Branch, e.Path, why, e.Command)
}

// A DirtyError names files that are not committed, or are in the way.
type DirtyError struct {
	Path  string // the worktree
	Files []string
}

func (e *DirtyError) Error() string {
	return fmt.Sprintf("files in %s are not committed, or are in the way: %q", e.Path, e.Files)
}

// A checkout is a worktree, and its git folder.
type checkout struct{ path, admin string }

// checkoutsOf lists the worktrees that have a branch checked out, or are working on it. A worktree
// whose folder is gone does not count.
func checkoutsOf(ctx context.Context, common, branch string) (out []checkout, err error) {
	text, err := git.Output(ctx, inRepo(common, "worktree", "list", "--porcelain"))
	if err != nil {
		return nil, err
	}
	for i, entry := range strings.Split(strings.TrimSpace(text), "\n\n") {
		lines := strings.Split(entry, "\n")
		c := checkout{admin: common}
		c.path = filepath.FromSlash(strings.TrimPrefix(lines[0], "worktree "))
		if i > 0 {
			c.admin = adminOf(common, c.path)
		}
		on := false
		for _, line := range lines[1:] {
			on = on || line == "branch refs/heads/"+branch
			if line == "bare" {
				c.admin = "" // its HEAD is only a default
			}
		}
		if c.admin == "" || !isDir(c.path) {
			continue
		}
		for _, name := range []string{"rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START"} {
			data, _ := os.ReadFile(filepath.Join(c.admin, filepath.FromSlash(name))) // usually missing
			on = on || strings.TrimPrefix(strings.TrimSpace(string(data)), "refs/heads/") == branch
		}
		if on {
			out = append(out, c)
		}
	}
	return out, nil
}

// operations are the files of a git folder that exist while an operation is in progress.
var operations = [][2]string{{"MERGE_HEAD", "merge"}, {"rebase-merge", "rebase"}, {"rebase-apply", "rebase"}, {"CHERRY_PICK_HEAD", "cherry-pick"},
	{"REVERT_HEAD", "revert"}, {"BISECT_LOG", "bisect"}, {"sequencer", "cherry-pick or revert"}}

// operation returns what is in progress in a worktree, or "".
func (c checkout) operation() string {
	for _, o := range operations {
		if isThere(filepath.Join(c.admin, o[0])) {
			return o[1]
		}
	}
	return ""
}

// changed lists the tracked files that differ from the commit that is checked out, and the untracked
// ones.
func (c checkout) changed(ctx context.Context) (tracked, untracked []string, err error) {
	out, err := git.Output(ctx, git.Command{Dir: c.path, GitDir: c.admin, WorkTree: c.path, Limit: listLimit,
		Args: []string{"status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=normal"}})
	for _, line := range git.Fields(out) {
		if len(line) < 4 {
			continue
		}
		if name := line[3:]; strings.HasPrefix(line, "??") {
			untracked = append(untracked, name)
		} else {
			tracked = append(tracked, name)
		}
	}
	return tracked, untracked, err
}

// inTheWay lists the files that are not tracked, ignored ones included, where the move adds others.
func (f *fileMove) inTheWay(ctx context.Context) (files []string, err error) {
	added, err := git.Output(ctx, f.call("diff-tree", "-r", "-z", "--no-renames", "--diff-filter=A", "--raw", f.From, f.To))
	if err != nil {
		return nil, err
	}
	at := func(name string) string { return filepath.Join(f.Path, filepath.FromSlash(name)) }
	var look []string // what git would remove: folders, and files in the place of folders, unless they are tracked
	for fields := git.Fields(added); len(fields) > 1; fields = fields[2:] {
		_, isRepo := strings.CutPrefix(fields[0], ":000000 "+modeRepo)
		switch name := fields[1]; {
		case isDir(at(name)) && !isRepo: // git does not touch the files of submodules
			look = append(look, name)
		case isThere(at(name)) && !isDir(at(name)):
			files = append(files, name)
		default:
			for name = path.Dir(name); name != "."; name = path.Dir(name) {
				if isThere(at(name)) && !isDir(at(name)) && !slices.Contains(look, name) {
					look = append(look, name)
				}
			}
		}
	}
	for _, name := range look {
		others, err := git.Output(ctx, f.call("ls-files", "--others", "-z", "--", ":(literal)"+name))
		if err != nil {
			return nil, err
		}
		files = append(files, git.Fields(others)...)
	}
	return files, nil
}
