package board

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"deepwork/actor/telemetry"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/outputs"
	"deepwork/session/store"
	"deepwork/session/why"
)

// RunReply answers get_run.
type RunReply struct {
	RunID     string      `json:"run_id"`
	TaskID    string      `json:"task_id" jsonschema:"UUID of its task"`
	State     State       `json:"state"`
	Step      *string     `json:"step" jsonschema:"step at which it stopped"`
	Reason    *string     `json:"reason" jsonschema:"why it ended or waits"`
	Workflow  string      `json:"workflow" jsonschema:"name, as job/workflow"`
	Goal      string      `json:"goal" jsonschema:"goal"`
	Inputs    outputs.Map `json:"inputs" jsonschema:"values of the workflow's inputs, by name"`
	SessionID *string     `json:"session_id"`
	Branch    *string     `json:"branch" jsonschema:"git branch with the work, or null in place"`
	Workspace string      `json:"workspace" jsonschema:"folder in which its agents work, absolute"`
	Waits     []RunWaits  `json:"waits" jsonschema:"steps that wait, and for what"`
	Plan      []PlanStep  `json:"plan"`
	Steps     []RunStep   `json:"steps" jsonschema:"its agents' executions, oldest first"`
	Cost      *Cost       `json:"cost" jsonschema:"what its agents cost, or null before one has ended"`
	CreatedAt string      `json:"created_at" jsonschema:"when it was created, RFC 3339 in UTC"`

	TraceID *string `json:"trace_id" jsonschema:"its trace in OpenTelemetry, 32 hex digits; null without one"`
	Trace   Trace   `json:"-"` // the trace to which it belongs

	Kept  Run  `json:"-"` // as kept on the board
	Began bool `json:"-"` // it can be resumed
	Open  bool `json:"-"` // it has not ended; without a leader it goes on once another one leads it
	// Unseen says, of a start, which files are not in its worktrees.
	Unseen string `json:"-"`
}

// Tags implements fieldtag.Tagger.
func (RunReply) Tags() map[string]string {
	return map[string]string{
		"RunID": `jsonschema:"UUID of the run; it is an attempt, so get_attempt_diff, merge_attempt, ` +
			`stop_attempt and the like take it as attempt_id"`,
		"State": `jsonschema:"queued, running, waiting_for_you, waiting, paused, conflicts, interrupted, ` +
			`failed, stopped, completed or merged"`,
		"SessionID": `jsonschema:"its workflow session, 8 hexadecimal characters, or null before it began"`,
		"Plan":      `jsonschema:"steps of its workflow, in order; those of nested workflows follow their step"`,
	}
}

// A PlanStep says how far a step of a run's workflow is (see session/run).
type PlanStep struct {
	SessionID string `json:"session_id"`
	StepID    string `json:"step_id" jsonschema:"id of the step"`
	State     State  `json:"state"`
}

// Tags implements fieldtag.Tagger.
func (PlanStep) Tags() map[string]string {
	return map[string]string{
		"SessionID": `jsonschema:"session of the run, or of a workflow nested in it, 8 hexadecimal characters"`,
		"State": `jsonschema:"not_begun, queued, running, waiting_for_you, waiting, dropped, completed or, once its ` +
			`agent or the run has ended, paused, interrupted, failed or stopped"`,
	}
}

// RunStep describes one agent process of a run.
type RunStep struct {
	ExecutionID  string         `json:"execution_id" jsonschema:"UUID of the execution, for tail_attempt"`
	SessionID    string         `json:"session_id"`
	StepID       string         `json:"step_id" jsonschema:"id of the step"`
	Executor     string         `json:"executor" jsonschema:"name, or NAME:VARIANT"`
	State        State          `json:"state"`
	StartedAt    *string        `json:"started_at" jsonschema:"when its process was started, RFC 3339 in UTC"`
	EndedAt      *string        `json:"ended_at" jsonschema:"when it ended, RFC 3339 in UTC"`
	LimitedUntil *string        `json:"limited_until"`
	FinalMessage *string        `json:"final_message" jsonschema:"what the agent said last"`
	Error        *string        `json:"error" jsonschema:"why it failed"`
	Cost         *ExecutionCost `json:"cost" jsonschema:"what it used"`

	LogID     string `json:"-"` // the name of its log
	Contained string `json:"-"` // under what it ran; see task.Execution
	Why       string `json:"-"` // why it has not completed its work, in a sentence
}

// Tags implements fieldtag.Tagger.
func (RunStep) Tags() map[string]string {
	return map[string]string{
		"SessionID": `jsonschema:"workflow session of the run, or of a workflow nested in it, 8 hexadecimal ` +
			`characters"`,
		"State": `jsonschema:"queued, running, completed, failed, stopped or interrupted; the step is done ` +
			`when its session says so"`,
		"LimitedUntil": `jsonschema:"when the provider's limit that ended it is over, RFC 3339"`,
	}
}

// Took returns how long the process ran, 0 if it has not ended.
func (x *RunStep) Took() time.Duration {
	if x.StartedAt == nil || x.EndedAt == nil {
		return 0
	}
	from, _ := time.Parse(time.RFC3339Nano, *x.StartedAt) // written by this program
	to, _ := time.Parse(time.RFC3339Nano, *x.EndedAt)
	return to.Sub(from)
}

// RunOnBoard reads an attempt that is a run.
func (b *Board) RunOnBoard(ctx context.Context, v store.View, id string) (*task.Attempt, *Run, error) {
	at, err := v.Attempt(ctx, id)
	if err == nil && at.Run == nil {
		err = task.Missing("run", id)
	}
	if err != nil {
		return nil, nil, RunFault("reading the run", err, id)
	}

	run, err := runIn(at)
	return at, run, err
}

func runIn(at *task.Attempt) (*Run, error) {
	run := new(Run)
	if err := json.Unmarshal(at.Run, run); err != nil {
		return nil, fmt.Errorf("reading the run %s: %w", at.ID, err)
	}
	return run, nil
}

// Runs returns the runs that the caller sees, newest first. Ended runs come without agents and cost.
func (b *Board) Runs(ctx context.Context, who session.Caller) ([]*RunReply, error) {
	attempts, err := b.FindAttempts(ctx, who, "")
	if err != nil {
		return nil, err
	}
	slices.SortFunc(attempts, func(a, b task.Attempt) int { return b.CreatedAt.Compare(a.CreatedAt) })

	all := []*RunReply{}
	for _, at := range attempts {
		if at.Run == nil {
			continue
		}

		run, err := runIn(&at)
		if err != nil {
			return nil, err
		}
		r := b.newRunReply(ctx, &at, run)
		if at.State.Open() {
			if r, err = b.GetRun(ctx, who, RunArgs{at.ID}); err != nil {
				return nil, err
			}
		}
		all = append(all, r)
	}
	return all, nil
}

// RunArgs are the arguments of get_run.
type RunArgs struct {
	RunID string `json:"run_id" arg:"UUID"`
}

// GetRun returns a run with the executions of its agents.
func (b *Board) GetRun(ctx context.Context, who session.Caller, a RunArgs) (*RunReply, error) {
	v, id, err := b.ViewFor(ctx, who, "run_id", a.RunID)
	if err != nil {
		return nil, err
	}
	return b.RunReply(ctx, v, id)
}

// newRunReply describes a run without its agents and their cost.
func (b *Board) newRunReply(ctx context.Context, at *task.Attempt, run *Run) *RunReply {
	r := &RunReply{
		RunID:     at.ID,
		TaskID:    at.TaskID,
		State:     b.StateOf(&at.Situation),
		Open:      at.State.Open(),
		Began:     (at.State.Open() || at.LatestSessionID != nil) && OrEmpty(at.WorkflowStatus) != WorkflowAborted,
		Reason:    at.Error,
		Workflow:  run.JobName + "/" + run.WorkflowName,
		Goal:      run.Goal,
		Inputs:    run.Inputs,
		SessionID: OrNull(run.SessionID),
		Branch:    OrNull(at.Branch),
		Workspace: at.Workspace,
		Steps:     []RunStep{},
		Plan:      []PlanStep{},
		CreatedAt: Stamp(at.CreatedAt),
		Kept:      *run,
	}
	r.Trace = b.TraceOf(ctx, at.Trace)
	r.TraceID, r.Waits = OrNull(r.Trace.ID), waitsOf(run, r.Open)
	switch end := run.End; {
	case end != nil && !r.Open:
		r.Step, r.Reason = OrNull(end.Step), OrNull(end.Reason())
	case at.State == task.Stopped && r.Reason == nil:
		r.Reason = new(why.Why{Kind: why.Stopped}.Sentence()) // while it had no leader
	case r.Open && r.State == Interrupted:
		r.Reason = new(why.Why{Kind: why.Gone}.Sentence() + " A server of the project leads it on, or 'deepwork run " +
			"resume " + Short(at.ID) + "'.")
	case r.State == WaitingForYou, r.State == WaitingForLimit:
		r.Reason = new(r.waitsText())
	}
	return r
}

// A Trace is an OpenTelemetry trace.
type Trace struct {
	ID  string // "" if nothing is exported
	URL string // by telemetry.trace_url; "" without
}

// TraceOf returns the trace to which a traceparent belongs.
func (b *Board) TraceOf(ctx context.Context, traceparent string) (t Trace) {
	of := telemetry.Parse(traceparent)
	if !of.TraceID().IsValid() {
		return t
	}
	t.ID = of.TraceID().String()
	if cfg, err := b.Config(ctx); err == nil { // on an error there is no link
		t.URL = cfg.Telemetry.Link(t.ID)
	}
	return t
}

// RunReply describes a run with its agents and their cost.
func (b *Board) RunReply(ctx context.Context, v View, id string) (*RunReply, error) {
	at, run, err := b.RunOnBoard(ctx, v.View, id)
	if err != nil {
		return nil, err
	}
	r := b.newRunReply(ctx, at, run)
	if r.Open && r.State == Interrupted { // the leader may have ended the run, and itself, after it was read
		if at, run, err = b.RunOnBoard(ctx, v.View, id); err != nil {
			return nil, err
		}
		r = b.newRunReply(ctx, at, run)
	}
	steps, err := v.Steps(ctx, id) // read before the costs, so that every agent that has ended has a cost
	if err != nil {
		return nil, Fault("reading the agents of the run", err)
	}
	if r.Cost, err = v.Cost(ctx, at.TaskID, id); err != nil {
		return nil, Fault("reading the cost of the run", err)
	}
	each, err := v.ExecutionCosts(ctx, id)
	if err != nil {
		return nil, Fault("reading the cost of the run", err)
	}

	waits := at.State == task.Waiting
	for i := len(steps) - 1; i >= 0; i-- {
		x := steps[i]
		waits = waits || x.State == task.Waiting
		executor := x.Executor
		if x.Variant != nil {
			executor += ":" + *x.Variant
		}
		r.Steps = append(r.Steps, RunStep{
			ExecutionID:  x.ID,
			SessionID:    x.WorkflowSessionID,
			StepID:       x.StepID,
			Executor:     executor,
			State:        ExecutionState(x.State),
			StartedAt:    StampOrNull(x.StartedAt),
			EndedAt:      StampOrNull(x.EndedAt),
			LimitedUntil: StampOrNull(x.LimitedUntil),
			FinalMessage: x.FinalMessage,
			Error:        x.Error,
			Cost:         each[x.ID],
			LogID:        x.LogID,
			Contained:    x.Contained,
			Why:          WhyOf(&x).Sentence(),
		})
	}
	if waits && r.Open && r.Reason == nil {
		if cfg, err := b.Config(ctx); err == nil { // on an error nothing starts, and the leader says why
			if r.Reason, err = b.HeldBack(ctx, v.Who, cfg); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}
