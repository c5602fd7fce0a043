package sqlstore_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/actor/xslices"
	"deepwork/catalog/task"
)

func TestCreateAttempt(t *testing.T) {
	b, c, p := newBoard(t)
	s := addTask(t, b, p, "one")
	c.forward(time.Minute)

	want := task.Attempt{
		ID:        "11111111-0000-4000-8000-000000000000",
		TaskID:    s.ID,
		Executor:  "SCRIPTED",
		Variant:   new("PLAN"),
		Prompt:    new("be quick"),
		Branch:    "deepwork/one-0000",
		Workspace: abs("w"),
		Repos: []task.AttemptRepo{
			{RepoID: "r2", RepoName: "web", RepoPath: abs("web"), TargetBranch: "main", Worktree: abs("w/web")},
			{RepoID: "r1", RepoName: "api", RepoPath: abs("api"), TargetBranch: "next", Worktree: abs("w/api")},
		},
	}
	a := testkit.Get(b.CreateAttempt(t.Context(), want,
		task.Execution{ID: "e1", Prompt: "all of it", Variant: new("PLAN")}, task.Request{})).Must(t)
	want.State = task.Waiting
	want.CreatedAt = a.CreatedAt
	want.UpdatedAt = a.UpdatedAt
	equal(t, *a, want, a.CreatedAt, c.at.Truncate(time.Microsecond))
	e := testkit.Get(b.LatestExecution(t.Context(), a.ID)).Must(t)
	equal(t, e.ID, "e1", e.State, task.Waiting, e.FollowUp, false, e.SessionID, nil, e.Prompt, "all of it", *e.Variant,
		"PLAN", e.Owner, "")
	got := taskOf(t, b, s.ID)
	equal(t, got.Status, task.InProgress, got.UpdatedAt, a.CreatedAt, got.HasInProgressAttempt, true,
		*got.LatestAttemptID, a.ID, got.LatestSessionID, nil)
	testkit.Must(t, b.SetBranch(t.Context(), a.ID, "deepwork/other-1111")) // until there are worktrees on it
	testkit.Must(t, b.SetWorkspace(t.Context(), a, map[string]string{"r1": "aaaa", "r2": "bbbb"}))
	testkit.FailsWith(t, b.SetBranch(t.Context(), a.ID, "deepwork/third-1111"), task.ErrInvalid)
	testkit.FailsWith(t, b.SetTargets(t.Context(), a.ID, map[string]string{"r1": "next"}), task.ErrRunning)
	testkit.FailsWith(t, b.SetWorkspace(t.Context(), a, map[string]string{"r9": "cccc"}), task.ErrNotFound)

	c.forward(time.Minute)
	testkit.Must(t, b.SetWorkflow(t.Context(), a.ID,
		task.WorkflowProgress{SessionID: "0123abcd", Status: "active", Step: "draft"}))
	a = testkit.Get(b.Attempt(t.Context(), a.ID)).Must(t)
	equal(t, *a.Repos[0].BaseCommit, "bbbb", *a.Repos[1].BaseCommit, "aaaa", a.Branch, "deepwork/other-1111",
		*a.WorkflowSessionID, "0123abcd",
		*a.WorkflowStatus, "active", *a.WorkflowStep, "draft", a.UpdatedAt, c.at.Truncate(time.Microsecond))
	testkit.Must(t, b.SetPushError(t.Context(), a.ID, new("no network")))
	testkit.Must(t, b.SetWorkflow(t.Context(), a.ID, task.WorkflowProgress{SessionID: "0123abcd", Status: "completed"}))
	a = testkit.Get(b.Attempt(t.Context(), a.ID)).Must(t)
	equal(t, *a.WorkflowStatus, "completed", a.WorkflowStep, nil, *a.PushError, "no network")
}

func TestWhatIsNotThere(t *testing.T) {
	b, _, _ := newBoard(t)
	ctx := t.Context()
	for what, err := range map[string]error{
		"project":   second(b.Project(ctx, "x")),
		"repo":      second(b.Repo(ctx, "x")),
		"repos":     last(b.Repos(ctx, "x", task.Page{Limit: 1})),
		"execution": second(b.Execution(ctx, "x")),
		"place":     second(b.AttemptContext(ctx, "x")),
		"maker":     second(b.Maker(ctx, "x")),
		"workspace": b.SetWorkspace(ctx, &task.Attempt{ID: "x"}, nil),
		"branch":    b.SetBranch(ctx, "x", "x"),
		"run":       b.SetRun(ctx, "x", json.RawMessage(`{}`)),
		"workflow":  b.SetWorkflow(ctx, "x", task.WorkflowProgress{}),
		"push":      b.SetPushError(ctx, "x", nil),
		"start":     second(b.StartExecution(ctx, "x", "X", "", time.Time{})),
		"end":       ended(b.EndExecution(ctx, "x", task.Ending{State: task.Stopped})),
		"release":   second(b.Release(ctx, "x", "one", false)),
		"stop":      second(b.Stop(ctx, "x")),
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
	for _, scope := range []task.Request{by("you", "create_task", "r1", "d"), by("me", "another_tool", "r1", "d"),
		by("me", "create_task", "r2", "d"), {}, {}} {
		equal(t, scope, testkit.Get(create(scope)).Must(t).ID == first.ID, false)
	}
	bad := by("me", "create_task", "r3", "d")
	testkit.FailsWith(t, second(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID}, bad)), task.ErrInvalid)
	is(t, "")(b.FindRequest(t.Context(), bad))
	attempt := func() (*task.Attempt, error) {
		return b.CreateAttempt(t.Context(), task.Attempt{TaskID: first.ID, Executor: "X", Branch: "b", Workspace: "/w"},
			task.Execution{Prompt: "p"}, by("me", "start", "r1", "d"))
	}
	a := testkit.Get(attempt()).Must(t)
	run(t, b)
	same := testkit.Get(attempt()).Must(t)
	equal(t, same.ID, a.ID, same.State, task.Running,
		testkit.Get(b.TaskAttempts(t.Context(), first.ID, task.Page{Limit: 1})).Must(t).Total, 1)

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
	equal(t, "forgotten before 30 days",
		testkit.Get(b.FindRequest(t.Context(), by("me", "create_task", "later0", "d"))).Must(t) == "", false)
	equal(t, testkit.Get(create(r)).Must(t).ID == first.ID, false)
	testkit.Must(t, b.DeleteTask(t.Context(),
		testkit.Get(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "one"}, bad)).Must(t).ID))
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
	session := testkit.Get(b.StartExecution(t.Context(), e.ID, "X", "", time.Time{})).Must(t)
	refused("running")
	end(t, b, e, task.Ending{State: task.Completed})
	for range 2 {
		is(t, []string{a.ID})(b.BeginDelete(t.Context(), s.ID))
	}
	is(t, []string{s.ID})(b.Deleting(t.Context()))
	testkit.FailsWith(t, second(b.AddExecution(t.Context(), session.ID, "p", nil, task.Request{})), task.ErrDeleting)
	testkit.FailsWith(t, second(
		b.CreateAttempt(t.Context(), task.Attempt{TaskID: s.ID}, task.Execution{}, task.Request{})), task.ErrDeleting)
	testkit.Must(t, b.UndoDelete(t.Context(), s.ID))
	e = testkit.Get(b.AddExecution(t.Context(), session.ID, "p", nil, task.Request{})).Must(t)
	refused("follow-up waiting")
	end(t, b, e, task.Ending{State: task.Stopped})
	place := testkit.Get(b.AttemptContext(t.Context(), a.ID)).Must(t)
	equal(t, place.Attempt.ID, a.ID, len(place.Attempt.Repos), 1, place.Task.ID, s.ID, *place.Project, p)
	testkit.Must(t, b.DeleteTask(t.Context(), s.ID))
	equal(t, len(testkit.Get(b.AllAttempts(t.Context())).Must(t)), 0,
		len(testkit.Get(b.Executions(t.Context(), a.ID)).Must(t)), 0)
	testkit.FailsWith(t, second(b.Session(t.Context(), session.ID)), task.ErrNotFound)
	testkit.FailsWith(t, second(b.AttemptContext(t.Context(), a.ID)), task.ErrNotFound)
}

func TestStartAndEndKeepTheirOrder(t *testing.T) {
	b, clock, p := newBoard(t)
	// The clock is set back before the start; the server tells since and ended, 0 for unknown; the board has
	// the other two.
	keeps := func(back, since, ended, started, endedAt time.Duration) {
		t.Helper()
		try(t, b, addTask(t, b, p, "one"))
		x := claimed(t, b, 1)
		clock.forward(time.Minute - back)
		testkit.Must(t, second(b.StartExecution(t.Context(), x.ID, "X", "", x.CreatedAt.Add(since))))
		clock.forward(time.Minute)
		ending := task.Ending{State: task.Completed}
		if ended != 0 {
			ending.EndedAt = new(x.CreatedAt.Add(ended))
		}
		end(t, b, x, ending)
		got := testkit.Get(b.Execution(t.Context(), x.ID)).Must(t)
		equal(t, "it started after and ended after", got.StartedAt.Sub(x.CreatedAt), started,
			got.EndedAt.Sub(x.CreatedAt), endedAt)
	}
	keeps(0, 10*time.Second, 20*time.Second, 10*time.Second, 20*time.Second)
	keeps(0, 10*time.Second, 10*time.Second, 10*time.Second, 10*time.Second) // it ends at once
	keeps(0, 10*time.Second, 5*time.Second, 10*time.Second, 10*time.Second)  // before its start
	keeps(0, 10*time.Second, 2*time.Hour, 10*time.Second, 2*time.Minute)     // in the future
	keeps(0, -time.Hour, time.Second, 0, time.Second)                        // it starts before it is
	keeps(0, 2*time.Hour, 0, time.Minute, 2*time.Minute)                     // in the future
	keeps(time.Hour, 10*time.Second, 20*time.Second, 0, 0)                   // the clock is set back
	keeps(time.Hour, 0, 0, 0, 0)                                             // and no end is told
}

func TestReq004_UpdatingToTheSameChangesNothing(t *testing.T) {
	b, c, p := newBoard(t)
	s := addTask(t, b, p, "one")
	c.forward(time.Hour)
	for _, change := range []task.TaskChange{{}, {Title: new("one")}, {Status: new(task.Todo)}, {Description: new("")},
		{JobName: new(""), WorkflowName: new("")}} {
		equal(t, change, testkit.Get(b.UpdateTask(t.Context(), s.ID, change)).Must(t).UpdatedAt, s.UpdatedAt)
	}

	for _, change := range []task.TaskChange{{Title: new("two")}, {Status: new(task.Done)}, {Description: new("d")},
		{JobName: new("j"), WorkflowName: new("w")}, {Description: new("")}} {
		was := taskOf(t, b, s.ID)
		c.forward(time.Hour)
		equal(t, change, testkit.Get(b.UpdateTask(t.Context(), s.ID, change)).Must(t).UpdatedAt.After(was.UpdatedAt),
			true)
	}
}

func led(t testing.TB, b board, p task.Project, title string) *task.Attempt {
	t.Helper()
	s := testkit.Get(b.CreateTask(t.Context(), task.NewTask{
		ProjectID:    p.ID,
		Title:        title,
		JobName:      new("j"),
		WorkflowName: new("w"),
		Lead:         task.ServerLeads,
	}, task.Request{})).Must(t)
	return testkit.Get(b.CreateAttempt(t.Context(), task.Attempt{
		TaskID:    s.ID,
		Executor:  "SCRIPTED",
		Branch:    "deepwork/" + title,
		Workspace: abs("w"),
		Situation: task.Situation{Run: json.RawMessage(`{"goal":"g"}`)},
	},
		task.Execution{Prompt: "do it"}, task.Request{})).Must(t)
}

func step(a *task.Attempt, id string) task.Execution {
	return task.Execution{
		ID:                id,
		AttemptID:         a.ID,
		LogID:             "agent of " + id,
		WorkflowSessionID: "0123abcd",
		StepID:            "one",
		Executor:          "SCRIPTED",
		Variant:           new("PLAN"),
	}
}

func ended(_ *task.Execution, _ bool, err error) error { return err }

func endStep(t testing.TB, b board, id string) {
	t.Helper()
	testkit.Must(t, ended(b.EndExecution(t.Context(), id, task.Ending{State: task.Completed})))
}

func startStep(t testing.TB, b board, id string, at time.Time) {
	t.Helper()
	testkit.Must(t, second(b.StartExecution(t.Context(), id, "SCRIPTED", "", at)))
}

func addStep(t testing.TB, b board, a *task.Attempt, id string) {
	t.Helper()
	is(t, false)(b.AddStep(t.Context(), step(a, id), 0, nil, task.Limits{}))
}

func claimStep(t testing.TB, b board, a *task.Attempt, id string, max int) bool {
	t.Helper()
	return testkit.Get(b.ClaimStep(t.Context(), a.ID, id, max, nil, task.Limits{})).Must(t)
}

func TestAStepIsStoredAtEachStage(t *testing.T) {
	b, c, p := newBoard(t)
	a := led(t, b, p, "run")
	testkit.FailsWith(t, second(b.AddStep(t.Context(), step(a, "early"), 9, nil, task.Limits{})), task.ErrEnded)

	leader, _ := run(t, b)
	equal(t, "is not the execution of a leader", leader.Lead, true)
	want := step(a, "s1")
	want.State, want.CreatedAt = task.Waiting, c.at.UTC().Truncate(time.Microsecond)
	same := func() { is(t, []task.Execution{want})(b.Steps(t.Context(), a.ID)) }
	addStep(t, b, a, "s1")
	same()
	equal(t, "the only slot is free and it gets none", claimStep(t, b, a, "s1", 1), true)
	want.State = task.Starting
	same()
	testkit.FailsWith(t, second(b.ClaimStep(t.Context(), a.ID, "s1", 2, nil, task.Limits{})), task.ErrEnded)

	startStep(t, b, "s1", c.at.Add(-time.Hour)) // a clock that differs
	want.State, want.StartedAt = task.Running, &want.CreatedAt
	same()
	c.forward(time.Minute)
	until := c.at.Add(time.Hour).UTC().Truncate(time.Microsecond)
	testkit.Must(t, ended(b.EndExecution(t.Context(), "s1", task.Ending{
		Conversation: new("talk"),
		LimitedUntil: &until,
		State:        task.Failed,
		ExitCode:     new(3),
		FinalMessage: new("bye"),
		Error:        new("it broke"),
		Usage:        &task.Usage{Turns: 7},
	})))
	want.State = task.Failed
	want.EndedAt = new(c.at.UTC().Truncate(time.Microsecond))
	want.Conversation = new("talk")
	want.LimitedUntil = &until
	want.ExitCode = new(3)
	want.FinalMessage = new("bye")
	want.Error = new("it broke")
	same()
	endStep(t, b, "s1")
	same() // an end is final
	testkit.FailsWith(t, second(b.StartExecution(t.Context(), "s1", "SCRIPTED", "", c.at)), task.ErrEnded)

	used := testkit.Get(b.Used(t.Context(), a.ID)).Must(t)
	equal(t, len(used), 1, used[0].ExecutionID, "s1", used[0].Turns, 7,
		len(testkit.Get(b.Steps(t.Context(), "no run")).Must(t)), 0)
	testkit.FailsWith(t, second(b.ClaimStep(t.Context(), a.ID, "x", 9, nil, task.Limits{})), task.ErrEnded)
	testkit.FailsWith(t, second(b.AddStep(t.Context(), step(try(t, b, addTask(t, b, p, "no run")), "s2"), 9, nil,
		task.Limits{})), task.ErrEnded)

	own := testkit.Get(b.Executions(t.Context(), a.ID)).Must(t)
	equal(t, "the executions of the run itself", len(own), 1, own[0].Lead, true, own[0].LogID, a.ID)
	open := testkit.Get(b.OpenExecutions(t.Context())).Must(t)
	equal(t, "what servers lead", len(open), 1, open[0].ID, leader.ID)
}

// The agents of runs and those of other attempts share the slots; a leader needs none. Who leads one run
// claims no other.
func TestStepsShareTheSlots(t *testing.T) {
	b, _, p := newBoard(t)
	one, two := led(t, b, p, "one"), led(t, b, p, "two")
	only := func() *task.Execution {
		return testkit.Get(b.ClaimNext(t.Context(), "server", 9, &task.Claim{Run: two.ID}, task.Limits{})).Must(t)
	}
	x := only()
	equal(t, x.AttemptID, two.ID, only(), nil)
	startStep(t, b, x.ID, time.Time{})
	x = claimed(t, b, 0)
	testkit.Need(t, x != nil && x.Lead, "a leader waits for a slot: %+v", x)
	startStep(t, b, x.ID, time.Time{})
	addStep(t, b, one, "s1")
	addStep(t, b, two, "s2")
	equal(t, "two agents of runs for one slot", claimStep(t, b, one, "s1", 0), false, claimStep(t, b, one, "s1", 1),
		true, claimStep(t, b, two, "s2", 1), false)
	try(t, b, addTask(t, b, p, "alone"))
	equal(t, claimed(t, b, 1), nil, only().Lead, false, claimStep(t, b, two, "s2", 2), false)
	endStep(t, b, "s1")
	equal(t, "a slot is free and it gets none", claimStep(t, b, two, "s2", 2), true)
	addStep(t, b, one, "s3")
	here := task.Place{MachineID: "0a1b2c3d", Root: abs("elsewhere")}
	is(t, true)(b.ClaimStep(t.Context(), one.ID, "s3", 1, &task.Claim{Place: here}, task.Limits{}))

	// Agents of steps wait from the moment at which what has ended reaches a limit.
	startStep(t, b, "s3", time.Time{})
	endStep(t, b, "s3")
	s := step(one, "s4")
	s.StepID = "two"
	limits := task.Limits{Unknown: new(int64(1))}
	is(t, false)(b.AddStep(t.Context(), s, 9, nil, limits))
	of := testkit.Get(b.StepsOf(t.Context(), one.ID, s.WorkflowSessionID, s.StepID)).Must(t)
	equal(t, len(of), 1, of[0].State, task.Waiting)
	is(t, false)(b.ClaimStep(t.Context(), one.ID, "s4", 9, nil, limits))
	limits.Unknown = new(int64(2))
	is(t, true)(b.ClaimStep(t.Context(), one.ID, "s4", 9, nil, limits))
}

func TestStepsClaimedAtOnce(t *testing.T) {
	b, _, p := newBoard(t)
	a := led(t, b, p, "run")
	run(t, b)
	const slots, asked = 3, 12
	told := atOnce(asked, func(i int) bool {
		id := fmt.Sprint("s", i)
		x := step(a, id)
		x.StepID = id                                                          // a step has one agent at a time
		got, err := b.AddStep(t.Context(), x, slots*(i%2), nil, task.Limits{}) // half of them wait first
		testkit.Works(t, err)
		return got || i%2 == 0 && claimStep(t, b, a, id, slots)
	})
	all := testkit.Get(b.Steps(t.Context(), a.ID)).Must(t)
	have := won(xslices.Map(all, func(x task.Execution) bool { return x.State == task.Starting }))
	equal(t, len(all), asked, won(told), slots, have, slots)
	stepsOf := testkit.Get(b.StepsOf(t.Context(), a.ID, "0123abcd", "s7")).Must(t)
	equal(t, "those of one step", len(stepsOf), 1, stepsOf[0].ID, "s7")
}

func TestTheEndOfALeaderEndsItsSteps(t *testing.T) {
	b, c, p := newBoard(t)
	a, other := led(t, b, p, "run"), led(t, b, p, "other")
	leader, _ := run(t, b)
	run(t, b)
	for _, id := range []string{"ended", "runs", "waits"} {
		addStep(t, b, a, id)
	}

	addStep(t, b, other, "of another")
	testkit.Must(t, b.SetWorkflow(t.Context(), a.ID,
		task.WorkflowProgress{SessionID: "0123abcd", Status: "active", Step: "one"}))
	open, _, err := b.Work(t.Context())
	testkit.Must(t, err)
	equal(t, len(open), 2, open[1].Run == nil, false, open[1].Step, "one") // it is listed with where it is
	for _, id := range []string{"ended", "runs"} {
		claimStep(t, b, a, id, 9)
		startStep(t, b, id, c.at)
	}

	endStep(t, b, "ended")
	c.forward(time.Minute)
	testkit.Must(t, b.SetRun(t.Context(), a.ID, json.RawMessage(`{"goal":"g","session_id":"0123abcd"}`)))
	end(t, b, leader, task.Ending{State: task.Stopped})
	needs, _ := attention(t, b)
	equal(t, len(needs), 2, needs[1].State, task.Running, string(needs[0].Run), `{"goal":"g","session_id":"0123abcd"}`,
		needs[0].State, task.Stopped)
	all := testkit.Get(b.Steps(t.Context(), a.ID)).Must(t)
	equal(t, len(all), 3, all[0].ID, "waits", all[0].State, task.Interrupted, all[1].State, task.Interrupted,
		all[2].State, task.Completed)
	steps := testkit.Get(b.Steps(t.Context(), other.ID)).Must(t)
	equal(t, "those of another run", len(steps), 1, steps[0].State, task.Waiting)

	// the one that waited used nothing, and the leader is not an agent
	equal(t, len(testkit.Get(b.Used(t.Context(), a.ID)).Must(t)), 2)
	testkit.FailsWith(t, second(b.AddStep(t.Context(), step(a, "late"), 9, nil, task.Limits{})), task.ErrEnded)
	testkit.FailsWith(t, second(b.ClaimStep(t.Context(), a.ID, "waits", 9, nil, task.Limits{})), task.ErrEnded)

	attempt := testkit.Get(b.Attempt(t.Context(), a.ID)).Must(t)
	equal(t, string(attempt.Run), `{"goal":"g","session_id":"0123abcd"}`, attempt.State, task.Stopped)
	alone := try(t, b, addTask(t, b, p, "alone"))
	testkit.Must(t, b.SetRun(t.Context(), alone.ID, json.RawMessage(`{}`)))
	equal(t, "an attempt of one agent has become a run", testkit.Get(b.Attempt(t.Context(), alone.ID)).Must(t).Run, nil)
}
