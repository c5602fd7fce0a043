package execution

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"deepwork/actor/wait"
	"deepwork/session/store"
)

// lookEvery is the time between two searches for executions that no server follows, plus or minus a
// tenth.
const lookEvery = 10 * time.Second

// keepLooking takes over the executions of servers that are killed while this one lives, until the
// engine closes. Otherwise, until somebody asks or a server starts, nobody would cancel them when
// their time is over, or fetch their results before their sources forget them.
func (e *Engine) keepLooking() {
	logged := ""
	for wait.For(e.ctx, lookEvery*9/10+rand.N(lookEvery/5)) == nil {
		err := e.adopt(e.ctx)
		if said := fmt.Sprint(err); said != logged && e.ctx.Err() == nil { // once, not each time
			if logged = said; err != nil {
				e.log.Warn("the executions of servers that are gone cannot be taken up now", "error", err)
			}
		}
	}
}

// adopt takes over the executions of servers that are gone, first in the store, then in memory.
// Nothing is started again: an execution whose source cannot be asked has ended. If there is
// nothing to take over it writes nothing.
func (e *Engine) adopt(ctx context.Context) error {
	if !e.db.Exists() {
		return nil
	}
	owners, err := e.store.Owners(ctx)
	if err != nil {
		return err
	}
	alive := store.Census(e.member)
	owners = slices.DeleteFunc(owners, func(id string) bool { return id == e.member.ID() || alive(id) })
	if len(owners) == 0 {
		return nil
	}
	err = e.member.Enter(ctx)
	var adopted []store.Execution
	if err == nil {
		adopted, err = e.store.Adopt(ctx, owners, e.member.ID())
	}
	if err != nil {
		return err
	}
	for _, x := range adopted {
		e.log.Info("execution taken up from a server that is gone", "execution_id", x.ID, "workflow", x.WorkflowName, "source", x.Source, "state", x.State)
		if !x.Over() && !e.follows(&x) {
			return errClosing // the next server takes it over
		}
	}
	return nil
}

// stranded makes err the error of an execution that cannot be taken over because of it.
func (e *Engine) stranded(x *store.Execution, err error) {
	if err != nil && !x.Over() && !e.member.Alive(x.Owner) {
		x.Error = new(clip(fmt.Sprintf("the server that followed it is gone, and this one cannot follow it, because that could not be saved: %v. "+
			"Its state at its source is not known. Correct that and call again; do not start it again", err), maxWords))
	}
}

// follows starts to follow an execution that was taken over from where the last server was. It
// reports false if the engine is closed.
func (e *Engine) follows(x *store.Execution) bool {
	e.slots.take(x)
	ok := e.drive(e.enter(x), x, func(ctx context.Context, n *entry) (outcome, bool) {
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
	}
	return ok
}
