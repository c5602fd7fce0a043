package workflow

import (
	"fmt"
	"testing"

	"deepwork/session/workflow/machine"
)

func TestDefinitionsOfAJobEditedAllDayAreForgotten(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	srv := p.open()
	srv.definitions.MaxKnown = 3
	first := srv.Connect("local")
	p.start(first, "alpha", "main")
	for i := range 10 {
		p.write(".deepwork/jobs/alpha/steps/two.md", fmt.Sprintf("Do two, in way %d.\n", i))
		c := srv.Connect("local")
		p.start(c, "alpha", "main")
		c.Close()
	}
	// A session whose definition is forgotten goes on.
	if r := p.finish(first, `{"outputs":{"report":"r.md"}}`); r.BeginStep == nil || r.BeginStep.Instructions != "Do two, in way 9.\n" {
		t.Errorf("reply %s", toJSON(t, r))
	}
	if r := p.finish(first, `{"outputs":{"report":"r.md"}}`); r.Status != machine.WorkflowComplete {
		t.Errorf("reply %s", toJSON(t, r))
	}
}
