package attempt

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"deepwork/actor/telemetry"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/executors"
	"deepwork/session/attempt/transcript"
	"deepwork/session/board"
	"deepwork/session/store"
	"deepwork/session/why"
)

// leadRun leads a run.
func (r *execution) leadRun() *outcome {
	l, end := r.beginLead()
	if end == nil {
		return l.follow()
	}
	if end.fate == stopped {
		run := stoppedRun("")
		if r.interrupted.Load() {
			run = interruptedRun("")
		}
		end = outcomeOfRun(run)
	}
	if end.fate == ended && r.recordLead() != nil { // so that it can be resumed, even without a workspace
		return &outcome{fate: left}
	}
	return end
}

// recordLead records that the run has a leader.
func (r *execution) recordLead() error {
	return r.record(func(ctx context.Context, b store.Board) error { return r.recordStart(ctx, b, time.Now(), "") })
}

// beginLead prepares what a leader needs, or says why it cannot lead.
func (r *execution) beginLead() (*Lead, *outcome) {
	e := r.engine
	if e.o.Leader == nil {
		return nil, r.notRun() // another server can lead it
	}

	cfg, err := e.Config(r.making)
	if err != nil {
		return nil, r.notRun()
	}
	b, err := e.Store(r.making)
	if err != nil {
		return nil, r.couldNot("opening the board", err)
	}
	now, err := b.Execution(r.making, r.row.ID)
	if errors.Is(err, task.ErrNotFound) || err == nil && (now.State.Ended() || now.Owner != e.Members.ID()) {
		return nil, &outcome{fate: left}
	}

	l := &Lead{execution: r, records: b, Since: r.row.CreatedAt}
	if r.row.FollowUp {
		l.Advice = r.row.Prompt
	}
	if err == nil {
		l.Attempt, err = b.Attempt(r.making, r.row.AttemptID)
	}
	if err == nil {
		err = json.Unmarshal(l.Attempt.Run, &l.Run)
	}
	if err != nil {
		return nil, r.couldNot("reading the run", err)
	}

	l.Run.End = nil
	if err := l.Save(r.making); err != nil {
		return nil, r.couldNot("recording the run", err)
	}
	if err := session.Untrusted(e.Root(), cfg.Approval, config.AgentsKey); err != nil {
		return nil, r.couldNot("starting the run", err)
	}
	if err := e.State().Make(); err != nil {
		return nil, r.couldNot("making the state folder of the project", err)
	}
	if !l.Run.InPlace {
		if end := r.workspace(b, cfg, l.Attempt, e.environment(cfg, l.Attempt.ID)); end != nil {
			return nil, end
		}
	}

	if err := r.recordLead(); err != nil {
		return nil, &outcome{fate: left}
	}
	if err := cmp.Or(e.endGivenUpAgents(r.making, b, r.row), l.endAgents(r.making)); err != nil {
		return nil, r.couldNot("ending the agents of an earlier leader", err)
	}
	e.exportAgain(r.making, b, l.Attempt.ID)
	return l, nil
}

// follow calls the leader, and records how the run ended.
func (l *Lead) follow() *outcome {
	r := l.execution
	ctx, cancel := r.making, context.CancelFunc(func() {})
	if l.Run.MaxTime > 0 {
		began := cmp.Or(r.row.StartedAt, new(time.Now())) // perhaps by an earlier leader that was killed
		if l.Run.Resumed.After(*began) {
			began = &l.Run.Resumed
		}
		ctx, cancel = context.WithDeadline(ctx, began.Add(l.Run.MaxTime))
	}
	defer cancel()
	end := l.call(ctx)
	switch {
	case end.State == board.Completed: // however its last agents ended
	case r.interrupted.Load():
		end = interruptedRun(end.Step)
	case r.stopped():
		end = stoppedRun(end.Step)
	case r.making.Err() != nil:
		return &outcome{fate: left} // the server is closing: the next one continues
	case ctx.Err() != nil:
		end = board.RunEnd{
			State: board.Paused,
			Step:  end.Step,
			Why:   []why.Why{{Kind: why.Time, Most: l.Run.MaxTime.Seconds()}},
		}
	}
	l.Run.End = &end
	err := r.record(func(ctx context.Context, b store.Board) error {
		if now, err := b.Execution(ctx, r.row.ID); err != nil {
			return err
		} else if now.State.Ended() { // another machine has given the run up, and said why
			return task.ErrEnded
		}

		dropped, err := r.dropped(ctx, b, outcomeOfRun(end).State)
		if err != nil {
			return err
		}
		if dropped != nil && !dropped.At.Equal(end.Dropped) {
			end.Dropped = dropped.At
			end.Why = append(end.Why, whyDropped(dropped))
		}
		return l.Save(ctx)
	})
	if err != nil {
		return &outcome{fate: left}
	}
	return outcomeOfRun(end)
}

// call calls the leader. If it panics, the run stops, and can be resumed.
func (l *Lead) call(ctx context.Context) (end board.RunEnd) {
	defer func() {
		if fault := recover(); fault != nil {
			l.execution.engine.Log.Error("the leader of a run failed", "run", l.Attempt.ID, "error", fmt.Sprint(fault),
				"trace", string(debug.Stack()))
			end = board.RunEnd{
				State: board.Failed,
				Step:  board.OrEmpty(l.Attempt.WorkflowStep),
				Why: []why.Why{{
					Kind: why.Other,
					Said: fmt.Sprintf("Its leader failed, which is an error in deepwork; the log says where: %v",
						fault),
				}},
			}
		}
	}()
	return l.execution.engine.o.Leader(telemetry.Under(ctx, RefOf(l.Attempt)), l)
}

// stoppedRun is the end of a run that a person stopped.
func stoppedRun(step string) board.RunEnd {
	return board.RunEnd{State: board.Stopped, Step: step, Why: []why.Why{{Kind: why.Stopped}}}
}

// interruptedRun is the end of a run whose process was asked to end.
func interruptedRun(step string) board.RunEnd {
	return board.RunEnd{State: board.Interrupted, Step: step, Why: []why.Why{{Kind: why.Cut}}}
}

// outcomeOfRun returns the outcome of the leader's execution.
func outcomeOfRun(end board.RunEnd) *outcome {
	o := &outcome{Ending: task.Ending{Error: board.OrNull(end.Reason())}, dropped: end.Dropped}
	switch {
	case end.State == board.Completed:
		o.State = task.Completed
		o.Error = nil
		o.FinalMessage = board.OrNull(end.Reason())
	case end.State == board.Paused, end.State == board.Stopped:
		o.State = task.Stopped
	case end.State == board.Interrupted:
		o.State = task.Interrupted
	default:
		o.State = task.Failed
	}
	return o
}

// endAgents ends the agents of a dead leader, all at once: they can no longer reach it.
func (l *Lead) endAgents(ctx context.Context) error {
	steps, err := l.records.Steps(ctx, l.Attempt.ID)
	if err != nil {
		return err
	}

	var ending sync.WaitGroup
	errs := make([]error, len(steps))
	for i, x := range steps {
		if !x.State.Ended() {
			ending.Go(func() { errs[i] = l.endAgent(ctx, x) })
		}
	}

	ending.Wait()
	return errors.Join(append(errs, os.RemoveAll(l.execution.engine.State().MCP(l.Attempt.ID)),
		os.RemoveAll(l.judges()))...)
}

// endAgent ends an agent of a dead leader.
func (l *Lead) endAgent(ctx context.Context, x task.Execution) error {
	r := &execution{engine: l.execution.engine, row: x}
	end := &outcome{}
	if x.State != task.Waiting {
		p, err := r.executor().Find(ctx, x.LogID, x.ID)
		if err == nil {
			exit, err := p.Stop(ctx, r.engine.o.Grace)
			if err != nil {
				return err
			}
			end = outcomeOf(exit)
			if at := p.StartedAt(); !at.IsZero() && x.StartedAt == nil { // so that what the agent used counts
				if err := r.recordStart(ctx, l.records, at, p.Contained()); err != nil {
					return err
				}
			}
		} else if !errors.Is(err, executors.ErrNoRun) {
			return err
		}
	}
	end.LimitedUntil = end.limitedUntil()
	// the agent may have failed because it could not reach its leader
	end.State, end.Error = task.Interrupted, new("Its leader ended before it.")
	return r.recordEnd(ctx, l.records, end)
}

// A Leader leads the agents of a run through its workflow, with an agent for each step. It returns when the
// workflow is complete or cannot go on, or when ctx ends; then it ends the agents first. If an earlier leader
// was interrupted, it continues from there.
type Leader func(ctx context.Context, l *Lead) board.RunEnd

// A Lead is what a Leader works with: a run, and the board through which it starts agents. Its methods may be
// called concurrently.
type Lead struct {
	Attempt *task.Attempt // with its workspace
	Run     board.Run
	Advice  string    // the message of the person who resumed it
	Since   time.Time // when its execution was created; the same for leaders that continue after a crash

	execution *execution
	records   store.Board
	contained containment
}

// Save records the run.
func (l *Lead) Save(ctx context.Context) error {
	data, err := json.Marshal(l.Run)
	if err != nil {
		return err
	}
	return l.records.SetRun(ctx, l.Attempt.ID, data)
}

// Progress records how far the workflow of the run is.
func (l *Lead) Progress(ctx context.Context, p task.WorkflowProgress) error {
	return l.records.SetWorkflow(ctx, l.Attempt.ID, p)
}

// Steps returns the executions of a step's agents, newest first.
func (l *Lead) Steps(ctx context.Context, sessionID, stepID string) ([]task.Execution, error) {
	return l.records.StepsOf(ctx, l.Attempt.ID, sessionID, stepID)
}

// Continues reports whether an executor can continue a conversation while others use the folder.
func (l *Lead) Continues(ctx context.Context, executor string, variant *string) bool {
	agent, err := l.execution.engine.choose(ctx, executor, variant)
	return err == nil && agent.Names
}

// Note writes a line to the output of the run.
func (l *Lead) Note(format string, args ...any) { l.execution.note(fmt.Sprintf(format, args...)) }

// Warn logs what hinders the run.
func (l *Lead) Warn(what string, err error) {
	if l.execution != nil { // nil in tests
		l.execution.engine.Log.Warn(what, "run", l.Attempt.ID, "error", err)
	}
}

// OverBudget returns why the run should pause, or the zero Why.
func (l *Lead) OverBudget(ctx context.Context) (w why.Why, err error) {
	if l.Run.MaxCostUSD == nil && l.Run.MaxUnknown == nil {
		return w, nil
	}

	sum, err := l.records.Spent(ctx, l.Attempt.TaskID, l.Attempt.ID)
	if err != nil {
		return w, err
	}
	switch {
	case l.Run.MaxCostUSD != nil && sum.MicroUSD >= board.MicroUSD(*l.Run.MaxCostUSD):
		w = why.Why{Kind: why.Cost, Amount: board.USD(sum.MicroUSD), Most: *l.Run.MaxCostUSD}
	case l.Run.MaxUnknown != nil && sum.Unknown >= *l.Run.MaxUnknown:
		w = why.Why{Kind: why.Unknown, Amount: float64(sum.Unknown), Most: float64(*l.Run.MaxUnknown)}
	}
	return w, nil
}

// Reviewed records what an executor (NAME or NAME:VARIANT) that reviewed the run's work has printed, so that
// its cost counts toward the budgets of the run and of the board.
func (l *Lead) Reviewed(ctx context.Context, executor string, stdout []byte) error {
	u := task.Use{AttemptID: l.Attempt.ID, ExecutionID: uuid.NewString()}
	u.Executor, _, _ = strings.Cut(executor, ":")
	used, err := l.execution.engine.usageOf(ctx, l.records, u.AttemptID, u.Executor, transcript.UsageIn(stdout))
	if err != nil {
		return err
	}
	l.execution.engine.countUse(used, false)
	u.Reported = used != nil
	if u.Reported {
		u.Usage = *used
	}
	if err = l.records.AddUse(ctx, u); err == nil {
		l.execution.engine.export(ctx, l.records, u.AttemptID, func(id string, _, _ time.Time) bool {
			return id == u.ExecutionID
		})
	}

	return err
}
