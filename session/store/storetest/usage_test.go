package storetest_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
)

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
	second, _ := run(t, b)
	end(t, b, second, task.Ending{State: task.Stopped})
	again := try(t, b, s) // never runs
	waiting := returned(b.ClaimNext(t.Context(), "server", 1000, nil, task.Limits{})).of(t)
	end(t, b, waiting, task.Ending{State: task.Failed})
	try(t, b, s)
	run(t, b) // and goes on
	review := task.Use{AttemptID: a.ID, ExecutionID: "review", Executor: "JUDGE", Reported: true, Usage: task.Usage{MicroUSD: new(int64(25)), Turns: 1}}
	testkit.Must(t, b.AddUse(t.Context(), review))
	want := []task.Use{
		{AttemptID: a.ID, ExecutionID: first.ID, Executor: "SCRIPTED", Reported: true, Usage: used},
		{AttemptID: a.ID, ExecutionID: second.ID, Executor: "SCRIPTED"},
		review,
	}
	all := returned(b.Used(t.Context(), a.ID)).of(t)
	equal(t, "each has used", cmp.Diff(want, all), "")
	sum := task.Spent{Executions: 3, Unknown: 1, MicroUSD: 500_025, InputTokens: 1, CachedTokens: 2, OutputTokens: 3, Turns: 5}
	for what, c := range map[string]struct {
		task, attempt string
		want          task.Spent
	}{"attempt": {s.ID, a.ID, sum}, "task": {s.ID, "", sum}, "board": {"", "", sum}, "another task": {other.ID, "", task.Spent{}}, "one that never ran": {s.ID, again.ID, task.Spent{}}} {
		got := returned(b.Spent(t.Context(), c.task, c.attempt)).of(t)
		equal(t, what, cmp.Diff(c.want, got), "")
	}
	eve := b.For(session.Caller{Identity: "eve", Group: "team"})
	if all, err := eve.Used(t.Context(), a.ID); len(all) > 0 || err == nil {
		t.Errorf("somebody else sees %+v %v", all, err)
	}
	for _, of := range [][2]string{{s.ID, ""}, {s.ID, a.ID}, {"", ""}} {
		if sum, err := eve.Spent(t.Context(), of[0], of[1]); sum != (task.Spent{}) || err == nil {
			t.Errorf("somebody else sees the sum %+v of %q %v", sum, of, err)
		}
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
	second, _ := run(t, b)
	end(t, b, second, task.Ending{State: task.Interrupted})
	unknownAt := c.at.UTC().Truncate(time.Microsecond)
	c.forward(time.Minute)
	testkit.Must(t, b.AddUse(t.Context(), task.Use{AttemptID: a.ID, ExecutionID: "review", Executor: "JUDGE", Reported: true, Usage: *costs(200_000)}))
	costAt := c.at.UTC().Truncate(time.Microsecond)
	c.forward(time.Minute)
	testkit.Must(t, b.DeleteTask(t.Context(), s.ID))
	try(t, b, addTask(t, b, p, "two"))
	for _, x := range []struct {
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
		equal(t, "limits of and are reached since", cmp.Diff([]*time.Time{x.costAt, x.unknownAt}, []*time.Time{cost, unknown}), "")
		claimNext := returned(b.ClaimNext(t.Context(), "server", 9, nil, l)).of(t)
		equal(t, "limits of and claimed", (claimNext != nil), x.gives)
	}
}

func deref(n *int64) any {
	if n == nil {
		return "nothing"
	}
	return *n
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
		if u := all[i]; (u.MicroUSD != nil) != want.known || u.InputTokens != want.input || u.Turns != 1 {
			t.Errorf("%q: cost known: %v, want %v; %d tokens, want %d; %d turns", u.ExecutionID, u.MicroUSD != nil, want.known, u.InputTokens, want.input, u.Turns)
		}
	}
}
