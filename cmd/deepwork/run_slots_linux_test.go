package main

import (
	"fmt"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
)

// Many runs at once share the slots of the project, those of one server and of processes of their own.
func TestRunManyOnFourSlots(t *testing.T) {
	p := newRunProject(t, "attempts: {max_concurrent: 4}\n", runJob("NAME", "a", "a outputs: {}")).inGit()
	const alone = 8
	var all []*runProcess
	for range alone {
		all = append(all, p.begin())
	}
	client, _ := startClient(t, p.root, "--toolsets", "board,workflows")
	var led []string
	for n := range manyAttempts - alone {
		led = append(led, startRun(t, client, map[string]any{"job_name": "job0", "workflow_name": "w", "goal": fmt.Sprintf("The part %d", n), "executor": "STEPPER"}))
	}
	for _, r := range all {
		r.exits(0)
	}
	for _, id := range led {
		awaitRun(t, client, id)
	}
	if n := p.most(); n > 4 || n < 2 {
		t.Errorf("%d agents at once", n)
	}
	if n := len(p.recorded("begin", "")); n != manyAttempts {
		t.Errorf("%d agents for %d runs", n, manyAttempts)
	}
	p.clean()
}

// startRun calls run_workflow and returns the id of the run.
func startRun(t testing.TB, client *mcp.ClientSession, args map[string]any) string {
	t.Helper()
	r, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "run_workflow", Arguments: args})
	if err != nil || r.IsError {
		t.Fatal(err, r)
	}
	return r.StructuredContent.(map[string]any)["run_id"].(string)
}

// awaitRun waits until a run is complete.
func awaitRun(t testing.TB, client *mcp.ClientSession, id string) {
	t.Helper()
	testkit.Eventually(t, func() string {
		r, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "get_run", Arguments: map[string]any{"run_id": id}})
		if err != nil || r.IsError {
			t.Fatal(err, r)
		}
		if now := r.StructuredContent.(map[string]any); now["state"] != "complete" {
			return fmt.Sprintf("the run %s is %v: %v", id, now["state"], now["reason"])
		}
		return ""
	})
}
