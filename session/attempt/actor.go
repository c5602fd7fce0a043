package attempt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"deepwork/actor"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/runner"
)

// A message is what an attempt's actor understands. The set is sealed.
type message interface {
	handle(ctx context.Context, a *attemptActor) error
}

// attemptActor owns what runs of one attempt: at most one process, and through
// the board its one queued follow-up (DESIGN "Task board"). It keeps nothing that
// the board and the run's folder do not say too, so it can begin anew at any time.
type attemptActor struct {
	engine *Engine
	id     string
	run    *run // nil: this server sees to no execution of the attempt
}

// Receive handles one message.
func (a *attemptActor) Receive(ctx context.Context, m message) error { return m.handle(ctx, a) }

// takeMessage hands an execution over that this server owns. It is answered when
// the server has no more to do with it; Ctx ends before that only if it is to be
// left as it is.
type takeMessage struct {
	Ctx   context.Context
	Exec  task.Execution
	Reply actor.Reply[struct{}]
}

func (m takeMessage) handle(ctx context.Context, a *attemptActor) error {
	if a.run != nil && a.run.exec.ID == m.Exec.ID {
		m.Reply.Send(struct{}{}) // it is seen to already
		return nil
	}
	if a.run != nil {
		m.Reply.Fail(fmt.Errorf("execution %s is still seen to", a.run.exec.ID))
		return nil
	}
	a.run = &run{engine: a.engine, ctx: m.Ctx, exec: m.Exec, done: m.Reply, recorded: m.Exec.State == task.Running}
	a.run.making, a.run.stopMaking = context.WithCancel(m.Ctx)
	// What begins something new ends with the first part of Close.
	untie := context.AfterFunc(a.engine.serving, a.run.stopMaking)
	r := a.run
	if !a.engine.makers.do(func() { defer untie(); r.make() }) {
		a.run = nil
		m.Reply.Fail(actor.ErrStopped)
	}
	return nil
}

// madeMessage tells what came of starting the agent: a process, or an outcome.
type madeMessage struct {
	Run  *run
	Proc *runner.Process
	End  *outcome
}

func (m madeMessage) handle(ctx context.Context, a *attemptActor) error {
	if a.run != m.Run {
		return nil // of an incarnation that has ended
	}
	a.run.proc, a.run.end = m.Proc, m.End
	if m.Proc != nil {
		r := a.run
		a.engine.beside.do(func() { r.wait(m.Proc) })
		if r.stopping {
			r.stop()
		}
	}
	a.advance(ctx)
	return nil
}

// exitMessage tells how the agent has ended.
type exitMessage struct {
	Run *run
	End *outcome
}

func (m exitMessage) handle(ctx context.Context, a *attemptActor) error {
	if a.run != m.Run {
		return nil
	}
	a.run.end = m.End
	a.advance(ctx)
	return nil
}

// againMessage has what the board did not take tried again.
type againMessage struct{ Run *run }

func (m againMessage) handle(ctx context.Context, a *attemptActor) error {
	if a.run == m.Run {
		a.advance(ctx)
	}
	return nil
}

// stopMessage ends an execution that this server sees to. The answer comes when
// its end is on the board; false: it is not seen to here.
type stopMessage struct {
	Exec  string
	Reply actor.Reply[bool]
}

func (m stopMessage) handle(ctx context.Context, a *attemptActor) error {
	if a.run == nil || a.run.exec.ID != m.Exec {
		m.Reply.Send(false)
		return nil
	}
	a.run.stopped = append(a.run.stopped, m.Reply)
	if !a.run.stopping {
		a.run.stopping = true
		a.run.stopMaking()
		if a.run.proc != nil {
			a.run.stop()
		}
	}
	return nil
}

// boardPatience bounds how long an actor waits for the board, which another
// process may have locked, in one message.
const boardPatience = 20 * time.Second

// advance brings the board up to what is known of the run. Where the board
// refuses, it is tried again until it does not: nothing of a run is forgotten.
func (a *attemptActor) advance(ctx context.Context) {
	r := a.run
	bounded, cancel := context.WithTimeout(ctx, boardPatience)
	defer cancel()
	over, err := r.record(bounded)
	if err != nil {
		r.again(err)
		return
	}
	r.failures = 0
	if !over {
		return
	}
	a.run = nil
	r.stopMaking()
	r.done.Send(struct{}{})
	for _, reply := range r.stopped {
		reply.Send(true)
	}
	a.engine.kick()
}

// ask sends a message to an attempt's actor and waits for its answer.
func ask[R any](ctx context.Context, e *Engine, attempt string, build func(actor.Reply[R]) message) (R, error) {
	return askWithin(ctx, time.Minute, e, attempt, build)
}

// askWithin is ask for a message whose answer may take longer.
func askWithin[R any](ctx context.Context, patience time.Duration, e *Engine, attempt string, build func(actor.Reply[R]) message) (R, error) {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := actor.Ask(bounded, e.attempts.For(attempt), build)
	_, refused := errors.AsType[*session.Error](err)
	switch {
	case err == nil, refused:
		return r, err
	case errors.Is(err, actor.ErrStopped):
		return r, session.NotNow("shutting_down", "The server is shutting down. Call again when it is back.").Because(err)
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return r, session.NotNow("attempt_busy", "Attempt %s did not answer within %v; the call may still be carried out. Call get_attempt to see where it is.", attempt, patience).Because(err)
	}
	return r, fmt.Errorf("asking attempt %s: %w", attempt, err)
}
