package sqlstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"deepwork/catalog/task"
	"deepwork/session/store"
)

// depend makes a task depend on others, and on no more. It reports whether that is a change.
func (t Tx) depend(of *task.Task, on []string) (changed bool, err error) {
	on = slices.Compact(slices.Sorted(slices.Values(on)))
	if slices.Equal(on, of.DependsOn) {
		return false, nil
	}
	if len(on) > task.MaxDependencies {
		return false, fmt.Errorf("%w: the task is to depend on %d others, and at most %d are allowed", task.ErrInvalid, len(on), task.MaxDependencies)
	}
	for _, id := range of.DependsOn {
		if slices.Contains(on, id) {
			continue
		}
		if _, err := t.Exec(`DELETE FROM task_dependencies WHERE task_id = ? AND depends_on = ?`, of.ID, id); err != nil {
			return false, err
		}
	}
	for _, id := range on {
		if slices.Contains(of.DependsOn, id) {
			continue
		}
		if id == of.ID {
			return false, fmt.Errorf("%w: task %q depends on itself", task.ErrCycle, id)
		}
		o, err := t.task(id)
		if errors.Is(err, task.ErrNotFound) {
			return false, fmt.Errorf("%w: there is no task %q to depend on", task.ErrDependency, task.Clip(id))
		}
		if err != nil {
			return false, err
		}
		if o.ProjectID != of.ProjectID {
			return false, fmt.Errorf("%w: task %q belongs to another project", task.ErrDependency, id)
		}
		if _, err := t.Exec(`INSERT INTO task_dependencies (task_id, depends_on) VALUES (?, ?)`, of.ID, id); err != nil {
			return false, err
		}
	}
	return true, t.acyclic(of.ID)
}

// acyclic returns ErrCycle, with the way, if a task depends on itself through others.
func (t Tx) acyclic(id string) error {
	dependsOn, err := t.dependencies(`WITH RECURSIVE reached (task_id, depends_on) AS (
			SELECT task_id, depends_on FROM task_dependencies WHERE task_id = ?
			UNION SELECT d.task_id, d.depends_on FROM task_dependencies d JOIN reached r ON d.task_id = r.depends_on)
		SELECT task_id, depends_on FROM reached`, id)
	if err != nil {
		return err
	}
	if way := task.Cycle(id, dependsOn); way != nil {
		return fmt.Errorf("%w: %s", task.ErrCycle, strings.Join(way, " depends on "))
	}
	return nil
}

// dependencies reads what tasks depend on.
func (t Tx) dependencies(query string, args ...any) (map[string][]string, error) {
	all, err := List[struct{ TaskID, DependsOn string }](t, query, args...)
	of := make(map[string][]string)
	for _, d := range all {
		of[d.TaskID] = append(of[d.TaskID], d.DependsOn)
	}
	return of, err
}

// changedDependents records a change of the tasks that depend on one, since other tasks block them now.
func (t Tx) changedDependents(id string) error {
	all, err := List[string](t, `SELECT task_id FROM task_dependencies WHERE depends_on = ?`, id)
	for _, of := range all {
		t.changed(store.TaskChanged, of)
	}
	return err
}

// unblocked returns a task.BlockedError if a task depends on one that is not done.
func (t Tx) unblocked(id string) error {
	s, err := t.task(id)
	if err != nil || len(s.BlockedBy) == 0 {
		return err
	}
	blocked := &task.BlockedError{TaskID: id}
	for _, by := range s.BlockedBy {
		b := task.Blocker{ID: by}
		switch o, err := t.task(by); {
		case err == nil:
			b.Title, b.Status = o.Title, o.Status
		case !errors.Is(err, task.ErrNotFound):
			return err
		}
		blocked.By = append(blocked.By, b)
	}
	return blocked
}
