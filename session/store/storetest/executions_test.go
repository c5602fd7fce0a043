package storetest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/store"
)

// executed is an execution with everything that one may have.
func executed(id, owner string, s store.ExecutionState, at time.Time) *store.Execution {
	at = at.UTC().Truncate(time.Microsecond)
	x := &store.Execution{ID: id, Owner: owner, Identity: "me", Source: "factory", WorkflowID: "w", WorkflowName: "wörk", Async: true, Performed: true,
		State: s, StatusSupported: true, StartedAt: at, Timeout: time.Hour, Deadline: new(at.Add(time.Hour))}
	switch s {
	case store.ExecutionWaiting, store.ExecutionStarting:
	case store.ExecutionRunning:
		x.SourceExecutionID = new("at source")
	default:
		x.SourceExecutionID, x.EndedAt, x.Error = new("at source"), new(at.Add(time.Second)), new("it broke")
		x.Progress, x.Result = json.RawMessage(`{"message":"half"}`), json.RawMessage(`{"b":9007199254740993,"a":[1.0,"<x>"]}`)
	}
	return x
}

func newExecutions(t *testing.T) (store.Executions, *clock) {
	c := newClock()
	return open(t, filepath.Join(t.TempDir(), "board.db"), c.now).Executions(), c
}

func save(t *testing.T, e store.Executions, all ...*store.Execution) {
	t.Helper()
	for _, x := range all {
		testkit.Must(t, e.Save(t.Context(), x))
	}
}

func TestAnExecutionIsStoredAtEachStage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	one, two := open(t, path, newClock().now).Executions(), open(t, path, newClock().now).Executions()
	began := newClock().at
	for _, s := range []store.ExecutionState{store.ExecutionWaiting, store.ExecutionStarting, store.ExecutionRunning, store.ExecutionFailed} {
		x := executed("x", "a", s, began)
		save(t, one, x)
		if got, err := two.Execution(t.Context(), "x"); err != nil || !reflect.DeepEqual(got, x) {
			t.Errorf("%+v, want %+v; %v", got, x, err)
		}
	}
	if _, err := one.Execution(t.Context(), "y"); !errors.Is(err, task.ErrNotFound) {
		t.Errorf("one that does not exist: %v", err)
	}
	stale := executed("x", "b", store.ExecutionRunning, began)
	if err := two.Save(t.Context(), stale); !errors.Is(err, store.ErrNotOwner) {
		t.Errorf("saved by a server that does not own it: %v", err)
	}
	if found, n, going, err := one.Inspect(t.Context()); len(found) > 0 || n != 1 || going != 0 || err != nil {
		t.Error(found, n, going, err)
	}
}

func TestExecutionsAreFoundByEitherIDByTheirCaller(t *testing.T) {
	e, c := newExecutions(t)
	save(t, e, executed("old", "a", store.ExecutionCompleted, c.at.Add(-store.ExecutionKeptFor-time.Hour)),
		executed("first", "a", store.ExecutionRunning, c.at), executed("second", "a", store.ExecutionCompleted, c.at.Add(time.Second)))
	other := executed("other", "a", store.ExecutionRunning, c.at)
	other.Identity = "you"
	save(t, e, other)
	for query, want := range map[[3]string][]string{
		{"me", "first", ""}:           {"first"},
		{"me", "", "at source"}:       {"second", "first"},
		{"me", "first", "at source"}:  {"first"},
		{"me", "no one", "at source"}: {"second", "first"},
		{"me", "other", "other"}:      nil,
		{"you", "other", ""}:          {"other"},
		{"me", "old", ""}:             nil,
	} {
		found, err := e.Find(t.Context(), query[0], query[1], query[2])
		var got []string
		for _, x := range found {
			got = append(got, x.ID)
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Find(%q) = %v, %v, want %v", query, got, err, want)
		}
	}
	if list, total, err := e.Newest(t.Context(), "me", 1); err != nil || total != 2 || len(list) != 1 || list[0].ID != "second" || list[0].Result != nil {
		t.Errorf("%+v of %d, %v", list, total, err)
	}
}

func TestExecutionsBeyondTheBoundsAreForgotten(t *testing.T) {
	e, c := newExecutions(t)
	const more = 100
	for i := range store.ExecutionsKept + more {
		save(t, e, executed(fmt.Sprint(i), "a", store.ExecutionCompleted, c.at.Add(time.Duration(i)*time.Second)))
	}
	if _, total, err := e.Newest(t.Context(), "me", 1); err != nil || total < store.ExecutionsKept || total >= store.ExecutionsKept+more {
		t.Errorf("%d are kept; %v", total, err)
	}
	if _, err := e.Execution(t.Context(), fmt.Sprint(store.ExecutionsKept+more-1)); err != nil {
		t.Error("the newest:", err)
	}
	large := executed("", "a", store.ExecutionCompleted, c.at.Add(time.Hour))
	large.Result = json.RawMessage(`"` + strings.Repeat("x", store.ResultsKept/20) + `"`)
	for i := range 20 {
		large.ID = fmt.Sprint("large ", i)
		*large.EndedAt = large.EndedAt.Add(time.Second)
		save(t, e, large)
	}
	if _, total, err := e.Newest(t.Context(), "me", 1); err != nil || total != 19 {
		t.Errorf("%d with large results are kept; %v", total, err)
	}
}

// TestExecutionsAreAdoptedOnce: by one of several servers that try at once, each as it
// can be told from its state.
func TestExecutionsAreAdoptedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	c := newClock()
	var servers []store.Executions
	for range 3 {
		servers = append(servers, open(t, path, c.now).Executions())
	}
	save(t, servers[0], executed("waiting", "a", store.ExecutionWaiting, c.at), executed("starting", "b", store.ExecutionStarting, c.at),
		executed("running", "a", store.ExecutionRunning, c.at), executed("ended", "a", store.ExecutionCompleted, c.at),
		executed("alive", "alive", store.ExecutionStarting, c.at))
	blind := executed("blind", "a", store.ExecutionRunning, c.at)
	blind.StatusSupported = false
	save(t, servers[0], blind)
	if owners, err := servers[1].Owners(t.Context()); err != nil || len(owners) != 3 {
		t.Errorf("owners: %v, %v", owners, err)
	}
	var mu sync.Mutex
	adopted := map[string]store.Execution{}
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() {
			got, err := s.Adopt(t.Context(), []string{"a", "b"}, fmt.Sprint("new", i))
			mu.Lock()
			defer mu.Unlock()
			for _, x := range got {
				if _, twice := adopted[x.ID]; twice {
					t.Errorf("%s was adopted twice", x.ID)
				}
				adopted[x.ID] = x
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(adopted) != 3 {
		t.Errorf("adopted: %v", adopted)
	}
	for id, want := range map[string]struct {
		state store.ExecutionState
		words string
	}{"waiting": {store.ExecutionFailed, store.NeverStarted}, "starting": {store.ExecutionUnknown, store.LostSight}, "running": {store.ExecutionRunning, ""}} {
		x := adopted[id]
		if x.State != want.state || x.Over() != (want.words != "") || want.words != "" && *x.Error != want.words {
			t.Errorf("%s is %+v", id, x)
		}
		if got, err := servers[0].Execution(t.Context(), id); err != nil || got.Owner != x.Owner || got.State != x.State {
			t.Errorf("stored is %+v; %v", got, err)
		}
	}
}
