package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/source"
	"deepwork/session"
	"deepwork/session/store"
)

func TestRunsWaitForASlotInOrder(t *testing.T) {
	bubble(t, func(w *config.WorkflowTools) { w.MaxConcurrent = 2 }, func(t *testing.T, p *plant, s *server) {
		w := workflow(t, "w", true, script{lasts: 10 * time.Second})
		var calls []*pending
		var want []string
		for i := range 7 {
			calls = append(calls, s.start(w, fmt.Sprint(i)))
			want = append(want, fmt.Sprint(i))
			time.Sleep(300 * time.Millisecond) // so that no two end at once
		}
		testkit.Equal(t, s.Stats(), (Stats{Running: 2, Waiting: 5}))
		for i, c := range calls {
			r := s.is(c.id(), Running, "")
			testkit.Equal(t, r.Progress != nil && r.Progress.Message == "waiting for a slot", i >= 2, "run %d waits", i)
		}

		for i, c := range calls {
			c.ends()
			told := c.progress()
			testkit.True(t, i < 2 || told[0].Progress != nil && told[len(told)-1].Progress == nil,
				"run %d was told %+v", i, told)
		}
		testkit.Equal(t, p.most, 2)
		testkit.Same(t, p.inputs, want)
	})
}

// TestAWaitingRun can be cancelled. That one began is stored before its source is asked, since that it waits
// means that nothing was started.
func TestAWaitingRun(t *testing.T) {
	bubble(t, oneSlot, func(t *testing.T, p *plant, s *server) {
		w := workflow(t, "w", false, script{lasts: time.Minute})
		first := s.start(w, `1`)
		second, third := s.start(w, `2`), s.start(w, `3`)
		second.cancelled()
		testkit.Equal(t, stored(t, s, third.id()).State, store.RemoteWaiting, "while it waits")

		first.ends()
		synctest.Wait()
		testkit.Equal(t, stored(t, s, third.id()).State, store.RemoteStarting, "while its source is asked")
		third.ends()
		testkit.Same(t, p.inputs, []string{"1", "3"}, "the source")
	})
}

func TestAnEditOfTheLimitTakesEffect(t *testing.T) {
	bubble(t, oneSlot, func(t *testing.T, p *plant, s *server) {
		w := workflow(t, "w", true, script{lasts: time.Hour})
		var calls []*pending
		for i := range 4 {
			calls = append(calls, s.start(w, fmt.Sprint(i)))
		}
		s.configure(func(w *config.WorkflowTools) { w.MaxConcurrent = 3 })
		s.status(calls[0].id())
		synctest.Wait()
		testkit.Equal(t, s.Stats(), Stats{Running: 3, Waiting: 1})

		s.configure(oneSlot)
		calls = append(calls, s.start(w, "4"))
		calls[1].cancelled()
		synctest.Wait()
		testkit.Equal(t, s.Stats(), Stats{Running: 2, Waiting: 2})

		for _, c := range calls {
			c.cancel(ErrCancelled)
			c.wait()
		}
	})
}

func TestTooManyWait(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *plant, s *server) {
		x := new(store.RemoteRun)
		const limit = 10 // as configured by default
		for i := range limit + maxWaiting {
			ticket, ok := s.slots.enter(limit, x)
			testkit.Need(t, (ticket == nil) == (i < limit) && ok, "run %d: waits: %v, taken: %v", i, ticket != nil, ok)
		}

		s.refuses(workflow(t, "w", true, script{}), "too_many_runs", "1000", "max_concurrent_executions")
		testkit.True(t, !s.Going(), "a refused call is kept")
	})
}

func TestSlotsAndATicketThatComesAsItsHolderLeaves(t *testing.T) {
	var s slots
	x := new(store.RemoteRun)
	s.enter(1, x)
	first, _ := s.enter(1, x)
	second, _ := s.enter(1, x)
	s.leave(nil, x)
	<-first
	s.leave(first, x) // which has become a slot
	<-second
	s.leave(nil, x)
	used, waiting := s.count()
	testkit.True(t, used == 0 && waiting == 0, "%d used, %d wait", used, waiting)
}

// TestFigure003_200RunsAtOnceWith10Slots shows a promised figure.
func TestFigure003_200RunsAtOnceWith10Slots(t *testing.T) {
	bubble(t, func(w *config.WorkflowTools) { w.MaxConcurrent = 10 }, func(t *testing.T, p *plant, s *server) {
		w := workflow(t, "w", true, script{lasts: 3 * time.Second})
		var calls []*pending
		for i := range 200 {
			calls = append(calls, s.start(w, fmt.Sprint(i)))
		}
		for _, c := range calls {
			testkit.Equal(t, c.ends().State, Completed)
		}
		testkit.True(t, p.most == 10 && p.started["w"] == 200, "%d at once, %d started", p.most, p.started["w"])

		synctest.Wait()
		testkit.Equal(t, s.Stats(), (Stats{}))
	})
}

// TestWhoMayHaveHadItDoneIsToldToLookFirst: nothing is called again that may have been carried out, and what
// was certainly not is not looked for.
func TestWhoMayHaveHadItDoneIsToldToLookFirst(t *testing.T) {
	running := func(string) (*source.Answer, error) { return &source.Answer{State: source.Running}, nil }
	failing := func(string) (*source.Answer, error) {
		return &source.Answer{State: source.Failed, Error: "too late"}, nil
	}

	type told struct {
		does   script
		async  bool
		limit  time.Duration
		change func(*plant)
		cancel bool // by its caller
		stop   bool // the server
		state  State
		code   string
		look   bool
		says   string
	}
	bubbles(t, map[string]told{
		"its source refused it": {script{err: &source.RefusedError{Text: "no ink"}}, false, 0, nil, false, false,
			Failed, "workflow_failed", false, "failed: no ink. Correct that and call again"},
		"an answer that is null": {script{err: &source.RefusedError{
			Text:    "its answer is not what MCP asks of a tool's: it is null; expected an object",
			Garbled: true,
		}}, false, 0, nil, false, false, Failed, "workflow_failed", true, "it is null"},
		"neither a status nor an id": {script{accepted: &source.Answer{}}, true, 0, nil, false, false, Failed,
			"workflow_failed", true, "executionType: sync"},
		"a source that is gone": {script{err: source.ErrUnknown}, true, 0, nil, false, false, Failed,
			"source_away", false, "workflow_tools.sources"},
		"no tool to execute": {script{err: source.ErrUnsupported}, true, 0, nil, false, false, Failed,
			"workflow_failed", false, "execute_tool"},
		"another error": {script{err: errors.New("odd")}, false, 0, nil, false, false, Failed,
			"workflow_failed", true, "odd"},
		"nothing was sent": {script{err: source.ErrAway}, false, 0, nil, false, false, Failed, "source_away",
			false, "Call again when the source can be reached"},
		"the connection was lost": {script{err: fmt.Errorf("%w: %w", source.ErrAway, source.ErrLost)}, false, 0,
			nil, false, false, Unknown, "workflow_unknown", true, "not known"},
		"a sync one in time out": {script{lasts: time.Hour}, false, time.Minute, nil, false, false, TimedOut,
			"workflow_timed_out", true, "raise workflow_tools.execution_timeout in"},
		"it was cancelled in time": {script{lasts: time.Hour}, true, time.Minute, nil, false, false, TimedOut,
			"workflow_timed_out", false, "raise workflow_tools.execution_timeout in"},
		"it cannot be cancelled": {script{lasts: time.Hour}, true, time.Minute, func(p *plant) {
			p.cancels = false
		}, false, false, TimedOut, "workflow_timed_out", true, "no cancel tool"},
		"it still runs": {script{lasts: time.Hour}, true, time.Minute, func(p *plant) {
			p.onCancel = running
		}, false, false, TimedOut, "workflow_timed_out", true, "still runs there"},
		"it failed to be cancelled": {script{lasts: time.Hour}, true, 0, func(p *plant) {
			p.onCancel = failing
		}, true, false, Cancelled, "workflow_cancelled", true, "too late"},
		"cancelling is broken": {script{lasts: time.Hour}, true, 0, func(p *plant) {
			p.onCancel = func(string) (*source.Answer, error) { return nil, errors.New("odd") }
		}, true, false, Cancelled, "workflow_cancelled", true, "odd"},
		"its caller cancelled it": {script{lasts: time.Hour}, true, 0, nil, true, false, Cancelled,
			"workflow_cancelled", false, "Call again if it is still needed"},
		"a sync one is cancelled": {script{lasts: time.Hour}, false, 0, nil, true, false, Cancelled,
			"workflow_cancelled", true, "was told that the request is cancelled"},
		"a sync one as the end comes": {script{lasts: time.Hour}, false, 0, nil, false, true, Unknown, "shutting_down",
			true, "not known"},
	}, func(t *testing.T, c told, p *plant, open opener) {
		if c.change != nil {
			c.change(p)
		}
		s := open(func(w *config.WorkflowTools) { w.ExecutionTimeout = &c.limit })
		call := s.does(c.async, c.does)
		synctest.Wait()
		if c.cancel {
			call.cancel(ErrCancelled)
		}
		if c.stop {
			s.stop()
		}
		err := call.over(c.state, c.code)
		testkit.Contains(t, err.Error(), c.says)
		testkit.Equal(t, strings.Contains(err.Error(), seeFirst), c.look, "it is told to look first: %v", err)
		if !c.stop { // and who asks later is
			_, later := s.Outcome(t.Context(), "me", call.id())
			testkit.Equal(t, strings.Contains(later.Error(), seeFirst), c.look, "later: %v", later)
		}
		again := strings.Contains(err.Error(), "and call again") || strings.Contains(err.Error(), "Call again")
		testkit.True(t, !again || !c.look, "it is told to call again: %v", err)
	})
}

// TestReq003_2_2_ACallThroughTheCatalog runs a workflow of an MCP server through the real catalog. Nothing
// is started by a call whose arguments do not fit, or whose source is away (2.5, 5.4).
func TestReq003_2_2_ACallThroughTheCatalog(t *testing.T) {
	t.Parallel()
	server := mcp.NewServer(&mcp.Implementation{Name: "system", Version: "1"}, nil)
	answers := map[string]string{
		"workflows-list-tool": `[{"id":"w-add","name":"add","description":"adds","executionType":"sync",` +
			`"inputSchema":{"type":"object","properties":{"a":{"type":"number"}},"required":["a"]}}]`,
		"workflows-execute-tool": `{"sum": 3}`,
	}
	for name, answer := range answers {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: answer}}}, nil
			})
	}
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server {
		return server
	}, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(web.Close)
	cfg := config.Default()
	cfg.WorkflowTools.Sources = []config.WorkflowSource{{
		Name:        "system",
		URL:         web.URL,
		ListTool:    "workflows-list-tool",
		ExecuteTool: "workflows-execute-tool",
	}}

	root := testkit.Dir(t)
	c := source.Open(source.Options{
		Root:     root,
		Version:  "test",
		Settings: func(context.Context) (*config.Config, error) { return cfg, nil },
	})
	t.Cleanup(func() { testkit.Must(t, c.Close(context.Background())) })
	s := open(t, root, c, nil)
	testkit.Until(t, "the tool", func() bool { return c.Snapshot().Tool("add") != nil })

	add := c.Snapshot().Tool("add")
	testkit.Must(t, s.disk.Open(t.Context()))
	testkit.Same(t, testkit.Get(Inspect(t.Context(), s.disk)).Must(t).Counts, nil, "without runs")

	call := func(w *source.Tool, arguments string) (*Run, error) {
		return s.Call(t.Context(), "me", w, json.RawMessage(arguments), nil)
	}
	r := testkit.Get(call(add, `{"a":1}`)).Must(t)
	testkit.Equal(t, string(r.Result), `{"sum": 3}`)
	testkit.Equal(t, r.State, Completed)
	testkit.Equal(t, r.Source, "system")
	testkit.Equal(t, r.WorkflowID, "w-add")

	for _, arguments := range []string{``, `{"a":"one"}`} {
		wantCode(t, testkit.Get(call(add, arguments)).Err(), session.ToolError, "invalid_arguments", "'add'", "a")
	}
	away := *add
	away.Away = "it is being moved"
	wantCode(t, testkit.Get(call(&away, `{"a":1}`)).Err(), session.StateError, "source_away", "it is being moved",
		"'system'")
	_, total, err := s.Newest(t.Context(), "me", 1)
	testkit.True(t, total == 1 && err == nil, "%d runs, want 1; %v", total, err)
	testkit.Same(t, testkit.Get(Inspect(t.Context(), s.disk)).Must(t).Counts,
		[]session.Count{{N: 1, What: "remote run", Of: "0 going on"}})
}

func TestReq003_8_1_to_8_4_StatusWhileItRunsAndAfter(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *plant, s *server) {
		c := s.does(true, script{lasts: time.Minute, answer: output(`[1]`)})
		time.Sleep(time.Second)
		for _, id := range []string{c.id(), strings.ToUpper(c.id()), " " + c.id() + "\n", "x-1"} {
			r := s.is(id, Running, "")
			testkit.Equal(t, r.ExecutionID, c.id())
			testkit.Equal(t, *r.SourceExecutionID, "x-1")
			testkit.True(t, r.EndedAt == nil, "%q: %+v", id, r)
		}

		c.ends()
		for _, id := range []string{c.id(), "x-1"} {
			testkit.True(t, s.is(id, Completed, `[1]`).EndedAt != nil, "%q has no end", id)
		}
	})
}

func TestReq003_8_5_StatusNotSupported(t *testing.T) {
	bubbles(t, map[string]script{
		"no status tool": {lasts: time.Hour},
		"no id":          {accepted: &source.Answer{State: source.Running}},
	}, func(
		t *testing.T, l script, p *plant, open opener,
	) {
		p.statuses = false
		s := open(oneSlot)
		c := s.does(true, l)
		r := c.ends()
		testkit.Need(t, r.State == Running, "%+v", r)
		testkit.Need(t, !r.StatusSupported, "%+v", r)
		testkit.Need(t, r.EndedAt == nil, "%+v", r)

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
		for _, why := range []error{source.ErrAway, source.ErrUnknown} {
			c := s.does(true, script{lasts: time.Minute})
			synctest.Wait()
			p.with(func() { p.away, p.polls = fmt.Errorf("%w: it restarts", why), 0 })
			time.Sleep(time.Hour)
			p.with(func() {
				testkit.Equal(t, p.polls, int(time.Hour/(2*time.Second)), "asked in an hour")
				p.away = nil
			})
			testkit.True(t, s.log.has("level=WARN", "it restarts", c.id()), "not logged")

			back := time.Now()
			r := c.ends()
			testkit.True(t, r.State == Completed && time.Since(back) <= 2*time.Second, "%+v, %v after it was back", r,
				time.Since(back))
		}

		s.configure(nil) // it is away for longer than a run may take
		began := time.Now()
		c := s.does(true, script{lasts: time.Minute})
		synctest.Wait()
		p.with(func() { p.away = fmt.Errorf("%w: it burnt down", source.ErrAway) })
		testkit.Contains(t, c.over(TimedOut, "workflow_timed_out").Error(), "it burnt down")
		testkit.Equal(t, time.Since(began), 5*time.Minute)
	})
}

// TestASourceThatTellsNoStatus: a run is not to wait for ever, and hold a slot, where the answers are no
// statuses, or it is forgotten.
func TestASourceThatTellsNoStatus(t *testing.T) {
	type says struct {
		answer source.Answer
		err    error
		said   string
	}
	bubbles(t, map[string]says{
		"nothing":  {source.Answer{}, nil, "it says nothing"},
		"NaN":      {output(`"{output: NaN}"`), nil, `it says "{output: NaN}"`},
		"an error": {source.Answer{Error: "who knows"}, nil, "it says who knows"},
		"much":     {output(strings.Repeat("x", 5000)), nil, "it says xxxxxxxxxxx"},
		"garbage": {source.Answer{},
			fmt.Errorf("%w: %w: %w: NaN", source.ErrAway, source.ErrLost, source.ErrUnreadable), "cannot be read: NaN"},
		"forgotten": {source.Answer{}, &source.RefusedError{Text: "no such execution: x-1"}, "no such execution: x-1"},
	}, func(t *testing.T, c says, p *plant, open opener) {
		p.onStatus = func(string) (*source.Answer, error) { return &c.answer, c.err }
		s := open(forEver)
		e := s.does(true, script{lasts: time.Hour}).over(Unknown, "workflow_unknown")
		synctest.Wait() // the slot is given back after the caller is told
		testkit.Contains(t, e.Error(), c.said, "%q after %d polls, %+v", e.Error(), p.polls, s.Stats())
		testkit.Need(t, len(e.Error()) <= 2000, "%q after %d polls, %+v", e.Error(), p.polls, s.Stats())
		testkit.Equal(t, p.polls, refusals, "%q after %d polls, %+v", e.Error(), p.polls, s.Stats())
		testkit.Equal(t, s.Stats().Running, 0, "%q after %d polls, %+v", e.Error(), p.polls, s.Stats())
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
			switch {
			case p.polls == 20:
				return &source.Answer{State: source.Completed}, nil
			case p.polls > 10: // a person has answered
				return &source.Answer{State: source.Running}, nil
			}
			return &source.Answer{Progress: &source.Progress{Message: "busy", Asks: "Which city?"}}, nil
		}

		c = s.does(true, script{lasts: time.Hour})
		for _, asks := range []string{"Which city?", ""} {
			time.Sleep(37 * time.Second / 2) // ten polls each
			testkit.Equal(t, s.status(c.id()).Progress.Asks, asks)
			testkit.Equal(t, len(testkit.Get(s.runs.Asking(t.Context())).Must(t)), len(asks)/11,
				"runs that ask, for other servers")
		}
		testkit.Equal(t, c.ends().State, Completed)
	})
}

// TestASourceThatStartsAgainIsGivenTime: also by a server that has not asked it before, or that asks often.
func TestASourceThatStartsAgainIsGivenTime(t *testing.T) {
	bubbles(t, map[string]time.Duration{"often": 10 * time.Millisecond, "as usual": 2 * time.Second},
		func(t *testing.T, interval time.Duration, p *plant, open opener) {
			s := open(func(w *config.WorkflowTools) { w.StatusInterval = interval })
			id := s.start(workflow(t, "w", true, script{lasts: 10 * time.Second, answer: output(`1`)}), `{}`).id()
			time.Sleep(time.Second)
			p.with(func() { p.statuses = false })
			s = s.restart()
			time.Sleep(5 * time.Second)
			p.with(func() { p.statuses = true })
			time.Sleep(time.Minute)
			s.is(id, Completed, `1`)
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
	first := &source.Progress{Value: new(0.0), Total: new(2.0)}
	both := &source.Progress{Value: new(2.0), Total: new(2.0)}
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
