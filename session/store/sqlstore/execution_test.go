package sqlstore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
)

func TestClaimNextIsInOrderAndBounded(t *testing.T) {
	b, c, p := newBoard(t)
	var waiting []*task.Execution
	for i := range 4 {
		c.forward(-time.Minute) // the clock does not decide
		waiting = append(waiting,
			testkit.Get(b.LatestExecution(t.Context(), try(t, b, addTask(t, b, p, fmt.Sprint(i))).ID)).Must(t))
	}
	counts := func(i, ahead, open int) {
		t.Helper()
		details := testkit.Get(b.AttemptDetails(t.Context(), waiting[i].AttemptID)).Must(t)
		equal(t, i, details.Ahead, ahead, details.Open, open)
	}
	for i := range waiting {
		counts(i, i, 0)
	}

	claim := func(max int) *task.Execution {
		return testkit.Get(b.ClaimNext(t.Context(), "one", max, nil, task.Limits{})).Must(t)
	}
	equal(t, claim(-1), nil, claim(0), nil)
	for i := range 2 {
		e := claim(2)
		equal(t, "claimed", e.ID, waiting[i].ID, e.State, task.Starting, e.Owner, "one",
			testkit.Get(b.Attempt(t.Context(), e.AttemptID)).Must(t).State, task.Starting)
	}
	equal(t, "claimed over the bound", claim(2), nil)
	counts(3, 1, 2)
	counts(0, 0, 0)
	open := testkit.Get(b.OpenExecutions(t.Context())).Must(t)
	equal(t, len(open), 2, open[0].ID, waiting[0].ID, open[1].Owner, "one")
	end(t, b, waiting[0], task.Ending{State: task.Failed})
	end(t, b, waiting[2], task.Ending{State: task.Stopped}) // one that waits
	equal(t, "claimed", claim(2).ID, waiting[3].ID)
	end(t, b, waiting[1], task.Ending{State: task.Failed})
	equal(t, "claimed of nothing", claim(2), nil)
	testkit.FailsWith(t, second(b.ClaimNext(t.Context(), "", 2, nil, task.Limits{})), task.ErrInvalid)
}

func TestStartExecution(t *testing.T) {
	b, c, p := newBoard(t)
	s := addTask(t, b, p, "one")
	a := try(t, b, s)
	e := testkit.Get(b.LatestExecution(t.Context(), a.ID)).Must(t)
	testkit.FailsWith(t, second(b.StartExecution(t.Context(), e.ID, "X", "", time.Time{})), task.ErrInvalid)

	e = claimed(t, b, 1)
	c.forward(time.Second)
	session := testkit.Get(b.StartExecution(t.Context(), e.ID, "SCRIPTED", "", time.Time{})).Must(t)
	equal(t, session.AttemptID, a.ID, session.Executor, "SCRIPTED", session.Variant, nil, session.Queued, nil)
	started := c.at.UTC().Truncate(time.Microsecond)
	c.forward(time.Second)
	equal(t, testkit.Get(b.StartExecution(t.Context(), e.ID, "SCRIPTED", "", time.Time{})).Must(t).ID, session.ID)
	e = testkit.Get(b.Execution(t.Context(), e.ID)).Must(t)
	equal(t, e.State, task.Running, *e.SessionID, session.ID, e.StartedAt, started, e.EndedAt, nil)
	got := testkit.Get(b.Attempt(t.Context(), a.ID)).Must(t)
	equal(t, got.State, task.Running, *got.LatestSessionID, session.ID, *got.LatestExecutor, "SCRIPTED")
	sum := taskOf(t, b, s.ID)
	equal(t, *sum.LatestSessionID, session.ID, *sum.LatestSessionExecutor, "SCRIPTED", sum.HasInProgressAttempt, true)
	end(t, b, e, task.Ending{State: task.Stopped})
	says(t, second(b.StartExecution(t.Context(), e.ID, "X", "", time.Time{})), task.ErrEnded, "is stopped")

	// a follow-up goes on in the same session, whatever its variant, and is later, whatever the clock says
	c.forward(-time.Hour)
	f := testkit.Get(b.AddExecution(t.Context(), session.ID, "on", new("PLAN"), task.Request{})).Must(t)
	equal(t, f.State, task.Waiting, f.FollowUp, true, *f.Variant, "PLAN", f.Prompt, "on",
		f.CreatedAt.After(e.CreatedAt), true)
	testkit.FailsWith(t, second(b.AddExecution(t.Context(), session.ID, "on", nil, task.Request{})), task.ErrRunning)
	f, s2 := run(t, b)
	equal(t, s2.ID, session.ID, s2.Variant, nil, testkit.Get(b.AttemptDetails(t.Context(), a.ID)).Must(t).Session.ID,
		session.ID)
	runs := testkit.Get(b.Executions(t.Context(), a.ID)).Must(t)
	equal(t, len(runs), 2, runs[0].ID, f.ID, runs[1].ID, e.ID)

	// It is adopted from who owns it, until its end.
	adopt := func(from, to string) bool { return testkit.Get(b.Adopt(t.Context(), f.ID, from, to)).Must(t) }
	equal(t, adopt("another", "me"), false, adopt("server", "me"), true, adopt("server", "you"), false,
		adopt("me", "you"), true)
	f = testkit.Get(b.Execution(t.Context(), f.ID)).Must(t)
	equal(t, f.Owner, "you", f.State, task.Running)
	testkit.FailsWith(t, second(b.Adopt(t.Context(), f.ID, "you", "")), task.ErrInvalid)
	end(t, b, f, task.Ending{State: task.Interrupted})
	equal(t, "adopted after its end", adopt("you", "me"), false)
	is(t, false)(b.Adopt(t.Context(), "x", "a", "b"))
}

func TestEndExecution(t *testing.T) {
	b, c, p := newBoard(t)
	for _, state := range []task.AttemptState{task.Completed, task.Failed, task.Stopped, task.Interrupted} {
		for _, queued := range []bool{false, true} {
			s := addTask(t, b, p, "one")
			a := try(t, b, s)
			e, session := run(t, b)
			if queued {
				queue(t, b, session, &task.Queued{Prompt: "more", Variant: new("PLAN")})
			}
			c.forward(time.Minute)

			next := end(t, b, e, task.Ending{
				State:        state,
				ExitCode:     new(7),
				FinalMessage: new("bye"),
				Error:        new("why"),
				Task:         task.InReview,
			})
			runs := queued && (state == task.Completed || state == task.Failed)
			equal(t, fmt.Sprint("next of ", state, queued), next != nil, runs)
			got := testkit.Get(b.Execution(t.Context(), e.ID)).Must(t)
			equal(t, got.State, state, *got.ExitCode, 7, *got.FinalMessage, "bye", got.EndedAt,
				c.at.Truncate(time.Microsecond), testkit.Get(b.Session(t.Context(), session.ID)).Must(t).Queued, nil)
			a, sum := testkit.Get(b.Attempt(t.Context(), a.ID)).Must(t), taskOf(t, b, s.ID)
			if runs {
				equal(t, next.State, task.Waiting, next.FollowUp, true, next.Prompt, "more", *next.Variant, "PLAN",
					*next.SessionID, session.ID)
				equal(t, a.State, task.Waiting, a.Error, nil, sum.Status, task.InProgress,
					sum.HasInProgressAttempt, true)
			} else {
				equal(t, a.State, state, *a.Error, "why", sum.Status, task.InReview, sum.HasInProgressAttempt, false,
					sum.LastAttemptFailed, state == task.Failed || state == task.Interrupted)
			}
			next, ended, err := b.EndExecution(t.Context(), e.ID, task.Ending{State: task.Interrupted, Task: task.Todo})
			testkit.Must(t, err)
			equal(t, "it ended twice", next, nil, ended, false, taskOf(t, b, s.ID), sum)
			if runs {
				end(t, b, claimed(t, b, 1), task.Ending{State: task.Stopped})
			}
		}
	}
}

func TestEndExecutionOfOneThatNeverStarted(t *testing.T) {
	b, _, p := newBoard(t)
	s := addTask(t, b, p, "one")
	a := try(t, b, s)
	e := claimed(t, b, 1)
	equal(t, end(t, b, e, task.Ending{State: task.Failed, Error: new("no such branch")}), nil)
	got := testkit.Get(b.Attempt(t.Context(), a.ID)).Must(t)
	equal(t, got.State, task.Failed, *got.Error, "no such branch", got.LatestSessionID, nil)
	sum := taskOf(t, b, s.ID)
	equal(t, sum.Status, task.InProgress, sum.LastAttemptFailed, true, sum.HasInProgressAttempt, false)
	for _, e := range []task.Ending{{}, {State: task.Running}, {State: "gone"}, {State: task.Failed, Task: "gone"}} {
		testkit.FailsWith(t, ended(b.EndExecution(t.Context(), "x", e)), task.ErrInvalid, "%+v", e)
	}

	// What somebody decided while the agent ran is not undone by its end.
	for _, decided := range []task.Status{task.Done, task.Cancelled, task.Todo, task.InReview} {
		s := addTask(t, b, p, "one")
		try(t, b, s)
		e, session := run(t, b)
		b.set(t, s, decided)
		end(t, b, e, task.Ending{State: task.Completed, Task: task.InReview})
		equal(t, "it is and set to", taskOf(t, b, s.ID).Status, decided)
		e = testkit.Get(b.AddExecution(t.Context(), session.ID, "after all", nil, task.Request{})).Must(t)
		equal(t, "it is after a follow up", taskOf(t, b, s.ID).Status, task.InProgress)
		end(t, b, e, task.Ending{State: task.Stopped})
	}
}

func TestQueue(t *testing.T) {
	b, c, p := newBoard(t)
	try(t, b, addTask(t, b, p, "one"))
	e, session := run(t, b)
	queue := func(q *task.Queued, wantIdle bool) *task.Queued {
		t.Helper()
		before, idle, err := b.Queue(t.Context(), session.ID, q, task.Request{})
		testkit.Must(t, err)
		equal(t, idle, wantIdle)
		return before
	}
	equal(t, "cancelled", queue(nil, false), nil, queue(&task.Queued{Prompt: "a", Variant: new("PLAN")}, false), nil)
	at := c.at.UTC().Truncate(time.Microsecond)
	c.forward(time.Minute)
	equal(t, queue(&task.Queued{Prompt: "b"}, false), &task.Queued{Prompt: "a", Variant: new("PLAN"), At: at})
	before := queue(nil, false)
	equal(t, before.Prompt, "b", before.Variant, nil, queue(nil, false), nil)
	queue(&task.Queued{Prompt: ""}, false) // an empty prompt is one
	next := end(t, b, e, task.Ending{State: task.Completed})
	equal(t, next.Prompt, "", queue(&task.Queued{Prompt: "c"}, false), nil)
	end(t, b, next, task.Ending{State: task.Stopped})
	equal(t, queue(nil, true), nil, queue(&task.Queued{Prompt: "late"}, true), nil,
		testkit.Get(b.Session(t.Context(), session.ID)).Must(t).Queued, nil)
}

func TestReleaseAndStop(t *testing.T) {
	b, c, p := newBoard(t)
	s := addTask(t, b, p, "one")
	a := try(t, b, s)
	first := testkit.Get(b.ClaimNext(t.Context(), "one", 1, nil, task.Limits{})).Must(t)
	try(t, b, addTask(t, b, p, "two")) // which runs later
	is(t, false)(b.Release(t.Context(), first.ID, "another", false))
	is(t, true)(b.Release(t.Context(), first.ID, "one", false))
	equal(t, testkit.Get(b.Attempt(t.Context(), a.ID)).Must(t).State, task.Waiting)
	is(t, false)(b.Release(t.Context(), first.ID, "one", false))
	e, session := run(t, b) // in the place it had
	equal(t, "claimed", e.ID, first.ID)
	is(t, false)(b.Release(t.Context(), e.ID, "server", false))
	queue(t, b, session, &task.Queued{Prompt: "more"})
	next := end(t, b, e, task.Ending{State: task.Completed, Task: task.InReview})
	queue(t, b, session, &task.Queued{Prompt: "even more"})
	is(t, task.Waiting)(b.Stop(t.Context(), next.ID))
	got := testkit.Get(b.Attempt(t.Context(), a.ID)).Must(t)
	equal(t, got.State, task.Stopped, taskOf(t, b, s.ID).Status, task.InProgress,
		testkit.Get(b.Session(t.Context(), session.ID)).Must(t).Queued, nil)
	for branch, want := range map[string]bool{got.Branch: true, "deepwork/free": false} {
		is(t, want)(b.BranchTaken(t.Context(), branch))
	}

	// One that was claimed is marked once, and its server ends it, or gives it back, which ends it, too. What
	// is queued does not run.
	stop := func(id string, want task.AttemptState) *time.Time {
		t.Helper()
		c.forward(time.Second)
		is(t, want)(b.Stop(t.Context(), id))
		return testkit.Get(b.Execution(t.Context(), id)).Must(t).StopAsked
	}
	e, session = run(t, b)
	queue(t, b, session, &task.Queued{Prompt: "more"})
	at := stop(e.ID, task.Running)
	equal(t, "asked at", at, *stop(e.ID, task.Running))
	is(t, true)(b.Adopt(t.Context(), e.ID, "server", "next"))
	open := testkit.Get(b.OpenExecutions(t.Context())).Must(t)
	equal(t, "the next server sees", len(open), 1, open[0].Owner, "next", open[0].StopAsked == nil, false,
		end(t, b, e, task.Ending{State: task.Completed}), nil,
		testkit.Get(b.Session(t.Context(), session.ID)).Must(t).Queued, nil)
	late := testkit.Get(b.AddExecution(t.Context(), session.ID, "again", nil, task.Request{})).Must(t)
	claimed(t, b, 1)
	// by a merge that was done before the follow-up came
	is(t, false)(b.SetLanded(t.Context(), late.AttemptID, task.LandedMerged, true))
	equal(t, "it goes on", testkit.Get(b.Attempt(t.Context(), late.AttemptID)).Must(t).Landed, "",
		testkit.Get(b.SetLanded(t.Context(), late.AttemptID, task.LandedConflicts, false)).Must(t), false,
		testkit.Get(b.Attempt(t.Context(), late.AttemptID)).Must(t).Landed, task.LandedConflicts)
	stop(late.ID, task.Starting)
	is(t, true)(b.Release(t.Context(), late.ID, "server", false))
	equal(t, "the mark is gone with its end", stop(late.ID, task.Stopped) == nil, false,
		testkit.Get(b.Attempt(t.Context(), late.AttemptID)).Must(t).State, task.Stopped,
		stop(e.ID, task.Completed) == nil, false)
}

// The history has sessions, attempts and runs in one order, filtered and by pages, and of a caller only its own.
func TestHistory(t *testing.T) {
	b, c, p := newBoard(t)
	began := func(id, goal string, change func(*store.SessionWrite)) {
		c.forward(time.Minute)
		w := newSession(id)
		w.Goal = goal
		w.StartedAt = c.at.UTC().Truncate(time.Microsecond)
		w.UpdatedAt = c.at.UTC().Truncate(time.Microsecond)
		change(w)
		write(t, b.db.Sessions(), w)
	}

	worked := func(who session.Caller, title string, run json.RawMessage, how task.AttemptState) {
		c.forward(time.Minute)
		a := task.Attempt{
			TaskID:    addAs(t, b, p, who, title).ID,
			Executor:  "SCRIPTED",
			Branch:    "deepwork/x-0000",
			Workspace: abs("w"),
			Situation: task.Situation{Run: run},
		}
		testkit.Must(t, second(b.CreateAttempt(t.Context(), a, task.Execution{Prompt: "do it"}, task.Request{})))
		x := claimed(t, b, 1000)
		testkit.Must(t, second(b.StartExecution(t.Context(), x.ID, "SCRIPTED", "", time.Time{})))
		if how != task.Running {
			end(t, b, x, task.Ending{State: how, Usage: &task.Usage{MicroUSD: new(int64(250_000))}})
		}
	}
	began("0000000a", "Sell MORE", func(*store.SessionWrite) {})
	began("0000000b", "of ann", func(w *store.SessionWrite) {
		w.Identity = "ann"
		w.Status = "completed"
		w.Job = "beta"
	})
	began("0000000c", "of an attempt", func(w *store.SessionWrite) { w.AttemptID = "a1" })
	worked(owner, "fixed", nil, task.Completed)
	worked(owner, "run that failed", json.RawMessage("{}"), task.Failed)
	began("0000000d", "given up", func(w *store.SessionWrite) { w.Status = "aborted" })
	worked(owner, "goes on", nil, task.Running)
	worked(ann, "ann's", nil, task.Completed)
	has := func(who session.Caller, q task.HistoryQuery, want ...string) {
		t.Helper()
		var got []string
		for q.Limit = 2; ; { // by pages
			rows := testkit.Get(b.For(who).History(t.Context(), q)).Must(t)
			for _, r := range rows {
				got = append(got, r.Title)
				equal(t, r.Title+" has ended", r.EndedAt != nil,
					r.Status+string(r.State) != "active" && r.State != task.Running)
				// a leader costs nothing
				equal(t, r.Title+" has a cost", r.MicroUSD != nil, r.Kind == task.HistoryAttempt && r.EndedAt != nil)
			}
			if len(rows) < 2 {
				break
			}
			q.Before, q.AfterID = rows[1].StartedAt, rows[1].ID
		}
		equal(t, fmt.Sprintf("%+v", q), got, want)
	}
	has(owner, task.HistoryQuery{}, "ann's", "goes on", "given up", "run that failed", "fixed", "of ann", "Sell MORE")
	has(ann, task.HistoryQuery{}, "ann's", "of ann")
	has(owner, task.HistoryQuery{Kind: task.HistorySession}, "given up", "of ann", "Sell MORE")
	has(owner, task.HistoryQuery{Kind: task.HistoryAttempt}, "ann's", "goes on", "fixed")
	has(owner, task.HistoryQuery{Kind: task.HistoryRun}, "run that failed")
	has(owner, task.HistoryQuery{State: task.HistoryOpen}, "goes on", "Sell MORE")
	has(owner, task.HistoryQuery{State: task.HistoryDone}, "ann's", "fixed", "of ann")
	has(owner, task.HistoryQuery{State: task.HistoryStopped}, "given up", "run that failed")
	has(owner, task.HistoryQuery{Job: "beta", Workflow: "main"}, "of ann")
	has(owner, task.HistoryQuery{Text: "more"}, "Sell MORE")
	has(owner, task.HistoryQuery{Identity: "ann"}, "ann's", "of ann")
	has(session.Caller{Owner: true}, task.HistoryQuery{Identity: "bob"})
}

// Totals are of all that a query selects, whatever its page; a time selects what was started from then, or before it.
func TestHistoryTotals(t *testing.T) {
	b, c, p := newBoard(t)
	start := c.at
	chat := func(id, status string, failed int, took time.Duration) {
		c.forward(time.Minute)
		w := newSession(id)
		w.StartedAt, w.UpdatedAt = c.at.UTC(), c.at.UTC()
		again := moved(w, func(w *store.SessionWrite) { w.FailedTries = failed })
		write(t, b.db.Sessions(), w, again, moved(again, func(w *store.SessionWrite) {
			w.Status, w.UpdatedAt = status, w.StartedAt.Add(took)
		}))
	}
	chat("0000000a", "completed", 0, time.Minute)
	chat("0000000b", "completed", 2, 2*time.Minute)
	chat("0000000c", "aborted", 0, 3*time.Minute)
	chat("0000000d", "active", 3, 0)
	c.forward(time.Hour)
	later := c.at
	attempt := func(workflow *string, took time.Duration) *task.Attempt {
		s := testkit.Get(b.For(owner).CreateTask(t.Context(), task.NewTask{
			ProjectID:    p.ID,
			Title:        "a task",
			JobName:      workflow,
			WorkflowName: workflow,
		}, task.Request{})).Must(t)
		a := try(t, b, s)
		x := claimed(t, b, 1000)
		testkit.Must(t, second(b.StartExecution(t.Context(), x.ID, "SCRIPTED", "", time.Time{})))
		c.forward(took)
		end(t, b, x, task.Ending{State: task.Completed, Usage: &task.Usage{MicroUSD: new(int64(250_000))}})
		return a
	}
	attempt(nil, 10*time.Minute)
	of := newSession("0000000e")
	of.AttemptID, of.Status, of.FailedTries = attempt(new("alpha"), 20*time.Minute).ID, "completed", 1
	write(t, b.db.Sessions(), of)

	totals := func(runs, judged, first int, seconds, usd *float64) task.HistoryTotals {
		return task.HistoryTotals{Runs: runs, Judged: judged, FirstTry: first, Seconds: seconds, USD: usd}
	}
	for _, x := range []struct {
		who  session.Caller
		q    task.HistoryQuery
		want task.HistoryTotals
	}{
		{owner, task.HistoryQuery{}, totals(6, 4, 1, new(180.0), new(0.5))},
		{owner, task.HistoryQuery{Limit: 1, Before: start}, totals(6, 4, 1, new(180.0), new(0.5))},
		{owner, task.HistoryQuery{Until: later}, totals(4, 3, 1, new(120.0), nil)},
		{owner, task.HistoryQuery{Since: later}, totals(2, 1, 0, new(900.0), new(0.5))},
		{owner, task.HistoryQuery{Since: c.at.Add(time.Hour)}, task.HistoryTotals{}},
		{owner, task.HistoryQuery{State: task.HistoryDone, Job: "alpha"}, totals(3, 3, 1, new(120.0), new(0.25))},
		{owner, task.HistoryQuery{State: task.HistoryOpen}, task.HistoryTotals{Runs: 1}},
		{ann, task.HistoryQuery{}, task.HistoryTotals{}},
	} {
		got := testkit.Get(b.For(x.who).HistoryTotals(t.Context(), x.q)).Must(t)
		if got.Seconds != nil {
			*got.Seconds = math.Round(*got.Seconds)
		}
		testkit.Same(t, got, x.want, fmt.Sprintf("%+v", x.q))
	}
	failed := []int{}
	for _, r := range testkit.Get(b.For(owner).History(t.Context(), task.HistoryQuery{Limit: 9})).Must(t) {
		failed = append(failed, r.FailedTries)
	}
	equal(t, "failed tries of each", failed, []int{1, 0, 3, 0, 2, 0})
}

// Comments wait until a follow-up that has them runs: each is in one; a queued one that is dropped gives its
// comments back.
func TestComments(t *testing.T) {
	b, _, p := newBoard(t)
	a := try(t, b, addTask(t, b, p, "one"))
	e, conversation := run(t, b)
	comment := task.Comment{RepoID: "r", File: "a/b.go", Line: 7, Side: task.OldSide, Quote: "x := 1", Text: "text"}
	add := func(n int) []string {
		t.Helper()
		return testkit.Get(b.ChangeComments(t.Context(), a.ID, nil, slices.Repeat([]task.Comment{comment}, n),
			task.Request{})).Must(t)
	}
	waits := func(when string, queued bool, want ...string) {
		t.Helper()
		var got []string
		for _, c := range testkit.Get(b.Comments(t.Context(), a.ID)).Must(t) {
			got = append(got, c.ID)
			equal(t, when, c.Queued, queued, c.File, "a/b.go", c.Line, 7, c.Side, task.OldSide, c.Quote, "x := 1",
				c.Identity, "local", c.AttemptID, a.ID)
		}
		slices.Sort(got)
		equal(t, when, got, slices.Sorted(slices.Values(want)))
	}

	queue := func(q *task.Queued, comments ...string) error {
		_, _, err := b.Queue(t.Context(), conversation.ID, q, task.Request{}, comments...)
		return err
	}
	words := &task.Queued{Prompt: "words"}
	one := add(2)
	waits("at first", false, one...)
	testkit.FailsWith(t, queue(words, one[0], "no such comment"), task.ErrSent)
	waits("after a refusal", false, one...)
	testkit.Must(t, queue(words))
	testkit.FailsWith(t, queue(words, one...), task.ErrQueued)
	testkit.Must(t, errors.Join(queue(nil), queue(words, one...)))
	waits("queued", true, one...)
	testkit.FailsWith(t, second(b.ChangeComments(t.Context(), a.ID, one[:1], nil, task.Request{})), task.ErrSent)
	testkit.Must(t, errors.Join(queue(words, one...), queue(nil))) // their own is replaced
	waits("dropped", false, one...)
	testkit.Must(t, queue(words, one...))
	more := add(1)
	equal(t, end(t, b, e, task.Ending{State: task.Completed}).Prompt, "words")
	waits("when it is to run", false, more...)
	e, _ = run(t, b)
	testkit.Must(t, queue(words, more...))
	end(t, b, e, task.Ending{State: task.Stopped})
	waits("after a stop", false, more...)
	testkit.FailsWith(t, second(b.ChangeComments(t.Context(), a.ID, []string{more[0], one[0]}, nil, task.Request{})),
		task.ErrSent)
	waits("after a removal that is refused", false, more...)
	testkit.FailsWith(t, second(b.AddExecution(t.Context(), conversation.ID, "p", nil, task.Request{}, one[0])),
		task.ErrSent)

	equal(t, "a refused follow up added", testkit.Get(b.LatestExecution(t.Context(), a.ID)).Must(t).ID, e.ID)
	testkit.Must(t, second(b.AddExecution(t.Context(), conversation.ID, "p", nil, task.Request{}, more...)))
	waits("sent", false)
	testkit.Must(t, second(b.ChangeComments(t.Context(), a.ID, add(1), nil, task.Request{})))
	waits("removed", false)

	// The same request adds its comments once, and there are at most so many.
	all := slices.Repeat([]task.Comment{{RepoID: "r", File: "f", Line: 1, Side: task.NewSide}}, task.MaxComments)
	r := task.Request{Identity: "local", Tool: "comment_attempt", RequestID: "x", ArgsDigest: "d"}
	is(t, testkit.Get(b.ChangeComments(t.Context(), a.ID, nil, all, r)).Must(t))(b.ChangeComments(t.Context(), a.ID,
		nil, all, r))
	testkit.FailsWith(t, second(b.ChangeComments(t.Context(), a.ID, nil, all[:1], task.Request{})), task.ErrComments)
	equal(t, len(testkit.Get(b.Comments(t.Context(), a.ID)).Must(t)), task.MaxComments)
}

// What executions used is kept by their attempt, however they ended; those that never ran, or run, used
// nothing that is known.
func TestUsed(t *testing.T) {
	b, _, p := newBoard(t)
	s, other := addTask(t, b, p, "one"), addTask(t, b, p, "two")
	a := try(t, b, s)
	first, conversation := run(t, b)
	used := task.Usage{MicroUSD: new(int64(500_000)), InputTokens: 1, CachedTokens: 2, OutputTokens: 3, Turns: 4}
	end(t, b, first, task.Ending{State: task.Failed, Usage: &used})
	testkit.Must(t, second(b.AddExecution(t.Context(), conversation.ID, "more", nil, task.Request{})))
	follow, _ := run(t, b)
	end(t, b, follow, task.Ending{State: task.Stopped})
	again := try(t, b, s) // never runs
	end(t, b, claimed(t, b, 1000), task.Ending{State: task.Failed})
	try(t, b, s)
	run(t, b) // and goes on

	review := task.Use{
		AttemptID:   a.ID,
		ExecutionID: "review",
		Executor:    "JUDGE",
		Reported:    true,
		Usage:       task.Usage{MicroUSD: new(int64(25)), Turns: 1},
	}
	testkit.Must(t, b.AddUse(t.Context(), review))
	want := []task.Use{
		{AttemptID: a.ID, ExecutionID: first.ID, Executor: "SCRIPTED", Reported: true, Usage: used},
		{AttemptID: a.ID, ExecutionID: follow.ID, Executor: "SCRIPTED"},
		review,
	}
	got := testkit.Get(b.Used(t.Context(), a.ID)).Must(t)
	for i := range got {
		testkit.True(t, !got[i].EndedAt.IsZero(), "%s has ended", got[i].ExecutionID)
		got[i].EndedAt = time.Time{}
	}
	equal(t, "each has used", got, want)

	sum := task.Spent{
		Executions:   3,
		Unknown:      1,
		MicroUSD:     500_025,
		InputTokens:  1,
		CachedTokens: 2,
		OutputTokens: 3,
		Turns:        5,
	}
	for of, want := range map[[2]string]task.Spent{
		{s.ID, a.ID}:     sum,
		{s.ID, ""}:       sum,
		{"", ""}:         sum,
		{other.ID, ""}:   {},
		{s.ID, again.ID}: {},
	} {
		is(t, want, fmt.Sprint(of))(b.Spent(t.Context(), of[0], of[1]))
	}

	eve := b.For(session.Caller{Identity: "eve", Group: "team"})
	testkit.FailsWith(t, second(eve.Used(t.Context(), a.ID)), task.ErrNotFound)
	for _, of := range [][2]string{{s.ID, ""}, {s.ID, a.ID}, {"", ""}} {
		testkit.FailsWith(t, second(eve.Spent(t.Context(), of[0], of[1])), task.ErrNotFound)
	}
}

// What deleted tasks have used counts for the limits, and nothing is claimed from the moment on at which one
// is reached.
func TestLimits(t *testing.T) {
	b, c, p := newBoard(t)
	s := addTask(t, b, p, "one")
	a := try(t, b, s)
	first, conversation := run(t, b)
	costs := func(micro int64) *task.Usage { return &task.Usage{MicroUSD: &micro} }
	end(t, b, first, task.Ending{State: task.Completed, Usage: costs(300_000)})
	c.forward(time.Minute)
	testkit.Must(t, second(b.AddExecution(t.Context(), conversation.ID, "more", nil, task.Request{})))
	follow, _ := run(t, b)
	end(t, b, follow, task.Ending{State: task.Interrupted})
	unknownAt := c.at.UTC().Truncate(time.Microsecond)
	c.forward(time.Minute)
	testkit.Must(t, b.AddUse(t.Context(),
		task.Use{AttemptID: a.ID, ExecutionID: "review", Executor: "JUDGE", Reported: true, Usage: *costs(200_000)}))
	costAt := c.at.UTC().Truncate(time.Microsecond)
	c.forward(time.Minute)
	testkit.Must(t, b.DeleteTask(t.Context(), s.ID))
	try(t, b, addTask(t, b, p, "two"))
	reached := func(gives bool, costAt, unknownAt *time.Time, limits task.Limits) {
		t.Helper()
		cost, unknown, err := b.ReachedAt(t.Context(), limits)
		testkit.Must(t, err)
		equal(t, cost, costAt, unknown, unknownAt,
			testkit.Get(b.ClaimNext(t.Context(), "server", 9, nil, limits)).Must(t) != nil, gives)
	}
	reached(false, &costAt, nil, task.Limits{MicroUSD: new(int64(500_000))})
	reached(false, nil, &unknownAt, task.Limits{Unknown: new(int64(1))})
	reached(false, nil, &unknownAt, task.Limits{MicroUSD: new(int64(500_001)), Unknown: new(int64(1))})
	reached(false, new(costAt.Add(-2*time.Minute)), nil, task.Limits{MicroUSD: new(int64(0))})
	reached(true, nil, nil, task.Limits{MicroUSD: new(int64(500_001)), Unknown: new(int64(2))})

	// An execution that ended before it reported the totals of its thread is known once a later one has reported them.
	a = try(t, b, addTask(t, b, p, "three"))
	for _, u := range []task.Use{
		{ExecutionID: "cut short", Usage: task.Usage{Thread: "t"}},
		{ExecutionID: "other thread", Usage: task.Usage{Thread: "u"}},
		{ExecutionID: "unpriced", Usage: task.Usage{Thread: "t", Totals: json.RawMessage(`{}`)}},
		{ExecutionID: "last", Usage: task.Usage{Thread: "t", Totals: json.RawMessage(`{}`), MicroUSD: new(int64(7))}},
	} {
		u.AttemptID = a.ID
		u.Executor = "CODEX"
		u.Reported = true
		u.InputTokens = 5
		u.Turns = 1
		testkit.Must(t, b.AddUse(t.Context(), u))
	}
	all := testkit.Get(b.Used(t.Context(), a.ID)).Must(t)
	for i, input := range []int{0, 5, 5, 5} {
		equal(t, "cost known, tokens, turns", all[i].MicroUSD != nil, i == 0 || i == 3, all[i].InputTokens, input,
			all[i].Turns, 1)
	}
}
