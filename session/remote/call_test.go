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
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p := newPlant()
		s := open(t, newRoot(t), p, nil)
		c := s.start(workflow(t, "sum", false, script{lasts: time.Second, answer: source.Answer{State: source.Completed, Output: json.RawMessage(`{"sum":3}`)}}), `{"a":1,"b":2}`)
		r := testkit.Get(c.wait()).Must(t)
		if string(r.Result) != `{"sum":3}` || r.State != Completed || r.Error != nil || r.WorkflowName != "sum" || r.Source != "plant" ||
			r.ExecutionID != c.id() || r.SourceExecutionID != nil || r.EndedAt == nil || r.EndedAt.Sub(r.StartedAt) != time.Second || !r.StatusSupported {
			t.Errorf("%+v", r)
		}
		testkit.Equal(t, p.inputs[0], `{"a":1,"b":2}`, "the source got %s", p.inputs)
	})
}

func TestReq003_2_4_and_5_2_FailureSaysWhatTheSourceSaid(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := open(t, newRoot(t), newPlant(), nil)
		c := s.start(workflow(t, "broken", false, script{err: &source.RefusedError{Text: "disk 7 is full"}}), `{}`)
		e := c.over(Failed, "workflow_failed")
		testkit.ContainsAll(t, e.Message, []string{"'broken'", "'plant'", "disk 7 is full", c.id()})
		testkit.True(t, s.log.has("level=WARN", "disk 7 is full", c.id()), "not logged: %s", s.log)
		long := s.start(workflow(t, "chatty", false, script{err: &source.RefusedError{Text: strings.Repeat("é", 50_000)}}), `{}`)
		if e := long.over(Failed, "workflow_failed"); len([]rune(e.Message)) > maxWords+1000 {
			t.Errorf("%d characters", len([]rune(e.Message)))
		}
	})
}

func TestReq003_7_1_AsyncIsPolledToItsEnd(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p := newPlant()
		s := open(t, newRoot(t), p, nil)
		c := s.start(workflow(t, "report", true, script{lasts: time.Minute, answer: source.Answer{Output: json.RawMessage(`"done"`)}}), `{}`)
		r, err := c.wait()
		testkit.Need(t, err == nil && string(r.Result) == `"done"` && r.State == Completed && *r.SourceExecutionID == "x-1", "%+v, %v", r, err)
		// The first poll after 250 ms, then one every 2 s; the end is seen by the next.
		if want := 1 + 30; p.polls != want || r.EndedAt.Sub(r.StartedAt) != 250*time.Millisecond+60*time.Second {
			t.Errorf("%d polls in %v, want %d", p.polls, r.EndedAt.Sub(r.StartedAt), want)
		}
	})
}

func TestReq003_7_1_ATerminalAnswerIsFinal(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p := newPlant()
		s := open(t, newRoot(t), p, nil)
		c := s.start(workflow(t, "quick", true, script{accepted: &source.Answer{ExecutionID: "q", State: source.Completed, Output: json.RawMessage(`7`)}}), `{}`)
		r, err := c.wait()
		testkit.True(t, err == nil && string(r.Result) == `7` && p.polls == 0 && *r.SourceExecutionID == "q", "%+v, %v, %d polls", r, err, p.polls)
		c = s.start(workflow(t, "mute", true, script{accepted: &source.Answer{Output: json.RawMessage(`[3]`)}}), `{}`)
		e := c.over(Failed, "workflow_failed")
		testkit.True(t, strings.Contains(e.Message, "executionType: sync") && string(e.Details["run"].(*Run).Result) == `[3]`, "%q", e.Message)
	})
}

func TestReq003_7_2_Timeouts(t *testing.T) {
	t.Parallel()
	own := 3 * time.Second
	for name, c := range map[string]struct {
		async     bool
		general   time.Duration
		own       *time.Duration
		cancels   bool
		want      time.Duration
		cancelled int
		words     string
	}{
		"sync":                    {false, 5 * time.Second, nil, true, 5 * time.Second, 0, "5s"},
		"async":                   {true, 5 * time.Second, nil, true, 5 * time.Second, 1, "was cancelled at its source"},
		"the source's own":        {true, 5 * time.Second, &own, true, own, 1, "3s"},
		"a source without cancel": {true, 5 * time.Second, nil, false, 5 * time.Second, 0, "no cancel tool"},
		"the source's own: none":  {true, time.Second, new(time.Duration(0)), true, 0, 0, ""},
		"none":                    {false, 0, nil, true, 0, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPlant()
				p.cancels = c.cancels
				s := open(t, newRoot(t), p, func(w *config.WorkflowTools) {
					w.ExecutionTimeout = new(c.general)
					w.Sources = []config.WorkflowSource{{Name: "other"}, {Name: "plant", ExecutionTimeout: c.own}}
				})
				began := time.Now()
				call := s.start(workflow(t, "slow", c.async, script{lasts: 10 * time.Hour}), `{}`)
				if c.want == 0 {
					testkit.Get(call.wait()).Must(t)
					return
				}
				e := call.over(TimedOut, "workflow_timed_out")
				testkit.Equal(t, time.Since(began), c.want, "took")
				testkit.True(t, strings.Contains(e.Message, c.words) && len(p.cancelled) == c.cancelled && p.busy == 0, "%q; cancelled %v, busy %d", e.Message, p.cancelled, p.busy)
				testkit.Equal(t, mustStatus(t, s.Engine, call.id()).State, TimedOut, "status")
			})
		})
	}
}

func TestReq003_7_2_TheTimeoutCountsFromTheSlot(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := open(t, newRoot(t), newPlant(), func(w *config.WorkflowTools) {
			w.MaxConcurrent, w.ExecutionTimeout = 1, new(10*time.Second)
		})
		w := workflow(t, "slow", false, script{lasts: 9 * time.Second})
		for _, c := range []*pending{s.start(w, `1`), s.start(w, `2`), s.start(w, `3`)} {
			testkit.Works(t, testkit.Get(c.wait()).Err())
		}
	})
}

func TestReq003_7_3_and_8_3_ProgressIsLoggedAndTold(t *testing.T) {
	t.Parallel()
	for name, async := range map[string]bool{"notified": false, "polled": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPlant()
				s := open(t, newRoot(t), p, nil)
				half := source.Progress{Value: new(0.5), Total: new(1.0), Message: "half way"}
				c := s.start(workflow(t, "w", async, script{lasts: time.Minute, progress: []source.Progress{half, half}}), `{}`)
				synctest.Wait()
				p.with(func() {
					for _, j := range p.jobs {
						j.told = &half
					}
				})
				time.Sleep(3 * time.Second)
				synctest.Wait()
				r := mustStatus(t, s.Engine, c.id())
				testkit.True(t, r.State == Running && r.Progress != nil && *r.Progress.Value == 0.5 && r.Progress.Message == "half way", "status: %+v", r)
				testkit.True(t, s.log.has("remote run progress", "half way", "progress=0.5", "total=1", c.id()), "not logged: %s", s.log)
				halves := 0
				for _, r := range c.progress() {
					testkit.Equal(t, r.State, Running, "told")
					testkit.Equal(t, r.ExecutionID, c.id(), "told")
					if r.Progress != nil && r.Progress.Message == "half way" {
						halves++
					}
				}
				testkit.Equal(t, halves, 1, "told … times, and it changed once")
				told := len(c.progress())
				testkit.Get(c.wait()).Must(t)
				testkit.Equal(t, len(c.progress()), told, "told of the end by progress")
			})
		})
	}
}

func TestReq003_7_4_AsyncFailure(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := open(t, newRoot(t), newPlant(), nil)
		c := s.start(workflow(t, "w", true, script{lasts: time.Second, answer: source.Answer{State: source.Failed, Error: "row 12 is bad", Output: json.RawMessage(`{"row":12}`)}}), `{}`)
		e := c.over(Failed, "workflow_failed")
		testkit.Contains(t, e.Message, "row 12 is bad")
		testkit.Equal(t, string(e.Details["run"].(*Run).Result), `{"row":12}`)
		c = s.start(workflow(t, "v", true, script{lasts: time.Second, answer: source.Answer{State: source.Cancelled, Error: "by an operator"}}), `{}`)
		testkit.Contains(t, c.over(Cancelled, "workflow_cancelled").Message, "by an operator")
	})
}

func TestReq003_7_5_CancelledByTheCaller(t *testing.T) {
	t.Parallel()
	for name, async := range map[string]bool{"sync": false, "async": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPlant()
				s := open(t, newRoot(t), p, nil)
				c := s.start(workflow(t, "w", async, script{lasts: time.Hour}), `{}`)
				time.Sleep(time.Second)
				c.cancel(ErrCancelled)
				c.over(Cancelled, "workflow_cancelled")
				p.with(func() {
					testkit.Equal(t, p.count(), 0)
					testkit.Equal(t, async, (len(p.cancelled) == 1))
				})
				testkit.Equal(t, mustStatus(t, s.Engine, c.id()).State, Cancelled)
			})
		})
	}
}

func TestReq003_7_5_ACancelThatComesTooLateKeepsTheResult(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p := newPlant()
		p.onCancel = func(string) (*source.Answer, error) {
			return &source.Answer{State: source.Completed, Output: json.RawMessage(`1`)}, nil
		}
		s := open(t, newRoot(t), p, nil)
		c := s.start(workflow(t, "w", true, script{lasts: time.Hour}), `{}`)
		time.Sleep(time.Second)
		c.cancel(ErrCancelled)
		r := testkit.Get(c.wait()).Must(t)
		testkit.True(t, r.State == Completed && string(r.Result) == `1`, "%+v", r)
	})
}

// TestReq003_7_5_ACancelThatComesTooLateHasTheResultFetched: where the answer to
// the cancel says completed, and no more.
func TestReq003_7_5_ACancelThatComesTooLateHasTheResultFetched(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p := newPlant()
		p.onCancel = func(id string) (*source.Answer, error) {
			p.jobs[id].until = time.Now()
			return &source.Answer{State: source.Completed}, nil
		}
		s := open(t, newRoot(t), p, nil)
		c := s.start(workflow(t, "w", true, script{lasts: time.Hour, answer: source.Answer{Output: json.RawMessage(`1`)}}), `{}`)
		time.Sleep(time.Second)
		c.cancel(ErrCancelled)
		r := testkit.Get(c.wait()).Must(t)
		testkit.True(t, r.State == Completed && string(r.Result) == `1`, "%+v", r)
	})
}

func TestReq003_7_5_ACancelIsToldAsTheSourceAnsweredIt(t *testing.T) {
	t.Parallel()
	for want, a := range map[string]source.Answer{
		"still runs there":          {State: source.Running},
		"it failed: it is too late": {State: source.Failed, Error: "it is too late"},
		"was cancelled at its":      {},
	} {
		bubble(t, func(t *testing.T) {
			p := newPlant()
			p.onCancel = func(string) (*source.Answer, error) { return &a, nil }
			s := open(t, newRoot(t), p, nil)
			c := s.start(workflow(t, "w", true, script{lasts: time.Hour}), `{}`)
			time.Sleep(time.Second)
			c.cancel(ErrCancelled)
			testkit.Contains(t, c.over(Cancelled, "workflow_cancelled").Message, want)
		})
	}
}

func TestReq003_7_5_ACancelThatFailsIsLoggedAndTold(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p := newPlant()
		p.onCancel = func(string) (*source.Answer, error) { return nil, errors.New("the handle is stuck") }
		s := open(t, newRoot(t), p, nil)
		c := s.start(workflow(t, "w", true, script{lasts: time.Hour}), `{}`)
		time.Sleep(time.Second)
		c.cancel(ErrCancelled)
		e := c.over(Cancelled, "workflow_cancelled")
		testkit.True(t, strings.Contains(e.Message, "the handle is stuck") && s.log.has("level=WARN", "the handle is stuck"), "%q", e.Message)
	})
}

func TestAVanishedCallersRunGoesOn(t *testing.T) {
	t.Parallel()
	for name, async := range map[string]bool{"sync": false, "async": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPlant()
				s := open(t, newRoot(t), p, nil)
				c := s.start(workflow(t, "w", async, script{lasts: time.Minute, answer: source.Answer{Output: json.RawMessage(`1`)}}), `{}`)
				time.Sleep(time.Second)
				gone := errors.New("the connection broke")
				c.cancel(gone)
				if _, err := c.wait(); !errors.Is(err, gone) || !strings.Contains(err.Error(), c.id()) {
					t.Errorf("err = %v", err)
				}
				testkit.Equal(t, mustStatus(t, s.Engine, c.id()).State, Running)
				time.Sleep(2 * time.Minute)
				r := mustStatus(t, s.Engine, c.id())
				testkit.True(t, r.State == Completed && string(r.Result) == `1` && len(p.cancelled) == 0, "%+v", r)
			})
		})
	}
}

func TestReplyWithinAnswersWhileItRuns(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := open(t, newRoot(t), newPlant(), func(w *config.WorkflowTools) { w.ReplyWithin = new(5 * time.Second) })
		began := time.Now()
		c := s.start(workflow(t, "w", false, script{lasts: time.Minute, answer: source.Answer{Output: json.RawMessage(`1`)}}), `{}`)
		r, err := c.wait()
		if err != nil || r.State != Running || !r.StatusSupported || time.Since(began) != 5*time.Second {
			t.Fatalf("%+v, %v after %v", r, err, time.Since(began))
		}
		time.Sleep(time.Minute)
		testkit.Equal(t, mustStatus(t, s.Engine, r.ExecutionID).State, Completed)
	})
}

func TestSourceAwayAndOtherRefusalsOfExecute(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p := newPlant()
		s := open(t, newRoot(t), p, nil)
		for _, c := range []struct {
			err  error
			code string
			word string
		}{
			{fmt.Errorf("%w: no route", source.ErrAway), "source_away", "no route"},
			{source.ErrUnknown, "source_away", "workflow_tools.sources"},
			{fmt.Errorf("%w: %w", source.ErrAway, source.ErrLost), "workflow_unknown", "not known"},
			{source.ErrUnsupported, "workflow_failed", "execute_tool"},
			{errors.New("a strange thing"), "workflow_failed", "a strange thing"},
		} {
			state := Failed
			if c.code == "workflow_unknown" {
				state = Unknown
			}
			e := s.start(workflow(t, "w", true, script{err: c.err}), `{}`).over(state, c.code)
			testkit.Contains(t, e.Message, c.word)
		}
	})
}

func TestAPanicOfASourceEndsItsRunAlone(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := open(t, newRoot(t), newPlant(), func(w *config.WorkflowTools) { w.MaxConcurrent = 1 })
		e := s.start(workflow(t, "w", false, script{panics: true}), `{}`).over(Unknown, "workflow_unknown")
		testkit.True(t, strings.Contains(e.Message, "cursed") && (s.log.has("panicked", "plant.Execute") || s.log.has("panicked", "Execute")), "%q", e.Message)
		if _, err := s.start(workflow(t, "v", false, script{}), `{}`).wait(); err != nil { // in the slot that was given back
			t.Error(err)
		}
	})
}

func TestBadSettingsRefuseACall(t *testing.T) {
	t.Parallel()
	bad := errors.New("config.yml:3: no")
	s := open(t, newRoot(t), newPlant(), nil)
	s.current = func(context.Context) (*config.Config, error) { return nil, bad }
	if _, err := s.call(t.Context(), "me", workflow(t, "w", false, script{}), nil, nil); !errors.Is(err, bad) || session.CodeOf(err) != "config_invalid" {
		t.Errorf("err = %v", err)
	}
	testkit.Fails(t, testkit.Get(Open(t.Context(), Options{Sources: newPlant(), Settings: s.current})).Err(), "", "opened without a database")
}

func TestARefusedCallHoldsNoSlot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, newRoot(t), newPlant(), func(w *config.WorkflowTools) { w.MaxConcurrent = 1 })
		over, cancel := context.WithCancel(t.Context())
		cancel()
		testkit.FailsWith(t, testkit.Get(s.call(over, "me", workflow(t, "w", false, script{}), nil, nil)).Err(), context.Canceled)
		s.stop()
		wantCode(t, testkit.Get(s.call(t.Context(), "me", workflow(t, "w", false, script{}), nil, nil)).Err(), session.StateError, "shutting_down")
		testkit.Equal(t, s.Stats(), (Stats{}))
	})
}
