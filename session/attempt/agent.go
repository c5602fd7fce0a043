package attempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"deepwork/actor/telemetry"
	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session/attempt/executors"
	"deepwork/session/attempt/runner"
	"deepwork/session/board"
	"deepwork/session/contain"
	"deepwork/session/store"
)

// An Agent says what a leader wants an agent to do.
type Agent struct {
	// its ID, LogID, WorkflowSessionID, StepID, Executor and Variant; with Conversation it continues that one
	Execution task.Execution
	Prompt    string
	Env       []string // for this process only; never stored on the board
	MCP       executors.MCP
	// Started is called once the agent has a slot and runs, with under what it is contained, or ""; may be nil.
	Started   func(contained string)
	Workspace string // in which it works; "" means that of the run

	Model       string           // "" means that of the executor's own settings
	Timeout     time.Duration    // the agent is ended after this time; 0 means no limit
	IdleTimeout time.Duration    // without output or calls; 0 means no limit
	Called      func() time.Time // time of its last call: now, during one; needed with IdleTimeout
}

// limited ends a running agent that reaches a limit of its step, and returns which limit that is, or "".
func (a *Agent) limited(r *execution, log string, ended <-chan struct{}) string {
	if a.Timeout == 0 && a.IdleTimeout == 0 {
		return ""
	}

	began := time.Now()
	last := int64(-1)
	printed := time.Now()
	for pause := time.Second; ; {
		if a.Timeout > 0 {
			pause = min(pause, max(time.Until(began.Add(a.Timeout)), time.Millisecond))
		}
		select {
		case <-ended:
			return ""
		case <-r.stopping.Done():
			return ""
		case <-time.After(pause):
		}

		why := ""
		if a.Timeout > 0 && time.Since(began) >= a.Timeout {
			why = fmt.Sprintf("timeout, %v.", a.Timeout)
		}
		if a.IdleTimeout > 0 {
			if _, next, err := runner.Tail(r.ctx, log, nil, 1, 0); err != nil || next != last {
				last, printed = next, time.Now()
			}
			if called := a.Called(); called.After(printed) {
				printed = called
			}
			if time.Since(printed) >= a.IdleTimeout {
				why = fmt.Sprintf("idle_timeout, %v without any output and without a call.", a.IdleTimeout)
			}
		}
		if why != "" {
			r.stop()
			return why
		}
	}
}

// RunAgent runs one process of an agent, once a slot is free, until it ends, and returns how it ended. When
// ctx ends, RunAgent first asks the agent to end. The error is the board's, says what cannot be run at all,
// or is ctx's if the agent never ran.
func (l *Lead) RunAgent(ctx context.Context, a Agent) (done *task.Execution, err error) {
	x, e := a.Execution, l.execution.engine
	defer func() {
		if fault := recover(); fault != nil { // the run goes on without this agent, and ends its process last
			e.Log.Error("the agent of a step cannot be run", "run", x.AttemptID, "step", x.StepID, "error",
				fmt.Sprint(fault), "trace", string(debug.Stack()))
			err = fmt.Errorf("running its agent failed, which is an error in deepwork; the log says where: %v", fault)
		}
	}()
	x.AttemptID = l.Attempt.ID
	cfg, err := e.Config(ctx)
	if err != nil {
		return nil, err
	}

	agent, err := e.choose(ctx, x.Executor, x.Variant)
	if err != nil {
		return nil, err
	}
	w := executors.Work{
		Log:          x.LogID,
		Execution:    x.ID,
		Workspace:    cmp.Or(a.Workspace, l.Attempt.Workspace),
		OfProject:    e.ofProject(l.Attempt),
		Prompt:       a.Prompt,
		Variant:      agent.variant,
		Conversation: board.OrEmpty(x.Conversation),
		MCP:          &a.MCP,
		Model:        a.Model,
		Env: slices.Concat(e.environment(cfg, l.Attempt.ID), a.Env,
			telemetry.Environment(AgentRef(l.Attempt, x.ID))),
	}
	entered := false
	if !l.Run.InPlace {
		w.Contain = func(ctx context.Context, p *contain.Plan) error {
			err := l.enter(ctx, p, a.Workspace)
			entered = err == nil
			return err
		}
	}
	if err := agent.Check(ctx, w); err != nil {
		return nil, err
	}
	claimed, err := l.records.AddStep(ctx, x, e.slots(cfg), e.claimHere(), board.Limits(cfg))
	r := &execution{engine: e, row: x, ctx: l.execution.ctx}
	r.stopping, r.stop = context.WithCancel(ctx)
	defer r.stop()
	r.making = r.stopping
	end := &outcome{Ending: task.Ending{State: task.Stopped}}
	if errors.Is(err, store.ErrPending) { // it may be on the board, with a slot
		// fails only if it was not added, or if this process stops leading
		_ = r.record(func(ctx context.Context, b store.Board) error { return r.recordEnd(ctx, b, end) })
		e.wakeUp()
	}
	if err != nil {
		return nil, err
	}

	if why := l.await(r, cfg, claimed); why != nil {
		end = why
	} else if proc, why := r.start(agent, w); proc == nil {
		end = why
	} else {
		end = a.waitFor(r, proc)
	}
	if entered && end.fate != left {
		l.leave(r.ctx, a.Workspace)
	}
	switch end.fate {
	case left:
		return nil, context.Canceled
	case waits: // not for another leader
		end.Ending = task.Ending{State: task.Stopped}
	}
	end.LimitedUntil = end.limitedUntil()
	err = r.record(func(ctx context.Context, b store.Board) error { return r.recordEnd(ctx, b, end) })

	e.wakeUp()
	if err != nil {
		return nil, err
	}

	x.State = end.State
	x.ExitCode = end.ExitCode
	x.FinalMessage = end.FinalMessage
	x.Error = end.Error
	x.LimitedUntil, x.OverLimit = end.LimitedUntil, end.OverLimit
	if end.Conversation != nil {
		x.Conversation = end.Conversation
	}
	return &x, nil
}

// waitFor waits for the end of the agent, which ends at the limits of its step.
func (a *Agent) waitFor(r *execution, proc executors.Process) *outcome {
	over, reached := make(chan struct{}), make(chan string, 1)
	go func() { reached <- a.limited(r, r.engine.local.Log(r.row.LogID), over) }()
	end := r.waitFor(proc, func() {
		if a.Started != nil {
			a.Started(proc.Contained())
		}
	})
	close(over)
	if why := <-reached; why != "" && end.State == task.Stopped {
		end.State, end.OverLimit, end.Error = task.Failed, true, new("It was ended by a limit of the step: "+why)
	}
	return end
}

// await waits for a slot, unless the execution has one. It returns nil once it has one, otherwise how the
// execution ended.
func (l *Lead) await(r *execution, cfg *config.Config, claimed bool) *outcome {
	e, ctx := r.engine, r.stopping
	for !claimed {
		if wait.For(ctx, e.o.Poll) != nil {
			return r.notRun()
		}

		if now, err := e.Config(ctx); err == nil {
			cfg = now
		}

		var err error
		claimed, err = l.records.ClaimStep(ctx, r.row.AttemptID, r.row.ID, e.slots(cfg), e.claimHere(),
			board.Limits(cfg))
		if errors.Is(err, store.ErrPending) {
			return r.notRun() // it may have a slot, which another agent gets when it ends
		}

		if err != nil && ctx.Err() == nil && !board.Passing(err) {
			return failed("It could not be started: %v", err)
		}
	}

	// The agent that had this slot may have used up the run's budget since the leader looked.
	if over, err := l.OverBudget(ctx); err != nil || over.Kind != "" || ctx.Err() != nil {
		return r.notRun() // the leader gets the same answer
	}
	return nil
}

// claimHere returns the place whose slots count, nil for those of the whole board.
func (e *Engine) claimHere() *task.Claim {
	if e.Shared == nil {
		return nil
	}
	return &task.Claim{Place: e.Here}
}
