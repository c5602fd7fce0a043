package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"

	"github.com/google/uuid"
)

// summary reads a task with its latest attempt and that attempt's latest session. Each is the first entry of
// an index, so a page costs the same for any number of tasks and attempts.
const summary = `SELECT t.id, t.project_id, t.title, t.description, t.status, t.job_name, t.workflow_name, ` +
	`t.inputs, t.lead, t.labels, t.priority, t.caller_group,
	t.created_at, t.updated_at, ` + situation +
	`, a.id AS latest_attempt_id, a.branch AS latest_workspace_branch, s.id AS latest_session_id, s.executor AS ` +
	`latest_session_executor,
	EXISTS (SELECT 1 FROM attempts o WHERE o.task_id = t.id AND o.state IN ('waiting', 'starting', 'running')) AS ` +
	`has_in_progress_attempt,
	coalesce(a.state IN ('failed', 'interrupted'), FALSE) AS last_attempt_failed,
	(SELECT string_agg(d.depends_on, ' ') FROM task_dependencies d WHERE d.task_id = t.id) AS depends_on,
	(SELECT string_agg(d.depends_on, ' ') FROM task_dependencies d JOIN tasks o ON o.id = d.depends_on WHERE ` +
	`d.task_id = t.id AND o.status <> 'done') AS blocked_by
FROM tasks t
LEFT JOIN attempts a ON a.id = (SELECT id FROM attempts WHERE task_id = t.id ORDER BY created_at DESC, id LIMIT 1)
LEFT JOIN sessions s ON s.id = (SELECT id FROM sessions WHERE attempt_id = a.id ORDER BY created_at DESC, id LIMIT 1)
`

func (b board) Tasks(
	ctx context.Context, projectID string, f task.Filter, p task.Page,
) ([]task.Summary, int, string, error) {
	where, args := `t.project_id = ?`, []any{projectID}
	add := func(condition string, values ...any) { where, args = where+condition, append(args, values...) }
	if f.Status != "" {
		if err := f.Status.Check(); err != nil {
			return nil, 0, "", err
		}
		add(` AND t.status = ?`, f.Status)
	}

	total := `SELECT coalesce(sum(tasks), 0) FROM task_counts t`
	if f.Priority != "" || len(f.Labels) > 0 || f.Text != "" {
		total = `SELECT count(*) FROM tasks t` // only statuses are counted in advance
	}
	if f.Priority != "" {
		add(` AND t.priority = ?`, f.Priority)
	}
	for _, label := range f.Labels {
		add(` AND replace(' ' || t.labels || ' ', ?, '') <> ' ' || t.labels || ' '`, " "+label+" ")
	}
	if f.Text != "" {
		add(` AND replace(lower(t.title), lower(?), '') <> lower(t.title)`, f.Text)
	}

	where, args = b.visibleTo(where, args...)
	return listPage(ctx, b, p, []string{"tasks", projectID, string(f.Status), string(f.Priority),
		strings.Join(f.Labels, " "), f.Text}, func(
		s task.Summary,
	) (time.Time, string) {
		return s.CreatedAt, s.ID
	},
		inProject(projectID),
		total+` WHERE `+where,
		summary+`WHERE `+where+
			` AND t.created_at <= ? AND (t.created_at < ? OR t.id > ?) ORDER BY t.created_at DESC, t.id LIMIT ?`,
		args...)
}

func (b board) Task(ctx context.Context, id string) (*task.Summary, error) {
	return read(ctx, b, "reading a task", func(t Tx) *task.Summary { return t.task(id) })
}

// findTask is like task but returns nil if there is none.
func (t Tx) findTask(id string) *task.Summary {
	if !t.sees("task", id) {
		return nil
	}
	return firstRow[task.Summary](t, summary+`WHERE t.id = ?`, id)
}

func (t Tx) task(id string) *task.Summary {
	s := t.findTask(id)
	if s == nil {
		t.Fail(task.Missing("task", id))
	}
	return s
}

func (b board) CreateTask(ctx context.Context, n task.NewTask, r task.Request) (*task.Summary, error) {
	return write(ctx, b, "creating a task", func(t Tx) *task.Summary {
		id := b.makeOnce(t, r, func() string { return t.createTask(n) })
		made := t.findTask(id)
		if made == nil {
			t.Fail(deletedSince(task.Missing("task", id), r))
		}
		return made
	})
}

// deletedSince returns the error for a request whose result was deleted.
func deletedSince(err error, r task.Request) error {
	if r.RequestID == "" {
		return err
	}
	return fmt.Errorf("what the call with request_id %q made %w; give another request_id to make a new one: %w",
		task.Clip(r.RequestID), task.ErrDeleted, err)
}

func (t Tx) createTask(n task.NewTask) string {
	made := task.Task{
		ID:           uuid.NewString(),
		ProjectID:    n.ProjectID,
		Title:        n.Title,
		Status:       task.Todo,
		JobName:      task.NonEmpty(n.JobName),
		WorkflowName: task.NonEmpty(n.WorkflowName),
		Lead:         cmp.Or(n.Lead, task.AgentLeads),
		Labels:       n.Labels,
		Priority:     cmp.Or(n.Priority, task.Normal),
	}
	t.Fail(made.Check())

	var listed bool
	switch found := t.First(`SELECT listed FROM projects WHERE id = ?`, []any{n.ProjectID}, &listed); {
	case !found:
		t.Fail(task.Missing("project", n.ProjectID))
	case !listed:
		t.Fail(fmt.Errorf("project %q is no longer in the config: %w: put it back under projects to add tasks to it",
			task.Clip(n.ProjectID), task.ErrNotFound))
	}

	identity, group := session.LocalIdentity, ""
	if t.who != nil {
		identity, group = t.who.Identity, t.who.Group
	}

	t.changed(store.TaskChanged, made.ID)
	t.Exec(`INSERT INTO tasks (id, project_id, title, description, status, job_name, workflow_name, inputs, lead, `+
		`labels, priority, identity, caller_group, auto_start, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		made.ID, n.ProjectID, n.Title, task.NonEmpty(n.Description), task.Todo, made.JobName, made.WorkflowName,
		textOf(n.Inputs), made.Lead, strings.Join(made.Labels, " "), made.Priority, identity, group, t.mayStart(),
		t.Now, t.Now)
	t.depend(&made, n.DependsOn)
	return made.ID
}

func (b board) UpdateTask(ctx context.Context, id string, c task.TaskChange) (*task.Summary, error) {
	const doing = "updating a task"
	if c.Status != nil {
		if err := c.Status.Check(); err != nil {
			return nil, wrap(doing, err)
		}
	}
	return write(ctx, b, doing, func(t Tx) *task.Summary {
		s := t.task(id)
		was := s.Status
		t.Fail(c.Apply(&s.Task))
		depends := c.DependsOn != nil && t.depend(&s.Task, c.DependsOn)
		given := c.Group != nil && *c.Group != s.CallerGroup
		if given {
			t.give(id, *c.Group)
		}
		if t.Exec(`UPDATE tasks SET title = ?1, description = ?2, status = ?3, job_name = ?4, workflow_name = ?5, `+
			`inputs = ?10, labels = ?11, priority = ?12, updated_at = ?6, auto_start = auto_start AND ?9
			WHERE id = ?7 AND (?8 OR (title, description, status, job_name, workflow_name, inputs, labels, `+
			`priority) IS DISTINCT FROM (?1, ?2, ?3, ?4, ?5, ?10, ?11, ?12))`,
			s.Title, s.Description, s.Status, s.JobName, s.WorkflowName, t.Now, id, depends || given, t.mayStart(),
			textOf(s.Inputs), strings.Join(s.Labels, " "), s.Priority) > 0 {
			t.changed(store.TaskChanged, id)
		}
		if (was == task.Done) != (s.Status == task.Done) {
			t.changedDependents(id)
		}
		return t.task(id)
	})
}

func (b board) BeginDelete(ctx context.Context, id string) ([]string, error) {
	return write(ctx, b, "deleting a task", func(t Tx) []string {
		t.idle(id)
		t.Exec(`UPDATE tasks SET deleting_at = coalesce(deleting_at, ?) WHERE id = ?`, t.Now, id)
		t.changed(store.TaskChanged, id)
		return List[string](t, attemptIDs, id)
	})
}

func (b board) UndoDelete(ctx context.Context, id string) error {
	return change(ctx, b, "keeping a task", func(t Tx) {
		t.mustSee("task", id)
		t.changed(store.TaskChanged, id)
		t.dropRemovals(id)
		t.Exec(`UPDATE tasks SET deleting_at = NULL WHERE id = ?`, id)
	})
}

func (b board) Deleting(ctx context.Context) ([]string, error) {
	return read(ctx, b, "listing tasks that are being deleted", func(t Tx) []string {
		return List[string](t, `SELECT id FROM tasks WHERE deleting_at IS NOT NULL ORDER BY deleting_at, id`)
	})
}

func (b board) DeleteTask(ctx context.Context, id string) error {
	return change(ctx, b, "deleting a task", func(t Tx) {
		t.idle(id)
		t.changed(store.TaskChanged, id)
		t.changed(store.TaskDeleted, id)
		t.changedDependents(id)
		t.dropRemovals(id)
		t.Exec(`DELETE FROM tasks WHERE id = ?`, id)
	})
}

// idle fails with ErrNotFound if there is no such task, and with ErrRunning if one of its attempts has not
// ended.
func (t Tx) idle(id string) {
	if t.task(id).HasInProgressAttempt {
		t.Fail(fmt.Errorf("task %q: %w: stop it first", id, task.ErrRunning))
	}
}

// staying fails with ErrNotFound if there is no such task, and with ErrDeleting if it is
// being deleted.
func (t Tx) staying(id string) {
	t.mustSee("task", id)
	var deleting bool
	switch found := t.First(`SELECT deleting_at IS NOT NULL FROM tasks WHERE id = ?`, []any{id}, &deleting); {
	case !found:
		t.Fail(task.Missing("task", id))
	case deleting:
		t.Fail(fmt.Errorf("task %q: %w", id, task.ErrDeleting))
	}
}

// setTask sets the status of a task if it differs.
func (t Tx) setTask(id string, status task.Status) {
	t.changed(store.TaskChanged, id)
	t.Exec(`UPDATE tasks SET status = ?1, updated_at = ?2 WHERE id = ?3 AND status <> ?1`, status, t.Now, id)
}

func (b board) FindRequest(ctx context.Context, r task.Request) (string, error) {
	return read(ctx, b, "looking up a request_id", func(t Tx) string { return t.findRequest(r) })
}

func (t Tx) findRequest(r task.Request) (result string) {
	if r.RequestID == "" {
		return ""
	}

	var digest string
	found := t.First(`SELECT args_digest, result FROM requests WHERE identity = ? AND tool = ? AND request_id = ?`,
		[]any{r.Identity, r.Tool, r.RequestID}, &digest, &result)
	if found && digest != r.ArgsDigest {
		t.Fail(fmt.Errorf("request_id %q of %s: %w: give another request_id, or the same arguments as before",
			task.Clip(r.RequestID), r.Tool, task.ErrReused))
	}
	return result
}

// doOnce is makeOnce for results that are not read again: it fails with ErrRepeated if the same call was made
// earlier.
func (b board) doOnce(t Tx, r task.Request, do func() (result string)) (result string) {
	if t.findRequest(r) != "" {
		t.Fail(task.ErrRepeated)
	}
	return b.makeOnce(t, r, do)
}

// makeOnce creates what a call requests, or finds the result of the same earlier call. It forgets requests
// that are too old. Rows are numbered in order, independent of the clock.
func (b board) makeOnce(t Tx, r task.Request, create func() (id string)) (id string) {
	if id = t.findRequest(r); id != "" {
		return id
	}
	id = create()
	if r.RequestID == "" {
		return id
	}

	t.Exec(`DELETE FROM requests WHERE created_at < ? AND rowid <= (SELECT max(rowid) FROM requests) - ?`,
		task.FormatTime(b.o.Now().Add(-task.RequestsKept)), task.NewestRequests-1)
	t.Exec(
		`INSERT INTO requests (identity, tool, request_id, args_digest, result, created_at) VALUES (?, ?, ?, ?, ?, ?)`,
		r.Identity, r.Tool, r.RequestID, r.ArgsDigest, id, b.stamp())
	return id
}
