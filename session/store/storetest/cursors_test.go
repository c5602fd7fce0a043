package storetest_test

import (
	"errors"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
)

func TestCursorsOfOtherListsAreRefused(t *testing.T) {
	b, _, p := newBoard(t)
	testkit.Must(t, b.SyncProjects(t.Context(), []task.ProjectSpec{root, {Name: "other", Repos: []task.RepoSpec{{Name: "a", Path: abs("a")}}}}, false))
	for range 2 {
		addTask(t, b, p, "x")
	}
	_, _, tasks, err := b.Tasks(t.Context(), p.ID, "", task.Page{Limit: 1})
	if err != nil || tasks == "" {
		t.Fatal(err)
	}
	_, _, projects, err := b.Projects(t.Context(), task.Page{Limit: 1})
	if err != nil || projects == "" {
		t.Fatal(err)
	}
	list, _, _, err := b.Projects(t.Context(), task.Page{Limit: 9})
	if err != nil || len(list) != 2 {
		t.Fatal(err)
	}
	other := list[0].ID
	if other == p.ID {
		other = list[1].ID
	}
	for what, err := range map[string]error{
		"status":   last(b.Tasks(t.Context(), p.ID, task.Todo, task.Page{Limit: 1, Cursor: tasks})),
		"project":  last(b.Tasks(t.Context(), other, "", task.Page{Limit: 1, Cursor: tasks})),
		"tasks":    last(b.Tasks(t.Context(), p.ID, "", task.Page{Limit: 1, Cursor: projects})),
		"projects": last(b.Projects(t.Context(), task.Page{Limit: 1, Cursor: tasks})),
		"repos":    last(b.Repos(t.Context(), p.ID, task.Page{Limit: 1, Cursor: tasks})),
		"attempts": second(b.TaskAttempts(t.Context(), p.ID, task.Page{Limit: 1, Cursor: tasks})),
		"garbage":  last(b.Projects(t.Context(), task.Page{Limit: 1, Cursor: "garbage"})),
		"long":     last(b.Projects(t.Context(), task.Page{Limit: 1, Cursor: strings.Repeat("ä", 10_000)})),
	} {
		equal(t, what, errors.Is(err, task.ErrCursor), true, strings.Contains(err.Error(), "the cursor that this list's last page came with"), true, len(err.Error()) > 500, false)
	}
}

func last[T any](_ []T, _ int, _ string, err error) error { return err }
