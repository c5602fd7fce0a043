package sqlstore

import (
	"context"
	"fmt"

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
		`FALSE AS busy
		FROM workflow_sessions s WHERE s.attempt_id = ''`
	attemptHistory = `SELECT CASE WHEN a.run IS NULL THEN 'attempt' ELSE 'run' END AS kind, a.id, t.title, ` +
		`coalesce(t.job_name, '') AS job, coalesce(t.workflow_name, '') AS workflow,
		a.identity, '' AS status, a.created_at AS started_at,
		(SELECT e.ended_at FROM executions e WHERE e.attempt_id = a.id AND e.step_id IS NULL ORDER BY e.seq DESC ` +
		`LIMIT 1) AS ended_at, a.executor, ` + situation + `
		FROM attempts a JOIN tasks t ON t.id = a.task_id WHERE t.deleting_at IS NULL`
)

func (b board) History(ctx context.Context, q task.HistoryQuery) ([]task.HistoryRow, error) {
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
	if !q.Before.IsZero() {
		before := task.FormatTime(q.Before)
		both(`s.started_at <= ? AND (s.started_at < ? OR s.id > ?)`,
			`a.created_at <= ? AND (a.created_at < ? OR a.id > ?)`, before, before, q.AfterID)
	}

	if q.Kind == task.HistoryAttempt || q.Kind == task.HistoryRun {
		attempts, attemptArgs = attempts+` AND (a.run IS NULL) = ?`, append(attemptArgs, q.Kind == task.HistoryAttempt)
	}
	limit := fmt.Sprintf(` LIMIT %d`, q.Limit) // as a parameter, SQLite would recompile the statement for each value
	sessions += ` ORDER BY s.started_at DESC, s.id` + limit
	attempts += ` ORDER BY a.created_at DESC, a.id` + limit
	from := `SELECT * FROM (` + sessions + `) AS x UNION ALL SELECT * FROM (` + attempts + `) AS y`
	args := append(sessionArgs, attemptArgs...)
	switch q.Kind {
	case task.HistorySession:
		from, args = sessions, sessionArgs
	case task.HistoryAttempt, task.HistoryRun:
		from, args = attempts, attemptArgs
	}
	return read(ctx, b, "listing what has run", func(t Tx) []task.HistoryRow {
		return List[task.HistoryRow](t,
			`SELECT h.*, (SELECT CAST(sum(u.micro_usd) AS bigint) FROM usages u WHERE u.attempt_id = h.id) AS micro_usd
			FROM (`+from+`) AS h ORDER BY h.started_at DESC, h.id`+limit, args...)
	})
}
