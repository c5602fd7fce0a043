package storetest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
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
	if a, err := b.Attempt(t.Context(), a.ID); err != nil || *a.WorkflowStatus != "completed" || a.WorkflowStep != nil || a.PushError == nil || *a.PushError != "no network" {
		t.Errorf("%+v %v", a, err)
	}
}

func TestWhatIsNotThere(t *testing.T) {
	b, _, _ := newBoard(t)
	ctx := t.Context()
	_, _, queued := b.Queue(ctx, "x", nil)
	_, _, ended := b.EndExecution(ctx, "x", task.Ending{State: task.Stopped})
	for what, err := range map[string]error{
		"attempt":      second(b.Attempt(ctx, "x")),
		"attempts":     second(b.TaskAttempts(ctx, "x", task.Page{Limit: 1})),
		"session":      second(b.Session(ctx, "x")),
		"execution":    second(b.Execution(ctx, "x")),
		"latest":       second(b.LatestExecution(ctx, "x")),
		"now":          second(b.AttemptDetails(ctx, "x")),
		"place":        second(b.AttemptContext(ctx, "x")),
		"create":       second(b.CreateAttempt(ctx, task.Attempt{TaskID: "x"}, task.Execution{}, task.Request{})),
		"workspace":    b.SetWorkspace(ctx, "x", nil),
		"targets":      b.SetTargets(ctx, "x", nil),
		"workflow":     b.SetWorkflow(ctx, "x", task.WorkflowProgress{}),
		"push":         b.SetPushError(ctx, "x", nil),
		"start":        second(b.StartExecution(ctx, "x", "X", time.Time{})),
		"add":          second(b.AddExecution(ctx, "x", "p", nil)),
		"begin delete": second(b.BeginDelete(ctx, "x")),
		"queue":        queued,
		"end":          ended,
	} {
		equal(t, what, errors.Is(err, task.ErrNotFound), true, strings.Contains(err.Error(), `"x"`), true)
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
	again := returned(create(r)).of(t)
	equal(t, again, first)
	is(t, first.ID)(b.FindRequest(t.Context(), r))
	other := r
	other.ArgsDigest = "d2"
	if _, err := create(other); !errors.Is(err, task.ErrReused) || !strings.Contains(err.Error(), `request_id "r1"`) {
		t.Error(err)
	}
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
	taskAttempts := returned(b.TaskAttempts(t.Context(), first.ID, task.Page{Limit: 1})).of(t)
	equal(t, taskAttempts.Total, 1)

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
	findRequest := returned(b.FindRequest(t.Context(), task.Request{Identity: "me", Tool: "create_task", RequestID: "later0", ArgsDigest: "d"})).of(t)
	equal(t, "forgotten before 30 days", findRequest == "", false)
	equal(t, returned(create(r)).of(t).ID == first.ID, false)
	s := returned(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "one"}, bad)).of(t)
	testkit.Must(t, b.DeleteTask(t.Context(), s.ID))
	if _, err := create(bad); !errors.Is(err, task.ErrNotFound) || !strings.Contains(err.Error(), "was deleted since") {
		t.Error(err)
	}
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
	allAttempts := returned(b.AllAttempts(t.Context())).of(t)
	equal(t, len(allAttempts), 0)
	executions := returned(b.Executions(t.Context(), a.ID)).of(t)
	equal(t, len(executions), 0)
	fails(t, second(b.Session(t.Context(), session.ID)), task.ErrNotFound)
}
