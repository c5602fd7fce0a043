package sqlstore_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
)

// Comments wait until a follow-up that has them runs: each is in one follow-up, and a queued one that
// is dropped gives its comments back.
func TestComments(t *testing.T) {
	b, _, p := newBoard(t)
	a := try(t, b, addTask(t, b, p, "one"))
	e, conversation := run(t, b)
	add := func(texts ...string) []string {
		t.Helper()
		var all []task.Comment
		for _, text := range texts {
			all = append(all, task.Comment{RepoID: "r", File: "a/b.go", Line: 7, Side: task.OldSide, Quote: "x := 1", Text: text})
		}
		ids := returned(b.ChangeComments(t.Context(), a.ID, nil, all, task.Request{})).of(t)
		equal(t, len(ids), len(texts))
		return ids
	}
	waits := func(when string, queued bool, want ...string) {
		t.Helper()
		all, err := b.Comments(t.Context(), a.ID)
		var got []string
		for _, c := range all {
			got = append(got, c.ID)
			equal(t, when, c.Queued, queued, c.File, "a/b.go", c.Line, 7, c.Side, task.OldSide, c.Quote, "x := 1", c.Identity, "local", c.AttemptID, a.ID)
		}
		slices.Sort(got)
		slices.Sort(want)
		testkit.Must(t, err)
		equal(t, when, got, want)
	}
	queue := func(q *task.Queued, comments ...string) error {
		_, _, err := b.Queue(t.Context(), conversation.ID, q, comments...)
		return err
	}
	words := &task.Queued{Prompt: "words"}
	one := add("one", "two")
	waits("at first", false, one...)
	fails(t, queue(words, one[0], "no such comment"), task.ErrSent)
	waits("after a refusal", false, one...)
	testkit.Must(t, queue(words))
	fails(t, queue(words, one...), task.ErrQueued)
	testkit.Must(t, errors.Join(queue(nil), queue(words, one...)))
	waits("queued", true, one...)
	fails(t, second(b.ChangeComments(t.Context(), a.ID, one[:1], nil, task.Request{})), task.ErrSent)
	testkit.Must(t, errors.Join(queue(words, one...), queue(nil))) // their own is replaced
	waits("dropped", false, one...)
	testkit.Must(t, queue(words, one...))
	more := add("three")
	next := end(t, b, e, task.Ending{State: task.Completed})
	waits("when it is to run", false, more...)
	equal(t, next.Prompt, "words")
	e, _ = run(t, b)
	testkit.Must(t, queue(words, more...))
	end(t, b, e, task.Ending{State: task.Stopped})
	waits("after a stop", false, more...)
	fails(t, second(b.ChangeComments(t.Context(), a.ID, []string{more[0], one[0]}, nil, task.Request{})), task.ErrSent)
	waits("after a removal that is refused", false, more...)
	fails(t, second(b.AddExecution(t.Context(), conversation.ID, "p", nil, one[0])), task.ErrSent)
	equal(t, "a refused follow up added", returned(b.LatestExecution(t.Context(), a.ID)).of(t).ID, e.ID)
	testkit.Works(t, testkit.Get(b.AddExecution(t.Context(), conversation.ID, "p", nil, more...)).Err())
	waits("sent", false)
	four := add("four")
	testkit.Works(t, testkit.Get(b.ChangeComments(t.Context(), a.ID, four, nil, task.Request{})).Err())
	waits("removed", false)
}

// The same request adds its comments once, and there are at most so many.
func TestCommentsAreBounded(t *testing.T) {
	b, _, p := newBoard(t)
	a := try(t, b, addTask(t, b, p, "one"))
	all := slices.Repeat([]task.Comment{{RepoID: "r", File: "f", Line: 1, Side: task.NewSide}}, task.MaxComments)
	r := task.Request{Identity: "local", Tool: "comment_attempt", RequestID: "x", ArgsDigest: "d"}
	ids, err := b.ChangeComments(t.Context(), a.ID, nil, all, r)
	again, err2 := b.ChangeComments(t.Context(), a.ID, nil, all, r)
	testkit.Must(t, err)
	equal(t, err2, nil, len(ids), len(all), ids, again)
	fails(t, second(b.ChangeComments(t.Context(), a.ID, nil, all[:1], task.Request{})), task.ErrComments)
	equal(t, len(returned(b.Comments(t.Context(), a.ID)).of(t)), task.MaxComments)
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
	testkit.Must(t, second(b.AddExecution(t.Context(), conversation.ID, "more", nil)))
	follow, _ := run(t, b)
	end(t, b, follow, task.Ending{State: task.Stopped})
	again := try(t, b, s) // never runs
	end(t, b, returned(b.ClaimNext(t.Context(), "server", 1000, nil, task.Limits{})).of(t), task.Ending{State: task.Failed})
	try(t, b, s)
	run(t, b) // and goes on
	review := task.Use{AttemptID: a.ID, ExecutionID: "review", Executor: "JUDGE", Reported: true, Usage: task.Usage{MicroUSD: new(int64(25)), Turns: 1}}
	testkit.Must(t, b.AddUse(t.Context(), review))
	want := []task.Use{
		{AttemptID: a.ID, ExecutionID: first.ID, Executor: "SCRIPTED", Reported: true, Usage: used},
		{AttemptID: a.ID, ExecutionID: follow.ID, Executor: "SCRIPTED"},
		review,
	}
	got := returned(b.Used(t.Context(), a.ID)).of(t)
	for i := range got {
		testkit.True(t, !got[i].EndedAt.IsZero(), "%s has ended", got[i].ExecutionID)
		got[i].EndedAt = time.Time{}
	}
	equal(t, "each has used", got, want)
	sum := task.Spent{Executions: 3, Unknown: 1, MicroUSD: 500_025, InputTokens: 1, CachedTokens: 2, OutputTokens: 3, Turns: 5}
	for what, c := range map[string]struct {
		task, attempt string
		want          task.Spent
	}{"attempt": {s.ID, a.ID, sum}, "task": {s.ID, "", sum}, "board": {"", "", sum}, "another task": {other.ID, "", task.Spent{}}, "one that never ran": {s.ID, again.ID, task.Spent{}}} {
		equal(t, what, returned(b.Spent(t.Context(), c.task, c.attempt)).of(t), c.want)
	}
	eve := b.For(session.Caller{Identity: "eve", Group: "team"})
	fails(t, second(eve.Used(t.Context(), a.ID)), task.ErrNotFound)
	for _, of := range [][2]string{{s.ID, ""}, {s.ID, a.ID}, {"", ""}} {
		fails(t, second(eve.Spent(t.Context(), of[0], of[1])), task.ErrNotFound)
	}
}

// What deleted tasks have used counts for the limits, and nothing is claimed from the moment on at which
// one is reached.
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
		cost, unknown *int64
		costAt        *time.Time
		unknownAt     *time.Time
		gives         bool
	}{
		{cost: new(int64(500_000)), costAt: &costAt}, {unknown: new(int64(1)), unknownAt: &unknownAt},
		{cost: new(int64(500_001)), unknown: new(int64(1)), unknownAt: &unknownAt}, {cost: new(int64(0)), costAt: new(costAt.Add(-2 * time.Minute))},
		{cost: new(int64(500_001)), unknown: new(int64(2)), gives: true},
	} {
		l := task.Limits{MicroUSD: x.cost, Unknown: x.unknown}
		cost, unknown, err := b.ReachedAt(t.Context(), l)
		testkit.Must(t, err)
		equal(t, i, cost, x.costAt, unknown, x.unknownAt)
		equal(t, "limits of and claimed", (returned(b.ClaimNext(t.Context(), "server", 9, nil, l)).of(t) != nil), x.gives)
	}
}

// An execution that ended before it reported the totals of its thread is known, with nothing of its own,
// once a later one of the thread has reported them.
func TestUnreportedExecutionOfAThread(t *testing.T) {
	b, _, p := newBoard(t)
	a := try(t, b, addTask(t, b, p, "one"))
	use := func(id, thread string, micro *int64, totals string) {
		t.Helper()
		u := task.Use{AttemptID: a.ID, ExecutionID: id, Executor: "CODEX", Reported: true, Usage: task.Usage{MicroUSD: micro, InputTokens: 5, Turns: 1, Thread: thread}}
		if totals != "" {
			u.Totals = json.RawMessage(totals)
		}
		testkit.Must(t, b.AddUse(t.Context(), u))
	}
	use("cut short", "t", nil, "")
	use("other thread", "u", nil, "")
	use("unpriced", "t", nil, `{}`)
	use("last", "t", new(int64(7)), `{}`)
	all := returned(b.Used(t.Context(), a.ID)).of(t)
	for i, want := range []struct {
		known bool
		input int64
	}{{true, 0}, {false, 5}, {false, 5}, {true, 5}} {
		u := all[i]
		equal(t, "cost known tokens turns", (u.MicroUSD != nil), want.known, u.InputTokens, want.input, u.Turns, 1)
	}
}
