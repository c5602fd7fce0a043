package sqlstore_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/actor/xslices"
	"deepwork/catalog/task"
	"deepwork/session"
)

func TestTasksAreCreatedChangedAndDeleted(t *testing.T) {
	b, c, p := newBoard(t)
	made := c.at.UTC().Truncate(time.Microsecond)
	want := task.Summary{Task: task.Task{
		ProjectID:    p.ID,
		Title:        "Ein Titel\x00\n\xff",
		Description:  new("text"),
		Status:       task.Todo,
		JobName:      new("job"),
		WorkflowName: new("flow"),
		Inputs:       json.RawMessage(`{"a":"x"}`),
		Priority:     task.Normal,
		Lead:         task.AgentLeads,
		CreatedAt:    made,
		UpdatedAt:    made,
	}}
	s := testkit.Get(b.CreateTask(t.Context(), task.NewTask{
		ProjectID:    p.ID,
		Title:        want.Title,
		Description:  want.Description,
		JobName:      want.JobName,
		WorkflowName: want.WorkflowName,
		Inputs:       want.Inputs,
	}, task.Request{})).Must(t)
	want.ID = s.ID
	if backend != "sqlite" {
		want.Title = strings.ToValidUTF8(want.Title, "\uFFFD")
	}
	equal(t, *s, want)
	c.forward(time.Minute)
	want.Title = "New"
	want.Status = task.Done
	want.UpdatedAt = made.Add(time.Minute)
	change := func(c task.TaskChange) { equal(t, testkit.Get(b.UpdateTask(t.Context(), s.ID, c)).Must(t), want) }
	change(task.TaskChange{Title: new("New"), Status: new(task.Done)})
	want.Inputs = json.RawMessage(`{"b":["y"]}`)
	change(task.TaskChange{Inputs: want.Inputs})
	want.Inputs = nil
	change(task.TaskChange{Inputs: json.RawMessage{}})
	want.Description = nil
	want.JobName = nil
	want.WorkflowName = nil
	change(task.TaskChange{Description: new(""), JobName: new(""), WorkflowName: new("")})
	equal(t, taskOf(t, b, s.ID), want)
	testkit.Must(t, b.DeleteTask(t.Context(), s.ID))
	says(t, second(b.Task(t.Context(), s.ID)), task.ErrNotFound, fmt.Sprintf("task %q", s.ID))
	says(t, second(b.UpdateTask(t.Context(), s.ID, task.TaskChange{Title: new("x")})), task.ErrNotFound,
		fmt.Sprintf("task %q", s.ID))
	says(t, b.DeleteTask(t.Context(), s.ID), task.ErrNotFound, fmt.Sprintf("task %q", s.ID))
}

func TestTasksThatAreRefused(t *testing.T) {
	b, _, p := newBoard(t)
	s := addTask(t, b, p, "one")
	create := func(n task.NewTask, want error, text string) {
		says(t, second(b.CreateTask(t.Context(), n, task.Request{})), want, text)
	}
	change := func(c task.TaskChange, text string) {
		t.Helper()
		says(t, second(b.UpdateTask(t.Context(), s.ID, c)), task.ErrInvalid, text)
	}
	create(task.NewTask{ProjectID: "nobody", Title: "x"}, task.ErrNotFound, `project "nobody"`)
	create(task.NewTask{ProjectID: p.ID, Title: " \t"}, task.ErrInvalid, "title is blank")
	create(task.NewTask{ProjectID: p.ID, Title: "x", JobName: new("j")}, task.ErrInvalid, "workflow_name is missing")
	create(task.NewTask{ProjectID: p.ID, Title: "x", JobName: new(""), WorkflowName: new("w")}, task.ErrInvalid,
		"job_name is missing")
	change(task.TaskChange{Title: new("")}, "title is blank")
	change(task.TaskChange{Status: new(task.Status("paused"))},
		`status "paused" is not one of [todo inprogress inreview done cancelled]`)
	change(task.TaskChange{JobName: new("j")}, "both or neither")
	testkit.Must(t, b.SyncProjects(t.Context(), []task.ProjectSpec{root, {Name: "front"}}, false))
	foreign := addTask(t, b, task.Project{ID: ids(t, b)["front"]}, "foreign")
	var chain []*task.Summary // each depends on the one before
	for i := range 4 {
		chain = append(chain, addTask(t, b, p, fmt.Sprint(i)))
		if i > 0 {
			testkit.Must(t, second(dependOn(b, chain[i], chain[i-1])))
		}
	}
	testkit.Must(t, second(dependOn(b, chain[3], chain[2], chain[1], chain[0]))) // a diamond
	many := make([]string, task.MaxDependencies+1)
	for i := range many {
		many[i] = fmt.Sprintf("%08d-0000-4000-8000-000000000000", i)
	}
	before := taskOf(t, b, chain[0].ID)
	depend := func(want error, text string, on ...string) {
		t.Helper()
		says(t, second(b.UpdateTask(t.Context(), before.ID, task.TaskChange{Title: new("changed"), DependsOn: on})),
			want, text)
	}
	const nobody = "3b241101-e2bb-4255-8caf-4136c566a962"
	depend(task.ErrCycle, before.ID+" depends on "+before.ID, before.ID)
	depend(task.ErrCycle, before.ID+" depends on "+chain[1].ID+" depends on "+before.ID, chain[1].ID)
	depend(task.ErrCycle, before.ID+" depends on "+chain[3].ID+" depends on ", chain[3].ID)
	depend(task.ErrDependency, foreign.ID, foreign.ID)
	depend(task.ErrDependency, nobody, nobody)
	depend(task.ErrInvalid, "51", many...)
	create(task.NewTask{ProjectID: p.ID, Title: "x", DependsOn: []string{chain[0].ID, nobody}},
		task.ErrDependency, nobody)
	create(task.NewTask{ProjectID: p.ID, Title: "x", DependsOn: []string{foreign.ID}}, task.ErrDependency, foreign.ID)
	equal(t, "a refusal changed to", taskOf(t, b, before.ID), before)
	list, total, _ := b.tasks(t, p.ID, task.Filter{}, task.Page{Limit: 9})
	equal(t, total, len(chain)+1, *s, list[slices.IndexFunc(list, func(x task.Summary) bool { return x.ID == s.ID })])
}

// A list is paged through while rows are added and removed, with several rows in one microsecond.
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
		return cmp.Or(y.CreatedAt.Compare(x.CreatedAt), strings.Compare(x.ID, y.ID))
	})
	for _, limit := range []int{-1, 1, 2, 5, 22, 23, 24, 100, math.MaxInt} {
		var got []string
		cursor := ""
		for pages := 0; ; pages++ {
			list, total, next := b.tasks(t, p.ID, task.Filter{}, task.Page{Limit: limit, Cursor: cursor})
			equal(t, total, len(want), len(list) == 0, false, len(list) > max(1, limit), false,
				pages > len(want), false)
			for _, s := range list {
				got = append(got, s.ID)
			}
			cursor = next
			if next == "" {
				break
			}
		}
		equal(t, limit, len(got), len(want))
		for i, id := range got {
			equal(t, limit, id, want[i].ID)
		}
	}
	first, _, next := b.tasks(t, p.ID, task.Filter{}, task.Page{Limit: 10})
	c.forward(time.Second)
	addTask(t, b, p, "newer than the first page")
	testkit.Must(t, b.DeleteTask(t.Context(), first[9].ID)) // where the cursor is
	rest, total, next := b.tasks(t, p.ID, task.Filter{}, task.Page{Limit: 100, Cursor: next})
	equal(t, total, 23, next, "", len(rest), 13, rest[0].ID, want[10].ID)
}

func TestTasksByLabelsPriorityAndTitle(t *testing.T) {
	b, c, p := newBoard(t)
	for _, n := range []task.NewTask{
		{Title: "Fix the Login", Labels: []string{"bug", "web"}, Priority: task.High},
		{Title: "Log less", Labels: []string{"webhook"}, Priority: task.Low},
		{Title: "100% done"},
	} {
		c.forward(time.Second)
		n.ProjectID = p.ID
		testkit.Must(t, second(b.CreateTask(t.Context(), n, task.Request{})))
	}

	for want, f := range map[string][]task.Filter{
		"Fix the Login": {{Labels: []string{"web"}}, {Labels: []string{"bug", "web"}}},
		// both labels, a part of one
		"": {{Labels: []string{"web", "webhook"}}, {Labels: []string{"hook"}},
			{Text: "log", Status: task.Done}},
		"Log less":                {{Priority: task.Low}},
		"100% done":               {{Priority: task.Normal}, {Text: "%"}},
		"Log less, Fix the Login": {{Text: "LOG"}},
	} {
		for _, f := range f {
			list, total, _ := b.tasks(t, p.ID, f, task.Page{Limit: 50})
			equal(t, f, titles(list), want, total, len(list))
		}
	}
	list, _, _ := b.tasks(t, p.ID, task.Filter{Labels: []string{"bug"}}, task.Page{Limit: 50})
	s := testkit.Get(b.UpdateTask(t.Context(), list[0].ID,
		task.TaskChange{Labels: []string{}, Priority: new(task.Normal)})).Must(t)
	equal(t, "cleared", len(s.Labels), 0, s.Priority, task.Normal)
}

func titles(list []task.Summary) string {
	return strings.Join(xslices.Map(list, func(s task.Summary) string { return s.Title }), ", ")
}

func TestReq004_ListTasksByStatus(t *testing.T) {
	b, c, p := newBoard(t)
	for i, status := range []task.Status{task.Todo, task.Done, task.Todo, task.InReview, task.Done, task.Done} {
		c.forward(time.Second)
		b.set(t, addTask(t, b, p, fmt.Sprint(i)), status)
	}

	for status, want := range map[task.Status]string{
		"":              "5, 4, 3, 2, 1, 0",
		task.Done:       "5, 4, 1",
		task.Todo:       "2, 0",
		task.InReview:   "3",
		task.Cancelled:  "",
		task.InProgress: "",
	} {
		list, total, next := b.tasks(t, p.ID, task.Filter{Status: status}, task.Page{Limit: 50})
		equal(t, status, titles(list), want, total, len(list), next, "")
	}
	_, total, next := b.tasks(t, p.ID, task.Filter{Status: task.Done}, task.Page{Limit: 2})
	equal(t, total, 3, next == "", false)
	testkit.FailsWith(t, last(b.Tasks(t.Context(), p.ID, task.Filter{Status: "finished"}, task.Page{Limit: 2})),
		task.ErrInvalid)
	testkit.FailsWith(t, last(b.Tasks(t.Context(), "nobody", task.Filter{}, task.Page{Limit: 2})), task.ErrNotFound)
}

// TestReq004_LatestAttempt: created_at DESC, attempt_id ASC.
func TestReq004_LatestAttempt(t *testing.T) {
	b, c, p := newBoard(t)
	s := addTask(t, b, p, "one")
	try(t, b, addTask(t, b, p, "other"))

	attempt := func(id string) {
		testkit.Must(t,
			second(b.CreateAttempt(t.Context(), task.Attempt{
				ID:        id,
				TaskID:    s.ID,
				Executor:  "X",
				Branch:    "deepwork/" + id[:4],
				Workspace: "/w",
			}, task.Execution{Prompt: "p"}, task.Request{})))
	}

	const a1, a2, a3 = "11111111-0000-4000-8000-000000000000", "22222222-0000-4000-8000-000000000000",
		"33333333-0000-4000-8000-000000000000"
	for _, id := range []string{a3, a1, a2} {
		attempt(id)
	}

	latest := func(want string) {
		t.Helper()
		got := taskOf(t, b, s.ID)
		equal(t, "latest is", *got.LatestAttemptID, want, *got.LatestWorkspaceBranch, "deepwork/"+want[:4],
			got.HasInProgressAttempt, true)
		l := testkit.Get(b.TaskAttempts(t.Context(), s.ID, task.Page{Limit: 50})).Must(t)
		equal(t, l.Total, len(l.Attempts), l.Attempts[0].ID, want, *l.Task.LatestAttemptID, want)
	}
	latest(a1)
	c.forward(-time.Hour) // the clock is set back
	attempt("55555555-0000-4000-8000-000000000000")
	latest("55555555-0000-4000-8000-000000000000")
	c.forward(time.Hour + 2*time.Microsecond)
	attempt("44444444-0000-4000-8000-000000000000")
	latest("44444444-0000-4000-8000-000000000000")
	l := testkit.Get(b.TaskAttempts(t.Context(), s.ID, task.Page{Limit: 2})).Must(t)
	equal(t, l.Total, 5, len(l.Attempts), 2, l.Attempts[1].ID[0], '5')
	l = testkit.Get(b.TaskAttempts(t.Context(), s.ID, task.Page{Limit: 3, Cursor: l.Next})).Must(t)
	equal(t, l.Next, "", len(l.Attempts), 3, l.Attempts[0].ID, a1, l.Attempts[1].ID, a2,
		len(testkit.Get(b.AllAttempts(t.Context())).Must(t)), 6)
}

func dependOn(b board, s *task.Summary, on ...*task.Summary) (*task.Summary, error) {
	ids := []string{}
	for _, o := range on {
		ids = append(ids, o.ID)
	}
	return b.UpdateTask(context.Background(), s.ID, task.TaskChange{DependsOn: ids})
}

func TestABlockedTaskDoesNotStart(t *testing.T) {
	b, c, p := newBoard(t)
	first, other := addTask(t, b, p, "first"), addTask(t, b, p, "second")
	last := testkit.Get(b.CreateTask(t.Context(), task.NewTask{
		ProjectID: p.ID,
		Title:     "last",
		DependsOn: []string{other.ID, first.ID, other.ID},
	}, task.Request{})).Must(t)
	both := slices.Sorted(slices.Values([]string{first.ID, other.ID}))
	equal(t, last.DependsOn, both, last.BlockedBy, both)
	start := func() error {
		return second(b.CreateAttempt(t.Context(), task.Attempt{
			TaskID:    last.ID,
			Executor:  "X",
			Branch:    "deepwork/last",
			Workspace: abs("w"),
		}, task.Execution{Prompt: "p"},
			task.Request{Identity: "me", Tool: "start", RequestID: "r", ArgsDigest: "d"}))
	}
	b.set(t, first, task.Done)
	b.set(t, other, task.Cancelled)
	err := start()
	blocked, _ := errors.AsType[*task.BlockedError](err)
	says(t, err, task.ErrBlocked, other.ID+` ("second", cancelled)`)
	equal(t, blocked, task.BlockedError{
		TaskID: last.ID,
		By:     []task.Blocker{{ID: other.ID, Title: "second", Status: task.Cancelled}},
	})
	now := taskOf(t, b, last.ID)
	equal(t, now.Status, task.Todo, now.LatestAttemptID, nil, now.BlockedBy, []string{other.ID})
	list, _, _ := b.tasks(t, p.ID, task.Filter{}, task.Page{Limit: 9})
	equal(t, list[slices.IndexFunc(list, func(s task.Summary) bool { return s.ID == last.ID })], *now, len(list), 3)
	c.forward(time.Minute)
	before := taskOf(t, b, last.ID)
	is(t, before)(b.UpdateTask(t.Context(), last.ID, task.TaskChange{DependsOn: both}))
	dependOn := testkit.Get(dependOn(b, last, first)).Must(t)
	equal(t, len(dependOn.BlockedBy), 0, dependOn.DependsOn, []string{first.ID},
		dependOn.UpdatedAt.After(before.UpdatedAt), true)
	testkit.Must(t, start())
	b.set(t, first, task.Todo)
	testkit.Must(t, start()) // it repeats the call, whose attempt was begun
	testkit.Must(t, b.DeleteTask(t.Context(), first.ID))
	equal(t, "after the other deleted", len(taskOf(t, b, last.ID).DependsOn)+len(taskOf(t, b, last.ID).BlockedBy), 0)
}

// A caller depends on what it sees, keeps what others made its task depend on, and learns no more of that than the id.
func TestDependenciesOnWhatACallerDoesNotSee(t *testing.T) {
	b, _, p := newBoard(t)
	eve, who := session.Caller{Identity: "eve"}, session.Caller{Identity: "solo"}
	hidden := addAs(t, b, p, eve, "secret")
	mine := addAs(t, b, p, who, "mine")
	other := addAs(t, b, p, who, "other")
	set := func(on ...string) error {
		return second(b.For(who).UpdateTask(t.Context(), mine.ID, task.TaskChange{DependsOn: on}))
	}
	err := set(hidden.ID)
	testkit.FailsWith(t, err, task.ErrDependency)

	equal(t, strings.Contains(err.Error(), "secret"), false)
	testkit.Must(t, errors.Join(second(dependOn(b, mine, hidden)), set(hidden.ID, other.ID)))
	_, err = b.For(who).CreateAttempt(t.Context(), task.Attempt{
		TaskID:    mine.ID,
		Executor:  "X",
		Branch:    "b",
		Workspace: "/w",
	}, task.Execution{Prompt: "p"}, task.Request{})
	says(t, err, task.ErrBlocked, hidden.ID)
	equal(t, strings.Contains(err.Error(), "secret"), false, strings.Contains(err.Error(), "other"), true)
}

func TestCursorsOfOtherListsAreRefused(t *testing.T) {
	b, _, p := newBoard(t)
	testkit.Must(t, b.SyncProjects(t.Context(),
		[]task.ProjectSpec{root, {Name: "other", Repos: []task.RepoSpec{{Name: "a", Path: abs("a")}}}}, false))
	for range 2 {
		addTask(t, b, p, "x")
	}
	_, _, tasks := b.tasks(t, p.ID, task.Filter{}, task.Page{Limit: 1})
	_, _, projects, err := b.Projects(t.Context(), task.Page{Limit: 1})
	testkit.Must(t, err)
	other := ids(t, b)["other"]
	for what, err := range map[string]error{
		"status": last(b.Tasks(t.Context(), p.ID, task.Filter{Status: task.Todo},
			task.Page{Limit: 1, Cursor: tasks})),
		"project":  last(b.Tasks(t.Context(), other, task.Filter{}, task.Page{Limit: 1, Cursor: tasks})),
		"tasks":    last(b.Tasks(t.Context(), p.ID, task.Filter{}, task.Page{Limit: 1, Cursor: projects})),
		"projects": last(b.Projects(t.Context(), task.Page{Limit: 1, Cursor: tasks})),
		"repos":    last(b.Repos(t.Context(), p.ID, task.Page{Limit: 1, Cursor: tasks})),
		"attempts": second(b.TaskAttempts(t.Context(), p.ID, task.Page{Limit: 1, Cursor: tasks})),
		"garbage":  last(b.Projects(t.Context(), task.Page{Limit: 1, Cursor: "garbage"})),
		"long":     last(b.Projects(t.Context(), task.Page{Limit: 1, Cursor: strings.Repeat("ä", 10_000)})),
	} {
		says(t, err, task.ErrCursor, "the cursor that this list's last page came with", what)
		equal(t, what, len(err.Error()) > 500, false)
	}
}

func last[T any](_ []T, _ int, _ string, err error) error { return err }
