package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/source"
	"deepwork/session"
	"deepwork/session/store"
)

// TestCancelEndsWhatAnsweredRunning: whatever its source can do, its end is stored,
// and a second cancel changes nothing.
func TestCancelEndsWhatAnsweredRunning(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit func(*plant)
		l    script
		told int // runs that the source was told to cancel
		says string
	}{
		"as usual":       {nil, script{lasts: time.Hour}, 1, "was cancelled at its source"},
		"no cancel tool": {func(p *plant) { p.cancels = false }, script{lasts: time.Hour}, 0, "no cancel tool"},
		"no status tool": {func(p *plant) { p.statuses = false }, script{lasts: time.Hour}, 1, "was cancelled at its source"},
		"no id":          {nil, script{accepted: &source.Answer{State: source.Running}}, 0, "gave it no id"},
		"a hanging source": {func(p *plant) {
			p.onCancel = func(string) (*source.Answer, error) { return nil, fmt.Errorf("%w: no answer", source.ErrAway) }
		}, script{lasts: time.Hour}, 1, "may go on there"},
		"it still runs there": {func(p *plant) {
			p.onCancel = func(string) (*source.Answer, error) { return &source.Answer{State: source.Running}, nil }
		}, script{lasts: time.Hour}, 1, "still runs there"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p, root := newPlant(), newRoot(t)
				if c.edit != nil {
					c.edit(p)
				}
				s := open(t, root, p, nil)
				w := workflow(t, "w", true, c.l)
				w.Performer = source.ByAgent
				r, err := s.call(t.Context(), "me", w, nil, nil)
				testkit.Need(t, err == nil && r.State == Running, "%+v, %v", r, err)
				wantCode(t, testkit.Get(s.Cancel(t.Context(), "you", r.ExecutionID)).Err(), session.StateError, "unknown_run")
				for range 3 { // the second is harmless, and so is one after a restart
					got, err := s.Cancel(t.Context(), "me", r.ExecutionID)
					testkit.Need(t, err == nil && got.State == Cancelled && got.EndedAt != nil && strings.Contains(*got.Error, c.says), "%+v, %v", got, err)
					x := stored(t, s, r.ExecutionID)
					testkit.True(t, x.State == store.ExecutionCancelled && x.EndedAt != nil, "stored is %+v", x)
					s.stop()
					s = open(t, root, p, nil)
				}
				if r := mustStatus(t, s.Engine, r.ExecutionID); r.State != Cancelled || len(p.cancelled) != c.told || s.Stats() != (Stats{}) {
					t.Errorf("%+v; the source was told of %v; %+v", r, p.cancelled, s.Stats())
				}
			})
		})
	}
}

// TestCancelOfWhatHasEnded: it says how it ended, and nothing is lost.
func TestCancelOfWhatHasEnded(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p := newPlant()
		s := open(t, newRoot(t), p, func(w *config.WorkflowTools) { w.ReplyWithin = new(time.Second) })
		for _, l := range []script{
			{answer: source.Answer{Output: json.RawMessage(`1`)}},
			{answer: source.Answer{State: source.Failed, Error: "out of paper"}},
		} {
			c := s.start(workflow(t, "w", true, l), `{}`)
			c.wait()
			was := mustStatus(t, s.Engine, c.id())
			r, err := s.Cancel(t.Context(), "me", c.id())
			testkit.True(t, err == nil && r.State == was.State && r.EndedAt != nil && string(r.Result) == string(was.Result), "%+v, %v", r, err)
		}
		// Completed at its source before it was told: the result is kept.
		for name, answer := range map[string]func() (*source.Answer, error){
			"it says so": func() (*source.Answer, error) {
				return &source.Answer{State: source.Completed, Output: json.RawMessage(`2`)}, nil
			},
			"without a result": func() (*source.Answer, error) { return &source.Answer{State: source.Completed}, nil },
			"it refuses":       func() (*source.Answer, error) { return nil, &source.RefusedError{Text: "it has ended"} },
			"it cannot":        func() (*source.Answer, error) { return nil, source.ErrUnsupported },
			"it fails": func() (*source.Answer, error) {
				return &source.Answer{State: source.Failed, Error: "it has ended"}, nil
			},
		} {
			c := s.start(workflow(t, "late", true, script{lasts: time.Hour, answer: source.Answer{Output: json.RawMessage(`2`)}}), `{}`)
			c.wait()
			p.with(func() {
				p.onCancel = func(id string) (*source.Answer, error) {
					p.jobs[id].until = time.Now()
					return answer()
				}
			})
			if r, err := s.Cancel(t.Context(), "me", c.id()); err != nil || r.State != Completed || string(r.Result) != `2` {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
		}
	})
}

// TestCancelDuringAPoll does not wait for it.
func TestCancelDuringAPoll(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		h := &hanging{plant: newPlant(), hangs: 1}
		s := open(t, newRoot(t), h, nil)
		r := testkit.Get(s.call(t.Context(), "me", performed(t, "w", time.Hour), nil, nil)).Must(t)
		h.with(func() { h.hangs = 1 })
		time.Sleep(5 * time.Second) // the poll hangs, for up to 30 s
		began := time.Now()
		if r, err := s.Cancel(t.Context(), "me", r.ExecutionID); err != nil || r.State != Cancelled || time.Since(began) > time.Second {
			t.Errorf("%+v, %v after %v", r, err, time.Since(began))
		}
		testkit.Equal(t, len(h.cancelled), 1, "the source was told of %v", h.cancelled)
	})
}

// TestCancelOnAFullDisk says so, since the run may be shown as running later.
func TestCancelOnAFullDisk(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p, root := newPlant(), newRoot(t)
		s := open(t, root, p, nil)
		r := testkit.Get(s.call(t.Context(), "me", performed(t, "w", time.Hour), nil, nil)).Must(t)
		s.disk.full.Store(true)
		for range 2 {
			wantCode(t, testkit.Get(s.Cancel(t.Context(), "me", r.ExecutionID)).Err(), session.StateError, "cancel_not_saved", r.ExecutionID, "restart")
		}
		s.disk.full.Store(false)
		testkit.Equal(t, testkit.Get(s.Cancel(t.Context(), "me", r.ExecutionID)).Must(t).State, Cancelled)
		testkit.Equal(t, stored(t, s, r.ExecutionID).State, Cancelled)
		r = testkit.Get(s.call(t.Context(), "me", performed(t, "v", time.Hour), nil, nil)).Must(t)
		s.disk.full.Store(true)
		wantCode(t, testkit.Get(s.Cancel(t.Context(), "me", r.ExecutionID)).Err(), session.StateError, "cancel_not_saved")
		s.stop()
		s = open(t, root, p, nil)
		synctest.Wait()
		for range 2 {
			testkit.Equal(t, testkit.Get(s.Cancel(t.Context(), "me", r.ExecutionID)).Must(t).State, Cancelled)
		}
	})
}

// TestWhoLeavesWaitsForNoRun: and the run goes on.
func TestWhoLeavesWaitsForNoRun(t *testing.T) {
	t.Parallel()
	for name, async := range map[string]bool{"async": true, "sync": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPlant()
				s := open(t, newRoot(t), p, nil)
				w := workflow(t, "w", async, script{lasts: time.Minute, answer: source.Answer{Output: json.RawMessage(`1`)}})
				enough := errors.New("enough")
				leaving, leave := context.WithCancelCause(t.Context())
				time.AfterFunc(10*time.Second, func() { leave(enough) })
				began := time.Now()
				var id string
				_, err := s.call(WithLeaving(t.Context(), leaving), "me", w, json.RawMessage(`{}`), func(r Run) { id = r.ExecutionID })
				took := time.Since(began)
				testkit.Need(t, errors.Is(err, enough) && took == 10*time.Second, "%v after %v", err, took)
				testkit.Equal(t, mustStatus(t, s.Engine, id).State, Running)
				// Who comes after that is told as well which run it has begun.
				id = ""
				if _, err := s.call(WithLeaving(t.Context(), leaving), "me", w, json.RawMessage(`{}`), func(r Run) { id = r.ExecutionID }); !errors.Is(err, enough) || id == "" {
					t.Errorf("%v, run %q", err, id)
				}
				time.Sleep(time.Minute + 3*time.Second)
				if r := mustStatus(t, s.Engine, id); r.State != Completed || string(r.Result) != `1` {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

// performed makes an asynchronous workflow whose steps an agent performs.
func performed(t testing.TB, id string, lasts time.Duration) *source.Workflow {
	w := workflow(t, id, true, script{lasts: lasts})
	w.Performer = source.ByAgent
	return w
}

// TestWhatAgentsPerformTakesItsTime: no slot, no timeout, an answer after 50 s, each unless the
// config says otherwise; also after a restart.
func TestWhatAgentsPerformTakesItsTime(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		root, p := newRoot(t), newPlant()
		one := func(w *config.WorkflowTools) { w.MaxConcurrent = 1 }
		s := open(t, root, p, one)
		began := time.Now()
		long := performed(t, "long", 3*time.Hour)
		var ids []string
		for range 3 {
			r, err := s.call(t.Context(), "me", long, nil, nil)
			testkit.Need(t, err == nil && r.State == Running && r.Progress == nil, "%+v, %v", r, err)
			ids = append(ids, r.ExecutionID)
		}
		testkit.Equal(t, time.Since(began), 3*performedReply, "three answers took")
		other := workflow(t, "other", true, script{lasts: time.Second})
		testkit.Equal(t, testkit.Get(s.call(t.Context(), "me", other, nil, nil)).Must(t).State, Completed, "a slot was occupied")
		testkit.Equal(t, s.Stats(), (Stats{Running: 3}))
		s.stop()
		s = open(t, root, p, one)
		n := s.Stats()
		testkit.True(t, n == (Stats{Running: 3}) && s.slots.used == 0, "after a restart %+v, %d slots", n, s.slots.used)
		time.Sleep(2 * time.Hour)
		for _, id := range ids {
			testkit.Equal(t, mustStatus(t, s.Engine, id).State, Running, "after 2 hours")
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
	t.Parallel()
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
			wantCode(t, testkit.Get(s.call(t.Context(), "me", w, nil, nil)).Err(), session.StateError, "too_many_runs", "source 'plant'", "100", "cancel_execution")
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
		testkit.Equal(t, testkit.Get(s.call(t.Context(), "me", &elsewhere, nil, nil)).Must(t).State, Running, "another source")
		s.stop()
		s = open(t, root, p, nil)
		wantCode(t, testkit.Get(s.call(t.Context(), "me", w, nil, nil)).Err(), session.StateError, "too_many_runs")
		time.Sleep(time.Hour + time.Minute)
		synctest.Wait()
		testkit.Equal(t, s.Stats(), (Stats{}), "at the end")
	})
}
