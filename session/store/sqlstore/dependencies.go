package sqlstore

import (
	"fmt"
	"slices"

	"deepwork/catalog/task"
	"deepwork/session/store"
)

// depend sets the dependencies of a task. It reports whether that changes anything.
func (t Tx) depend(of *task.Task, on []string) (changed bool) {
	on = slices.Compact(slices.Sorted(slices.Values(on)))
	if slices.Equal(on, of.DependsOn) {
		return false
	}
	if len(on) > task.MaxDependencies {
		t.Fail(fmt.Errorf("%w: the task is to depend on %d others, and at most %d are allowed", task.ErrInvalid,
			len(on), task.MaxDependencies))
	}
	for _, id := range of.DependsOn {
		if !slices.Contains(on, id) {
			t.Exec(`DELETE FROM task_dependencies WHERE task_id = ? AND depends_on = ?`, of.ID, id)
		}
	}

	for _, id := range on {
		if slices.Contains(of.DependsOn, id) {
			continue
		}
		if id == of.ID {
			t.Fail(&task.CycleError{Way: []string{id, id}})
		}
		switch o := t.findTask(id); {
		case o == nil:
			t.Fail(fmt.Errorf("%w: there is no task %q to depend on", task.ErrDependency, task.Clip(id)))
		case o.ProjectID != of.ProjectID:
			t.Fail(fmt.Errorf("%w: task %q belongs to another project", task.ErrDependency, id))
		}
		t.Exec(`INSERT INTO task_dependencies (task_id, depends_on) VALUES (?, ?)`, of.ID, id)
	}
	t.acyclic(of.ID)
	return true
}

// acyclic fails with ErrCycle, which contains the path, if a task depends on itself through others.
func (t Tx) acyclic(id string) {
	dependsOn := t.dependencies(`WITH RECURSIVE reached (task_id, depends_on) AS (
			SELECT task_id, depends_on FROM task_dependencies WHERE task_id = ?
			UNION SELECT d.task_id, d.depends_on FROM task_dependencies d JOIN reached r ON d.task_id = r.depends_on)
		SELECT task_id, depends_on FROM reached`, id)
	if way := task.Cycle(id, dependsOn); way != nil {
		t.Fail(&task.CycleError{Way: way})
	}
}

// dependencies reads the dependencies of tasks.
func (t Tx) dependencies(query string, args ...any) map[string][]string {
	of := make(map[string][]string)
	for _, d := range List[struct{ TaskID, DependsOn string }](t, query, args...) {
		of[d.TaskID] = append(of[d.TaskID], d.DependsOn)
	}
	return of
}

// changedDependents records a change of the tasks that depend on a task: what blocks them has changed.
func (t Tx) changedDependents(id string) {
	for _, of := range List[string](t, `SELECT task_id FROM task_dependencies WHERE depends_on = ?`, id) {
		t.changed(store.TaskChanged, of)
	}
}

// unblocked fails with a task.BlockedError if a task depends on one that is not done.
func (t Tx) unblocked(id string) {
	s := t.task(id)
	if len(s.BlockedBy) == 0 {
		return
	}

	blocked := &task.BlockedError{TaskID: id}
	for _, by := range s.BlockedBy {
		b := task.Blocker{ID: by}
		if o := t.findTask(by); o != nil {
			b.Title, b.Status = o.Title, o.Status
		}
		blocked.By = append(blocked.By, b)
	}
	t.Fail(blocked)
}
