package attempt

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session/attempt/runner"
	"deepwork/session/store"
)

// An Agent is what a leader has an agent do.
type Agent struct {
	Execution task.StepExecution // its ID, AgentID, SessionID, StepID, Executor and Variant; with Conversation it goes on
	Prompt    string
	Env       []string // for this process alone, never stored on the board
	MCP       runner.MCP
	Started   func() // called once it has a slot and runs; may be nil
}

// RunAgent runs one process of an agent, when a slot is free, until it ends, and returns how. When ctx
// ends, it asks the agent to end first. The error is one of the board, of what cannot be run at all, or
// ctx's if the agent never ran.
func (l *Lead) RunAgent(ctx context.Context, a Agent) (done *task.StepExecution, err error) {
	x, e := a.Execution, l.run.engine
	defer func() {
		if fault := recover(); fault != nil { // the run goes on without it, and ends its process last
			e.log.Error("the agent of a step cannot be run", "run", x.AttemptID, "step", x.StepID, "error", fmt.Sprint(fault), "trace", string(debug.Stack()))
			err = fmt.Errorf("running its agent failed, which is an error in deepwork; the log says where: %v", fault)
		}
	}()
	x.AttemptID = l.Attempt.ID
	cfg, err := e.config(ctx)
	if err != nil {
		return nil, err
	}
	agent, err := e.choose(ctx, x.Executor, x.Variant)
	if err != nil {
		return nil, err
	}
	w := Work{Log: x.AgentID, Execution: x.ID, Workspace: l.Attempt.Workspace, OfProject: e.ofProject(l.Attempt), Prompt: a.Prompt, Variant: agent.variant,
		Conversation: unless(x.Conversation), MCP: &a.MCP, Env: append(e.environment(cfg, l.Attempt.ID), a.Env...)}
	if err := agent.Check(ctx, w); err != nil {
		return nil, err
	}
	claimed, err := l.board.AddStep(ctx, x, e.slots(cfg), e.claimHere(), limits(cfg))
	if errors.Is(err, store.ErrPending) { // it may be there, with a slot
		_ = l.run.record(func(ctx context.Context, b store.Board) error { // fails only if it was not added, or this process stops leading
			return b.EndStep(ctx, x.AttemptID, x.ID, task.StepEnding{Ending: task.Ending{State: task.Stopped}})
		})
		e.free()
	}
	if err != nil {
		return nil, err
	}
	end, conversation := l.process(ctx, cfg, &x, agent, w, a.Started, claimed)
	end.EndedAt = nil
	ending := task.StepEnding{Ending: end.Ending, Conversation: orNull(conversation)}
	if end.State == task.Failed {
		ending.LimitedUntil = limitOf(time.Now(), unless(end.FinalMessage)+"\n"+unless(end.Error))
	}
	err = l.run.record(func(ctx context.Context, b store.Board) (err error) {
		if ending.Usage, err = e.usageOf(ctx, b, x.AttemptID, x.Executor, end.usage); err != nil {
			return err
		}
		return b.EndStep(ctx, x.AttemptID, x.ID, ending)
	})
	e.free()
	if err != nil {
		return nil, err
	}
	x.State, x.ExitCode, x.FinalMessage, x.Error, x.LimitedUntil = end.State, end.ExitCode, end.FinalMessage, end.Error, ending.LimitedUntil
	if conversation != "" {
		x.Conversation = &conversation
	}
	return &x, nil
}

// process waits for a slot, unless it has one, and runs the process.
func (l *Lead) process(ctx context.Context, cfg *config.Config, x *task.StepExecution, agent *choice, w Work, started func(), claimed bool) (end *outcome, conversation string) {
	e := l.run.engine
	stopped := &outcome{Ending: task.Ending{State: task.Stopped}}
	for !claimed {
		if l.waitTurn(ctx) != nil {
			return stopped, ""
		}
		if now, err := e.config(ctx); err == nil {
			cfg = now
		}
		var err error
		claimed, err = l.board.ClaimStep(ctx, x.AttemptID, x.ID, e.slots(cfg), e.claimHere(), limits(cfg))
		if errors.Is(err, store.ErrPending) {
			return stopped, "" // it may have the slot: its end frees that, and another agent gets one
		}
		if err != nil && ctx.Err() == nil && !Passing(err) {
			return failed("It could not be started: %v", err), ""
		}
	}
	if ctx.Err() != nil {
		return stopped, ""
	}
	// The agent whose slot this is may have used up the budget of the run since its leader looked.
	if why, err := l.OverBudget(ctx); err != nil || why != "" {
		return stopped, "" // its leader is told the same
	}
	bounded, cancel := context.WithTimeout(l.run.ctx, time.Minute) // not with ctx: it must be known whether the agent runs
	defer cancel()
	p, err := agent.Start(bounded, w)
	if err != nil {
		if p = l.find(x); p == nil {
			return failed("It could not be started: %v", err), ""
		}
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	if at := p.StartedAt(); !at.IsZero() {
		x.StartedAt = &at
		if err := l.run.record(func(ctx context.Context, b store.Board) error { return b.StartStep(ctx, x.AttemptID, x.ID, at) }); err != nil {
			stop() // another process has ended it on the board
		} else if started != nil {
			started()
		}
	}
	exit, err := p.Wait(running)
	for err != nil && l.run.ctx.Err() == nil { // running has ended, or it is not known how the agent is
		if exit, err = p.Stop(l.run.ctx, e.o.Grace); err != nil {
			_ = wait.For(l.run.ctx, time.Second)
		}
	}
	if err != nil {
		return stopped, ""
	}
	return outcomeOf(exit), exit.Conversation
}

// find returns the process of an agent whose start failed, nil if it does not run: until that is known, no
// other agent may be started for its step.
func (l *Lead) find(x *task.StepExecution) Process {
	for {
		p, err := l.run.engine.executor(x.Executor).Find(l.run.ctx, x.AgentID, x.ID)
		switch {
		case err == nil:
			return p
		case errors.Is(err, ErrNoRun), wait.For(l.run.ctx, time.Second) != nil:
			return nil
		}
	}
}

// claimHere is the place whose slots count, nil for those of the whole board.
func (e *Engine) claimHere() *task.Claim {
	if e.shared == nil {
		return nil
	}
	return &task.Claim{Place: e.here}
}

// freed returns a channel that is closed when an agent of a step has ended.
func (e *Engine) freed() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.slot == nil {
		e.slot = make(chan struct{})
	}
	return e.slot
}

// free wakes those that wait for a slot.
func (e *Engine) free() {
	e.mu.Lock()
	if e.slot != nil {
		close(e.slot)
		e.slot = nil
	}
	e.mu.Unlock()
	e.kick()
}
