package task

import (
	"context"
	"fmt"
)

// BeginDelete marks a task whose worktrees are about to be removed: from then on
// no server starts an attempt at it or a follow-up (ErrDeleting), until
// DeleteTask removes it or UndoDelete takes the mark away. It returns the ids of
// the task's attempts, newest first. ErrNotFound: there is no such task;
// ErrRunning: an attempt of it has not ended. A task that is marked already may
// be marked again, by whoever finishes what another began.
func (b *Board) BeginDelete(ctx context.Context, id string) (attemptIDs []string, err error) {
	now := b.stamp()
	err = b.write(ctx, "deleting a task", func(t tx) error {
		if err := t.idle(id); err != nil {
			return err
		}
		if _, err := t.exec(`UPDATE tasks SET deleting_at = coalesce(deleting_at, ?) WHERE id = ?`, now, id); err != nil {
			return err
		}
		attemptIDs, err = t.strings(`SELECT id FROM attempts WHERE task_id = ? ORDER BY created_at DESC, id`, id)
		return err
	})
	return attemptIDs, err
}

// UndoDelete takes the mark of BeginDelete away; without one it does nothing.
func (b *Board) UndoDelete(ctx context.Context, id string) error {
	return b.write(ctx, "keeping a task", func(t tx) error {
		_, err := t.exec(`UPDATE tasks SET deleting_at = NULL WHERE id = ?`, id)
		return err
	})
}

// Deleting returns the ids of the tasks that are marked, the first one first:
// after a crash, what is to be finished.
func (b *Board) Deleting(ctx context.Context) (ids []string, err error) {
	err = b.read(ctx, "listing tasks that are being deleted", func(t tx) error {
		ids, err = t.strings(`SELECT id FROM tasks WHERE deleting_at IS NOT NULL ORDER BY deleting_at, id`)
		return err
	})
	return ids, err
}

// DeleteTask removes a task with its attempts' rows, or ErrNotFound; ErrRunning
// where one is waiting, starting or running. Their worktrees are to be removed
// before, between BeginDelete and this.
func (b *Board) DeleteTask(ctx context.Context, id string) error {
	return b.write(ctx, "deleting a task", func(t tx) error {
		if err := t.idle(id); err != nil {
			return err
		}
		_, err := t.exec(`DELETE FROM tasks WHERE id = ?`, id)
		return err
	})
}

// idle returns ErrNotFound where there is no such task, and ErrRunning where an
// attempt of it has not ended.
func (t tx) idle(id string) error {
	s, err := t.task(id)
	if err == nil && s.HasInProgressAttempt {
		err = fmt.Errorf("task %q: %w: stop it first", id, ErrRunning)
	}
	return err
}

// staying returns ErrNotFound where there is no such task, and ErrDeleting where
// it is being deleted.
func (t tx) staying(id string) error {
	var deleting bool
	found, err := t.one(`SELECT deleting_at IS NOT NULL FROM tasks WHERE id = ?`, []any{id}, &deleting)
	switch {
	case err != nil:
		return err
	case !found:
		return missing("task", id)
	case deleting:
		return fmt.Errorf("task %q: %w", id, ErrDeleting)
	}
	return nil
}
