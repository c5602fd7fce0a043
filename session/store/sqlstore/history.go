package sqlstore

import (
	"context"
	"fmt"
	"time"

	"deepwork/catalog/task"
)

// historyOf has the states of sessions and of attempts for which a state of the history stands.
var historyOf = map[string][2]string{
	task.HistoryOpen: {`s.status = 'active'`, `a.state IN ('waiting', 'starting', 'running')`},
	task.HistoryDone: {`s.status = 'completed'`,
		`(a.state = 'completed' AND a.landed <> 'conflicts' OR a.landed = 'merged')`},
	task.HistoryStopped: {`s.status = 'aborted'`,
		`a.landed <> 'merged' AND (a.state IN ('failed', 'stopped', 'interrupted') OR a.state = 'completed' AND ` +
			`a.landed = 'conflicts')`},
}

// Both have the columns of task.HistoryRow, in its order, for a page of the newest rows.
const (
	sessionHistory = `SELECT 'session' AS kind, s.id, s.goal AS title, s.job, s.workflow, s.identity, s.status, ` +
		`s.started_at,
		CASE WHEN s.status <> 'active' THEN s.updated_at END AS ended_at, '' AS executor,
		'' AS machine_id, '' AS machine_name, '' AS root, '' AS state, '' AS landed, NULL AS run, '' AS leader, ` +
		`FALSE AS busy, s.failed_tries
		FROM workflow_sessions s WHERE s.attempt_id = ''`
	attemptHistory = `SELECT CASE WHEN a.run IS NULL THEN 'attempt' ELSE 'run' END AS kind, a.id, t.title, ` +
		`coalesce(t.job_name, '') AS job, coalesce(t.workflow_name, '') AS workflow,
		a.identity, '' AS status, a.created_at AS started_at,
		(SELECT e.ended_at FROM executions e WHERE e.attempt_id = a.id AND e.step_id IS NULL ORDER BY e.seq DESC ` +
		`LIMIT 1) AS ended_at, a.executor, ` + situation + `,
		(SELECT coalesce(CAST(sum(s.failed_tries) AS bigint), 0) FROM workflow_sessions s WHERE s.attempt_id = a.id) ` +
		`AS failed_tries
		FROM attempts a JOIN tasks t ON t.id = a.task_id WHERE t.deleting_at IS NULL`
)

// history returns a query for the rows that q selects.
func (b board) history(q task.HistoryQuery) (query string, args []any) {
	sessions, sessionArgs := sessionHistory, []any{}
	attempts, attemptArgs := b.visibleTo(attemptHistory)
	if limited(b.who) {
		sessions, sessionArgs = sessions+` AND s.identity = ?`, append(sessionArgs, b.who.Identity)
	}
	both := func(ofSession, ofAttempt string, args ...any) {
		sessions, sessionArgs = sessions+` AND `+ofSession, append(sessionArgs, args...)
		attempts, attemptArgs = attempts+` AND `+ofAttempt, append(attemptArgs, args...)
	}
	if of, ok := historyOf[q.State]; ok {
		both(of[0], of[1])
	}
	if q.Job != "" {
		both(`s.job = ?`, `t.job_name = ?`, q.Job)
	}
	if q.Workflow != "" {
		both(`s.workflow = ?`, `t.workflow_name = ?`, q.Workflow)
	}
	if q.Identity != "" {
		both(`s.identity = ?`, `a.identity = ?`, q.Identity)
	}
	if q.Text != "" {
		both(`instr(lower(s.goal), lower(?)) > 0`, `instr(lower(t.title), lower(?)) > 0`, q.Text)
	}
	if q.Schedule != "" {
		q.Kind = task.HistoryRun
		attempts += ` AND a.id IN (SELECT d.run_id FROM due_times d JOIN schedules z ON z.id = d.schedule ` +
			`WHERE z.name = ?)`
		attemptArgs = append(attemptArgs, q.Schedule)
	}
	both(`s.started_at >= ?`, `a.created_at >= ?`, task.FormatTime(q.Since))
	if !q.Until.IsZero() {
		both(`s.started_at < ?`, `a.created_at < ?`, task.FormatTime(q.Until))
	}
	if !q.Before.IsZero() {
		before := task.FormatTime(q.Before)
		both(`s.started_at <= ? AND (s.started_at < ? OR s.id > ?)`,
			`a.created_at <= ? AND (a.created_at < ? OR a.id > ?)`, before, before, q.AfterID)
	}

	if q.Kind == task.HistoryAttempt || q.Kind == task.HistoryRun {
		attempts, attemptArgs = attempts+` AND (a.run IS NULL) = ?`, append(attemptArgs, q.Kind == task.HistoryAttempt)
	}
	if q.Limit > 0 {
		sessions += ` ORDER BY s.started_at DESC, s.id` + limit(q)
		attempts += ` ORDER BY a.created_at DESC, a.id` + limit(q)
	}
	switch q.Kind {
	case task.HistorySession:
		return sessions, sessionArgs
	case task.HistoryAttempt, task.HistoryRun:
		return attempts, attemptArgs
	}
	return `SELECT * FROM (` + sessions + `) AS x UNION ALL SELECT * FROM (` + attempts + `) AS y`,
		append(sessionArgs, attemptArgs...)
}

// limit ends a query for a page. As a parameter, SQLite would recompile the statement for each value.
func limit(q task.HistoryQuery) string { return fmt.Sprintf(` LIMIT %d`, q.Limit) }

func (b board) History(ctx context.Context, q task.HistoryQuery) ([]task.HistoryRow, error) {
	from, args := b.history(q)
	return read(ctx, b, "listing what has run", func(t Tx) []task.HistoryRow {
		return List[task.HistoryRow](t,
			`SELECT h.*, (SELECT CAST(sum(u.micro_usd) AS bigint) FROM usages u WHERE u.attempt_id = h.id) AS micro_usd
			FROM (`+from+`) AS h ORDER BY h.started_at DESC, h.id`+limit(q), args...)
	})
}

func (b board) HistoryTotals(ctx context.Context, q task.HistoryQuery) (task.HistoryTotals, error) {
	q.Before, q.Limit = time.Time{}, 0
	from, args := b.history(q)
	return read(ctx, b, "adding up what has run", func(t Tx) task.HistoryTotals {
		return *firstRow[task.HistoryTotals](t, `WITH h AS (`+from+`),
			ended AS (SELECT seconds, row_number() OVER (ORDER BY seconds) AS n, count(*) OVER () AS total
				FROM (SELECT (julianday(ended_at) - julianday(started_at)) * 86400 AS seconds FROM h
					WHERE ended_at IS NOT NULL) AS took)
			SELECT count(*) AS runs, count(*) FILTER (WHERE job <> '' AND ended_at IS NOT NULL) AS judged,
			count(*) FILTER (WHERE job <> '' AND ended_at IS NOT NULL AND failed_tries = 0 AND (status = 'completed'
				OR landed = 'merged' OR state = 'completed' AND landed <> 'conflicts')) AS first_try,
			(SELECT avg(seconds) FROM ended WHERE 2 * n BETWEEN total AND total + 2) AS seconds,
			(SELECT CAST(sum(u.micro_usd) AS double precision) / 1000000 FROM usages u
				WHERE u.attempt_id IN (SELECT id FROM h)) AS usd
			FROM h`, args...)
	})
}
