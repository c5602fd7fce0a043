package remote

import (
	"encoding/json"
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

func TestReq003_8_1_to_8_4_StatusWhileItRunsAndAfter(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p := newPlant()
		s := open(t, newRoot(t), p, nil)
		c := s.start(workflow(t, "w", true, script{lasts: time.Minute, answer: source.Answer{Output: json.RawMessage(`[1]`)}}), `{}`)
		time.Sleep(time.Second)
		for _, id := range []string{c.id(), strings.ToUpper(c.id()), " " + c.id() + "\n", "x-1"} {
			if r := mustStatus(t, s.Engine, id); r.State != Running || r.ExecutionID != c.id() || *r.SourceExecutionID != "x-1" || r.Result != nil || r.EndedAt != nil {
				t.Errorf("%q: %+v", id, r)
			}
		}
		testkit.Get(c.wait()).Must(t)
		for _, id := range []string{c.id(), "x-1"} {
			if r := mustStatus(t, s.Engine, id); r.State != Completed || string(r.Result) != `[1]` || r.EndedAt == nil {
				t.Errorf("%q: %+v", id, r)
			}
		}
	})
}

func TestReq003_8_5_StatusNotSupported(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]script{
		"no status tool": {lasts: time.Hour},
		"no id":          {accepted: &source.Answer{State: source.Running}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPlant()
				p.statuses = false
				root := newRoot(t)
				s := open(t, root, p, func(w *config.WorkflowTools) { w.MaxConcurrent = 1 })
				c := s.start(workflow(t, "w", true, l), `{}`)
				r, err := c.wait()
				testkit.Need(t, err == nil && r.State == Running && !r.StatusSupported && r.EndedAt == nil, "%+v, %v", r, err)
				for range 2 { // now, and after a restart
					_, err := s.Status(t.Context(), "me", c.id())
					wantCode(t, err, session.StateError, "status_not_supported", "not supported", c.id(), "'plant'")
					refusedAs(t, err, Running, "status_not_supported")
					synctest.Wait()
					if n := s.Stats(); n != (Stats{}) {
						t.Errorf("%+v", n) // what cannot be seen to end holds no slot
					}
					s.stop()
					s = open(t, root, p, nil)
				}
			})
		})
	}
}

func TestStatusIsForWhoStartedIt(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := open(t, newRoot(t), newPlant(), nil)
		c := s.start(workflow(t, "w", true, script{lasts: time.Second}), `{}`)
		c.wait()
		_, err := s.Status(t.Context(), "other", c.id())
		wantCode(t, err, session.StateError, "unknown_run", c.id(), "No execution is known")
		testkit.True(t, !strings.Contains(err.Error(), "(w,"), "%v reveals another's execution", err)
		wantCode(t, testkit.Get(s.Status(t.Context(), "other", "x-1")).Err(), session.ToolError, "invalid_execution_id", "x-1")
	})
}

func TestStatusOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := open(t, newRoot(t), newPlant(), nil)
		wantCode(t, testkit.Get(s.Status(t.Context(), "me", "")).Err(), session.ToolError, "invalid_execution_id", "empty")
		wantCode(t, testkit.Get(s.Status(t.Context(), "me", "0190-nonsense")).Err(), session.ToolError, "invalid_execution_id", "0190-nonsense", "UUID")
		wantCode(t, testkit.Get(s.Status(t.Context(), "me", "019aa000-0000-7000-8000-000000000000")).Err(), session.StateError, "unknown_run", "019aa000")
		for i := range listed + 3 {
			s.start(workflow(t, fmt.Sprint("w", i), false, script{}), `{}`).wait()
			time.Sleep(time.Second)
		}
		_, err := s.Status(t.Context(), "me", "019aa000-0000-7000-8000-000000000000")
		wantCode(t, err, session.StateError, "unknown_run", "(w22, completed)", "(w3, completed)", "and 3 older")
		testkit.True(t, !strings.Contains(err.Error(), "(w2,"), "%v", err)
		wantCode(t, testkit.Get(s.Status(t.Context(), "me", "../../x")).Err(), session.ToolError, "invalid_execution_id")
	})
}

func TestASourcesIdThatIsNotUnique(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := open(t, newRoot(t), newPlant(), nil)
		w := workflow(t, "w", true, script{accepted: &source.Answer{ExecutionID: "17", State: source.Completed}})
		a := s.start(w, `{}`)
		a.wait()
		testkit.Equal(t, mustStatus(t, s.Engine, "17").ExecutionID, a.id())
		b := s.start(w, `{}`)
		b.wait()
		wantCode(t, testkit.Get(s.Status(t.Context(), "me", "17")).Err(), session.ToolError, "ambiguous_execution_id", "2 executions", a.id(), b.id())
	})
}

func TestASourceThatIsAwayIsAskedUntilItIsBack(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p := newPlant()
		s := open(t, newRoot(t), p, func(w *config.WorkflowTools) { w.ExecutionTimeout = new(time.Duration(0)) })
		c := s.start(workflow(t, "w", true, script{lasts: time.Minute}), `{}`)
		synctest.Wait()
		p.with(func() { p.away = fmt.Errorf("%w: it restarts", source.ErrAway) })
		time.Sleep(time.Hour)
		var polls int
		p.with(func() { polls, p.away = p.polls, nil })
		if interval := 2 * time.Second; polls != int(time.Hour/interval) {
			t.Errorf("asked %d times in an hour", polls)
		}
		testkit.True(t, s.log.has("level=WARN", "it restarts", c.id()), "not logged")
		back := time.Now()
		if r, err := c.wait(); err != nil || r.State != Completed || time.Since(back) > 2*time.Second {
			t.Errorf("%+v, %v, %v after it was back", r, err, time.Since(back))
		}
	})
}

func TestASourceThatIsAwayForTooLong(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p := newPlant()
		s := open(t, newRoot(t), p, nil)
		began := time.Now()
		c := s.start(workflow(t, "w", true, script{lasts: time.Minute}), `{}`)
		synctest.Wait()
		p.with(func() { p.away = fmt.Errorf("%w: it burnt down", source.ErrAway) })
		e := c.over(TimedOut, "workflow_timed_out")
		testkit.Equal(t, time.Since(began), 5*time.Minute)
		testkit.Contains(t, e.Message, "it burnt down")
	})
}

func TestASourceThatForgotTheRun(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p := newPlant()
		s := open(t, newRoot(t), p, func(w *config.WorkflowTools) { w.ExecutionTimeout = new(time.Duration(0)) })
		c := s.start(workflow(t, "w", true, script{lasts: time.Hour}), `{}`)
		synctest.Wait()
		p.with(func() { clear(p.jobs) })
		e := c.over(Unknown, "workflow_unknown")
		testkit.Contains(t, e.Message, "no such execution: x-1")
		testkit.Equal(t, p.polls, refusals)
	})
}

// TestASourceThatTellsNoStatus: a run is not to wait for ever, and hold a slot,
// where the answers are no statuses.
func TestASourceThatTellsNoStatus(t *testing.T) {
	t.Parallel()
	for said, a := range map[string]source.Answer{
		"it says nothing":          {},
		`it says "{output: NaN}"`:  {Output: json.RawMessage(`"{output: NaN}"`)},
		"it says who knows":        {Error: "who knows"},
		"it says " + "xxxxxxxxxxx": {Output: json.RawMessage(strings.Repeat("x", 5000))},
	} {
		bubble(t, func(t *testing.T) {
			p := newPlant()
			p.onStatus = func(string) (*source.Answer, error) { return &a, nil }
			s := open(t, newRoot(t), p, func(w *config.WorkflowTools) { w.ExecutionTimeout = new(time.Duration(0)) })
			e := s.start(workflow(t, "w", true, script{lasts: time.Hour}), `{}`).over(Unknown, "workflow_unknown")
			synctest.Wait() // the slot is given back after the caller is told
			if !strings.Contains(e.Message, said) || len(e.Message) > 2000 || p.polls != refusals || s.Stats().Running != 0 {
				t.Errorf("%q after %d polls, %+v", e.Message, p.polls, s.Stats())
			}
		})
	}
}

func TestAStatusOfProgressAloneIsOne(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p := newPlant()
		p.onStatus = func(string) (*source.Answer, error) {
			if p.polls == 20 {
				return &source.Answer{State: source.Completed}, nil
			}
			return &source.Answer{Progress: &source.Progress{Message: "busy"}}, nil
		}
		s := open(t, newRoot(t), p, nil)
		testkit.Equal(t, testkit.Get(s.start(workflow(t, "w", true, script{lasts: time.Hour}), `{}`).wait()).Must(t).State, Completed)
	})
}

// TestASourceWhoseToolsComeOneByOne: after its restart it has its status tool a
// little later; a run that it could be asked about is not given up for that.
func TestASourceWhoseToolsComeOneByOne(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p := newPlant()
		s := open(t, newRoot(t), p, nil)
		c := s.start(workflow(t, "w", true, script{lasts: 10 * time.Second, answer: source.Answer{Output: json.RawMessage(`1`)}}), `{}`)
		time.Sleep(3 * time.Second)
		p.with(func() { p.statuses = false })
		time.Sleep(5 * time.Second)
		p.with(func() { p.statuses = true })
		r := testkit.Get(c.wait()).Must(t)
		testkit.True(t, r.State == Completed && string(r.Result) == `1`, "%+v", r)
	})
}

func TestAPollThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		h := &hanging{plant: newPlant(), hangs: 2}
		s := open(t, newRoot(t), h, nil)
		c := s.start(workflow(t, "w", true, script{lasts: time.Second}), `{}`)
		began := time.Now()
		if _, err := c.wait(); err != nil || time.Since(began) < 2*pollTime || time.Since(began) > 2*pollTime+time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestAResultThatIsNoJSON(t *testing.T) {
	t.Parallel()
	s := open(t, newRoot(t), newPlant(), nil)
	r, err := s.start(workflow(t, "w", false, script{answer: source.Answer{Output: json.RawMessage(`all "is" well`)}}), `{}`).wait()
	testkit.True(t, err == nil && string(r.Result) == `"all \"is\" well"`, "%s, %v", r.Result, err)
}

// TestTheProgressOfARunThatIsOver is what its source said with the end; else how far
// it had come, and of one that is completed none: it is not at the first of two.
func TestTheProgressOfARunThatIsOver(t *testing.T) {
	t.Parallel()
	first, both := &source.Progress{Value: new(0.0), Total: new(2.0)}, &source.Progress{Value: new(2.0), Total: new(2.0)}
	for name, c := range map[string]struct {
		end  source.Answer
		want *source.Progress
	}{
		"completed, as it says": {source.Answer{Progress: both}, both},
		"completed":             {source.Answer{}, nil},
		"failed":                {source.Answer{State: source.Failed}, first},
		"failed, as it says":    {source.Answer{State: source.Failed, Progress: both}, both},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPlant()
				s := open(t, newRoot(t), p, nil)
				call := s.start(workflow(t, "w", true, script{lasts: time.Minute, answer: c.end}), `{}`)
				synctest.Wait()
				p.with(func() { p.jobs["x-1"].told = first })
				time.Sleep(30 * time.Second)
				r := mustStatus(t, s.Engine, call.id())
				testkit.Need(t, r.Progress != nil, "%+v", r)
				call.wait()
				if got := mustStatus(t, s.Engine, call.id()).Progress; (got == nil) != (c.want == nil) || got != nil && !sameProgress(*got, *c.want) {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}
