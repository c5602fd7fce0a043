package remote

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/source"
	"deepwork/session"
)

// performed makes an asynchronous workflow whose steps an agent performs.
func performed(t testing.TB, id string, lasts time.Duration) *source.Workflow {
	w := workflow(t, id, true, script{lasts: lasts})
	w.Performer = source.ByAgent
	return w
}

// TestWhatAgentsPerformTakesItsTime: no slot, no timeout, an answer after 50 s, each unless the
// config says otherwise; also after a restart.
func TestWhatAgentsPerformTakesItsTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		root, p := newRoot(t), newPlant()
		one := func(w *config.WorkflowTools) { w.MaxConcurrent = 1 }
		s := open(t, root, p, one)
		began := time.Now()
		long := performed(t, "long", 3*time.Hour)
		var ids []string
		for range 3 {
			r, err := s.call(t.Context(), "me", long, nil, nil)
			if err != nil || r.State != Running || r.Progress != nil {
				t.Fatalf("%+v, %v", r, err)
			}
			ids = append(ids, r.ExecutionID)
		}
		if took := time.Since(began); took != 3*performedReply {
			t.Errorf("three answers took %v", took)
		}
		other := workflow(t, "other", true, script{lasts: time.Second})
		if r, err := s.call(t.Context(), "me", other, nil, nil); err != nil || r.State != Completed {
			t.Errorf("a slot was occupied: %+v, %v", r, err)
		}
		if n := s.Stats(); n != (Stats{Running: 3}) {
			t.Errorf("%+v", n)
		}
		s.stop()
		s = open(t, root, p, one)
		if n := s.Stats(); n != (Stats{Running: 3}) || s.slots.used != 0 {
			t.Errorf("after a restart %+v, %d slots", n, s.slots.used)
		}
		time.Sleep(2 * time.Hour)
		for _, id := range ids {
			if r := mustStatus(t, s.Engine, id); r.State != Running {
				t.Errorf("after 2 hours: %+v", r)
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if r := mustStatus(t, s.Engine, ids[0]); r.State != Completed || s.Stats() != (Stats{}) {
			t.Errorf("at the end: %+v, %+v", r, s.Stats())
		}

		s.configure(func(w *config.WorkflowTools) {
			w.ReplyWithin, w.ExecutionTimeout = new(time.Second), new(time.Minute)
		})
		began = time.Now()
		r, err := s.call(t.Context(), "me", long, nil, nil)
		if err != nil || r.State != Running || time.Since(began) != time.Second {
			t.Fatalf("%+v, %v after %v", r, err, time.Since(began))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if r = mustStatus(t, s.Engine, r.ExecutionID); r.State != TimedOut {
			t.Errorf("with a timeout in the config: %+v", r)
		}
	})
}

func TestEachSourceHasAHundredThatAgentsPerform(t *testing.T) {
	bubble(t, func(t *testing.T) {
		root, p := newRoot(t), newPlant()
		s := open(t, root, p, nil)
		w := performed(t, "w", time.Hour)
		var calls []*pending
		refused := 0
		for i := range 150 {
			if i < maxPerformed {
				calls = append(calls, s.start(w, fmt.Sprint(i)))
				continue
			}
			_, err := s.call(t.Context(), "me", w, nil, nil)
			wantCode(t, err, session.StateError, "too_many_runs", "source 'plant'", "100", "cancel_execution")
			refused++
		}
		synctest.Wait()
		if refused != 50 || p.started["w"] != maxPerformed || s.Stats().Running != maxPerformed {
			t.Fatalf("%d refused, %d started, %+v", refused, p.started["w"], s.Stats())
		}
		calls[7].cancel(ErrCancelled)
		calls[7].over(Cancelled, "workflow_cancelled")
		s.start(w, "once more").id()
		elsewhere := *w
		elsewhere.Source = "another plant"
		if r, err := s.call(t.Context(), "me", &elsewhere, nil, nil); err != nil || r.State != Running {
			t.Errorf("another source: %+v, %v", r, err)
		}
		s.stop()
		s = open(t, root, p, nil)
		_, err := s.call(t.Context(), "me", w, nil, nil)
		wantCode(t, err, session.StateError, "too_many_runs")
		time.Sleep(time.Hour + time.Minute)
		synctest.Wait()
		if s.Stats() != (Stats{}) {
			t.Errorf("at the end %+v", s.Stats())
		}
	})
}
