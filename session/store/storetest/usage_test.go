package storetest_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
)

// What executions used is kept by their task, however they ended; those that never ran, or run, used
// nothing that is known.
func TestUsed(t *testing.T) {
	b, _, p := newBoard(t)
	s, other := addTask(t, b, p, "one"), addTask(t, b, p, "two")
	a := try(t, b, s)
	first, conversation := run(t, b)
	end(t, b, first, task.Ending{State: task.Failed, Usage: json.RawMessage(`{"turns":1}`)})
	testkit.Must(t, second(b.AddExecution(t.Context(), conversation.ID, "more", nil)))
	second, _ := run(t, b)
	end(t, b, second, task.Ending{State: task.Stopped})
	try(t, b, s) // never runs
	waiting, err := b.ClaimNext(t.Context(), "server", 1000, nil, nil)
	testkit.Must(t, err)
	end(t, b, waiting, task.Ending{State: task.Failed})
	try(t, b, s)
	run(t, b) // and goes on
	ended := func(id string) time.Time {
		x, err := b.Execution(t.Context(), id)
		testkit.Must(t, err)
		return *x.EndedAt
	}
	want := []task.Use{
		{Seq: 1, AttemptID: a.ID, ExecutionID: first.ID, Executor: "SCRIPTED", Usage: json.RawMessage(`{"turns":1}`), EndedAt: ended(first.ID)},
		{Seq: 2, AttemptID: a.ID, ExecutionID: second.ID, Executor: "SCRIPTED", EndedAt: ended(second.ID)},
	}
	review := task.Use{AttemptID: a.ID, ExecutionID: "review", Executor: "JUDGE", Usage: json.RawMessage(`{"usd":0.5}`)}
	testkit.Must(t, b.AddUse(t.Context(), review))
	all, err := b.UsedSince(t.Context(), 0)
	testkit.Must(t, err)
	review.EndedAt = all[len(all)-1].EndedAt
	want = append(want, review)
	for i, u := range all { // which are numbered in their order
		want[i].Seq = u.Seq
	}
	if used, err := b.Used(t.Context(), s.ID); err != nil || !reflect.DeepEqual(used, want) {
		t.Errorf("%+v %v, want %+v", used, err, want)
	}
	if used, err := b.Used(t.Context(), other.ID); err != nil || len(used) > 0 {
		t.Errorf("%+v %v", used, err)
	}
	if used, err := b.For(session.Caller{Identity: "eve", Group: "team"}).Used(t.Context(), s.ID); len(used) > 0 || err == nil {
		t.Errorf("somebody else sees %+v %v", used, err)
	}
}

// What deleted tasks have used is still known, and a claim of a server that does not know what has ended
// gives nothing.
func TestUsedSince(t *testing.T) {
	b, _, p := newBoard(t)
	s := addTask(t, b, p, "one")
	try(t, b, s)
	first, conversation := run(t, b)
	end(t, b, first, task.Ending{State: task.Completed, Usage: json.RawMessage(`{"turns":1}`)})
	testkit.Must(t, second(b.AddExecution(t.Context(), conversation.ID, "more", nil)))
	second, _ := run(t, b)
	end(t, b, second, task.Ending{State: task.Interrupted})
	all, err := b.UsedSince(t.Context(), 0)
	if err != nil || len(all) != 2 || all[0].ExecutionID != first.ID || all[1].ExecutionID != second.ID || all[0].Seq >= all[1].Seq || all[1].Usage != nil {
		t.Fatalf("%+v %v", all, err)
	}
	testkit.Must(t, b.DeleteTask(t.Context(), s.ID))
	if later, err := b.UsedSince(t.Context(), all[0].Seq); err != nil || !reflect.DeepEqual(later, all[1:]) {
		t.Errorf("%+v %v", later, err)
	}
	try(t, b, addTask(t, b, p, "two"))
	if x, err := b.ClaimNext(t.Context(), "server", 9, nil, &all[0].Seq); x != nil || !errors.Is(err, task.ErrOutdated) {
		t.Errorf("with what has ended unknown: %+v %v", x, err)
	}
	if x, err := b.ClaimNext(t.Context(), "server", 9, nil, &all[1].Seq); x == nil || err != nil {
		t.Errorf("with all known: %+v %v", x, err)
	}
}
