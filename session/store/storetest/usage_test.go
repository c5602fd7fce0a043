package storetest_test

import (
	"encoding/json"
	"reflect"
	"testing"

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
	if _, err := b.AddExecution(t.Context(), conversation.ID, "more", nil); err != nil {
		t.Fatal(err)
	}
	second, _ := run(t, b)
	end(t, b, second, task.Ending{State: task.Stopped})
	try(t, b, s) // never runs
	waiting, err := b.ClaimNext(t.Context(), "server", 1000, nil)
	if err != nil {
		t.Fatal(err)
	}
	end(t, b, waiting, task.Ending{State: task.Failed})
	try(t, b, s)
	run(t, b) // and goes on
	want := []task.Use{
		{AttemptID: a.ID, ExecutionID: first.ID, Executor: "SCRIPTED", Usage: json.RawMessage(`{"turns":1}`)},
		{AttemptID: a.ID, ExecutionID: second.ID, Executor: "SCRIPTED"},
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
