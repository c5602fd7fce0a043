package worktree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"deepwork/session"
	"deepwork/session/git"
)

// A view is an attempt's worktree in its journal.
type view struct {
	*record
	checkout
	journal *journal
	head    string // its commit; "" means none
	target  string // the target's commit
	from    string // the commit from which its work begins
	common  string // the commit that both have in common, or ""
	signs   bool   // the user's commits are signed
}

// view returns a worktree with what it is compared with.
func (k *Keeper) view(ctx context.Context, path, base, target string) (v *view, err error) {
	j, err := k.journalOf(path)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(j.Trees, func(e *record) bool { return e.Path == path && e.Private != nil }) {
		if err = k.locked(ctx, j.Attempt, func(now *journal) error {
			j = now
			return k.takeAll(ctx, now, path)
		}); err != nil {
			return nil, err
		}
	}
	if v, err = j.view(ctx, path); err != nil {
		return nil, err
	}
	if target != "" {
		if v.target, err = branchTip(ctx, v.Common, target); err != nil {
			return nil, err
		}
	}
	if v.target == "" && base != "" {
		v.target, err = commitOf(ctx, v.call(), base)
		if err != nil && git.ExitCode(err) < 0 {
			return nil, err
		}
	}
	if v.target == "" {
		return nil, fmt.Errorf("neither the branch %q nor the commit %q is in the repository", target, base)
	}
	v.from = v.target
	if v.head != "" {
		if v.from, v.common, err = v.begin(ctx, v.head, v.target); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// view returns a worktree of the journal with its commit, or ErrNoWorktree. It does not trust the .git file,
// which an agent or the project may write.
func (j *journal) view(ctx context.Context, path string) (*view, error) {
	i := slices.IndexFunc(j.Trees, func(e *record) bool { return e.Path == path })
	if i < 0 || !isDir(path) {
		return nil, ErrNoWorktree
	}
	admin, err := j.Trees[i].folder()
	if err != nil || admin == "" {
		return nil, cmp.Or(err, ErrNoWorktree)
	}
	v := &view{record: j.Trees[i], checkout: checkout{path, admin}, journal: j}
	v.head, err = commitOf(ctx, v.call(), "HEAD")
	return v, err
}

// journalOf returns the journal that contains a worktree, or ErrNoWorktree.
func (k *Keeper) journalOf(path string) (*journal, error) {
	attempt := filepath.Base(filepath.Dir(path))
	if !attemptName.MatchString(attempt) || filepath.Dir(filepath.Dir(path)) != k.dir {
		return nil, ErrNoWorktree
	}
	j, err := k.load(attempt)
	if err == nil && j == nil {
		err = ErrNoWorktree
	}
	return j, err
}

// onWorktree calls do for a worktree of an attempt, which is locked.
func (k *Keeper) onWorktree(ctx context.Context, path string, inUse func() bool, do func(*view) error) (err error) {
	j, err := k.journalOf(path)
	if err != nil {
		return err
	}
	unlock, err := k.lockAttempt(ctx, j.Attempt)
	if err != nil {
		return err
	}
	defer unlock()
	defer k.explainOwner(&err, j.Attempt)
	if j, err = k.journalOf(path); err != nil { // read again: it may have changed
		return err
	}
	if j.Phase != made || isThere(k.removalPath(j.Attempt)) {
		return ErrNoWorktree
	}

	if inUse != nil && inUse() {
		return ErrInUse
	}
	if err := k.takeAll(ctx, j, path); err != nil {
		return err
	}
	b, err := j.view(ctx, path)
	if errors.Is(err, ErrNoWorktree) {
		return j.missingError(ctx, path)
	} else if err != nil {
		return err
	}

	return do(b)
}

// onBranch calls do for a worktree with all its changes committed, on its own branch: see adopt. The attempt
// and the repository are locked.
func (k *Keeper) onBranch(
	ctx context.Context, l Landing, doing string, do func(*view) (*Landed, error),
) (r *Landed, err error) {
	defer wrap(&err, "%s of %s", doing, l.Path)
	err = k.onWorktree(ctx, l.Path, l.InUse, func(b *view) error {
		free, err := k.lockRepo(ctx, b.Common)
		if err != nil {
			return err
		}
		defer free()

		if err := b.finished(); err != nil {
			return err
		}

		if err := git.CheckFilters(ctx, b.call()); err != nil {
			return err
		}

		if l.Target == b.Branch {
			return fmt.Errorf("%w: its target is its own branch %s", ErrNoBranch, b.Branch)
		}
		if b.target, err = baseOf(ctx, b.Common, l.Target); err != nil {
			return err
		}

		was, err := b.adopt(ctx)
		if err != nil {
			return err
		}

		if l.Commit != "" {
			tracked, others, err := b.changed(ctx)
			// a merge that is refused because of the user's checkout must not leave a commit
			if err == nil && len(tracked)+len(slices.DeleteFunc(others, b.isCopy)) > 0 {
				_, err = targetCheckout(ctx, l, b)
			}
			if err != nil {
				return err
			}
			if err := b.commitAll(ctx, l.Commit, false); err != nil {
				return err
			}
		}

		if b.from, b.common, err = b.begin(ctx, b.head, b.target); err != nil {
			return err
		}
		tracked, others, err := b.changed(ctx)
		if err != nil {
			return err
		}
		if len(tracked) > 0 {
			return &DirtyError{Path: b.Path, Files: tracked}
		}

		if err := b.published(ctx); err != nil {
			return err
		}

		for _, branch := range []string{l.Target, b.Branch} {
			err := git.CheckBranch(b.Common, branch, "refs/deepwork/before",
				filepath.ToSlash(filepath.Join("logs", "HEAD")))
			if err != nil {
				return err
			}
		}

		var unused map[string]string
		if b.signs, unused, err = git.Signing(ctx, b.asUser("config")); err != nil {
			return err
		}
		if r, err = do(b); r != nil {
			r.Untracked, r.Adopted = slices.DeleteFunc(others, b.isCopy), was
			if r.Before != r.Commit {
				r.Unused = unused
			}
		} else if git.ExitCode(err) > 0 && len(unused) > 0 {
			err = fmt.Errorf("%w\n%s", err, NotRun("for signing", unused))
		}

		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// finished returns ErrUnfinished if an operation is in progress.
func (b *view) finished() error {
	if operation := b.operation(); operation != "" {
		return fmt.Errorf("%w: %s, which this undoes: git -C %s %s", ErrUnfinished, operation, session.InShell(b.Path),
			ending(operation))
	}
	if b.Private != nil && b.Private.Operation != "" {
		return fmt.Errorf("%w: a %s, which its contained agent has begun: have it finished or undone by a follow-up",
			ErrUnfinished, b.Private.Operation)
	}
	return nil
}

// asUser returns a git command with the user's identity and signing.
func (b *view) asUser(args ...string) git.Command {
	c := b.call(args...)
	c.User = true
	return c
}
