package workflow

import (
	"testing"

	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// A command that is applied twice, since its first write was overtaken, has the effect of one.
func TestACommandAppliedTwiceHasOneEffect(t *testing.T) {
	p := newProject(t)
	p.reviewedJob()
	srv, rev := p.reviewed()
	disk := srv.makeFaulty()
	disk.twice.Store(true)
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	if r := p.finish(c, `{"outputs":{"report":"bad.md"}}`); r.Status != machine.NeedsWork {
		t.Errorf("reply %s", toJSON(t, r))
	}
	if r := p.finish(c, `{"outputs":{"report":"good.md"}}`); r.Status != machine.NextStep {
		t.Errorf("reply %s", toJSON(t, r))
	}
	if _, err := c.GoTo(ctx, GoToArgs{StepID: "one"}); err != nil {
		t.Error(err)
	}
	if _, err := c.Abort(ctx, AbortArgs{Explanation: "x"}); err != nil {
		t.Error(err)
	}
	s := p.record(id)
	if rev.calls() != 2 || len(s.History) != 1 || s.Status != machine.Aborted || disk.overtaken.Load() < 8 {
		t.Errorf("%d reviews, %d writes, record %s", rev.calls(), disk.overtaken.Load(), toJSON(t, s))
	}
}

// A call that names no step is about the step that is current when it arrives, also at a server that last saw
// the session at an earlier one, whose outputs have reviews, too.
func TestACallIsAboutTheStepThatIsCurrentAsItArrives(t *testing.T) {
	p := newProject(t)
	p.reviewedJob()
	p.write("better.md", "CONTENT OF better.md")
	p.job("alpha", []testStep{{id: "one", outputs: oneFile, reviews: reviewedStep}, {id: "two", outputs: oneFile, reviews: reviewedStep}},
		map[string]string{"main": "[one, two]"})
	first, rev := p.reviewed()
	second := p.reopen(rev).Connect("local")
	c := first.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	call := `{"outputs":{"report":"good.md"},"session_id":"` + id + `"}`
	look := func() {
		t.Helper()
		if _, err := second.Step(ctx, StepArgs{SessionID: &id}); err != nil {
			t.Fatal(err)
		}
	}
	look()
	p.finish(c, call)
	if r := p.finish(second, `{"outputs":{"report":"better.md"},"session_id":"`+id+`"}`); r.Status != machine.WorkflowComplete {
		t.Errorf("reply %s", toJSON(t, r))
	}
	if _, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"better.md"},"session_id":"`+id+`"}`)); session.CodeOf(err) != "session_ended" {
		t.Errorf("a call after the end got %v", err)
	}
}
