package machine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
)

// However many files earlier steps submitted, a reply lists a bounded number, and says
// how many it leaves out.
func TestTheFilesOfEarlierStepsAreBounded(t *testing.T) {
	j, faults := job.Parse(t.TempDir(), "job.yml", []byte(`name: j
version: "1.0.0"
summary: J
common_job_info_provided_to_all_steps_at_runtime: c
workflows: [{name: w, summary: W, steps: [a, b]}]
steps:
  - {id: a, name: A, description: A, instructions_file: a.md, outputs: {many: {type: files, description: m}, one: {type: file, description: o}}, reviews: []}
  - {id: b, name: B, description: B, instructions_file: b.md, dependencies: [a], inputs: [{file: many, from_step: a}, {file: one, from_step: a}, {file: other.md, from_step: a}], outputs: {}, reviews: []}
`))
	if j == nil {
		t.Fatal(faults)
	}
	var paths []string
	for i := range 1000 {
		paths = append(paths, fmt.Sprintf("%05d/%s", i, strings.Repeat("x", 94)))
	}
	at := time.Now()
	s := &State{StepProgress: jsontext.OrderedMap[*StepProgress]{{Key: "a", Value: &StepProgress{StepID: "a", CompletedAt: &at,
		Outputs: Outputs{{Key: "many", Value: OutputValue{paths, true}}, {Key: "one", Value: OutputValue{[]string{strings.Repeat("y", 100)}, false}}}}}}}
	def := &Definition{Job: j, Workflow: &j.Workflows[0]}
	const fit = listedBytes / 100
	in := s.Inputs(def, j.Step("b"))
	if len(in[0].Paths) != fit || in[0].Omitted != 1000-fit || len(in[1].Paths) != 0 || in[1].Omitted != 1 || in[2].Omitted != 1001 {
		t.Errorf("inputs %d+%d, %d+%d, %d", len(in[0].Paths), in[0].Omitted, len(in[1].Paths), in[1].Omitted, in[2].Omitted)
	}
	done := s.CompletedSteps(def)
	if len(done) != 1 || len(done[0].Outputs) != 1 || len(done[0].Outputs[0].Value.Paths) != fit || done[0].Omitted != 1001-fit {
		t.Errorf("completed %+v", done)
	}
	// A file that is no declared output means all files of its step.
	s.StepProgress[0].Value.Outputs = Outputs{{Key: "one", Value: OutputValue{[]string{"o.md"}, false}}}
	if in = s.Inputs(def, j.Step("b")); fmt.Sprint(in[2].Paths, in[1].Paths, in[0].Paths) != "[o.md] [o.md] []" {
		t.Errorf("inputs %+v", in)
	}
}
