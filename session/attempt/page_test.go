package attempt

import (
	"strings"
	"testing"
)

// A page of tasks with long descriptions ends sooner, and its cursor leads to the
// rest: no description is cut, and no task is left out.
func TestListTasksIsBounded(t *testing.T) {
	p := newProject(t)
	s := p.open()
	id, _ := s.rootProject()
	const tasks = 25
	for range tasks {
		_, err := s.CreateTask(ctx, "me", CreateTaskArgs{ProjectID: id, Title: "Long", Description: new(strings.Repeat("d", MaxPrompt))})
		must(t, err)
	}
	seen := map[string]bool{}
	pages := 0
	for next := (*string)(nil); ; pages++ {
		r, err := s.ListTasks(ctx, "me", ListTasksArgs{ProjectID: id, Limit: new(MaxLimit), Cursor: next})
		must(t, err)
		size := 0
		for _, v := range r.Tasks {
			size += len(*v.Description)
			if len(*v.Description) != MaxPrompt || seen[v.TaskID] {
				t.Errorf("task %s has %d bytes of description, seen before: %v", v.TaskID, len(*v.Description), seen[v.TaskID])
			}
			seen[v.TaskID] = true
		}
		if size > listBytes || r.Count != len(r.Tasks) || r.Count == 0 || r.Total != tasks || r.Filters.Limit != MaxLimit {
			t.Errorf("page %d has %d bytes in %d tasks, of %d", pages, size, r.Count, r.Total)
		}
		if next = r.NextCursor; next == nil {
			break
		}
	}
	if len(seen) != tasks || pages < 2 {
		t.Errorf("%d tasks in %d pages", len(seen), pages+1)
	}
}
