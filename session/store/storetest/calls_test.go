package storetest_test

import (
	"encoding/json"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/store"
)

// Of several callers that add a call with one key, one stores it, and all get that; it is its identity's alone, ends
// once, and is forgotten a day after.
func TestLongCalls(t *testing.T) {
	path, c := filepath.Join(t.TempDir(), "board.db"), newClock()
	one, two := open(t, path, c.now).LongCalls(), open(t, path, c.now).LongCalls()
	made := func(id, who string) *store.LongCall {
		return &store.LongCall{ID: id, Key: "step", Identity: who, Tool: "finished_step", Work: json.RawMessage(`{"a":1}`), Status: store.CallWorking, CreatedAt: c.at.UTC().Truncate(time.Microsecond)}
	}
	ids := [2]string{"00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"}
	var got [2]*store.LongCall
	var all sync.WaitGroup
	for i, s := range []store.LongCalls{one, two} {
		all.Go(func() {
			var err error
			if got[i], err = s.Add(t.Context(), made(ids[i], "ann")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	testkit.Same(t, got[0], got[1], "the call of both")
	testkit.Same(t, got[0], made(got[0].ID, "ann"), "the call")
	id := got[0].ID
	for what, count := range map[string]int{"ann": 1, "bob": 0} {
		testkit.Equal(t, testkit.Get(two.Count(t.Context(), what)).Must(t), count, "calls of %s", what)
	}
	for _, who := range []string{"ann", ""} {
		testkit.Equal(t, len(testkit.Get(two.Working(t.Context(), who, "", 9)).Must(t)), 1, "working calls of %q", who)
	}
	for _, not := range [][2]string{{"bob", ""}, {"ann", id}} {
		testkit.Equal(t, len(testkit.Get(two.Working(t.Context(), not[0], not[1], 9)).Must(t)), 0, "working calls of %s after %q", not[0], not[1])
	}
	_, err := two.LongCall(t.Context(), "bob", id)
	testkit.FailsWith(t, err, task.ErrNotFound)
	c.forward(time.Minute)
	for _, status := range []string{store.CallCompleted, store.CallCancelled} { // the second changes nothing
		done := testkit.Get(two.End(t.Context(), "ann", id, status, json.RawMessage(`{"b":9007199254740993}`))).Must(t)
		if done.Status != store.CallCompleted || string(done.Result) != `{"b":9007199254740993}` || !done.EndedAt.Equal(c.at.Truncate(time.Microsecond)) {
			t.Errorf("%+v", done)
		}
	}
	again := testkit.Get(one.Add(t.Context(), made("00000000-0000-4000-8000-000000000003", "ann"))).Must(t)
	testkit.Equal(t, again.ID, "00000000-0000-4000-8000-000000000003", "after the end there is another")
	c.forward(store.LongCallKeptFor - time.Second)
	testkit.Get(one.LongCall(t.Context(), "ann", id)).Must(t)
	c.forward(time.Second)
	_, err = one.LongCall(t.Context(), "ann", id)
	testkit.FailsWith(t, err, task.ErrNotFound)
	testkit.Get(one.LongCall(t.Context(), "ann", again.ID)).Must(t)
}

// Executions whose source asks a person something are found until they are over.
func TestExecutionsThatAsk(t *testing.T) {
	e, c := newExecutions(t)
	asks, quiet, over := executed("1", "a", store.ExecutionRunning, c.at), executed("2", "a", store.ExecutionRunning, c.at), executed("3", "a", store.ExecutionFailed, c.at)
	asks.Progress, over.Progress = json.RawMessage(`{"message":"m","asks":"Which city?"}`), json.RawMessage(`{"asks":"old"}`)
	save(t, e, asks, quiet, over)
	found := testkit.Get(e.Asking(t.Context())).Must(t)
	if len(found) != 1 || found[0].ID != "1" || string(found[0].Progress) != string(asks.Progress) {
		t.Errorf("%+v", found)
	}
}
