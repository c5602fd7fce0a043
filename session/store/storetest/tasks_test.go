package storetest_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
)

func TestTasksAreCreatedChangedAndDeleted(t *testing.T) {
	b, c, p := newBoard(t)
	s := returned(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "Ein Titel\x00\n", Description: new("text"), JobName: new("job"), WorkflowName: new("flow")}, task.Request{})).of(t)
	made := c.at.UTC().Truncate(time.Microsecond)
	if s.Title != "Ein Titel\x00\n" || *s.Description != "text" || s.Status != task.Todo || *s.JobName != "job" || *s.WorkflowName != "flow" ||
		s.ProjectID != p.ID || !s.CreatedAt.Equal(made) || !s.UpdatedAt.Equal(made) || s.LatestAttemptID != nil || s.HasInProgressAttempt || s.LastAttemptFailed {
		t.Errorf("%+v", s)
	}
	c.forward(time.Minute)
	s, err := b.UpdateTask(t.Context(), s.ID, task.TaskChange{Title: new("New"), Status: new(task.Done)})
	if err != nil || s.Title != "New" || s.Status != task.Done || *s.Description != "text" || *s.JobName != "job" ||
		!s.CreatedAt.Equal(made) || !s.UpdatedAt.Equal(made.Add(time.Minute)) {
		t.Errorf("%+v %v", s, err)
	}
	s = returned(b.UpdateTask(t.Context(), s.ID, task.TaskChange{Description: new(""), JobName: new(""), WorkflowName: new("")})).of(t)
	equal(t, s.Description, nil, s.JobName, nil, s.WorkflowName, nil, s.Title, "New", s.Status, task.Done)
	equal(t, taskOf(t, b, s.ID), s)
	testkit.Must(t, b.DeleteTask(t.Context(), s.ID))
	_, read := b.Task(t.Context(), s.ID)
	_, changed := b.UpdateTask(t.Context(), s.ID, task.TaskChange{Title: new("x")})
	for what, err := range map[string]error{"read": read, "changed": changed, "deleted": b.DeleteTask(t.Context(), s.ID)} {
		equal(t, what, errors.Is(err, task.ErrNotFound), true, strings.Contains(err.Error(), fmt.Sprintf("task %q", s.ID)), true)
	}
}

func TestTasksThatAreRefused(t *testing.T) {
	b, _, p := newBoard(t)
	s := addTask(t, b, p, "one")
	create := func(n task.NewTask) error { _, err := b.CreateTask(t.Context(), n, task.Request{}); return err }
	change := func(c task.TaskChange) error { _, err := b.UpdateTask(t.Context(), s.ID, c); return err }
	for name, test := range map[string]struct {
		err  error
		want error
		text string
	}{
		"no project":       {create(task.NewTask{ProjectID: "nobody", Title: "x"}), task.ErrNotFound, `project "nobody"`},
		"blank title":      {create(task.NewTask{ProjectID: p.ID, Title: " \t"}), task.ErrInvalid, "title is blank"},
		"job alone":        {create(task.NewTask{ProjectID: p.ID, Title: "x", JobName: new("j")}), task.ErrInvalid, "workflow_name is missing"},
		"workflow alone":   {create(task.NewTask{ProjectID: p.ID, Title: "x", JobName: new(""), WorkflowName: new("w")}), task.ErrInvalid, "job_name is missing"},
		"changed to blank": {change(task.TaskChange{Title: new("")}), task.ErrInvalid, "title is blank"},
		"unknown status":   {change(task.TaskChange{Status: new(task.Status("paused"))}), task.ErrInvalid, `status "paused" is not one of [todo inprogress inreview done cancelled]`},
		"job added alone":  {change(task.TaskChange{JobName: new("j")}), task.ErrInvalid, "both or neither"},
	} {
		equal(t, name, errors.Is(test.err, test.want), true, strings.Contains(fmt.Sprint(test.err), test.text), true)
	}
	equal(t, taskOf(t, b, s.ID), s)
	if _, total, _, err := b.Tasks(t.Context(), p.ID, "", task.Page{Limit: 1}); total != 1 || err != nil {
		t.Error(total, err)
	}
}

// TestReq004_ListTasksNewestFirst pages through a list while rows are added and
// removed, with several rows in one microsecond.
func TestReq004_ListTasksNewestFirst(t *testing.T) {
	b, c, p := newBoard(t)
	var want []*task.Summary
	for i := range 23 {
		if i%3 == 0 {
			c.forward(time.Microsecond)
		}
		want = append(want, addTask(t, b, p, fmt.Sprint(i)))
	}
	slices.SortFunc(want, func(x, y *task.Summary) int {
		if n := y.CreatedAt.Compare(x.CreatedAt); n != 0 {
			return n
		}
		return strings.Compare(x.ID, y.ID)
	})
	for _, limit := range []int{-1, 1, 2, 5, 22, 23, 24, 100, math.MaxInt} {
		var got []string
		cursor := ""
		for pages := 0; ; pages++ {
			list, total, next, err := b.Tasks(t.Context(), p.ID, "", task.Page{Limit: limit, Cursor: cursor})
			if err != nil || total != len(want) || len(list) == 0 || len(list) > max(1, limit) || pages > len(want) {
				t.Fatal(limit, list, total, err)
			}
			for _, s := range list {
				got = append(got, s.ID)
			}
			if cursor = next; next == "" {
				break
			}
		}
		if len(got) != len(want) {
			t.Fatalf("limit %d: %d of %d tasks", limit, len(got), len(want))
		}
		for i, id := range got {
			equal(t, limit, id, want[i].ID)
		}
	}
	first, _, next, err := b.Tasks(t.Context(), p.ID, "", task.Page{Limit: 10})
	testkit.Must(t, err)
	c.forward(time.Second)
	addTask(t, b, p, "newer than the first page")
	testkit.Must(t, b.DeleteTask(t.Context(), first[9].ID)) // where the cursor is
	rest, total, next, err := b.Tasks(t.Context(), p.ID, "", task.Page{Limit: 100, Cursor: next})
	testkit.Must(t, err)
	equal(t, total, 23, next, "", len(rest), 13, rest[0].ID, want[10].ID)
}

func TestReq004_ListTasksByStatus(t *testing.T) {
	b, c, p := newBoard(t)
	for i, status := range []task.Status{task.Todo, task.Done, task.Todo, task.InReview, task.Done, task.Done} {
		c.forward(time.Second)
		s := addTask(t, b, p, fmt.Sprint(i))
		testkit.Must(t, second(b.UpdateTask(t.Context(), s.ID, task.TaskChange{Status: &status})))
	}
	titles := func(status task.Status, p task.Project) (all []string) {
		list, total, next, err := b.Tasks(t.Context(), p.ID, status, task.Page{Limit: 50})
		testkit.Must(t, err)
		equal(t, status, total, len(list), next, "")
		for _, s := range list {
			all = append(all, s.Title)
		}
		return all
	}
	for status, want := range map[task.Status][]string{"": {"5", "4", "3", "2", "1", "0"}, task.Done: {"5", "4", "1"}, task.Todo: {"2", "0"}, task.InReview: {"3"}, task.Cancelled: nil, task.InProgress: nil} {
		equal(t, status, titles(status, p), want)
	}
	if _, total, next, err := b.Tasks(t.Context(), p.ID, task.Done, task.Page{Limit: 2}); total != 3 || next == "" || err != nil {
		t.Error(total, next, err)
	}
	if _, _, _, err := b.Tasks(t.Context(), p.ID, "finished", task.Page{Limit: 2}); !errors.Is(err, task.ErrInvalid) {
		t.Error(err)
	}
	if _, _, _, err := b.Tasks(t.Context(), "nobody", "", task.Page{Limit: 2}); !errors.Is(err, task.ErrNotFound) {
		t.Error(err)
	}
}

// TestReq004_LatestAttempt: created_at DESC, attempt_id ASC.
func TestReq004_LatestAttempt(t *testing.T) {
	b, c, p := newBoard(t)
	s := addTask(t, b, p, "one")
	other := addTask(t, b, p, "other")
	try(t, b, other)
	attempt := func(id string) {
		testkit.Must(t, second(b.CreateAttempt(t.Context(), task.Attempt{ID: id, TaskID: s.ID, Executor: "X", Branch: "deepwork/" + id[:4], Workspace: "/w"}, task.Execution{Prompt: "p"}, task.Request{})))
	}
	const a1, a2, a3 = "11111111-0000-4000-8000-000000000000", "22222222-0000-4000-8000-000000000000", "33333333-0000-4000-8000-000000000000"
	attempt(a3)
	attempt(a1)
	attempt(a2)
	latest := func(want string) {
		t.Helper()
		got := taskOf(t, b, s.ID)
		if got.LatestAttemptID == nil || *got.LatestAttemptID != want || *got.LatestWorkspaceBranch != "deepwork/"+want[:4] || !got.HasInProgressAttempt {
			t.Errorf("latest is %v, want %s", *got.LatestAttemptID, want)
		}
		l := returned(b.TaskAttempts(t.Context(), s.ID, task.Page{Limit: 50})).of(t)
		equal(t, l.Total, len(l.Attempts), l.Attempts[0].ID, want, *l.Task.LatestAttemptID, want)
	}
	latest(a1)
	c.forward(-time.Hour) // an older row added later
	attempt("00000000-0000-4000-8000-000000000000")
	latest(a1)
	c.forward(time.Hour + time.Microsecond)
	attempt("44444444-0000-4000-8000-000000000000")
	latest("44444444-0000-4000-8000-000000000000")
	l, err := b.TaskAttempts(t.Context(), s.ID, task.Page{Limit: 2})
	if err != nil || l.Total != 5 || len(l.Attempts) != 2 || l.Attempts[1].ID != a1 {
		t.Fatal(l, err)
	}
	l = returned(b.TaskAttempts(t.Context(), s.ID, task.Page{Limit: 3, Cursor: l.Next})).of(t)
	equal(t, l.Next, "", len(l.Attempts), 3, l.Attempts[0].ID, a2, l.Attempts[1].ID, a3)
	allAttempts := returned(b.AllAttempts(t.Context())).of(t)
	equal(t, len(allAttempts), 6)
}
