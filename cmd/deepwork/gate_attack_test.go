package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
)

// The four ways around a review for an agent that may edit files in the project, with the default
// config and with one of the user's that closes them: one sentence, an edit of the config, of the job,
// and of the session's file.
func TestFourWaysAroundAReview(t *testing.T) {
	const sentence = "quality_review_override_reason"
	for _, strict := range []bool{false, true} {
		for way, test := range map[string]struct {
			file, text     string // the edit
			reason         bool   // the call gives one
			open, closed   string // what the call gives by default, and with the user's config
			evidence, edit string // that are recorded by default
		}{
			"one sentence": {"", "", true, "workflow_complete", "override_needs_person", "overridden by the agent, without a review", ""},
			"config":       {".deepwork/config.yml", "quality_gate: {override: agent}\n", true, "workflow_complete", "override_needs_person", "overridden by the agent, without a review", `the reviewer was ["reviewer","task.txt"], and is self`},
			"reviewer":     {".deepwork/config.yml", "quality_gate: {agent_review_command: reviewer other.txt}\n", false, "needs_work", "needs_work", "", ""},
			"job":          {".deepwork/jobs/one/job.yml", reviewedJob("one", "[]", "a"), false, "workflow_complete", "needs_work", "", "review of step: it is gone"},
			"export":       {"session", "", false, "needs_work", "needs_work", "", ""},
		} {
			t.Run(fmt.Sprintf("%s/strict=%t", way, strict), func(t *testing.T) {
				root := t.TempDir()
				users := fmt.Sprintf("trusted_folders: [%q]\n", root)
				if strict {
					users += "quality_gate: {override: human, pin: true}\n"
				}
				ownUser(t, users)
				writeFiles(t, root, map[string]string{
					".deepwork/config.yml":       "quality_gate: {agent_review_command: reviewer task.txt}\n",
					".deepwork/jobs/one/job.yml": reviewedJob("one", isItGood, "a"),
					".deepwork/jobs/one/a.md":    "Do it.\n",
					"bad.txt":                    "this one is bad\n",
				})
				client, _ := startClient(t, root)
				id := beginSession(t, client, "one", "Get around it")
				switch test.file {
				case "":
				case "session":
					must(t, client.Close())
					file := sessionFile(root, id)
					text := testkit.Get(os.ReadFile(file)).Must(t)
					edited := strings.Replace(string(text), `"pin": `+fmt.Sprint(strict), `"pin": false`, 1)
					edited = strings.Replace(edited, `"Get around it"`, `"Got around it"`, 1)
					must(t, os.WriteFile(file, []byte(edited), 0o600))
					client, _ = startClient(t, root)
				default:
					writeFiles(t, root, map[string]string{test.file: test.text})
				}
				args := map[string]any{"outputs": map[string]any{"out": "bad.txt"}, "session_id": id}
				if test.reason {
					args[sentence] = "It is fine"
				}
				r := testkit.Get(client.CallTool(t.Context(), &mcp.CallToolParams{Name: "finished_step", Arguments: args})).Must(t)
				got := cmp.Or(codeOf(r), strings.Trim(string(lookup([]byte(resultText(r)), "status")), `"`))
				want := test.open
				if strict {
					want = test.closed
				}
				if got != want {
					t.Fatalf("it gives %q, want %q: %s", got, want, resultText(r))
				}
				if strict || test.file == "session" {
					testkit.Fails(t, testkit.Get(os.Stat(filepath.Join(root, "other.txt"))).Err(), "", "another reviewer ran than the one that the session began with")
					return
				}
				if shown := mustPrint(t, root, "sessions", "show", id); !strings.Contains(shown, test.evidence) || !strings.Contains(shown, test.edit) {
					t.Errorf("it does not show %q and %q: %s", test.evidence, test.edit, shown)
				}
			})
		}
	}
}

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
		if flags == nil && !strings.Contains(shown, "evidence: not reviewed, because the server ran without reviews") {
			t.Errorf("the evidence: %s", shown)
		}
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

const draftInputs = `[{"name":"tone","description":"How to say it"},` +
	`{"name":"changes","description":"One row per change","from_step":"collect","paths":["docs/changes.md"]},` +
	`{"name":"sources","description":"What was read","from_step":"collect","paths":["src/a.md","src/b.md"]},` +
	`{"name":"extra","description":"More","from_step":"collect","paths":[]}]`

// A step's inputs arrive with their descriptions, source steps and actual paths;
// get_step has them too, and the completed steps with their files.
func TestAStepHasItsInputs(t *testing.T) {
	client, _ := startClient(t, notesProject(t))
	id, reply := toDraft(t, client)
	testkit.Equal(t, string(lookup(reply, "begin_step.step_inputs")), draftInputs, "finished_step: step_inputs")
	reply = callTool(t, client, "get_step", map[string]any{"session_id": id})
	testkit.Equal(t, string(lookup(reply, "begin_step.step_inputs")), draftInputs, "get_step: step_inputs")
	const want = `[{"step_id":"collect","outputs":{"changes":"docs/changes.md","sources":["src/a.md","src/b.md"]}},{"step_id":"ask","outputs":{}}]`
	testkit.Equal(t, string(lookup(reply, "completed_steps")), want, "completed_steps")
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
		if most := 600 + 100*parts; frame > most {
			t.Errorf("%s: the frame has %d characters, and may have %d:\n%s", name, frame, most, reply)
		}
	}
}
