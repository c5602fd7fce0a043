package worktree

import (
	"context"
	"errors"
	"fmt"

	"deepwork/actor/durable"
	"deepwork/session/git"
)

// Relocate rewrites the journals after repositories, or the folder of worktrees, which was at from,
// were moved. to returns the current path of what was at a path. It blocks for the disk, and may be
// called again after an error.
func (k *Keeper) Relocate(ctx context.Context, from string, to func(path string) string) error {
	all, err := k.attempts()
	if err != nil {
		return err
	}
	var faults []error
	for _, attempt := range all {
		if err := k.relocate(ctx, from, attempt, to); err != nil {
			faults = append(faults, fmt.Errorf("following the worktrees of attempt %s: %w", attempt, err))
		}
	}
	return errors.Join(faults...)
}

func (k *Keeper) relocate(ctx context.Context, from, attempt string, to func(string) string) error {
	unlock, err := k.lockAttempt(ctx, attempt)
	if err != nil {
		return err
	}
	defer unlock()
	data, _, err := durable.Read(k.journalPath(attempt), maxJournal)
	if missing(err) {
		return nil
	} else if err != nil {
		return err
	}
	j, err := parseJournal(from, attempt, data)
	if err != nil {
		j, err = parseJournal(k.dir, attempt, data) // it was rewritten before an interruption
	}
	if err != nil {
		return fmt.Errorf("%s %w", k.journalPath(attempt), err)
	}
	for _, e := range j.Trees {
		e.Repo, e.Common, e.Path = to(e.Repo), to(e.Common), to(e.Path)
		if !isDir(e.Common) || !isDir(e.Path) {
			continue
		}
		if _, err := git.Output(ctx, inRepo(e.Common, "worktree", "repair", e.Path)); err != nil {
			return err
		}
	}
	return k.save(j)
}
