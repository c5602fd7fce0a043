package worktree

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"deepwork/session/git"
)

// The errors of Merge, Rebase, Update, Abort and Push; each is wrapped with its subject.
var (
	ErrMoved       = errors.New("the branch was moved meanwhile") // call again
	ErrUnfinished  = errors.New("an operation is in progress in the worktree")
	ErrOtherBranch = errors.New("the worktree is not on its own branch")
	ErrNoMerge     = errors.New("no merge is in progress in the worktree")
)

// A Way is how Merge brings the commits of a branch into another.
type Way string

// The values of Way.
const (
	WayMerge  Way = "merge"  // a merge commit, always
	WaySquash Way = "squash" // one commit with all changes
	WayRebase Way = "rebase" // each commit is repeated on the target
)

// A Landing describes a Merge.
type Landing struct {
	Path    string // the worktree
	Target  string // a branch
	Way     Way
	Message string // of the new commit; not used by WayRebase
	// InUse is called before anything is changed; if it returns true, the error is ErrInUse. nil
	// means never.
	InUse func() bool
}

// A Landed is the result of Merge, Rebase or Update.
type Landed struct {
	Before    string   // the commit of the branch that was moved, before
	Commit    string   // and after; the same if there was nothing to do
	Conflicts []string // of Update: files to resolve in the worktree; Commit is Before then
	Untracked []string // files and folders of the worktree that no commit has
}

// Merge brings the commits of an attempt's worktree into its target branch. If the target is checked
// out nowhere, its ref is moved and no file is touched. If it is checked out in clean worktrees, their
// files are moved with it. Otherwise the error is a *CheckedOutError. The commits are the user's: see
// git.Command.User.
//
// After a squash or a rebase the attempt's branch is at the new commit too, so that it can be merged
// again later; its old commits stay under refs/deepwork/before.
//
// It changes everything or nothing, even if the process is killed: the next call for the attempt, or
// Recover, takes back what was not complete. Other errors are *DirtyError, for tracked files of the
// worktree that are not committed; *ConflictError, see Update; ErrUnfinished, ErrOtherBranch, ErrNoBranch, ErrMoved, ErrInUse, ErrNoWorktree. It blocks until all is done.
func (k *Keeper) Merge(ctx context.Context, l Landing) (*Landed, error) {
	return k.onBranch(ctx, l, "merging into "+l.Target, func(b *branchView) (*Landed, error) {
		c := &change{Refs: []refMove{{Ref: "refs/heads/" + l.Target, Old: b.target}}}
		if n, err := git.Line(ctx, inRepo(b.Common, "rev-list", "--count", "--max-count=1", b.target+".."+b.head)); err != nil {
			return nil, err
		} else if n == "0" {
			return &Landed{Before: b.target, Commit: b.target}, nil
		}
		checkouts, err := checkoutsOf(ctx, b.Common, l.Target)
		if err != nil {
			return nil, err
		}
		for _, at := range checkouts {
			files, _, err := at.changed(ctx)
			if err != nil {
				return nil, err
			}
			if operation := at.operation(); operation != "" || len(files) > 0 {
				return nil, byHand(l, b, at.path, files, operation)
			}
			c.Files = append(c.Files, &fileMove{Path: at.path, Admin: at.admin, From: b.target})
		}
		now := ""
		switch l.Way {
		case WayRebase:
			now, err = k.replay(ctx, b)
		case WayMerge, WaySquash:
			now, err = k.landed(ctx, l, b)
		default:
			err = fmt.Errorf("%q is not a way to merge", l.Way)
		}
		if err != nil {
			return nil, err
		}
		if now == b.target {
			return &Landed{Before: b.target, Commit: b.target}, nil
		}
		c.Refs[0].New = now
		for _, f := range c.Files {
			f.To = now
		}
		if l.Way == WayMerge {
			c.Since = &since{From: b.from, Common: b.head, Merged: true}
		} else if err := k.moved(ctx, b, c, now, now, true); err != nil {
			return nil, err
		} else if now != b.head {
			b.moveTo(c, now)
		}
		if err := k.carryOut(ctx, b.journal, b.record, c); err != nil {
			if dirty, is := errors.AsType[*DirtyError](err); is && dirty.Path != b.Path {
				return nil, byHand(l, b, dirty.Path, dirty.Files, "")
			}
			return nil, err
		}
		return &Landed{Before: b.target, Commit: now}, nil
	})
}

// landed makes the commit of a merge or squash. It returns the target's for a squash that changes
// nothing.
func (k *Keeper) landed(ctx context.Context, l Landing, b *branchView) (string, error) {
	result, err := k.combine(ctx, b.record, b.admin, refMove{Ref: "refs/heads/" + l.Target, New: b.target}, refMove{Ref: "refs/heads/" + b.Branch, New: b.head})
	if err != nil {
		return "", err
	}
	if len(result.stages) > 0 {
		return "", &ConflictError{Files: result.files()}
	}
	parents := []string{b.target, b.head}
	if l.Way == WaySquash {
		parents = parents[:1]
		if tree, err := treeOf(ctx, b.Common, b.target); err != nil || tree == result.tree {
			return b.target, err
		}
	}
	return k.commit(ctx, b.record, b.admin, result.tree, l.message(b.Branch, l.Target), parents)
}

// message returns the message of a commit that merges a branch.
func (l Landing) message(from, into string) string {
	if text := strings.TrimSpace(l.Message); text != "" {
		return text + "\n"
	}
	return fmt.Sprintf("Merge branch '%s' into %s\n", from, into)
}

// byHand describes why a target cannot be moved where it is checked out.
func byHand(l Landing, b *branchView, path string, files []string, operation string) error {
	at := "git -C " + strconv.Quote(path)
	command := at + " merge --no-ff " + b.Branch
	switch l.Way {
	case WaySquash:
		command = at + " merge --squash " + b.Branch + " && " + at + " commit"
	case WayRebase:
		command = "git -C " + strconv.Quote(b.Path) + " rebase " + l.Target + " && " + at + " merge --ff-only " + b.Branch
	}
	return &CheckedOutError{Branch: l.Target, Path: path, Files: files, Operation: operation, Command: command}
}

// Rebase repeats the commits of an attempt's worktree on its target branch as it is now; of l it uses
// Path, Target and InUse. The old commits stay under refs/deepwork/before. It returns as Merge does;
// after a *ConflictError nothing is changed, and Update can be called instead.
func (k *Keeper) Rebase(ctx context.Context, l Landing) (*Landed, error) {
	return k.onBranch(ctx, l, "rebasing onto "+l.Target, func(b *branchView) (*Landed, error) {
		now, err := k.replay(ctx, b)
		if err != nil || now == b.head {
			return &Landed{Before: b.head, Commit: b.head}, err
		}
		c := &change{}
		b.moveTo(c, now)
		if err = k.moved(ctx, b, c, now, b.target, false); err == nil {
			err = k.carryOut(ctx, b.journal, b.record, c)
		}
		return &Landed{Before: b.head, Commit: now}, err
	})
}

// Update merges the target branch into an attempt's worktree; of l it uses Path, Target, Message and
// InUse. Conflicts are left in the worktree, with the merge in progress: git commit ends it there, or
// Abort undoes it. It returns as Merge does.
func (k *Keeper) Update(ctx context.Context, l Landing) (*Landed, error) {
	return k.onBranch(ctx, l, "merging from "+l.Target, func(b *branchView) (*Landed, error) {
		if b.common == b.target {
			return &Landed{Before: b.head, Commit: b.head}, nil
		}
		now, result, err := b.target, combination{}, error(nil)
		if b.common != b.head {
			if result, err = k.combine(ctx, b.record, b.admin, refMove{Ref: "refs/heads/" + b.Branch, New: b.head}, refMove{Ref: "refs/heads/" + l.Target, New: b.target}); err != nil {
				return nil, err
			}
			if len(result.stages) > 0 {
				c := &change{Files: []*fileMove{{Path: b.Path, Admin: b.admin, From: b.head, To: result.tree}},
					Merge: &unfinished{Theirs: b.target, message: strings.TrimSpace(l.message(l.Target, b.Branch)), stages: result.stages}}
				if err := k.carryOut(ctx, b.journal, b.record, c); err != nil {
					return nil, err
				}
				return &Landed{Before: b.head, Commit: b.head, Conflicts: result.files()}, nil
			}
			if now, err = k.commit(ctx, b.record, b.admin, result.tree, l.message(l.Target, b.Branch), []string{b.head, b.target}); err != nil {
				return nil, err
			}
		}
		c := &change{Files: []*fileMove{{Path: b.Path, Admin: b.admin, From: b.head, To: now}}, Refs: []refMove{{Ref: "refs/heads/" + b.Branch, Old: b.head, New: now}}}
		if err := k.moved(ctx, b, c, now, b.target, false); err != nil {
			return nil, err
		}
		if err := k.carryOut(ctx, b.journal, b.record, c); err != nil {
			return nil, err
		}
		return &Landed{Before: b.head, Commit: now}, nil
	})
}

// Abort undoes a merge in progress in an attempt's worktree: its files are as in its last commit
// again; untracked ones stay. What was there, such as conflicts that were resolved already, is first
// saved as by Remove, and the Rescue says where. It blocks until all is done. Errors: ErrNoMerge,
// ErrNotKept, ErrInUse, ErrNoWorktree.
func (k *Keeper) Abort(ctx context.Context, path string, inUse func() bool) (kept *Rescue, err error) {
	defer wrap(&err, "aborting the merge in %s", path)
	err = k.onWorktree(ctx, path, inUse, func(b *branchView) error {
		free, err := k.lockRepo(ctx, b.Common, nil)
		if err != nil {
			return err
		}
		defer free()
		if (checkout{b.Path, b.admin}).operation() != "merge" {
			return ErrNoMerge
		}
		if err := k.keep(ctx, b.journal, b.record, keepAll); err != nil {
			return err
		}
		kept = &Rescue{Path: b.Path, Ref: b.Ref, Commit: b.Commit}
		return k.carryOut(ctx, b.journal, b.record, &change{Abort: b.head})
	})
	return kept, err
}

// A branchView is the worktree of an attempt for the calls that move branches.
type branchView struct {
	*record
	journal *journal
	admin   string
	head    string // its commit
	target  string // that of the target
	from    string // the commit at which its work begins
	common  string // the commit that both have in common, or ""
}

// moveTo has a change move the worktree's branch, whose commit stays under a ref of its own.
func (b *branchView) moveTo(c *change, now string) {
	c.Files = append(c.Files, &fileMove{Path: b.Path, Admin: b.admin, From: b.head, To: now})
	c.Refs = append(c.Refs, refMove{Ref: "refs/heads/" + b.Branch, Old: b.head, New: now})
	c.keep(b, b.head)
}

// onBranch calls do for a worktree that is on its own branch, with all its changes committed. The
// attempt and the repository are locked.
func (k *Keeper) onBranch(ctx context.Context, l Landing, doing string, do func(*branchView) (*Landed, error)) (r *Landed, err error) {
	defer wrap(&err, "%s of %s", doing, l.Path)
	err = k.onWorktree(ctx, l.Path, l.InUse, func(b *branchView) error {
		free, err := k.lockRepo(ctx, b.Common, nil)
		if err != nil {
			return err
		}
		defer free()
		at := checkout{b.Path, b.admin}
		if operation := at.operation(); operation != "" {
			return fmt.Errorf("%w: %s", ErrUnfinished, operation)
		}
		ref, err := git.Line(ctx, git.Command{Dir: b.Path, GitDir: b.admin, WorkTree: b.Path, Args: []string{"symbolic-ref", "--quiet", "HEAD"}})
		if err != nil && git.ExitCode(err) != 1 {
			return err
		}
		if ref != "refs/heads/"+b.Branch || b.head == "" || l.Target == b.Branch {
			return fmt.Errorf("%w: it is on %q, expected %s", ErrOtherBranch, strings.TrimPrefix(ref, "refs/heads/"), b.Branch)
		}
		if b.target, err = baseOf(ctx, b.Common, l.Target); err != nil {
			return err
		}
		if b.from, b.common, err = b.begin(ctx, b.head, b.target); err != nil {
			return err
		}
		tracked, untracked, err := at.changed(ctx)
		if err != nil {
			return err
		}
		if len(tracked) > 0 {
			return &DirtyError{Path: b.Path, Files: tracked}
		}
		for _, branch := range []string{l.Target, b.Branch} {
			if err := git.CheckBranch(b.Common, branch, "refs/deepwork/before", filepath.ToSlash(filepath.Join("logs", "HEAD"))); err != nil {
				return err
			}
		}
		if r, err = do(b); r != nil {
			r.Untracked = untracked
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// onWorktree calls do for a worktree of an attempt, which is locked.
func (k *Keeper) onWorktree(ctx context.Context, path string, inUse func() bool, do func(*branchView) error) error {
	attempt := filepath.Base(filepath.Dir(path))
	if !attemptName.MatchString(attempt) || filepath.Dir(filepath.Dir(path)) != k.dir {
		return ErrNoWorktree
	}
	unlock, err := k.lockAttempt(ctx, attempt)
	if err != nil {
		return err
	}
	defer unlock()
	j, err := k.load(attempt)
	if err != nil {
		return err
	}
	if j == nil || j.Phase != made {
		return ErrNoWorktree
	}
	if inUse != nil && inUse() {
		return ErrInUse
	}
	if err := k.settleAll(ctx, j); err != nil {
		return err
	}
	for _, e := range j.Trees {
		if e.Path != path || !isDir(path) {
			continue
		}
		b := &branchView{record: e, journal: j}
		if b.admin, err = e.admin(); err != nil || b.admin == "" {
			return errors.Join(err, ErrNoWorktree)
		}
		if b.head, err = commitOf(ctx, git.Command{Dir: e.Path, GitDir: b.admin, WorkTree: e.Path}, "HEAD"); err != nil {
			return err
		}
		return do(b)
	}
	return ErrNoWorktree
}
