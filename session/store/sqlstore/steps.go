package sqlstore

import (
	"context"
	"fmt"

	"deepwork/catalog/task"
	"deepwork/session/store"
)

func (b board) Steps(ctx context.Context, attemptID string) ([]task.Execution, error) {
	return read(ctx, b, "listing the agents of a run", func(t Tx) []task.Execution {
		t.own("attempt", attemptID)
		return List[task.Execution](t, executionRows+`WHERE attempt_id = ? AND step_id IS NOT NULL ORDER BY seq DESC`, attemptID)
	})
}

func (b board) StepsOf(ctx context.Context, attemptID, sessionID, stepID string) ([]task.Execution, error) {
	return read(ctx, b, "listing the agents of a step", func(t Tx) []task.Execution {
		return List[task.Execution](t, executionRows+`WHERE attempt_id = ? AND workflow_session_id = ? AND step_id = ? ORDER BY seq DESC`, attemptID, sessionID, stepID)
	})
}

func (b board) AddStep(ctx context.Context, x task.Execution, max int, c *task.Claim, l task.Limits) (claimed bool, err error) {
	return write(ctx, b, "adding an agent of a step", func(t Tx) bool {
		free := t.free(max, c, l)
		x.State = task.Waiting
		if free {
			x.State = task.Starting
		}
		t.changeStep(x.AttemptID, `INSERT INTO executions (id, attempt_id, log_id, workflow_session_id, step_id, follow_up, prompt, executor, variant, state, conversation, created_at)
			SELECT ?, id, ?, ?, ?, ?, '', ?, ?, ?, ?, ? FROM attempts WHERE id = ? AND run IS NOT NULL AND state IN ('starting', 'running')`,
			x.ID, x.LogID, x.WorkflowSessionID, x.StepID, false, x.Executor, x.Variant, x.State, x.Conversation, t.Now, x.AttemptID)
		return free
	})
}

func (b board) ClaimStep(ctx context.Context, attemptID, id string, max int, c *task.Claim, l task.Limits) (claimed bool, err error) {
	const doing = "starting an agent of a step"
	// Leaders ask often: most find no slot, and need no lock for it.
	if free, err := read(ctx, b, doing, func(t Tx) bool { return t.free(max, c, l) }); err != nil || !free {
		return false, err
	}
	return write(ctx, b, doing, func(t Tx) bool {
		free := t.free(max, c, l)
		if free {
			t.changeStep(attemptID, `UPDATE executions SET state = ? WHERE id = ? AND attempt_id = ? AND step_id IS NOT NULL AND state = ?`, task.Starting, id, attemptID, task.Waiting)
		}
		return free
	})
}

// free reports whether a slot is free and no limit reached.
func (t Tx) free(max int, c *task.Claim, l task.Limits) bool { return !t.full(max, c) && t.within(l) }

// changeStep changes one row, or fails with ErrEnded: the run or the execution has ended.
func (t Tx) changeStep(attemptID, query string, args ...any) {
	t.changed(store.AttemptChanged, attemptID)
	t.must(fmt.Errorf("an agent of the run %q: %w", attemptID, task.ErrEnded), query, args...)
}

// endSteps ends what is left of the agents of a run whose leader ends.
func (t Tx) endSteps(attemptID string) {
	t.Exec(`INSERT INTO usages (execution_id, attempt_id, executor, ended_at)
		SELECT id, attempt_id, executor, max(?, started_at) FROM executions WHERE attempt_id = ? AND step_id IS NOT NULL AND ended_at IS NULL AND started_at IS NOT NULL`, t.Now, attemptID)
	t.Exec(`UPDATE executions SET state = 'interrupted', ended_at = max(?, created_at) WHERE attempt_id = ? AND step_id IS NOT NULL AND ended_at IS NULL`, t.Now, attemptID)
}
