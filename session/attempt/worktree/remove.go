package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Remove removes the worktrees of an attempt. Uncommitted work is first saved under the rescue ref
// of its repository, for all worktrees before the first one is removed; if that fails, the error is
// ErrNotKept and nothing is removed. Ignored files are not saved. Branches with commits stay;
// others are deleted. inUse is called just before a worktree is removed: if it returns true, or the
// worktree is locked by git worktree lock, the error is ErrInUse, and nothing of it is removed. A
// nil inUse means never.
//
// The Rescues describe each worktree, and last the attempt's folder if it had other files. For an
// attempt without worktrees there are none, and no error. It blocks, and may be called again after
// an error or a crash.
func (k *Keeper) Remove(ctx context.Context, attempt string, inUse func() bool) (out []Rescue, err error) {
	defer wrap(&err, "removing the worktrees of attempt %s", attempt)
	unlock, err := k.lockAttempt(ctx, attempt)
	if err != nil {
		return nil, err
	}
	defer unlock()
	j, err := k.load(attempt)
	if err != nil {
		return nil, err
	}
	if j == nil {
		folder := k.folder(attempt)
		if k.private() {
			os.Remove(folder) // if it is empty
		}
		list, _ := os.ReadDir(folder) // usually there is none
		if slices.ContainsFunc(list, func(f fs.DirEntry) bool { return isThere(filepath.Join(folder, f.Name(), ".git")) }) {
			return nil, fmt.Errorf("its journal %s is gone; look at what is in %s, and remove it by hand", k.journalPath(attempt), folder)
		}
		return nil, nil
	}
	if inUse == nil {
		inUse = func() bool { return false }
	}
	return k.remove(ctx, j, inUse)
}

func (k *Keeper) remove(ctx context.Context, j *journal, inUse func() bool) ([]Rescue, error) {
	if inUse() {
		return nil, ErrInUse
	}
	if err := errors.Join(k.clearOwn(ctx, j), k.settleAll(ctx, j)); err != nil {
		return nil, err
	}
	if j.Phase == creating || j.Phase == undoing {
		return k.undo(ctx, j)
	}
	for _, e := range j.Trees {
		if err := e.unlocked(); err != nil {
			return nil, err
		}
	}
	if err := k.turn(j, removing); err != nil {
		return nil, err
	}
	if err := k.keepEach(ctx, j); err != nil {
		return nil, k.stay(j, err)
	}
	for _, e := range j.Trees {
		if e.Step == dropped {
			continue
		}
		if inUse() {
			return j.rescues(), k.stay(j, ErrInUse)
		}
		if err := k.drop(ctx, j, e); err != nil {
			return j.rescues(), k.stay(j, err)
		}
	}
	err := k.finish(ctx, j)
	return j.rescues(), err
}

// keepEach rescues the work of all worktrees, before any of them is removed.
func (k *Keeper) keepEach(ctx context.Context, j *journal) error {
	for _, e := range j.Trees {
		if e.Step == dropped {
			continue
		}
		if err := k.keep(ctx, j, e, keepAll); err != nil {
			return err
		}
		if e.Step == dropping && !isDir(e.Path) {
			continue
		}
		if err := k.reach(j, e, rescued); err != nil {
			return err
		}
	}
	if err := k.keepRest(ctx, j); err != nil {
		return err
	}
	return k.save(j)
}

// stay restores the state of an attempt if nothing of it was removed yet, so that the next start
// does not finish a removal that was refused.
func (k *Keeper) stay(j *journal, err error) error {
	for _, e := range j.Trees {
		if e.Step == dropped || e.Step == dropping && !isDir(e.Path) {
			return err
		}
	}
	for _, e := range j.Trees {
		e.Step = ready
	}
	return errors.Join(err, k.turn(j, made))
}

// unlocked returns ErrInUse if a person has locked a worktree.
func (e *record) unlocked() error {
	if reason, locked := lockedBy(adminOf(e.Common, e.Path)); locked && reason != initializing {
		return fmt.Errorf("%w: %s is locked (%s); run git worktree unlock", ErrInUse, e.Path, reason)
	}
	return nil
}

// undo removes the results of a creation so far. After a crash they are searched for work first,
// though nobody should have worked there yet.
func (k *Keeper) undo(ctx context.Context, j *journal) ([]Rescue, error) {
	if j.Phase == creating {
		for _, e := range j.Trees {
			if err := k.keep(ctx, j, e, keepPresent); err != nil {
				return nil, err
			}
		}
	}
	if err := k.turn(j, undoing); err != nil {
		return nil, err
	}
	for _, e := range j.Trees {
		if e.Step == planned || e.Step == dropped {
			continue
		}
		if err := k.drop(ctx, j, e); err != nil {
			return j.rescues(), err
		}
	}
	err := k.finish(ctx, j)
	return j.rescues(), err
}

// drop removes one worktree whose work is rescued: its folder, its entry in the repository, and its
// branch if that has no commits.
func (k *Keeper) drop(ctx context.Context, j *journal, e *record) error {
	if err := e.unlocked(); err != nil {
		return err
	}
	if err := k.reach(j, e, dropping); err != nil {
		return err
	}
	k.dropping(e.Path)
	// Move it in one step, so that a crash never leaves half of it, which would look like a
	// worktree with deleted files.
	empty, err := k.discard(e.Path, j.Attempt)
	if err != nil {
		return fmt.Errorf("removing %s: %w", e.Path, err)
	}
	defer empty()
	k.at("moved " + e.Name)
	if isDir(e.Common) {
		if err := k.dropInRepo(ctx, e); err != nil {
			return err
		}
	}
	return k.reach(j, e, dropped)
}

func (k *Keeper) dropInRepo(ctx context.Context, e *record) error {
	unlock, err := k.lockRepo(ctx, e.Common, nil)
	if err != nil {
		return err
	}
	defer unlock()
	if err := dropAdmin(ctx, e.Common, e.Path); err != nil {
		return err
	}
	k.at("unregistered " + e.Name)
	if err := dropBranch(ctx, e.Common, e.Branch, e.Base); err != nil {
		return err
	}
	k.at("branch dropped " + e.Name)
	return nil
}

// finish removes the attempt's folder and its journal: all is done.
func (k *Keeper) finish(ctx context.Context, j *journal) error {
	folder := k.folder(j.Attempt)
	if err := os.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
		if j.Phase == undoing {
			k.log.Warn("the folder of an attempt holds files that are not its worktrees; it stays", "folder", folder)
			return k.forget(j.Attempt)
		}
		// There were files next to the worktrees, and more may have been added since.
		if err := k.keepRest(ctx, j); err != nil {
			return err
		}
		k.dropping(folder)
		empty, err := k.discard(folder, j.Attempt)
		if err != nil {
			return fmt.Errorf("removing %s: %w", folder, err)
		}
		defer empty()
	}
	k.at("folder removed")
	return k.forget(j.Attempt)
}

func (j *journal) rescues() []Rescue {
	var out []Rescue
	for _, e := range j.Trees {
		out = append(out, Rescue{Path: e.Path, Ref: e.Ref, Commit: e.Commit})
	}
	if j.Rest != nil {
		out = append(out, *j.Rest)
	}
	return out
}
