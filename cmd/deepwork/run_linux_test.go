package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session/state"
)

// Each member of a group has an agent of its own, and all run at once.
func TestRunGroupOfEight(t *testing.T) {
	t.Parallel()
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
	n := p.most()
	testkit.True(t, n == 8, "%d agents at once, want 8", n)
	got := p.steps()
	testkit.True(t, strings.HasPrefix(got, "first ") && strings.HasSuffix(got, " last") && len(strings.Fields(got)) == 10, "the steps were begun as %s", got)
	for _, said := range p.recorded("finished_step", "") {
		testkit.True(t, !strings.Contains(said.Text, "concurrent"), "the agent of the step %s was told of steps of others: %s", said.Step, said.Text)
	}
	last := events[len(events)-1]
	testkit.True(t, last.Event == "run_ended" && last.State == "completed" && events[0].Event == "run_started" && events[0].Branch != nil, "%+v", events)
	for _, x := range p.recorded("begin", "") {
		testkit.True(t, x.Mode == "-rw-------" && strings.HasPrefix(x.Config, state.Of(p.root).Dir) && x.Folder != p.root, "%+v", x)
		if strings.Contains(x.Prompt, "Other agents work") != (len(x.Step) == 1) || !strings.Contains(x.Prompt, "Commit the files of your step") {
			t.Errorf("the step %s was told:\n%s", x.Step, x.Prompt)
		}
	}
	p.clean()
}

func TestRunTwoAtATimeInPlaceInGit(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", runJob("NAME", "[a, b, c, d]", "a", "b", "c", "d")).inGit()
	p.plan("a await b", "a finish", "b touch b", "b await d", "b finish", "c finish", "d touch d", "d finish") // b runs until d has begun
	events := p.begin("--in-place", "--parallel", "2").exits(0)
	n := p.most()
	testkit.True(t, n == 2, "%d agents at once", n)
	_, err := os.Stat(filepath.Join(p.root, "a.md"))
	testkit.True(t, err == nil && events[0].Branch == nil && !strings.Contains(p.recorded("begin", "a")[0].Prompt, "Commit"), "%v %v", err, events[0])
	if out, err := exec.CommandContext(t.Context(), "deepwork", "sessions", "list", "--path", p.root).CombinedOutput(); err != nil || strings.Count(string(out), "job0/w") != 1 {
		t.Errorf("the session of the run is not listed once: %v\n%s", err, out)
	}
	p.clean()
}

// An agent that ends after a failed review is told in its conversation what the review said, and another agent
// in its first message.
func TestRunReviewFailsAndItsAgentEnds(t *testing.T) {
	t.Parallel()
	reviewed := " reviews: [{run_each: text, quality_criteria: {good: \"Is it good?\"}}]"
	p := newRunProject(t, "quality_gate:\n  agent_review_command: reviewer\n", runJob("NAME", "[a, b]", "a"+reviewed, "b executor: OTHER,"+reviewed))
	p.plan(`* say {"type":"system","subtype":"init","session_id":"CONVERSATION"}`, "a:1 write a.md this one is bad", "b:1 write b.md this one is bad", "a:2 write a.md fine", "b:2 write b.md fine", "* finish")
	p.begin().exits(0)
	a, b := p.recorded("begin", "a"), p.recorded("begin", "b")
	testkit.True(t, len(a) == 2 && fmt.Sprint(a[1].Args) == "[resumed talk-a]" && strings.Contains(a[1].Prompt, "its last review did not pass.\n\nWrite more.\nMuch more.\n"), "%+v", a)
	testkit.True(t, len(b) == 2 && strings.HasPrefix(b[1].Prompt, "# Goal") && strings.Contains(b[1].Prompt, "Write more.\nMuch more.\n"), "%+v", b)
	p.clean()
}

// An agent that ends without finishing is sent back in its conversation, then the run stops at the step,
// and goes on there when it is resumed.
func TestRunRetriesThenStopsAndResumes(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", runJob("NAME", "a, [b, c], d", "a", "b", "c", "d"))
	talk := `say {"type":"system","subtype":"init","session_id":"CONVERSATION"}`
	p.plan("b:1 "+talk, "b:2 "+talk, "b:3 "+talk, "b:3 exit 3")
	events := p.begin().exits(1)
	if end := events[len(events)-1]; end.State != "failed" || end.StepID == nil || *end.StepID != "b" || end.Reason == nil || !strings.Contains(*end.Reason, "3 agents ended without finishing it. ") || !strings.Contains(*end.Reason, "never connected to the MCP server") {
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
	got := strings.Fields(p.steps())
	testkit.True(t, len(got) == 7 && got[5] == "b" && got[6] == "d", "the steps were begun as %v", got)
	p.clean()
	p.resume().exits(0) // it is complete already
}

func TestRunOneConversation(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", runJob("NAME", "a, b, [c, d], e, f", "a", "b", "c", "d", "e", "f"))
	p.plan(`* say {"type":"system","subtype":"init","session_id":"CONVERSATION"}`, "* finish")
	p.begin("--context", "resume").exits(0)
	for step, want := range map[string]string{"a": "[]", "b": "[resumed talk-a]", "c": "[]", "d": "[]", "e": "[]", "f": "[resumed talk-e]"} {
		if x := p.recorded("begin", step)[0]; fmt.Sprint(x.Args) != want || !strings.Contains(x.Prompt, `"step_id": "`+step+`"`) {
			t.Errorf("the step %s was begun with %v, want %s:\n%s", step, x.Args, want, x.Prompt)
		}
	}
}

// A workflow that an agent starts is done by it, or, when it has ended, by others.
func TestRunNested(t *testing.T) {
	t.Parallel()
	start := ` start {"job_name":"job1","workflow_name":"w","goal":"The inner one"}`
	inner := runJob("NAME", "x, [y, z]", "x outputs: {}", "y outputs: {}", "z outputs: {}")
	t.Run("by the agent", func(t *testing.T) {
		t.Parallel()
		p := newRunProject(t, "", runJob("NAME", "a, b", "a", "b"), inner)
		p.plan("a"+start, "a child x", "a reconnect", "a child y", "a child z", "a finish")
		p.begin().exits(0)
		testkit.Equal(t, p.steps(), "a b")
		for _, said := range p.recorded("finished_step", "a") {
			testkit.True(t, strings.Contains(said.Text, `"status":`), "%+v", said)
		}
		p.clean()
	})
	t.Run("by the agent, which ends then", func(t *testing.T) { // the workflow is no excuse
		t.Parallel()
		p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "a, b", "a", "b"), inner)
		p.plan("a"+start, "a child x", "a child y", "a child z")
		events := p.begin().exits(1)
		if end := events[len(events)-1]; end.Reason == nil || !strings.Contains(*end.Reason, "1 agent ended without finishing it.") || p.steps() != "a" {
			t.Errorf("%s: %+v", p.steps(), end)
		}
		p.clean()
	})
	t.Run("by others", func(t *testing.T) {
		t.Parallel()
		p := newRunProject(t, "run: {retries: 0}\nattempts: {max_concurrent: 1}\n", runJob("NAME", "a, b", "a", "b"), inner)
		p.plan("a:1" + start)
		p.begin().exits(0)
		got := strings.Fields(p.steps())
		testkit.True(t, len(got) == 6 && got[0] == "a" && got[1] == "x" && got[4] == "a" && got[5] == "b", "%v", got)
		again := p.recorded("begin", "a")
		testkit.True(t, strings.Contains(again[1].Prompt, "is completed"), "%+v", again[1])
		p.clean()
	})
}

// Workflows nest in one another, whoever does their steps: with one slot, none of those that wait holds it.
func TestRunNestedTwice(t *testing.T) {
	t.Parallel()
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

// The executor of a step is that of the job with which its session goes on, if the job is gone.
func TestRunExecutorsOfALostJob(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", runJob("NAME", "a, b", "a", "b executor: OTHER"))
	p.plan("a run rm -r .deepwork/jobs/job0", "* finish")
	p.begin().exits(0)
	b := p.recorded("begin", "b")
	testkit.True(t, len(b) == 1 && fmt.Sprint(b[0].Args) == "[other]", "%+v", b)
	p.clean()
}

func TestRunExecutors(t *testing.T) {
	t.Parallel()
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
		r.exits(2)
		testkit.True(t, strings.Contains(r.err.String(), what), "%v: %s", args, &r.err)
	}
	q := newRunProject(t, "", runJob("NAME", "a, b", "a", "b executor: NOBODY"))
	events := q.begin().exits(1)
	end := events[len(events)-1]
	testkit.True(t, end.StepID != nil && *end.StepID == "b" && end.Reason != nil && strings.Contains(*end.Reason, "NOBODY"), "%+v", end)
}

// A run gives each item of a list, each step of a workflow that is a step, and each round of a step that is repeated, an
// agent of its own. The agents of earlier rounds are no tries.
func TestRunForms(t *testing.T) {
	t.Parallel()
	inner := runJob("NAME", "x, y", "x outputs: {}", "y outputs: {}")
	p := newRunProject(t, "run: {retries: 0}\nattempts: {max_concurrent: 8}\n", runJob("NAME", "list, {for_each: text, steps: [port, look], at_once: 2}, {workflow: job1/w}, {repeat: {steps: [fix], until: {output: said, is: done}, at_most: 9}}, last",
		"list", "port outputs: {code: {type: file, description: C}}", "look outputs: {}", "fix outputs: {said: {type: string, description: S}}", "last outputs: {}"), inner)
	p.plan(`list write list.md ["a","b","c"]`, "list finish", "port[0] await second", "port[1] touch second",
		`fix say {"type":"system","subtype":"init","session_id":"CONVERSATION"}`, `fix:1 call finished_step {"outputs":{"said":"no"}}`, `fix:2 call finished_step {"outputs":{"said":"done"}}`)
	for i := range 3 {
		step := fmt.Sprintf("port[%d]", i)
		p.also(step+" write out x", step+` call finished_step {"outputs":{"code":"out"}}`)
	}
	p.begin().exits(0)
	got := strings.Fields(p.steps())
	testkit.Need(t, len(got) == 12 && got[0] == "list" && strings.Join(got[7:], " ") == "x y fix fix last", "the steps were begun as %v", got)
	if again := p.recorded("begin", "fix")[1]; len(again.Args) != 0 || !strings.Contains(again.Prompt, `"failed": "The text was \"no\"."`) {
		t.Errorf("the second round was begun with %v:\n%s", again.Args, again.Prompt)
	}
	for _, x := range p.recorded("begin", "port[2]") {
		testkit.True(t, strings.Contains(x.Prompt, `"c"`), "an item was told:\n%s", x.Prompt)
	}
	p.clean()
}
