package worktree

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/session/git"
)

// A CheckedOutError says that a branch cannot be moved, since it is checked out in a worktree that has
// changes or an operation in progress, or in two.
type CheckedOutError struct {
	Branch    string
	Path      string   // the worktree
	Files     []string // its changed files, relative, with slashes; or those in the way
	Operation string   // such as rebase; "" means none
	Also      string   // another worktree that has the branch; "" means none
	Command   string   // that does the same by hand, once that is resolved
}

func (e *CheckedOutError) Error() string {
	why := fmt.Sprintf("these files are changed there, or are in the way: %q", e.Files)
	switch {
	case e.Also != "":
		why = fmt.Sprintf("in %s, too: switch one of them to another branch, such as with git -C %q switch --detach", e.Also, e.Also)
	case e.Operation != "":
		why = fmt.Sprintf("an operation is in progress there: %s, which git -C %q %s ends", e.Operation, e.Path, ending(e.Operation))
	}
	return fmt.Sprintf("the branch %s is checked out in %s, and %s; resolve that, or run: %s", e.Branch, e.Path, why, e.Command)
}

// ending returns the arguments of git that undo an operation in progress.
func ending(operation string) string {
	if operation == "bisect" {
		return "bisect reset"
	}
	return operation + " --abort"
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

// operation returns what is in progress in a worktree, or "".
func (c checkout) operation() string { return git.InProgress(c.admin) }

// untracked is git's status of a file that is in no commit and not ignored.
const untracked = "??"

// loose returns the files that differ from the commit that is checked out, by git's status of them,
// which has two letters; files is which untracked ones: all, normal (with folders), no.
func (c checkout) loose(ctx context.Context, files string) (map[string][]string, error) {
	out, err := git.Output(ctx, c.call("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files="+files))
	loose := map[string][]string{}
	for _, line := range git.Fields(out) {
		if len(line) > 3 {
			loose[line[:2]] = append(loose[line[:2]], line[3:])
		}
	}
	return loose, err
}

// conflicts lists the files among those of loose that have conflicts.
func conflicts(loose map[string][]string) (files []string) {
	for xy, names := range loose {
		if strings.Contains(xy, "U") || xy == "AA" || xy == "DD" {
			files = append(files, names...)
		}
	}
	slices.Sort(files)
	return files
}

// unmerged lists the files with conflicts.
func (c checkout) unmerged(ctx context.Context) ([]string, error) {
	loose, err := c.loose(ctx, "no")
	return conflicts(loose), err
}

// changed lists the tracked files that differ from the commit that is checked out, and the untracked
// ones.
func (c checkout) changed(ctx context.Context) (tracked, others []string, err error) {
	loose, err := c.loose(ctx, "normal")
	for xy, names := range loose {
		if xy != untracked {
			tracked = append(tracked, names...)
		}
	}
	slices.Sort(tracked)
	return tracked, loose[untracked], err
}

func (c checkout) call(args ...string) git.Command { return call(c.path, c.admin, args...) }

// inTheWay lists the files that git names, in lines with a tab, since a merge or switch would
// overwrite them.
func inTheWay(said string) (files []string) {
	for line := range strings.Lines(said) {
		if name, is := strings.CutPrefix(line, "\t"); is {
			files = append(files, strings.TrimRight(name, "\r\n"))
		}
	}
	return files
}
