package task

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// A NewTask is a task to be made; its status is todo. An empty Description,
// JobName or WorkflowName is none.
type NewTask struct {
	ProjectID, Title      string
	Description           *string
	JobName, WorkflowName *string
}

// CreateTask makes a task, or finds the one that the same request made before
// and returns it as it is now. ErrNotFound: there is no such project in the
// config; ErrDeleted as well: the task that the request made was deleted; ErrReused: the request
// was another; ErrInvalid: the title is blank, or there is a job without a
// workflow or the reverse.
func (b *Board) CreateTask(ctx context.Context, n NewTask, r Request) (s *Summary, err error) {
	now := b.stamp()
	err = b.write(ctx, "creating a task", func(t tx) error {
		id, err := b.makeOnce(t, r, func() (string, error) { return t.createTask(n, now) })
		if err != nil {
			return err
		}
		s, err = t.task(id)
		return deletedSince(err, r)
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// deletedSince says of what a request made that it is gone.
func deletedSince(err error, r Request) error {
	if errors.Is(err, ErrNotFound) && r.RequestID != "" {
		return fmt.Errorf("what the call with request_id %q made %w; give another request_id to make a new one: %w", clip(r.RequestID), ErrDeleted, err)
	}
	return err
}

func (t tx) createTask(n NewTask, now string) (string, error) {
	job, workflow := none(n.JobName), none(n.WorkflowName)
	if err := checkTask(n.Title, job, workflow); err != nil {
		return "", err
	}
	var listed bool
	found, err := t.one(`SELECT listed FROM projects WHERE id = ?`, []any{n.ProjectID}, &listed)
	switch {
	case err != nil:
		return "", err
	case !found:
		return "", missing("project", n.ProjectID)
	case !listed:
		return "", fmt.Errorf("project %q is no longer in the config: %w: put it back under projects to add tasks to it", clip(n.ProjectID), ErrNotFound)
	}
	id, err := newID()
	if err != nil {
		return "", err
	}
	_, err = t.exec(`INSERT INTO tasks (id, project_id, title, description, status, job_name, workflow_name, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		id, n.ProjectID, n.Title, none(n.Description), Todo, job, workflow, now, now)
	return id, err
}

// none takes an empty text for none.
func none(s *string) *string {
	if s == nil || *s == "" {
		return nil
	}
	return s
}

func checkTask(title string, job, workflow *string) error {
	switch {
	case strings.TrimSpace(title) == "":
		return fmt.Errorf("%w: the title is blank", ErrInvalid)
	case job != nil && workflow == nil:
		return fmt.Errorf("%w: job_name is %q, and workflow_name is missing: a task names both or neither", ErrInvalid, clip(*job))
	case job == nil && workflow != nil:
		return fmt.Errorf("%w: workflow_name is %q, and job_name is missing: a task names both or neither", ErrInvalid, clip(*workflow))
	}
	return nil
}

// A TaskChange sets what is not nil; an empty Description, JobName or
// WorkflowName clears it.
type TaskChange struct {
	Title, Description    *string
	Status                *Status
	JobName, WorkflowName *string
}

// UpdateTask changes a task and returns it, or ErrNotFound; ErrInvalid: see
// CreateTask, or the status is unknown. Where it is all that already, nothing is
// written, and UpdatedAt stays (seed 004, update_task).
func (b *Board) UpdateTask(ctx context.Context, id string, c TaskChange) (s *Summary, err error) {
	if c.Status != nil && !c.Status.valid() {
		return nil, wrap("updating a task", unknownStatus(*c.Status))
	}
	now := b.stamp()
	err = b.write(ctx, "updating a task", func(t tx) error {
		if s, err = t.task(id); err != nil {
			return err
		}
		if c.Title != nil {
			s.Title = *c.Title
		}
		if c.Status != nil {
			s.Status = *c.Status
		}
		for _, f := range []struct{ to, from **string }{
			{&s.Description, &c.Description}, {&s.JobName, &c.JobName}, {&s.WorkflowName, &c.WorkflowName},
		} {
			if *f.from != nil {
				*f.to = none(*f.from)
			}
		}
		if err := checkTask(s.Title, s.JobName, s.WorkflowName); err != nil {
			return err
		}
		if _, err := t.exec(`UPDATE tasks SET title = ?, description = ?, status = ?, job_name = ?, workflow_name = ?, updated_at = ?
			WHERE id = ? AND (title, description, status, job_name, workflow_name) IS NOT (?, ?, ?, ?, ?)`,
			s.Title, s.Description, s.Status, s.JobName, s.WorkflowName, now, id,
			s.Title, s.Description, s.Status, s.JobName, s.WorkflowName); err != nil {
			return err
		}
		s, err = t.task(id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}
