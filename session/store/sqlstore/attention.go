package sqlstore

import (
	"context"

	"deepwork/catalog/task"
)

func (b board) Attention(ctx context.Context) (all []task.Attention, more bool, err error) {
	where, args := b.seen("")
	all, err = read(ctx, b, "listing the attempts that need a person", func(t Tx) ([]task.Attention, error) {
		return List[task.Attention](t, `SELECT t.id AS task_id, t.title, a.id AS attempt_id, a.state, COALESCE(a.run, '') AS run, e.ended_at AS since
			FROM tasks t
			JOIN attempts a ON a.id = (SELECT id FROM attempts WHERE task_id = t.id ORDER BY created_at DESC, id LIMIT 1)
			JOIN executions e ON e.attempt_id = a.id AND e.seq = (SELECT max(seq) FROM executions WHERE attempt_id = a.id AND step_id IS NULL)
			WHERE t.project_id IN (SELECT id FROM projects WHERE listed) AND t.status IN ('inprogress', 'inreview') AND t.deleting_at IS NULL
			AND (a.state IN ('completed', 'failed', 'interrupted') OR a.state = 'stopped' AND (t.status = 'inreview' OR a.run IS NOT NULL))
			AND NOT EXISTS (SELECT 1 FROM attempts o WHERE o.task_id = t.id AND o.state IN ('waiting', 'starting', 'running'))`+where+`
			ORDER BY e.ended_at DESC, a.id LIMIT ?`, append(args, task.MaxAttention+1)...)
	})
	if more = len(all) > task.MaxAttention; more {
		all = all[:task.MaxAttention]
	}
	return all, more, err
}

func (b board) Work(ctx context.Context) (open, ended []task.Work, err error) {
	where, args := b.seen("")
	args = append(args, task.MaxWork)
	const rows = `SELECT t.id AS task_id, t.title, a.id AS attempt_id, a.executor, a.state, a.run IS NOT NULL AS run, COALESCE(a.workflow_step, '') AS step, COALESCE(e.ended_at, e.created_at) AS since
		FROM executions e JOIN attempts a ON a.id = e.attempt_id JOIN tasks t ON t.id = a.task_id
		WHERE e.seq = (SELECT max(seq) FROM executions WHERE attempt_id = a.id AND step_id IS NULL)
		AND t.project_id IN (SELECT id FROM projects WHERE listed) AND t.deleting_at IS NULL AND e.state `
	both, err := read(ctx, b, "listing what agents work on", func(t Tx) (both [2][]task.Work, err error) {
		for i, are := range []string{`IN`, `NOT IN`} {
			if both[i], err = List[task.Work](t, rows+are+` ('waiting', 'starting', 'running')`+where+` ORDER BY e.seq DESC LIMIT ?`, args...); err != nil {
				break
			}
		}
		return both, err
	})
	return both[0], both[1], err
}

func (b board) WorkedOn(ctx context.Context) ([]string, error) {
	where, args := b.seen("")
	return read(ctx, b, "listing the attempts that are worked on", func(t Tx) ([]string, error) {
		return List[string](t, `SELECT a.id FROM attempts a JOIN tasks t ON t.id = a.task_id WHERE t.status IN ('inprogress', 'inreview')`+where+
			` ORDER BY a.created_at DESC, a.id LIMIT ?`, append(args, task.MaxAttention)...)
	})
}
