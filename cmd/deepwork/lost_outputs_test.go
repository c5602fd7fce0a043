package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session/workflow/machine"
)

// Outputs of earlier steps that no longer exist when the workflow ends are named in the summary, and
// a repeated call gets the same reply. The last step's own output is checked by the call itself.
func TestLostOutputsAreNamedInTheSummary(t *testing.T) {
	root := t.TempDir()
	writeFiles(t, root, map[string]string{
		".deepwork/jobs/trip/job.yml": strings.ReplaceAll(jobText("trip", "one", "two", "three"), "outputs: {}", "outputs: {out: {type: file, description: A}}"), "kept.md": "x", "gone.md": "x", "away.md": "x",
		".deepwork/jobs/trip/a.md": "Do it.\n",
	})
	client, _ := startClient(t, root)
	var began machine.StartReply
	must(t, json.Unmarshal(callTool(t, client, "start_workflow", map[string]any{"goal": "g", "job_name": "trip", "workflow_name": "w"}), &began))
	finishAt := func(server *mcp.ClientSession, step, path string) (r *machine.FinishReply) {
		t.Helper()
		must(t, json.Unmarshal(callTool(t, server, "finished_step", map[string]any{
			"session_id": began.BeginStep.SessionID, "step_id": step, "outputs": map[string]string{"out": path}}), &r))
		return r
	}
	finish := func(step, path string) *machine.FinishReply { return finishAt(client, step, path) }
	finish("one", "gone.md")
	other, _ := startClient(t, root) // any server serves the session
	finishAt(other, "two", "away.md")

	outside := filepath.Join(t.TempDir(), "away.md")
	must(t, os.Rename(filepath.Join(root, "away.md"), outside))
	if err := os.Symlink(outside, filepath.Join(root, "away.md")); err != nil {
		t.Skip(err)
	}
	must(t, os.Remove(filepath.Join(root, "gone.md")))
	last := finish("three", "kept.md")
	if last.Status != machine.WorkflowComplete || last.Summary == nil {
		t.Fatalf("the last step: %+v", last)
	}
	for _, w := range []string{"'gone.md' (output 'out' of step 'one')", "'away.md' (output 'out' of step 'two')"} {
		if !strings.Contains(*last.Summary, w) {
			t.Errorf("the summary does not name %s: %s", w, *last.Summary)
		}
	}
	if strings.Contains(*last.Summary, "kept.md") {
		t.Errorf("the summary names a file that exists: %s", *last.Summary)
	}
	writeFiles(t, root, map[string]string{"gone.md": "back"})
	if again := finish("three", "kept.md"); *again.Summary != *last.Summary {
		t.Errorf("the repeated call got another summary: %s", *again.Summary)
	}
}
