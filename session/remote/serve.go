package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"deepwork/actor/wait"
	"deepwork/actor/xslices"
	"deepwork/catalog/source"
	"deepwork/session/store"
)

// lookEvery is the longest time between two searches for runs that no server follows.
const lookEvery = 5 * time.Second

// serve keeps this server the owner of the records of the runs that it follows, until the engine closes. It
// renews them three times in their life, and cancels runs when asked to. It also takes over the runs of
// servers that stop or are killed while this one lives. Otherwise, until somebody asks or a server starts,
// nobody would cancel them when their time is over, or fetch their results before their sources forget them.
// err is that of the first adopt.
func (e *Engine) serve(err error) {
	logged := ""
	next := e.pause()
	renewed := time.Now()
	for e.ctx.Err() == nil {
		if text := fmt.Sprint(err); text != logged { // only once
			logged = text
			if err != nil {
				e.log.Warn("remote runs cannot be renewed and taken up now; trying again", "error", err)
			}
		}
		if err != nil {
			_ = wait.For(e.ctx, min(e.retention/10, time.Second))
		} else {
			err = e.awaitCancels(next)
		}

		if time.Since(renewed) >= e.retention/3 {
			if err = cmp.Or(e.renew(), err); err == nil {
				renewed = time.Now()
			}
		}

		var adopting error
		next, adopting = e.adopt(e.ctx)
		err = cmp.Or(err, adopting)
	}
}

// pause is lookEvery for this engine; it must be short compared with the life of a record.
func (e *Engine) pause() time.Duration { return min(lookEvery, e.retention/6) }

// awaitCancels waits until next, and meanwhile cancels the runs followed here that somebody asks to cancel.
func (e *Engine) awaitCancels(next time.Duration) error {
	if len(e.all()) == 0 {
		_ = wait.Until(e.ctx, next, e.added)
		return nil
	}
	ctx, cancel := context.WithTimeout(e.ctx, next)
	defer cancel()
	err := e.store.Watch(ctx, func() (bool, error) {
		asked, err := e.store.Asked(ctx, e.member.ID())
		for _, id := range asked {
			if n := e.get(id); n != nil {
				n.cancel(ErrCancelled)
			}
		}
		return len(e.all()) == 0, err
	})

	if ctx.Err() != nil {
		return nil
	}
	return err
}

// renew renews the records of the runs that this server follows, with their progress, and gives up those that
// another server has taken over.
func (e *Engine) renew() error {
	all := e.all()
	if len(all) == 0 {
		return nil
	}
	following := make(map[string]json.RawMessage, len(all)) // the progress of each run; nil means unchanged
	shown := make(map[*entry]*source.Progress, len(all))
	for _, n := range all {
		v := n.view.Load()
		following[n.id], shown[n] = nil, v.Progress
		if v.Progress != n.storedProgress && !v.over {
			following[n.id] = progressText(v.Progress)
		}
	}

	held, err := e.store.Renew(e.ctx, e.member.ID(), e.retention, following)
	if err != nil {
		return err
	}
	for n, p := range shown {
		if slices.Contains(held, n.id) {
			n.storedProgress = p
		} else {
			n.cancel(errLost)
		}
	}

	e.saveEnds(e.ctx)
	return nil
}

// saveEnds stores the ends that could not be stored before.
func (e *Engine) saveEnds(ctx context.Context) {
	for _, n := range e.all() {
		if v := n.view.Load(); !v.over || v.lost {
			continue
		}

		switch err := e.write(ctx, n.rec); {
		case err == nil:
			n.log().Info("the end of a remote run is written down now")
			e.remove(n)
		case errors.Is(err, store.ErrNotOwner): // another server has taken the run over meanwhile
			e.remove(n)
		}
	}
}

// adopt takes over the runs that no server follows any more, first in the store, then in memory. It starts
// nothing again: a run whose source cannot be asked has ended. If there is nothing to take over, it writes
// nothing. It returns how long to wait until the next time.
func (e *Engine) adopt(ctx context.Context) (next time.Duration, err error) {
	next = e.pause()
	switch {
	case e.ctx.Err() != nil:
		return next, errClosing
	case !e.db.Exists():
		return next, nil
	}

	following := xslices.Map(e.all(), func(n *entry) string { return n.id })
	in, found, err := e.store.Due(ctx, following)
	if err == nil {
		in = max(in, e.leaves())
	}
	switch {
	case err != nil || !found:
		return next, err
	case in > 0:
		return min(in+time.Millisecond, next), nil
	}

	var all []store.RemoteRun
	if err = e.member.Enter(ctx); err == nil {
		all, err = e.store.TakeUp(ctx, e.member.ID(), e.retention, following)
	}
	for _, x := range all {
		e.log.Info("remote run taken up from a server that is gone", "execution_id", x.ID, "workflow", x.WorkflowName,
			"source", x.Source, "state", x.State)
		if !x.Over() && !e.takeUp(&x) {
			err = errClosing // another server will take it over
		}
	}

	return next, err
}

// leaves returns how long other servers get to renew their runs before any is taken over, if this server
// could not look for a while. Then the machine may have slept, or the store was away, and they could not
// renew them.
func (e *Engine) leaves() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	// the other clock stands still while a machine sleeps
	if !e.lastLook.IsZero() && now.Round(0).Sub(e.lastLook.Round(0)) > e.retention/2 {
		e.takeoverFrom = now.Add(e.retention / 2)
	}
	e.lastLook = now
	return time.Until(e.takeoverFrom)
}

// takeUp starts to follow a run where the last server left off, or to cancel it if that server was asked to.
// It reports false if the engine is closed.
func (e *Engine) takeUp(x *store.RemoteRun) bool {
	e.slots.take(x)
	n := e.newEntry(x)
	ok := e.drive(n, func(ctx context.Context) (outcome, bool) {
		if x.CancelAsked != nil {
			n.cancel(ErrCancelled)
		}
		if x.Deadline != nil {
			// The run may have ended in time while no server followed it, so check its status first.
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, max(x.Deadline.Sub(now()), graceTime), errTimedOut)
			defer cancel()
		}
		return e.follow(ctx, n, true), true
	})
	if !ok {
		e.slots.leave(nil, x)
	}
	return ok
}
