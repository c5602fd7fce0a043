package sqlstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"deepwork/catalog/task"
	"deepwork/session/store"

	"github.com/google/uuid"
)

const (
	executionRows = `SELECT prompt, final_message, error, ` + fromExecutions
	// briefRows have only the beginnings of long texts.
	briefRows = `SELECT substr(prompt, 1, 500) AS prompt, substr(final_message, 1, 500) AS final_message, substr(error, 1, 500) AS error, ` + fromExecutions

	fromExecutions = `id, attempt_id, log_id, session_id, coalesce(workflow_session_id, '') AS workflow_session_id, coalesce(step_id, '') AS step_id,
		conversation, limited_until, follow_up, executor, variant, state, coalesce(owner, '') AS owner, stop_asked, exit_code, created_at, started_at, ended_at,
		machine_id, machine_name, root, step_id IS NULL AND ` + leads + ` AS lead FROM executions `

	// leads is the condition for executions of leaders among those of attempts.
	leads = `EXISTS (SELECT 1 FROM attempts led WHERE led.id = attempt_id AND led.run IS NOT NULL)`
)

func (t Tx) execution(id string) (*task.Execution, error) {
	if err := t.own("execution", id); err != nil {
		return nil, err
	}
	return only[task.Execution](t, "execution", id, executionRows+`WHERE id = ?`, id)
}

// latest is the newest execution of an attempt.
func (t Tx) latest(attemptID string) (*task.Execution, error) {
	if err := t.own("attempt", attemptID); err != nil {
		return nil, err
	}
	return only[task.Execution](t, "attempt", attemptID, executionRows+`WHERE attempt_id = ? AND step_id IS NULL ORDER BY seq DESC LIMIT 1`, attemptID)
}

// addExecution adds a waiting execution; its attempt then waits too.
func (t Tx) addExecution(e task.Execution) (id string, err error) {
	if e.ID == "" {
		e.ID = uuid.NewString()
	}
	if _, err := t.Exec(`INSERT INTO executions (id, attempt_id, log_id, session_id, follow_up, prompt, executor, variant, state, created_at)
		SELECT ?, id, id, ?, ?, ?, executor, ?, ?, ? FROM attempts WHERE id = ?`,
		e.ID, e.SessionID, e.FollowUp, e.Prompt, e.Variant, task.Waiting, t.Now, e.AttemptID); err != nil {
		return "", err
	}
	return e.ID, t.setAttempt(e.AttemptID, task.Waiting, nil)
}

func (t Tx) setAttempt(id string, s task.AttemptState, why *string) error {
	t.changed(store.AttemptChanged, id)
	_, err := t.Exec(`UPDATE attempts SET state = ?, error = ?, updated_at = ? WHERE id = ?`, s, why, t.Now, id)
	return err
}

func (b board) Execution(ctx context.Context, id string) (*task.Execution, error) {
	return read(ctx, b, "reading an execution", func(t Tx) (*task.Execution, error) { return t.execution(id) })
}

func (b board) LatestExecution(ctx context.Context, attemptID string) (*task.Execution, error) {
	return read(ctx, b, "reading an execution", func(t Tx) (*task.Execution, error) { return t.latest(attemptID) })
}

func (b board) Executions(ctx context.Context, attemptID string) ([]task.Execution, error) {
	return read(ctx, b, "listing executions", func(t Tx) ([]task.Execution, error) {
		if err := t.own("attempt", attemptID); err != nil {
			return nil, err
		}
		return List[task.Execution](t, executionRows+`WHERE attempt_id = ? AND step_id IS NULL ORDER BY seq DESC`, attemptID)
	})
}

const (
	spentRows = `SELECT count(*) AS executions, count(*) - count(micro_usd) AS unknown, coalesce(CAST(sum(micro_usd) AS bigint), 0) AS micro_usd,
	coalesce(CAST(sum(input_tokens) AS bigint), 0) AS input_tokens, coalesce(CAST(sum(cached_tokens) AS bigint), 0) AS cached_tokens,
	coalesce(CAST(sum(output_tokens) AS bigint), 0) AS output_tokens, coalesce(CAST(sum(turns) AS bigint), 0) AS turns FROM usages `

	usageRows = `SELECT attempt_id, execution_id, executor, turns IS NOT NULL AS reported, micro_usd, coalesce(input_tokens, 0) AS input_tokens,
	coalesce(cached_tokens, 0) AS cached_tokens, coalesce(output_tokens, 0) AS output_tokens, coalesce(turns, 0) AS turns,
	coalesce(thread, '') AS thread, totals FROM usages `
)

func (b board) Spent(ctx context.Context, taskID, attemptID string) (task.Spent, error) {
	return read(ctx, b, "adding up what executions used", func(t Tx) (s task.Spent, err error) {
		where, args := "", []any(nil)
		switch {
		case attemptID != "":
			err = t.own("attempt", attemptID)
			where, args = `WHERE attempt_id = ?`, []any{attemptID}
		case taskID != "" || limited(t.who):
			err = t.own("task", taskID)
			where, args = `WHERE attempt_id IN (SELECT id FROM attempts WHERE task_id = ?)`, []any{taskID}
		}
		if err != nil {
			return s, err
		}
		all, err := List[task.Spent](t, spentRows+where, args...)
		if err == nil {
			s = all[0]
		}
		return s, err
	})
}

func (b board) Used(ctx context.Context, attemptID string) ([]task.Use, error) {
	return read(ctx, b, "reading what executions used", func(t Tx) ([]task.Use, error) {
		if err := t.own("attempt", attemptID); err != nil {
			return nil, err
		}
		return List[task.Use](t, usageRows+`WHERE attempt_id = ? ORDER BY seq`, attemptID)
	})
}

// within reports whether what has ended is below the limits, so that an execution may start.
func (t Tx) within(l task.Limits) (bool, error) {
	if l == (task.Limits{}) {
		return true, nil
	}
	var cost, unknown int64
	_, err := t.First(`SELECT coalesce(CAST(sum(micro_usd) AS bigint), 0), count(*) - count(micro_usd) FROM usages`, nil, &cost, &unknown) // of an index
	return err == nil && (l.MicroUSD == nil || cost < *l.MicroUSD) && (l.Unknown == nil || unknown < *l.Unknown), err
}

func (b board) ReachedAt(ctx context.Context, l task.Limits) (cost, unknown *time.Time, err error) {
	_, err = read(ctx, b, "looking since when a budget is reached", func(t Tx) (none struct{}, err error) {
		since := func(each string, limit *int64) (*time.Time, error) {
			if limit == nil {
				return nil, nil
			}
			var at *time.Time
			_, err := t.First(`SELECT ended_at FROM (SELECT seq, ended_at, CAST(sum(`+each+`) OVER (ORDER BY seq) AS bigint) AS total FROM usages) AS running
				WHERE total >= ? ORDER BY seq LIMIT 1`, []any{*limit}, scanTime(func(ended *time.Time) { at = ended }))
			return at, err
		}
		if cost, err = since(`coalesce(micro_usd, 0)`, l.MicroUSD); err == nil {
			unknown, err = since(`CASE WHEN micro_usd IS NULL THEN 1 ELSE 0 END`, l.Unknown)
		}
		return none, err
	})
	return cost, unknown, err
}

func (b board) AddUse(ctx context.Context, u task.Use) error {
	return change(ctx, b, "recording what a reviewer used", func(t Tx) error {
		t.changed(store.AttemptChanged, u.AttemptID)
		var usage *task.Usage
		if u.Reported {
			usage = &u.Usage
		}
		return t.addUse(u.AttemptID, u.ExecutionID, u.Executor, usage, t.Now)
	})
}

// addUse records what an execution used. Those that ended before they reported the totals of its thread
// have used nothing that these do not contain.
func (t Tx) addUse(attemptID, executionID, executor string, u *task.Usage, at string) error {
	if u == nil {
		_, err := t.Exec(`INSERT INTO usages (execution_id, attempt_id, executor, ended_at) VALUES (?, ?, ?, ?)`, executionID, attemptID, executor, at)
		return err
	}
	if u.Thread != "" && u.Totals != nil {
		if _, err := t.Exec(`UPDATE usages SET micro_usd = 0, input_tokens = 0, cached_tokens = 0, output_tokens = 0
			WHERE attempt_id = ? AND thread = ? AND totals IS NULL`, attemptID, u.Thread); err != nil {
			return err
		}
	}
	_, err := t.Exec(`INSERT INTO usages (execution_id, attempt_id, executor, micro_usd, input_tokens, cached_tokens, output_tokens, turns, thread, totals, ended_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, executionID, attemptID, executor, u.MicroUSD, u.InputTokens, u.CachedTokens, u.OutputTokens, u.Turns,
		task.NonEmpty(&u.Thread), textOf(u.Totals), at)
	return err
}

func (b board) OpenExecutions(ctx context.Context) ([]task.Execution, error) {
	return read(ctx, b, "listing open executions", func(t Tx) ([]task.Execution, error) {
		return List[task.Execution](t, executionRows+`WHERE state IN ('starting', 'running') AND step_id IS NULL ORDER BY seq`)
	})
}

// openExecutions counts agents with a slot, given a condition for their attempts, as a.
func openExecutions(of string) string {
	return `SELECT count(*) FROM executions x JOIN attempts a ON a.id = x.attempt_id WHERE x.state IN ('starting', 'running') AND (x.step_id IS NOT NULL OR a.run IS NULL)` + of
}

// claimable returns the id of the oldest waiting execution that may be claimed, or "" if there is
// none, no slot, or a limit is reached. A nil claim may have any.
func (t Tx) claimable(max int, c *task.Claim, l task.Limits) (id string, err error) {
	may, args := "", []any(nil)
	full, err := t.full(max, c)
	if err != nil {
		return "", err
	}
	if full {
		may = ` AND ` + leads
	}
	if c != nil && c.Run != "" {
		may += ` AND (e.attempt_id = ? OR NOT ` + leads + `)`
		args = append(args, c.Run)
	}
	if c != nil && c.Place != (task.Place{}) {
		args = append(args, c.Place.MachineID, c.Place.Root)
		// An attempt without a place has no workspace: one with both was made by a store of one machine.
		executors, repos := list(c.Executors, &args), list(c.Repos, &args)
		may += ` AND EXISTS (SELECT 1 FROM attempts a WHERE a.id = e.attempt_id AND (a.machine_id = ? AND a.root = ?
			OR a.machine_id = '' AND a.workspace = '' AND a.executor IN ` + executors + `
			AND NOT EXISTS (SELECT 1 FROM attempt_repos r WHERE r.attempt_id = a.id AND r.repo_id NOT IN ` + repos + `)))`
	}
	_, err = t.First(`SELECT id FROM executions e WHERE state = 'waiting' AND step_id IS NULL`+may+` ORDER BY seq LIMIT 1`+t.claim, args, &id)
	if err != nil || id == "" {
		return "", err
	}
	if within, err := t.within(l); err != nil || !within {
		return "", err
	}
	return id, nil
}

// full reports whether all slots are in use: of the whole board, or, with a claim, those at its place.
func (t Tx) full(max int, c *task.Claim) (bool, error) {
	of, args := "", []any(nil)
	if c != nil && c.Place != (task.Place{}) {
		of, args = ` AND a.machine_id = ?1 AND a.root = ?2`, []any{c.Place.MachineID, c.Place.Root}
	}
	busy, err := t.Count(openExecutions(of), args...)
	return busy >= max, err
}

// list returns the parameters of an IN for some texts, and appends them to args. No column is ”.
func list(texts []string, args *[]any) string {
	for _, text := range texts {
		*args = append(*args, text)
	}
	*args = append(*args, "")
	return `(` + strings.Repeat(`?, `, len(texts)) + `?)`
}

func (b board) ClaimNext(ctx context.Context, owner string, max int, c *task.Claim, l task.Limits) (*task.Execution, error) {
	const doing = "claiming an execution"
	if owner == "" {
		return nil, wrap(doing, fmt.Errorf("%w: the owner is empty", task.ErrInvalid))
	}
	// Servers ask often: most find nothing, and need no lock for it.
	id, err := read(ctx, b, doing, func(t Tx) (string, error) { return t.claimable(max, c, l) })
	if err != nil || id == "" {
		return nil, err
	}
	return write(ctx, b, doing, func(t Tx) (*task.Execution, error) {
		id, err := t.claimable(max, c, l)
		if err != nil || id == "" {
			return nil, err
		}
		if _, err := t.Exec(`UPDATE executions SET state = ?, owner = ? WHERE id = ?`, task.Starting, owner, id); err != nil {
			return nil, err
		}
		if c != nil && c.Place != (task.Place{}) {
			at := []any{c.Place.MachineID, c.Place.MachineName, c.Place.Root, id}
			if _, err := t.Exec(`UPDATE executions SET machine_id = ?, machine_name = ?, root = ? WHERE id = ?`, at...); err != nil {
				return nil, err
			}
			if _, err := t.Exec(`UPDATE attempts SET machine_id = ?, machine_name = ?, root = ?
				WHERE id = (SELECT attempt_id FROM executions WHERE id = ?)`, at...); err != nil {
				return nil, err
			}
		}
		e, err := t.execution(id)
		if err != nil {
			return nil, err
		}
		return e, t.setAttempt(e.AttemptID, task.Starting, nil)
	})
}

func (b board) Release(ctx context.Context, executionID, owner string) (bool, error) {
	return write(ctx, b, "releasing an execution", func(t Tx) (bool, error) {
		e, err := t.execution(executionID)
		if err != nil || e.State != task.Starting || e.Owner != owner {
			return false, err
		}
		if e.StopAsked != nil {
			return true, t.stopIdle(e)
		}
		if _, err := t.Exec(`UPDATE executions SET state = 'waiting', owner = NULL WHERE id = ?`, e.ID); err != nil {
			return false, err
		}
		if err := t.setAttempt(e.AttemptID, task.Waiting, nil); err != nil || e.MachineID == "" {
			return true, err
		}
		return true, t.unplace(e.AttemptID)
	})
}

func (b board) Stop(ctx context.Context, executionID string) (task.AttemptState, error) {
	return write(ctx, b, "stopping an execution", func(t Tx) (task.AttemptState, error) {
		e, err := t.execution(executionID)
		switch {
		case err != nil:
			return "", err
		case e.State == task.Waiting:
			return e.State, t.stopIdle(e)
		case e.State.Ended() || e.StopAsked != nil:
			return e.State, nil
		}
		t.changed(store.AttemptChanged, e.AttemptID)
		_, err = t.Exec(`UPDATE executions SET stop_asked = ? WHERE id = ?`, t.Now, e.ID)
		return e.State, err
	})
}

// stopIdle ends an execution whose process was never started as stopped, and drops the queue of its session.
func (t Tx) stopIdle(e *task.Execution) error {
	if _, err := t.Exec(`UPDATE executions SET state = 'stopped', ended_at = max(?, created_at) WHERE id = ?`, t.Now, e.ID); err != nil {
		return err
	}
	if err := t.setAttempt(e.AttemptID, task.Stopped, nil); err != nil || e.SessionID == nil {
		return err
	}
	s, err := t.session(*e.SessionID)
	if err != nil {
		return err
	}
	return t.setQueued(s, nil)
}

func (b board) Adopt(ctx context.Context, executionID, from, to string) (bool, error) {
	const doing = "adopting an execution"
	if to == "" {
		return false, wrap(doing, fmt.Errorf("%w: the owner is empty", task.ErrInvalid))
	}
	n, err := statement(ctx, b.Store, doing, Single, `UPDATE executions SET owner = ? WHERE id = ? AND owner = ? AND state IN ('starting', 'running')`, to, executionID, from)
	return n > 0, err
}

func (b board) StartExecution(ctx context.Context, executionID, executor string, since time.Time) (*task.Session, error) {
	return write(ctx, b, "starting an execution", func(t Tx) (*task.Session, error) {
		e, err := t.execution(executionID)
		switch {
		case err != nil:
			return nil, err
		case e.State.Ended():
			return nil, fmt.Errorf("execution %q is %s: %w", executionID, e.State, task.ErrEnded)
		case e.State == task.Waiting:
			return nil, fmt.Errorf("%w: execution %q is not claimed", task.ErrInvalid, executionID)
		}
		if e.StepID != "" {
			t.changed(store.AttemptChanged, e.AttemptID)
			_, err := t.Exec(`UPDATE executions SET state = ?, started_at = coalesce(started_at, ?) WHERE id = ?`, task.Running, t.between(e.CreatedAt, since), executionID)
			return nil, err
		}
		s, err := t.sessionOf(e, executor)
		if err != nil {
			return nil, err
		}
		if _, err := t.Exec(`UPDATE executions SET state = ?, session_id = ?, started_at = coalesce(started_at, ?) WHERE id = ?`,
			task.Running, s.ID, t.between(e.CreatedAt, since), executionID); err != nil {
			return nil, err
		}
		return s, t.setAttempt(e.AttemptID, task.Running, nil)
	})
}

// between returns a moment as the board stores it, zero for now, that is never before what it
// follows, whatever the clock did since, nor in the future.
func (t Tx) between(after, at time.Time) string {
	text := t.Now
	if !at.IsZero() {
		text = min(task.FormatTime(at), text)
	}
	return max(text, task.FormatTime(after))
}

func (b board) EndExecution(ctx context.Context, executionID string, e task.Ending) (next *task.Execution, ended bool, err error) {
	const doing = "ending an execution"
	if !e.State.Ended() {
		return nil, false, wrap(doing, fmt.Errorf("%w: state %q is not an end", task.ErrInvalid, e.State))
	}
	if e.Task != "" {
		if err := e.Task.Check(); err != nil {
			return nil, false, wrap(doing, err)
		}
	}
	next, err = write(ctx, b, doing, func(t Tx) (*task.Execution, error) {
		ended = false
		x, err := t.execution(executionID)
		if err != nil || x.State.Ended() {
			return nil, err
		}
		after, at := x.CreatedAt, time.Time{}
		if x.StartedAt != nil {
			after = *x.StartedAt
		}
		if e.EndedAt != nil {
			at = *e.EndedAt
		}
		since := t.between(after, at)
		if _, err := t.Exec(`UPDATE executions SET state = ?, conversation = coalesce(?, conversation), limited_until = ?, exit_code = ?, final_message = ?, error = ?, ended_at = ? WHERE id = ?`,
			e.State, e.Conversation, optional(e.LimitedUntil), e.ExitCode, e.FinalMessage, e.Error, since, executionID); err != nil {
			return nil, err
		}
		if x.Lead {
			err = t.endSteps(x.AttemptID)
		} else if x.StartedAt != nil {
			err = t.addUse(x.AttemptID, executionID, x.Executor, e.Usage, since)
		}
		if err != nil {
			return nil, err
		}
		if ended = true; x.StepID != "" {
			t.changed(store.AttemptChanged, x.AttemptID)
			return nil, nil
		}
		if err := t.setAttempt(x.AttemptID, e.State, e.Error); err != nil {
			return nil, err
		}
		status, stays := e.Task, `status <> 'inprogress'`
		next, err := t.nextOf(x, e.State)
		if err != nil {
			return nil, err
		}
		if next != nil {
			status, stays = task.InProgress, `status IN ('done', 'cancelled', 'inprogress')`
		}
		if status != "" {
			var of string
			if _, err := t.First(`SELECT task_id FROM attempts WHERE id = ?`, []any{x.AttemptID}, &of); err != nil {
				return nil, err
			}
			t.changed(store.TaskChanged, of)
			_, err = t.Exec(`UPDATE tasks SET status = ?1, updated_at = ?2
				WHERE id = ?3 AND NOT (`+stays+`)`, status, t.Now, of)
		}
		return next, err
	})
	return next, ended && err == nil, err
}

// nextOf takes the queue of an ended execution's session, and makes an execution of it if it must
// run.
func (t Tx) nextOf(x *task.Execution, how task.AttemptState) (*task.Execution, error) {
	if x.SessionID == nil {
		return nil, nil
	}
	s, err := t.session(*x.SessionID)
	if err != nil || s.Queued == nil {
		return nil, err
	}
	runs := (how == task.Completed || how == task.Failed) && x.StopAsked == nil
	if runs {
		if _, err := t.Exec(`DELETE FROM attempt_comments WHERE attempt_id = ? AND queued = ?`, s.AttemptID, true); err != nil {
			return nil, err
		}
	}
	if err := t.setQueued(s, nil); err != nil || !runs {
		return nil, err
	}
	id, err := t.addExecution(task.Execution{AttemptID: x.AttemptID, SessionID: x.SessionID, FollowUp: true,
		Prompt: s.Queued.Prompt, Variant: s.Queued.Variant})
	if err != nil {
		return nil, err
	}
	return t.execution(id)
}
