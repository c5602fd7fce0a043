package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"deepwork/actor/presence"
	"deepwork/actor/telemetry"
	"deepwork/catalog/source"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/store"
	"deepwork/session/work"

	"github.com/google/uuid"
)

// Call runs a tool's workflow and waits for its end, or until the configured reply_within, when it
// returns a Run that is running (seed 003, 7.1). It also does so if the source has no way to
// ask for the end: StatusSupported of that Run is false.
//
// Arguments that the tool's schema does not allow are a ToolError, invalid_arguments, and nothing
// is sent (2.5). A run that failed, was cancelled, timed out or was lost is a
// *session.Error, a StateError, with the *Run under the detail "run" and its id under
// "execution_id"; its code is workflow_failed, workflow_cancelled, workflow_timed_out or
// workflow_unknown, or source_away or shutting_down if that is the reason (2.4, 7.2, 7.4, 7.5). If
// the source is away before anything began, source_away has no run.
//
// At most max_concurrent_executions run at the sources at once; the others wait, in the order of
// their arrival, as runs that are running and whose progress says so. execution_timeout
// counts from when the run gets its slot. Runs whose steps an agent or a person
// performs do not count: each source may have 100 of them, and they do not wait (a deviation from
// 7.1, where a call waits for the end: by default it waits for 50 s, and there is no timeout).
//
// If ctx ends with the cause ErrCancelled, the run is cancelled, and Call returns when that
// is done, at most some seconds later. If ctx ends for any other reason, or the context given to
// WithLeaving ends, the run continues up to its timeout, and its result is available from
// Status.
//
// progress, which may be nil and must not block, is called sequentially with the current run,
// at least when it starts to run and when its progress changes, and never after Call has returned.
// Changes that come faster than progress returns are combined.
func (e *Engine) Call(
	ctx context.Context, identity string, t *source.Tool, arguments json.RawMessage, progress func(Run),
) (*Run, error) {
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	arguments = t.Original(arguments)
	if err := t.Check(arguments); err != nil {
		return nil, session.Wrong(codes.InvalidArguments,
			"The arguments of '%s' do not match its input schema: %s. Nothing was started; correct them and call "+
				"again.",
			t.Name, clip(err.Error(), maxWords)).Because(err)
	}

	if t.Away != "" {
		return nil, session.NotNow(codes.SourceAway,
			"Workflow '%s' cannot be started now, because its source '%s' cannot be reached: %s. Nothing was "+
				"started. The server keeps trying to reach it; call again later, or repair the source.",
			t.Workflow.Name, t.Source, clip(t.Away, maxWords)).Wait(30 * time.Second)
	}
	return e.call(ctx, identity, &t.Workflow, arguments, progress)
}

// call is Call after its checks.
func (e *Engine) call(
	ctx context.Context, identity string, w *source.Workflow, arguments json.RawMessage, progress func(Run),
) (*Run, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("starting workflow %q: %w", w.Name, context.Cause(ctx))
	}

	cfg, err := e.settings(ctx)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, fmt.Errorf("starting workflow %q: %w", w.Name, context.Cause(ctx))
	default:
		return nil, session.NotNow(codes.ConfigInvalid,
			"The configuration cannot be used: %v. Correct it and call again.", err).Because(err)
	}

	answerCtx, release := untilLeaving(ctx)
	defer release()
	if within := session.ReplyWithin(ctx, replyWithin(cfg, w)); within > 0 {
		var cancel context.CancelFunc
		answerCtx, cancel = context.WithTimeoutCause(answerCtx, within, errReply)
		defer cancel()
	}
	limit, setting := timeout(cfg, w)
	n, err := e.begin(ctx, identity, w, arguments, limit, cfg.MaxConcurrent)
	if err != nil {
		return nil, err
	}
	first := n.view.Load()
	if progress != nil {
		progress(first.Run)
	}
	v, err := e.await(answerCtx, n, first, progress)
	if err == nil && v.lost {
		v, err = e.awaitOtherServer(answerCtx, n.id)
	}
	why := cmp.Or(context.Cause(ctx), context.Cause(answerCtx)) // a cancellation takes precedence
	switch {
	case err == nil:
		return answer(v, setting)
	case errors.Is(err, work.ErrClosing):
		return nil, closed(n.view.Load())
	case why == nil:
		return nil, fmt.Errorf("waiting for remote run %s: %w", n.id, err)
	case why == errReply:
		v = n.view.Load()
		if v.over && !v.lost {
			return answer(v, setting)
		}
		return &v.Run, nil
	case !errors.Is(why, ErrCancelled):
		return nil, fmt.Errorf("waiting for remote run %s, which goes on: %w", n.id, why)
	}
	if v, err = e.cancelled(ctx, n); err != nil {
		return nil, err
	}
	return answer(v, setting)
}

// cancelled cancels a run and returns it when it has ended.
func (e *Engine) cancelled(ctx context.Context, n *entry) (*view, error) {
	n.cancel(ErrCancelled)
	ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*cancelTime)
	defer cancel()
	switch v, err := e.await(ended, n, n.view.Load(), nil); {
	case errors.Is(err, work.ErrClosing):
		return nil, closed(n.view.Load())
	case err != nil:
		return nil, fmt.Errorf("waiting for remote run %s to be cancelled: %w", n.id, err)
	case v.lost:
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*askTime) // the caller's context has ended
		defer cancel()
		return e.cancelElsewhere(asking, &v.Run)
	default:
		return v, nil
	}
}

type leavingKey struct{}

// WithLeaving returns a context for Call. Once leaving ends, Call no longer waits for the end of
// its run: it returns an error that wraps leaving's cause, and the run continues as
// when ctx ends. Work before that wait, and other uses of the context, are not interrupted. This is
// for a client that has sent its last request and still reads, whose other calls may take longer to
// end.
func WithLeaving(ctx, leaving context.Context) context.Context {
	return context.WithValue(ctx, leavingKey{}, leaving)
}

// untilLeaving returns a context that ends with ctx and with the one given to WithLeaving.
func untilLeaving(ctx context.Context) (context.Context, func()) {
	leaving, ok := ctx.Value(leavingKey{}).(context.Context)
	if !ok {
		return ctx, func() {}
	}

	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(leaving, func() { cancel(context.Cause(leaving)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// waitsForSlot is the progress of a run that has not begun.
const waitsForSlot = "waiting for a slot"

// errReply is the cause if a reply no longer waits for the end.
var errReply = errors.New("the time for a reply is over")

// begin creates a run, records it, and starts its driver.
func (e *Engine) begin(
	ctx context.Context, identity string, w *source.Workflow, arguments json.RawMessage, limit time.Duration, slots int,
) (*entry, error) {
	x := &store.RemoteRun{
		ID:              uuid.Must(uuid.NewV7()).String(),
		Identity:        identity,
		Source:          w.Source,
		WorkflowID:      w.ID,
		WorkflowName:    w.Name,
		Async:           w.Async,
		Performed:       w.Performer != "",
		State:           store.RemoteStarting,
		StatusSupported: true,
		StartedAt:       now(),
		Timeout:         limit,
		Trace:           telemetry.Text(telemetry.Parent(ctx)),
	}
	t, ok := e.slots.enter(slots, x)
	switch {
	case !ok && x.Performed:
		return nil, session.NotNow(codes.TooManyRuns,
			"Workflow '%s' was not started: at source '%s' %d executions already wait for agents or people to "+
				"perform their steps, which is the maximum. Call again when one has ended, or end one with "+
				"cancel_execution.", w.Name, w.Source, maxPerformed)
	case !ok:
		return nil, session.NotNow(codes.TooManyRuns,
			"Workflow '%s' was not started: %d executions already wait for one of the %d slots "+
				"(workflow_tools.max_concurrent_executions). Call again when some have ended.", w.Name, maxWaiting,
			slots).Wait(10 * time.Second)
	case t != nil:
		x.State = store.RemoteWaiting
	default:
		x.Deadline = deadline(limit)
	}
	row := e.work.Claimed(store.RemoteWork, x.ID, nil)
	err := e.stores.Members.Enter(ctx)
	if err == nil {
		err = e.runs.Add(ctx, x, row)
	}
	if err == nil {
		telemetry.About(ctx, refOf(x))
		n, begun := e.newEntry(x), "remote run started"
		if t != nil {
			begun = "remote run waits for a slot"
			n.show(&source.Progress{Message: waitsForSlot})
		}
		n.drive = func(ctx context.Context) (outcome, bool) { return e.execute(ctx, n, w, arguments, t, limit) }
		e.add(n)
		if e.work.Run(row) {
			e.log.InfoContext(ctx, begun, "execution_id", n.id, "workflow", w.Name, "source", w.Source)
			return n, nil
		}

		e.remove(n)
		n.cancel(nil)
		err = work.ErrClosing // another server will find the record, which has no answer
	}

	e.slots.leave(t, x)
	switch {
	case errors.Is(err, work.ErrClosing), errors.Is(err, task.ErrClosed), errors.Is(err, presence.ErrLeft):
		return nil, session.NotNow(codes.ShuttingDown,
			"The server is shutting down; workflow '%s' was not started. Call again when it is back.",
			w.Name).Because(err).Wait(5 * time.Second)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("starting workflow %q: %w", w.Name, context.Cause(ctx))
	}

	if session.CodeOf(err) == codes.NoStateFolder {
		return nil, err
	}
	return nil, session.NotNow(codes.RunNotSaved,
		"Workflow '%s' was not started, because its record could not be saved: %v. Correct that and call again.",
		w.Name, err).Because(err)
}

// await blocks until the run is over or ctx ends. It calls progress for changes after the view v. Its error
// is work.ErrClosing if this server no longer follows the run.
func (e *Engine) await(ctx context.Context, n *entry, v *view, progress func(Run)) (*view, error) {
	for !v.over {
		var err error
		select {
		case <-v.newer:
		case <-n.done:
			err = work.ErrClosing
		case <-e.closed.Done():
			err = work.ErrClosing
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if v = n.view.Load(); v.over {
			break
		}
		if err != nil {
			return nil, err
		}
		if progress != nil {
			progress(v.Run)
		}
	}
	return v, nil
}
