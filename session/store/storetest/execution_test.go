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
		e, err := b.LatestExecution(t.Context(), try(t, b, addTask(t, b, p, string(rune('a'+i)))).ID)
		testkit.Must(t, err)
		waiting = append(waiting, e)
	}
	for i, e := range waiting {
		if n, err := b.AttemptDetails(t.Context(), e.AttemptID); err != nil || n.Ahead != i || n.Open != 0 {
			t.Errorf("before %d: %+v; %v", i, n, err)
		}
	}
	claim := func(max int) *task.Execution {
		t.Helper()
		e, err := b.ClaimNext(t.Context(), "one", max, nil, task.Limits{})
		testkit.Must(t, err)
		return e
	}
	for _, max := range []int{-1, 0} {
		if e := claim(max); e != nil {
			t.Errorf("claimed %v of %d", e, max)
		}
	}
	for i := range 2 {
		e := claim(2)
		if e == nil || e.ID != waiting[i].ID || e.State != task.Starting || e.Owner != "one" {
			t.Fatalf("claimed %+v, want %s", e, waiting[i].ID)
		}
		if a, err := b.Attempt(t.Context(), e.AttemptID); err != nil || a.State != task.Starting {
			t.Error(a.State, err)
		}
	}
	if e := claim(2); e != nil {
		t.Errorf("claimed %+v over the bound", e)
	}
	if n, err := b.AttemptDetails(t.Context(), waiting[3].AttemptID); err != nil || n.Ahead != 1 || n.Open != 2 {
		t.Errorf("%+v %v", n, err)
	}
	if n, err := b.AttemptDetails(t.Context(), waiting[0].AttemptID); err != nil || n.Ahead != 0 || n.Open != 0 {
		t.Errorf("%+v %v", n, err)
	}
	open, err := b.OpenExecutions(t.Context())
	if err != nil || len(open) != 2 || open[0].ID != waiting[0].ID || open[1].Owner != "one" {
		t.Error(open, err)
	}
	end(t, b, waiting[0], task.Ending{State: task.Failed})
	end(t, b, waiting[2], task.Ending{State: task.Stopped}) // one that waits
	if e := claim(2); e == nil || e.ID != waiting[3].ID {
		t.Errorf("claimed %+v", e)
	}
	end(t, b, waiting[1], task.Ending{State: task.Failed})
	if e := claim(2); e != nil {
		t.Errorf("claimed %+v of nothing", e)
	}
	if _, err := b.ClaimNext(t.Context(), "", 2, nil, task.Limits{}); !errors.Is(err, task.ErrInvalid) {
		t.Error(err)
	}
}

func TestAdopt(t *testing.T) {
	b, _, p := newBoard(t)
	try(t, b, addTask(t, b, p, "one"))
	e, _ := run(t, b)
	adopt := func(from, to string) bool {
		t.Helper()
		ok, err := b.Adopt(t.Context(), e.ID, from, to)
		testkit.Must(t, err)
		return ok
	}
	if adopt("another", "me") || !adopt("server", "me") || adopt("server", "you") || !adopt("me", "you") {
		t.Error("it is adopted from who does not own it, or the reverse")
	}
	if e, err := b.Execution(t.Context(), e.ID); err != nil || e.Owner != "you" || e.State != task.Running {
		t.Errorf("%+v %v", e, err)
	}
	if _, err := b.Adopt(t.Context(), e.ID, "you", ""); !errors.Is(err, task.ErrInvalid) {
		t.Error(err)
	}
	end(t, b, e, task.Ending{State: task.Interrupted})
	if adopt("you", "me") {
		t.Error("adopted after its end")
	}
}

func TestStartExecution(t *testing.T) {
	b, c, p := newBoard(t)
	s := addTask(t, b, p, "one")
	a := try(t, b, s)
	e, err := b.LatestExecution(t.Context(), a.ID)
	testkit.Must(t, err)
	if _, err := b.StartExecution(t.Context(), e.ID, "X", time.Time{}); !errors.Is(err, task.ErrInvalid) {
		t.Error("it started without being claimed:", err)
	}
	e, err = b.ClaimNext(t.Context(), "server", 1, nil, task.Limits{})
	testkit.Must(t, err)
	c.forward(time.Second)
	session, err := b.StartExecution(t.Context(), e.ID, "SCRIPTED", time.Time{})
	if err != nil || session.AttemptID != a.ID || session.Executor != "SCRIPTED" || session.Variant != nil || session.Queued != nil {
		t.Fatalf("%+v %v", session, err)
	}
	started := c.at.UTC().Truncate(time.Microsecond)
	c.forward(time.Second)
	again, err := b.StartExecution(t.Context(), e.ID, "SCRIPTED", time.Time{})
	if err != nil || again.ID != session.ID {
		t.Errorf("%+v %v", again, err)
	}
	e, err = b.Execution(t.Context(), e.ID)
	if err != nil || e.State != task.Running || *e.SessionID != session.ID || !e.StartedAt.Equal(started) || e.EndedAt != nil {
		t.Errorf("%+v %v", e, err)
	}
	got, err := b.Attempt(t.Context(), a.ID)
	if err != nil || got.State != task.Running || *got.LatestSessionID != session.ID || *got.LatestExecutor != "SCRIPTED" {
		t.Errorf("%+v %v", got, err)
	}
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
	if _, err := b.AddExecution(t.Context(), session.ID, "on", nil); !errors.Is(err, task.ErrRunning) {
		t.Error(err)
	}
	if f, s2 := run(t, b); s2.ID != session.ID || s2.Variant != nil {
		t.Errorf("%+v %+v", f, s2)
	}
	if d, err := b.AttemptDetails(t.Context(), a.ID); err != nil || d.Session.ID != session.ID {
		t.Error(d, err)
	}
	runs, err := b.Executions(t.Context(), a.ID)
	if err != nil || len(runs) != 2 || runs[0].ID != f.ID || runs[1].ID != e.ID {
		t.Error(runs, err)
	}
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
				got, err := b.Execution(t.Context(), e.ID)
				if err != nil || got.State != state || *got.ExitCode != 7 || *got.FinalMessage != "bye" || !got.EndedAt.Equal(c.at.Truncate(time.Microsecond)) {
					t.Errorf("%+v %v", got, err)
				}
				if session, err = b.Session(t.Context(), session.ID); err != nil || session.Queued != nil {
					t.Errorf("%+v %v", session, err)
				}
				a, err = b.Attempt(t.Context(), a.ID)
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
	e, err := b.ClaimNext(t.Context(), "server", 1, nil, task.Limits{})
	testkit.Must(t, err)
	if next := end(t, b, e, task.Ending{State: task.Failed, Error: new("no such branch")}); next != nil {
		t.Error(next)
	}
	got, err := b.Attempt(t.Context(), a.ID)
	if err != nil || got.State != task.Failed || *got.Error != "no such branch" || got.LatestSessionID != nil {
		t.Errorf("%+v %v", got, err)
	}
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
		e, err := b.AddExecution(t.Context(), session.ID, "after all", nil)
		testkit.Must(t, err)
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
	if s, err := b.Session(t.Context(), session.ID); err != nil || s.Queued != nil {
		t.Errorf("%+v %v", s, err)
	}
}

func TestReleaseAndStop(t *testing.T) {
	b, _, p := newBoard(t)
	s := addTask(t, b, p, "one")
	a := try(t, b, s)
	first, err := b.ClaimNext(t.Context(), "one", 1, nil, task.Limits{})
	testkit.Must(t, err)
	try(t, b, addTask(t, b, p, "two"))
	if ok, err := b.Release(t.Context(), first.ID, "another"); ok || err != nil {
		t.Error("released by who does not own it", ok, err)
	}
	if ok, err := b.Release(t.Context(), first.ID, "one"); !ok || err != nil {
		t.Error(ok, err)
	}
	if got, err := b.Attempt(t.Context(), a.ID); err != nil || got.State != task.Waiting {
		t.Error(got.State, err)
	}
	if ok, err := b.Release(t.Context(), first.ID, "one"); ok || err != nil {
		t.Error("released while it waits", ok, err)
	}
	e, session := run(t, b) // in the place it had
	if e.ID != first.ID {
		t.Errorf("claimed %s, want %s", e.ID, first.ID)
	}
	if ok, err := b.Release(t.Context(), e.ID, "server"); ok || err != nil {
		t.Error("released while it runs", ok, err)
	}
	if _, _, err := b.Queue(t.Context(), session.ID, &task.Queued{Prompt: "more"}); err != nil {
		t.Fatal(err)
	}
	next := end(t, b, e, task.Ending{State: task.Completed, Task: task.InReview})
	if _, _, err := b.Queue(t.Context(), session.ID, &task.Queued{Prompt: "even more"}); err != nil {
		t.Fatal(err)
	}
	if was, err := b.Stop(t.Context(), next.ID); was != task.Waiting || err != nil {
		t.Error(was, err)
	}
	got, err := b.Attempt(t.Context(), a.ID)
	if err != nil || got.State != task.Stopped || taskOf(t, b, s.ID).Status != task.InProgress {
		t.Error(got.State, err)
	}
	if session, err = b.Session(t.Context(), session.ID); err != nil || session.Queued != nil {
		t.Errorf("%+v %v", session, err)
	}
	for what, err := range map[string]error{
		"release": second(b.Release(t.Context(), "x", "one")), "stop": second(b.Stop(t.Context(), "x")),
	} {
		if !errors.Is(err, task.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for branch, want := range map[string]bool{got.Branch: true, "deepwork/free": false} {
		if taken, err := b.BranchTaken(t.Context(), branch); taken != want || err != nil {
			t.Error(branch, taken, err)
		}
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
		if was, err := b.Stop(t.Context(), id); was != want || err != nil {
			t.Errorf("Stop = %s, %v, want %s", was, err, want)
		}
		e, err := b.Execution(t.Context(), id)
		testkit.Must(t, err)
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
	if next := end(t, b, e, task.Ending{State: task.Completed}); next != nil {
		t.Errorf("what was queued runs: %+v", next)
	}
	if session, err = b.Session(t.Context(), session.ID); err != nil || session.Queued != nil {
		t.Errorf("%+v, %v", session, err)
	}

	late, err := b.AddExecution(t.Context(), session.ID, "again", nil)
	testkit.Must(t, err)
	testkit.Must(t, second(b.ClaimNext(t.Context(), "server", 1, nil, task.Limits{})))
	stop(late.ID, task.Starting)
	if ok, err := b.Release(t.Context(), late.ID, "server"); !ok || err != nil {
		t.Error(ok, err)
	}
	if at := stop(late.ID, task.Stopped); at == nil {
		t.Error("the mark is gone with its end")
	}
	if got, err := b.Attempt(t.Context(), a.ID); err != nil || got.State != task.Stopped {
		t.Error(got.State, err)
	}
	if at := stop(e.ID, task.Completed); at == nil {
		t.Error("the mark is gone with its end")
	}
}
