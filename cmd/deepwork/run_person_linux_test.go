package main

import (
	"fmt"
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
func (p *runProject) waits(step string, since string) (now *board.RunReply) {
	p.t.Helper()
	p.awaits(step, 1)
	eventually(p.t, func() (bool, any) {
		now = p.status()
		is := slices.ContainsFunc(now.Waits, func(w board.RunWaits) bool {
			return w.StepID == step && w.Since != since
		})
		return is && now.State == "waiting_for_you",
			fmt.Sprintf("it is %s (%s), and waits for %+v", now.State, optional(now.Reason), now.Waits)
	})
	return now
}

// review answers as a person at a terminal.
func (p *runProject) review(now *board.RunReply, answer string) {
	p.t.Helper()
	words := strings.Fields(*now.Waits[0].Command)
	testkit.True(p.t, len(words) == 5 && strings.Join(words[:3], " ") == "deepwork sessions review",
		"the command is %s", *now.Waits[0].Command)

	then := "The run goes on automatically."
	if !p.status().State.Open() {
		then = "to go on: deepwork run resume "
	}
	types(p.t, true, answer, append(words, "--path", p.root), then)
}

// A step that a person has to pass holds no slot and no process. What they fail goes back to its agent, what
// they pass the leader finishes, also one that comes after a crash; nobody else can.
func TestRunStepForAPerson(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\nattempts: {max_concurrent: 1}\n",
		runJob("NAME", "[a, b], c", "a"+byHuman, "b", "c")).inGit()
	p.plan("a:1 "+talk, `a:1 write a.md one`,
		`a:1 call finished_step {"outputs":{"text":"a.md"},"quality_review_override_reason":"I am sure"}`,
		"a:1 run deepwork sessions review $DEEPWORK_SESSION_ID a --path "+p.root,
		"a:1 run deepwork sessions override $DEEPWORK_SESSION_ID a --reason sure --path "+p.root,
		"a:2 "+talk, "a:2 write a.md two", "a:2 finish")
	r := p.begin()
	now := p.waits("a", "")
	testkit.ContainsAll(t, p.recorded("finished_step", "a")[0].Text,
		[]string{"Waiting: a person must decide about these outputs", "end now"})

	all := p.recorded("run", "a")
	testkit.Equal(t, len(all), 2, "what the agent tried")
	for _, tried := range all {
		testkit.True(t, strings.Contains(tried.Text, "an agent of deepwork started this shell"),
			"the agent itself is answered: %s", tried.Text)
	}

	w := now.Waits[0]
	testkit.Need(t, len(now.Waits) == 1, "%+v", now)
	testkit.Equal(t, w.For, "person")
	testkit.Need(t, w.Until == nil, "%+v", now)
	testkit.Need(t, now.Reason != nil, "%+v", now)
	testkit.Contains(t, *now.Reason, *w.Command)
	testkit.Equal(t, len(p.begun("")), 2, "agents")
	p.review(now, "fail Say more")
	second := p.waits("a", now.Waits[0].Since)
	begun := p.begun("a")
	testkit.True(t, len(begun) == 2 && fmt.Sprint(begun[1].Args) == "[resumed talk-a]", "%+v", begun)
	testkit.ContainsAll(t, begun[1].Prompt, []string{"Say more", "a person looked at its outputs"})
	testkit.Contains(t, mustPrint(t, p.root, "run", "status", "latest"), *second.Waits[0].Command)
	testkit.Contains(t, mustPrint(t, p.root, "board"), "step_waits")

	waiting := func() (all []runEvent) {
		for _, e := range r.events() {
			if e.Event == "step_waiting" {
				all = append(all, e)
			}
		}
		return all
	}

	// the leader prints what is on the board a little later
	eventually(t, func() (bool, any) { return len(waiting()) >= 2, &r.out })
	r.kill()
	for i, e := range waiting() {
		testkit.True(t, i <= 1, "%+v", e)
		testkit.Need(t, e.Command != nil, "%+v", e)
		testkit.Equal(t, *e.StepID, "a")
		testkit.Equal(t, e.State, "waiting_for_you")
	}

	p.review(second, "pass Good")
	p.resume().exits(0)
	testkit.True(t, strings.HasSuffix(p.steps(), " c") && len(p.begun("")) == 4, "the steps were begun as %s",
		p.steps())

	shown := mustPrint(t, p.root, "sessions", "show", *now.SessionID)
	testkit.True(t, strings.Contains(shown, "evidence: passed by a person, who reviewed these outputs") &&
		!strings.Contains(shown, "I am sure"), "%s", shown)
	now = p.status()
	testkit.True(t, now.State == "completed" && len(now.Waits) == 0, "%+v", now)
	p.clean()
}

// Outputs that change after they were handed in cannot be passed: the agent hands them in again.
func TestRunOutputsForAPersonThatChange(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "[a, b], c", "a"+byHuman, "b", "c"))
	p.plan("b await go", "b write a.md swapped", "b finish")
	r := p.begin()
	p.awaits("b", 1)
	eventually(t, func() (bool, any) { return len(p.status().Waits) == 1, "a waits for nobody" })
	first := p.status().Waits[0].Since
	p.touch("go")
	now := p.waits("a", first)
	begun := p.begun("a")
	testkit.True(t, len(begun) == 2 &&
		strings.Contains(begun[1].Prompt, "'a.md' changed after the outputs were handed in"), "%+v", begun)
	p.review(now, "pass")
	r.exits(0)
	p.clean()
}

// What a person did not pass is not shown to them again: an agent that hands in the same is told so and sent back.
func TestRunSameOutputsForAPersonAgain(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 1}\n", runJob("NAME", "a", "a"+byHuman))
	p.plan("a:5 write a.md more", "a finish")
	r := p.begin()
	now := p.waits("a", "")
	p.review(now, "fail Say more")
	testkit.Contains(t, optional(r.exits(1).Reason),
		"a person (local) did not pass its outputs, and the same ones were handed in again: Say more")
	r = p.resume()
	p.review(p.waits("a", now.Waits[0].Since), "pass")
	r.exits(0)
	for _, x := range p.begun("a")[1:] {
		testkit.Contains(t, x.Prompt, "Say more")
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
	decline := &mcp.ElicitResult{Action: "decline"}
	pass := &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "pass"}}
	r := p.begin()
	get := func(answer *mcp.ElicitResult, run string, want int32) {
		t.Helper()
		client := askedClient(t, p.root, func(message string) *mcp.ElicitResult {
			asked.Add(1)
			testkit.ContainsAll(t, message,
				[]string{"in " + p.status().Workspace + ":\n", "- a.md\n", "Would you sign it?"})
			return answer
		})
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
	begun := p.begun("a")
	testkit.True(t, len(begun) == 2 && strings.Contains(begun[1].Prompt, "Say more"), "%+v", begun)
	testkit.Equal(t, len(p.recorded("asked", "")), 0, "the agent was asked")
	p.clean()
}

// What waits for a person in a run is asked about within the time of one call, however much that is.
func TestRunAsksWithinTheTimeOfACall(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\nquality_gate: {reply_within: 500ms}\n",
		runJob("NAME", "[a, b]", "a"+byHuman, "b"+byHuman)).inGit()
	r := p.begin()
	p.awaits("b", 1)
	eventually(t, func() (bool, any) { return len(p.status().Waits) == 2, &r.out })
	var asked atomic.Int32
	client := askedClient(t, p.root, func(string) *mcp.ElicitResult {
		asked.Add(1)
		<-t.Context().Done()
		return &mcp.ElicitResult{Action: "cancel"}
	})
	callTool(t, client, "get_run", map[string]any{"run_id": p.status().RunID})
	testkit.Equal(t, asked.Load(), 1, "forms of a user who does not answer")

	for left := 2; left > 0; left-- {
		eventually(t, func() (bool, any) { return len(p.status().Waits) == left, &r.out })
		p.review(p.status(), "pass")
	}
	r.exits(0)
	p.clean()
}

// isolatedJob is a job whose items have worktrees of their own.
func isolatedJob(more string) string {
	return runJob("NAME", "list, {for_each: text, steps: [port, look], isolation: worktree"+more+"}, last",
		"list", "port outputs: {code: {type: file, description: C}}", "look outputs: {}", "last outputs: {}")
}

// items has the agents of items write a file each, and the same line of one that they share.
func (p *runProject) items(n int) {
	for i := range n {
		step := fmt.Sprintf("port[%d]", i)
		p.also(fmt.Sprintf("%s write out%d x", step, i), fmt.Sprintf("%s write same %d", step, i),
			fmt.Sprintf(`%s call finished_step {"outputs":{"code":"out%d"}}`, step, i))
	}
}

// merged checks how many merges the run's branch has, and what is in the file same there. No branch of an item is left.
func (p *runProject) merged(merges int, same string) {
	p.t.Helper()
	branch := *p.status().Branch
	made := testkit.Git(p.t, p.root, "log", "--first-parent", "--merges", "--format=%s", branch)
	testkit.Equal(p.t, len(strings.Split(made, "\n")), merges, "merges: %s", made)
	testkit.Equal(p.t, testkit.Git(p.t, p.root, "branch", "--list", branch+"-*"), "", "branches of items are left")
	testkit.Equal(p.t, strings.TrimSpace(testkit.Git(p.t, p.root, "show", branch+":same")), same)
}

// Each item of a run is done in a worktree of its own, and merged in the order of the items; an agent resolves a
// conflict, and what agents have not committed is not lost.
func TestRunItemsInWorktrees(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "attempts: {max_concurrent: 8}\n", isolatedJob("")).inGit()
	p.plan(`list write list.md ["a","b","c"]`, "list finish", "port[0] await second", "port[1] touch second",
		"port[2] write alone x",
		"merge:port[1] run cat same", "merge:port[1] write same both", "merge:port[1] run git commit -qam resolved",
		"merge:port[2] write same all", "merge:port[2] run git add same")
	p.items(3)
	p.begin().exits(0)
	p.merged(3, "all")
	files := testkit.Git(t, p.root, "ls-tree", "-r", "--name-only", *p.status().Branch)
	testkit.True(t, !strings.Contains(files, ".deepwork/tmp") && strings.Contains(files, "alone"),
		"the branch has the files:\n%s", files)

	folders := map[string]bool{p.begun("last")[0].Folder: true}
	for i := range 3 {
		port, look := p.begun(fmt.Sprintf("port[%d]", i))[0], p.begun(fmt.Sprintf("look[%d]", i))[0]
		folders[port.Folder] = true
		testkit.Equal(t, look.Folder, port.Folder)
		testkit.Contains(t, port.Prompt, `"project_root": "`+port.Folder+`"`)
	}
	testkit.Equal(t, len(folders), 4, "the steps were done in %v", folders)
	testkit.Contains(t, p.recorded("run", "merge:port[1]")[0].Text, "<<<<<<<")
	testkit.Equal(t, len(p.begun("merge:port[0]")), 0, "agents for a merge without conflicts")
	p.clean()
}

// Leaders that are killed while items are made, done and merged leave nothing that the next one does not find: each
// item is done and merged once.
func TestRunItemsLeaderKilled(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\nattempts: {max_concurrent: 8}\n", isolatedJob(", at_once: 2")).inGit()
	p.plan(`list write list.md ["a","b","c"]`, "list finish", "port[1]:1 touch begun", "port[1]:1 write same lost",
		"port[1]:1 await never", "last:1 touch last", "last:1 await never",
		"merge:port[1]:1 touch conflict", "merge:port[1]:1 await never")
	for i := 1; i < 3; i++ {
		p.also(fmt.Sprintf("merge:port[%d] write same %d", i, i), fmt.Sprintf("merge:port[%d] run git add same", i))
	}
	p.items(3)
	r := p.begin()
	for _, sign := range []string{"begun", "conflict", "last"} {
		p.appears(sign)
		r.kill()
		r = p.resume()
	}
	r.exits(0)
	// An agent whose reply was lost with the leader calls again, so calls are not counted: an item that is
	// finished twice would be merged twice.
	p.merged(3, "2")
	p.clean()
}

// A conflict that no agent resolves stops the run, which says where; a person resolves it there. The items behind it
// wait. The worktree of an item that a person drops goes with the rest, and its commits stay.
func TestRunItemsForAPerson(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\nattempts: {max_concurrent: 8}\n", isolatedJob("")).inGit()
	p.plan(`list write list.md ["a","b","c"]`, "list finish", "port[0] await second", "port[1] touch second",
		"port[2] exit 3", "merge:port[1]:1 exit 0")
	p.items(2)
	reason := optional(p.begin().exits(1).Reason)
	folder := p.begun("port[1]")[0].Folder
	testkit.ContainsAll(t, reason, []string{"there are conflicts", folder})
	testkit.Git(t, folder, "checkout", "-q", "--ours", "same")
	testkit.Git(t, folder, "commit", "-qam", "mine")

	types(t, true, "yes", []string{"deepwork", "sessions", "drop", *p.status().SessionID, "port[2]", "--reason",
		"obsolete", "--path", p.root})
	p.resume().exits(0)
	p.merged(2, "1")
	p.clean()
}

// A person says how a run goes on whose rounds are used up. It waits until then, and no agent is started in vain.
func TestRunRoundsAreUsedUp(t *testing.T) {
	t.Parallel()
	const rounds = "{repeat: {steps: [fix], until: {output: said, is: done}, at_most: 1}}"
	p := newRunProject(t, "", runJob("NAME", rounds+", end",
		"fix outputs: {said: {type: string, description: S}}", "end outputs: {}"))
	p.plan("fix "+talk, `fix call finished_step {"outputs":{"said":"no"}}`)
	r := p.begin()
	now := p.waits("fix", "")
	testkit.Equal(t, len(p.begun("fix")), 1, "agents")
	p.review(now, "more Look closer")
	now = p.waits("fix", now.Waits[0].Since)
	testkit.Need(t, len(p.begun("fix")) == 2, "agents: %s", p.steps())
	testkit.ContainsAll(t, p.begun("fix")[1].Prompt, []string{`"number": 2`, "asks for one more round. Look closer"})
	p.review(now, "go\nGood enough\r")
	r.exits(0)
	testkit.Equal(t, p.steps(), "fix fix end")
	testkit.Contains(t, mustPrint(t, p.root, "sessions", "show", *now.SessionID), "(skipped: rounds): Good enough")

	r = p.begin()
	now = p.waits("fix", now.Waits[0].Since)
	types(t, true, "stop It is hopeless", append(strings.Fields(*now.Waits[0].Command), "--path", p.root), "Stopped: ")
	end := r.exits(1)
	testkit.Contains(t, optional(end.Reason), "The workflow was aborted: It is hopeless")
	testkit.Equal(t, p.steps(), "fix fix end fix")
	p.clean()
}
