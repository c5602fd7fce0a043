package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/session/board"
)

// byHuman is the rest of a step that a person has to pass.
const byHuman = ` reviews: [{run_each: text, by: human, quality_criteria: {sound: "Would you sign it?"}}]`

// waits waits until a run waits for a person alone, and returns for what.
func (p *runProject) waits(step string, since string) *board.RunReply {
	p.t.Helper()
	p.awaits(step, 1)
	var now *board.RunReply
	testkit.Eventually(p.t, func() string {
		now = p.status()
		if i := slices.IndexFunc(now.Waits, func(w board.RunWaits) bool { return w.StepID == step && w.Since != since }); i < 0 || now.State != "waiting_for_you" {
			return fmt.Sprintf("it is %s (%s), and waits for %+v", now.State, optional(now.Reason), now.Waits)
		}
		return ""
	})
	return now
}

// review answers as a person at a terminal.
func (p *runProject) review(now *board.RunReply, answer string) {
	p.t.Helper()
	self := testkit.Get(exec.LookPath("deepwork")).Must(p.t)
	words := strings.Fields(*now.Waits[0].Command)
	testkit.True(p.t, len(words) == 5 && strings.Join(words[:3], " ") == "deepwork sessions review", "the command is %s", *now.Waits[0].Command)
	then := "The run goes on automatically."
	if !p.status().State.Open() {
		then = "to go on: deepwork run resume "
	}
	out, screen, err := typing(p.t, answer, slices.Concat([]string{self}, words[1:], []string{"--path", p.root})...)
	testkit.Need(p.t, err == nil && strings.Contains(out, then), "%v: %s%s", err, out, screen)
}

// A step that a person has to pass holds no slot and no process. What they fail goes back to its agent, what
// they pass the leader finishes, also one that comes after a crash; nobody else can.
func TestRunStepForAPerson(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\nattempts: {max_concurrent: 1}\n", runJob("NAME", "[a, b], c", "a"+byHuman, "b", "c")).inGit()
	talk := `say {"type":"system","subtype":"init","session_id":"CONVERSATION"}`
	p.plan("a:1 "+talk, `a:1 write a.md one`, `a:1 call finished_step {"outputs":{"text":"a.md"},"quality_review_override_reason":"I am sure"}`,
		"a:1 run deepwork sessions review $DEEPWORK_SESSION_ID a --path "+p.root, "a:1 run deepwork sessions override $DEEPWORK_SESSION_ID a --reason sure --path "+p.root,
		"a:2 "+talk, "a:2 write a.md two", "a:2 finish")
	r := p.begin()
	now := p.waits("a", "")
	if said := p.recorded("finished_step", "a"); len(said) != 1 || !strings.Contains(said[0].Text, "Waiting: a person must pass these outputs") || !strings.Contains(said[0].Text, "end now") {
		t.Errorf("%+v", said)
	}
	for _, tried := range p.recorded("run", "a") {
		testkit.True(t, strings.Contains(tried.Text, "an agent of deepwork started this shell"), "the agent itself is answered: %s", tried.Text)
	}
	w := now.Waits[0]
	testkit.True(t, len(now.Waits) == 1 && w.For == "person" && w.Until == nil && now.Reason != nil && strings.Contains(*now.Reason, *w.Command), "%+v", now)
	got := strings.Fields(p.steps())
	testkit.True(t, len(got) == 2, "the steps were begun as %v", got)
	p.review(now, "fail Say more")
	second := p.waits("a", now.Waits[0].Since)
	begun := p.recorded("begin", "a")
	if len(begun) != 2 || fmt.Sprint(begun[1].Args) != "[resumed talk-a]" || !strings.Contains(begun[1].Prompt, "Say more") || !strings.Contains(begun[1].Prompt, "a person looked at its outputs") {
		t.Errorf("%+v", begun)
	}
	status := p.start("status", "latest")
	status.exits(0)
	testkit.True(t, strings.Contains(status.out.String(), *second.Waits[0].Command), "%s", &status.out)
	if out, err := exec.CommandContext(t.Context(), "deepwork", "board", "--path", p.root).CombinedOutput(); err != nil || !strings.Contains(string(out), "step_waits") {
		t.Errorf("what needs a person: %v, %s", err, out)
	}
	waiting := func() (all []runEvent) {
		for _, e := range r.events() {
			if e.Event == "step_waiting" {
				all = append(all, e)
			}
		}
		return all
	}
	testkit.Eventually(t, func() string { // the leader prints what is on the board a little later
		if n := len(waiting()); n < 2 {
			return fmt.Sprintf("%d events of waiting in %s", n, &r.out)
		}
		return ""
	})
	must(t, r.cmd.Process.Kill())
	_ = r.cmd.Wait()
	for i, e := range waiting() {
		testkit.True(t, i <= 1 && e.Command != nil && *e.StepID == "a" && e.State == "waiting_for_you", "%+v", e)
	}
	p.review(second, "pass Good")
	p.resume().exits(0)
	if got := strings.Fields(p.steps()); len(got) != 4 || got[3] != "c" {
		t.Errorf("the steps were begun as %v", got)
	}
	out, err := exec.CommandContext(t.Context(), "deepwork", "sessions", "show", *now.SessionID, "--path", p.root).CombinedOutput()
	testkit.True(t, err == nil && strings.Contains(string(out), "evidence: passed by a person, who reviewed these outputs") && !strings.Contains(string(out), "I am sure"), "%v: %s", err, out)
	if now := p.status(); now.State != "completed" || len(now.Waits) > 0 {
		t.Errorf("%+v", now)
	}
	p.clean()
}

// A run in the background waits likewise, and one that is resumed while it waits.
func TestRunInTheBackgroundForAPerson(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", runJob("NAME", "a, b", "a"+byHuman, "b"+byHuman))
	p.begin("--detach").exits(0)
	now := p.waits("a", "")
	p.review(now, "pass")
	now = p.waits("b", "")
	p.start("stop", "latest").exits(0)
	testkit.Eventually(t, func() string {
		if now := p.status(); now.State != "stopped" || len(now.Waits) != 1 {
			return fmt.Sprintf("%+v", now)
		}
		return ""
	})
	r := p.resume()
	p.waits("b", "")
	p.review(now, "pass")
	r.exits(0)
	testkit.Equal(t, p.steps(), "a b", "the steps were begun as")
	p.clean()
}

// Outputs that changed after they were handed in cannot be passed: the agent hands them in again.
func TestRunOutputsForAPersonThatChange(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "[a, b], c", "a"+byHuman, "b", "c"))
	p.plan("b touch b", "b await go", "b write a.md swapped", "b finish")
	r := p.begin()
	p.awaits("b", 1)
	var first string
	testkit.Eventually(t, func() string {
		now := p.status()
		if len(now.Waits) != 1 {
			return fmt.Sprintf("it waits for %+v", now.Waits)
		}
		first = now.Waits[0].Since
		return ""
	})
	p.touch("go")
	now := p.waits("a", first)
	begun := p.recorded("begin", "a")
	testkit.True(t, len(begun) == 2 && strings.Contains(begun[1].Prompt, "'a.md' changed after the outputs were handed in"), "%+v", begun)
	p.review(now, "pass")
	r.exits(0)
	p.clean()
}

// What a person did not pass is not shown to them again: an agent that hands in the same is told so and sent back,
// and a run that stops for it says why.
func TestRunSameOutputsForAPersonAgain(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 1}\n", runJob("NAME", "a", "a"+byHuman))
	p.plan("a:1 say nothing yet", "a:2 finish", "a:3 finish", "a:4 finish", "a:5 write a.md more", "a:5 finish")
	r := p.begin()
	now := p.waits("a", "")
	p.review(now, "fail Say more")
	events := r.exits(1)
	const why = "2 agents ended without finishing it. A person did not pass its outputs, and the same ones were handed in again: Say more"
	end := events[len(events)-1]
	testkit.True(t, end.State == "failed" && end.Reason != nil && *end.Reason == "Step a: "+why, "%+v: %s", end, optional(end.Reason))
	begun := p.recorded("begin", "a")
	testkit.Need(t, len(begun) == 4, "%d agents were started", len(begun))
	for _, x := range begun[2:] {
		testkit.True(t, strings.Contains(x.Prompt, "a person looked at its outputs, and does not pass them.") && strings.Contains(x.Prompt, "Say more"), "it was told:\n%s", x.Prompt)
	}
	r = p.resume()
	p.review(p.waits("a", now.Waits[0].Since), "pass")
	r.exits(0)
	if begun := p.recorded("begin", "a"); len(begun) != 5 || !strings.Contains(begun[4].Prompt, "Say more") {
		t.Errorf("%+v", begun)
	}
	p.clean()
}

// A client that can ask its user does so when it gets a run that waits for a person. The agent of the run
// cannot: nobody sits at it.
func TestRunAsksTheUserOfAClient(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "a, b", "a"+byHuman, "b")).inGit()
	p.plan("a asks", "a:1 write a.md one", "a:2 write a.md two", "a finish")
	var asked atomic.Int32
	decline, pass := &mcp.ElicitResult{Action: "decline"}, &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "pass"}}
	connect := func(answer *mcp.ElicitResult) *mcp.ClientSession {
		t.Helper()
		server := exec.CommandContext(t.Context(), "deepwork", "serve", "--path", p.root, "--log-level", "error")
		server.Stderr = t.Output()
		client := testkit.Get(mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			if asked.Add(1); !strings.Contains(r.Params.Message, "in "+p.status().Workspace+":\n") || !strings.Contains(r.Params.Message, "- a.md\n") || !strings.Contains(r.Params.Message, "Would you sign it?") {
				t.Errorf("asked %q", r.Params.Message)
			}
			return answer, nil
		}}).Connect(t.Context(), &mcp.CommandTransport{Command: server}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-06-18"})).Must(t)
		t.Cleanup(func() { client.Close() })
		return client
	}
	r := p.begin()
	get := func(answer *mcp.ElicitResult, run string, want int32) {
		t.Helper()
		client := connect(answer)
		callTool(t, client, "get_run", map[string]any{"run_id": run})
		must(t, client.Close())
		testkit.Equal(t, asked.Load(), want, "the user was asked")
	}
	now := p.waits("a", "")
	get(decline, now.RunID, 1)
	get(pass, now.RunID, 1) // who has declined is not asked again, whichever server they use
	p.review(now, "fail Say more")
	get(pass, p.waits("a", now.Waits[0].Since).RunID, 2)
	r.exits(0)
	begun := p.recorded("begin", "a")
	testkit.True(t, len(begun) == 2 && strings.Contains(begun[1].Prompt, "Say more"), "%+v", begun)
	agents := p.recorded("asked", "")
	testkit.True(t, len(agents) == 0, "the agent was asked: %+v", agents)
	p.clean()
}
