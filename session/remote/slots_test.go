package remote

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/store"
)

func TestRunsWaitForASlotInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPlant()
		s := open(t, newRoot(t), p, func(w *config.WorkflowTools) { w.MaxConcurrent = 2 })
		w := workflow(t, "w", true, script{lasts: 10 * time.Second})
		var calls []*pending
		var want []string
		for i := range 7 {
			calls = append(calls, s.start(w, fmt.Sprint(i)))
			want = append(want, fmt.Sprint(i))
			time.Sleep(300 * time.Millisecond) // so that no two end at once
		}
		if n := s.Stats(); n != (Stats{Running: 2, Waiting: 5}) {
			t.Errorf("%+v", n)
		}
		for i, c := range calls {
			r := mustStatus(t, s.Engine, c.id())
			if waits := r.Progress != nil && r.Progress.Message == "waiting for a slot"; r.State != Running || waits != (i >= 2) {
				t.Errorf("run %d: %+v", i, r)
			}
		}
		for i, c := range calls {
			if _, err := c.wait(); err != nil {
				t.Fatal(err)
			}
			told := c.progress()
			if i >= 2 && (told[0].Progress == nil || told[len(told)-1].Progress != nil) {
				t.Errorf("run %d was told %+v", i, told)
			}
		}
		if p.most != 2 || !slices.Equal(p.inputs, want) {
			t.Errorf("%d at once, in the order %v", p.most, p.inputs)
		}
	})
}

// TestThatAWaitingRunBeganIsStored: before its source is asked, since that it waits
// means that nothing was started.
func TestThatAWaitingRunBeganIsStored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, newRoot(t), newPlant(), func(w *config.WorkflowTools) { w.MaxConcurrent = 1 })
		first := s.start(workflow(t, "first", false, script{lasts: time.Minute}), `{}`)
		synctest.Wait()
		second := s.start(workflow(t, "second", false, script{lasts: time.Minute}), `{}`)
		synctest.Wait()
		if x := stored(t, s, second.id()); x.State != store.ExecutionWaiting {
			t.Errorf("while it waits it is %+v", x)
		}
		first.wait()
		synctest.Wait()
		if x := stored(t, s, second.id()); x.State != store.ExecutionStarting {
			t.Errorf("while its source is asked it is %+v", x)
		}
		second.wait()
	})
}

func TestAWaitingRunCanBeCancelled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPlant()
		s := open(t, newRoot(t), p, func(w *config.WorkflowTools) { w.MaxConcurrent = 1 })
		w := workflow(t, "w", false, script{lasts: time.Minute})
		first := s.start(w, `1`)
		second, third := s.start(w, `2`), s.start(w, `3`)
		second.cancel(ErrCancelled)
		second.over(Cancelled, "workflow_cancelled")
		if _, err := first.wait(); err != nil {
			t.Fatal(err)
		}
		if _, err := third.wait(); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(p.inputs, []string{"1", "3"}) {
			t.Errorf("the source got %v", p.inputs)
		}
	})
}

func TestAnEditOfTheLimitTakesEffect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPlant()
		s := open(t, newRoot(t), p, func(w *config.WorkflowTools) { w.MaxConcurrent = 1 })
		w := workflow(t, "w", true, script{lasts: time.Hour})
		var calls []*pending
		for i := range 4 {
			calls = append(calls, s.start(w, fmt.Sprint(i)))
		}
		s.configure(func(w *config.WorkflowTools) { w.MaxConcurrent, w.ExecutionTimeout = 3, new(time.Minute) })
		mustStatus(t, s.Engine, calls[0].id())
		synctest.Wait()
		if n := s.Stats(); n.Running != 3 || n.Waiting != 1 {
			t.Errorf("%+v", n)
		}
		s.configure(func(w *config.WorkflowTools) { w.MaxConcurrent = 1 })
		last := s.start(w, "4")
		calls[1].cancel(ErrCancelled)
		calls[1].wait()
		synctest.Wait()
		if n := s.Stats(); n.Running != 2 || n.Waiting != 2 {
			t.Errorf("%+v", n)
		}
		last.cancel(ErrCancelled)
		for _, c := range append(calls, last) {
			c.cancel(ErrCancelled)
			c.wait()
		}
	})
}

func TestTooManyWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, newRoot(t), newPlant(), nil)
		x := new(store.Execution)
		const limit = 10 // as configured by default
		for i := range limit + maxWaiting {
			if ticket, ok := s.slots.enter(limit, x); (ticket == nil) != (i < limit) || !ok {
				t.Fatalf("run %d: waits: %v, taken: %v", i, ticket != nil, ok)
			}
		}
		_, err := s.call(t.Context(), "me", workflow(t, "w", true, script{}), nil, nil)
		wantCode(t, err, session.StateError, "too_many_runs", "1000", "max_concurrent_executions")
		if s.Going() {
			t.Error("a refused call is kept")
		}
	})
}

func TestSlotsAndATicketThatComesAsItsHolderLeaves(t *testing.T) {
	var s slots
	x := new(store.Execution)
	s.enter(1, x)
	first, _ := s.enter(1, x)
	second, _ := s.enter(1, x)
	s.leave(nil, x)
	<-first
	s.leave(first, x) // which has become a slot
	<-second
	s.leave(nil, x)
	if used, waiting := s.count(); used != 0 || waiting != 0 {
		t.Fatalf("%d used, %d wait", used, waiting)
	}
}

// TestFigure003_200RunsAtOnceWith10Slots shows a promised figure.
func TestFigure003_200RunsAtOnceWith10Slots(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPlant()
		s := open(t, newRoot(t), p, func(w *config.WorkflowTools) { w.MaxConcurrent = 10 })
		w := workflow(t, "w", true, script{lasts: 3 * time.Second})
		var calls []*pending
		for i := range 200 {
			calls = append(calls, s.start(w, fmt.Sprint(i)))
		}
		for _, c := range calls {
			if r, err := c.wait(); err != nil || r.State != Completed {
				t.Errorf("%+v, %v", r, err)
			}
		}
		if p.most != 10 || p.started["w"] != 200 {
			t.Errorf("%d at once, %d started", p.most, p.started["w"])
		}
		synctest.Wait()
		if n := s.Stats(); n != (Stats{}) {
			t.Errorf("%+v", n)
		}
	})
}
