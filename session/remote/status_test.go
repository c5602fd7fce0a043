package remote

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/source"
	"deepwork/session"
)

func TestReq003_8_1_to_8_4_StatusWhileItRunsAndAfter(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *plant, s *server) {
		c := s.does(true, script{lasts: time.Minute, answer: output(`[1]`)})
		time.Sleep(time.Second)
		for _, id := range []string{c.id(), strings.ToUpper(c.id()), " " + c.id() + "\n", "x-1"} {
			r := s.is(id, Running, "")
			testkit.True(t, r.ExecutionID == c.id() && *r.SourceExecutionID == "x-1" && r.EndedAt == nil, "%q: %+v", id, r)
		}
		c.ends()
		for _, id := range []string{c.id(), "x-1"} {
			testkit.True(t, s.is(id, Completed, `[1]`).EndedAt != nil, "%q has no end", id)
		}
	})
}

func TestReq003_8_5_StatusNotSupported(t *testing.T) {
	bubbles(t, map[string]script{"no status tool": {lasts: time.Hour}, "no id": {accepted: &source.Answer{State: source.Running}}}, func(t *testing.T, l script, p *plant, open opener) {
		p.statuses = false
		s := open(oneSlot)
		c := s.does(true, l)
		r := c.ends()
		testkit.Need(t, r.State == Running && !r.StatusSupported && r.EndedAt == nil, "%+v", r)
		for range 2 { // now, and after a restart
			_, err := s.Status(t.Context(), "me", c.id())
			wantCode(t, err, session.StateError, "status_not_supported", "not supported", c.id(), "'plant'")
			refusedAs(t, err, Running, "status_not_supported")
			synctest.Wait()
			testkit.Equal(t, s.Stats(), (Stats{})) // what cannot be seen to end holds no slot
			s = s.restart()
		}
	})
}

func TestStatusOfWhatIsNotThereOrOfAnother(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *plant, s *server) {
		const unknown = "019aa000-0000-7000-8000-000000000000"
		s.noStatus("me", "", session.ToolError, "invalid_execution_id", "empty")
		s.noStatus("me", "0190-nonsense", session.ToolError, "invalid_execution_id", "0190-nonsense", "UUID")
		s.noStatus("me", "../../x", session.ToolError, "invalid_execution_id")
		s.noStatus("me", unknown, session.StateError, "unknown_run", "019aa000")
		for i := range listed + 3 {
			s.start(workflow(t, fmt.Sprint("w", i), i == 0, script{}), `{}`).wait()
			time.Sleep(time.Second)
		}
		_, err := s.Status(t.Context(), "me", unknown)
		wantCode(t, err, session.StateError, "unknown_run", "(w22, completed)", "(w3, completed)", "and 3 older")
		testkit.True(t, !strings.Contains(err.Error(), "(w2,"), "%v", err)
		others := s.status("x-1").ExecutionID
		_, err = s.Status(t.Context(), "other", others)
		wantCode(t, err, session.StateError, "unknown_run", others, "No execution is known")
		testkit.True(t, !strings.Contains(err.Error(), "(w"), "%v reveals another's execution", err)
		s.noStatus("other", "x-1", session.ToolError, "invalid_execution_id", "x-1")
	})
}

func TestASourcesIdThatIsNotUnique(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *plant, s *server) {
		same := script{accepted: &source.Answer{ExecutionID: "17", State: source.Completed}}
		a := s.does(true, same)
		a.wait()
		testkit.Equal(t, s.status("17").ExecutionID, a.id())
		b := s.does(true, same)
		b.wait()
		s.noStatus("me", "17", session.ToolError, "ambiguous_execution_id", "2 executions", a.id(), b.id())
	})
}

func TestASourceThatIsAwayIsAskedUntilItIsBack(t *testing.T) {
	bubble(t, forEver, func(t *testing.T, p *plant, s *server) {
		c := s.does(true, script{lasts: time.Minute})
		synctest.Wait()
		p.with(func() { p.away = fmt.Errorf("%w: it restarts", source.ErrAway) })
		time.Sleep(time.Hour)
		p.with(func() {
			testkit.Equal(t, p.polls, int(time.Hour/(2*time.Second)), "asked in an hour")
			p.away = nil
		})
		testkit.True(t, s.log.has("level=WARN", "it restarts", c.id()), "not logged")
		back := time.Now()
		r := c.ends()
		testkit.True(t, r.State == Completed && time.Since(back) <= 2*time.Second, "%+v, %v after it was back", r, time.Since(back))
	})
}

func TestASourceThatIsAwayForTooLong(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *plant, s *server) {
		began := time.Now()
		c := s.does(true, script{lasts: time.Minute})
		synctest.Wait()
		p.with(func() { p.away = fmt.Errorf("%w: it burnt down", source.ErrAway) })
		testkit.Contains(t, c.over(TimedOut, "workflow_timed_out").Message, "it burnt down")
		testkit.Equal(t, time.Since(began), 5*time.Minute)
	})
}

// TestASourceThatTellsNoStatus: a run is not to wait for ever, and hold a slot,
// where the answers are no statuses, or it is forgotten.
func TestASourceThatTellsNoStatus(t *testing.T) {
	type says struct {
		answer source.Answer
		err    error
		said   string
	}
	bubbles(t, map[string]says{
		"nothing":   {source.Answer{}, nil, "it says nothing"},
		"NaN":       {output(`"{output: NaN}"`), nil, `it says "{output: NaN}"`},
		"an error":  {source.Answer{Error: "who knows"}, nil, "it says who knows"},
		"much":      {output(strings.Repeat("x", 5000)), nil, "it says xxxxxxxxxxx"},
		"forgotten": {source.Answer{}, &source.RefusedError{Text: "no such execution: x-1"}, "no such execution: x-1"},
	}, func(t *testing.T, c says, p *plant, open opener) {
		p.onStatus = func(string) (*source.Answer, error) { return &c.answer, c.err }
		s := open(forEver)
		e := s.does(true, script{lasts: time.Hour}).over(Unknown, "workflow_unknown")
		synctest.Wait() // the slot is given back after the caller is told
		testkit.Contains(t, e.Message, c.said)
		testkit.True(t, len(e.Message) <= 2000 && p.polls == refusals && s.Stats().Running == 0, "%q after %d polls, %+v", e.Message, p.polls, s.Stats())
	})
}

// TestASourceThatTellsLittle: a status of progress alone is one. After its restart a source has its status tool a
// little later; a run that it could be asked about is not given up for that.
func TestASourceThatTellsLittle(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *plant, s *server) {
		c := s.does(true, script{lasts: 10 * time.Second, answer: output(`1`)})
		time.Sleep(3 * time.Second)
		p.with(func() { p.statuses = false })
		time.Sleep(5 * time.Second)
		p.with(func() { p.statuses = true })
		r := c.ends()
		testkit.True(t, r.State == Completed && string(r.Result) == `1`, "%+v", r)
		p.polls = 0
		p.onStatus = func(string) (*source.Answer, error) {
			if p.polls == 20 {
				return &source.Answer{State: source.Completed}, nil
			}
			return &source.Answer{Progress: &source.Progress{Message: "busy"}}, nil
		}
		testkit.Equal(t, s.does(true, script{lasts: time.Hour}).ends().State, Completed)
	})
}

func TestAPollThatHangsIsGivenUp(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *plant, s *server) {
		p.hangs = 2
		began := time.Now()
		s.does(true, script{lasts: time.Second}).ends()
		took := time.Since(began)
		testkit.True(t, took >= 2*pollTime && took <= 2*pollTime+time.Minute, "after %v", took)
	})
}

// TestTheProgressOfARunThatIsOver is what its source said with the end; else how far
// it had come, and of one that is completed none: it is not at the first of two.
func TestTheProgressOfARunThatIsOver(t *testing.T) {
	first, both := &source.Progress{Value: new(0.0), Total: new(2.0)}, &source.Progress{Value: new(2.0), Total: new(2.0)}
	type over struct {
		end  source.Answer
		want *source.Progress
	}
	bubbles(t, map[string]over{
		"completed, as it says": {source.Answer{Progress: both}, both},
		"completed":             {source.Answer{}, nil},
		"failed":                {source.Answer{State: source.Failed}, first},
		"failed, as it says":    {source.Answer{State: source.Failed, Progress: both}, both},
	}, func(t *testing.T, c over, p *plant, open opener) {
		s := open(nil)
		call := s.does(true, script{lasts: time.Minute, answer: c.end})
		synctest.Wait()
		p.with(func() { p.jobs["x-1"].told = first })
		time.Sleep(30 * time.Second)
		testkit.True(t, s.status(call.id()).Progress != nil, "it has no progress while it runs")
		call.wait()
		testkit.Same(t, s.status(call.id()).Progress, c.want)
	})
}
