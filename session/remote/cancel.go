package remote

import (
	"context"
	"errors"
	"fmt"

	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/store"
	"deepwork/session/work"
)

// Cancel cancels a run that any server follows, tells its source if that has a cancel tool, and returns the
// run once its end is stored. It returns an ended run unchanged. Errors are those of Status except
// status_not_supported, and the StateErrors not_answered, if the server that follows the run has not
// cancelled it in time, and cancel_not_saved.
func (e *Engine) Cancel(ctx context.Context, identity, executionID string) (*Run, error) {
	x, err := e.known(ctx, identity, executionID)
	switch {
	case err != nil:
		return nil, err
	case x.EndedAt != nil:
		return e.durable(ctx, x)
	case !x.StatusSupported:
		return e.cancelUnfollowed(ctx, x)
	}

	n := e.get(x.ExecutionID)
	if n == nil {
		v, err := e.cancelElsewhere(ctx, x) // its end is stored, even if this server has taken the run over meanwhile
		if err != nil {
			return nil, err
		}
		return &v.Run, nil
	}
	v, err := e.cancelled(ctx, n)
	if err != nil {
		return nil, err
	}
	return e.durable(ctx, &v.Run)
}

// errNotAnswered is the cause if a wait for another server ends.
var errNotAnswered = errors.New("asked, not answered yet")

// cancelElsewhere asks the server that follows a run, whichever that is, to cancel it, and returns the run
// when it has ended. The request is durable: if that server is gone, the one that takes the run over cancels
// it.
func (e *Engine) cancelElsewhere(ctx context.Context, x *Run) (*view, error) {
	if _, err := e.stores.Database.Work().AskStop(ctx, store.RemoteWork, x.ExecutionID); err != nil {
		return nil, fmt.Errorf("asking the server that follows remote run %s to cancel it: %w", x.ExecutionID, err)
	}

	patience, cancel := context.WithTimeoutCause(ctx, askTime, errNotAnswered)
	defer cancel()
	v, err := e.awaitOtherServer(patience, x.ExecutionID)
	switch {
	case err == nil && v.EndedAt == nil:
		ended, err := e.cancelUnfollowed(ctx, &v.Run)
		if err != nil {
			return nil, err
		}
		return &view{Run: *ended, over: true}, nil
	case errors.Is(err, work.ErrClosing):
		return nil, closed(&view{Run: *x})
	case ctx.Err() != nil:
		return nil, fmt.Errorf("waiting for another server to cancel remote run %s: %w", x.ExecutionID,
			context.Cause(ctx))
	case patience.Err() != nil:
		return nil, session.NotNow(codes.NotAnswered,
			"Execution '%s' is marked to be cancelled, and the server that follows it has not done that yet. If that "+
				"server is gone, another one does it within a minute.", x.ExecutionID).
			Next("see its state", "workflow_status", "execution_id", x.ExecutionID).
			Worded("Call workflow_status to see its state.").Because(err)
	}

	return v, err
}

// awaitOtherServer returns a run that another server follows, once its record is over. Its error is
// work.ErrClosing if the engine closes first.
func (e *Engine) awaitOtherServer(ctx context.Context, id string) (*view, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.closed, func() { cancel(work.ErrClosing) })()

	changes, position := e.stores.Database.Changes(), ""
	for {
		var x *store.RemoteRun
		news, err := changes.Since(ctx, position)
		if err == nil {
			x, err = e.runs.RemoteRun(ctx, id)
		}
		if err == nil && x.Over() {
			return &view{Run: shown(x), over: true}, nil
		}
		position = news.Next
		if err == nil {
			err = changes.Wait(ctx, position)
		}
		if context.Cause(ctx) == work.ErrClosing { // the database may report that with an error of its own
			err = work.ErrClosing
		}
		if err != nil {
			return nil, err
		}
	}
}

// durable returns a run that has ended, or an error if it was cancelled and its end cannot be stored.
func (e *Engine) durable(ctx context.Context, x *Run) (*Run, error) {
	n := e.get(x.ExecutionID)
	if x.State == Cancelled && n != nil {
		if err := e.write(ctx, n.rec, n.stored); err != nil && !errors.Is(err, work.ErrTaken) {
			return nil, notSaved(x, err)
		}
		e.remove(n)
	}
	return x, nil
}

// cancelUnfollowed cancels a run whose source cannot be asked about it, so that no server
// follows it.
func (e *Engine) cancelUnfollowed(ctx context.Context, x *Run) (*Run, error) {
	rec, err := e.runs.RemoteRun(ctx, x.ExecutionID)
	if err != nil {
		return nil, notSaved(x, err)
	}

	o := outcome{
		state: Cancelled,
		words: "it was cancelled by its caller; its source gave it no id, so it may go on there",
	}
	if x.SourceExecutionID != nil {
		ctx, cancel := context.WithCancelCause(ctx)
		cancel(ErrCancelled)
		o = e.broken(ctx, rec)
	}
	from := rec.State
	rec.State = o.state
	rec.EndedAt = new(now())
	rec.Result = o.result
	rec.Error = o.error()
	if err = e.write(ctx, rec, from); err != nil {
		return nil, notSaved(x, err)
	}
	e.log.Info("remote run ended", "execution_id", x.ExecutionID, "workflow", x.WorkflowName, "source", x.Source,
		"state", o.state)
	return new(shown(rec)), nil
}

// notSaved returns the error if a cancellation could not be stored.
func notSaved(x *Run, err error) error {
	return refusal(x, codes.CancelNotSaved,
		"Execution '%s' was cancelled, but that could not be stored: %v. Make sure that the disk can be written, and "+
			"call cancel_execution again; otherwise it may be shown as running after a restart of this server.",
		x.ExecutionID, err)
}
