package remote

import (
	"context"
	"fmt"
	"time"

	"deepwork/actor/wait"
	"deepwork/session/store"
)

// lookEvery is the longest time between two searches for runs that no server follows.
const lookEvery = 5 * time.Second

// pause is that time for this engine, which has to be short in comparison with the life of a record.
func (e *Engine) pause() time.Duration { return min(lookEvery, e.life/6) }

// lookAround takes up the runs of servers that stop or are killed while this one lives, until the
// engine closes. Otherwise, until somebody asks or a server starts, nobody would cancel them when
// their time is over, or fetch their results before their sources forget them.
func (e *Engine) lookAround() {
	logged, next := "", e.pause()
	for wait.For(e.ctx, next) == nil {
		var err error
		next, err = e.adopt(e.ctx)
		if said := fmt.Sprint(err); said != logged && e.ctx.Err() == nil { // once, not each time
			if logged = said; err != nil {
				e.log.Warn("the remote runs of servers that are gone cannot be taken up now", "error", err)
			}
		}
	}
}

// adopt takes up the runs that no server follows any more, first in the store, then in memory.
// Nothing is started again: a run whose source cannot be asked has ended. If there is
// nothing to take up it writes nothing. It returns how long to wait until the next time.
func (e *Engine) adopt(ctx context.Context) (next time.Duration, err error) {
	next = e.pause()
	switch {
	case e.ctx.Err() != nil:
		return next, errClosing
	case !e.db.Exists():
		return next, nil
	}
	following := e.entries.ids()
	in, found, err := e.store.Due(ctx, following)
	switch {
	case err != nil || !found:
		return next, err
	case in > 0:
		return min(in+time.Millisecond, next), nil
	}
	var all []store.Execution
	if err = e.member.Enter(ctx); err == nil {
		all, err = e.store.TakeUp(ctx, e.member.ID(), e.life, following)
	}
	for _, x := range all {
		e.log.Info("remote run taken up from a server that is gone", "execution_id", x.ID, "workflow", x.WorkflowName, "source", x.Source, "state", x.State)
		if !x.Over() && !e.follows(&x) {
			err = errClosing // another server takes it up
		}
	}
	return next, err
}

// stranded makes err the error of a run that cannot be taken up because of it.
func (e *Engine) stranded(x *store.Execution, err error) {
	if err != nil && x.Lapsed {
		x.Error = new(clip(fmt.Sprintf("the server that followed it is gone, and this one cannot follow it, because that could not be saved: %v. "+
			"Its state at its source is not known. Correct that and call again; do not start it again", err), maxWords))
	}
}

// follows starts to follow a run that was taken up from where the last server was, or to cancel
// it if that one was asked to. It reports false if the engine is closed.
func (e *Engine) follows(x *store.Execution) bool {
	e.slots.take(x)
	n := e.enter(x)
	ok := e.drive(n, x, func(ctx context.Context, n *entry) (outcome, bool) {
		if x.Deadline != nil {
			// It may have ended in time while no server followed it: check its status first.
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, max(x.Deadline.Sub(e.time()), graceTime), errTimedOut)
			defer cancel()
		}
		return e.follow(ctx, n, target{x.Source, x.WorkflowID, *x.SourceExecutionID, x.Timeout}), true
	})
	if !ok {
		e.slots.leave(nil, x)
	} else if x.CancelAsked != nil {
		n.cancel(ErrCancelled)
	}
	return ok
}
