// Package branch makes the git branches of sessions, in the sessions' work tree.
//
// To change it, know these: Tree, DirtyError.
package branch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"deepwork/session/git"
)

// Name returns deepwork/<job>-<workflow>-<instance or date> as a legal git ref (seed 002, "Session and State
// Model").
func Name(jobName, workflowName string, instance *string, at time.Time) string {
	last := at.Format(time.DateOnly)
	if instance != nil {
		if s := refPart(*instance); s != "" {
			last = s
		}
	}
	return "deepwork/" + refPart(jobName) + "-" + refPart(workflowName) + "-" + last
}

// refPart makes a text valid in a branch name: it replaces what git-check-ref-format forbids by hyphens.
func refPart(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), unicode.IsMark(r), r == '_', r == '.':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}

		if b.Len() > 100 {
			break
		}
	}

	out := b.String()
	for strings.Contains(out, "..") {
		out = strings.ReplaceAll(out, "..", ".")
	}
	for {
		cut := strings.TrimSuffix(strings.Trim(out, "-."), ".lock")
		if cut == out {
			break
		}
		out = cut
	}
	return strings.ToValidUTF8(out, "")
}

// patience bounds a command of git.
const patience = 30 * time.Second

// A Tree is a folder that may be a git work tree, or lie in one. Its methods run git, at most half a minute
// per run.
type Tree struct{ Root string }

// Outside reports whether no repository is in the folder or in one above it.
func (t Tree) Outside() bool {
	for dir := t.Root; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// Free returns the name of a branch that Make can create: the given one, or one with a number added. Names in
// taken count as used; the result is added to them.
func (t Tree) Free(ctx context.Context, name string, checkout bool, taken map[string]bool) (free string, err error) {
	out, err := t.run(ctx, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/"+name+"*")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		taken[strings.TrimSpace(line)] = true
	}

	free = name
	for i := 2; taken[free]; i++ {
		free = fmt.Sprintf("%s-%d", name, i)
	}

	_, commit, err := t.head(ctx)
	switch {
	case err != nil:
		return "", err
	case commit == "" && !checkout:
		return "", errors.New("there is no commit yet")
	}

	err = t.linkFree(ctx, free)
	if err == nil && commit != "" { // would git accept it?
		_, err = t.git(ctx, git.Command{
			Args:  []string{"update-ref", "--stdin"},
			Stdin: fmt.Appendf(nil, "start\ncreate refs/heads/%s %s\nprepare\nabort\n", free, commit),
		})
		// created meanwhile, for another session, or with different case on a file system that ignores case
		if git.Said(err, "already exists") {
			taken[free] = true
			return t.Free(ctx, name, checkout, taken)
		}
	}
	if err != nil {
		return "", fmt.Errorf("making the branch %s: %w", free, err)
	}
	return free, nil
}

// Make creates a branch at the checked-out commit and, if checkout is set, switches to it like git checkout
// -b: no file changes. If the branch exists, an earlier call made it, and may have been killed before it
// switched.
func (t Tree) Make(ctx context.Context, name string, checkout bool) error {
	full := "refs/heads/" + name
	ref, commit, err := t.head(ctx)
	if err != nil || ref == full {
		return err
	}

	at, err := t.commitOf(ctx, full)
	if err != nil || at != "" && (!checkout || at != commit) {
		return err
	}

	if err := t.linkFree(ctx, name); err != nil {
		return err
	}

	if checkout {
		if err := t.Switchable(ctx); err != nil {
			return err
		}
	}

	if at == "" && commit != "" { // before the first commit no branch has a commit
		_, err := t.run(ctx, "branch", "--no-track", "--", name, commit)
		if err != nil && !git.Said(err, "already exists") {
			return err
		}
	}

	if !checkout {
		return nil
	}

	args := []string{"switch", "--quiet", name}
	if commit == "" {
		args = []string{"switch", "--quiet", "--create", name}
	}
	_, err = t.run(ctx, args...)
	return err
}

// linkFree refuses a branch that git would write through a link.
func (t Tree) linkFree(ctx context.Context, name string) error {
	dirs, err := t.gitDirs(ctx)
	for _, dir := range dirs {
		err = cmp.Or(err, git.CheckBranch(dir, name, "logs/HEAD"))
	}
	return err
}

// gitDirs returns the git folder of the work tree and the one that it shares with other work trees.
func (t Tree) gitDirs(ctx context.Context) (dirs []string, err error) {
	out, err := t.run(ctx, "rev-parse", "--git-dir", "--git-common-dir")
	if err != nil {
		return nil, err
	}
	for dir := range strings.Lines(out) {
		if dir = filepath.FromSlash(strings.TrimRight(dir, "\r\n")); !filepath.IsAbs(dir) {
			dir = filepath.Join(t.Root, dir)
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// head returns the ref of the checked-out branch, "" if HEAD is detached, and the commit, "" before the first
// one.
func (t Tree) head(ctx context.Context) (ref, commit string, err error) {
	if commit, err = t.commitOf(ctx, "HEAD"); err != nil {
		return "", "", err
	}
	ref, err = t.run(ctx, "symbolic-ref", "--quiet", "HEAD")
	if git.ExitCode(err) == 1 && commit != "" {
		err = nil
	}
	return ref, commit, err
}

// commitOf returns the commit of a ref, or "" if the ref does not exist.
func (t Tree) commitOf(ctx context.Context, ref string) (commit string, err error) {
	if commit, err = t.run(ctx, "rev-parse", "--verify", "--quiet", ref); git.ExitCode(err) == 1 {
		return "", nil
	}
	return commit, err
}

// A DirtyError reports changes to tracked files.
type DirtyError struct{ Files []string }

func (e *DirtyError) Error() string {
	return "the work tree has uncommitted changes: " + strings.Join(e.Files, ", ")
}

// Switchable refuses a tree with changes to tracked files, which a switch of branches would take along
// (untracked files do not matter), a tree with a git operation in progress, and one without a branch.
func (t Tree) Switchable(ctx context.Context) error {
	dirs, err := t.gitDirs(ctx)
	if err != nil {
		return err
	}
	if operation := git.InProgress(dirs[0]); operation != "" {
		return fmt.Errorf("a git %s is in progress: finish or abort it first", operation)
	}

	if ref, commit, err := t.head(ctx); err != nil {
		return err
	} else if ref == "" {
		return fmt.Errorf("no branch is checked out (a detached HEAD at %.12s), and a switch to another one could "+
			"lose track of that commit: git switch BRANCH first, or set git.branch to create", commit)
	}

	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	changed, _, err := git.Changes(ctx, git.Command{Dir: t.Root, Filters: true}, "no")
	if err != nil {
		return err
	}
	files := slices.Concat(slices.Collect(maps.Values(changed))...)
	slices.Sort(files)
	if len(files) > 20 {
		files = append(files[:20], "…")
	}
	if files != nil {
		return &DirtyError{files}
	}

	return nil
}

// run runs git in the tree and returns its output without the final line break.
func (t Tree) run(ctx context.Context, args ...string) (string, error) {
	return t.git(ctx, git.Command{Args: args})
}

func (t Tree) git(ctx context.Context, c git.Command) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c.Dir, c.Filters = t.Root, true // the user has approved git.branch
	if c.Args[0] == "branch" || c.Args[0] == "switch" {
		c.Config = []string{git.NoReflog}
	}
	return git.Line(ctx, c)
}
