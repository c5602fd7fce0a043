package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"

	"github.com/google/uuid"
)

// summary reads a task with its latest attempt and that attempt's latest session. Each is the first
// entry of an index, so a page costs the same for any number of tasks and attempts.
const summary = `SELECT t.id, t.project_id, t.title, t.description, t.status, t.job_name, t.workflow_name, t.lead,
	t.created_at, t.updated_at, a.id AS latest_attempt_id, a.branch AS latest_workspace_branch, s.id AS latest_session_id, s.executor AS latest_session_executor,
	EXISTS (SELECT 1 FROM attempts o WHERE o.task_id = t.id AND o.state IN ('waiting', 'starting', 'running')) AS has_in_progress_attempt,
	coalesce(a.state IN ('failed', 'interrupted'), FALSE) AS last_attempt_failed,
	(SELECT string_agg(d.depends_on, ' ') FROM task_dependencies d WHERE d.task_id = t.id) AS depends_on,
	(SELECT string_agg(d.depends_on, ' ') FROM task_dependencies d JOIN tasks o ON o.id = d.depends_on WHERE d.task_id = t.id AND o.status <> 'done') AS blocked_by
FROM tasks t
LEFT JOIN attempts a ON a.id = (SELECT id FROM attempts WHERE task_id = t.id ORDER BY created_at DESC, id LIMIT 1)
LEFT JOIN sessions s ON s.id = (SELECT id FROM sessions WHERE attempt_id = a.id ORDER BY created_at DESC, id LIMIT 1)
`

func (b board) Tasks(ctx context.Context, projectID string, status task.Status, p task.Page) ([]task.Summary, int, string, error) {
	where, args := `t.project_id = ?`, []any{projectID}
	if status != "" {
		if err := status.Check(); err != nil {
			return nil, 0, "", err
		}
		where, args = where+` AND t.status = ?`, append(args, status)
	}
	where, args = b.seen(where, args...)
	return listPage(ctx, b, p, []string{"tasks", projectID, string(status)}, func(s task.Summary) (time.Time, string) { return s.CreatedAt, s.ID },
		func(t Tx) error { return t.exists("projects", "project", projectID) },
		`SELECT coalesce(sum(tasks), 0) FROM task_counts t WHERE `+where,
		summary+`WHERE `+where+` AND t.created_at <= ? AND (t.created_at < ? OR t.id > ?) ORDER BY t.created_at DESC, t.id LIMIT ?`, args...)
}

func (b board) Task(ctx context.Context, id string) (*task.Summary, error) {
	return read(ctx, b, "reading a task", func(t Tx) (*task.Summary, error) { return t.task(id) })
}

func (t Tx) task(id string) (*task.Summary, error) {
	if err := t.own("task", id); err != nil {
		return nil, err
	}
	return only[task.Summary](t, "task", id, summary+`WHERE t.id = ?`, id)
}

func (b board) CreateTask(ctx context.Context, n task.NewTask, r task.Request) (*task.Summary, error) {
	return write(ctx, b, "creating a task", func(t Tx) (*task.Summary, error) {
		id, err := b.makeOnce(t, r, func() (string, error) { return t.createTask(n) })
		if err != nil {
			return nil, err
		}
		s, err := t.task(id)
		return s, deletedSince(err, r)
	})
}

// deletedSince returns the error for a request whose result was deleted.
func deletedSince(err error, r task.Request) error {
	if errors.Is(err, task.ErrNotFound) && r.RequestID != "" {
		return fmt.Errorf("what the call with request_id %q made %w; give another request_id to make a new one: %w", task.Clip(r.RequestID), task.ErrDeleted, err)
	}
	return err
}

func (t Tx) createTask(n task.NewTask) (string, error) {
	made := task.Task{Title: n.Title, Status: task.Todo, JobName: task.NonEmpty(n.JobName), WorkflowName: task.NonEmpty(n.WorkflowName), Lead: cmp.Or(n.Lead, task.AgentLeads)}
	if err := made.Check(); err != nil {
		return "", err
	}
	var listed bool
	found, err := t.First(`SELECT listed FROM projects WHERE id = ?`, []any{n.ProjectID}, &listed)
	switch {
	case err != nil:
		return "", err
	case !found:
		return "", task.Missing("project", n.ProjectID)
	case !listed:
		return "", fmt.Errorf("project %q is no longer in the config: %w: put it back under projects to add tasks to it", task.Clip(n.ProjectID), task.ErrNotFound)
	}
	id := uuid.NewString()
	t.changed(store.TaskChanged, id)
	identity, group := session.LocalIdentity, ""
	if t.who != nil {
		identity, group = t.who.Identity, t.who.Group
	}
	_, err = t.Exec(`INSERT INTO tasks (id, project_id, title, description, status, job_name, workflow_name, lead, identity, caller_group, auto_start, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		id, n.ProjectID, n.Title, task.NonEmpty(n.Description), task.Todo, made.JobName, made.WorkflowName, made.Lead, identity, group, t.mayStart(), t.Now, t.Now)
	if err != nil {
		return "", err
	}
	made.ID, made.ProjectID = id, n.ProjectID
	_, err = t.depend(&made, n.DependsOn)
	return id, err
}

func (b board) UpdateTask(ctx context.Context, id string, c task.TaskChange) (*task.Summary, error) {
	const doing = "updating a task"
	if c.Status != nil {
		if err := c.Status.Check(); err != nil {
			return nil, wrap(doing, err)
		}
	}
	return write(ctx, b, doing, func(t Tx) (*task.Summary, error) {
		s, err := t.task(id)
		if err != nil {
			return nil, err
		}
		was := s.Status
		if err := c.Apply(&s.Task); err != nil {
			return nil, err
		}
		depends := false
		if c.DependsOn != nil {
			if depends, err = t.depend(&s.Task, c.DependsOn); err != nil {
				return nil, err
			}
		}
		if _, err := t.Exec(`UPDATE tasks SET title = ?1, description = ?2, status = ?3, job_name = ?4, workflow_name = ?5, updated_at = ?6, auto_start = auto_start AND ?9
			WHERE id = ?7 AND (?8 OR (title, description, status, job_name, workflow_name) IS DISTINCT FROM (?1, ?2, ?3, ?4, ?5))`,
			s.Title, s.Description, s.Status, s.JobName, s.WorkflowName, t.Now, id, depends, t.mayStart()); err != nil {
			return nil, err
		}
		t.changed(store.TaskChanged, id)
		if (was == task.Done) != (s.Status == task.Done) {
			if err := t.changedDependents(id); err != nil {
				return nil, err
			}
		}
		return t.task(id)
	})
}

func (b board) BeginDelete(ctx context.Context, id string) ([]string, error) {
	return write(ctx, b, "deleting a task", func(t Tx) ([]string, error) {
		if err := t.idle(id); err != nil {
			return nil, err
		}
		if _, err := t.Exec(`UPDATE tasks SET deleting_at = coalesce(deleting_at, ?) WHERE id = ?`, t.Now, id); err != nil {
			return nil, err
		}
		t.changed(store.TaskChanged, id)
		return List[string](t, attemptIDs, id)
	})
}

func (b board) UndoDelete(ctx context.Context, id string) error {
	return change(ctx, b, "keeping a task", func(t Tx) error {
		if err := t.own("task", id); err != nil {
			return err
		}
		t.changed(store.TaskChanged, id)
		if _, err := t.Exec(`UPDATE attempts SET remove_asked = NULL, removal = NULL WHERE task_id = ? AND remove_asked IS NOT NULL`, id); err != nil {
			return err
		}
		_, err := t.Exec(`UPDATE tasks SET deleting_at = NULL WHERE id = ?`, id)
		return err
	})
}

func (b board) Deleting(ctx context.Context) ([]string, error) {
	return read(ctx, b, "listing tasks that are being deleted", func(t Tx) ([]string, error) {
		return List[string](t, `SELECT id FROM tasks WHERE deleting_at IS NOT NULL ORDER BY deleting_at, id`)
	})
}

func (b board) DeleteTask(ctx context.Context, id string) error {
	return change(ctx, b, "deleting a task", func(t Tx) error {
		if err := t.idle(id); err != nil {
			return err
		}
		t.changed(store.TaskChanged, id)
		if err := t.changedDependents(id); err != nil {
			return err
		}
		_, err := t.Exec(`DELETE FROM tasks WHERE id = ?`, id)
		return err
	})
}

// idle returns ErrNotFound if there is no such task, and ErrRunning if one of its attempts has not
// ended.
func (t Tx) idle(id string) error {
	s, err := t.task(id)
	if err == nil && s.HasInProgressAttempt {
		err = fmt.Errorf("task %q: %w: stop it first", id, task.ErrRunning)
	}
	return err
}

// staying returns ErrNotFound if there is no such task, and ErrDeleting if it is
// being deleted.
func (t Tx) staying(id string) error {
	if err := t.own("task", id); err != nil {
		return err
	}
	var deleting bool
	found, err := t.First(`SELECT deleting_at IS NOT NULL FROM tasks WHERE id = ?`, []any{id}, &deleting)
	switch {
	case err != nil:
		return err
	case !found:
		return task.Missing("task", id)
	case deleting:
		return fmt.Errorf("task %q: %w", id, task.ErrDeleting)
	}
	return nil
}

// setTask changes the status of a task, if it differs.
func (t Tx) setTask(id string, status task.Status) error {
	t.changed(store.TaskChanged, id)
	_, err := t.Exec(`UPDATE tasks SET status = ?1, updated_at = ?2 WHERE id = ?3 AND status <> ?1`, status, t.Now, id)
	return err
}

func (b board) FindRequest(ctx context.Context, r task.Request) (string, error) {
	return read(ctx, b, "looking up a request_id", func(t Tx) (string, error) { return t.findRequest(r) })
}

func (t Tx) findRequest(r task.Request) (result string, err error) {
	if r.RequestID == "" {
		return "", nil
	}
	var digest string
	found, err := t.First(`SELECT args_digest, result FROM requests WHERE identity = ? AND tool = ? AND request_id = ?`,
		[]any{r.Identity, r.Tool, r.RequestID}, &digest, &result)
	if err != nil || !found {
		return "", err
	}
	if digest != r.ArgsDigest {
		return "", fmt.Errorf("request_id %q of %s: %w: give another request_id, or the same arguments as before", task.Clip(r.RequestID), r.Tool, task.ErrReused)
	}
	return result, nil
}

// makeOnce creates what a call requests, or finds the result of the same earlier call. It forgets
// requests that are too old. Rows are numbered in their order, independent of the clock.
func (b board) makeOnce(t Tx, r task.Request, create func() (id string, err error)) (id string, err error) {
	if id, err = t.findRequest(r); err != nil || id != "" {
		return id, err
	}
	if id, err = create(); err != nil || r.RequestID == "" {
		return id, err
	}
	if _, err := t.Exec(`DELETE FROM requests WHERE created_at < ? AND rowid <= (SELECT max(rowid) FROM requests) - ?`,
		task.FormatTime(b.o.Now().Add(-task.RequestsKept)), task.NewestRequests-1); err != nil {
		return "", err
	}
	_, err = t.Exec(`INSERT INTO requests (identity, tool, request_id, args_digest, result, created_at) VALUES (?, ?, ?, ?, ?, ?)`,
		r.Identity, r.Tool, r.RequestID, r.ArgsDigest, id, b.stamp())
	return id, err
}
