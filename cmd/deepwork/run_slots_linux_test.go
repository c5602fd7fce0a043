package main

import (
	"fmt"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
)

// manyRuns is how many runs go on at once on four slots: enough for each process to wait for the others.
const manyRuns = 14

// Many runs at once share the slots of the project, those of one server and of processes of their own. The
// first agents wait for each other, so that all slots are in use at once, on a machine of any speed.
func TestRunManyOnFourSlots(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "attempts: {max_concurrent: 4}\n", runJob("NAME", "a", "a outputs: {}")).inGit()
	p.plan("a:1 await all", "a:2 await all", "a:3 await all", "a:4 await all", "* finish")
	const alone = 5
	var all []*runProcess
	for range alone {
		all = append(all, p.begin())
	}
	client, _ := startClient(t, p.root, "--toolsets", "board,workflows")
	var led []string
	for n := range manyRuns - alone {
		led = append(led, startRun(t, client, map[string]any{"job_name": "job0", "workflow_name": "w", "goal": fmt.Sprintf("The part %d", n), "executor": "STEPPER"}))
	}
	p.awaits("a", 4)
	p.touch("all")
	for _, r := range all {
		r.exits(0)
	}
	for _, id := range led {
		awaitRun(t, client, id)
	}
	n := p.most()
	testkit.True(t, n == 4, "%d agents at once, want 4", n)
	if n := len(p.recorded("begin", "")); n != manyRuns {
		t.Errorf("%d agents for %d runs", n, manyRuns)
	}
	p.clean()
}

// startRun calls run_workflow and returns the id of the run.
func startRun(t testing.TB, client *mcp.ClientSession, args map[string]any) string {
	t.Helper()
	r, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "run_workflow", Arguments: args})
	testkit.Need(t, err == nil && !r.IsError, "%v %v", err, r)
	return r.StructuredContent.(map[string]any)["run_id"].(string)
}

// awaitRun waits until a run is completed.
func awaitRun(t testing.TB, client *mcp.ClientSession, id string) {
	t.Helper()
	testkit.Eventually(t, func() string {
		r, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "get_run", Arguments: map[string]any{"run_id": id}})
		testkit.Need(t, err == nil && !r.IsError, "%v %v", err, r)
		if now := r.StructuredContent.(map[string]any); now["state"] != "completed" {
			return fmt.Sprintf("the run %s is %v: %v", id, now["state"], now["reason"])
		}
		return ""
	})
}

// A process leads its own run alone: another one whose leader was killed is not taken up by a process that
// ends, with its agents, before that run does.
func TestRunLeadsNoOtherRun(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", runJob("NAME", "a, c, d, e, f", "a", "c", "d", "e", "f"), runJob("NAME", "b", "b"))
	p.plan("a await go", "a finish", "b:1 await never", "* finish")
	r := p.begin()
	p.awaits("a", 1)
	other := p.start("job1/w", "--goal", "The other one", "--executor", "STEPPER", "--json")
	p.awaits("b", 1)
	must(t, other.cmd.Process.Kill())
	_ = other.cmd.Wait()
	p.touch("go")
	r.exits(0)
	n := len(p.recorded("begin", "b"))
	testkit.True(t, n == 1, "%d agents of the other run have begun", n)
	p.resume().exits(0)
	if n := len(p.recorded("begin", "b")); n != 2 {
		t.Errorf("%d agents of the other run have begun after it was resumed", n)
	}
	p.clean()
}
