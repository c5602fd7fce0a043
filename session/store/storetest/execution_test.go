package storetest_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
)

func TestClaimNextIsInOrderAndBounded(t *testing.T) {
	b, c, p := newBoard(t)
	var waiting []*task.Execution
	for i := range 4 {
		c.forward(-time.Minute) // the clock does not decide
		e := returned(b.LatestExecution(t.Context(), try(t, b, addTask(t, b, p, string(rune('a'+i)))).ID)).of(t)
		waiting = append(waiting, e)
	}
	for i, e := range waiting {
		attemptDetails := returned(b.AttemptDetails(t.Context(), e.AttemptID)).of(t)
		equal(t, "before", attemptDetails.Ahead, i, attemptDetails.Open, 0)
	}
	claim := func(max int) *task.Execution {
		t.Helper()
		e := returned(b.ClaimNext(t.Context(), "one", max, nil, task.Limits{})).of(t)
		return e
	}
	for _, max := range []int{-1, 0} {
		equal(t, max, claim(max), nil)
	}
	for i := range 2 {
		e := claim(2)
		if e == nil || e.ID != waiting[i].ID || e.State != task.Starting || e.Owner != "one" {
			t.Fatalf("claimed %+v, want %s", e, waiting[i].ID)
		}
		attempt := returned(b.Attempt(t.Context(), e.AttemptID)).of(t)
		equal(t, attempt.State, task.Starting)
	}
	equal(t, "claimed over the bound", claim(2), nil)
	attemptDetails := returned(b.AttemptDetails(t.Context(), waiting[3].AttemptID)).of(t)
	equal(t, attemptDetails.Ahead, 1, attemptDetails.Open, 2)
	attemptDetails = returned(b.AttemptDetails(t.Context(), waiting[0].AttemptID)).of(t)
	equal(t, attemptDetails.Ahead, 0, attemptDetails.Open, 0)
	open := returned(b.OpenExecutions(t.Context())).of(t)
	equal(t, len(open), 2, open[0].ID, waiting[0].ID, open[1].Owner, "one")
	end(t, b, waiting[0], task.Ending{State: task.Failed})
	end(t, b, waiting[2], task.Ending{State: task.Stopped}) // one that waits
	if e := claim(2); e == nil || e.ID != waiting[3].ID {
		t.Errorf("claimed %+v", e)
	}
	end(t, b, waiting[1], task.Ending{State: task.Failed})
	equal(t, "claimed of nothing", claim(2), nil)
	fails(t, second(b.ClaimNext(t.Context(), "", 2, nil, task.Limits{})), task.ErrInvalid)
}

func TestAdopt(t *testing.T) {
	b, _, p := newBoard(t)
	try(t, b, addTask(t, b, p, "one"))
	e, _ := run(t, b)
	adopt := func(from, to string) bool {
		t.Helper()
		ok := returned(b.Adopt(t.Context(), e.ID, from, to)).of(t)
		return ok
	}
	equal(t, "it is adopted from who does not own it or the reverse", adopt("another", "me"), false, adopt("server", "me"), true, adopt("server", "you"), false, adopt("me", "you"), true)
	execution := returned(b.Execution(t.Context(), e.ID)).of(t)
	equal(t, execution.Owner, "you", execution.State, task.Running)
	fails(t, second(b.Adopt(t.Context(), e.ID, "you", "")), task.ErrInvalid)
	end(t, b, e, task.Ending{State: task.Interrupted})
	equal(t, "adopted after its end", adopt("you", "me"), false)
}

func TestStartExecution(t *testing.T) {
	b, c, p := newBoard(t)
	s := addTask(t, b, p, "one")
	a := try(t, b, s)
	e := returned(b.LatestExecution(t.Context(), a.ID)).of(t)
	fails(t, second(b.StartExecution(t.Context(), e.ID, "X", time.Time{})), task.ErrInvalid)
	e = returned(b.ClaimNext(t.Context(), "server", 1, nil, task.Limits{})).of(t)
	c.forward(time.Second)
	session, err := b.StartExecution(t.Context(), e.ID, "SCRIPTED", time.Time{})
	if err != nil || session.AttemptID != a.ID || session.Executor != "SCRIPTED" || session.Variant != nil || session.Queued != nil {
		t.Fatalf("%+v %v", session, err)
	}
	started := c.at.UTC().Truncate(time.Microsecond)
	c.forward(time.Second)
	again := returned(b.StartExecution(t.Context(), e.ID, "SCRIPTED", time.Time{})).of(t)
	equal(t, again.ID, session.ID)
	e = returned(b.Execution(t.Context(), e.ID)).of(t)
	equal(t, e.State, task.Running, *e.SessionID, session.ID, e.StartedAt, started, e.EndedAt, nil)
	got := returned(b.Attempt(t.Context(), a.ID)).of(t)
	equal(t, got.State, task.Running, *got.LatestSessionID, session.ID, *got.LatestExecutor, "SCRIPTED")
	if sum := taskOf(t, b, s.ID); *sum.LatestSessionID != session.ID || *sum.LatestSessionExecutor != "SCRIPTED" || !sum.HasInProgressAttempt {
		t.Errorf("%+v", sum)
	}
	end(t, b, e, task.Ending{State: task.Stopped})
	if _, err := b.StartExecution(t.Context(), e.ID, "X", time.Time{}); !errors.Is(err, task.ErrEnded) || !strings.Contains(err.Error(), "is stopped") {
		t.Error(err)
	}
	// A follow-up goes on in the same session, whatever its variant.
	f, err := b.AddExecution(t.Context(), session.ID, "on", new("PLAN"))
	if err != nil || f.State != task.Waiting || !f.FollowUp || *f.Variant != "PLAN" || f.Prompt != "on" {
		t.Fatalf("%+v %v", f, err)
	}
	fails(t, second(b.AddExecution(t.Context(), session.ID, "on", nil)), task.ErrRunning)
	if f, s2 := run(t, b); s2.ID != session.ID || s2.Variant != nil {
		t.Errorf("%+v %+v", f, s2)
	}
	attemptDetails := returned(b.AttemptDetails(t.Context(), a.ID)).of(t)
	equal(t, attemptDetails.Session.ID, session.ID)
	runs := returned(b.Executions(t.Context(), a.ID)).of(t)
	equal(t, len(runs), 2, runs[0].ID, f.ID, runs[1].ID, e.ID)
}

func TestEndExecution(t *testing.T) {
	for _, state := range []task.AttemptState{task.Completed, task.Failed, task.Stopped, task.Interrupted} {
		for _, queued := range []bool{false, true} {
			t.Run(string(state), func(t *testing.T) {
				b, c, p := newBoard(t)
				s := addTask(t, b, p, "one")
				a := try(t, b, s)
				e, session := run(t, b)
				if queued {
					if _, idle, err := b.Queue(t.Context(), session.ID, &task.Queued{Prompt: "more", Variant: new("PLAN")}); idle || err != nil {
						t.Fatal(idle, err)
					}
				}
				c.forward(time.Minute)
				next := end(t, b, e, task.Ending{State: state, ExitCode: new(7), FinalMessage: new("bye"), Error: new("why"), Task: task.InReview})
				runs := queued && (state == task.Completed || state == task.Failed)
				if (next != nil) != runs {
					t.Fatalf("next is %+v", next)
				}
				got := returned(b.Execution(t.Context(), e.ID)).of(t)
				equal(t, got.State, state, *got.ExitCode, 7, *got.FinalMessage, "bye", got.EndedAt, c.at.Truncate(time.Microsecond))
				if session, err := b.Session(t.Context(), session.ID); err != nil || session.Queued != nil {
					t.Errorf("%+v %v", session, err)
				}
				a, err := b.Attempt(t.Context(), a.ID)
				sum := taskOf(t, b, s.ID)
				if runs {
					if next.State != task.Waiting || !next.FollowUp || next.Prompt != "more" || *next.Variant != "PLAN" || *next.SessionID != session.ID ||
						a.State != task.Waiting || a.Error != nil || sum.Status != task.InProgress || !sum.HasInProgressAttempt {
						t.Errorf("%+v %+v %+v %v", next, a, sum, err)
					}
				} else if a.State != state || *a.Error != "why" || sum.Status != task.InReview || sum.HasInProgressAttempt ||
					sum.LastAttemptFailed != (state == task.Failed || state == task.Interrupted) {
					t.Errorf("%+v %+v %v", a, sum, err)
				}
				before := *sum
				if next, ended, err := b.EndExecution(t.Context(), e.ID, task.Ending{State: task.Interrupted, Task: task.Todo}); next != nil || ended || err != nil {
					t.Error("it ended twice:", next, ended, err)
				}
				if again := taskOf(t, b, s.ID); again.Status != before.Status || again.LastAttemptFailed != before.LastAttemptFailed {
					t.Errorf("%+v, was %+v", again, before)
				}
			})
		}
	}
}

func TestEndExecutionOfOneThatNeverStarted(t *testing.T) {
	b, _, p := newBoard(t)
	s := addTask(t, b, p, "one")
	a := try(t, b, s)
	e := returned(b.ClaimNext(t.Context(), "server", 1, nil, task.Limits{})).of(t)
	equal(t, end(t, b, e, task.Ending{State: task.Failed, Error: new("no such branch")}), nil)
	got := returned(b.Attempt(t.Context(), a.ID)).of(t)
	equal(t, got.State, task.Failed, *got.Error, "no such branch", got.LatestSessionID, nil)
	if sum := taskOf(t, b, s.ID); sum.Status != task.InProgress || !sum.LastAttemptFailed || sum.HasInProgressAttempt {
		t.Errorf("%+v", sum)
	}
	for _, e := range []task.Ending{{}, {State: task.Running}, {State: "gone"}, {State: task.Failed, Task: "gone"}} {
		if _, _, err := b.EndExecution(t.Context(), "x", e); !errors.Is(err, task.ErrInvalid) {
			t.Errorf("%+v: %v", e, err)
		}
	}
}

// What somebody decided while the agent ran is not undone by its end.
func TestEndExecutionKeepsADecision(t *testing.T) {
	b, _, p := newBoard(t)
	for _, decided := range []task.Status{task.Done, task.Cancelled, task.Todo, task.InReview} {
		s := addTask(t, b, p, "one")
		try(t, b, s)
		e, session := run(t, b)
		testkit.Must(t, second(b.UpdateTask(t.Context(), s.ID, task.TaskChange{Status: &decided})))
		end(t, b, e, task.Ending{State: task.Completed, Task: task.InReview})
		if got := taskOf(t, b, s.ID); got.Status != decided {
			t.Errorf("it is %s, and was set to %s", got.Status, decided)
		}
		e = returned(b.AddExecution(t.Context(), session.ID, "after all", nil)).of(t)
		if got := taskOf(t, b, s.ID); got.Status != task.InProgress {
			t.Errorf("it is %s after a follow-up", got.Status)
		}
		end(t, b, e, task.Ending{State: task.Stopped})
	}
}

func TestQueue(t *testing.T) {
	b, c, p := newBoard(t)
	try(t, b, addTask(t, b, p, "one"))
	e, session := run(t, b)
	queue := func(q *task.Queued) (before *task.Queued, idle bool) {
		t.Helper()
		before, idle, err := b.Queue(t.Context(), session.ID, q)
		testkit.Must(t, err)
		return before, idle
	}
	if before, idle := queue(nil); before != nil || idle {
		t.Error("cancelled", before, idle)
	}
	if before, idle := queue(&task.Queued{Prompt: "a", Variant: new("PLAN")}); before != nil || idle {
		t.Error(before, idle)
	}
	at := c.at.UTC().Truncate(time.Microsecond)
	c.forward(time.Minute)
	if before, idle := queue(&task.Queued{Prompt: "b"}); idle || before == nil || before.Prompt != "a" || *before.Variant != "PLAN" || !before.At.Equal(at) {
		t.Errorf("%+v %v", before, idle)
	}
	if before, idle := queue(nil); idle || before == nil || before.Prompt != "b" || before.Variant != nil {
		t.Errorf("%+v %v", before, idle)
	}
	if before, idle := queue(nil); before != nil || idle {
		t.Error(before, idle)
	}
	queue(&task.Queued{Prompt: ""}) // an empty prompt is one
	next := end(t, b, e, task.Ending{State: task.Completed})
	if next == nil || next.Prompt != "" {
		t.Fatal(next)
	}
	if before, idle := queue(&task.Queued{Prompt: "c"}); before != nil || idle { // while it waits
		t.Error(before, idle)
	}
	end(t, b, next, task.Ending{State: task.Stopped})
	for _, q := range []*task.Queued{nil, {Prompt: "late"}} {
		if before, idle := queue(q); before != nil || !idle {
			t.Error(before, idle)
		}
	}
	session = returned(b.Session(t.Context(), session.ID)).of(t)
	equal(t, session.Queued, nil)
}

func TestReleaseAndStop(t *testing.T) {
	b, _, p := newBoard(t)
	s := addTask(t, b, p, "one")
	a := try(t, b, s)
	first := returned(b.ClaimNext(t.Context(), "one", 1, nil, task.Limits{})).of(t)
	try(t, b, addTask(t, b, p, "two"))
	is(t, false)(b.Release(t.Context(), first.ID, "another"))
	is(t, true)(b.Release(t.Context(), first.ID, "one"))
	attempt := returned(b.Attempt(t.Context(), a.ID)).of(t)
	equal(t, attempt.State, task.Waiting)
	is(t, false)(b.Release(t.Context(), first.ID, "one"))
	e, session := run(t, b) // in the place it had
	equal(t, "claimed", e.ID, first.ID)
	is(t, false)(b.Release(t.Context(), e.ID, "server"))
	if _, _, err := b.Queue(t.Context(), session.ID, &task.Queued{Prompt: "more"}); err != nil {
		t.Fatal(err)
	}
	next := end(t, b, e, task.Ending{State: task.Completed, Task: task.InReview})
	if _, _, err := b.Queue(t.Context(), session.ID, &task.Queued{Prompt: "even more"}); err != nil {
		t.Fatal(err)
	}
	is(t, task.Waiting)(b.Stop(t.Context(), next.ID))
	got := returned(b.Attempt(t.Context(), a.ID)).of(t)
	equal(t, got.State, task.Stopped, taskOf(t, b, s.ID).Status, task.InProgress)
	if session, err := b.Session(t.Context(), session.ID); err != nil || session.Queued != nil {
		t.Errorf("%+v %v", session, err)
	}
	for what, err := range map[string]error{
		"release": second(b.Release(t.Context(), "x", "one")), "stop": second(b.Stop(t.Context(), "x")),
	} {
		fails(t, err, task.ErrNotFound, what)
	}
	for branch, want := range map[string]bool{got.Branch: true, "deepwork/free": false} {
		is(t, want)(b.BranchTaken(t.Context(), branch))
	}
}

// One that has been claimed is marked once, and its server ends it, or gives it back, which ends it, too.
// What is queued does not run, however it ends.
func TestStopOfWhatAServerLeads(t *testing.T) {
	b, c, p := newBoard(t)
	a := try(t, b, addTask(t, b, p, "one"))
	stop := func(id string, want task.AttemptState) *time.Time {
		t.Helper()
		c.forward(time.Second)
		is(t, want)(b.Stop(t.Context(), id))
		e := returned(b.Execution(t.Context(), id)).of(t)
		return e.StopAsked
	}
	e, session := run(t, b)
	if _, _, err := b.Queue(t.Context(), session.ID, &task.Queued{Prompt: "more"}); err != nil {
		t.Fatal(err)
	}
	at := stop(e.ID, task.Running)
	if at == nil || !at.Equal(*stop(e.ID, task.Running)) {
		t.Errorf("asked at %v", at)
	}
	if ok, err := b.Adopt(t.Context(), e.ID, "server", "next"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	open, err := b.OpenExecutions(t.Context())
	if err != nil || len(open) != 1 || open[0].Owner != "next" || open[0].StopAsked == nil {
		t.Errorf("the next server sees %+v, %v", open, err)
	}
	equal(t, "what queued runs", end(t, b, e, task.Ending{State: task.Completed}), nil)
	if session, err = b.Session(t.Context(), session.ID); err != nil || session.Queued != nil {
		t.Errorf("%+v, %v", session, err)
	}

	late := returned(b.AddExecution(t.Context(), session.ID, "again", nil)).of(t)
	testkit.Must(t, second(b.ClaimNext(t.Context(), "server", 1, nil, task.Limits{})))
	stop(late.ID, task.Starting)
	is(t, true)(b.Release(t.Context(), late.ID, "server"))
	if at := stop(late.ID, task.Stopped); at == nil {
		t.Error("the mark is gone with its end")
	}
	attempt := returned(b.Attempt(t.Context(), a.ID)).of(t)
	equal(t, attempt.State, task.Stopped)
	if at := stop(e.ID, task.Completed); at == nil {
		t.Error("the mark is gone with its end")
	}
}
