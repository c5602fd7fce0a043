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
	"deepwork/session/board"
	"deepwork/session/store"
)

// An Agent is what a leader has an agent do.
type Agent struct {
	Execution task.Execution // its ID, LogID, WorkflowSessionID, StepID, Executor and Variant; with Conversation it goes on
	Prompt    string
	Env       []string // for this process alone, never stored on the board
	MCP       runner.MCP
	Started   func() // called once it has a slot and runs; may be nil
}

// RunAgent runs one process of an agent, when a slot is free, until it ends, and returns how. When ctx
// ends, it asks the agent to end first. The error is one of the board, of what cannot be run at all, or
// ctx's if the agent never ran.
func (l *Lead) RunAgent(ctx context.Context, a Agent) (done *task.Execution, err error) {
	x, e := a.Execution, l.execution.engine
	defer func() {
		if fault := recover(); fault != nil { // the run goes on without it, and ends its process last
			e.Log.Error("the agent of a step cannot be run", "run", x.AttemptID, "step", x.StepID, "error", fmt.Sprint(fault), "trace", string(debug.Stack()))
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
	w := Work{Log: x.LogID, Execution: x.ID, Workspace: l.Attempt.Workspace, OfProject: e.ofProject(l.Attempt), Prompt: a.Prompt, Variant: agent.variant,
		Conversation: board.OrEmpty(x.Conversation), MCP: &a.MCP, Env: append(e.environment(cfg, l.Attempt.ID), a.Env...)}
	if err := agent.Check(ctx, w); err != nil {
		return nil, err
	}
	claimed, err := l.records.AddStep(ctx, x, e.slots(cfg), e.claimHere(), board.Limits(cfg))
	r := &execution{engine: e, row: x, ctx: l.execution.ctx}
	r.stopping, r.stop = context.WithCancel(ctx)
	defer r.stop()
	r.making = r.stopping
	end := &outcome{Ending: task.Ending{State: task.Stopped}}
	if errors.Is(err, store.ErrPending) { // it may be there, with a slot
		_ = r.record(func(ctx context.Context, b store.Board) error { return r.recordEnd(ctx, b, end) }) // fails only if it was not added, or this process stops leading
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
		if a.Started == nil {
			a.Started = func() {}
		}
		end = r.waitFor(proc, a.Started)
	}
	switch end.fate {
	case left:
		return nil, context.Canceled
	case waits: // not for another leader
		end.Ending = task.Ending{State: task.Stopped}
	}
	if end.State == task.Failed {
		end.LimitedUntil = limitOf(time.Now(), board.OrEmpty(end.FinalMessage)+"\n"+board.OrEmpty(end.Error))
	}
	err = r.record(func(ctx context.Context, b store.Board) error { return r.recordEnd(ctx, b, end) })
	e.wakeUp()
	if err != nil {
		return nil, err
	}
	x.State, x.ExitCode, x.FinalMessage, x.Error, x.LimitedUntil = end.State, end.ExitCode, end.FinalMessage, end.Error, end.LimitedUntil
	if end.Conversation != nil {
		x.Conversation = end.Conversation
	}
	return &x, nil
}

// await waits for a slot, unless the execution has one. It returns nil when it has, and else how it ended.
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
		claimed, err = l.records.ClaimStep(ctx, r.row.AttemptID, r.row.ID, e.slots(cfg), e.claimHere(), board.Limits(cfg))
		if errors.Is(err, store.ErrPending) {
			return r.notRun() // it may have the slot: its end frees that, and another agent gets one
		}
		if err != nil && ctx.Err() == nil && !board.Passing(err) {
			return failed("It could not be started: %v", err)
		}
	}
	// The agent whose slot this is may have used up the budget of the run since its leader looked.
	if why, err := l.OverBudget(ctx); err != nil || why != "" || ctx.Err() != nil {
		return r.notRun() // its leader is told the same
	}
	return nil
}

// claimHere is the place whose slots count, nil for those of the whole board.
func (e *Engine) claimHere() *task.Claim {
	if e.Shared == nil {
		return nil
	}
	return &task.Claim{Place: e.Here}
}
