package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// inputsJob has a step with inputs from the user and from two steps, which a group
// precedes.
const inputsJob = `name: notes
version: "1.0.0"
summary: "Release notes"
common_job_info_provided_to_all_steps_at_runtime: "Readers are users."
workflows: [{name: write, summary: "From commits to notes", steps: [[collect, ask], draft]}]
steps:
  - id: collect
    name: Collect
    description: Collects the changes
    instructions_file: collect.md
    outputs:
      changes: {type: file, description: "One row per change"}
      sources: {type: files, description: "What was read", required: false}
      extra: {type: file, description: "More", required: false}
    reviews: []
  - id: ask
    name: Ask
    description: Asks the user
    instructions_file: ask.md
    outputs: {}
    reviews: []
  - id: draft
    name: Draft
    description: Drafts the notes
    instructions_file: draft.md
    dependencies: [collect]
    inputs:
      - {name: tone, description: "How to say it"}
      - {file: changes, from_step: collect}
      - {file: sources, from_step: collect}
      - {file: extra, from_step: collect}
    outputs:
      notes: {type: file, description: "The notes"}
    reviews:
      - run_each: step
        quality_criteria: {complete: "Is every change of changes.md in the notes?"}
`

// notesProject is a project with inputsJob and its files.
func notesProject(t *testing.T) string {
	root := t.TempDir()
	writeFiles(t, root, map[string]string{
		".deepwork/jobs/notes/job.yml": inputsJob, ".deepwork/jobs/notes/collect.md": "Collect the changes.\n",
		".deepwork/jobs/notes/ask.md": "Ask the user.\n", ".deepwork/jobs/notes/draft.md": "Draft the notes.\n",
		"docs/changes.md": "| 1 | faster |\n", "src/a.md": "a\n", "src/b.md": "b\n", "docs/notes.md": "Faster.\n",
	})
	return root
}

// toDraft leads a session of inputsJob to its last step, and returns the session's id
// and the last reply.
func toDraft(t *testing.T, client *mcp.ClientSession) (string, json.RawMessage) {
	started := callTool(t, client, "start_workflow", map[string]any{"goal": "Notes", "job_name": "notes", "workflow_name": "write", "instance_id": "x"})
	id := strings.Trim(string(lookup(started, "begin_step.session_id")), `"`)
	if got := string(lookup(started, "begin_step.step_inputs")); got != "[]" {
		t.Errorf("the first step has inputs: %s", got)
	}
	callTool(t, client, "finished_step", map[string]any{"session_id": id, "step_id": "ask", "outputs": map[string]any{}})
	return id, callTool(t, client, "finished_step", map[string]any{"session_id": id, "step_id": "collect",
		"outputs": map[string]any{"sources": []string{"src/a.md", "src/b.md"}, "changes": "docs/changes.md"}})
}

const draftInputs = `[{"name":"tone","description":"How to say it"},` +
	`{"name":"changes","description":"One row per change","from_step":"collect","paths":["docs/changes.md"]},` +
	`{"name":"sources","description":"What was read","from_step":"collect","paths":["src/a.md","src/b.md"]},` +
	`{"name":"extra","description":"More","from_step":"collect","paths":[]}]`

// A step's inputs arrive with their descriptions, source steps and actual paths;
// get_step has them too, and the completed steps with their files.
func TestAStepHasItsInputs(t *testing.T) {
	client, _ := startClient(t, notesProject(t))
	id, reply := toDraft(t, client)
	if got := string(lookup(reply, "begin_step.step_inputs")); got != draftInputs {
		t.Errorf("finished_step: step_inputs is\n%s\nwant\n%s", got, draftInputs)
	}
	reply = callTool(t, client, "get_step", map[string]any{"session_id": id})
	if got := string(lookup(reply, "begin_step.step_inputs")); got != draftInputs {
		t.Errorf("get_step: step_inputs is\n%s\nwant\n%s", got, draftInputs)
	}
	const want = `[{"step_id":"collect","outputs":{"changes":"docs/changes.md","sources":["src/a.md","src/b.md"]}},{"step_id":"ask","outputs":{}}]`
	if got := string(lookup(reply, "completed_steps")); got != want {
		t.Errorf("completed_steps is\n%s\nwant\n%s", got, want)
	}
}

// get_step shows instructions as they are now, as its description says.
func TestGetStepShowsInstructionsAsTheyAreNow(t *testing.T) {
	root := notesProject(t)
	client, _ := startClient(t, root)
	toDraft(t, client)
	writeFiles(t, root, map[string]string{".deepwork/jobs/notes/draft.md": "Draft them better.\n"})
	if got := string(lookup(callTool(t, client, "get_step", map[string]any{}), "begin_step.step_instructions")); got != `"Draft them better.\n"` {
		t.Errorf("step_instructions is %s", got)
	}
	for tool, err := range client.Tools(t.Context(), nil) {
		must(t, err)
		if tool.Name == "get_step" && !strings.Contains(tool.Description, "as they are now") {
			t.Errorf("get_step says: %s", tool.Description)
		}
	}
}
