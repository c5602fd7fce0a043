package job

import (
	"strings"
	"testing"
)

// An input that names no output of its step is a warning that says which one was probably meant.
func TestField26_InputsOfUnknownOutputs(t *testing.T) {
	text := "name: notes\nversion: \"1.0.0\"\nsummary: S\ncommon_job_info_provided_to_all_steps_at_runtime: I\nworkflows: [{name: w, summary: S, steps: [a, b]}]\nsteps:\n" +
		"  - {id: a, name: A, description: D, instructions_file: a.md, outputs: {facts: {type: file, description: D}}, reviews: []}\n" +
		"  - {id: b, name: B, description: D, instructions_file: a.md, dependencies: [a], inputs: [{file: FILE, from_step: a}], outputs: {}, reviews: []}\n"
	for file, want := range map[string]string{"fact": "did you mean facts?", "facts": ""} {
		j, faults := Parse("", "job.yml", []byte(strings.ReplaceAll(text, "FILE", file)))
		if faults != nil {
			t.Fatal(faults)
		}
		if said := Diagnostics(j.Warnings).Error(); (want == "") != (len(j.Warnings) == 0) || !strings.Contains(said, want) {
			t.Errorf("%s: %q, want %q", file, said, want)
		}
	}
}
