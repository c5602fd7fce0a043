package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/state"
)

// Each member of a group has an agent of its own, and all run at once.
func TestRunGroupOfEight(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	p := newRunProject(t, "attempts: {max_concurrent: 8}\n", runJob("NAME", "first, ["+strings.Join(names, ", ")+"], last", append(names, "first", "last")...)).inGit()
	var plan []string
	for _, n := range names {
		plan = append(plan, n+" await go", n+" finish")
	}
	p.plan(plan...)
	r := p.begin()
	p.awaits("", 9)
	p.touch("go")
	events := r.exits(0)
	if n := p.most(); n != 8 {
		t.Errorf("%d agents at once, want 8", n)
	}
	if got := p.steps(); !strings.HasPrefix(got, "first ") || !strings.HasSuffix(got, " last") || len(strings.Fields(got)) != 10 {
		t.Errorf("the steps were begun as %s", got)
	}
	if last := events[len(events)-1]; last.Event != "run_ended" || last.State != "complete" || events[0].Event != "run_started" || events[0].Branch == nil {
		t.Errorf("%+v", events)
	}
	for _, x := range p.recorded("begin", "") {
		if x.Mode != "-rw-------" || !strings.HasPrefix(x.Config, state.Of(p.root).Dir) || x.Folder == p.root {
			t.Errorf("%+v", x)
		}
		if strings.Contains(x.Prompt, "Other agents work") != (len(x.Step) == 1) {
			t.Errorf("the step %s was told:\n%s", x.Step, x.Prompt)
		}
	}
	p.clean()
}

func TestRunOneAtATimeInPlace(t *testing.T) {
	p := newRunProject(t, "", runJob("NAME", "[a, b, c]", "a", "b", "c"))
	p.begin("--parallel", "1").exits(0)
	if n := p.most(); n != 1 {
		t.Errorf("%d agents at once", n)
	}
	if _, err := os.Stat(filepath.Join(p.root, "b.md")); err != nil || p.recorded("begin", "b")[0].Folder != p.root {
		t.Errorf("it has not worked in the project, which is not in git: %v", err)
	}
	p.clean()
}

func TestRunInPlaceInGit(t *testing.T) {
	p := newRunProject(t, "", runJob("NAME", "a", "a")).inGit()
	events := p.begin("--in-place").exits(0)
	if _, err := os.Stat(filepath.Join(p.root, "a.md")); err != nil || events[0].Branch != nil {
		t.Error(err, events[0])
	}
	p.clean()
}

// An agent whose review does not pass corrects its text; the run is not troubled.
func TestRunReviewFailsTwice(t *testing.T) {
	p := newRunProject(t, "quality_gate:\n  agent_review_command: reviewer\n", runJob("NAME", "a", "a reviews: [{run_each: text, quality_criteria: {good: \"Is it good?\"}}]"))
	p.plan("a write a.md this one is bad", "a finish", "a write a.md this one is bad, too", "a finish", "a write a.md fine", "a finish")
	p.begin().exits(0)
	said := p.recorded("finished_step", "a")
	if len(said) != 3 || !strings.Contains(said[0].Text, "Write more") || !strings.Contains(said[2].Text, "workflow_complete") || p.steps() != "a" {
		t.Errorf("%s: %+v", p.steps(), said)
	}
	p.clean()
}

// An agent that ends without finishing is sent back in its conversation, then the run stops at the step,
// and goes on there when it is resumed.
func TestRunRetriesThenStopsAndResumes(t *testing.T) {
	p := newRunProject(t, "", runJob("NAME", "a, [b, c], d", "a", "b", "c", "d"))
	talk := `say {"type":"system","subtype":"init","session_id":"CONVERSATION"}`
	p.plan("b:1 "+talk, "b:2 "+talk, "b:3 "+talk, "b:3 exit 3")
	events := p.begin().exits(1)
	if end := events[len(events)-1]; end.State != "stopped" || end.StepID == nil || *end.StepID != "b" || end.Reason == nil || !strings.Contains(*end.Reason, "3 agents ended without finishing it") {
		t.Errorf("%+v", end)
	}
	begun := p.recorded("begin", "b")
	if len(begun) != 3 || len(begun[0].Args) != 0 || fmt.Sprint(begun[1].Args, begun[2].Args) != "[resumed talk-b] [resumed talk-b]" || !strings.Contains(begun[1].Prompt, "is not finished") {
		t.Errorf("%+v", begun)
	}
	if len(p.recorded("begin", "c")) != 1 || len(p.recorded("begin", "d")) != 0 {
		t.Errorf("the steps were begun as %s", p.steps())
	}
	p.clean()
	p.resume().exits(0)
	if got := strings.Fields(p.steps()); len(got) != 7 || got[5] != "b" || got[6] != "d" {
		t.Errorf("the steps were begun as %v", got)
	}
	p.clean()
	p.resume().exits(1) // it is complete
}

func TestRunOneConversation(t *testing.T) {
	p := newRunProject(t, "", runJob("NAME", "a, b, [c, d]", "a", "b", "c", "d"))
	p.plan(`* say {"type":"system","subtype":"init","session_id":"CONVERSATION"}`, "* finish")
	p.begin("--context", "resume").exits(0)
	if b, c := p.recorded("begin", "b")[0], p.recorded("begin", "c")[0]; fmt.Sprint(b.Args) != "[resumed talk-a]" || len(c.Args) > 0 || !strings.Contains(b.Prompt, `"step_id": "b"`) {
		t.Errorf("%+v\n%+v", b, c)
	}
}

// A limit of the provider is waited for, and is no try.
func TestRunWaitsForALimit(t *testing.T) {
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "a", "a"))
	p.plan("a:1 say rate limit reached, try again in 1 second", "a:1 exit 1")
	var ended runEvent
	for _, e := range p.begin().exits(0) {
		if e.Event == "step_ended" && e.Until != nil {
			ended = e
		}
	}
	if ended.Until == nil || len(p.recorded("begin", "a")) != 2 {
		t.Fatalf("%+v, %+v", ended, p.journal())
	}
	until, err := time.Parse(time.RFC3339Nano, *ended.Until)
	again := p.status().Steps[1].StartedAt
	if started, err2 := time.Parse(time.RFC3339Nano, optional(again)); err != nil || err2 != nil || started.Before(until) {
		t.Errorf("an agent was started at %s, and the limit was over at %s", optional(again), *ended.Until)
	}
	p.clean()
}

func TestRunBudgets(t *testing.T) {
	result := `* say {"type":"result","subtype":"success","result":"done","session_id":"s","total_cost_usd":0.4,"num_turns":1}`
	job := runJob("NAME", "a, b, c", "a", "b", "c")
	paused := func(r *runProcess, reason string) {
		t.Helper()
		events := r.exits(3)
		if end := events[len(events)-1]; end.State != "paused" || end.Reason == nil || !strings.Contains(*end.Reason, reason) {
			t.Errorf("%+v", end)
		}
	}
	t.Run("cost", func(t *testing.T) {
		p := newRunProject(t, "", job)
		p.plan("* finish", result)
		paused(p.begin("--max-cost", "0.5"), "0.8 USD")
		if got := p.steps(); got != "a b" {
			t.Error(got)
		}
		paused(p.resume(), "0.8 USD") // it counts the whole run
		events := p.resume("--max-cost", "5").exits(0)
		if cost := events[len(events)-1].CostUSD; cost == nil || *cost < 1.19 || *cost > 1.21 {
			t.Errorf("%+v", events[len(events)-1])
		}
		p.clean()
	})
	t.Run("unknown", func(t *testing.T) {
		p := newRunProject(t, "", job)
		paused(p.begin("--max-unknown", "1"), "cost is unknown")
		if got := p.steps(); got != "a" {
			t.Error(got)
		}
		p.resume("--max-unknown", "9").exits(0)
	})
	t.Run("time", func(t *testing.T) {
		p := newRunProject(t, "", job)
		p.plan("b:1 await never")
		paused(p.begin("--max-time", "5s"), "time")
		p.clean()
		p.resume("--max-time", "5m").exits(0)
		p.clean()
	})
}

// A workflow that an agent starts is done by it, or, when it has ended, by others.
func TestRunNested(t *testing.T) {
	start := ` start {"job_name":"job1","workflow_name":"w","goal":"The inner one"}`
	inner := runJob("NAME", "x, [y, z]", "x outputs: {}", "y outputs: {}", "z outputs: {}")
	t.Run("by the agent", func(t *testing.T) {
		p := newRunProject(t, "", runJob("NAME", "a, b", "a", "b"), inner)
		p.plan("a"+start, "a child x", "a child y", "a child z", "a finish")
		p.begin().exits(0)
		if got := p.steps(); got != "a b" {
			t.Error(got)
		}
		p.clean()
	})
	t.Run("by others", func(t *testing.T) {
		p := newRunProject(t, "run: {retries: 0}\nattempts: {max_concurrent: 1}\n", runJob("NAME", "a, b", "a", "b"), inner)
		p.plan("a:1" + start)
		p.begin().exits(0)
		if got := strings.Fields(p.steps()); len(got) != 6 || got[0] != "a" || got[1] != "x" || got[4] != "a" || got[5] != "b" {
			t.Error(got)
		}
		if again := p.recorded("begin", "a"); !strings.Contains(again[1].Prompt, "is completed") {
			t.Errorf("%+v", again[1])
		}
		p.clean()
	})
}

// A token is for one step, as long as its agent runs.
func TestRunTokens(t *testing.T) {
	p := newRunProject(t, "", runJob("NAME", "a, [b, c], d", "a", "b", "c", "d"))
	p.plan("b touch b", "b await go", "c await b", `c call get_step {"step_id":"b"}`, `c call finished_step {"step_id":"b","outputs":{"text":"a.md"}}`,
		`c call finished_step {"session_id":"00000000","outputs":{"text":"a.md"}}`, `c call start_workflow {"job_name":"job0","workflow_name":"w","goal":"g","parent_session_id":"00000000"}`,
		"c call abort_workflow {}", "c await go", "c finish", "b finish", "d await end", "d finish")
	r := p.begin()
	p.awaits("c", 1)
	testkit.Eventually(t, func() string {
		if n := len(p.recorded("finished_step", "c")); n < 2 {
			return fmt.Sprintf("%d calls", n)
		}
		return ""
	})
	x := p.recorded("begin", "c")[0]
	code := func(method, path, token string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, strings.TrimSuffix(x.URL, "/mcp")+path, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		must(t, err)
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		res, err := (&http.Client{Transport: bearer(token)}).Do(req)
		must(t, err)
		res.Body.Close()
		return res.Status
	}
	for _, call := range [][3]string{{"POST", "/mcp", ""}, {"POST", "/mcp", "dw_wrong"}, {"GET", "/", ""}, {"GET", "/healthz", ""}, {"GET", "/readyz", ""}, {"GET", "/version", ""}, {"GET", "/metrics", ""}, {"GET", "/ui", ""},
		{"GET", "/board", ""}, {"GET", "/login", ""}, {"OPTIONS", "/mcp", ""}, {"GET", "/mcp", p.recorded("begin", "a")[0].Token}, {"POST", "/mcp", p.recorded("begin", "a")[0].Token}} {
		if got := code(call[0], call[1], call[2]); !strings.HasPrefix(got, "401") {
			t.Errorf("%v: %s", call[:2], got)
		}
	}
	p.touch("go")
	p.awaits("d", 1)
	for _, step := range []string{"a", "b", "c"} {
		if _, err := dialStep(t.Context(), x.URL, p.recorded("begin", step)[0].Token); err == nil {
			t.Errorf("the token of the step %s is accepted after the end of its agent", step)
		}
	}
	p.touch("end")
	r.exits(0)
	answers := map[string]string{"get_step": "'b' is another one", "start_workflow": "'00000000' is another one", "abort_workflow": "unknown tool"}
	for _, s := range p.journal() {
		if want := answers[s.Event]; want != "" && s.Step == "c" && !strings.Contains(s.Text, want) {
			t.Errorf("%s said %s, want %s", s.Event, s.Text, want)
		}
	}
	if said := p.recorded("finished_step", "c"); len(said) != 3 || !strings.Contains(said[0].Text, "'b' is another one") || !strings.Contains(said[1].Text, "'00000000' is another one") {
		t.Errorf("%+v", said)
	}
	p.clean()
}

// The leader is killed: its agents end, and the step goes on with another.
func TestRunLeaderKilled(t *testing.T) {
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "a, [b, c], d", "a", "b", "c", "d"))
	p.plan("b:1 await never", "c:1 await never")
	r := p.begin()
	p.awaits("b", 1)
	p.awaits("c", 1)
	must(t, r.cmd.Process.Kill())
	_ = r.cmd.Wait()
	p.resume().exits(0)
	if got := strings.Fields(p.steps()); len(got) != 6 || got[5] != "d" {
		t.Error(got)
	}
	p.clean()
}

// An agent is killed with its shim: it is a try.
func TestRunShimKilled(t *testing.T) {
	p := newRunProject(t, "run: {retries: 1}\n", runJob("NAME", "a", "a"))
	p.plan("a:1 await never")
	r := p.begin()
	pid := p.awaits("a", 1)[0].PID
	_, shim := processOf(pid)
	must(t, syscall.Kill(shim, syscall.SIGKILL))
	r.exits(0)
	p.clean()
}

func TestRunStoppedAndInterrupted(t *testing.T) {
	p := newRunProject(t, "", runJob("NAME", "a, b", "a", "b"))
	p.plan("b:1 await never", "b:2 await never")
	r := p.begin()
	p.awaits("b", 1)
	p.start("stop", "latest").exits(0)
	events := r.exits(1)
	if end := events[len(events)-1]; end.State != "stopped" {
		t.Errorf("%+v", end)
	}
	p.clean()
	r = p.resume()
	p.awaits("b", 2)
	must(t, r.cmd.Process.Signal(os.Interrupt))
	events = r.exits(130)
	if end := events[len(events)-1]; end.State != "interrupted" || p.status().State != "interrupted" {
		t.Errorf("%+v", end)
	}
	p.clean()
	p.resume().exits(0)
}

// A server of the project leads a run on whose process is gone.
func TestRunTakenOverByAServer(t *testing.T) {
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "a, b", "a", "b"))
	p.plan("a:1 await never")
	r := p.begin()
	p.awaits("a", 1)
	startClient(t, p.root)
	startClient(t, p.root)
	must(t, r.cmd.Process.Kill())
	_ = r.cmd.Wait()
	testkit.Eventually(t, func() string {
		if now := p.status(); now.State != "complete" {
			return now.State + " " + optional(now.Reason)
		}
		return ""
	})
	if got := p.steps(); got != "a a b" {
		t.Error(got)
	}
}

func TestRunExecutors(t *testing.T) {
	p := newRunProject(t, "", runJob("NAME", "a, b", "a", "b executor: OTHER"))
	p.begin().exits(0)
	if b := p.recorded("begin", "b"); len(b) != 1 || fmt.Sprint(b[0].Args) != "[other]" || len(p.recorded("begin", "a")[0].Args) > 0 {
		t.Errorf("%+v", b)
	}
	for what, args := range map[string][]string{
		"NOBODY":       {"job0/w", "--goal", "g", "--executor", "NOBODY"},
		"run.executor": {"job0/w", "--goal", "g"},
		"'none'":       {"job0/none", "--goal", "g", "--executor", "STEPPER"},
	} {
		r := p.start(args...)
		if r.exits(1); !strings.Contains(r.err.String(), what) {
			t.Errorf("%v: %s", args, &r.err)
		}
	}
	q := newRunProject(t, "", runJob("NAME", "a, b", "a", "b executor: NOBODY"))
	events := q.begin().exits(1)
	if end := events[len(events)-1]; end.StepID == nil || *end.StepID != "b" || end.Reason == nil || !strings.Contains(*end.Reason, "NOBODY") {
		t.Errorf("%+v", end)
	}
}
