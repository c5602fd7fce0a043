package machine

import (
	"encoding/json"
	"testing"
)

// Whatever the file of a kept definition holds, what is taken from it is a workflow
// whose steps can be described, or refused with words.
func FuzzKeptDefinition(f *testing.F) {
	const source = "name: alpha\nversion: \"1.0.0\"\nsummary: s\ncommon_job_info_provided_to_all_steps_at_runtime: c\nsteps:\n  - {id: a, name: n, description: d, instructions_file: a.md, outputs: {}, reviews: []}\nworkflows:\n  - {name: main, summary: s, steps: [a]}\n"
	for _, b := range []Bundle{
		{JobDir: "/job", Source: source, Workflow: "main", Instructions: Instructions{"a": "Do it."}},
		{JobDir: "/job", Source: source, Workflow: "main"},
		{JobDir: "/job", Source: source, Workflow: "other"},
		{Source: "name: alpha"},
	} {
		data, err := json.Marshal(b)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, data []byte) {
		def, err := DecodeBundle(DefinitionRef{Hash: "h"}, data)
		if err != nil {
			return
		}
		if def.Job == nil || def.Workflow == nil || !def.Kept {
			t.Fatalf("%+v", def)
		}
		for _, entry := range def.Workflow.Entries {
			texts, err := def.KeptTexts(entry)
			if err == nil && len(texts) != len(entry) {
				t.Errorf("%d texts of %v", len(texts), entry)
			}
			for _, id := range entry {
				if def.Job.Step(id) == nil {
					t.Errorf("there is no step %q", id)
				}
			}
		}
	})
}
