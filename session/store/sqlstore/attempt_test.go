package sqlstore_test

import (
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
	a := returned(b.CreateAttempt(t.Context(), want, task.Execution{ID: "e1", Prompt: "all of it", Variant: new("PLAN")}, task.Request{})).of(t)
	want.State, want.CreatedAt, want.UpdatedAt = task.Waiting, a.CreatedAt, a.UpdatedAt
	equal(t, *a, want, a.CreatedAt, c.at.Truncate(time.Microsecond))
	e := returned(b.LatestExecution(t.Context(), a.ID)).of(t)
	equal(t, e.ID, "e1", e.State, task.Waiting, e.FollowUp, false, e.SessionID, nil, e.Prompt, "all of it", *e.Variant, "PLAN", e.Owner, "")
	got := taskOf(t, b, s.ID)
	equal(t, got.Status, task.InProgress, got.UpdatedAt, a.CreatedAt, got.HasInProgressAttempt, true, *got.LatestAttemptID, a.ID, got.LatestSessionID, nil)
	testkit.Must(t, b.SetWorkspace(t.Context(), a.ID, map[string]string{"r1": "aaaa", "r2": "bbbb"}))
	fails(t, b.SetTargets(t.Context(), a.ID, map[string]string{"r1": "next"}), task.ErrRunning)
	fails(t, b.SetWorkspace(t.Context(), a.ID, map[string]string{"r9": "cccc"}), task.ErrNotFound)
	c.forward(time.Minute)
	testkit.Must(t, b.SetWorkflow(t.Context(), a.ID, task.WorkflowProgress{SessionID: "0123abcd", Status: "active", Step: "draft"}))
	if a, err := b.Attempt(t.Context(), a.ID); err != nil || *a.Repos[0].BaseCommit != "bbbb" || *a.Repos[1].BaseCommit != "aaaa" ||
		*a.WorkflowSessionID != "0123abcd" || *a.WorkflowStatus != "active" || *a.WorkflowStep != "draft" || !a.UpdatedAt.Equal(c.at.Truncate(time.Microsecond)) {
		t.Errorf("%+v %v", a, err)
	}
	testkit.Must(t, b.SetPushError(t.Context(), a.ID, new("no network")))
	testkit.Must(t, b.SetWorkflow(t.Context(), a.ID, task.WorkflowProgress{SessionID: "0123abcd", Status: "completed"}))
	a = returned(b.Attempt(t.Context(), a.ID)).of(t)
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
	r := task.Request{Identity: "me", Tool: "create_task", RequestID: "r1", ArgsDigest: "d1"}
	is(t, "")(b.FindRequest(t.Context(), r))
	create := func(r task.Request) (*task.Summary, error) {
		c.forward(time.Minute)
		return b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "one"}, r)
	}
	first := returned(create(r)).of(t)
	equal(t, returned(create(r)).of(t), first)
	is(t, first.ID)(b.FindRequest(t.Context(), r))
	other := r
	other.ArgsDigest = "d2"
	says(t, second(create(other)), task.ErrReused, `request_id "r1"`)
	fails(t, second(b.FindRequest(t.Context(), other)), task.ErrReused)
	for _, scope := range []task.Request{{Identity: "you", Tool: "create_task", RequestID: "r1", ArgsDigest: "d1"}, {Identity: "me", Tool: "another_tool", RequestID: "r1", ArgsDigest: "d1"}, {Identity: "me", Tool: "create_task", RequestID: "r2", ArgsDigest: "d1"}, {}, {}} {
		create := returned(create(scope)).of(t)
		equal(t, scope, create.ID == first.ID, false)
	}
	bad := task.Request{Identity: "me", Tool: "create_task", RequestID: "r3", ArgsDigest: "d"}
	fails(t, second(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID}, bad)), task.ErrInvalid)
	is(t, "")(b.FindRequest(t.Context(), bad))

	ar := task.Request{Identity: "me", Tool: "start_task_attempt", RequestID: "r1", ArgsDigest: "d"}
	attempt := func() (*task.Attempt, error) {
		return b.CreateAttempt(t.Context(), task.Attempt{TaskID: first.ID, Executor: "X", Branch: "b", Workspace: "/w"}, task.Execution{Prompt: "p"}, ar)
	}
	a := returned(attempt()).of(t)
	run(t, b)
	same := returned(attempt()).of(t)
	equal(t, same.ID, a.ID, same.State, task.Running)
	equal(t, returned(b.TaskAttempts(t.Context(), first.ID, task.Page{Limit: 1})).of(t).Total, 1)

	// A clock that is set forward forgets none of the newest calls; what is older
	// than them is known for 30 days.
	c.forward(task.RequestsKept)
	many := func(n int, name string) {
		t.Helper()
		for i := range n {
			testkit.Must(t, second(create(task.Request{Identity: "me", Tool: "create_task", RequestID: fmt.Sprint(name, i), ArgsDigest: "d"})))
		}
	}
	many(task.NewestRequests-6, "later")
	equal(t, "forgotten after 30 days", returned(create(r)).of(t).ID, first.ID)
	many(6, "last")
	is(t, "")(b.FindRequest(t.Context(), r))
	c.forward(task.RequestsKept - 300*time.Minute)
	many(task.NewestRequests, "much later")
	equal(t, "forgotten before 30 days", returned(b.FindRequest(t.Context(), task.Request{Identity: "me", Tool: "create_task", RequestID: "later0", ArgsDigest: "d"})).of(t) == "", false)
	equal(t, returned(create(r)).of(t).ID == first.ID, false)
	testkit.Must(t, b.DeleteTask(t.Context(), returned(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "one"}, bad)).of(t).ID))
	says(t, second(create(bad)), task.ErrNotFound, "was deleted since")
}

func TestDeleteTask(t *testing.T) {
	b, _, p := newBoard(t)
	s := addTask(t, b, p, "one")
	a := try(t, b, s)
	refused := func(when string) {
		t.Helper()
		fails(t, b.DeleteTask(t.Context(), s.ID), task.ErrRunning, when)
		fails(t, second(b.BeginDelete(t.Context(), s.ID)), task.ErrRunning, when)
	}
	refused("waiting")
	e := returned(b.ClaimNext(t.Context(), "server", 1, nil, task.Limits{})).of(t)
	refused("starting")
	session := returned(b.StartExecution(t.Context(), e.ID, "X", time.Time{})).of(t)
	refused("running")
	end(t, b, e, task.Ending{State: task.Completed})
	for range 2 {
		beginDelete := returned(b.BeginDelete(t.Context(), s.ID)).of(t)
		equal(t, len(beginDelete), 1, beginDelete[0], a.ID)
	}
	deleting := returned(b.Deleting(t.Context())).of(t)
	equal(t, len(deleting), 1, deleting[0], s.ID)
	fails(t, second(b.AddExecution(t.Context(), session.ID, "p", nil)), task.ErrDeleting)
	fails(t, second(b.CreateAttempt(t.Context(), task.Attempt{TaskID: s.ID}, task.Execution{}, task.Request{})), task.ErrDeleting)
	testkit.Must(t, b.UndoDelete(t.Context(), s.ID))
	e = returned(b.AddExecution(t.Context(), session.ID, "p", nil)).of(t)
	refused("follow-up waiting")
	end(t, b, e, task.Ending{State: task.Stopped})
	testkit.Must(t, b.DeleteTask(t.Context(), s.ID))
	equal(t, len(returned(b.AllAttempts(t.Context())).of(t)), 0)
	equal(t, len(returned(b.Executions(t.Context(), a.ID)).of(t)), 0)
	fails(t, second(b.Session(t.Context(), session.ID)), task.ErrNotFound)
}

// A branch can be drawn again until there are worktrees on it.
func TestSetBranch(t *testing.T) {
	b, _, p := newBoard(t)
	a := try(t, b, addTask(t, b, p, "one"))
	testkit.Must(t, b.SetBranch(t.Context(), a.ID, "deepwork/other-1111"))
	equal(t, returned(b.Attempt(t.Context(), a.ID)).of(t).Branch, "deepwork/other-1111")
	fails(t, b.SetBranch(t.Context(), "nobody", "x"), task.ErrNotFound)
	testkit.Must(t, b.SetWorkspace(t.Context(), a.ID, map[string]string{a.Repos[0].RepoID: "abc"}))
	fails(t, b.SetBranch(t.Context(), a.ID, "deepwork/third-1111"), task.ErrInvalid)
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

// What an attempt belongs to is told as a whole, or not at all.
func TestAttemptContext(t *testing.T) {
	b, _, p := newBoard(t)
	s := addTask(t, b, p, "one")
	a := try(t, b, s)
	place := returned(b.AttemptContext(t.Context(), a.ID)).of(t)
	equal(t, place.Attempt.ID, a.ID, len(place.Attempt.Repos), 1, place.Task.ID, s.ID, *place.Project, p)
	fails(t, second(b.BeginDelete(t.Context(), s.ID)), task.ErrRunning)
	is(t, task.Waiting)(b.Stop(t.Context(), returned(b.LatestExecution(t.Context(), a.ID)).of(t).ID))
	testkit.Must(t, second(b.BeginDelete(t.Context(), s.ID)))
	testkit.Must(t, b.DeleteTask(t.Context(), s.ID))
	fails(t, second(b.AttemptContext(t.Context(), a.ID)), task.ErrNotFound)
}

// An execution ends no sooner than it began, and begins no sooner than it was
// made, whatever the clocks do.
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
			x := returned(b.ClaimNext(t.Context(), "server", 1, nil, task.Limits{})).of(t)
			clock.forward(time.Minute - c.back)
			testkit.Must(t, second(b.StartExecution(t.Context(), x.ID, "X", x.CreatedAt.Add(c.since))))
			clock.forward(time.Minute)
			ending := task.Ending{State: task.Completed}
			if c.ended != 0 {
				ending.EndedAt = new(x.CreatedAt.Add(c.ended))
			}
			end(t, b, x, ending)
			got := returned(b.Execution(t.Context(), x.ID)).of(t)
			s, e := got.StartedAt.Sub(x.CreatedAt), got.EndedAt.Sub(x.CreatedAt)
			equal(t, "it started after and ended after", s, c.started, e, c.endedAt)
		})
	}
}

// A change to the same value is no change (seed 004, update_task).
func TestReq004_UpdatingToTheSameChangesNothing(t *testing.T) {
	b, c, p := newBoard(t)
	s := addTask(t, b, p, "one")
	c.forward(time.Hour)
	same := []task.TaskChange{{}, {Title: new("one")}, {Status: new(task.Todo)}, {Description: new("")}, {JobName: new(""), WorkflowName: new("")}}
	for _, change := range same {
		equal(t, change, returned(b.UpdateTask(t.Context(), s.ID, change)).of(t).UpdatedAt, s.UpdatedAt)
	}
	for _, change := range []task.TaskChange{{Title: new("two")}, {Status: new(task.Done)}, {Description: new("d")}, {JobName: new("j"), WorkflowName: new("w")}, {Description: new("")}} {
		was := taskOf(t, b, s.ID)
		c.forward(time.Hour)
		equal(t, change, returned(b.UpdateTask(t.Context(), s.ID, change)).of(t).UpdatedAt.After(was.UpdatedAt), true)
	}
}
