package worktree

import (
	"context"
	"errors"
	"fmt"
	"time"

	"deepwork/session/git"
)

// busyFor bounds the wait for an attempt's lock: processes that a killed server had started may
// hold it a moment longer.
const busyFor = 500 * time.Millisecond

// Recover finishes or undoes work that crashes interrupted: for attempts that keep reports as known
// it finishes removals and leaves creations to Create; for others it undoes everything, saving
// uncommitted work under rescue refs. It skips attempts that a Create or Remove of another process
// is working on. It returns its actions, for the log, and the joined errors; one attempt's error
// does not affect the others. It blocks until all is done.
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

// Claim records this keeper's board in the journals of another board's attempts that ours reports as
// those of this one: a copy has brought them.
func (k *Keeper) Claim(ctx context.Context, ours func(attempt string) bool) error {
	all, err := k.attempts()
	for _, attempt := range all {
		if j, _ := k.load(attempt); j != nil && j.Board != k.board && ours(attempt) {
			err = errors.Join(err, k.claim(ctx, attempt))
		}
	}
	return err
}

func (k *Keeper) claim(ctx context.Context, attempt string) error {
	unlock, err := k.lockAttempt(ctx, attempt)
	if err != nil {
		return err
	}
	defer unlock()
	j, err := k.load(attempt)
	if err == nil && j != nil {
		err = k.save(j)
	}
	return err
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
	isKnown := known != nil && known(attempt)
	if isKnown && !isThere(k.gone(attempt)) {
		return nil, nil
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

// Relocate rewrites the journals after repositories, or the folder of worktrees, were moved. to returns
// the current path of what was at a path. It blocks for the disk, and may be called again after an
// error.
func (k *Keeper) Relocate(ctx context.Context, to func(path string) string) error {
	all, err := k.attempts()
	if err != nil {
		return err
	}
	for _, attempt := range all {
		if fault := k.relocate(ctx, attempt, to); fault != nil {
			err = errors.Join(err, fmt.Errorf("following the worktrees of attempt %s: %w", attempt, fault))
		}
	}
	return err
}

func (k *Keeper) relocate(ctx context.Context, attempt string, to func(string) string) error {
	unlock, err := k.lockAttempt(ctx, attempt)
	if err != nil {
		return err
	}
	defer unlock()
	j, err := k.load(attempt)
	if err != nil || j == nil {
		return err
	}
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
}
