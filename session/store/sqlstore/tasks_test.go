package sqlstore_test

import (
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
	"deepwork/catalog/task"
	"deepwork/session"
)

func TestTasksAreCreatedChangedAndDeleted(t *testing.T) {
	b, c, p := newBoard(t)
	s := returned(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "Ein Titel\x00\n", Description: new("text"), JobName: new("job"), WorkflowName: new("flow"), Inputs: json.RawMessage(`{"a":"x"}`)}, task.Request{})).of(t)
	equal(t, string(s.Inputs), `{"a":"x"}`)
	made := c.at.UTC().Truncate(time.Microsecond)
	if s.Title != "Ein Titel\x00\n" || *s.Description != "text" || s.Status != task.Todo || *s.JobName != "job" || *s.WorkflowName != "flow" ||
		s.ProjectID != p.ID || !s.CreatedAt.Equal(made) || !s.UpdatedAt.Equal(made) || s.LatestAttemptID != nil || s.HasInProgressAttempt || s.LastAttemptFailed {
		t.Errorf("%+v", s)
	}
	c.forward(time.Minute)
	s, err := b.UpdateTask(t.Context(), s.ID, task.TaskChange{Title: new("New"), Status: new(task.Done)})
	testkit.True(t, err == nil && s.Title == "New" && s.Status == task.Done && *s.Description == "text" && *s.JobName == "job" && s.CreatedAt.Equal(made) && s.UpdatedAt.Equal(made.Add(time.Minute)), "%+v %v", s, err)
	equal(t, string(s.Inputs), `{"a":"x"}`)
	s = returned(b.UpdateTask(t.Context(), s.ID, task.TaskChange{Inputs: json.RawMessage(`{"b":["y"]}`)})).of(t)
	equal(t, string(s.Inputs), `{"b":["y"]}`)
	s = returned(b.UpdateTask(t.Context(), s.ID, task.TaskChange{Inputs: json.RawMessage{}})).of(t)
	equal(t, s.Inputs == nil, true)
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
	_, total, _, err := b.Tasks(t.Context(), p.ID, task.Filter{}, task.Page{Limit: 1})
	testkit.Must(t, err)
	equal(t, total, 1)
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
			list, total, next, err := b.Tasks(t.Context(), p.ID, task.Filter{}, task.Page{Limit: limit, Cursor: cursor})
			testkit.Must(t, err)
			equal(t, total, len(want), len(list) == 0, false, len(list) > max(1, limit), false, pages > len(want), false)
			for _, s := range list {
				got = append(got, s.ID)
			}
			if cursor = next; next == "" {
				break
			}
		}
		equal(t, limit, len(got), len(want))
		for i, id := range got {
			equal(t, limit, id, want[i].ID)
		}
	}
	first, _, next, err := b.Tasks(t.Context(), p.ID, task.Filter{}, task.Page{Limit: 10})
	testkit.Must(t, err)
	c.forward(time.Second)
	addTask(t, b, p, "newer than the first page")
	testkit.Must(t, b.DeleteTask(t.Context(), first[9].ID)) // where the cursor is
	rest, total, next, err := b.Tasks(t.Context(), p.ID, task.Filter{}, task.Page{Limit: 100, Cursor: next})
	testkit.Must(t, err)
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
	for name, f := range map[string]struct {
		task.Filter
		want string
	}{
		"a label":               {task.Filter{Labels: []string{"web"}}, "Fix the Login"},
		"both labels":           {task.Filter{Labels: []string{"bug", "web"}}, "Fix the Login"},
		"one has not both":      {task.Filter{Labels: []string{"web", "webhook"}}, ""},
		"a part of a label":     {task.Filter{Labels: []string{"hook"}}, ""},
		"a priority":            {task.Filter{Priority: task.Low}, "Log less"},
		"the default priority":  {task.Filter{Priority: task.Normal}, "100% done"},
		"title in another case": {task.Filter{Text: "LOG"}, "Log less, Fix the Login"},
		"no wildcards":          {task.Filter{Text: "%"}, "100% done"},
		"with a status":         {task.Filter{Text: "log", Status: task.Done}, ""},
	} {
		list, total, _, err := b.Tasks(t.Context(), p.ID, f.Filter, task.Page{Limit: 50})
		testkit.Must(t, err)
		var titles []string
		for _, s := range list {
			titles = append(titles, s.Title)
		}
		equal(t, name, strings.Join(titles, ", "), f.want, total, len(list))
	}
	list, _, _, err := b.Tasks(t.Context(), p.ID, task.Filter{Labels: []string{"bug"}}, task.Page{Limit: 50})
	testkit.Must(t, err)
	s := testkit.Get(b.UpdateTask(t.Context(), list[0].ID, task.TaskChange{Labels: []string{}, Priority: new(task.Normal)})).Must(t)
	equal(t, "cleared", len(s.Labels), 0, s.Priority, task.Normal)
}

func TestReq004_ListTasksByStatus(t *testing.T) {
	b, c, p := newBoard(t)
	for i, status := range []task.Status{task.Todo, task.Done, task.Todo, task.InReview, task.Done, task.Done} {
		c.forward(time.Second)
		s := addTask(t, b, p, fmt.Sprint(i))
		testkit.Must(t, second(b.UpdateTask(t.Context(), s.ID, task.TaskChange{Status: &status})))
	}
	titles := func(status task.Status, p task.Project) (all []string) {
		list, total, next, err := b.Tasks(t.Context(), p.ID, task.Filter{Status: status}, task.Page{Limit: 50})
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
	_, total, next, err := b.Tasks(t.Context(), p.ID, task.Filter{Status: task.Done}, task.Page{Limit: 2})
	testkit.Must(t, err)
	equal(t, total, 3, next == "", false)
	if _, _, _, err := b.Tasks(t.Context(), p.ID, task.Filter{Status: "finished"}, task.Page{Limit: 2}); !errors.Is(err, task.ErrInvalid) {
		t.Error(err)
	}
	if _, _, _, err := b.Tasks(t.Context(), "nobody", task.Filter{}, task.Page{Limit: 2}); !errors.Is(err, task.ErrNotFound) {
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
		equal(t, "latest is", *got.LatestAttemptID, want, *got.LatestWorkspaceBranch, "deepwork/"+want[:4], got.HasInProgressAttempt, true)
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
	l := returned(b.TaskAttempts(t.Context(), s.ID, task.Page{Limit: 2})).of(t)
	equal(t, l.Total, 5, len(l.Attempts), 2, l.Attempts[1].ID, a1)
	l = returned(b.TaskAttempts(t.Context(), s.ID, task.Page{Limit: 3, Cursor: l.Next})).of(t)
	equal(t, l.Next, "", len(l.Attempts), 3, l.Attempts[0].ID, a2, l.Attempts[1].ID, a3)
	equal(t, len(returned(b.AllAttempts(t.Context())).of(t)), 6)
}

// dependOn sets what a task depends on.
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
	last := returned(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "last", DependsOn: []string{other.ID, first.ID, other.ID}}, task.Request{})).of(t)
	both := slices.Sorted(slices.Values([]string{first.ID, other.ID}))
	equal(t, last.DependsOn, both, last.BlockedBy, both)
	start := func() error {
		_, err := b.CreateAttempt(t.Context(), task.Attempt{TaskID: last.ID, Executor: "X", Branch: "deepwork/last", Workspace: abs("w")}, task.Execution{Prompt: "p"},
			task.Request{Identity: "me", Tool: "start", RequestID: "r", ArgsDigest: "d"})
		return err
	}
	finish := func(s *task.Summary, status task.Status) {
		t.Helper()
		testkit.Must(t, second(b.UpdateTask(t.Context(), s.ID, task.TaskChange{Status: &status})))
	}
	finish(first, task.Done)
	finish(other, task.Cancelled)
	err := start()
	blocked, ok := errors.AsType[*task.BlockedError](err)
	want := task.BlockedError{TaskID: last.ID, By: []task.Blocker{{ID: other.ID, Title: "second", Status: task.Cancelled}}}
	equal(t, ok, true, errors.Is(err, task.ErrBlocked), true, *blocked, want, strings.Contains(err.Error(), other.ID+` ("second", cancelled)`), true)
	now := taskOf(t, b, last.ID)
	equal(t, now.Status, task.Todo, now.LatestAttemptID, nil, now.BlockedBy, []string{other.ID})
	list, total, _, err := b.Tasks(t.Context(), p.ID, task.Filter{}, task.Page{Limit: 1})
	at := slices.IndexFunc(list, func(s task.Summary) bool { return s.ID == last.ID })
	testkit.True(t, err == nil && total == 3 && (at != 0 || slices.Equal(list[0].DependsOn, both)), "%v %v %v", list, total, err)
	c.forward(time.Minute)
	before := taskOf(t, b, last.ID)
	is(t, before)(b.UpdateTask(t.Context(), last.ID, task.TaskChange{DependsOn: both}))
	dependOn := returned(dependOn(b, last, first)).of(t)
	equal(t, len(dependOn.BlockedBy), 0, dependOn.DependsOn, []string{first.ID}, dependOn.UpdatedAt.After(before.UpdatedAt), true)
	testkit.Must(t, start())
	finish(first, task.Todo)
	testkit.Must(t, start()) // it repeats the call, whose attempt was begun
	testkit.Must(t, b.DeleteTask(t.Context(), first.ID))
	equal(t, "after the other deleted", len(taskOf(t, b, last.ID).DependsOn)+len(taskOf(t, b, last.ID).BlockedBy), 0)
}

func TestDependenciesThatAreRefused(t *testing.T) {
	b, _, p := newBoard(t)
	testkit.Must(t, b.SyncProjects(t.Context(), []task.ProjectSpec{root, {Name: "front"}}, false))
	projects, _, _, err := b.Projects(t.Context(), task.Page{Limit: 2})
	testkit.Must(t, err)
	front := projects[slices.IndexFunc(projects, func(p task.Project) bool { return p.Name == "front" })]
	foreign := addTask(t, b, front, "foreign")
	var chain []*task.Summary // each depends on the one before
	for i := range 4 {
		chain = append(chain, addTask(t, b, p, fmt.Sprint(i)))
		if i > 0 {
			testkit.Must(t, second(dependOn(b, chain[i], chain[i-1])))
		}
	}
	_, diamond := dependOn(b, chain[3], chain[2], chain[1], chain[0])
	testkit.Must(t, diamond)
	many := make([]string, task.MaxDependencies+1)
	for i := range many {
		many[i] = fmt.Sprintf("%08d-0000-4000-8000-000000000000", i)
	}
	before := taskOf(t, b, chain[0].ID)
	change := func(id string, on ...string) error {
		_, err := b.UpdateTask(t.Context(), id, task.TaskChange{Title: new("changed"), DependsOn: on})
		return err
	}
	create := func(on ...string) error {
		_, err := b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "x", DependsOn: on}, task.Request{})
		return err
	}
	const nobody = "3b241101-e2bb-4255-8caf-4136c566a962"
	for name, test := range map[string]struct {
		err, want error
		text      string
	}{
		"itself":          {change(before.ID, before.ID), task.ErrCycle, "depends on itself"},
		"a cycle of two":  {change(before.ID, chain[1].ID), task.ErrCycle, before.ID + " depends on " + chain[1].ID + " depends on " + before.ID},
		"a cycle of four": {change(before.ID, chain[3].ID), task.ErrCycle, before.ID + " depends on " + chain[3].ID + " depends on "},
		"another project": {change(before.ID, foreign.ID), task.ErrDependency, foreign.ID},
		"nobody":          {change(before.ID, nobody), task.ErrDependency, nobody},
		"too many":        {change(before.ID, many...), task.ErrInvalid, "51"},
		"new and nobody":  {create(chain[0].ID, nobody), task.ErrDependency, nobody},
		"new and foreign": {create(foreign.ID), task.ErrDependency, foreign.ID},
	} {
		equal(t, name, errors.Is(test.err, test.want), true, strings.Contains(fmt.Sprint(test.err), test.text), true)
	}
	equal(t, "a refusal changed to", taskOf(t, b, before.ID), before)
	_, total, _, err := b.Tasks(t.Context(), p.ID, task.Filter{}, task.Page{Limit: 1})
	testkit.Must(t, err)
	equal(t, total, len(chain))
}

// A caller depends on what it sees, keeps what others made its task depend on, and learns no more
// of that than the id.
func TestDependenciesOnWhatACallerDoesNotSee(t *testing.T) {
	b, _, p := newBoard(t)
	eve, who := session.Caller{Identity: "eve"}, session.Caller{Identity: "solo"}
	create := func(who session.Caller, title string) *task.Summary {
		return returned(b.For(who).CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: title}, task.Request{})).of(t)
	}
	hidden, mine, other := create(eve, "secret"), create(who, "mine"), create(who, "other")
	set := func(on ...string) error {
		_, err := b.For(who).UpdateTask(t.Context(), mine.ID, task.TaskChange{DependsOn: on})
		return err
	}
	err := set(hidden.ID)
	equal(t, errors.Is(err, task.ErrDependency), true, strings.Contains(err.Error(), "secret"), false)
	testkit.Must(t, second(dependOn(b, mine, hidden)))
	testkit.Must(t, set(hidden.ID, other.ID))
	_, err = b.For(who).CreateAttempt(t.Context(), task.Attempt{TaskID: mine.ID, Executor: "X", Branch: "b", Workspace: "/w"}, task.Execution{Prompt: "p"}, task.Request{})
	equal(t, errors.Is(err, task.ErrBlocked), true, strings.Contains(err.Error(), hidden.ID), true, strings.Contains(err.Error(), "secret"), false, strings.Contains(err.Error(), "other"), true)
}

func TestCursorsOfOtherListsAreRefused(t *testing.T) {
	b, _, p := newBoard(t)
	testkit.Must(t, b.SyncProjects(t.Context(), []task.ProjectSpec{root, {Name: "other", Repos: []task.RepoSpec{{Name: "a", Path: abs("a")}}}}, false))
	for range 2 {
		addTask(t, b, p, "x")
	}
	_, _, tasks, err := b.Tasks(t.Context(), p.ID, task.Filter{}, task.Page{Limit: 1})
	testkit.Must(t, err)
	_, _, projects, err := b.Projects(t.Context(), task.Page{Limit: 1})
	testkit.Must(t, err)
	other := ids(t, b)["other"]
	for what, err := range map[string]error{
		"status":   last(b.Tasks(t.Context(), p.ID, task.Filter{Status: task.Todo}, task.Page{Limit: 1, Cursor: tasks})),
		"project":  last(b.Tasks(t.Context(), other, task.Filter{}, task.Page{Limit: 1, Cursor: tasks})),
		"tasks":    last(b.Tasks(t.Context(), p.ID, task.Filter{}, task.Page{Limit: 1, Cursor: projects})),
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
