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

func TestRunTwoAtATimeInPlaceInGit(t *testing.T) {
	p := newRunProject(t, "", runJob("NAME", "[a, b, c, d]", "a", "b", "c", "d")).inGit()
	p.plan("a await b", "a finish", "b touch b", "b await d", "b finish", "c finish", "d touch d", "d finish") // b runs until d has begun
	events := p.begin("--in-place", "--parallel", "2").exits(0)
	if n := p.most(); n != 2 {
		t.Errorf("%d agents at once", n)
	}
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

// An agent that ends after a failed review is told in its conversation what the review said, and another agent
// in its first message.
func TestRunReviewFailsAndItsAgentEnds(t *testing.T) {
	reviewed := " reviews: [{run_each: text, quality_criteria: {good: \"Is it good?\"}}]"
	p := newRunProject(t, "quality_gate:\n  agent_review_command: reviewer\n", runJob("NAME", "[a, b]", "a"+reviewed, "b executor: OTHER,"+reviewed))
	p.plan(`* say {"type":"system","subtype":"init","session_id":"CONVERSATION"}`, "a:1 write a.md this one is bad", "b:1 write b.md this one is bad", "a:2 write a.md fine", "b:2 write b.md fine", "* finish")
	p.begin().exits(0)
	a, b := p.recorded("begin", "a"), p.recorded("begin", "b")
	if len(a) != 2 || fmt.Sprint(a[1].Args) != "[resumed talk-a]" || !strings.Contains(a[1].Prompt, "its last review did not pass.\n\nWrite more.\nMuch more.\n") {
		t.Errorf("%+v", a)
	}
	if len(b) != 2 || !strings.HasPrefix(b[1].Prompt, "# Goal") || !strings.Contains(b[1].Prompt, "Write more.\nMuch more.\n") {
		t.Errorf("%+v", b)
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
	t.Run("beside another agent", func(t *testing.T) {
		p := newRunProject(t, "", runJob("NAME", "[a, b], c", "a", "b", "c"))
		p.plan(`b say {"type":"system","subtype":"init","session_id":"CONVERSATION"}`, "b touch b", "b:1 await never", "b finish", "a await b", "a finish", "a"+strings.TrimPrefix(result, "*"))
		paused(p.begin("--max-cost", "0.4"), "0.4 USD")
		if now := p.status().Steps; now[1].StepID != "b" || now[1].State != "stopped" {
			t.Errorf("%+v", now)
		}
		p.clean()
		p.resume("--max-cost", "5").exits(0)
		if b := p.recorded("begin", "b"); len(b) != 2 || fmt.Sprint(b[1].Args) != "[resumed talk-b]" || len(p.recorded("begin", "")) != 4 {
			t.Errorf("%s: %+v", p.steps(), b)
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
		p.plan("a await resumed", "a finish") // it never ends before
		paused(p.begin("--max-time", "1s"), "time")
		p.clean()
		p.touch("resumed")
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

// Workflows nest in one another, whoever does their steps: with one slot, none of those that wait holds it.
func TestRunNestedTwice(t *testing.T) {
	start := func(job string) string {
		return ` start {"job_name":"` + job + `","workflow_name":"w","goal":"An inner one"}`
	}
	p := newRunProject(t, "run: {retries: 0}\nattempts: {max_concurrent: 1}\n", runJob("NAME", "a", "a"), runJob("NAME", "x, y", "x", "y outputs: {}"), runJob("NAME", "m", "m outputs: {}"))
	p.plan("a:1"+start("job1"), "x:1"+start("job2"))
	p.begin().exits(0)
	if got := p.steps(); got != "a x m x y a" || p.most() != 1 {
		t.Error(got, p.most())
	}
	p.clean()
}

// The agent of a run starts no other run, by whatever way.
func TestRunInsideARun(t *testing.T) {
	for _, place := range []string{"--worktree", "--in-place"} {
		t.Run(strings.TrimPrefix(place, "--"), func(t *testing.T) {
			p := newRunProject(t, "", runJob("NAME", "a", "a")).inGit()
			args := `run_workflow {"job_name":"job0","workflow_name":"w","goal":"An inner one","executor":"STEPPER"}`
			p.plan("a call "+args, "a serve "+args, "a deepwork run job0/w --goal inner --executor STEPPER --path "+p.root, "a deepwork run resume latest --path "+p.root, "a finish")
			p.begin(place).exits(0)
			if got := p.steps(); got != "a" {
				t.Errorf("the steps were begun as %s", got)
			}
			const refusal = "An agent that works on an attempt cannot start agents"
			for event, want := range map[string]string{"run_workflow": "unknown tool", "serve run_workflow": refusal} {
				if said := p.recorded(event, "a"); len(said) != 1 || !strings.Contains(said[0].Text, want) {
					t.Errorf("%s: %+v", event, said)
				}
			}
			if said := p.recorded("deepwork", "a"); len(said) != 2 || !strings.HasPrefix(said[0].Text, "1 ") || !strings.Contains(said[0].Text, refusal) || !strings.HasPrefix(said[1].Text, "1 ") || !strings.Contains(said[1].Text, refusal) {
				t.Errorf("%+v", said)
			}
			p.clean()
		})
	}
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
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "a, [b, c, d], e", "a", "b", "c", "d", "e"))
	p.plan(`b say {"type":"system","subtype":"init","session_id":"CONVERSATION"}`, "b:1 touch said", "b:1 await never", "c:1 await said", "c:1 touch c", "c:1 await never", "d:1 await never", "* finish")
	r := p.begin()
	for _, step := range []string{"b", "c", "d"} {
		p.awaits(step, 1)
	}
	p.appears("c")
	must(t, r.cmd.Process.Kill())
	_ = r.cmd.Wait()
	_, shim := processOf(p.recorded("begin", "d")[0].PID)
	must(t, syscall.Kill(shim, syscall.SIGKILL)) // with its shim, and so without a record of its end
	p.resume().exits(0)
	if got := strings.Fields(p.steps()); len(got) != 8 || got[7] != "e" {
		t.Error(got)
	}
	if b, c := p.recorded("begin", "b")[1], p.recorded("begin", "c")[1]; fmt.Sprint(b.Args) != "[resumed talk-b]" || len(c.Args) > 0 {
		t.Errorf("%+v\n%+v", b, c)
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
	p := newRunProject(t, "", runJob("NAME", "[a, b, c]", "a", "b executor: OTHER", "c executor: OTHER:FILE"))
	p.begin().exits(0)
	a, b, c := p.recorded("begin", "a"), p.recorded("begin", "b"), p.recorded("begin", "c")
	if len(a) != 1 || len(b) != 1 || len(c) != 1 || len(a[0].Args) > 0 || fmt.Sprint(b[0].Args) != "[other]" || fmt.Sprint(c[0].Args) != "[config "+c[0].Config+"]" {
		t.Errorf("%+v, %+v, %+v", a, b, c)
	}
	p.clean()
	for what, args := range map[string][]string{
		"NOBODY":       {"job0/w", "--goal", "g", "--executor", "NOBODY"},
		"run.executor": {"job0/w", "--goal", "g"},
		"'none'":       {"job0/none", "--goal", "g", "--executor", "STEPPER"},
		"--parallel":   {"job0/w", "--goal", "g", "--executor", "STEPPER", "--parallel", "0"},
		"--max-cost":   {"job0/w", "--goal", "g", "--executor", "STEPPER", "--max-cost", "-1"},
	} {
		r := p.start(args...)
		if r.exits(2); !strings.Contains(r.err.String(), what) {
			t.Errorf("%v: %s", args, &r.err)
		}
	}
	q := newRunProject(t, "", runJob("NAME", "a, b", "a", "b executor: NOBODY"))
	events := q.begin().exits(1)
	if end := events[len(events)-1]; end.StepID == nil || *end.StepID != "b" || end.Reason == nil || !strings.Contains(*end.Reason, "NOBODY") {
		t.Errorf("%+v", end)
	}
}

// The known programs find the server of their step where they look for it, and only that, and go on with
// their conversations.
func TestRunKnownPrograms(t *testing.T) {
	programs := map[string]struct{ executor, says, goesOn string }{
		"claude":       {"CLAUDE_CODE", `{"type":"system","subtype":"init","session_id":"CONVERSATION"}`, "--resume talk-claude"},
		"codex":        {"CODEX", `{"type":"thread.started","thread_id":"CONVERSATION"}`, "resume talk-codex -"},
		"gemini":       {"GEMINI", `{"type":"init","session_id":"CONVERSATION","model":"m"}`, "--resume talk-gemini"},
		"cursor-agent": {"CURSOR_AGENT", `{"type":"system","subtype":"init","session_id":"CONVERSATION"}`, "--resume talk-cursor"},
		"opencode":     {"OPENCODE", `{"type":"step_start","sessionID":"CONVERSATION"}`, "--session talk-opencode"},
	}
	bin := testkit.Dir(t)
	var names, steps, plan []string
	for program, is := range programs {
		name := strings.TrimSuffix(program, "-agent")
		names, steps = append(names, name), append(steps, name+" executor: "+is.executor)
		plan = append(plan, name+" say "+is.says, name+":2 finish", name+":1 call get_step {}")
	}
	p := newRunProject(t, "", runJob("NAME", "["+strings.Join(names, ", ")+"]", steps...))
	for program := range programs {
		must(t, os.WriteFile(filepath.Join(bin, program), []byte(fmt.Sprintf("#!/bin/sh\nexec stepper %q %s \"$@\"\n", p.dir, program)), 0o755))
	}
	p.env = []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
	p.plan(plan...)
	p.begin().exits(0)
	for program, is := range programs {
		name := strings.TrimSuffix(program, "-agent")
		begun := p.recorded("begin", name)
		if len(begun) != 2 || !strings.HasSuffix(" "+strings.Join(begun[1].Args, " "), " "+is.goesOn) {
			t.Errorf("%s: %+v", program, begun)
		}
		if said := p.recorded("get_step", name); len(said) != 1 || !strings.Contains(said[0].Text, `"step_id":"`+name+`"`) {
			t.Errorf("%s: %+v", program, said)
		}
	}
	p.clean()
}
