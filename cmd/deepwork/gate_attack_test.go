package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
)

// The user's own flag wins over a pin, and the session says that it did.
func TestNoQualityGateOverAPinIsRecorded(t *testing.T) {
	root := t.TempDir()
	ownUser(t, "quality_gate: {agent_review_command: reviewer task.txt, override: never, pin: true}\n")
	writeFiles(t, root, map[string]string{
		".deepwork/jobs/one/job.yml": strings.Replace(jobText("one", "a"), "reviews: []", "reviews: "+isItGood, 1),
		".deepwork/jobs/one/a.md":    "Do it.\n",
	})
	client, _ := startClient(t, root)
	id := beginSession(t, client, "one", "Pin it")
	must(t, client.Close())
	client, _ = startClient(t, root, "--no-quality-gate")
	r := callTool(t, client, "finished_step", map[string]any{"outputs": map[string]any{}, "session_id": id})
	testkit.Equal(t, string(lookup(r, "status")), `"workflow_complete"`, "the flag does not win: %s", r)
	for _, flags := range [][]string{nil, {"--json"}} {
		shown := mustPrint(t, root, append([]string{"sessions", "show", id}, flags...)...)
		testkit.ContainsAll(t, shown, []string{"weakened", "and is off"}, "%v", flags)
		testkit.True(t, flags != nil || strings.Contains(shown, "evidence: not reviewed, because the server ran without reviews"), "the evidence: %s", shown)
	}
}

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
	testkit.Equal(t, string(lookup(started, "begin_step.step_inputs")), "[]", "the first step has inputs")
	callTool(t, client, "finished_step", map[string]any{"session_id": id, "step_id": "ask", "outputs": map[string]any{}})
	return id, callTool(t, client, "finished_step", map[string]any{"session_id": id, "step_id": "collect",
		"outputs": map[string]any{"sources": []string{"src/a.md", "src/b.md"}, "changes": "docs/changes.md"}})
}

// Field names, nulls and punctuation of a step's reply have at most 600 characters,
// and 100 more per output or input; of two steps with the same text only the
// requirements' step_quality_criteria repeat one.
func TestTheFrameOfAStepsReplyIsSmall(t *testing.T) {
	client, _ := startClient(t, notesProject(t))
	started := callTool(t, client, "start_workflow", map[string]any{"goal": "Notes", "job_name": "notes", "workflow_name": "write", "instance_id": "x"})
	callTool(t, client, "abort_workflow", map[string]any{"explanation": "again"})
	id, next := toDraft(t, client)
	for name, reply := range map[string]json.RawMessage{
		"start_workflow": started, "finished_step": next, "get_step": callTool(t, client, "get_step", map[string]any{"session_id": id}),
	} {
		values, texts, parts := 0, map[string]int{}, 0
		var walk func(v any)
		walk = func(v any) {
			switch v := v.(type) {
			case string:
				encoded, _ := json.Marshal(v)
				values += len(encoded) - 2
				if texts[v]++; len(v) > len("1 of 2") && strings.Contains(v, " ") && texts[v] == 2 && !strings.HasSuffix(v, "?") {
					t.Errorf("%s repeats %q", name, v)
				}
			case []any:
				for _, e := range v {
					walk(e)
				}
			case map[string]any:
				for key, e := range v {
					if list, ok := e.([]any); ok && (key == "step_inputs" || key == "step_expected_outputs") {
						parts += len(list)
					}
					if files, ok := e.(map[string]any); ok && key == "outputs" {
						parts += len(files)
					}
					walk(e)
				}
			}
		}
		var decoded any
		must(t, json.Unmarshal(reply, &decoded))
		walk(decoded)
		frame := len(reply) - values
		t.Logf("%s: %d characters, %d of them frame, %d inputs and outputs", name, len(reply), frame, parts)
		most := 600 + 100*parts
		testkit.True(t, frame <= most, "%s: the frame has %d characters, and may have %d:\n%s", name, frame, most, reply)
	}
}
