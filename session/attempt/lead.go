package attempt

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session/attempt/transcript"
	"deepwork/session/store"
)

// A Leader leads the agents of a run through its workflow, each step with an agent of its own. It returns
// when the workflow is complete or cannot go on, or when ctx ends: then it ends the agents first. If
// an earlier leader was interrupted, it goes on where that one was.
type Leader func(ctx context.Context, l *Lead) RunEnd

// A Run is what the leader of an attempt keeps on the board (task.Attempt.Run).
type Run struct {
	JobName      string        `json:"job_name"`
	WorkflowName string        `json:"workflow_name"`
	Goal         string        `json:"goal"`
	Parallel     int           `json:"parallel"`           // agents at once; 0 means as many as there are slots
	Resume       bool          `json:"resume,omitempty"`   // one conversation for the steps that follow one another
	InPlace      bool          `json:"in_place,omitempty"` // in the project itself, without worktrees
	MaxCostUSD   *float64      `json:"max_cost_usd,omitempty"`
	MaxUnknown   *int          `json:"max_unknown,omitempty"`
	MaxTime      time.Duration `json:"max_time,omitempty"` // of one execution of the leader, in nanoseconds; 0 means no limit
	SessionID    string        `json:"session_id,omitempty"`
	// Children are the workflows that agents have started, by the session and the step of their agents,
	// SESSION/STEP.
	Children map[string][]string `json:"children,omitempty"`
	Waits    []RunWait           `json:"waits,omitempty"` // as far as its leader knows
	End      *RunEnd             `json:"end,omitempty"`   // of the last leader; nil while one leads
}

// RunState is how a run has ended.
type RunState string

// The values of RunState.
const (
	RunComplete    RunState = "complete"
	RunStopped     RunState = "stopped"     // at a step that no agent finished, or by a person
	RunPaused      RunState = "paused"      // by a budget
	RunInterrupted RunState = "interrupted" // its process was asked to end
)

// A RunEnd is how a run has ended, as far as its leader knows.
type RunEnd struct {
	State  RunState `json:"state"`
	Step   string   `json:"step,omitempty"`   // at which it stopped
	Reason string   `json:"reason,omitempty"` // a sentence for people; "" if it is complete
}

// A Lead is what a Leader has to do with: a run, and the board through which it starts agents. Its methods
// may be called concurrently.
type Lead struct {
	Attempt *task.Attempt // with its workspace
	Run     Run
	Advice  string    // what the person said who resumed it
	Since   time.Time // when its execution was created: leaders that go on after a crash have the same

	run   *run
	board store.Board
}

// Save records the run.
func (l *Lead) Save(ctx context.Context) error {
	data, err := json.Marshal(l.Run)
	if err != nil {
		return err
	}
	return l.board.SetRun(ctx, l.Attempt.ID, data)
}

// Progress records where the workflow of the run is.
func (l *Lead) Progress(ctx context.Context, p task.WorkflowProgress) error {
	return l.board.SetWorkflow(ctx, l.Attempt.ID, p)
}

// Steps returns the executions of a step's agents, the newest first.
func (l *Lead) Steps(ctx context.Context, sessionID, stepID string) ([]task.Execution, error) {
	return l.board.StepsOf(ctx, l.Attempt.ID, sessionID, stepID)
}

// Continues reports whether an executor can go on with a conversation beside others in the folder.
func (l *Lead) Continues(ctx context.Context, executor string, variant *string) bool {
	agent, err := l.run.engine.choose(ctx, executor, variant)
	return err == nil && agent.Names
}

// Note writes a line to the output of the run.
func (l *Lead) Note(format string, args ...any) { l.run.note(fmt.Sprintf(format, args...)) }

// Warn logs what hinders the run, for whoever runs its server.
func (l *Lead) Warn(what string, err error) {
	if l.run != nil { // else it is a test
		l.run.engine.log.Warn(what, "run", l.Attempt.ID, "error", err)
	}
}

// OverBudget returns why the run is to pause, or "".
func (l *Lead) OverBudget(ctx context.Context) (string, error) {
	if l.Run.MaxCostUSD == nil && l.Run.MaxUnknown == nil {
		return "", nil
	}
	sum, err := l.board.Spent(ctx, l.Attempt.TaskID, l.Attempt.ID)
	if err != nil {
		return "", err
	}
	switch {
	case l.Run.MaxCostUSD != nil && sum.MicroUSD >= inMicroUSD(*l.Run.MaxCostUSD):
		return fmt.Sprintf("Its agents have cost %s USD, and its budget is %s USD.", decimal(inUSD(sum.MicroUSD)), decimal(*l.Run.MaxCostUSD)), nil
	case l.Run.MaxUnknown != nil && sum.Unknown >= *l.Run.MaxUnknown:
		return fmt.Sprintf("%d of its agents have ended whose cost is unknown, and at most %d may.", sum.Unknown, *l.Run.MaxUnknown), nil
	}
	return "", nil
}

// Reviewed records what an executor, NAME or NAME:VARIANT, that reviewed the work of the run has printed, so that
// its cost counts in the budgets of the run and of the board.
func (l *Lead) Reviewed(ctx context.Context, executor string, stdout []byte) error {
	u := task.Use{AttemptID: l.Attempt.ID, ExecutionID: uuid.NewString()}
	u.Executor, _, _ = strings.Cut(executor, ":")
	used, err := l.run.engine.usageOf(ctx, l.board, u.AttemptID, u.Executor, transcript.UsageIn(stdout))
	if err != nil {
		return err
	}
	if u.Reported = used != nil; u.Reported {
		u.Usage = *used
	}
	return l.board.AddUse(ctx, u)
}

// waitTurn waits a moment for a slot.
func (l *Lead) waitTurn(ctx context.Context) error {
	return wait.Until(ctx, l.run.engine.o.Poll, l.run.engine.freed())
}
