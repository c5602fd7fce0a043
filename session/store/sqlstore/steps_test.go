package sqlstore_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
)

// led makes an attempt that a server leads; it waits.
func led(t testing.TB, b board, p task.Project, title string) *task.Attempt {
	t.Helper()
	s := returned(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: title, JobName: new("j"), WorkflowName: new("w"), Lead: task.ServerLeads}, task.Request{})).of(t)
	a, err := b.CreateAttempt(t.Context(), task.Attempt{TaskID: s.ID, Executor: "SCRIPTED", Branch: "deepwork/" + title, Workspace: abs("w"), Situation: task.Situation{Run: json.RawMessage(`{"goal":"g"}`)}},
		task.Execution{Prompt: "do it"}, task.Request{})
	testkit.Must(t, err)
	return a
}

// step is an execution for a step of a run.
func step(a *task.Attempt, id string) task.Execution {
	return task.Execution{ID: id, AttemptID: a.ID, LogID: "agent of " + id, WorkflowSessionID: "0123abcd", StepID: "one", Executor: "SCRIPTED", Variant: new("PLAN")}
}

// ended returns the error of EndExecution.
func ended(_ *task.Execution, _ bool, err error) error { return err }

func addStep(t testing.TB, b board, a *task.Attempt, id string) {
	t.Helper()
	is(t, false)(b.AddStep(t.Context(), step(a, id), 0, nil, task.Limits{}))
}

func claimStep(t testing.TB, b board, a *task.Attempt, id string, max int) bool {
	t.Helper()
	return returned(b.ClaimStep(t.Context(), a.ID, id, max, nil, task.Limits{})).of(t)
}

func TestAStepIsStoredAtEachStage(t *testing.T) {
	b, c, p := newBoard(t)
	a := led(t, b, p, "run")
	fails(t, second(b.AddStep(t.Context(), step(a, "early"), 9, nil, task.Limits{})), task.ErrEnded)
	leader, _ := run(t, b)
	equal(t, "is not the execution of a leader", leader.Lead, true)
	want := step(a, "s1")
	want.State, want.CreatedAt = task.Waiting, c.at.UTC().Truncate(time.Microsecond)
	same := func() {
		t.Helper()
		all := returned(b.Steps(t.Context(), a.ID)).of(t)
		equal(t, len(all), 1)
		equal(t, all[0], want)
	}
	addStep(t, b, a, "s1")
	same()
	equal(t, "the only slot is free and it gets none", claimStep(t, b, a, "s1", 1), true)
	want.State = task.Starting
	same()
	fails(t, second(b.ClaimStep(t.Context(), a.ID, "s1", 2, nil, task.Limits{})), task.ErrEnded)
	testkit.Must(t, second(b.StartExecution(t.Context(), "s1", "SCRIPTED", c.at.Add(-time.Hour)))) // a clock that differs
	want.State, want.StartedAt = task.Running, &want.CreatedAt
	same()
	c.forward(time.Minute)
	until := c.at.Add(time.Hour).UTC().Truncate(time.Microsecond)
	testkit.Must(t, ended(b.EndExecution(t.Context(), "s1", task.Ending{Conversation: new("talk"), LimitedUntil: &until,
		State: task.Failed, ExitCode: new(3), FinalMessage: new("bye"), Error: new("it broke"), Usage: &task.Usage{Turns: 7}})))
	want.State, want.EndedAt, want.Conversation, want.LimitedUntil = task.Failed, new(c.at.UTC().Truncate(time.Microsecond)), new("talk"), &until
	want.ExitCode, want.FinalMessage, want.Error = new(3), new("bye"), new("it broke")
	same()
	testkit.Must(t, ended(b.EndExecution(t.Context(), "s1", task.Ending{State: task.Completed})))
	same() // an end is final
	fails(t, second(b.StartExecution(t.Context(), "s1", "SCRIPTED", c.at)), task.ErrEnded)
	used := returned(b.Used(t.Context(), a.ID)).of(t)
	equal(t, len(used), 1, used[0].ExecutionID, "s1", used[0].Turns, 7)
	equal(t, len(returned(b.Steps(t.Context(), "no run")).of(t)), 0)
	for what, err := range map[string]error{
		"claim": second(b.ClaimStep(t.Context(), a.ID, "x", 9, nil, task.Limits{})),
		"add":   second(b.AddStep(t.Context(), step(try(t, b, addTask(t, b, p, "no run")), "s2"), 9, nil, task.Limits{})),
	} {
		fails(t, err, task.ErrEnded, what)
	}
	if all, err := b.Executions(t.Context(), a.ID); err != nil || len(all) != 1 || !all[0].Lead || all[0].LogID != a.ID {
		t.Errorf("the executions of the run itself: %+v %v", all, err)
	}
	openExecutions := returned(b.OpenExecutions(t.Context())).of(t)
	equal(t, "what servers lead", len(openExecutions), 1, openExecutions[0].ID, leader.ID)
	fails(t, ended(b.EndExecution(t.Context(), "x", task.Ending{State: task.Failed})), task.ErrNotFound)
}

// Who leads one run alone claims no other, but any attempt with an agent of its own.
func TestClaimsOfOneRun(t *testing.T) {
	b, _, p := newBoard(t)
	_, two := led(t, b, p, "one"), led(t, b, p, "two")
	try(t, b, addTask(t, b, p, "alone"))
	only := &task.Claim{Run: two.ID}
	claim := func() *task.Execution {
		t.Helper()
		return returned(b.ClaimNext(t.Context(), "server", 9, only, task.Limits{})).of(t)
	}
	x := claim()
	equal(t, x.AttemptID, two.ID)
	x = claim()
	equal(t, x.Lead, false)
	equal(t, "another run claimed", claim(), nil)
}

// The agents of runs and those of other attempts share the slots; a leader needs none.
func TestStepsShareTheSlots(t *testing.T) {
	b, _, p := newBoard(t)
	one, two := led(t, b, p, "one"), led(t, b, p, "two")
	for range 2 {
		if x, err := b.ClaimNext(t.Context(), "server", 0, nil, task.Limits{}); err != nil || x == nil || !x.Lead {
			t.Fatalf("a leader waits for a slot: %+v %v", x, err)
		} else if _, err := b.StartExecution(t.Context(), x.ID, "SCRIPTED", time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	addStep(t, b, one, "s1")
	addStep(t, b, two, "s2")
	equal(t, "two agents of runs for one slot", claimStep(t, b, one, "s1", 0), false, claimStep(t, b, one, "s1", 1), true, claimStep(t, b, two, "s2", 1), false)
	try(t, b, addTask(t, b, p, "alone"))
	is[*task.Execution](t, nil)(b.ClaimNext(t.Context(), "server", 1, nil, task.Limits{}))
	equal(t, returned(b.ClaimNext(t.Context(), "server", 2, nil, task.Limits{})).of(t).Lead, false)
	equal(t, "three agents for two slots", claimStep(t, b, two, "s2", 2), false)
	testkit.Must(t, ended(b.EndExecution(t.Context(), "s1", task.Ending{State: task.Completed})))
	equal(t, "a slot is free and it gets none", claimStep(t, b, two, "s2", 2), true)
	addStep(t, b, one, "s3")
	here := task.Place{MachineID: "0a1b2c3d", Root: abs("elsewhere")}
	is(t, true)(b.ClaimStep(t.Context(), one.ID, "s3", 1, &task.Claim{Place: here}, task.Limits{}))
}

// Many leaders that ask at once share what is free.
func TestStepsClaimedAtOnce(t *testing.T) {
	b, _, p := newBoard(t)
	a := led(t, b, p, "run")
	run(t, b)
	const slots, asked = 3, 12
	got := make(chan bool, asked)
	for i := range asked {
		id := fmt.Sprint("s", i)
		x := step(a, id)
		x.StepID = id // a step has one agent at a time
		go func() {
			is, err := b.AddStep(t.Context(), x, slots*(i%2), nil, task.Limits{}) // half of them wait first
			if err == nil && i%2 == 0 {
				is, err = b.ClaimStep(t.Context(), a.ID, id, slots, nil, task.Limits{})
			}
			testkit.Must(t, err)
			got <- is
		}()
	}
	n := 0
	for range asked {
		if <-got {
			n++
		}
	}
	equal(t, "agents for slots", n, slots)
	all := returned(b.Steps(t.Context(), a.ID)).of(t)
	equal(t, len(all), asked)
	for _, x := range all {
		if x.State == task.Starting {
			n--
		}
	}
	equal(t, "agents were told that they have a slot and have none", n, 0)
	stepsOf := returned(b.StepsOf(t.Context(), a.ID, "0123abcd", "s7")).of(t)
	equal(t, "those of one step", len(stepsOf), 1, stepsOf[0].ID, "s7")
}

// Agents of steps wait from the moment at which what has ended reaches a limit.
func TestAStepIsClaimedWithinTheLimits(t *testing.T) {
	b, _, p := newBoard(t)
	a := led(t, b, p, "run")
	run(t, b)
	for _, id := range []string{"s1", "s2"} {
		addStep(t, b, a, id)
	}
	limits := task.Limits{Unknown: new(int64(1))}
	is(t, true)(b.ClaimStep(t.Context(), a.ID, "s1", 9, nil, limits))
	testkit.Must(t, second(b.StartExecution(t.Context(), "s1", "SCRIPTED", time.Time{})))
	testkit.Must(t, ended(b.EndExecution(t.Context(), "s1", task.Ending{State: task.Completed})))
	is(t, false)(b.ClaimStep(t.Context(), a.ID, "s2", 9, nil, limits))
	x := step(a, "s3")
	x.StepID = "two"
	is(t, false)(b.AddStep(t.Context(), x, 9, nil, limits))
	stepsOf := returned(b.StepsOf(t.Context(), a.ID, x.WorkflowSessionID, x.StepID)).of(t)
	equal(t, len(stepsOf), 1, stepsOf[0].State, task.Waiting)
	limits.Unknown = new(int64(2))
	is(t, true)(b.ClaimStep(t.Context(), a.ID, "s3", 9, nil, limits))
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
	for _, id := range []string{"ended", "runs"} {
		claimStep(t, b, a, id, 9)
		testkit.Must(t, second(b.StartExecution(t.Context(), id, "SCRIPTED", c.at)))
	}
	testkit.Must(t, ended(b.EndExecution(t.Context(), "ended", task.Ending{State: task.Completed})))
	c.forward(time.Minute)
	testkit.Must(t, b.SetRun(t.Context(), a.ID, json.RawMessage(`{"goal":"g","session_id":"0123abcd"}`)))
	end(t, b, leader, task.Ending{State: task.Stopped})
	all := returned(b.Steps(t.Context(), a.ID)).of(t)
	equal(t, len(all), 3, all[0].ID, "waits", all[0].State, task.Interrupted, all[1].State, task.Interrupted, all[2].State, task.Completed)
	steps := returned(b.Steps(t.Context(), other.ID)).of(t)
	equal(t, "those of another run", len(steps), 1, steps[0].State, task.Waiting)
	used, err := b.Used(t.Context(), a.ID)
	if err != nil || len(used) != 2 { // the one that waited used nothing, and the leader is no agent
		t.Errorf("%+v %v", used, err)
	}
	fails(t, second(b.AddStep(t.Context(), step(a, "late"), 9, nil, task.Limits{})), task.ErrEnded)
	fails(t, second(b.ClaimStep(t.Context(), a.ID, "waits", 9, nil, task.Limits{})), task.ErrEnded)
	attempt := returned(b.Attempt(t.Context(), a.ID)).of(t)
	equal(t, string(attempt.Run), `{"goal":"g","session_id":"0123abcd"}`, attempt.State, task.Stopped)
	fails(t, b.SetRun(t.Context(), "x", json.RawMessage(`{}`)), task.ErrNotFound)
	alone := try(t, b, addTask(t, b, p, "alone"))
	testkit.Must(t, b.SetRun(t.Context(), alone.ID, json.RawMessage(`{}`)))
	attempt = returned(b.Attempt(t.Context(), alone.ID)).of(t)
	equal(t, "an attempt of one agent has become a run", attempt.Run, nil)
}

// A run is listed with where it is, and needs a person if it stopped, as its record says why.
func TestRunsAreListed(t *testing.T) {
	b, _, p := newBoard(t)
	a := led(t, b, p, "run")
	e, _ := run(t, b)
	testkit.Must(t, b.SetWorkflow(t.Context(), a.ID, task.WorkflowProgress{SessionID: "0123abcd", Status: "active", Step: "one"}))
	open, _, err := b.Work(t.Context())
	testkit.True(t, err == nil && len(open) == 1 && open[0].Run != nil && open[0].Step == "one", "%+v %v", open, err)
	end(t, b, e, task.Ending{State: task.Stopped})
	got, _, err := b.Attention(t.Context())
	testkit.Must(t, err)
	equal(t, len(got), 1, string(got[0].Run), `{"goal":"g"}`, got[0].State, task.Stopped)
}
