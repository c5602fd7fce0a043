package sqlstore

import (
	"context"
	"fmt"

	"deepwork/catalog/task"
	"deepwork/session"
)

// A flaw is a query whose rows are errors: each is a text that completes what.
type flaw struct{ what, do, query string }

// flaws are the possible flaws of the board.
var flaws = []flaw{
	{"attempt %s has no execution", doAttempt,
		`SELECT id FROM attempts WHERE id NOT IN (SELECT attempt_id FROM executions WHERE step_id IS NULL)`},
	{"attempt %s", doAttempt, // its state is that of its newest execution
		`SELECT a.id || ' is ' || a.state || ', and its newest execution ' || e.id || ' is ' || e.state
		FROM attempts a JOIN executions e ON e.seq = (SELECT max(seq) FROM executions WHERE attempt_id = a.id AND ` +
			`step_id IS NULL)
		WHERE a.state <> e.state`},
	{"execution %s", doAttempt,
		`SELECT id || ' of attempt ' || attempt_id || ' is not its newest, and is ' || state FROM executions e
		WHERE state IN ('waiting', 'starting', 'running') AND step_id IS NULL
		AND seq < (SELECT max(seq) FROM executions WHERE attempt_id = e.attempt_id AND step_id IS NULL)`},
	{"execution %s waits and has an owner or a process", doAttempt,
		`SELECT id FROM executions WHERE state = 'waiting' AND (owner IS NOT NULL OR pid IS NOT NULL OR started_at ` +
			`IS NOT NULL OR ended_at IS NOT NULL)`},
	{"execution %s has no owner", doAttempt,
		`SELECT id || ' is ' || state || ' and' FROM executions WHERE state IN ('starting', 'running') AND step_id ` +
			`IS NULL AND coalesce(owner, '') = ''`},
	{"execution %s runs and has no session or no time of its start", doAttempt,
		`SELECT id FROM executions WHERE state = 'running' AND (session_id IS NULL AND step_id IS NULL OR ` +
			`started_at IS NULL)`},
	{"execution %s", doAttempt,
		`SELECT id || ' is ' || state || ', and its end is ' || coalesce(ended_at, 'missing') FROM executions
		WHERE (state IN ('waiting', 'starting', 'running')) = (ended_at IS NOT NULL)`},
	{"execution %s is in a session of another attempt", doAttempt,
		`SELECT e.id FROM executions e JOIN sessions s ON s.id = e.session_id WHERE s.attempt_id <> e.attempt_id`},
	{"session %s has a follow-up queued, and no execution of its attempt is open",
		"call follow_up with action cancel for it, or send it",
		`SELECT id FROM sessions s WHERE queued_at IS NOT NULL AND NOT EXISTS
		(SELECT 1 FROM executions e WHERE e.attempt_id = s.attempt_id AND e.state IN ('waiting', 'starting', ` +
			`'running'))`},
	{"task %s is being deleted, and has an attempt that waits or runs",
		"stop it with stop_attempt and call delete_task again",
		`SELECT DISTINCT t.id FROM tasks t JOIN attempts a ON a.task_id = t.id
		WHERE t.deleting_at IS NOT NULL AND a.state IN ('waiting', 'starting', 'running')`},
	{"execution %s of a step has not ended, and nothing leads it", doAttempt,
		`SELECT x.id FROM executions x JOIN attempts a ON a.id = x.attempt_id
		WHERE x.step_id IS NOT NULL AND x.ended_at IS NULL AND NOT a.state IN ('waiting', 'starting', 'running')`},
	{"step %s has more than one agent", doAttempt,
		`SELECT step_id || ' of session ' || workflow_session_id FROM executions WHERE step_id IS NOT NULL AND ` +
			`ended_at IS NULL GROUP BY attempt_id, workflow_session_id, step_id HAVING count(*) > 1`},
	{"schedule %s is active, and nothing wakes it", doSchedule,
		`SELECT name FROM schedules s WHERE NOT paused AND NOT EXISTS
		(SELECT 1 FROM work WHERE kind = 'schedule' AND key = s.id)`},
	{"schedule %s", doSchedule,
		`SELECT s.name || ' is due again at ' || max(coalesce(d.until, d.due_at)) FROM schedules s
		JOIN due_times d ON d.schedule = s.id AND coalesce(d.until, d.due_at) >= s.next GROUP BY s.id, s.name`},
	{"execution %s of a step is of an attempt that is not a run", doAttempt,
		`SELECT x.id FROM executions x JOIN attempts a ON a.id = x.attempt_id WHERE x.step_id IS NOT NULL AND ` +
			`a.run IS NULL`},
	{"execution %s of a step ran, and what it used is not recorded once", doAttempt,
		`SELECT x.id FROM executions x WHERE x.step_id IS NOT NULL AND x.started_at IS NOT NULL AND x.ended_at IS ` +
			`NOT NULL
		AND (SELECT count(*) FROM usages u WHERE u.attempt_id = x.attempt_id AND u.execution_id = x.id) <> 1`},
	{"task %s", doDepend,
		`SELECT t.id || ' depends on ' || o.id || ', which is of another project' FROM task_dependencies d
		JOIN tasks t ON t.id = d.task_id JOIN tasks o ON o.id = d.depends_on WHERE t.project_id <> o.project_id`},
	{"project %s", "restore the board from a copy; only the totals of lists are wrong",
		`SELECT p.id || ' has ' || (SELECT count(*) FROM tasks t WHERE t.project_id = p.id AND t.status = ` +
			`s.status) || ' tasks that are ' || s.status ||
		', and counts ' || coalesce((SELECT sum(c.tasks) FROM task_counts c WHERE c.project_id = p.id AND c.status ` +
			`= s.status), 0)
		FROM projects p, (SELECT 'todo' AS status UNION SELECT 'inprogress' UNION SELECT 'inreview' UNION SELECT ` +
			`'done' UNION SELECT 'cancelled') s
		WHERE (SELECT count(*) FROM tasks t WHERE t.project_id = p.id AND t.status = s.status) <>
		coalesce((SELECT sum(c.tasks) FROM task_counts c WHERE c.project_id = p.id AND c.status = s.status), 0)`},
}

const doDepend = "change what it depends on, on its page in 'deepwork ui'"

const doSchedule = "pause it with 'deepwork schedule pause', then resume it"

const doAttempt = "restore the board from a copy, or remove the attempt's task ('deepwork board rm' also takes the " +
	"attempt's id)"

func (b board) Inspect(ctx context.Context) (found []session.Finding, s task.Totals, err error) {
	found, err = read(ctx, b, "inspecting the board", func(t Tx) []session.Finding {
		if found := b.db.Damage(t); found != nil {
			return found // the rest is not reliable
		}

		t.First(`SELECT (SELECT count(*) FROM projects WHERE listed), (SELECT count(*) FROM tasks), (SELECT `+
			`count(*) FROM attempts),
			(SELECT count(*) FROM executions WHERE step_id IS NULL AND state IN ('waiting', 'starting', 'running'))`,
			nil, &s.Projects, &s.Tasks, &s.Attempts, &s.Open)
		return t.Flaws()
	})
	return found, s, err
}

// Damage returns what the database itself finds wrong with its storage or its references.
func (s *Store) Damage(ctx context.Context) ([]session.Finding, error) {
	return read(ctx, s, "looking for damage", s.db.Damage)
}

// Flaws returns the board's rows that contradict each other.
func (t Tx) Flaws() []session.Finding {
	found := t.find(flaws)
	if id := task.Cyclic(t.dependencies(`SELECT task_id, depends_on FROM task_dependencies`)); id != "" {
		found = append(found, session.Finding{
			Where: t.where,
			What:  fmt.Sprintf("task %s depends on itself through others", id),
			Do:    doDepend,
		})
	}
	return found
}

// find returns the findings of queries.
func (t Tx) find(queries []flaw) (found []session.Finding) {
	for _, f := range queries {
		for _, what := range List[string](t, f.query) {
			found = append(found, session.Finding{Where: t.where, What: fmt.Sprintf(f.what, what), Do: f.do})
		}
	}
	return found
}
