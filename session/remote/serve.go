package remote

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session/store"
	"deepwork/session/work"
)

// do is the handler of the work of following a run: one that begins here, or one of a server that is gone.
func (e *Engine) do(ctx context.Context, t *work.Task) (none store.Outcome, err error) {
	n := e.get(t.Key)
	if n == nil {
		err = persist(t, func() (err error) {
			n, err = e.takeUp(t.Key)
			return err
		})
	}
	if n == nil {
		return none, err
	}
	defer close(n.done)
	defer e.remove(n)
	defer n.cancel(nil)
	defer context.AfterFunc(ctx, func() { n.cancel(context.Cause(ctx)) })()
	n.task = t
	if p := n.view.Load().Progress; p != nil {
		n.report(p)
	}

	o, slot := e.guarded(n)
	if slot {
		e.slots.leave(nil, n.rec) // before callers know, so that their next call finds a free slot
	}
	switch {
	case context.Cause(n.ctx) == work.ErrTaken:
		n.lose()
		return none, work.ErrTaken
	case o.left:
		return none, work.ErrClosing
	}
	return none, n.end(o)
}

// guarded drives a run. It keeps a panic, for example over a source's answer, from ending the process.
func (e *Engine) guarded(n *entry) (o outcome, slot bool) {
	defer func() {
		if p := recover(); p != nil {
			n.log().Error("the driver of a remote run panicked", "panic", p, "trace", string(debug.Stack()))
			// It is unknown here whether the run had a slot: only a waiting one has none.
			o, slot = outcome{
				state: Unknown,
				words: fmt.Sprintf("this server failed while it followed the execution: %v; whether the workflow "+
					"continues at its source is not known", p),
			}, true
		}
	}()
	return n.drive(n.ctx)
}

// persist repeats a write that fails, until this process has to leave the run to others.
func persist(t *work.Task, write func() error) error {
	for {
		err := write()
		if err == nil || errors.Is(err, work.ErrTaken) || t.Closing().Err() != nil {
			return err
		}
		_ = wait.For(t.Closing(), time.Second)
	}
}

// The errors of runs whose sources cannot be asked.
const (
	neverStarted = "the server ended while the execution waited for a slot; nothing was started"
	lostSight    = "the server ended before the source had answered; whether the workflow was carried out is not known"
)

// takeUp returns the entry of a run whose server is gone, to follow it where that left off. It starts nothing again:
// a run whose source cannot be asked has ended, and has no entry.
func (e *Engine) takeUp(id string) (*entry, error) {
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	x, err := e.runs.RemoteRun(ctx, id)
	switch {
	case errors.Is(err, task.ErrNotFound), err == nil && x.Over():
		return nil, nil
	case err != nil:
		e.log.Warn("a remote run cannot be taken up now; trying again", "execution_id", id, "error", err)
		return nil, err
	}

	e.log.Info("remote run taken up from a server that is gone", "execution_id", x.ID, "workflow", x.WorkflowName,
		"source", x.Source, "state", x.State)
	from := x.State
	switch from {
	case store.RemoteWaiting:
		x.State, x.Error = Failed, new(neverStarted)
	case store.RemoteStarting:
		x.State, x.Error = Unknown, new(lostSight)
	default:
		e.slots.take(x)
		n := e.newEntry(x)
		n.drive = n.resume
		e.add(n)
		return n, nil
	}
	x.EndedAt, x.Progress = new(now()), nil
	if x.EndedAt.Before(x.StartedAt) { // the clock was set back
		x.EndedAt = &x.StartedAt
	}
	return nil, e.write(ctx, x, from)
}

// resume drives a run that another server has followed before.
func (n *entry) resume(ctx context.Context) (o outcome, slot bool) {
	if n.rec.Deadline != nil {
		// The run may have ended in time while no server followed it, so check its status first.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, max(n.rec.Deadline.Sub(now()), graceTime), errTimedOut)
		defer cancel()
	}
	return n.engine.follow(ctx, n, true), true
}
