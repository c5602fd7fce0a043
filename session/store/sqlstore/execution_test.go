package sqlstore_test

import (
	"errors"
	"strings"
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
		e := returned(b.LatestExecution(t.Context(), try(t, b, addTask(t, b, p, string(rune('a'+i)))).ID)).of(t)
		waiting = append(waiting, e)
	}
	for i, e := range waiting {
		attemptDetails := returned(b.AttemptDetails(t.Context(), e.AttemptID)).of(t)
		equal(t, "before", attemptDetails.Ahead, i, attemptDetails.Open, 0)
	}
	claim := func(max int) *task.Execution {
		t.Helper()
		return returned(b.ClaimNext(t.Context(), "one", max, nil, task.Limits{})).of(t)
	}
	for _, max := range []int{-1, 0} {
		equal(t, max, claim(max), nil)
	}
	for i := range 2 {
		e := claim(2)
		equal(t, "claimed", e.ID, waiting[i].ID, e.State, task.Starting, e.Owner, "one")
		equal(t, returned(b.Attempt(t.Context(), e.AttemptID)).of(t).State, task.Starting)
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
	e := claim(2)
	equal(t, "claimed", e.ID, waiting[3].ID)
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
		return returned(b.Adopt(t.Context(), e.ID, from, to)).of(t)
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
	session := returned(b.StartExecution(t.Context(), e.ID, "SCRIPTED", time.Time{})).of(t)
	equal(t, session.AttemptID, a.ID, session.Executor, "SCRIPTED", session.Variant, nil, session.Queued, nil)
	started := c.at.UTC().Truncate(time.Microsecond)
	c.forward(time.Second)
	equal(t, returned(b.StartExecution(t.Context(), e.ID, "SCRIPTED", time.Time{})).of(t).ID, session.ID)
	e = returned(b.Execution(t.Context(), e.ID)).of(t)
	equal(t, e.State, task.Running, *e.SessionID, session.ID, e.StartedAt, started, e.EndedAt, nil)
	got := returned(b.Attempt(t.Context(), a.ID)).of(t)
	equal(t, got.State, task.Running, *got.LatestSessionID, session.ID, *got.LatestExecutor, "SCRIPTED")
	sum := taskOf(t, b, s.ID)
	equal(t, *sum.LatestSessionID, session.ID, *sum.LatestSessionExecutor, "SCRIPTED", sum.HasInProgressAttempt, true)
	end(t, b, e, task.Ending{State: task.Stopped})
	says(t, second(b.StartExecution(t.Context(), e.ID, "X", time.Time{})), task.ErrEnded, "is stopped")
	// A follow-up goes on in the same session, whatever its variant.
	f := returned(b.AddExecution(t.Context(), session.ID, "on", new("PLAN"))).of(t)
	equal(t, f.State, task.Waiting, f.FollowUp, true, *f.Variant, "PLAN", f.Prompt, "on")
	fails(t, second(b.AddExecution(t.Context(), session.ID, "on", nil)), task.ErrRunning)
	f, s2 := run(t, b)
	equal(t, s2.ID, session.ID, s2.Variant, nil)
	equal(t, returned(b.AttemptDetails(t.Context(), a.ID)).of(t).Session.ID, session.ID)
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
					_, idle, err := b.Queue(t.Context(), session.ID, &task.Queued{Prompt: "more", Variant: new("PLAN")})
					testkit.Must(t, err)
					equal(t, idle, false)
				}
				c.forward(time.Minute)
				next := end(t, b, e, task.Ending{State: state, ExitCode: new(7), FinalMessage: new("bye"), Error: new("why"), Task: task.InReview})
				runs := queued && (state == task.Completed || state == task.Failed)
				equal(t, "next is", (next != nil), runs)
				got := returned(b.Execution(t.Context(), e.ID)).of(t)
				equal(t, got.State, state, *got.ExitCode, 7, *got.FinalMessage, "bye", got.EndedAt, c.at.Truncate(time.Microsecond))
				session = returned(b.Session(t.Context(), session.ID)).of(t)
				equal(t, session.Queued, nil)
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
				next, ended, err := b.EndExecution(t.Context(), e.ID, task.Ending{State: task.Interrupted, Task: task.Todo})
				testkit.Must(t, err)
				equal(t, "it ended twice", next, nil, ended, false)
				again := taskOf(t, b, s.ID)
				equal(t, again.Status, before.Status, again.LastAttemptFailed, before.LastAttemptFailed)
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
	sum := taskOf(t, b, s.ID)
	equal(t, sum.Status, task.InProgress, sum.LastAttemptFailed, true, sum.HasInProgressAttempt, false)
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
		equal(t, "it is and set to", taskOf(t, b, s.ID).Status, decided)
		e = returned(b.AddExecution(t.Context(), session.ID, "after all", nil)).of(t)
		equal(t, "it is after a follow up", taskOf(t, b, s.ID).Status, task.InProgress)
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
	before, idle := queue(nil)
	equal(t, "cancelled", before, nil, idle, false)
	before, idle = queue(&task.Queued{Prompt: "a", Variant: new("PLAN")})
	equal(t, before, nil, idle, false)
	at := c.at.UTC().Truncate(time.Microsecond)
	c.forward(time.Minute)
	if before, idle := queue(&task.Queued{Prompt: "b"}); idle || before == nil || before.Prompt != "a" || *before.Variant != "PLAN" || !before.At.Equal(at) {
		t.Errorf("%+v %v", before, idle)
	}
	if before, idle := queue(nil); idle || before == nil || before.Prompt != "b" || before.Variant != nil {
		t.Errorf("%+v %v", before, idle)
	}
	before, idle = queue(nil)
	equal(t, before, nil, idle, false)
	queue(&task.Queued{Prompt: ""}) // an empty prompt is one
	next := end(t, b, e, task.Ending{State: task.Completed})
	equal(t, next.Prompt, "")
	if before, idle := queue(&task.Queued{Prompt: "c"}); before != nil || idle { // while it waits
		t.Error(before, idle)
	}
	end(t, b, next, task.Ending{State: task.Stopped})
	for _, q := range []*task.Queued{nil, {Prompt: "late"}} {
		before, idle := queue(q)
		equal(t, before, nil, idle, true)
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
	equal(t, returned(b.Attempt(t.Context(), a.ID)).of(t).State, task.Waiting)
	is(t, false)(b.Release(t.Context(), first.ID, "one"))
	e, session := run(t, b) // in the place it had
	equal(t, "claimed", e.ID, first.ID)
	is(t, false)(b.Release(t.Context(), e.ID, "server"))
	queue(t, b, session, &task.Queued{Prompt: "more"})
	next := end(t, b, e, task.Ending{State: task.Completed, Task: task.InReview})
	queue(t, b, session, &task.Queued{Prompt: "even more"})
	is(t, task.Waiting)(b.Stop(t.Context(), next.ID))
	got := returned(b.Attempt(t.Context(), a.ID)).of(t)
	equal(t, got.State, task.Stopped, taskOf(t, b, s.ID).Status, task.InProgress)
	session = returned(b.Session(t.Context(), session.ID)).of(t)
	equal(t, session.Queued, nil)
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
	queue(t, b, session, &task.Queued{Prompt: "more"})
	at := stop(e.ID, task.Running)
	equal(t, "asked at", at, *stop(e.ID, task.Running))
	is(t, true)(b.Adopt(t.Context(), e.ID, "server", "next"))
	open := returned(b.OpenExecutions(t.Context())).of(t)
	equal(t, "the next server sees", len(open), 1, open[0].Owner, "next", open[0].StopAsked == nil, false)
	equal(t, "what queued runs", end(t, b, e, task.Ending{State: task.Completed}), nil)
	session = returned(b.Session(t.Context(), session.ID)).of(t)
	equal(t, session.Queued, nil)

	late := returned(b.AddExecution(t.Context(), session.ID, "again", nil)).of(t)
	testkit.Must(t, second(b.ClaimNext(t.Context(), "server", 1, nil, task.Limits{})))
	stop(late.ID, task.Starting)
	is(t, true)(b.Release(t.Context(), late.ID, "server"))
	if at := stop(late.ID, task.Stopped); at == nil {
		t.Error("the mark is gone with its end")
	}
	equal(t, returned(b.Attempt(t.Context(), a.ID)).of(t).State, task.Stopped)
	if at := stop(e.ID, task.Completed); at == nil {
		t.Error("the mark is gone with its end")
	}
}

// The history has sessions, attempts and runs in one order, filtered and by pages, and of a caller only its own.
func TestHistory(t *testing.T) {
	b, c, p := newBoard(t)
	began := func(id, goal string, change func(*store.SessionWrite)) {
		c.forward(time.Minute)
		w := newSession(id)
		w.Goal, w.StartedAt, w.UpdatedAt = goal, c.at.UTC().Truncate(time.Microsecond), c.at.UTC().Truncate(time.Microsecond)
		if change != nil {
			change(w)
		}
		write(t, b.db.Sessions(), w)
	}
	worked := func(title string, how task.AttemptState) {
		c.forward(time.Minute)
		who := owner
		if title == "ann's" {
			who = ann
		}
		made := returned(b.For(who).CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: title}, task.Request{})).of(t)
		a := task.Attempt{TaskID: made.ID, Executor: "SCRIPTED", Branch: "deepwork/x-0000", Workspace: abs("w")}
		if strings.HasPrefix(title, "run") {
			a.Run = []byte(`{}`)
		}
		testkit.Must(t, second(b.CreateAttempt(t.Context(), a, task.Execution{Prompt: "do it"}, task.Request{})))
		x, _ := run(t, b)
		if how != task.Running {
			end(t, b, x, task.Ending{State: how, Usage: &task.Usage{MicroUSD: new(int64(250_000))}})
		}
	}
	began("0000000a", "Sell MORE", nil)
	began("0000000b", "of ann", func(w *store.SessionWrite) { w.Identity, w.Status, w.Job = "ann", "completed", "beta" })
	began("0000000c", "of an attempt", func(w *store.SessionWrite) { w.AttemptID = "a1" })
	worked("fixed", task.Completed)
	worked("run that failed", task.Failed)
	began("0000000d", "given up", func(w *store.SessionWrite) { w.Status = "aborted" })
	worked("goes on", task.Running)
	worked("ann's", task.Completed)

	all := []string{"ann's", "goes on", "given up", "run that failed", "fixed", "of ann", "Sell MORE"}
	for name, test := range map[string]struct {
		q    task.HistoryQuery
		who  session.Caller
		want []string
	}{
		"all":           {task.HistoryQuery{}, owner, all},
		"of a caller":   {task.HistoryQuery{}, ann, []string{"ann's", "of ann"}},
		"sessions":      {task.HistoryQuery{Kind: task.HistorySession}, owner, []string{"given up", "of ann", "Sell MORE"}},
		"attempts":      {task.HistoryQuery{Kind: task.HistoryAttempt}, owner, []string{"ann's", "goes on", "fixed"}},
		"runs":          {task.HistoryQuery{Kind: task.HistoryRun}, owner, []string{"run that failed"}},
		"going on":      {task.HistoryQuery{State: task.HistoryOpen}, owner, []string{"goes on", "Sell MORE"}},
		"done":          {task.HistoryQuery{State: task.HistoryDone}, owner, []string{"ann's", "fixed", "of ann"}},
		"stopped":       {task.HistoryQuery{State: task.HistoryStopped}, owner, []string{"given up", "run that failed"}},
		"a workflow":    {task.HistoryQuery{Job: "beta", Workflow: "main"}, owner, []string{"of ann"}},
		"a text":        {task.HistoryQuery{Text: "more"}, owner, []string{"Sell MORE"}},
		"who began it":  {task.HistoryQuery{Identity: "ann"}, owner, []string{"ann's", "of ann"}},
		"nothing of it": {task.HistoryQuery{Identity: "bob"}, session.Caller{Owner: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for q := test.q; ; { // by pages of two
				q.Limit = 2
				rows := returned(b.For(test.who).History(t.Context(), q)).of(t)
				for _, r := range rows {
					got = append(got, r.Title)
					equal(t, r.Title+" has ended", r.EndedAt != nil, r.Status+string(r.State) != "active" && r.State != task.Running)
					equal(t, r.Title+" has a cost", r.MicroUSD != nil, r.Kind == task.HistoryAttempt && r.EndedAt != nil) // a leader costs nothing
				}
				if len(rows) < 2 {
					break
				}
				q.Before, q.AfterID = rows[1].StartedAt, rows[1].ID
			}
			testkit.Same(t, got, test.want)
		})
	}
}
