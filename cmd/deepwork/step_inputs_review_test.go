package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The file of a self-review names the inputs of the step apart from its outputs, so
// that a criterion which compares them can be judged; it still closes the step for
// exactly these outputs, whatever becomes of an input.
func TestASelfReviewHasTheInputs(t *testing.T) {
	root := notesProject(t)
	client, _ := startClient(t, root)
	id, _ := toDraft(t, client)
	outputs := map[string]any{"notes": "docs/notes.md"}
	callTool(t, client, "finished_step", map[string]any{"session_id": id, "step_id": "draft", "outputs": outputs})
	data, err := os.ReadFile(filepath.Join(root, ".deepwork", "tmp", "quality_review_"+id+"_draft.md"))
	must(t, err)
	text := string(data)
	_, inputs, ok := strings.Cut(text, "## Inputs (for reference; judge only the outputs)\n")
	inputs, judged, both := strings.Cut(inputs, "## Outputs\n")
	if !ok || !both {
		t.Fatalf("no inputs before the outputs in\n%s", text)
	}
	for _, want := range []string{"- `changes`, from step `collect`: One row per change\n  - `docs/changes.md`\n", "  - `src/a.md`\n  - `src/b.md`\n", "- `extra`, from step `collect`: More\n  - (no file was submitted)\n"} {
		if !strings.Contains(inputs, want) {
			t.Errorf("the inputs lack %q:\n%s", want, inputs)
		}
	}
	if strings.Contains(inputs, "notes.md") || strings.Contains(inputs, "tone") || strings.Contains(judged, "docs/changes.md") {
		t.Errorf("inputs and outputs are mixed:\n%s", text)
	}
	writeFiles(t, root, map[string]string{"docs/changes.md": "| 2 | slower |\n"})
	callTool(t, client, "finished_step", map[string]any{"session_id": id, "step_id": "draft", "outputs": outputs, "quality_review_override_reason": "passed"})
	record, err := os.ReadFile(filepath.Join(root, ".deepwork", "tmp", "session_"+id+".json"))
	if err != nil || !strings.Contains(string(record), `"kind": "self"`) {
		t.Errorf("the evidence is not that of a self-review: %v\n%s", err, record)
	}
}
