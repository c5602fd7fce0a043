package worktree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Remove removes the worktrees of an attempt. Uncommitted work is first saved under the rescue ref
// of its repository, of all worktrees before anything is removed; if that fails, the error is
// ErrNotKept and nothing is removed. It fails, with a *NestedError, for repositories in them that
// have work which is nowhere else; with force they are discarded. Ignored files are not saved.
// Branches with commits stay; others are deleted. inUse is called just before the worktrees are
// removed: if it returns true, or one is locked by git worktree lock, the error is ErrInUse. A nil
// inUse means never.
//
// The Rescues are of the worktrees, and of the attempt's folder if it had other files, that had
// work; discarded are the repositories that force has discarded. It blocks, and may be called again
// after an error or a crash.
func (k *Keeper) Remove(ctx context.Context, attempt string, force bool, inUse func() bool) (out []Rescue, discarded []Nested, err error) {
	defer wrap(&err, "removing the worktrees of attempt %s", attempt)
	unlock, err := k.lockAttempt(ctx, attempt)
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	j, err := k.load(attempt)
	if err != nil {
		return nil, nil, err
	}
	if j == nil {
		folder := k.folder(attempt)
		if k.private() {
			os.Remove(folder) // if it is empty
		}
		list, _ := os.ReadDir(folder) // usually there is none
		if slices.ContainsFunc(list, func(f fs.DirEntry) bool { return isThere(filepath.Join(folder, f.Name(), ".git")) }) {
			return nil, nil, fmt.Errorf("its journal %s is gone; look at what is in %s, and remove it by hand", k.journalPath(attempt), folder)
		}
		return nil, nil, nil
	}
	if inUse == nil {
		inUse = func() bool { return false }
	}
	return k.remove(ctx, j, force, inUse)
}

func (k *Keeper) remove(ctx context.Context, j *journal, force bool, inUse func() bool) (out []Rescue, discarded []Nested, err error) {
	if j.Phase == made && !isThere(k.gone(j.Attempt)) {
		if inUse() {
			return nil, nil, ErrInUse
		}
		for _, e := range j.Trees {
			if reason, locked := lockedBy(adminOf(e.Common, e.Path)); locked {
				return nil, nil, fmt.Errorf("%w: git has it locked (%s). This unlocks it: git -C %q worktree unlock %q", ErrInUse, cmp.Or(reason, "no reason is given"), e.Common, e.Path)
			}
		}
		if out, discarded, err = k.keepAll(ctx, j, force); err != nil {
			return nil, nil, err
		}
		if inUse() {
			return nil, nil, ErrInUse
		}
	}
	return out, discarded, k.drop(ctx, j)
}

// drop removes the worktrees of an attempt, whose work is rescued or which nobody has worked in: its
// folder, their entries in the repositories, the branches that have no commits, and the journal. It
// first renames the folder, in one step, so that a crash never leaves half of a worktree, which
// would look like one with deleted files.
func (k *Keeper) drop(ctx context.Context, j *journal) error {
	folder, gone := k.folder(j.Attempt), k.gone(j.Attempt)
	if err := k.unlinked(folder, gone); err != nil {
		return err
	}
	for _, e := range j.Trees {
		if e.Begun {
			k.dropping(e.Path)
			k.dropping(filepath.Join(e.Path, e.Folder))
		}
	}
	k.dropping(folder)
	if !isThere(gone) {
		if err := os.Rename(folder, gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing %s: %w", folder, err)
		}
		k.at("renamed")
	}
	for _, e := range j.Trees {
		if !e.Begun || !isDir(e.Common) {
			continue
		}
		if err := k.dropInRepo(ctx, e); err != nil {
			return err
		}
	}
	if err := k.empty(j.Attempt); err != nil {
		return fmt.Errorf("deleting %s: %w", gone, err)
	}
	k.at("deleted")
	return k.forget(j.Attempt)
}

func (k *Keeper) dropInRepo(ctx context.Context, e *record) error {
	unlock, err := k.lockRepo(ctx, e.Common)
	if err != nil {
		return err
	}
	defer unlock()
	if err := dropAdmin(ctx, e.Common, e.Path); err != nil {
		return err
	}
	k.at("unregistered " + e.Name)
	return dropBranch(ctx, e.Common, e.Branch, e.Base)
}
