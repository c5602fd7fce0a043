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
	s := testkit.Get(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: title, JobName: new("j"), WorkflowName: new("w"), Lead: task.ServerLeads}, task.Request{})).Must(t)
	return testkit.Get(b.CreateAttempt(t.Context(), task.Attempt{TaskID: s.ID, Executor: "SCRIPTED", Branch: "deepwork/" + title, Workspace: abs("w"), Situation: task.Situation{Run: json.RawMessage(`{"goal":"g"}`)}},
		task.Execution{Prompt: "do it"}, task.Request{})).Must(t)
}

// step is an execution for a step of a run.
func step(a *task.Attempt, id string) task.Execution {
	return task.Execution{ID: id, AttemptID: a.ID, LogID: "agent of " + id, WorkflowSessionID: "0123abcd", StepID: "one", Executor: "SCRIPTED", Variant: new("PLAN")}
}

// ended returns the error of EndExecution.
func ended(_ *task.Execution, _ bool, err error) error { return err }

// endStep ends the agent of a step well.
func endStep(t testing.TB, b board, id string) {
	t.Helper()
	testkit.Must(t, ended(b.EndExecution(t.Context(), id, task.Ending{State: task.Completed})))
}

// startStep starts the agent of a step.
func startStep(t testing.TB, b board, id string, at time.Time) {
	t.Helper()
	testkit.Must(t, second(b.StartExecution(t.Context(), id, "SCRIPTED", at)))
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
	same := func() {
		t.Helper()
		is(t, []task.Execution{want})(b.Steps(t.Context(), a.ID))
	}
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
	testkit.Must(t, ended(b.EndExecution(t.Context(), "s1", task.Ending{Conversation: new("talk"), LimitedUntil: &until,
		State: task.Failed, ExitCode: new(3), FinalMessage: new("bye"), Error: new("it broke"), Usage: &task.Usage{Turns: 7}})))
	want.State, want.EndedAt, want.Conversation, want.LimitedUntil = task.Failed, new(c.at.UTC().Truncate(time.Microsecond)), new("talk"), &until
	want.ExitCode, want.FinalMessage, want.Error = new(3), new("bye"), new("it broke")
	same()
	endStep(t, b, "s1")
	same() // an end is final
	testkit.FailsWith(t, second(b.StartExecution(t.Context(), "s1", "SCRIPTED", c.at)), task.ErrEnded)
	used := testkit.Get(b.Used(t.Context(), a.ID)).Must(t)
	equal(t, len(used), 1, used[0].ExecutionID, "s1", used[0].Turns, 7)
	equal(t, len(testkit.Get(b.Steps(t.Context(), "no run")).Must(t)), 0)
	testkit.FailsWith(t, second(b.ClaimStep(t.Context(), a.ID, "x", 9, nil, task.Limits{})), task.ErrEnded)
	testkit.FailsWith(t, second(b.AddStep(t.Context(), step(try(t, b, addTask(t, b, p, "no run")), "s2"), 9, nil, task.Limits{})), task.ErrEnded)
	own := testkit.Get(b.Executions(t.Context(), a.ID)).Must(t)
	equal(t, "the executions of the run itself", len(own), 1, own[0].Lead, true, own[0].LogID, a.ID)
	open := testkit.Get(b.OpenExecutions(t.Context())).Must(t)
	equal(t, "what servers lead", len(open), 1, open[0].ID, leader.ID)
}

// The agents of runs and those of other attempts share the slots; a leader needs none. Who leads one run alone claims no other,
// but any attempt with an agent of its own.
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
	equal(t, "two agents of runs for one slot", claimStep(t, b, one, "s1", 0), false, claimStep(t, b, one, "s1", 1), true, claimStep(t, b, two, "s2", 1), false)
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
	told, have := 0, 0
	for range asked {
		if <-got {
			told++
		}
	}
	all := testkit.Get(b.Steps(t.Context(), a.ID)).Must(t)
	for _, x := range all {
		if x.State == task.Starting {
			have++
		}
	}
	equal(t, len(all), asked, told, slots, have, slots)
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
	testkit.Must(t, b.SetWorkflow(t.Context(), a.ID, task.WorkflowProgress{SessionID: "0123abcd", Status: "active", Step: "one"}))
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
	equal(t, len(needs), 2, needs[1].State, task.Running, string(needs[0].Run), `{"goal":"g","session_id":"0123abcd"}`, needs[0].State, task.Stopped)
	all := testkit.Get(b.Steps(t.Context(), a.ID)).Must(t)
	equal(t, len(all), 3, all[0].ID, "waits", all[0].State, task.Interrupted, all[1].State, task.Interrupted, all[2].State, task.Completed)
	steps := testkit.Get(b.Steps(t.Context(), other.ID)).Must(t)
	equal(t, "those of another run", len(steps), 1, steps[0].State, task.Waiting)
	equal(t, len(testkit.Get(b.Used(t.Context(), a.ID)).Must(t)), 2) // the one that waited used nothing, and the leader is no agent
	testkit.FailsWith(t, second(b.AddStep(t.Context(), step(a, "late"), 9, nil, task.Limits{})), task.ErrEnded)
	testkit.FailsWith(t, second(b.ClaimStep(t.Context(), a.ID, "waits", 9, nil, task.Limits{})), task.ErrEnded)
	attempt := testkit.Get(b.Attempt(t.Context(), a.ID)).Must(t)
	equal(t, string(attempt.Run), `{"goal":"g","session_id":"0123abcd"}`, attempt.State, task.Stopped)
	alone := try(t, b, addTask(t, b, p, "alone"))
	testkit.Must(t, b.SetRun(t.Context(), alone.ID, json.RawMessage(`{}`)))
	equal(t, "an attempt of one agent has become a run", testkit.Get(b.Attempt(t.Context(), alone.ID)).Must(t).Run, nil)
}
