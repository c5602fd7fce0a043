package sqlstore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
)

// Comments wait until a follow-up that has them runs: each is in one; a queued one that is dropped gives its comments back.
func TestComments(t *testing.T) {
	b, _, p := newBoard(t)
	a := try(t, b, addTask(t, b, p, "one"))
	e, conversation := run(t, b)
	comment := task.Comment{RepoID: "r", File: "a/b.go", Line: 7, Side: task.OldSide, Quote: "x := 1", Text: "text"}
	add := func(n int) []string {
		t.Helper()
		return testkit.Get(b.ChangeComments(t.Context(), a.ID, nil, slices.Repeat([]task.Comment{comment}, n), task.Request{})).Must(t)
	}
	waits := func(when string, queued bool, want ...string) {
		t.Helper()
		var got []string
		for _, c := range testkit.Get(b.Comments(t.Context(), a.ID)).Must(t) {
			got = append(got, c.ID)
			equal(t, when, c.Queued, queued, c.File, "a/b.go", c.Line, 7, c.Side, task.OldSide, c.Quote, "x := 1", c.Identity, "local", c.AttemptID, a.ID)
		}
		slices.Sort(got)
		equal(t, when, got, slices.Sorted(slices.Values(want)))
	}
	queue := func(q *task.Queued, comments ...string) error {
		_, _, err := b.Queue(t.Context(), conversation.ID, q, comments...)
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
	testkit.FailsWith(t, second(b.ChangeComments(t.Context(), a.ID, []string{more[0], one[0]}, nil, task.Request{})), task.ErrSent)
	waits("after a removal that is refused", false, more...)
	testkit.FailsWith(t, second(b.AddExecution(t.Context(), conversation.ID, "p", nil, one[0])), task.ErrSent)
	equal(t, "a refused follow up added", testkit.Get(b.LatestExecution(t.Context(), a.ID)).Must(t).ID, e.ID)
	testkit.Must(t, second(b.AddExecution(t.Context(), conversation.ID, "p", nil, more...)))
	waits("sent", false)
	testkit.Must(t, second(b.ChangeComments(t.Context(), a.ID, add(1), nil, task.Request{})))
	waits("removed", false)
	// The same request adds its comments once, and there are at most so many.
	all := slices.Repeat([]task.Comment{{RepoID: "r", File: "f", Line: 1, Side: task.NewSide}}, task.MaxComments)
	r := task.Request{Identity: "local", Tool: "comment_attempt", RequestID: "x", ArgsDigest: "d"}
	ids := testkit.Get(b.ChangeComments(t.Context(), a.ID, nil, all, r)).Must(t)
	is(t, ids)(b.ChangeComments(t.Context(), a.ID, nil, all, r))
	testkit.FailsWith(t, second(b.ChangeComments(t.Context(), a.ID, nil, all[:1], task.Request{})), task.ErrComments)
	equal(t, len(testkit.Get(b.Comments(t.Context(), a.ID)).Must(t)), task.MaxComments)
}

// What executions used is kept by their attempt, however they ended; those that never ran, or run, used nothing that is known.
func TestUsed(t *testing.T) {
	b, _, p := newBoard(t)
	s, other := addTask(t, b, p, "one"), addTask(t, b, p, "two")
	a := try(t, b, s)
	first, conversation := run(t, b)
	used := task.Usage{MicroUSD: new(int64(500_000)), InputTokens: 1, CachedTokens: 2, OutputTokens: 3, Turns: 4}
	end(t, b, first, task.Ending{State: task.Failed, Usage: &used})
	testkit.Must(t, second(b.AddExecution(t.Context(), conversation.ID, "more", nil)))
	follow, _ := run(t, b)
	end(t, b, follow, task.Ending{State: task.Stopped})
	again := try(t, b, s) // never runs
	end(t, b, claimed(t, b, 1000), task.Ending{State: task.Failed})
	try(t, b, s)
	run(t, b) // and goes on
	review := task.Use{AttemptID: a.ID, ExecutionID: "review", Executor: "JUDGE", Reported: true, Usage: task.Usage{MicroUSD: new(int64(25)), Turns: 1}}
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
	sum := task.Spent{Executions: 3, Unknown: 1, MicroUSD: 500_025, InputTokens: 1, CachedTokens: 2, OutputTokens: 3, Turns: 5}
	for of, want := range map[[2]string]task.Spent{{s.ID, a.ID}: sum, {s.ID, ""}: sum, {"", ""}: sum, {other.ID, ""}: {}, {s.ID, again.ID}: {}} {
		is(t, want, fmt.Sprint(of))(b.Spent(t.Context(), of[0], of[1]))
	}
	eve := b.For(session.Caller{Identity: "eve", Group: "team"})
	testkit.FailsWith(t, second(eve.Used(t.Context(), a.ID)), task.ErrNotFound)
	for _, of := range [][2]string{{s.ID, ""}, {s.ID, a.ID}, {"", ""}} {
		testkit.FailsWith(t, second(eve.Spent(t.Context(), of[0], of[1])), task.ErrNotFound)
	}
}

// What deleted tasks have used counts for the limits, and nothing is claimed from the moment on at which one is reached.
func TestLimits(t *testing.T) {
	b, c, p := newBoard(t)
	s := addTask(t, b, p, "one")
	a := try(t, b, s)
	first, conversation := run(t, b)
	costs := func(micro int64) *task.Usage { return &task.Usage{MicroUSD: &micro} }
	end(t, b, first, task.Ending{State: task.Completed, Usage: costs(300_000)})
	c.forward(time.Minute)
	testkit.Must(t, second(b.AddExecution(t.Context(), conversation.ID, "more", nil)))
	follow, _ := run(t, b)
	end(t, b, follow, task.Ending{State: task.Interrupted})
	unknownAt := c.at.UTC().Truncate(time.Microsecond)
	c.forward(time.Minute)
	testkit.Must(t, b.AddUse(t.Context(), task.Use{AttemptID: a.ID, ExecutionID: "review", Executor: "JUDGE", Reported: true, Usage: *costs(200_000)}))
	costAt := c.at.UTC().Truncate(time.Microsecond)
	c.forward(time.Minute)
	testkit.Must(t, b.DeleteTask(t.Context(), s.ID))
	try(t, b, addTask(t, b, p, "two"))
	for i, x := range []struct {
		limits            task.Limits
		costAt, unknownAt *time.Time
		gives             bool
	}{
		{task.Limits{MicroUSD: new(int64(500_000))}, &costAt, nil, false},
		{task.Limits{Unknown: new(int64(1))}, nil, &unknownAt, false},
		{task.Limits{MicroUSD: new(int64(500_001)), Unknown: new(int64(1))}, nil, &unknownAt, false},
		{task.Limits{MicroUSD: new(int64(0))}, new(costAt.Add(-2 * time.Minute)), nil, false},
		{task.Limits{MicroUSD: new(int64(500_001)), Unknown: new(int64(2))}, nil, nil, true},
	} {
		cost, unknown, err := b.ReachedAt(t.Context(), x.limits)
		testkit.Must(t, err)
		equal(t, i, cost, x.costAt, unknown, x.unknownAt)
		equal(t, "limits of and claimed", testkit.Get(b.ClaimNext(t.Context(), "server", 9, nil, x.limits)).Must(t) != nil, x.gives)
	}
	// An execution that ended before it reported the totals of its thread is known, with nothing of its own, once a later one of
	// the thread has reported them.
	a = try(t, b, addTask(t, b, p, "three"))
	for _, u := range []task.Use{
		{ExecutionID: "cut short", Usage: task.Usage{Thread: "t"}}, {ExecutionID: "other thread", Usage: task.Usage{Thread: "u"}},
		{ExecutionID: "unpriced", Usage: task.Usage{Thread: "t", Totals: json.RawMessage(`{}`)}},
		{ExecutionID: "last", Usage: task.Usage{Thread: "t", Totals: json.RawMessage(`{}`), MicroUSD: new(int64(7))}},
	} {
		u.AttemptID, u.Executor, u.Reported, u.InputTokens, u.Turns = a.ID, "CODEX", true, 5, 1
		testkit.Must(t, b.AddUse(t.Context(), u))
	}
	all := testkit.Get(b.Used(t.Context(), a.ID)).Must(t)
	for i, input := range []int{0, 5, 5, 5} {
		equal(t, "cost known, tokens, turns", all[i].MicroUSD != nil, i == 0 || i == 3, all[i].InputTokens, input, all[i].Turns, 1)
	}
}
