package execution

import (
	"context"
	"errors"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
)

// cancelAction is the action of a request to the owner of an execution to cancel it.
const cancelAction = "cancel"

// Cancel cancels an execution that any server follows, and returns it when that is done, or reports
// that it was requested. One that has ended does not change. channel is the caller's transport.
// Errors are those of Status, and not_answered.
func (e *Engine) Cancel(ctx context.Context, identity, channel, executionID string) (*Execution, error) {
	x, err := e.Status(ctx, identity, executionID)
	if err != nil || x.EndedAt != nil {
		return x, err
	}
	if n := e.entries.get(x.ExecutionID); n != nil {
		v, err := e.cancelled(ctx, n)
		if err != nil {
			return nil, err
		}
		return &v.Execution, nil
	}
	_, err = e.db.Requests().Ask(ctx, store.Request{Kind: store.OfExecution, Target: x.ExecutionID, Action: cancelAction, Caller: identity, Channel: channel})
	if errors.Is(err, store.ErrNotAnswered) {
		return nil, session.NotNow("not_answered", "The server that follows run '%s' was asked to cancel it, and has not answered yet. Call workflow_status to see whether it did.", x.ExecutionID).Because(err)
	}
	if err != nil {
		return nil, err
	}
	return e.Status(ctx, identity, executionID)
}

// serve answers requests of other processes about the executions that this one drives.
func (e *Engine) serve() {
	e.db.Requests().Serve(e.ctx, store.OfExecution, func(id string) bool { return e.entries.get(id) != nil },
		func(ctx context.Context, r store.Request) (any, error) {
			n := e.entries.get(r.Target)
			switch {
			case n == nil || n.identity != r.Caller:
				return nil, task.Missing("execution", r.Target)
			case r.Action != cancelAction:
				return nil, session.Wrong("unknown_action", "An execution cannot be asked to '%s'.", r.Action)
			}
			_, err := e.cancelled(ctx, n)
			return nil, err
		})
}
