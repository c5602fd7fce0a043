package storetest_test

import (
	"errors"
	"fmt"
	"reflect"
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
	a, err := b.CreateAttempt(t.Context(), want, task.Execution{ID: "e1", Prompt: "all of it", Variant: new("PLAN")}, task.Request{})
	testkit.Must(t, err)
	want.State, want.CreatedAt, want.UpdatedAt = task.Waiting, a.CreatedAt, a.UpdatedAt
	if !reflect.DeepEqual(*a, want) || !a.CreatedAt.Equal(c.at.Truncate(time.Microsecond)) {
		t.Errorf("%+v, want %+v", a, want)
	}
	e, err := b.LatestExecution(t.Context(), a.ID)
	if err != nil || e.ID != "e1" || e.State != task.Waiting || e.FollowUp || e.SessionID != nil || e.Prompt != "all of it" || *e.Variant != "PLAN" || e.Owner != "" {
		t.Errorf("%+v %v", e, err)
	}
	got := taskOf(t, b, s.ID)
	if got.Status != task.InProgress || !got.UpdatedAt.Equal(a.CreatedAt) || !got.HasInProgressAttempt || *got.LatestAttemptID != a.ID || got.LatestSessionID != nil {
		t.Errorf("%+v", got)
	}
	if err := b.SetWorkspace(t.Context(), a.ID, map[string]string{"r1": "aaaa", "r2": "bbbb"}); err != nil {
		t.Error(err)
	}
	if err := b.SetTargets(t.Context(), a.ID, map[string]string{"r1": "next"}); !errors.Is(err, task.ErrRunning) {
		t.Error(err)
	}
	if err := b.SetWorkspace(t.Context(), a.ID, map[string]string{"r9": "cccc"}); !errors.Is(err, task.ErrNotFound) {
		t.Error(err)
	}
	c.forward(time.Minute)
	if err := b.SetWorkflow(t.Context(), a.ID, task.WorkflowProgress{SessionID: "0123abcd", Status: "active", Step: "draft"}); err != nil {
		t.Error(err)
	}
	if a, err = b.Attempt(t.Context(), a.ID); err != nil || *a.Repos[0].BaseCommit != "bbbb" || *a.Repos[1].BaseCommit != "aaaa" ||
		*a.WorkflowSessionID != "0123abcd" || *a.WorkflowStatus != "active" || *a.WorkflowStep != "draft" || !a.UpdatedAt.Equal(c.at.Truncate(time.Microsecond)) {
		t.Errorf("%+v %v", a, err)
	}
	if err := b.SetPushError(t.Context(), a.ID, new("no network")); err != nil {
		t.Error(err)
	}
	if err := b.SetWorkflow(t.Context(), a.ID, task.WorkflowProgress{SessionID: "0123abcd", Status: "completed"}); err != nil {
		t.Error(err)
	}
	if a, err = b.Attempt(t.Context(), a.ID); err != nil || *a.WorkflowStatus != "completed" || a.WorkflowStep != nil || a.PushError == nil || *a.PushError != "no network" {
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
		if !errors.Is(err, task.ErrNotFound) || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if ok, err := b.Adopt(ctx, "x", "a", "b"); ok || err != nil {
		t.Error(ok, err)
	}
}

func TestRequestsGiveTheSameResult(t *testing.T) {
	b, c, p := newBoard(t)
	r := task.Request{Identity: "me", Tool: "create_task", RequestID: "r1", ArgsDigest: "d1"}
	if id, err := b.FindRequest(t.Context(), r); id != "" || err != nil {
		t.Error(id, err)
	}
	create := func(r task.Request) (*task.Summary, error) {
		c.forward(time.Minute)
		return b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "one"}, r)
	}
	first, err := create(r)
	testkit.Must(t, err)
	again, err := create(r)
	if err != nil || !reflect.DeepEqual(again, first) {
		t.Errorf("%+v, want %+v; %v", again, first, err)
	}
	if id, err := b.FindRequest(t.Context(), r); id != first.ID || err != nil {
		t.Error(id, err)
	}
	other := r
	other.ArgsDigest = "d2"
	if _, err := create(other); !errors.Is(err, task.ErrReused) || !strings.Contains(err.Error(), `request_id "r1"`) {
		t.Error(err)
	}
	if _, err := b.FindRequest(t.Context(), other); !errors.Is(err, task.ErrReused) {
		t.Error(err)
	}
	for _, scope := range []task.Request{{Identity: "you", Tool: "create_task", RequestID: "r1", ArgsDigest: "d1"}, {Identity: "me", Tool: "another_tool", RequestID: "r1", ArgsDigest: "d1"}, {Identity: "me", Tool: "create_task", RequestID: "r2", ArgsDigest: "d1"}, {}, {}} {
		if s, err := create(scope); err != nil || s.ID == first.ID {
			t.Errorf("%+v: %+v %v", scope, s, err)
		}
	}
	bad := task.Request{Identity: "me", Tool: "create_task", RequestID: "r3", ArgsDigest: "d"}
	if _, err := b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID}, bad); !errors.Is(err, task.ErrInvalid) {
		t.Error(err)
	}
	if id, err := b.FindRequest(t.Context(), bad); id != "" || err != nil {
		t.Error("a refused call is kept:", id, err)
	}

	ar := task.Request{Identity: "me", Tool: "start_task_attempt", RequestID: "r1", ArgsDigest: "d"}
	attempt := func() (*task.Attempt, error) {
		return b.CreateAttempt(t.Context(), task.Attempt{TaskID: first.ID, Executor: "X", Branch: "b", Workspace: "/w"}, task.Execution{Prompt: "p"}, ar)
	}
	a, err := attempt()
	testkit.Must(t, err)
	run(t, b)
	if same, err := attempt(); err != nil || same.ID != a.ID || same.State != task.Running {
		t.Errorf("%+v %v", same, err)
	}
	if l, err := b.TaskAttempts(t.Context(), first.ID, task.Page{Limit: 1}); err != nil || l.Total != 1 {
		t.Error(l, err)
	}

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
	if again, err := create(r); err != nil || again.ID != first.ID {
		t.Errorf("forgotten after 30 days: %+v %v", again, err)
	}
	many(6, "last")
	if id, err := b.FindRequest(t.Context(), r); id != "" || err != nil {
		t.Error("known after 30 days and 100 calls:", id, err)
	}
	c.forward(task.RequestsKept - 300*time.Minute)
	many(task.NewestRequests, "much later")
	if id, err := b.FindRequest(t.Context(), task.Request{Identity: "me", Tool: "create_task", RequestID: "later0", ArgsDigest: "d"}); id == "" || err != nil {
		t.Error("forgotten before 30 days:", id, err)
	}
	if s, err := create(r); err != nil || s.ID == first.ID {
		t.Errorf("%+v %v", s, err)
	}
	s, err := b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "one"}, bad)
	testkit.Must(t, err)
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
		if err := b.DeleteTask(t.Context(), s.ID); !errors.Is(err, task.ErrRunning) {
			t.Errorf("%s: %v", when, err)
		}
		if _, err := b.BeginDelete(t.Context(), s.ID); !errors.Is(err, task.ErrRunning) {
			t.Errorf("%s: %v", when, err)
		}
	}
	refused("waiting")
	e, err := b.ClaimNext(t.Context(), "server", 1, nil, task.Limits{})
	testkit.Must(t, err)
	refused("starting")
	session, err := b.StartExecution(t.Context(), e.ID, "X", time.Time{})
	testkit.Must(t, err)
	refused("running")
	end(t, b, e, task.Ending{State: task.Completed})
	for range 2 {
		if ids, err := b.BeginDelete(t.Context(), s.ID); err != nil || len(ids) != 1 || ids[0] != a.ID {
			t.Error(ids, err)
		}
	}
	if ids, err := b.Deleting(t.Context()); err != nil || len(ids) != 1 || ids[0] != s.ID {
		t.Error(ids, err)
	}
	if _, err := b.AddExecution(t.Context(), session.ID, "p", nil); !errors.Is(err, task.ErrDeleting) {
		t.Error(err)
	}
	if _, err := b.CreateAttempt(t.Context(), task.Attempt{TaskID: s.ID}, task.Execution{}, task.Request{}); !errors.Is(err, task.ErrDeleting) {
		t.Error(err)
	}
	if err := b.UndoDelete(t.Context(), s.ID); err != nil {
		t.Error(err)
	}
	e, err = b.AddExecution(t.Context(), session.ID, "p", nil)
	testkit.Must(t, err)
	refused("follow-up waiting")
	end(t, b, e, task.Ending{State: task.Stopped})
	if err := b.DeleteTask(t.Context(), s.ID); err != nil {
		t.Error(err)
	}
	if all, err := b.AllAttempts(t.Context()); err != nil || len(all) > 0 {
		t.Error(all, err)
	}
	if x, err := b.Executions(t.Context(), a.ID); err != nil || len(x) > 0 {
		t.Error(x, err)
	}
	if x, err := b.Session(t.Context(), session.ID); !errors.Is(err, task.ErrNotFound) {
		t.Error(x, err)
	}
}
