package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"deepwork/catalog/task"
	"deepwork/session/store"
)

const stepRows = `SELECT id, attempt_id, agent_id, session_id, step_id, executor, variant, state, conversation, limited_until,
	exit_code, final_message, error, created_at, started_at, ended_at FROM step_executions `

func (b board) SetRun(ctx context.Context, attemptID string, run json.RawMessage) error {
	return change(ctx, b, "recording a run", func(t Tx) error {
		if err := t.touch(attemptID); err != nil {
			return err
		}
		_, err := t.Exec(`UPDATE attempts SET run = ? WHERE id = ? AND run IS NOT NULL`, string(run), attemptID)
		return err
	})
}

func (b board) Steps(ctx context.Context, attemptID string) ([]task.StepExecution, error) {
	return read(ctx, b, "listing the agents of a run", func(t Tx) ([]task.StepExecution, error) {
		if err := t.own("attempt", attemptID); err != nil {
			return nil, err
		}
		return List[task.StepExecution](t, stepRows+`WHERE attempt_id = ? ORDER BY seq DESC`, attemptID)
	})
}

func (b board) StepsOf(ctx context.Context, attemptID, sessionID, stepID string) ([]task.StepExecution, error) {
	return read(ctx, b, "listing the agents of a step", func(t Tx) ([]task.StepExecution, error) {
		return List[task.StepExecution](t, stepRows+`WHERE attempt_id = ? AND session_id = ? AND step_id = ? ORDER BY seq DESC`, attemptID, sessionID, stepID)
	})
}

func (b board) AddStep(ctx context.Context, x task.StepExecution, max int, c *task.Claim, l task.Limits) (claimed bool, err error) {
	return write(ctx, b, "adding an agent of a step", func(t Tx) (bool, error) {
		free, err := t.free(max, c, l)
		if err != nil {
			return false, err
		}
		x.State = task.Waiting
		if free {
			x.State = task.Starting
		}
		return free, t.changeStep(x.AttemptID, `INSERT INTO step_executions (id, attempt_id, agent_id, session_id, step_id, executor, variant, state, conversation, created_at)
			SELECT ?, id, ?, ?, ?, ?, ?, ?, ?, ? FROM attempts WHERE id = ? AND run IS NOT NULL AND state IN ('starting', 'running')`,
			x.ID, x.AgentID, x.SessionID, x.StepID, x.Executor, x.Variant, x.State, x.Conversation, t.Now, x.AttemptID)
	})
}

func (b board) ClaimStep(ctx context.Context, attemptID, id string, max int, c *task.Claim, l task.Limits) (claimed bool, err error) {
	const doing = "starting an agent of a step"
	// Leaders ask often: most find no slot, and need no lock for it.
	if free, err := read(ctx, b, doing, func(t Tx) (bool, error) { return t.free(max, c, l) }); err != nil || !free {
		return false, err
	}
	return write(ctx, b, doing, func(t Tx) (bool, error) {
		if free, err := t.free(max, c, l); err != nil || !free {
			return false, err
		}
		return true, t.changeStep(attemptID, `UPDATE step_executions SET state = ? WHERE id = ? AND attempt_id = ? AND state = ?`, task.Starting, id, attemptID, task.Waiting)
	})
}

// free reports whether a slot is free and no limit reached.
func (t Tx) free(max int, c *task.Claim, l task.Limits) (bool, error) {
	full, err := t.full(max, c)
	if err != nil || full {
		return false, err
	}
	return t.within(l)
}

func (b board) StartStep(ctx context.Context, attemptID, id string, at time.Time) error {
	return change(ctx, b, "recording an agent of a step", func(t Tx) error {
		return t.changeStep(attemptID, `UPDATE step_executions SET state = ?, started_at = max(created_at, ?) WHERE id = ? AND attempt_id = ? AND ended_at IS NULL`,
			task.Running, task.FormatTime(at), id, attemptID)
	})
}

func (b board) EndStep(ctx context.Context, attemptID, id string, e task.StepEnding) error {
	return change(ctx, b, "ending an agent of a step", func(t Tx) error {
		x, err := only[task.StepExecution](t, "agent of a step", id, stepRows+`WHERE id = ?`, id)
		if err != nil || x.EndedAt != nil {
			return err
		}
		t.changed(store.AttemptChanged, attemptID)
		after := x.CreatedAt
		if x.StartedAt != nil {
			after = *x.StartedAt
		}
		since := t.between(after, time.Time{})
		if _, err := t.Exec(`UPDATE step_executions SET state = ?, conversation = coalesce(?, conversation), limited_until = ?, exit_code = ?, final_message = ?, error = ?, ended_at = ?
			WHERE id = ?`, e.State, e.Conversation, optional(e.LimitedUntil), e.ExitCode, e.FinalMessage, e.Error, since, id); err != nil || x.StartedAt == nil {
			return err
		}
		return t.addUse(x.AttemptID, id, x.Executor, e.Usage, since)
	})
}

// changeStep changes one row; ErrEnded: the run or the execution has ended.
func (t Tx) changeStep(attemptID, query string, args ...any) error {
	t.changed(store.AttemptChanged, attemptID)
	n, err := t.Exec(query, args...)
	if err == nil && n == 0 {
		err = fmt.Errorf("an agent of the run %q: %w", attemptID, task.ErrEnded)
	}
	return err
}

// endSteps ends what is left of the agents of a run whose leader ends.
func (t Tx) endSteps(attemptID string) error {
	_, err := t.Exec(`INSERT INTO usages (execution_id, attempt_id, executor, ended_at)
		SELECT id, attempt_id, executor, max(?, started_at) FROM step_executions WHERE attempt_id = ? AND ended_at IS NULL AND started_at IS NOT NULL`, t.Now, attemptID)
	if err == nil {
		_, err = t.Exec(`UPDATE step_executions SET state = 'interrupted', ended_at = max(?, created_at) WHERE attempt_id = ? AND ended_at IS NULL`, t.Now, attemptID)
	}
	return err
}
