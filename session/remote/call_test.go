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
)

func TestReq003_2_2_and_2_3_SyncGivesItsResult(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *plant, s *server) {
		c := s.start(workflow(t, "sum", false, script{
			lasts:  time.Second,
			answer: source.Answer{State: source.Completed, Output: json.RawMessage(`{"sum":3}`)},
		}), `{"a":1,"b":2}`)
		r := c.ends()
		testkit.Need(t, r.EndedAt != nil, "%+v", r)
		testkit.Same(t, *r, Run{
			ExecutionID:     c.id(),
			Source:          "plant",
			WorkflowID:      r.WorkflowID,
			WorkflowName:    "sum",
			State:           Completed,
			Result:          json.RawMessage(`{"sum":3}`),
			StatusSupported: true,
			StartedAt:       r.StartedAt,
			EndedAt:         new(r.StartedAt.Add(time.Second)),
		})

		testkit.Equal(t, p.inputs[0], `{"a":1,"b":2}`, "the source got %s", p.inputs)
		testkit.Equal(t, string(s.does(false, script{answer: output(`no "JSON"`)}).ends().Result), `"no \"JSON\""`)
		s.configure(func(w *config.WorkflowTools) { w.ReplyWithin = new(5 * time.Second) })
		began := time.Now()
		r = s.run(workflow(t, "long", false, script{lasts: time.Minute, answer: output(`1`)}))
		testkit.Equal(t, r.State, Running, "%+v after %v", r, time.Since(began))
		testkit.True(t, r.StatusSupported, "%+v after %v", r, time.Since(began))
		testkit.Equal(t, time.Since(began), 5*time.Second, "%+v after %v", r, time.Since(began))

		time.Sleep(time.Minute)
		s.is(r.ExecutionID, Completed, `1`)
	})
}

func TestReq003_2_4_and_5_2_FailureSaysWhatTheSourceSaid(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *plant, s *server) {
		c := s.start(workflow(t, "broken", false, script{err: &source.RefusedError{Text: "disk 7 is full"}}), `{}`)
		testkit.ContainsAll(t, c.over(Failed, "workflow_failed").Error(),
			[]string{"'broken'", "'plant'", "disk 7 is full", c.id()})
		testkit.True(t, s.log.has("level=WARN", "disk 7 is full", c.id()), "not logged: %s", s.log)
		long := s.does(false, script{err: &source.RefusedError{Text: strings.Repeat("é", 50_000)}}).over(Failed,
			"workflow_failed")
		testkit.True(t, len([]rune(long.Error())) <= maxWords+1000, "%d characters", len([]rune(long.Error())))
	})
}

func TestReq003_7_1_AsyncIsPolledToItsEnd(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *plant, s *server) {
		r := s.does(true, script{lasts: time.Minute, answer: output(`"done"`)}).ends()
		testkit.Need(t, string(r.Result) == `"done"`, "%+v", r)
		testkit.Need(t, r.State == Completed, "%+v", r)
		testkit.Need(t, *r.SourceExecutionID == "x-1", "%+v", r)
		// The first poll after 250 ms, then one every 2 s; the end is seen by the next.
		testkit.True(t, p.polls == 1+30 && r.EndedAt.Sub(r.StartedAt) == 250*time.Millisecond+60*time.Second,
			"%d polls, %+v", p.polls, r)
	})
}

func TestReq003_7_1_ATerminalAnswerIsFinal(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *plant, s *server) {
		r := s.does(true, script{accepted: &source.Answer{
			ExecutionID: "q",
			State:       source.Completed,
			Output:      json.RawMessage(`7`),
		}}).ends()
		testkit.Equal(t, string(r.Result), `7`, "%+v, %d polls", r, p.polls)
		testkit.Equal(t, p.polls, 0, "%+v, %d polls", r, p.polls)
		testkit.Equal(t, *r.SourceExecutionID, "q", "%+v, %d polls", r, p.polls)

		e := s.does(true, script{accepted: new(output(`[3]`))}).over(Failed, "workflow_failed")
		testkit.True(t, strings.Contains(e.Error(), "executionType: sync") &&
			string(e.Details["run"].(*Run).Result) == `[3]`, "%q", e.Error())
	})
}

func TestReq003_7_2_Timeouts(t *testing.T) {
	own := 3 * time.Second
	type timeouts struct {
		async     bool
		general   time.Duration
		own       *time.Duration
		cancels   bool
		want      time.Duration
		cancelled int
		words     string
	}
	bubbles(t, map[string]timeouts{
		"sync": {false, 5 * time.Second, nil, true, 5 * time.Second, 0, "5s"},
		"async": {true, 5 * time.Second, nil, true, 5 * time.Second, 1,
			"was cancelled at its source"},
		"the source's own": {true, 5 * time.Second, &own, true, own, 1,
			"raise workflow_tools.sources[plant].execution_timeout in .deepwork/config.yml"},
		"a source without cancel": {true, 5 * time.Second, nil, false, 5 * time.Second, 0, "no cancel tool"},
		"the source's own: none":  {true, time.Second, new(time.Duration(0)), true, 0, 0, ""},
		"none":                    {false, 0, nil, true, 0, 0, ""},
	}, func(t *testing.T, c timeouts, p *plant, open opener) {
		p.cancels = c.cancels
		s := open(func(w *config.WorkflowTools) {
			w.ExecutionTimeout = new(c.general)
			w.Sources = []config.WorkflowSource{{Name: "other"}, {Name: "plant", ExecutionTimeout: c.own}}
		})
		began := time.Now()
		call := s.does(c.async, script{lasts: 10 * time.Hour})
		if c.want == 0 {
			call.ends()
			return
		}
		testkit.Contains(t, call.over(TimedOut, "workflow_timed_out").Error(), c.words)
		testkit.Equal(t, time.Since(began), c.want, "took %v, cancelled %v, busy %d", time.Since(began),
			p.cancelled, p.busy)
		testkit.Need(t, len(p.cancelled) == c.cancelled, "took %v, cancelled %v, busy %d", time.Since(began),
			p.cancelled, p.busy)
		testkit.Equal(t, p.busy, 0, "took %v, cancelled %v, busy %d", time.Since(began), p.cancelled, p.busy)
		s.is(call.id(), TimedOut, "")
	})
}

func TestReq003_7_2_TheTimeoutCountsFromTheSlot(t *testing.T) {
	bubble(t, func(w *config.WorkflowTools) {
		w.MaxConcurrent, w.ExecutionTimeout = 1, new(10*time.Second)
	}, func(t *testing.T, p *plant, s *server) {
		w := workflow(t, "slow", false, script{lasts: 9 * time.Second})
		for _, c := range []*pending{s.start(w, `1`), s.start(w, `2`), s.start(w, `3`)} {
			c.ends()
		}
	})
}

func TestReq003_7_3_and_8_3_ProgressIsLoggedAndTold(t *testing.T) {
	bubbles(t, syncAndAsync, func(t *testing.T, async bool, p *plant, open opener) {
		s := open(nil)
		half := source.Progress{Value: new(0.5), Total: new(1.0), Message: "half way"}
		c := s.does(async, script{lasts: time.Minute, progress: []source.Progress{half, half}})
		synctest.Wait()
		p.with(func() {
			for _, j := range p.jobs {
				j.told = &half
			}
		})
		time.Sleep(3 * time.Second)
		synctest.Wait()
		r := s.is(c.id(), Running, "")
		testkit.Need(t, r.Progress != nil, "status: %+v", r)
		testkit.Equal(t, *r.Progress.Value, 0.5, "status: %+v", r)
		testkit.Equal(t, r.Progress.Message, "half way", "status: %+v", r)
		testkit.True(t, s.log.has("remote run progress", "half way", "progress=0.5", "total=1", c.id()),
			"not logged: %s", s.log)

		halves := 0
		for _, r := range c.progress() {
			testkit.True(t, r.State == Running && r.ExecutionID == c.id(), "told %+v", r)
			if r.Progress != nil && r.Progress.Message == "half way" {
				halves++
			}
		}
		testkit.Equal(t, halves, 1, "told … times, and it changed once")

		told := len(c.progress())
		c.ends()
		testkit.Equal(t, len(c.progress()), told, "told of the end by progress")
	})
}

func TestReq003_7_4_AsyncFailure(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *plant, s *server) {
		e := s.does(true, script{
			lasts:  time.Second,
			answer: source.Answer{State: source.Failed, Error: "row 12 is bad", Output: json.RawMessage(`{"row":12}`)},
		}).over(Failed, "workflow_failed")
		testkit.True(t, strings.Contains(e.Error(), "row 12 is bad") &&
			string(e.Details["run"].(*Run).Result) == `{"row":12}`, "%+v", e)

		c := s.does(true, script{
			lasts:  time.Second,
			answer: source.Answer{State: source.Cancelled, Error: "by an operator"},
		})
		testkit.Contains(t, c.over(Cancelled, "workflow_cancelled").Error(), "by an operator")
	})
}

func TestReq003_7_5_CancelledByTheCaller(t *testing.T) {
	bubbles(t, syncAndAsync, func(t *testing.T, async bool, p *plant, open opener) {
		s := open(nil)
		c := s.does(async, script{lasts: time.Hour})
		c.cancelled()
		p.with(func() {
			testkit.True(t, p.count() == 0 && async == (len(p.cancelled) == 1), "%d run, cancelled %v", p.count(),
				p.cancelled)
		})
		s.is(c.id(), Cancelled, "")
	})
}

// Also where the answer to the cancel says completed, and no more: then the result is fetched.
func TestReq003_7_5_ACancelThatComesTooLateKeepsTheResult(t *testing.T) {
	bubbles(t, map[string]source.Answer{"told": output(`1`), "fetched": {}},
		func(t *testing.T, answer source.Answer, p *plant, open opener) {
			answer.State = source.Completed
			p.onCancel = func(id string) (*source.Answer, error) {
				p.jobs[id].until = time.Now()
				return &answer, nil
			}
			s := open(nil)
			c := s.does(true, script{lasts: time.Hour, answer: output(`1`)})
			time.Sleep(time.Second)
			c.cancel(ErrCancelled)
			r := c.ends()
			testkit.True(t, r.State == Completed && string(r.Result) == `1`, "%+v", r)
		})
}

func TestReq003_7_5_ACancelIsToldAsTheSourceAnsweredIt(t *testing.T) {
	type answer struct {
		source.Answer
		err  error
		says string
	}
	bubbles(t, map[string]answer{
		"still there": {source.Answer{State: source.Running}, nil, "still runs there"},
		"late":        {source.Answer{State: source.Failed, Error: "it is too late"}, nil, "it failed: it is too late"},
		"mute":        {source.Answer{}, nil, "was cancelled at its"},
		// the cancelling, not the run
		"done":  {source.Answer{State: source.Completed}, nil, "it may go on there"},
		"stuck": {source.Answer{}, errors.New("the handle is stuck"), "the handle is stuck"},
	}, func(t *testing.T, c answer, p *plant, open opener) {
		p.onCancel = func(string) (*source.Answer, error) { return &c.Answer, c.err }
		s := open(nil)
		testkit.Contains(t, s.does(true, script{lasts: time.Hour}).cancelled().Error(), c.says)
		testkit.Equal(t, s.log.has("level=WARN", "the handle is stuck"), c.err != nil, "logged")
	})
}

func TestAVanishedCallersRunGoesOn(t *testing.T) {
	bubbles(t, syncAndAsync, func(t *testing.T, async bool, p *plant, open opener) {
		s := open(nil)
		c := s.does(async, script{lasts: time.Minute, answer: output(`1`)})
		time.Sleep(time.Second)
		gone := errors.New("the connection broke")
		c.cancel(gone)
		_, err := c.wait()
		testkit.FailsWith(t, err, gone)
		testkit.Fails(t, err, c.id())
		s.is(c.id(), Running, "")
		time.Sleep(2 * time.Minute)
		s.is(c.id(), Completed, `1`)
		testkit.Equal(t, len(p.cancelled), 0, "cancelled at the source")
	})
}

func TestAPanicOfASourceEndsItsRunAlone(t *testing.T) {
	bubble(t, oneSlot, func(t *testing.T, p *plant, s *server) {
		testkit.Contains(t, s.does(false, script{panics: true}).over(Unknown, "workflow_unknown").Error(), "cursed")
		testkit.True(t, s.log.has("panicked", "Execute"), "%s", s.log)
		s.does(false, script{}).ends() // in the slot that was given back
	})
}

func TestARefusedCallHoldsNoSlot(t *testing.T) {
	bubble(t, oneSlot, func(t *testing.T, p *plant, s *server) {
		w := workflow(t, "w", false, script{})
		current := s.current
		bad := errors.New("config.yml:3: no")
		s.current = func(context.Context) (*config.Config, error) { return nil, bad }
		_, err := s.call(t.Context(), "me", w, nil, nil)
		testkit.FailsWith(t, err, bad)
		testkit.Equal(t, session.CodeOf(err), "config_invalid")

		s.current = current
		over, cancel := context.WithCancel(t.Context())
		cancel()
		testkit.FailsWith(t, testkit.Get(s.call(over, "me", w, nil, nil)).Err(), context.Canceled)

		s.stop()
		s.refuses(w, "shutting_down")
		testkit.Equal(t, s.Stats(), (Stats{}))
	})
}

func performed(t testing.TB, id string, l script) *source.Workflow {
	w := workflow(t, id, true, l)
	w.Performer = source.ByAgent
	return w
}

// TestCancelEndsWhatAnsweredRunning: whatever its source can do, its end is stored, and a second cancel
// changes nothing.
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
		"as usual":       {func(*plant) {}, hour, 1, "was cancelled at its source"},
		"no cancel tool": {func(p *plant) { p.cancels = false }, hour, 0, "no cancel tool"},
		"no status tool": {func(p *plant) { p.statuses = false }, hour, 1, "was cancelled at its source"},
		"no id": {func(*plant) {}, script{accepted: &source.Answer{State: source.Running}}, 0,
			"gave it no id"},
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
		testkit.True(t, len(p.cancelled) == c.told && s.Stats() == (Stats{}), "the source was told of %v; %+v",
			p.cancelled, s.Stats())
	})
}

// TestCancelOfWhatHasEnded: it says how it ended, and nothing is lost.
func TestCancelOfWhatHasEnded(t *testing.T) {
	bubble(t, func(w *config.WorkflowTools) {
		w.ReplyWithin = new(time.Second)
	}, func(t *testing.T, p *plant, s *server) {
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
	bubble(t, nil, func(t *testing.T, p *plant, s *server) {
		id := s.run(performed(t, "w", script{lasts: time.Hour})).ExecutionID
		p.with(func() { p.hangs = 1 })
		time.Sleep(5 * time.Second) // the poll hangs, for up to 30 s
		began := time.Now()
		s.cancelled(id)
		testkit.Equal(t, p.hangs, 0, "after %v; the source was told of %v", time.Since(began), p.cancelled)
		testkit.True(t, time.Since(began) <= time.Second, "after %v; the source was told of %v", time.Since(began),
			p.cancelled)
		testkit.Equal(t, len(p.cancelled), 1, "after %v; the source was told of %v", time.Since(began), p.cancelled)
	})
}

// TestCancelOnAFullDisk says so, since the run may be shown as running later.
func TestCancelOnAFullDisk(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *plant, s *server) {
		id := s.run(performed(t, "w", script{lasts: time.Hour})).ExecutionID
		notSaved := func(words ...string) {
			t.Helper()
			wantCode(t, testkit.Get(s.Cancel(t.Context(), "me", id)).Err(), session.StateError,
				"cancel_not_saved", words...)
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
			_, err := s.call(WithLeaving(t.Context(), leaving), "me", w, json.RawMessage(`{}`), func(r Run) {
				id = r.ExecutionID
			})
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

// TestWhatAgentsPerformTakesItsTime: no slot, no timeout, an answer after 50 s, each unless the config says
// otherwise; also after a restart.
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
		testkit.Equal(t, s.run(workflow(t, "other", true, script{lasts: time.Second})).State, Completed,
			"a slot was occupied")
		testkit.Equal(t, s.Stats(), (Stats{Running: 3}))

		s = s.restart()
		synctest.Wait()
		testkit.True(t, s.Stats() == (Stats{Running: 3}) && s.slots.used == 0, "after a restart %+v, %d slots",
			s.Stats(), s.slots.used)

		time.Sleep(2 * time.Hour)
		for _, id := range ids {
			s.is(id, Running, "")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		s.is(ids[0], Completed, "")
		testkit.Equal(t, s.Stats(), (Stats{}), "at the end")

		s.configure(func(w *config.WorkflowTools) {
			w.ReplyWithin, w.ExecutionTimeout = new(time.Second), new(time.Minute)
		})
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
		testkit.Need(t, p.started["w"] == maxPerformed && s.Stats().Running == maxPerformed, "%d started, %+v",
			p.started["w"], s.Stats())

		calls[7].cancel(ErrCancelled)
		calls[7].over(Cancelled, "workflow_cancelled")
		s.start(w, "once more").id()
		elsewhere := *w
		elsewhere.Source = "another plant"
		testkit.Equal(t, s.run(&elsewhere).State, Running, "another source")

		s = s.restart()
		time.Sleep(lookedAt)
		s.refuses(w, "too_many_runs")
		time.Sleep(time.Hour + time.Minute)
		synctest.Wait()
		testkit.Equal(t, s.Stats(), (Stats{}), "at the end")
	})
}
