package run

import (
	"context"
	"strings"
	"time"

	definition "deepwork/catalog/job"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/codes"
)

// endWithin is how long an agent may run on after its step is finished.
const endWithin = 30 * time.Second

// An agent is one process.
type agent struct {
	stepRef
	cancel      context.CancelFunc
	x           *task.Execution // how the process ended
	err         error
	called      bool   // it has connected to the endpoint
	mergeAdvice string // what an agent has to do before an item can be merged, or ""
	done        bool   // its step is finished
	timer       *time.Timer
}

// finished gives an agent whose step is finished some time to end.
func (a *agent) finished() {
	a.handedIn()
	a.done = true
}

// start starts agents for steps, as many as may run at once.
func (d *leader) start(ctx context.Context, steps []job) error {
	for _, j := range steps {
		if most := d.attemptLead.Run.Parallel; most > 0 && len(d.agents) >= most {
			return nil
		}

		if _, _, item := definition.SplitItem(j.step); item && j.state.Progress(j.step) == nil {
			// by get_step
			return session.NotNow(codes.StepNotCurrent, "Step '%s' has begun since the session was read.", j.step)
		}
		if do := d.itemWork(j.stepRef, j.state); do != nil {
			d.doInstead(ctx, j.stepRef, do)
			continue
		}
		a, err := d.plan(ctx, j)
		if outdated(err) || board.Passing(err) {
			return err
		}
		if err != nil {
			d.failed[j.stepRef] = whyOf(err)
			continue
		}
		x := &agent{stepRef: j.stepRef}

		var running context.Context
		running, x.cancel = context.WithCancel(ctx)
		c, over, err := d.workplace.Admit(Grant{
			Execution: a.Execution.ID,
			Session:   j.session,
			Step:      j.step,
			Isolated:  j.state.RootOf("", j.step) != "",
			Child: func(ctx context.Context, parent, id string) error {
				return d.adopt(ctx, j.stepRef, parent, id)
			},
		})
		if err != nil {
			x.cancel()
			return err
		}
		a.Env = c.Env
		a.MCP = c.MCP
		a.Called = c.Called
		a.Started = func(contained string) {
			d.attemptLead.Note("step %s: started with %s", j.step, strings.TrimSuffix(
				a.Execution.Executor+", "+contained, ", "))
		}
		d.agents[j.stepRef] = x
		delete(d.before, j.stepRef)
		d.running.Go(func() {
			defer x.cancel()
			x.x, x.err = d.attemptLead.RunAgent(running, *a)
			x.called = over()
			d.ended <- x
			if x.err == nil { // the leader does not wait for it
				d.attemptLead.Note("step %s: its agent %s", x.step, x.x.State)
			}
		})
	}

	return nil
}

// ending reports whether an agent whose step is finished still runs. Its cost and the name of its
// conversation are known only once it has ended, and what comes next may depend on both.
func (d *leader) ending() bool {
	for _, a := range d.agents {
		if a.done {
			return true
		}
	}
	return false
}

// wait waits until something has changed, but not for long: other processes move sessions, too, for example
// if a person drops an item or aborts the workflow.
func (d *leader) wait(ctx context.Context, until time.Time) error {
	if again := time.Now().Add(lookAgain); until.IsZero() || again.Before(until) {
		until = again
	}
	bounded, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	select {
	case x := <-d.ended:
		d.end(x)
	case <-d.workplace.Moved():
	case <-bounded.Done():
		return ctx.Err()
	}

	return nil
}

// end removes an agent that has ended from those that run.
func (d *leader) end(x *agent) {
	delete(d.agents, x.stepRef)
	if x.timer != nil {
		x.timer.Stop()
	}
	d.unmerged[x.stepRef] = x.mergeAdvice
	switch {
	case outdated(x.err): // the session moved while its item's worktree was made or merged
	case x.err == nil && x.x != nil && x.x.State == task.Interrupted:
		d.cut[x.x.ID] = true
	case board.Passing(x.err):
		d.agentError = x.err
	case x.err != nil:
		d.failed[x.stepRef] = whyOf(x.err)
	}
	d.silent[x.stepRef] = !x.called
}

// endAgents ends the running agents, and waits for them.
func (d *leader) endAgents() {
	for _, x := range d.agents {
		x.cancel()
	}
	for len(d.agents) > 0 {
		d.end(<-d.ended)
	}
	d.running.Wait()
}
