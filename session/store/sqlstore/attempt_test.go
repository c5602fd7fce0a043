package sqlstore_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"

	"github.com/google/uuid"
)

func TestCreateAttempt(t *testing.T) {
	b, c, p := newBoard(t)
	s := addTask(t, b, p, "one")
	c.forward(time.Minute)
	want := task.Attempt{ID: "11111111-0000-4000-8000-000000000000", TaskID: s.ID, Executor: "SCRIPTED", Variant: new("PLAN"), Prompt: new("be quick"),
		Branch: "deepwork/one-0000", Workspace: abs("w"), Repos: []task.AttemptRepo{
			{RepoID: "r2", RepoName: "web", RepoPath: abs("web"), TargetBranch: "main", Worktree: abs("w/web")},
			{RepoID: "r1", RepoName: "api", RepoPath: abs("api"), TargetBranch: "next", Worktree: abs("w/api")},
		}}
	a := testkit.Get(b.CreateAttempt(t.Context(), want, task.Execution{ID: "e1", Prompt: "all of it", Variant: new("PLAN")}, task.Request{})).Must(t)
	want.State, want.CreatedAt, want.UpdatedAt = task.Waiting, a.CreatedAt, a.UpdatedAt
	equal(t, *a, want, a.CreatedAt, c.at.Truncate(time.Microsecond))
	e := testkit.Get(b.LatestExecution(t.Context(), a.ID)).Must(t)
	equal(t, e.ID, "e1", e.State, task.Waiting, e.FollowUp, false, e.SessionID, nil, e.Prompt, "all of it", *e.Variant, "PLAN", e.Owner, "")
	got := taskOf(t, b, s.ID)
	equal(t, got.Status, task.InProgress, got.UpdatedAt, a.CreatedAt, got.HasInProgressAttempt, true, *got.LatestAttemptID, a.ID, got.LatestSessionID, nil)
	testkit.Must(t, b.SetBranch(t.Context(), a.ID, "deepwork/other-1111")) // until there are worktrees on it
	testkit.Must(t, b.SetWorkspace(t.Context(), a.ID, map[string]string{"r1": "aaaa", "r2": "bbbb"}))
	testkit.FailsWith(t, b.SetBranch(t.Context(), a.ID, "deepwork/third-1111"), task.ErrInvalid)
	testkit.FailsWith(t, b.SetTargets(t.Context(), a.ID, map[string]string{"r1": "next"}), task.ErrRunning)
	testkit.FailsWith(t, b.SetWorkspace(t.Context(), a.ID, map[string]string{"r9": "cccc"}), task.ErrNotFound)
	c.forward(time.Minute)
	testkit.Must(t, b.SetWorkflow(t.Context(), a.ID, task.WorkflowProgress{SessionID: "0123abcd", Status: "active", Step: "draft"}))
	a = testkit.Get(b.Attempt(t.Context(), a.ID)).Must(t)
	equal(t, *a.Repos[0].BaseCommit, "bbbb", *a.Repos[1].BaseCommit, "aaaa", a.Branch, "deepwork/other-1111", *a.WorkflowSessionID, "0123abcd",
		*a.WorkflowStatus, "active", *a.WorkflowStep, "draft", a.UpdatedAt, c.at.Truncate(time.Microsecond))
	testkit.Must(t, b.SetPushError(t.Context(), a.ID, new("no network")))
	testkit.Must(t, b.SetWorkflow(t.Context(), a.ID, task.WorkflowProgress{SessionID: "0123abcd", Status: "completed"}))
	a = testkit.Get(b.Attempt(t.Context(), a.ID)).Must(t)
	equal(t, *a.WorkflowStatus, "completed", a.WorkflowStep, nil, *a.PushError, "no network")
}

func TestWhatIsNotThere(t *testing.T) {
	b, _, _ := newBoard(t)
	ctx := t.Context()
	_, _, ended := b.EndExecution(ctx, "x", task.Ending{State: task.Stopped})
	for what, err := range map[string]error{
		"project":   second(b.Project(ctx, "x")),
		"repo":      second(b.Repo(ctx, "x")),
		"repos":     last(b.Repos(ctx, "x", task.Page{Limit: 1})),
		"execution": second(b.Execution(ctx, "x")),
		"place":     second(b.AttemptContext(ctx, "x")),
		"workspace": b.SetWorkspace(ctx, "x", nil),
		"branch":    b.SetBranch(ctx, "x", "x"),
		"run":       b.SetRun(ctx, "x", json.RawMessage(`{}`)),
		"release":   second(b.Release(ctx, "x", "one")),
		"stop":      second(b.Stop(ctx, "x")),
		"maker":     second(b.Maker(ctx, "x")),
		"workflow":  b.SetWorkflow(ctx, "x", task.WorkflowProgress{}),
		"push":      b.SetPushError(ctx, "x", nil),
		"start":     second(b.StartExecution(ctx, "x", "X", time.Time{})),
		"end":       ended,
	} {
		says(t, err, task.ErrNotFound, `"x"`, what)
	}
	is(t, false)(b.Adopt(ctx, "x", "a", "b"))
}

func TestRequestsGiveTheSameResult(t *testing.T) {
	b, c, p := newBoard(t)
	by := func(who, tool, id, digest string) task.Request {
		return task.Request{Identity: who, Tool: tool, RequestID: id, ArgsDigest: digest}
	}
	r := by("me", "create_task", "r1", "d")
	is(t, "")(b.FindRequest(t.Context(), r))
	create := func(r task.Request) (*task.Summary, error) {
		c.forward(time.Minute)
		return b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "one"}, r)
	}
	first := testkit.Get(create(r)).Must(t)
	equal(t, testkit.Get(create(r)).Must(t), first)
	is(t, first.ID)(b.FindRequest(t.Context(), r))
	other := by("me", "create_task", "r1", "d2")
	says(t, second(create(other)), task.ErrReused, `request_id "r1"`)
	testkit.FailsWith(t, second(b.FindRequest(t.Context(), other)), task.ErrReused)
	for _, scope := range []task.Request{by("you", "create_task", "r1", "d"), by("me", "another_tool", "r1", "d"), by("me", "create_task", "r2", "d"), {}, {}} {
		equal(t, scope, testkit.Get(create(scope)).Must(t).ID == first.ID, false)
	}
	bad := by("me", "create_task", "r3", "d")
	testkit.FailsWith(t, second(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID}, bad)), task.ErrInvalid)
	is(t, "")(b.FindRequest(t.Context(), bad))

	attempt := func() (*task.Attempt, error) {
		return b.CreateAttempt(t.Context(), task.Attempt{TaskID: first.ID, Executor: "X", Branch: "b", Workspace: "/w"}, task.Execution{Prompt: "p"}, by("me", "start", "r1", "d"))
	}
	a := testkit.Get(attempt()).Must(t)
	run(t, b)
	same := testkit.Get(attempt()).Must(t)
	equal(t, same.ID, a.ID, same.State, task.Running)
	equal(t, testkit.Get(b.TaskAttempts(t.Context(), first.ID, task.Page{Limit: 1})).Must(t).Total, 1)

	// A clock that is set forward forgets none of the newest calls; what is older than them is known for 30 days.
	c.forward(task.RequestsKept)
	many := func(n int, name string) {
		t.Helper()
		for i := range n {
			testkit.Must(t, second(create(by("me", "create_task", fmt.Sprint(name, i), "d"))))
		}
	}
	many(task.NewestRequests-6, "later")
	equal(t, "forgotten after 30 days", testkit.Get(create(r)).Must(t).ID, first.ID)
	many(6, "last")
	is(t, "")(b.FindRequest(t.Context(), r))
	c.forward(task.RequestsKept - 300*time.Minute)
	many(task.NewestRequests, "much later")
	equal(t, "forgotten before 30 days", testkit.Get(b.FindRequest(t.Context(), by("me", "create_task", "later0", "d"))).Must(t) == "", false)
	equal(t, testkit.Get(create(r)).Must(t).ID == first.ID, false)
	testkit.Must(t, b.DeleteTask(t.Context(), testkit.Get(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "one"}, bad)).Must(t).ID))
	says(t, second(create(bad)), task.ErrNotFound, "was deleted since")
}

func TestDeleteTask(t *testing.T) {
	b, _, p := newBoard(t)
	s := addTask(t, b, p, "one")
	a := try(t, b, s)
	refused := func(when string) {
		t.Helper()
		testkit.FailsWith(t, b.DeleteTask(t.Context(), s.ID), task.ErrRunning, when)
		testkit.FailsWith(t, second(b.BeginDelete(t.Context(), s.ID)), task.ErrRunning, when)
	}
	refused("waiting")
	e := claimed(t, b, 1)
	refused("starting")
	session := testkit.Get(b.StartExecution(t.Context(), e.ID, "X", time.Time{})).Must(t)
	refused("running")
	end(t, b, e, task.Ending{State: task.Completed})
	for range 2 {
		is(t, []string{a.ID})(b.BeginDelete(t.Context(), s.ID))
	}
	is(t, []string{s.ID})(b.Deleting(t.Context()))
	testkit.FailsWith(t, second(b.AddExecution(t.Context(), session.ID, "p", nil)), task.ErrDeleting)
	testkit.FailsWith(t, second(b.CreateAttempt(t.Context(), task.Attempt{TaskID: s.ID}, task.Execution{}, task.Request{})), task.ErrDeleting)
	testkit.Must(t, b.UndoDelete(t.Context(), s.ID))
	e = testkit.Get(b.AddExecution(t.Context(), session.ID, "p", nil)).Must(t)
	refused("follow-up waiting")
	end(t, b, e, task.Ending{State: task.Stopped})
	place := testkit.Get(b.AttemptContext(t.Context(), a.ID)).Must(t)
	equal(t, place.Attempt.ID, a.ID, len(place.Attempt.Repos), 1, place.Task.ID, s.ID, *place.Project, p)
	testkit.Must(t, b.DeleteTask(t.Context(), s.ID))
	equal(t, len(testkit.Get(b.AllAttempts(t.Context())).Must(t)), 0, len(testkit.Get(b.Executions(t.Context(), a.ID)).Must(t)), 0)
	testkit.FailsWith(t, second(b.Session(t.Context(), session.ID)), task.ErrNotFound)
	testkit.FailsWith(t, second(b.AttemptContext(t.Context(), a.ID)), task.ErrNotFound)
}

func TestWorktreeFolders(t *testing.T) {
	b, _, p := newBoard(t)
	s := addTask(t, b, p, "one")
	want := []string{filepath.FromSlash("/a b/trees"), filepath.FromSlash("/c")}
	for _, folder := range append(want, want[0]) {
		id := uuid.NewString()
		repo := task.AttemptRepo{RepoID: "r", RepoName: "r", RepoPath: "/r", TargetBranch: "main", Worktree: filepath.Join(folder, id, "r")}
		testkit.Must(t, second(b.CreateAttempt(t.Context(), task.Attempt{ID: id, TaskID: s.ID, Branch: "b", Workspace: repo.Worktree, Repos: []task.AttemptRepo{repo}}, task.Execution{}, task.Request{})))
	}
	got, err := b.WorktreeFolders(t.Context(), task.Place{})
	slices.Sort(got)
	testkit.Must(t, err)
	equal(t, got, want)
}

// An execution ends no sooner than it began, and begins no sooner than it was made, whatever the clocks do.
func TestStartAndEndKeepTheirOrder(t *testing.T) {
	for name, c := range map[string]struct {
		back             time.Duration // the board's clock is set back by so much before the start
		since, ended     time.Duration // after the execution was made; ended 0: now
		started, endedAt time.Duration // as the board has them
	}{
		"as it should be":           {0, 10 * time.Second, 20 * time.Second, 10 * time.Second, 20 * time.Second},
		"it ends at once":           {0, 10 * time.Second, 10 * time.Second, 10 * time.Second, 10 * time.Second},
		"it ends before its start":  {0, 10 * time.Second, 5 * time.Second, 10 * time.Second, 10 * time.Second},
		"it ends in the future":     {0, 10 * time.Second, 2 * time.Hour, 10 * time.Second, 2 * time.Minute},
		"it starts before it is":    {0, -time.Hour, time.Second, 0, time.Second},
		"it starts in the future":   {0, 2 * time.Hour, 0, time.Minute, 2 * time.Minute},
		"the clock is set back":     {time.Hour, 10 * time.Second, 20 * time.Second, 0, 0},
		"set back, and no end told": {time.Hour, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b, clock, p := newBoard(t)
			try(t, b, addTask(t, b, p, "one"))
			x := claimed(t, b, 1)
			clock.forward(time.Minute - c.back)
			testkit.Must(t, second(b.StartExecution(t.Context(), x.ID, "X", x.CreatedAt.Add(c.since))))
			clock.forward(time.Minute)
			ending := task.Ending{State: task.Completed}
			if c.ended != 0 {
				ending.EndedAt = new(x.CreatedAt.Add(c.ended))
			}
			end(t, b, x, ending)
			got := testkit.Get(b.Execution(t.Context(), x.ID)).Must(t)
			equal(t, "it started after and ended after", got.StartedAt.Sub(x.CreatedAt), c.started, got.EndedAt.Sub(x.CreatedAt), c.endedAt)
		})
	}
}

func TestReq004_UpdatingToTheSameChangesNothing(t *testing.T) {
	b, c, p := newBoard(t)
	s := addTask(t, b, p, "one")
	c.forward(time.Hour)
	for _, change := range []task.TaskChange{{}, {Title: new("one")}, {Status: new(task.Todo)}, {Description: new("")}, {JobName: new(""), WorkflowName: new("")}} {
		equal(t, change, testkit.Get(b.UpdateTask(t.Context(), s.ID, change)).Must(t).UpdatedAt, s.UpdatedAt)
	}
	for _, change := range []task.TaskChange{{Title: new("two")}, {Status: new(task.Done)}, {Description: new("d")}, {JobName: new("j"), WorkflowName: new("w")}, {Description: new("")}} {
		was := taskOf(t, b, s.ID)
		c.forward(time.Hour)
		equal(t, change, testkit.Get(b.UpdateTask(t.Context(), s.ID, change)).Must(t).UpdatedAt.After(was.UpdatedAt), true)
	}
}
