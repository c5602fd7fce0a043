package sqlstore

import (
	"context"
	"fmt"

	"deepwork/catalog/task"
	"deepwork/session"
)

func (b board) Attention(ctx context.Context) (all []task.Attention, more bool, err error) {
	where, args := b.visibleTo("")
	all, err = read(ctx, b, "listing the attempts that need a person", func(t Tx) []task.Attention {
		return List[task.Attention](t,
			`SELECT t.id AS task_id, t.title, a.id AS attempt_id, `+situation+
				`, e.session_id IS NOT NULL AND COALESCE(a.workflow_status, '') <> 'aborted' AS began, `+
				`COALESCE(e.ended_at, e.created_at) AS since
			FROM tasks t
			JOIN attempts a ON a.id = (SELECT id FROM attempts WHERE task_id = t.id ORDER BY created_at DESC, id `+
				`LIMIT 1)
			JOIN executions e ON e.attempt_id = a.id AND e.seq = (SELECT max(seq) FROM executions WHERE attempt_id `+
				`= a.id AND step_id IS NULL)
			WHERE t.project_id IN (SELECT id FROM projects WHERE listed) AND t.status IN ('inprogress', `+
				`'inreview') AND t.deleting_at IS NULL
			AND a.landed <> 'merged' AND (a.state IN ('completed', 'failed', 'interrupted') OR a.state = 'stopped' `+
				`AND (t.status = 'inreview' OR a.run IS NOT NULL OR a.landed <> '')
				OR a.run IS NOT NULL AND a.state IN ('starting', 'running'))
			AND NOT EXISTS (SELECT 1 FROM attempts o WHERE o.task_id = t.id AND o.id <> a.id AND o.state IN `+
				`('waiting', 'starting', 'running'))`+where+`
			ORDER BY since DESC, a.id LIMIT ?`, append(args, task.MaxAttention+1)...)
	})
	if more = len(all) > task.MaxAttention; more {
		all = all[:task.MaxAttention]
	}
	return all, more, err
}

func (b board) Work(ctx context.Context) (open, ended []task.Work, err error) {
	where, args := b.visibleTo("")
	args = append(args, task.MaxWork)
	const rows = `SELECT t.id AS task_id, t.title, a.id AS attempt_id, a.executor, ` + situation +
		`, COALESCE(a.workflow_step, '') AS step, COALESCE(e.ended_at, e.created_at) AS since
		FROM executions e JOIN attempts a ON a.id = e.attempt_id JOIN tasks t ON t.id = a.task_id
		WHERE e.seq = (SELECT max(seq) FROM executions WHERE attempt_id = a.id AND step_id IS NULL)
		AND t.project_id IN (SELECT id FROM projects WHERE listed) AND t.deleting_at IS NULL AND e.state `
	rest := ` ('waiting', 'starting', 'running')` + where + ` ORDER BY e.seq DESC LIMIT ?`
	err = b.Run(ctx, "listing what agents work on", Reading, func(t Tx) {
		open = List[task.Work](t, rows+`IN`+rest, args...)
		ended = List[task.Work](t, rows+`NOT IN`+rest, args...)
	})
	return open, ended, err
}

func (b board) WorkedOn(ctx context.Context) ([]string, error) {
	where, args := b.visibleTo("")
	return read(ctx, b, "listing the attempts that are worked on", func(t Tx) []string {
		return List[string](t,
			`SELECT a.id FROM attempts a JOIN tasks t ON t.id = a.task_id WHERE t.status IN ('inprogress', 'inreview')`+
				where+
				` ORDER BY a.created_at DESC, a.id LIMIT ?`, append(args, task.MaxAttention)...)
	})
}

// mayStart reports whether servers may start the tasks that a caller makes.
func (t Tx) mayStart() bool { return t.who == nil || t.who.Has(session.RightAgents) }

// ready selects the tasks, as t, that servers may start if there is room.
const ready = `FROM tasks t WHERE t.status = 'todo' AND t.auto_start AND t.deleting_at IS NULL AND t.project_id IN ` +
	`(SELECT id FROM projects WHERE listed)
	AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.task_id = t.id)
	AND NOT EXISTS (SELECT 1 FROM task_dependencies d JOIN tasks o ON o.id = d.depends_on WHERE d.task_id = t.id ` +
	`AND o.status <> 'done')`

// hasRoom reports whether there is room to start a task.
func (t Tx) hasRoom(r task.Room) bool {
	busy := t.count(`SELECT count(*) FROM executions WHERE step_id IS NULL AND (state = 'waiting'
		OR state IN ('starting', 'running') AND (?1 = '' OR machine_id = ?1 AND root = ?2))`, r.Place.MachineID,
		r.Place.Root)
	if busy >= r.Slots {
		return false
	}

	// A task whose attempt was stopped does not wait for a person.
	waiting := t.count(`SELECT count(*) FROM tasks t
		WHERE t.project_id IN (SELECT id FROM projects WHERE listed) AND t.status IN ('inprogress', 'inreview') ` +
		`AND (t.status = 'inreview'
			OR EXISTS (SELECT 1 FROM attempts a WHERE a.task_id = t.id AND a.state IN ('waiting', 'starting', ` +
		`'running'))
			OR coalesce((SELECT a.state FROM attempts a WHERE a.task_id = t.id ORDER BY a.created_at DESC, a.id ` +
		`LIMIT 1), 'stopped') <> 'stopped')`)
	return waiting < r.InReview && t.belowLimits(r.Limits)
}

func (b board) Ready(ctx context.Context, r task.Room) ([]task.Ready, error) {
	return read(ctx, b, "listing tasks to start", func(t Tx) []task.Ready {
		if !t.hasRoom(r) {
			return nil
		}
		return List[task.Ready](t, `SELECT t.id, t.project_id `+ready+
			` ORDER BY CASE t.priority WHEN 'high' THEN 0 WHEN 'normal' THEN 1 ELSE 2 END, t.created_at, t.id LIMIT ?`,
			task.MaxReady)
	})
}

func (b board) StartReady(ctx context.Context, a task.Attempt, first task.Execution, r task.Room) error {
	return change(ctx, b, "starting a task", func(t Tx) {
		if !t.hasRoom(r) || !t.has(ready+` AND t.id = ?`, a.TaskID) {
			t.Fail(fmt.Errorf("task %q %w", a.TaskID, task.ErrNotReady))
		}
		t.createAttempt(a, first)
	})
}
