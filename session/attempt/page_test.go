package attempt

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"deepwork/catalog/task"
	"deepwork/session/board"
)

// A page of tasks with long descriptions ends sooner, and its cursor leads to the
// rest: no description is cut, and no task is left out.
func TestListTasksIsBounded(t *testing.T) {
	p := newProject(t)
	s := p.open()
	id, _ := s.rootProject()
	const tasks = 25
	for range tasks {
		_, err := s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: id, Title: "Long", Description: new(strings.Repeat("d", board.MaxPrompt))})
		must(t, err)
	}
	seen := map[string]bool{}
	pages := 0
	for next := (*string)(nil); ; pages++ {
		r, err := s.ListTasks(ctx, me, board.ListTasksArgs{ProjectID: id, Limit: new(board.MaxLimit), Cursor: next})
		must(t, err)
		size := 0
		for _, v := range r.Tasks {
			size += len(*v.Description)
			if len(*v.Description) != board.MaxPrompt || seen[v.TaskID] {
				t.Errorf("task %s has %d bytes of description, seen before: %v", v.TaskID, len(*v.Description), seen[v.TaskID])
			}
			seen[v.TaskID] = true
		}
		if size > board.ListBytes || r.Count != len(r.Tasks) || r.Count == 0 || r.Total != tasks || r.Filters.Limit != board.MaxLimit {
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

// Whatever a repository is called, its worktree has its own folder in the attempt's.
func TestFoldersOfWorktrees(t *testing.T) {
	var repos []task.AttemptRepo
	for _, name := range []string{"web", "WEB", "web-2", "", ".", "..", "../x", "a/b", ".git", "a\nb", "the api", strings.Repeat("x", 201)} {
		repos = append(repos, task.AttemptRepo{RepoName: name})
	}
	setWorktrees("/dir", repos)
	fit, seen := regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,70}$`), make(map[string]bool)
	for _, r := range repos {
		dir, name := filepath.Split(r.Worktree)
		if low := strings.ToLower(name); dir != filepath.FromSlash("/dir/") || !fit.MatchString(name) || seen[low] {
			t.Errorf("%q is in %q", r.RepoName, r.Worktree)
		} else {
			seen[low] = true
		}
	}
}
