package worktree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	// abandoned is the age at which temporary files are removed.
	abandoned = time.Hour
	// busyFor bounds the wait for an attempt's lock: processes that a killed server had started may
	// hold it a moment longer.
	busyFor = 500 * time.Millisecond
)

// Recover finishes or undoes work that crashes interrupted: for attempts that keep reports as known
// it finishes removals and leaves creations to Create; for others it undoes everything, saving
// uncommitted work under rescue refs. It skips attempts that a Create or Remove of another process
// is working on. It returns its actions, for the log, and the joined errors; one attempt's error
// does not affect the others. It blocks until all is done.
func (k *Keeper) Recover(ctx context.Context, known func(attempt string) bool) ([]string, error) {
	if err := k.unlinked(); err != nil {
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
	k.sweep()
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
	os.Remove(k.draft(attempt))
	os.RemoveAll(filepath.Join(k.temp(), "keep-"+attempt))
	j, err := k.load(attempt)
	if err != nil || j == nil || j.Board != k.board {
		return nil, err
	}
	isKnown := known != nil && known(attempt)
	var kept []Rescue
	var what string
	switch {
	case j.Phase == removing, j.Phase == made && !isKnown:
		what = "removed the worktrees of attempt " + attempt
		kept, err = k.remove(ctx, j, func() bool { return false })
	case j.Phase == undoing, !isKnown:
		what = "undid the unfinished worktrees of attempt " + attempt
		if err = k.clearOwn(ctx, j); err == nil {
			kept, err = k.undo(ctx, j)
		}
	default:
		return k.recoverChanges(ctx, j)
	}
	if err != nil {
		return nil, err
	}
	did := []string{what}
	for _, r := range kept {
		if r.Ref != "" {
			did = append(did, fmt.Sprintf("kept the work in %s as %s (%s)", r.Path, r.Ref, r.Commit))
		}
	}
	return did, nil
}

// recoverChanges ends the merges of an attempt that were interrupted.
func (k *Keeper) recoverChanges(ctx context.Context, j *journal) ([]string, error) {
	if !j.changing() {
		return nil, nil
	}
	if err := k.settleAll(ctx, j); err != nil {
		return nil, err
	}
	return []string{"ended an interrupted merge of attempt " + j.Attempt}, nil
}
