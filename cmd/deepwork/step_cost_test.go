package main

import (
	"encoding/json"
	"strings"
	"testing"
)

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
				if texts[v]++; strings.Contains(v, " ") && texts[v] == 2 && !strings.HasSuffix(v, "?") {
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
