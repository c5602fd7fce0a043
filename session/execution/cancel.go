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

// Cancel cancels an execution that any server follows, tells its source if that has a cancel tool,
// and returns the execution once that is stored, or reports that it was requested. One that has
// ended is returned unchanged. channel is the caller's transport. Errors are those of Status except
// status_not_supported, and the StateErrors not_answered and cancel_not_saved.
func (e *Engine) Cancel(ctx context.Context, identity, channel, executionID string) (*Execution, error) {
	x, err := e.known(ctx, identity, executionID)
	switch {
	case err != nil:
		return nil, err
	case x.EndedAt != nil:
		return e.durable(x)
	case !x.StatusSupported:
		return e.cancelUnfollowed(ctx, x)
	}
	if n := e.entries.get(x.ExecutionID); n != nil {
		v, err := e.cancelled(ctx, n)
		if err != nil {
			return nil, err
		}
		return e.durable(&v.Execution)
	}
	_, err = e.db.Requests().Ask(ctx, store.Request{Kind: store.OfExecution, Target: x.ExecutionID, Action: cancelAction, Caller: session.Caller{Identity: identity, Channel: channel}})
	if errors.Is(err, store.ErrNotAnswered) {
		return nil, session.NotNow("not_answered", "The server that follows execution '%s' was asked to cancel it and has not answered yet. Call workflow_status to see its state.", x.ExecutionID).Because(err)
	}
	if err != nil {
		return nil, err
	}
	return e.Status(ctx, identity, executionID)
}

// durable returns an execution that has ended, or an error if it was cancelled and that is not
// stored.
func (e *Engine) durable(x *Execution) (*Execution, error) {
	if x.State == Cancelled && e.entries.get(x.ExecutionID) != nil {
		return nil, notSaved(x, errors.New("the log has the reason"))
	}
	return x, nil
}

// cancelUnfollowed cancels an execution whose source cannot be asked about it, so that no server
// follows it.
func (e *Engine) cancelUnfollowed(ctx context.Context, x *Execution) (*Execution, error) {
	rec, err := e.store.Execution(ctx, x.ExecutionID)
	if err != nil {
		return nil, notSaved(x, err)
	}
	o := outcome{state: Cancelled, words: "it was cancelled by its caller; its source gave it no id, so it may go on there"}
	if x.SourceExecutionID != nil {
		ctx, cancel := context.WithCancelCause(ctx)
		cancel(ErrCancelled)
		o = e.broken(ctx, target{source: x.Source, workflow: x.WorkflowID, execution: *x.SourceExecutionID})
	}
	rec.State, rec.EndedAt, rec.Result = o.state, new(e.time()), o.result
	if o.words != "" {
		rec.Error = new(clip(o.words, maxWords))
	}
	if err = e.store.Save(ctx, rec); err != nil {
		return nil, notSaved(x, err)
	}
	e.log.Info("execution ended", "execution_id", x.ExecutionID, "workflow", x.WorkflowName, "source", x.Source, "state", o.state)
	return new(shown(rec)), nil
}

// notSaved is the error if a cancellation could not be stored.
func notSaved(x *Execution, err error) error {
	return refusal(x, "cancel_not_saved", "Execution '%s' was cancelled, but that could not be stored: %v. After a restart of this server it may be shown as running. Make sure that the disk can be written, and call cancel_execution again after the restart.", x.ExecutionID, err)
}

// serve answers requests of other processes about the executions that this one drives.
func (e *Engine) serve() {
	e.db.Requests().Serve(e.ctx, store.OfExecution, func(id string) bool { return e.entries.get(id) != nil },
		func(ctx context.Context, r store.Request) (any, error) {
			n := e.entries.get(r.Target)
			switch {
			case n == nil || n.identity != r.Caller.Identity:
				return nil, task.Missing("execution", r.Target)
			case r.Action != cancelAction:
				return nil, session.Wrong("unknown_action", "An execution cannot be asked to '%s'.", r.Action)
			}
			_, err := e.cancelled(ctx, n)
			return nil, err
		})
}
