package task

import (
	"context"
	"fmt"
)

// summary reads a task with its latest attempt and that one's latest session.
// Each is found by the first entry of an index, so a page costs the same however
// many tasks and attempts there are.
const summary = `SELECT t.id, t.project_id, t.title, t.description, t.status, t.job_name, t.workflow_name,
	t.created_at, t.updated_at, a.id, a.branch, s.id, s.executor,
	EXISTS (SELECT 1 FROM attempts o WHERE o.task_id = t.id AND o.state IN ('waiting', 'starting', 'running')),
	coalesce(a.state IN ('failed', 'interrupted'), 0)
FROM tasks t
LEFT JOIN attempts a ON a.id = (SELECT id FROM attempts WHERE task_id = t.id ORDER BY created_at DESC, id LIMIT 1)
LEFT JOIN sessions s ON s.id = (SELECT id FROM sessions WHERE attempt_id = a.id ORDER BY created_at DESC, id LIMIT 1)
`

func scanSummary(scan scanner) (s Summary, err error) {
	err = scan(&s.ID, &s.ProjectID, &s.Title, &s.Description, &s.Status, &s.JobName, &s.WorkflowName,
		moment{&s.CreatedAt}, moment{&s.UpdatedAt}, &s.LatestAttemptID, &s.LatestWorkspaceBranch,
		&s.LatestSessionID, &s.LatestSessionExecutor, &s.HasInProgressAttempt, &s.LastAttemptFailed)
	return s, err
}

// Tasks lists a project's tasks of a status (all, if ""), newest first, each with
// its attempts' summary, or ErrNotFound; total is how many match, next the cursor
// for more (seed 004, "list_tasks provides attempt summary").
func (b *Board) Tasks(ctx context.Context, projectID string, status Status, p Page) (list []Summary, total int, next string, err error) {
	if status != "" && !status.valid() {
		return nil, 0, "", unknownStatus(status)
	}
	l, err := p.listing("tasks", projectID, string(status))
	if err != nil {
		return nil, 0, "", err
	}
	err = b.read(ctx, "listing tasks", func(t tx) error {
		list, total = make([]Summary, 0, min(l.limit+1, 256)), 0
		if err := t.exists("projects", "project", projectID); err != nil {
			return err
		}
		if status == "" {
			if _, err := t.one(`SELECT coalesce(sum(tasks), 0) FROM task_counts WHERE project_id = ?`, []any{projectID}, &total); err != nil {
				return err
			}
			return t.each(summary+`WHERE t.project_id = ? AND t.created_at <= ? AND (t.created_at < ? OR t.id > ?)
				ORDER BY t.created_at DESC, t.id LIMIT ?`, l.args(projectID), collect(&list, scanSummary))
		}
		if _, err := t.one(`SELECT coalesce(sum(tasks), 0) FROM task_counts WHERE project_id = ? AND status = ?`, []any{projectID, status}, &total); err != nil {
			return err
		}
		return t.each(summary+`WHERE t.project_id = ? AND t.status = ? AND t.created_at <= ? AND (t.created_at < ? OR t.id > ?)
			ORDER BY t.created_at DESC, t.id LIMIT ?`, l.args(projectID, status), collect(&list, scanSummary))
	})
	if err != nil {
		return nil, 0, "", err
	}
	list, next = cut(l, list, func(s Summary) position { return position{format(s.CreatedAt), s.ID} })
	return list, total, next, nil
}

// Task returns one, or ErrNotFound.
func (b *Board) Task(ctx context.Context, id string) (s *Summary, err error) {
	err = b.read(ctx, "reading a task", func(t tx) error {
		s, err = t.task(id)
		return err
	})
	return s, err
}

func (t tx) task(id string) (*Summary, error) {
	var all []Summary
	err := t.each(summary+`WHERE t.id = ?`, []any{id}, collect(&all, scanSummary))
	return only(all, err, "task", id)
}

func unknownStatus(s Status) error {
	return fmt.Errorf("%w: status %q is not one of %v", ErrInvalid, clip(string(s)), Statuses)
}
