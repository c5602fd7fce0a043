package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"deepwork/catalog/task"
	"deepwork/session/store"

	"github.com/google/uuid"
)

const (
	executionRows = `SELECT prompt, final_message, error, ` + fromExecutions
	// briefRows has only the beginnings of long texts.
	briefRows = `SELECT substr(prompt, 1, 500) AS prompt, substr(final_message, 1, 500) AS final_message, ` +
		`substr(error, 1, 500) AS error, ` + fromExecutions

	fromExecutions = `id, attempt_id, log_id, session_id, coalesce(workflow_session_id, '') AS ` +
		`workflow_session_id, coalesce(step_id, '') AS step_id,
		conversation, limited_until, over_limit, follow_up, executor, variant, contained, state, ` +
		`coalesce(owner, '') AS owner, ` +
		`stop_asked, exit_code, created_at, started_at, ended_at,
		machine_id, machine_name, root, step_id IS NULL AND ` + isLeader + ` AS lead FROM executions `

	// isLeader is the condition that an execution of an attempt is its leader's.
	isLeader = `EXISTS (SELECT 1 FROM attempts led WHERE led.id = attempt_id AND led.run IS NOT NULL)`
)

func (t Tx) execution(id string) *task.Execution {
	t.mustSee("execution", id)
	return mustFirstRow[task.Execution](t, "execution", id, executionRows+`WHERE id = ?`, id)
}

// latest returns the newest execution of an attempt.
func (t Tx) latest(attemptID string) *task.Execution {
	t.mustSee("attempt", attemptID)
	return mustFirstRow[task.Execution](t, "attempt", attemptID,
		executionRows+`WHERE attempt_id = ? AND step_id IS NULL ORDER BY seq DESC LIMIT 1`, attemptID)
}

// addExecution adds a waiting execution; its attempt then waits, too.
func (t Tx) addExecution(e task.Execution) (id string) {
	if e.ID == "" {
		e.ID = uuid.NewString()
	}
	t.Exec(`INSERT INTO executions (id, attempt_id, log_id, session_id, follow_up, prompt, executor, variant, `+
		`state, created_at)
		SELECT ?, id, id, ?, ?, ?, executor, ?, ?, ? FROM attempts WHERE id = ?`,
		e.ID, e.SessionID, e.FollowUp, e.Prompt, e.Variant, task.Waiting,
		t.later("executions", "attempt_id", e.AttemptID), e.AttemptID)
	t.setAttempt(e.AttemptID, task.Waiting, nil)
	t.reopen(e.AttemptID)
	return e.ID
}

// resetLanded forgets what became of an attempt, except conflicts, which stay until they are resolved.
const resetLanded = `landed = CASE WHEN landed = 'conflicts' THEN landed ELSE '' END, `

// reopen forgets what became of an attempt, and how its last leader ended: it is being worked on again.
func (t Tx) reopen(id string) {
	var run *string
	t.First(`SELECT run FROM attempts WHERE id = ?`, []any{id}, &run)
	if run != nil {
		kept := map[string]json.RawMessage{}
		t.Fail(json.Unmarshal([]byte(*run), &kept))
		delete(kept, "end")
		text, err := json.Marshal(kept)
		t.Fail(err)
		run = new(string(text))
	}
	t.Exec(`UPDATE attempts SET `+resetLanded+`run = ? WHERE id = ?`, run, id)
}

func (t Tx) setAttempt(id string, s task.AttemptState, why *string) {
	t.changed(store.AttemptChanged, id)
	t.Exec(`UPDATE attempts SET state = ?, error = ?, updated_at = ? WHERE id = ?`, s, why, t.Now, id)
	if s.Ended() {
		t.wakeSchedule(id)
	}
}

func (b board) Execution(ctx context.Context, id string) (*task.Execution, error) {
	return read(ctx, b, "reading an execution", func(t Tx) *task.Execution { return t.execution(id) })
}

func (b board) LatestExecution(ctx context.Context, attemptID string) (*task.Execution, error) {
	return read(ctx, b, "reading an execution", func(t Tx) *task.Execution { return t.latest(attemptID) })
}

func (b board) Executions(ctx context.Context, attemptID string) ([]task.Execution, error) {
	return read(ctx, b, "listing executions", func(t Tx) []task.Execution {
		t.mustSee("attempt", attemptID)
		return List[task.Execution](t, executionRows+`WHERE attempt_id = ? AND step_id IS NULL ORDER BY seq DESC`,
			attemptID)
	})
}

func (b board) OpenExecutions(ctx context.Context) ([]task.Execution, error) {
	return read(ctx, b, "listing open executions", func(t Tx) []task.Execution {
		return List[task.Execution](t,
			executionRows+`WHERE state IN ('starting', 'running') AND step_id IS NULL ORDER BY seq`)
	})
}

// openExecutions returns a query that counts agents with a slot, given a condition for their attempts, as a.
func openExecutions(of string) string {
	return `SELECT count(*) FROM executions x JOIN attempts a ON a.id = x.attempt_id WHERE x.state IN ('starting', ` +
		`'running') AND (x.step_id IS NOT NULL OR a.run IS NULL)` + of
}

// claimable returns the id of the oldest waiting execution that may be claimed, or "" if none waits, there is
// no slot, or a limit is reached. A nil claim allows all.
func (t Tx) claimable(max int, c *task.Claim, l task.Limits) (id string) {
	may, args := "", []any(nil)
	if t.full(max, c) {
		may = ` AND ` + isLeader
	}
	if c != nil && c.Run != "" {
		may += ` AND (e.attempt_id = ? OR NOT ` + isLeader + `)`
		args = append(args, c.Run)
	}
	if c != nil && c.Place != (task.Place{}) {
		args = append(args, c.Place.MachineID, c.Place.Root)
		// An attempt without a place has no workspace; one with a workspace but no place was made by a store
		// of one machine.
		executors, repos := list(c.Executors, &args), list(c.Repos, &args)
		may += ` AND EXISTS (SELECT 1 FROM attempts a WHERE a.id = e.attempt_id AND (a.machine_id = ? AND a.root = ?
			OR a.machine_id = '' AND a.workspace = '' AND a.executor IN ` + executors + `
			AND NOT EXISTS (SELECT 1 FROM attempt_repos r WHERE r.attempt_id = a.id AND r.repo_id NOT IN ` +
			repos + `)))`
	}
	t.First(`SELECT id FROM executions e WHERE state = 'waiting' AND step_id IS NULL`+may+` ORDER BY seq LIMIT 1`,
		args, &id)
	if id == "" || !t.belowLimits(l) {
		return ""
	}
	return id
}

// full reports whether all slots are in use: of the whole board or, with a claim, of its place.
func (t Tx) full(max int, c *task.Claim) bool {
	of, args := "", []any(nil)
	if c != nil && c.Place != (task.Place{}) {
		of, args = ` AND a.machine_id = ?1 AND a.root = ?2`, []any{c.Place.MachineID, c.Place.Root}
	}
	return t.count(openExecutions(of), args...) >= max
}

// list returns the parameters of an IN for some texts, and appends them to args. No column is empty.
func list(texts []string, args *[]any) string {
	for _, text := range texts {
		*args = append(*args, text)
	}
	*args = append(*args, "")
	return `(` + strings.Repeat(`?, `, len(texts)) + `?)`
}

func (b board) ClaimNext(
	ctx context.Context, owner string, max int, c *task.Claim, l task.Limits,
) (*task.Execution, error) {
	const doing = "claiming an execution"
	if owner == "" {
		return nil, wrap(doing, fmt.Errorf("%w: the owner is empty", task.ErrInvalid))
	}

	// Servers ask often. Most find nothing, and need no lock for that.
	id, err := read(ctx, b, doing, func(t Tx) string { return t.claimable(max, c, l) })
	if err != nil || id == "" {
		return nil, err
	}
	return write(ctx, b, doing, func(t Tx) *task.Execution {
		id := t.claimable(max, c, l)
		if id == "" {
			return nil
		}
		t.Exec(`UPDATE executions SET state = ?, owner = ? WHERE id = ?`, task.Starting, owner, id)
		if c != nil && c.Place != (task.Place{}) {
			at := []any{c.Place.MachineID, c.Place.MachineName, c.Place.Root, id}
			t.Exec(`UPDATE executions SET machine_id = ?, machine_name = ?, root = ? WHERE id = ?`, at...)
			t.Exec(`UPDATE attempts SET machine_id = ?, machine_name = ?, root = ?
				WHERE id = (SELECT attempt_id FROM executions WHERE id = ?)`, at...)
		}

		e := t.execution(id)
		t.setAttempt(e.AttemptID, task.Starting, nil)
		return e
	})
}

func (b board) Release(ctx context.Context, executionID, owner string, begun bool) (bool, error) {
	return write(ctx, b, "releasing an execution", func(t Tx) bool {
		e := t.execution(executionID)
		if e.State != task.Starting || e.Owner != owner {
			return false
		}

		if e.StopAsked != nil {
			t.stopIdle(e)
			return true
		}

		t.Exec(`UPDATE executions SET state = 'waiting', owner = NULL WHERE id = ?`, e.ID)
		t.setAttempt(e.AttemptID, task.Waiting, nil)
		if e.MachineID != "" && !begun {
			t.unplace(e.AttemptID)
		}
		return true
	})
}

func (b board) Stop(ctx context.Context, executionID string) (task.AttemptState, error) {
	return write(ctx, b, "stopping an execution", func(t Tx) task.AttemptState {
		e := t.execution(executionID)
		switch {
		case e.State == task.Waiting:
			t.stopIdle(e)
		case !e.State.Ended() && e.StopAsked == nil:
			t.changed(store.AttemptChanged, e.AttemptID)
			t.Exec(`UPDATE executions SET stop_asked = ? WHERE id = ?`, t.Now, e.ID)
		}
		return e.State
	})
}

// stopIdle ends an execution whose process was never started as stopped, and drops the queue of its session.
func (t Tx) stopIdle(e *task.Execution) {
	t.Exec(`UPDATE executions SET state = 'stopped', ended_at = max(?, created_at) WHERE id = ?`, t.Now, e.ID)
	t.setAttempt(e.AttemptID, task.Stopped, nil)
	if e.SessionID != nil {
		t.setQueued(t.session(*e.SessionID), nil)
	}
}

func (b board) Adopt(ctx context.Context, executionID, from, to string) (bool, error) {
	const doing = "adopting an execution"
	if to == "" {
		return false, wrap(doing, fmt.Errorf("%w: the owner is empty", task.ErrInvalid))
	}

	n, err := statement(ctx, b.Store, doing, Writing,
		`UPDATE executions SET owner = ? WHERE id = ? AND owner = ? AND state IN ('starting', 'running')`, to,
		executionID, from)
	return n > 0, err
}

func (b board) StartExecution(
	ctx context.Context, executionID, executor, contained string, since time.Time,
) (*task.Session, error) {
	return write(ctx, b, "starting an execution", func(t Tx) (s *task.Session) {
		e := t.execution(executionID)
		switch {
		case e.State.Ended():
			t.Fail(fmt.Errorf("execution %q is %s: %w", executionID, e.State, task.ErrEnded))
		case e.State == task.Waiting:
			t.Fail(fmt.Errorf("%w: execution %q is not claimed", task.ErrInvalid, executionID))
		}

		var conversation *string // none for a step
		if e.StepID == "" {
			s = t.sessionOf(e, executor)
			conversation = &s.ID
			t.setAttempt(e.AttemptID, task.Running, nil)
		}

		t.changed(store.AttemptChanged, e.AttemptID)
		t.Exec(`UPDATE executions SET state = ?, session_id = ?, contained = ?, started_at = coalesce(started_at, ?) `+
			`WHERE id = ?`, task.Running, conversation, contained, t.clampTime(e.CreatedAt, since), executionID)
		return s
	})
}

// clampTime returns a time in the form of the board, zero meaning now. Whatever the clock did, it is never
// before the time that it follows, nor in the future.
func (t Tx) clampTime(after, at time.Time) string {
	text := t.Now
	if !at.IsZero() {
		text = min(task.FormatTime(at), text)
	}
	return max(text, task.FormatTime(after))
}

func (b board) EndExecution(
	ctx context.Context, executionID string, e task.Ending,
) (next *task.Execution, ended bool, err error) {
	const doing = "ending an execution"
	if !e.State.Ended() {
		return nil, false, wrap(doing, fmt.Errorf("%w: state %q is not an end", task.ErrInvalid, e.State))
	}

	if e.Task != "" {
		if err := e.Task.Check(); err != nil {
			return nil, false, wrap(doing, err)
		}
	}

	next, err = write(ctx, b, doing, func(t Tx) *task.Execution {
		x := t.execution(executionID)
		if ended = !x.State.Ended(); !ended {
			return nil
		}
		after, at := x.CreatedAt, time.Time{}
		if x.StartedAt != nil {
			after = *x.StartedAt
		}
		if e.EndedAt != nil {
			at = *e.EndedAt
		}
		since := t.clampTime(after, at)
		t.Exec(`UPDATE executions SET state = ?, conversation = coalesce(?, conversation), limited_until = ?, `+
			`over_limit = ?, exit_code = ?, final_message = ?, error = ?, ended_at = ? WHERE id = ?`,
			e.State, e.Conversation, optional(e.LimitedUntil), e.OverLimit, e.ExitCode, e.FinalMessage, e.Error,
			since, executionID)
		if x.Lead {
			t.endSteps(x.AttemptID)
		} else if x.StartedAt != nil {
			t.addUse(x.AttemptID, executionID, x.Executor, e.Usage, since)
		}
		if x.StepID != "" {
			t.changed(store.AttemptChanged, x.AttemptID)
			return nil
		}
		t.setAttempt(x.AttemptID, e.State, e.Error)
		if e.Resolved {
			t.Exec(`UPDATE attempts SET landed = '' WHERE id = ?`, x.AttemptID)
		}
		of := t.taskOf(x.AttemptID)
		status := e.Task
		stays := `status <> 'inprogress'`
		if status == task.InReview &&
			t.has(`FROM tasks JOIN attempts ON task_id = tasks.id WHERE attempts.id = ? AND workflow_name IS NOT `+
				`NULL AND coalesce(workflow_status, '') <> 'completed'`, x.AttemptID) {
			status = "" // until it is; see moveAttempt
		}

		next := t.nextOf(x, e.State)
		if next != nil {
			status, stays = task.InProgress, `status IN ('done', 'cancelled', 'inprogress')`
		}
		if status != "" {
			t.changed(store.TaskChanged, of)
			t.Exec(`UPDATE tasks SET status = ?, updated_at = ? WHERE id = ? AND NOT (`+stays+`)`, status, t.Now, of)
		}

		return next
	})
	return next, ended && err == nil, err
}

// taskOf returns the id of an attempt's task.
func (t Tx) taskOf(attemptID string) (id string) {
	t.First(`SELECT task_id FROM attempts WHERE id = ?`, []any{attemptID}, &id)
	return id
}

// nextOf takes the queue of an ended execution's session, and makes an execution of it if it should run.
func (t Tx) nextOf(x *task.Execution, how task.AttemptState) *task.Execution {
	if x.SessionID == nil {
		return nil
	}
	s := t.session(*x.SessionID)

	if s.Queued == nil {
		return nil
	}

	runs := (how == task.Completed && !x.Lead || how == task.Failed) && x.StopAsked == nil
	if runs {
		t.Exec(`DELETE FROM attempt_comments WHERE attempt_id = ? AND queued`, s.AttemptID)
	}

	t.setQueued(s, nil)
	if !runs {
		return nil
	}

	return t.execution(t.addExecution(task.Execution{AttemptID: x.AttemptID, SessionID: x.SessionID, FollowUp: true,
		Prompt: s.Queued.Prompt, Variant: s.Queued.Variant}))
}

func (b board) Steps(ctx context.Context, attemptID string) ([]task.Execution, error) {
	return read(ctx, b, "listing the agents of a run", func(t Tx) []task.Execution {
		t.mustSee("attempt", attemptID)
		return List[task.Execution](t, executionRows+`WHERE attempt_id = ? AND step_id IS NOT NULL ORDER BY seq DESC`,
			attemptID)
	})
}

func (b board) StepsOf(ctx context.Context, attemptID, sessionID, stepID string) ([]task.Execution, error) {
	return read(ctx, b, "listing the agents of a step", func(t Tx) []task.Execution {
		return List[task.Execution](t,
			executionRows+`WHERE attempt_id = ? AND workflow_session_id = ? AND step_id = ? ORDER BY seq DESC`,
			attemptID, sessionID, stepID)
	})
}

func (b board) AddStep(
	ctx context.Context, x task.Execution, max int, c *task.Claim, l task.Limits,
) (claimed bool, err error) {
	return write(ctx, b, "adding an agent of a step", func(t Tx) bool {
		free := t.free(max, c, l)
		x.State = task.Waiting
		if free {
			x.State = task.Starting
		}
		t.changeStep(x.AttemptID,
			`INSERT INTO executions (id, attempt_id, log_id, workflow_session_id, step_id, follow_up, prompt, `+
				`executor, variant, state, conversation, created_at)
			SELECT ?, id, ?, ?, ?, ?, '', ?, ?, ?, ?, ? FROM attempts WHERE id = ? AND run IS NOT NULL AND state `+
				`IN ('starting', 'running')`,
			x.ID, x.LogID, x.WorkflowSessionID, x.StepID, false, x.Executor, x.Variant, x.State, x.Conversation,
			t.clampTime(x.CreatedAt, time.Time{}), x.AttemptID)

		return free
	})
}

func (b board) ClaimStep(
	ctx context.Context, attemptID, id string, max int, c *task.Claim, l task.Limits,
) (claimed bool, err error) {
	const doing = "starting an agent of a step"
	// Leaders ask often. Most find no slot, and need no lock for that.
	if free, err := read(ctx, b, doing, func(t Tx) bool { return t.free(max, c, l) }); err != nil || !free {
		return false, err
	}
	return write(ctx, b, doing, func(t Tx) bool {
		free := t.free(max, c, l)
		if free {
			t.changeStep(attemptID,
				`UPDATE executions SET state = ? WHERE id = ? AND attempt_id = ? AND step_id IS NOT NULL AND state = ?`,
				task.Starting, id, attemptID, task.Waiting)
		}
		return free
	})
}

// free reports whether a slot is free and no limit is reached.
func (t Tx) free(max int, c *task.Claim, l task.Limits) bool {
	return !t.full(max, c) && t.belowLimits(l)
}

// changeStep changes one row, or fails with ErrEnded if the run or the execution has ended.
func (t Tx) changeStep(attemptID, query string, args ...any) {
	t.changed(store.AttemptChanged, attemptID)
	t.mustChange(fmt.Errorf("an agent of the run %q: %w", attemptID, task.ErrEnded), query, args...)
}

// endSteps ends the remaining agents of a run whose leader ends.
func (t Tx) endSteps(attemptID string) {
	t.Exec(`INSERT INTO usages (execution_id, attempt_id, executor, ended_at)
		SELECT id, attempt_id, executor, max(?, started_at) FROM executions WHERE attempt_id = ? AND step_id IS `+
		`NOT NULL AND ended_at IS NULL AND started_at IS NOT NULL`, t.Now, attemptID)
	t.Exec(`UPDATE executions SET state = 'interrupted', ended_at = max(?, created_at) WHERE attempt_id = ? AND `+
		`step_id IS NOT NULL AND ended_at IS NULL`, t.Now, attemptID)
}
