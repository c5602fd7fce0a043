package sqlstore

import (
	"context"
	"fmt"

	"deepwork/catalog/task"
	"deepwork/session"
)

// mayStart reports whether servers may start the tasks that a caller makes.
func (t Tx) mayStart() bool { return t.who == nil || t.who.Has(session.RightAgents) }

// ready are the tasks, as t, that servers may start, if there is room.
const ready = `FROM tasks t WHERE t.status = 'todo' AND t.auto_start AND t.deleting_at IS NULL AND t.project_id IN (SELECT id FROM projects WHERE listed)
	AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.task_id = t.id)
	AND NOT EXISTS (SELECT 1 FROM task_dependencies d JOIN tasks o ON o.id = d.depends_on WHERE d.task_id = t.id AND o.status <> 'done')`

// room reports whether there is any.
func (t Tx) room(r task.Room) (bool, error) {
	busy, err := t.Count(`SELECT count(*) FROM executions WHERE step_id IS NULL AND (state = 'waiting'
		OR state IN ('starting', 'running') AND (?1 = '' OR machine_id = ?1 AND root = ?2))`, r.Place.MachineID, r.Place.Root)
	if err != nil || busy >= r.Slots {
		return false, err
	}
	// One whose attempt was stopped waits for nobody.
	waiting, err := t.Count(`SELECT count(*) FROM tasks t
		WHERE t.project_id IN (SELECT id FROM projects WHERE listed) AND t.status IN ('inprogress', 'inreview') AND (t.status = 'inreview'
			OR EXISTS (SELECT 1 FROM attempts a WHERE a.task_id = t.id AND a.state IN ('waiting', 'starting', 'running'))
			OR coalesce((SELECT a.state FROM attempts a WHERE a.task_id = t.id ORDER BY a.created_at DESC, a.id LIMIT 1), 'stopped') <> 'stopped')`)
	if err != nil || waiting >= r.InReview {
		return false, err
	}
	return t.within(r.Limits)
}

func (b board) Ready(ctx context.Context, r task.Room) ([]task.Ready, error) {
	return read(ctx, b, "listing tasks to start", func(t Tx) ([]task.Ready, error) {
		if free, err := t.room(r); err != nil || !free {
			return nil, err
		}
		return List[task.Ready](t, `SELECT t.id, t.project_id `+ready+` ORDER BY t.created_at, t.id LIMIT ?`, task.MaxReady)
	})
}

func (b board) StartReady(ctx context.Context, a task.Attempt, first task.Execution, r task.Room) error {
	return change(ctx, b, "starting a task", func(t Tx) error {
		free, err := t.room(r)
		if err == nil && free {
			free, err = t.First(`SELECT 1 `+ready+` AND t.id = ?`, []any{a.TaskID}, new(int))
		}
		if err == nil && !free {
			err = fmt.Errorf("task %q %w", a.TaskID, task.ErrNotReady)
		}
		if err == nil {
			_, err = t.createAttempt(a, first)
		}
		return err
	})
}
