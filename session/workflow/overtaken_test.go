package workflow

import (
	"sync/atomic"
	"testing"

	"deepwork/session/workflow/machine"
)

// A command that is applied twice, since its first write was overtaken, has the effect of one.
func TestACommandAppliedTwiceHasOneEffect(t *testing.T) {
	var n atomic.Int64
	overtaken = func() bool { return n.Add(1)%2 == 1 } // each first write
	defer func() { overtaken = func() bool { return false } }()
	p := newProject(t)
	p.reviewedJob()
	srv, rev := p.reviewed()
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
	if rev.calls() != 2 || len(s.History) != 1 || s.Status != machine.Aborted || n.Load() < 8 {
		t.Errorf("%d reviews, %d writes, record %s", rev.calls(), n.Load(), toJSON(t, s))
	}
}
