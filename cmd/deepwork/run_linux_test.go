package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/cmd/proof/tty"
	"deepwork/session"
	"deepwork/session/show"
	"deepwork/session/state"
)

// talk has an agent say which conversation it is.
const talk = `say {"type":"system","subtype":"init","session_id":"CONVERSATION"}`

// Each member of a group has an agent of its own, and all run at once.
func TestRunGroupOfEight(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	p := newRunProject(t, "attempts: {max_concurrent: 8}\n",
		runJob("NAME", "first, ["+strings.Join(names, ", ")+"], last", append(names, "first", "last")...)).inGit()
	var plan []string
	for _, n := range names {
		plan = append(plan, n+" await go", n+" finish")
	}
	p.plan(plan...)
	r := p.begin()
	p.awaits("", 9)
	p.touch("go")
	last := r.exits(0)
	testkit.Equal(t, last.Event, "run_ended")
	testkit.Equal(t, last.State, "completed")
	testkit.True(t, r.events()[0].Branch != nil, "%+v", r.events())
	testkit.Equal(t, p.most(), 8, "agents at once")

	got := p.steps()
	testkit.True(t, strings.HasPrefix(got, "first "), "the steps were begun as %s", got)
	testkit.True(t, strings.HasSuffix(got, " last"), "the steps were begun as %s", got)
	testkit.Equal(t, len(strings.Fields(got)), 10, "the steps were begun as %s", got)

	for _, said := range p.recorded("finished_step", "") {
		testkit.True(t, !strings.Contains(said.Text, "concurrent"),
			"the agent of the step %s was told of steps of others: %s", said.Step, said.Text)
	}

	for _, x := range p.begun("") {
		testkit.Equal(t, x.Mode, "-rw-------")
		testkit.True(t, strings.HasPrefix(x.Config, state.Of(p.root).Dir), "%+v", x)
		testkit.True(t, x.Folder != p.root, "%+v", x)
		testkit.Equal(t, strings.Contains(x.Prompt, "Other agents work"), len(x.Step) == 1,
			"the step %s was told of others:\n%s", x.Step, x.Prompt)
		testkit.Contains(t, x.Prompt, "Commit the files of your step")
	}
	p.clean()
}

// shows checks what the row of an agent says in deepwork run status.
func (p *runProject) shows(text string) {
	p.t.Helper()
	status := mustPrint(p.t, p.root, "run", "status", "latest")
	shown := func(row string) bool { return strings.Contains(row, " STEPPER ") && strings.Contains(row, text) }
	testkit.True(p.t, slices.ContainsFunc(strings.Split(status, "\n"), shown), "the status has no %q:\n%s",
		text, status)
}

// An agent that ends after a failed review is told in its conversation what the review said, and another agent
// in its first message.
func TestRunReviewFailsAndItsAgentEnds(t *testing.T) {
	t.Parallel()
	reviewed := " reviews: [{run_each: text, quality_criteria: {good: \"Is it good?\"}}]"
	p := newRunProject(t, "quality_gate:\n  agent_review_command: reviewer\n",
		runJob("NAME", "[a, b]", "a"+reviewed, "b executor: OTHER,"+reviewed))
	p.plan("* "+talk, "a:1 write a.md this one is bad", "b:1 write b.md this one is bad", "a:2 write a.md fine",
		"b:2 write b.md fine", "* finish")
	p.begin().exits(0)
	a, b := p.begun("a"), p.begun("b")
	testkit.Need(t, len(a) == 2, "%+v", a)
	testkit.Equal(t, fmt.Sprint(a[1].Args), "[resumed talk-a]")
	testkit.Contains(t, a[1].Prompt, "its last review did not pass.\n\nWrite more.\nMuch more.\n")
	testkit.Need(t, len(b) == 2, "%+v", b)
	testkit.True(t, strings.HasPrefix(b[1].Prompt, "# Goal"), "%+v", b)
	testkit.Contains(t, b[1].Prompt, "Write more.\nMuch more.\n")
	p.clean()
}

// An agent that ends without finishing is sent back in its conversation, then the run stops at the step,
// and goes on there when it is resumed.
func TestRunRetriesThenStopsAndResumes(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", runJob("NAME", "a, [b, c], d", "a", "b", "c", "d"))
	p.plan("b:1 "+talk, "b:2 "+talk, "b:3 "+talk, "b:3 exit 3")
	end := p.begin().exits(1)
	testkit.Equal(t, fmt.Sprint(end.State, optional(end.StepID)), "failedb", "it ended")
	testkit.ContainsAll(t, optional(end.Reason),
		[]string{"3 agents ended without finishing it, last with exit code 3; ", "never connected to the MCP server"})

	p.shows("exit code 3")
	begun := p.begun("b")
	testkit.Need(t, len(begun) == 3, "%+v", begun)
	testkit.Need(t, len(begun[0].Args) == 0, "%+v", begun)
	testkit.Equal(t, fmt.Sprint(begun[1].Args, begun[2].Args), "[resumed talk-b] [resumed talk-b]")
	testkit.Contains(t, begun[1].Prompt, "is not finished")
	testkit.True(t, len(p.begun("c")) == 1 && len(p.begun("d")) == 0, "the steps were begun as %s", p.steps())
	p.clean()
	p.resume().exits(0)
	testkit.True(t, len(strings.Fields(p.steps())) == 7 && strings.HasSuffix(p.steps(), " b d"),
		"the steps were begun as %s", p.steps())
	p.clean()
	p.resume().exits(0) // it is complete already
}

func TestRunOneConversation(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", runJob("NAME", "a, b, [c, d], e, f", "a", "b", "c", "d", "e", "f"))
	p.plan("* "+talk, "* finish")
	p.begin("--context", "resume").exits(0)
	for step, want := range map[string]string{
		"a": "[]",
		"b": "[resumed talk-a]",
		"c": "[]",
		"d": "[]",
		"e": "[]",
		"f": "[resumed talk-e]",
	} {
		x := p.begun(step)[0]
		testkit.True(t, fmt.Sprint(x.Args) == want && strings.Contains(x.Prompt, `"step_id": "`+step+`"`),
			"%s: %+v", step, x)
	}
}

// A workflow that an agent starts is done by it, or, when it has ended, by others, also if its first step is
// a workflow.
func TestRunNested(t *testing.T) {
	t.Parallel()
	start := ` start {"job_name":"job1","workflow_name":"w","goal":"The inner one"}`
	outer, first := runJob("NAME", "a, b", "a", "b"), runJob("NAME", "n", "n outputs: {}")
	inner := runJob("NAME", "{workflow: job2/w}, x, [y, z]", "x outputs: {}", "y outputs: {}", "z outputs: {}")
	t.Run("by the agent", func(t *testing.T) {
		t.Parallel()
		p := newRunProject(t, "", outer, inner, first)
		p.plan("a"+start, "a child n", "a child x", "a reconnect", "a child y", "a child z", "a finish")
		p.begin().exits(0)
		testkit.Equal(t, p.steps(), "a b")

		for _, said := range p.recorded("finished_step", "a") {
			testkit.Contains(t, said.Text, `"status":`)
		}
		p.clean()
	})
	t.Run("by others, one in the other", func(t *testing.T) { // with one slot, none of those that wait holds it
		t.Parallel()
		p := newRunProject(t, "run: {retries: 0}\nattempts: {max_concurrent: 1}\n", outer, inner, first,
			runJob("NAME", "m", "m outputs: {}"))
		p.plan("a:1"+start, `x:1 start {"job_name":"job3","workflow_name":"w","goal":"One more"}`)
		p.begin().exits(0)
		got := p.steps()
		testkit.True(t, (got == "a n x m x y z a b" || got == "a n x m x z y a b") && p.most() == 1, "%s, %d at once",
			got, p.most())
		testkit.Contains(t, p.begun("a")[1].Prompt, "is completed")
		p.clean()
	})
}

func TestRunExecutors(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", runJob("NAME", "[a, b, c], d", "a", "b executor: OTHER", "c executor: OTHER:FILE",
		"d executor: NOBODY"))
	// the executor of a step is that of the job with which its session goes on
	p.plan("a run rm -r .deepwork/jobs/job0", "* finish")
	end := p.begin().exits(1)
	testkit.True(t, optional(end.StepID) == "d" && strings.Contains(optional(end.Reason), "NOBODY"), "%+v", end)

	c := p.begun("c")[0]
	testkit.Equal(t, fmt.Sprint(p.begun("a")[0].Args, p.begun("b")[0].Args, c.Args), "[] [other] [config "+c.Config+"]")
	p.clean()
}

// A run gives each item of a list, each step of a workflow that is a step, and each round of a step that is
// repeated, an agent of its own. The agents of earlier rounds are no tries.
func TestRunForms(t *testing.T) {
	t.Parallel()
	inner := runJob("NAME", "x, y", "x outputs: {}", "y outputs: {}")
	p := newRunProject(t, "run: {retries: 0}\nattempts: {max_concurrent: 8}\n",
		runJob("NAME", "{workflow: job2/w}, list, {for_each: text, steps: [port, look], at_once: 2}, {workflow: "+
			"job1/w}, {repeat: {steps: [fix], until: {output: said, is: done}, at_most: 9}}, last",
			"list", "port outputs: {code: {type: file, description: C}}", "look outputs: {}",
			"fix outputs: {said: {type: string, description: S}}", "last outputs: {}"), inner,
		runJob("NAME", "first", "first outputs: {}"))
	p.plan(`list write list.md ["a","b","c"]`, "list finish", "port[0] await second", "port[1] touch second",
		"fix "+talk, `fix:1 call finished_step {"outputs":{"said":"no"}}`,
		`fix:2 call finished_step {"outputs":{"said":"done"}}`)
	for i := range 3 {
		step := fmt.Sprintf("port[%d]", i)
		p.also(step+" write out x", step+` call finished_step {"outputs":{"code":"out"}}`)
	}
	p.begin().exits(0)
	got := strings.Fields(p.steps())
	testkit.Need(t, len(got) == 13, "the steps were begun as %v", got)
	testkit.Need(t, got[0] == "first", "the steps were begun as %v", got)
	testkit.Need(t, got[1] == "list", "the steps were begun as %v", got)
	testkit.Need(t, strings.Join(got[8:], " ") == "x y fix fix last", "the steps were begun as %v", got)

	again := p.begun("fix")[1]
	testkit.True(t, len(again.Args) == 0 && strings.Contains(again.Prompt, `"failed": "The text was \"no\"."`),
		"the second round was begun with %v:\n%s", again.Args, again.Prompt)
	testkit.Contains(t, p.begun("port[2]")[0].Prompt, `"c"`, "an item is told")
	p.clean()
}

// The items of a run are listed with their states, also while it runs: one that gets no more agents has failed.
func TestRunStatusOfItems(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\nattempts: {max_concurrent: 8}\n",
		runJob("NAME", "list, {for_each: text, steps: [port, look], at_once: 3}", "list", "port outputs: {}",
			"look outputs: {}"))
	p.plan(`list write list.md ["a.go",{"file":"b.go"},"c.go","d.go"]`, "list finish", "port[0] await go",
		`port[0] call finished_step {"outputs":{}}`, "look[1] exit 3")
	r := p.begin()
	eventually(t, func() (bool, any) { return len(p.begun("look[1]")) > 0, &r.out })
	plan := func() string { return fmt.Sprint(p.status().Plan) }
	eventually(t, func() (bool, any) {
		return strings.Contains(plan(), "look[1] failed") && strings.Contains(plan(), "look[3] completed"), plan()
	})
	status := func(args string) string {
		t.Helper()
		out, code := p.sh("deepwork run status " + args)
		testkit.Equal(t, code, 0, "%s", out)
		return out
	}
	const summary = "4 items, 3 at once: 2 completed, 1 running, 1 failed"
	for args, want := range map[string]string{
		"latest": "1 a.go running, 2 {\"file\":\"b.go\"} failed",
		"latest --items all": "1 a.go running, 2 {\"file\":\"b.go\"} failed, 3 c.go completed, " +
			"4 d.go completed",
		"latest --items failed":      "2 {\"file\":\"b.go\"} failed",
		"latest --items interrupted": "",
	} {
		out := status(args)
		testkit.Contains(t, out, summary)
		var items []string
		for _, m := range regexp.MustCompile(`(?m)^> (\d \S+) +- +(\w+)`).FindAllStringSubmatch(out, -1) {
			items = append(items, m[1]+" "+m[2])
		}
		testkit.Equal(t, strings.Join(slices.Sorted(slices.Values(items)), ", "), want, "%s\n%s", args, out)
		testkit.True(t, strings.Contains(out, "exit code 3") == strings.Contains(out, "b.go"), "%s", out)
	}
	for _, args := range []string{"latest --items broken", "--items failed"} {
		out, code := p.sh("deepwork run status " + args)
		testkit.True(t, code == 2 && strings.Contains(out, "one of all waiting_for_you failed "), "%d: %s", code, out)
	}

	p.touch("go")
	r.exits(1)
	testkit.Contains(t, status("latest --items failed"), "4 items, 3 at once: 3 completed, 1 failed")
	p.clean()
}

// At a terminal a line that moves shows how far the run is, which steps run, for how long, and what their agent said
// last, below the lines about its steps; it fits the terminal, and is gone at the end.
func TestRunAtATerminal(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", runJob("NAME", "one, [two, three]", "one", "two", "three")).inGit()
	p.plan("two say looking around", "two await seen", "* finish")
	bar := regexp.MustCompile(`([⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]) \[#*\.*\] \d of 3 steps[^\r\n\x1b]*`)
	whole := regexp.MustCompile(`\[######\.{4}\] 2 of 3 steps, two \d+s: looking around`)
	const columns = 80
	master, slave, err := tty.Open(columns, 20)
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "deepwork", "run", "job0/w", "--goal", "ship it", "--executor", "STEPPER",
		"--path", p.root)
	cmd.Env = append(os.Environ(), "TERM=xterm")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	must(t, errors.Join(cmd.Start(), slave.Close()))
	all := ""
	for buf := make([]byte, 4096); err == nil; { // until nobody has the other end open
		var n int
		n, err = master.Read(buf)
		all += string(buf[:n])
		spinners := map[string]bool{} // until the line was seen to move
		for _, m := range bar.FindAllStringSubmatch(all, -1) {
			spinners[m[1]] = true
		}
		if whole.MatchString(all) && len(spinners) > 2 {
			p.touch("seen")
		}
	}
	err = cmd.Wait()
	bars := bar.FindAllString(all, -1)
	testkit.Need(t, err == nil && bars != nil, "%v:\n%q", err, all)

	for _, line := range bars {
		testkit.True(t, show.Columns(line) < columns, "a bar of %d columns: %q", show.Columns(line), line)
	}
	for _, step := range []string{"one", "two", "three"} {
		testkit.True(t, regexp.MustCompile(step+` +STEPPER started\r\n`).MatchString(all),
			"there is no line about %s:\n%q", step, all)
	}
	_, last, _ := strings.Cut(all[strings.LastIndex(all, bars[len(bars)-1]):], bars[len(bars)-1])
	testkit.ContainsAll(t, last, []string{"\r\x1b[K", "complete", "deepwork board merge"}, "after the last bar")
}

// An aState is how a project gets an attempt or a run in a state, and the commands that are then offered for it.
type aState struct {
	run     bool
	orders  string // to the agent
	budget  []string
	then    func(p *runProject)
	state   string
	offered string // the commands, without ids
}

// sh runs a command line in the project, as a person who has copied it.
func (p *runProject) sh(line string) (out string, code int) {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), "sh", "-c", line)
	cmd.Dir = p.root
	cmd.Env = append(os.Environ(), "EDITOR=true")
	said, _ := cmd.CombinedOutput() // its exit code says whether it failed
	return string(said), cmd.ProcessState.ExitCode()
}

// made is a project with an attempt or a run in a state.
func (s aState) made(t *testing.T) *runProject {
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "a", "a"))
	config := filepath.Join(p.root, ".deepwork", "config.yml")
	testkit.Write(t, config, strings.Replace(readAll(config), "executors:\n",
		"executors:\n  CODER: {command: [coder, first], resume: [coder, resumed]}\n", 1))
	p.inGit()
	if s.run {
		p.plan(strings.Split(s.orders, "\n")...)
		r := p.begin(s.budget...)
		if s.state == "interrupted" {
			p.awaits("a", 1)
			r.kill()
		}
		_ = r.cmd.Wait()
		p.plan() // the next agent does what it should
	} else {
		p.sh(fmt.Sprintf("deepwork board add 'Add a basket' --description '%s'; deepwork board start latest "+
			"--executor CODER", strings.ReplaceAll(s.orders, "DIR", p.dir)))
	}
	if s.then != nil {
		s.then(p)
	}
	return p
}

var (
	aCommand  = regexp.MustCompile(`deepwork (board|run) [^('\n]*`)
	anID      = regexp.MustCompile(` [0-9a-f]{8}\b`)
	onlyReads = regexp.MustCompile(`^deepwork board (diff|show|tail) `)
)

// offers are the commands that the program prints for the only attempt.
func (p *runProject) offers() (all []string) {
	for _, line := range []string{"deepwork board", "deepwork board show latest", "deepwork run status latest"} {
		out, _ := p.sh(line)
		for _, command := range aCommand.FindAllString(out, -1) {
			command = strings.TrimSpace(command)
			if !slices.Contains(all, command) && !strings.HasPrefix(out, "Nothing") {
				all = append(all, command)
			}
		}
	}
	return all
}

func resumeAndStop(p *runProject) {
	p.plan("a await never")
	r := p.resume()
	p.awaits("a", 2)
	said, _ := p.sh("deepwork run stop latest")
	testkit.Contains(p.t, said, "stopped ")
	_ = r.cmd.Wait()
	p.plan()
}

// Every command that is offered for an attempt or a run, in any state, works as it is printed, and the state is
// called the same in all places.
func TestField14_EveryNextWorks(t *testing.T) {
	t.Parallel()
	conflict := func(p *runProject) {
		p.sh("echo of a person >a.txt; git add a.txt; git commit -qm a; deepwork board merge latest")
	}
	merged := func(p *runProject) { p.sh("deepwork board merge latest") }
	for name, s := range map[string]aState{
		"completed, committed": {false, "! write a.txt hello\n! commit a", nil, nil, "completed",
			"board diff,board merge,board send"},
		"completed, not committed": {false, "! write a.txt hello", nil, nil, "completed",
			"board diff,board merge --commit,board send"},
		"completed, nothing changed": {false, "! say done", nil, nil, "completed", "board diff,board done,board send"},
		"failed": {false, "! script DIR/ok", nil, func(p *runProject) {
			testkit.Write(p.t, filepath.Join(p.dir, "ok"), "say fine")
		}, "failed", "board send,board start,board tail"},
		"conflicts": {false, "! write a.txt hello\n! commit a", nil, conflict, "conflicts",
			"board merge --abort,board send,board show"},
		"merged":          {false, "! write a.txt hello\n! commit a", nil, merged, "merged", ""},
		"run completed":   {true, "a finish", nil, nil, "completed", "board diff,board merge --commit"},
		"run failed":      {true, "a exit 3", nil, nil, "failed", "run resume"},
		"run interrupted": {true, "a await never", nil, nil, "interrupted", "run resume"},
		"run paused":      {true, "a finish", []string{"--max-unknown", "0"}, nil, "paused", "run resume"},
		"run that has failed, and used up its budget": {true, "a exit 3", []string{"--max-unknown", "1"}, nil,
			"failed", "run resume"},
		"run stopped": {true, "a exit 3", nil, resumeAndStop, "stopped", "run resume"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := s.made(t)
			offered := p.offers()
			for _, where := range []string{"tasks", "show latest"} {
				out, _ := p.sh("deepwork board " + where)
				testkit.Contains(t, out, s.state, where)
			}

			var kinds []string
			for _, command := range offered {
				kind, _, _ := strings.Cut(anID.ReplaceAllString(command, "\x00"), "\x00")
				kinds = append(kinds, strings.TrimPrefix(kind, "deepwork "))
			}
			slices.Sort(kinds)
			testkit.Equal(t, strings.Join(slices.Compact(kinds), ","), s.offered, "what is offered")

			changed := false
			for i, command := range offered {
				if changed {
					p = s.made(t)
					if now := p.offers(); i < len(now) {
						command = now[i]
					}
				}
				changed = !onlyReads.MatchString(command)
				out, code := p.sh(command)
				testkit.True(t, code == 0, "%s: exit code %d\n%s", command, code, out)
			}
		})
	}
}

// The user is not told to ask the user.
func TestField18_TheUserIsAddressed(t *testing.T) {
	asked := []config.Asked{{Key: config.AgentsKey, Text: "CODER"}}
	for _, w := range []*config.Withheld{{Asked: asked}, {Asked: asked, Denied: true},
		{Asked: asked, Fault: "it is a link"}} {
		refused := session.Untrusted("/p", &config.Approval{Withheld: w}, config.AgentsKey).(*session.Error).Wait(1)
		said := forPeople(fmt.Errorf("resuming it: %w", refused)).Error()
		testkit.True(t, regexp.MustCompile("not approved.* [Rr]un `deepwork trust --path /p` in a terminal|"+
			"denied.* with `deepwork trust --path /p` in a terminal").MatchString(said), "%s", said)
		testkit.True(t, !regexp.MustCompile("[Tt]he user|call|Waiting").MatchString(said), "%s", said)
	}
	testkit.Equal(t, forPeople(session.Changed("/p", errors.New("it is new"))).Error(),
		"This would run a program that has changed since it was approved: it is new. Nothing was run or changed. "+
			"Review it and run `deepwork trust --path /p` in a terminal, then try again.")
}

// A run whose budget is used up would pause at once: it is not resumed without a larger one.
func TestAResumeWithAUsedUpBudgetIsRefused(t *testing.T) {
	t.Parallel()
	p := aState{run: true, orders: "a finish", budget: []string{"--max-unknown", "0"}}.made(t)
	out, code := p.sh("deepwork run resume latest")
	testkit.Equal(t, code, 1, "%s", out)
	testkit.Contains(t, out, "--max-unknown 10")
	testkit.Equal(t, p.status().State, "paused")
}
