package workflow

import (
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/gate"
	"deepwork/session/workflow/machine"
)

// A reviewer gets the inputs of the step as paths; the verdict is given for the
// outputs alone.
func TestASubmissionHasTheInputsForReference(t *testing.T) {
	p := newProject(t)
	p.job("alpha", []testStep{{id: "one", outputs: oneFile}, {id: "two", outputs: oneFile + "\n    dependencies: [one]\n    inputs: [{file: report, from_step: one}, {name: n, description: d}]", reviews: reviewedStep}},
		map[string]string{"main": "[one, two]"})
	p.write("in.md", "in")
	p.write("out.md", "out")
	srv := p.open()
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	p.finish(c, `{"outputs":{"report":"in.md"}}`)
	s := p.record(id)
	def, err := srv.definitions.Current(ctx, s, "")
	testkit.Must(t, err)
	st := def.Job.Step("two")
	a := &sessionActor{id: id, state: s, engine: srv.Engine}
	sub := a.submission(&candidate{m: &finishCall{}, def: def, plan: &machine.Plan{Step: st}, outputs: machine.Outputs{{Key: "report", Value: machine.OutputValue{Paths: []string{"out.md"}}}}})
	if len(sub.Inputs) != 1 || strings.Join(sub.Inputs[0].Paths, " ") != "in.md" || sub.Inputs[0].FromStep != "one" {
		t.Fatalf("inputs %+v", sub.Inputs)
	}
	hashes := map[string]string{"out.md": "1"}
	with := contentDigest(nil, gate.Plan(sub, hashes))
	if sub.Inputs = nil; contentDigest(nil, gate.Plan(sub, hashes)) != with {
		t.Error("the digest of the outputs depends on the inputs")
	}
}
