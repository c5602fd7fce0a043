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
	"time"

	"deepwork/actor/durable"
	"deepwork/session"
	"deepwork/session/git"
)

// Remove removes the worktrees of an attempt. First it saves the uncommitted work of all worktrees under the
// rescue refs of their repositories; if that fails, the error is ErrNotKept and nothing is removed. It fails
// with a *NestedError for repositories inside whose work exists nowhere else; with force they are discarded.
// Ignored files are not saved. Branches with commits that no other branch has stay; others are deleted. inUse
// is called just before the worktrees are removed: if it returns true, or if a worktree is locked by git
// worktree lock, the error is ErrInUse. A nil inUse means never in use.
//
// The Rescues are those of the worktrees that had work, and of the attempt's folder if it had other files;
// discarded are the repositories that force has discarded. It blocks, and may be called again after an error
// or a crash.
func (k *Keeper) Remove(
	ctx context.Context, attempt string, force bool, inUse func() bool,
) (out []Rescue, discarded []Nested, err error) {
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
			os.Remove(folder) // fails unless it is empty
		}
		list, _ := os.ReadDir(folder) // usually there is none
		if slices.ContainsFunc(list, func(f fs.DirEntry) bool {
			return isThere(filepath.Join(folder, f.Name(), ".git"))
		}) {
			return nil, nil, fmt.Errorf("its journal %s is gone; look at what is in %s, and remove it by hand",
				k.journalPath(attempt), folder)
		}

		return nil, nil, nil
	}

	if inUse == nil {
		inUse = func() bool { return false }
	}
	defer k.explainOwner(&err, attempt)
	return k.remove(ctx, j, force, inUse)
}

func (k *Keeper) remove(
	ctx context.Context, j *journal, force bool, inUse func() bool,
) (out []Rescue, discarded []Nested, err error) {
	if j.Phase == made && !isThere(k.removalPath(j.Attempt)) {
		if inUse() {
			return nil, nil, ErrInUse
		}

		for _, e := range j.Trees {
			if reason, locked := lockedBy(adminOf(e.Common, e.Path)); locked {
				return nil, nil, fmt.Errorf("%w: git has it locked (%s). This unlocks it: git -C %s worktree unlock %s",
					ErrInUse, cmp.Or(reason, "no reason is given"), session.InShell(e.Common), session.InShell(e.Path))
			}
		}

		if err := k.takeAll(ctx, j, ""); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrNotKept, err)
		}
		if out, discarded, err = k.keepAll(ctx, j, force); err != nil {
			return nil, nil, err
		}
		if inUse() {
			return nil, nil, ErrInUse
		}
	}
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	// A removal that has begun is finished: its caller may not ask again.
	return out, discarded, k.drop(context.WithoutCancel(ctx), j)
}

// drop removes the worktrees of an attempt whose work is rescued, or in which nobody has worked: its folder,
// their entries in the repositories, branches without commits, and the journal. First it renames the folder
// in one step, so that a crash never leaves half of a worktree, which would look like one with deleted files.
func (k *Keeper) drop(ctx context.Context, j *journal) error {
	folder, gone := k.folder(j.Attempt), k.removalPath(j.Attempt)
	if err := k.Safe(folder, gone); err != nil {
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
		k.atPoint("renamed")
	}

	if err := os.RemoveAll(filepath.Join(k.journal, "contained", j.Attempt)); err != nil {
		return fmt.Errorf("removing the private git folders of its agents: %w", err)
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
	k.atPoint("deleted")
	if err := (durable.Disk{}).Drop(k.journalPath(j.Attempt)); err != nil {
		return fmt.Errorf("removing the journal of attempt %s: %w", j.Attempt, err)
	}

	return nil
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

	k.atPoint("unregistered " + e.Name)
	base := e.Base
	if e.Since != nil { // it was merged
		base = e.Since.Common
	}
	return e.dropBranch(ctx, base)
}

// busyFor limits the wait for an attempt's lock: processes that a killed server had started may hold it a
// moment longer.
const busyFor = 500 * time.Millisecond

// Recover finishes or undoes work that crashes interrupted. For attempts that known reports it finishes
// removals and leaves creations to Create; for others it undoes everything, saving uncommitted work under
// rescue refs. It skips attempts on which a Create or Remove of another process is working. It returns its
// actions, for the log, and the joined errors; an error of one attempt does not affect the others. It blocks
// until everything is done.
func (k *Keeper) Recover(ctx context.Context, known func(attempt string) bool) ([]string, error) {
	if err := k.Safe(); err != nil {
		return nil, err
	}

	all, err := k.attempts()
	if err != nil {
		return nil, err
	}

	var did []string
	var faults []error
	for _, attempt := range all {
		what, err := k.recoverOne(ctx, attempt, known)
		did = append(did, what...)
		if ctx.Err() != nil {
			return did, errors.Join(append(faults, ctx.Err())...)
		} else if err != nil {
			faults = append(faults, fmt.Errorf("recovering attempt %s: %w", attempt, err))
		}
	}
	return did, errors.Join(faults...)
}

// Claim records this keeper's board in the journals of another board's attempts that ours reports as its own:
// a copy has brought them.
func (k *Keeper) Claim(ctx context.Context, ours func(attempt string) bool) error {
	all, err := k.attempts()
	for _, attempt := range all {
		if j, _ := k.load(attempt); j != nil && j.Board != k.board && ours(j.attemptID()) {
			err = errors.Join(err, k.locked(ctx, attempt, k.save))
		}
	}
	return err
}

// locked calls do with the journal of an attempt, if it has one, while the attempt is locked.
func (k *Keeper) locked(ctx context.Context, attempt string, do func(*journal) error) error {
	unlock, err := k.lockAttempt(ctx, attempt)
	if err != nil {
		return err
	}
	defer unlock()
	j, err := k.load(attempt)
	if err != nil || j == nil {
		return err
	}
	return do(j)
}

func (k *Keeper) recoverOne(ctx context.Context, attempt string, known func(string) bool) ([]string, error) {
	waiting, cancel := context.WithTimeout(ctx, busyFor)
	defer cancel()
	unlock, err := k.lockAttempt(waiting, attempt)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, nil // another call is working on it
	} else if err != nil {
		return nil, err
	}
	defer unlock()
	j, err := k.load(attempt)
	if err != nil || j == nil || j.Board != k.board {
		return nil, err
	}
	isKnown := known != nil && known(j.attemptID())
	if isKnown && !isThere(k.removalPath(attempt)) {
		return nil, k.takeAll(ctx, j, "")
	}
	kept, _, err := k.remove(ctx, j, false, func() bool { return false })
	if err != nil {
		return nil, err
	}

	did := []string{"removed the worktrees of attempt " + attempt}
	for _, r := range kept {
		did = append(did, fmt.Sprintf("kept the work in %s as %s (%s)", r.Path, r.Ref, r.Commit))
	}
	return did, nil
}

// Relocate rewrites the journals after repositories, or the folder of worktrees, were moved. to returns the
// current path for an old one. It blocks for the disk, and may be called again after an error.
func (k *Keeper) Relocate(ctx context.Context, to func(path string) string) error {
	all, err := k.attempts()
	if err != nil {
		return err
	}
	for _, attempt := range all {
		fault := k.locked(ctx, attempt, func(j *journal) error {
			for _, e := range j.Trees {
				e.Repo, e.Common = to(e.Repo), to(e.Common)
				if !isDir(e.Common) || !isDir(e.Path) {
					continue
				}
				if _, err := git.Output(ctx, inRepo(e.Common, "worktree", "repair", e.Path)); err != nil {
					return err
				}
			}
			return k.save(j)
		})
		if fault != nil {
			err = errors.Join(err, fmt.Errorf("following the worktrees of attempt %s: %w", attempt, fault))
		}
	}

	return err
}
