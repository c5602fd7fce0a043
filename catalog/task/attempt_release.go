package task

import (
	"context"
	"fmt"
)

// Release gives a claimed execution whose process was never started back to the
// board: it and its attempt wait again, in the place they had. false: it is not
// this owner's, or is not starting any more.
func (b *Board) Release(ctx context.Context, executionID, owner string) (released bool, err error) {
	return b.move(ctx, "releasing an execution", executionID, Waiting,
		`UPDATE executions SET state = 'waiting', owner = NULL WHERE id = ? AND owner = ? AND state = 'starting'`, executionID, owner)
}

// StopWaiting ends an execution that waits, so that it never runs, and drops what
// is queued in its session. false: it does not wait any more. The task stays what
// it is.
func (b *Board) StopWaiting(ctx context.Context, executionID string) (stopped bool, err error) {
	return b.move(ctx, "stopping a waiting execution", executionID, Stopped,
		`UPDATE executions SET state = 'stopped', ended_at = max(?, created_at) WHERE id = ? AND state = 'waiting'`, b.stamp(), executionID)
}

// move carries out an update of one execution, and where it changed something
// gives its attempt the same state.
func (b *Board) move(ctx context.Context, doing, executionID string, to AttemptState, update string, args ...any) (moved bool, err error) {
	now := b.stamp()
	err = b.write(ctx, doing, func(t tx) error {
		moved = false
		e, err := t.execution(executionID)
		if err != nil {
			return err
		}
		n, err := t.exec(update, args...)
		if err != nil || n == 0 {
			return err
		}
		moved = true
		if err := t.setAttempt(e.AttemptID, to, nil, now); err != nil {
			return fmt.Errorf("moving its attempt: %w", err)
		}
		if to == Stopped && e.SessionID != nil {
			return t.setQueued(*e.SessionID, nil, now)
		}
		return nil
	})
	return moved && err == nil, err
}
