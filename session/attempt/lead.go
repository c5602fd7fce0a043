package attempt

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"deepwork/catalog/task"
	"deepwork/session/attempt/transcript"
	"deepwork/session/board"
	"deepwork/session/store"
)

// A Leader leads the agents of a run through its workflow, each step with an agent of its own. It returns
// when the workflow is complete or cannot go on, or when ctx ends: then it ends the agents first. If
// an earlier leader was interrupted, it goes on where that one was.
type Leader func(ctx context.Context, l *Lead) board.RunEnd

// A Lead is what a Leader has to do with: a run, and the board through which it starts agents. Its methods
// may be called concurrently.
type Lead struct {
	Attempt *task.Attempt // with its workspace
	Run     board.Run
	Advice  string    // what the person said who resumed it
	Since   time.Time // when its execution was created: leaders that go on after a crash have the same

	execution *execution
	records   store.Board
}

// Save records the run.
func (l *Lead) Save(ctx context.Context) error {
	data, err := json.Marshal(l.Run)
	if err != nil {
		return err
	}
	return l.records.SetRun(ctx, l.Attempt.ID, data)
}

// Progress records where the workflow of the run is.
func (l *Lead) Progress(ctx context.Context, p task.WorkflowProgress) error {
	return l.records.SetWorkflow(ctx, l.Attempt.ID, p)
}

// Steps returns the executions of a step's agents, the newest first.
func (l *Lead) Steps(ctx context.Context, sessionID, stepID string) ([]task.Execution, error) {
	return l.records.StepsOf(ctx, l.Attempt.ID, sessionID, stepID)
}

// Continues reports whether an executor can go on with a conversation while others use the folder.
func (l *Lead) Continues(ctx context.Context, executor string, variant *string) bool {
	agent, err := l.execution.engine.choose(ctx, executor, variant)
	return err == nil && agent.Names
}

// Note writes a line to the output of the run.
func (l *Lead) Note(format string, args ...any) { l.execution.note(fmt.Sprintf(format, args...)) }

// Warn logs what hinders the run.
func (l *Lead) Warn(what string, err error) {
	if l.execution != nil { // else it is a test
		l.execution.engine.Log.Warn(what, "run", l.Attempt.ID, "error", err)
	}
}

// OverBudget returns why the run is to pause, or "".
func (l *Lead) OverBudget(ctx context.Context) (string, error) {
	if l.Run.MaxCostUSD == nil && l.Run.MaxUnknown == nil {
		return "", nil
	}
	sum, err := l.records.Spent(ctx, l.Attempt.TaskID, l.Attempt.ID)
	if err != nil {
		return "", err
	}
	switch {
	case l.Run.MaxCostUSD != nil && sum.MicroUSD >= board.MicroUSD(*l.Run.MaxCostUSD):
		return fmt.Sprintf("Its agents have cost %s USD, and its budget is %s USD.", board.Decimal(board.USD(sum.MicroUSD)), board.Decimal(*l.Run.MaxCostUSD)), nil
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
	used, err := l.execution.engine.usageOf(ctx, l.records, u.AttemptID, u.Executor, transcript.UsageIn(stdout))
	if err != nil {
		return err
	}
	u.Reported = used != nil
	if u.Reported {
		u.Usage = *used
	}
	return l.records.AddUse(ctx, u)
}
