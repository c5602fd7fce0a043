package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/source"
	"deepwork/session"
)

// performed makes an asynchronous workflow whose steps an agent performs.
func performed(t testing.TB, id string, l script) *source.Workflow {
	w := workflow(t, id, true, l)
	w.Performer = source.ByAgent
	return w
}

// TestCancelEndsWhatAnsweredRunning: whatever its source can do, its end is stored,
// and a second cancel changes nothing.
func TestCancelEndsWhatAnsweredRunning(t *testing.T) {
	type cancel struct {
		edit func(*plant)
		l    script
		told int // runs that the source was told to cancel
		says string
	}
	hour := script{lasts: time.Hour}
	answers := func(a *source.Answer, err error) func(*plant) {
		return func(p *plant) { p.onCancel = func(string) (*source.Answer, error) { return a, err } }
	}
	bubbles(t, map[string]cancel{
		"as usual":            {func(*plant) {}, hour, 1, "was cancelled at its source"},
		"no cancel tool":      {func(p *plant) { p.cancels = false }, hour, 0, "no cancel tool"},
		"no status tool":      {func(p *plant) { p.statuses = false }, hour, 1, "was cancelled at its source"},
		"no id":               {func(*plant) {}, script{accepted: &source.Answer{State: source.Running}}, 0, "gave it no id"},
		"a hanging source":    {answers(nil, fmt.Errorf("%w: no answer", source.ErrAway)), hour, 1, "may go on there"},
		"it still runs there": {answers(&source.Answer{State: source.Running}, nil), hour, 1, "still runs there"},
	}, func(t *testing.T, c cancel, p *plant, open opener) {
		c.edit(p)
		s := open(nil)
		r := s.run(performed(t, "w", c.l))
		id := r.ExecutionID
		testkit.Equal(t, r.State, Running)
		wantCode(t, testkit.Get(s.Cancel(t.Context(), "you", id)).Err(), session.StateError, "unknown_run")
		for range 3 { // the second is harmless, and so is one after a restart
			testkit.Contains(t, *s.cancelled(id).Error, c.says)
			x := stored(t, s, id)
			testkit.True(t, x.State == Cancelled && x.EndedAt != nil, "stored is %+v", x)
			s = s.restart()
		}
		s.is(id, Cancelled, "")
		testkit.True(t, len(p.cancelled) == c.told && s.Stats() == (Stats{}), "the source was told of %v; %+v", p.cancelled, s.Stats())
	})
}

// TestCancelOfWhatHasEnded: it says how it ended, and nothing is lost.
func TestCancelOfWhatHasEnded(t *testing.T) {
	bubble(t, func(w *config.WorkflowTools) { w.ReplyWithin = new(time.Second) }, func(t *testing.T, p *plant, s *server) {
		for _, a := range []source.Answer{output(`1`), {State: source.Failed, Error: "out of paper"}} {
			c := s.does(true, script{answer: a})
			c.wait()
			was := s.status(c.id())
			testkit.Same(t, *testkit.Get(s.Cancel(t.Context(), "me", c.id())).Must(t), *was)
		}
		// Completed at its source before it was told: the result is kept.
		for name, answer := range map[string]struct {
			a   *source.Answer
			err error
		}{
			"it says so":       {&source.Answer{State: source.Completed, Output: json.RawMessage(`2`)}, nil},
			"without a result": {&source.Answer{State: source.Completed}, nil},
			"it refuses":       {nil, &source.RefusedError{Text: "it has ended"}},
			"it cannot":        {nil, source.ErrUnsupported},
			"it fails":         {&source.Answer{State: source.Failed, Error: "it has ended"}, nil},
		} {
			c := s.does(true, script{lasts: time.Hour, answer: output(`2`)})
			c.wait()
			p.with(func() {
				p.onCancel = func(id string) (*source.Answer, error) {
					p.jobs[id].until = time.Now()
					return answer.a, answer.err
				}
			})
			r := testkit.Get(s.Cancel(t.Context(), "me", c.id())).Must(t)
			testkit.True(t, r.State == Completed && string(r.Result) == `2`, "%s: %+v", name, r)
		}
	})
}

// TestCancelDuringAPoll does not wait for it.
func TestCancelDuringAPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{plant: newPlant(), hangs: 1}
		s := open(t, testkit.Dir(t), h, nil)
		id := s.run(performed(t, "w", script{lasts: time.Hour})).ExecutionID
		h.with(func() { h.hangs = 1 })
		time.Sleep(5 * time.Second) // the poll hangs, for up to 30 s
		began := time.Now()
		s.cancelled(id)
		testkit.True(t, time.Since(began) <= time.Second && len(h.cancelled) == 1, "after %v; the source was told of %v", time.Since(began), h.cancelled)
	})
}

// TestCancelOnAFullDisk says so, since the run may be shown as running later.
func TestCancelOnAFullDisk(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *plant, s *server) {
		id := s.run(performed(t, "w", script{lasts: time.Hour})).ExecutionID
		notSaved := func(words ...string) {
			t.Helper()
			wantCode(t, testkit.Get(s.Cancel(t.Context(), "me", id)).Err(), session.StateError, "cancel_not_saved", words...)
		}
		s.disk.full.Store(true)
		for range 2 {
			notSaved(id, "restart")
		}
		s.disk.full.Store(false)
		s.cancelled(id)
		testkit.Equal(t, stored(t, s, id).State, Cancelled)
		id = s.run(performed(t, "v", script{lasts: time.Hour})).ExecutionID
		s.disk.full.Store(true)
		notSaved()
		s = s.restart()
		synctest.Wait()
		for range 2 {
			s.cancelled(id)
		}
	})
}

// TestWhoLeavesWaitsForNoRun: and the run goes on.
func TestWhoLeavesWaitsForNoRun(t *testing.T) {
	bubbles(t, syncAndAsync, func(t *testing.T, async bool, p *plant, open opener) {
		s := open(nil)
		w := workflow(t, "w", async, script{lasts: time.Minute, answer: output(`1`)})
		enough := errors.New("enough")
		leaving, leave := context.WithCancelCause(t.Context())
		time.AfterFunc(10*time.Second, func() { leave(enough) })
		// Who comes after that is told as well which run it has begun.
		var ids []string
		for _, after := range []time.Duration{10 * time.Second, 0} {
			id, began := "", time.Now()
			_, err := s.call(WithLeaving(t.Context(), leaving), "me", w, json.RawMessage(`{}`), func(r Run) { id = r.ExecutionID })
			testkit.FailsWith(t, err, enough)
			testkit.Equal(t, time.Since(began), after)
			s.is(id, Running, "")
			ids = append(ids, id)
		}
		time.Sleep(time.Minute + 3*time.Second)
		for _, id := range ids {
			s.is(id, Completed, `1`)
		}
	})
}

// TestWhatAgentsPerformTakesItsTime: no slot, no timeout, an answer after 50 s, each unless the
// config says otherwise; also after a restart.
func TestWhatAgentsPerformTakesItsTime(t *testing.T) {
	bubble(t, oneSlot, func(t *testing.T, p *plant, s *server) {
		began := time.Now()
		long := performed(t, "long", script{lasts: 3 * time.Hour})
		var ids []string
		for range 3 {
			r := s.run(long)
			testkit.Need(t, r.State == Running && r.Progress == nil, "%+v", r)
			ids = append(ids, r.ExecutionID)
		}
		testkit.Equal(t, time.Since(began), 3*performedReply, "three answers took")
		testkit.Equal(t, s.run(workflow(t, "other", true, script{lasts: time.Second})).State, Completed, "a slot was occupied")
		testkit.Equal(t, s.Stats(), (Stats{Running: 3}))
		s = s.restart()
		testkit.True(t, s.Stats() == (Stats{Running: 3}) && s.slots.used == 0, "after a restart %+v, %d slots", s.Stats(), s.slots.used)
		time.Sleep(2 * time.Hour)
		for _, id := range ids {
			s.is(id, Running, "")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		s.is(ids[0], Completed, "")
		testkit.Equal(t, s.Stats(), (Stats{}), "at the end")

		s.configure(func(w *config.WorkflowTools) { w.ReplyWithin, w.ExecutionTimeout = new(time.Second), new(time.Minute) })
		began = time.Now()
		r := s.run(long)
		testkit.True(t, r.State == Running && time.Since(began) == time.Second, "%+v after %v", r, time.Since(began))
		time.Sleep(time.Minute)
		synctest.Wait()
		s.is(r.ExecutionID, TimedOut, "")
	})
}

func TestEachSourceHasAHundredThatAgentsPerform(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *plant, s *server) {
		w := performed(t, "w", script{lasts: time.Hour})
		var calls []*pending
		for i := range maxPerformed {
			calls = append(calls, s.start(w, fmt.Sprint(i)))
		}
		for range 50 {
			s.refuses(w, "too_many_runs", "source 'plant'", "100", "cancel_execution")
		}
		synctest.Wait()
		testkit.Need(t, p.started["w"] == maxPerformed && s.Stats().Running == maxPerformed, "%d started, %+v", p.started["w"], s.Stats())
		calls[7].cancel(ErrCancelled)
		calls[7].over(Cancelled, "workflow_cancelled")
		s.start(w, "once more").id()
		elsewhere := *w
		elsewhere.Source = "another plant"
		testkit.Equal(t, s.run(&elsewhere).State, Running, "another source")
		s = s.restart()
		s.refuses(w, "too_many_runs")
		time.Sleep(time.Hour + time.Minute)
		synctest.Wait()
		testkit.Equal(t, s.Stats(), (Stats{}), "at the end")
	})
}
