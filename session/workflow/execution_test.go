package workflow

import (
	"os"
	"path/filepath"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// An execution is told of to its own identity, on whatever server, also after
// the end; nothing is taken up by that.
func TestExecution(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	srv, other := p.open(), p.open()
	c := srv.Connect("ann")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	look := func(s *server, done int, status machine.SessionStatus) *Execution {
		t.Helper()
		x, err := s.Execution(ctx, "ann", id)
		testkit.Must(t, err)
		if x.SessionID != id || x.JobName != "alpha" || x.WorkflowName != "main" || x.Status != status || x.Done != done || x.Total != 2 {
			t.Errorf("got %s", toJSON(t, x))
		}
		return x
	}
	look(srv, 0, machine.Active)
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	for _, s := range []*server{srv, other} {
		if x := look(s, 1, machine.Active); x.StepID != "two" {
			t.Errorf("at %s", x.StepID)
		}
	}
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	if x := look(other, 2, machine.Completed); toJSON(t, x.Outputs) != `{"report":"r.md"}` {
		t.Errorf("outputs %s", toJSON(t, x.Outputs))
	}
	// What was done is known when the job, and what was kept of it, are gone.
	testkit.Must(t, os.RemoveAll(filepath.Join(p.root, ".deepwork", "jobs", "alpha")))
	if x := look(p.open(), 2, machine.Completed); toJSON(t, x.Outputs) != `{"report":"r.md"}` {
		t.Errorf("outputs %s", toJSON(t, x.Outputs))
	}

	_, err := srv.Execution(ctx, "mallory", id)
	refused(t, err, session.StateError, "unknown_session")
	_, err = srv.Execution(ctx, "ann", "00000000")
	refused(t, err, session.StateError, "unknown_session")
	_, err = srv.Execution(ctx, "ann", "../../etc")
	refused(t, err, session.ToolError, "bad_session_id")
}

// A root session is nobody's child, and what is below it on the stack stays its
// own.
func TestARootSessionIsNobodysChild(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	c := p.open().Connect("ann")
	first := p.start(c, "alpha", "main").BeginStep.SessionID
	r, err := c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", Root: true})
	testkit.Must(t, err)
	if s := p.record(r.BeginStep.SessionID); s.ParentSessionID != nil {
		t.Errorf("its parent is %s", *s.ParentSessionID)
	}
	// It waits for others: a call that names no session is about the first one.
	if now, err := c.Step(ctx, StepArgs{}); err != nil || now.BeginStep.SessionID != first {
		t.Errorf("got %s %v", toJSON(t, now), err)
	}
	if found, _, err := c.engine.resumable(ctx, "ann", keptListed, false); err != nil || len(found) != 1 || found[0].ID != r.BeginStep.SessionID {
		t.Errorf("resumable: %v %v", found, err)
	}
	reply, err := c.Abort(ctx, AbortArgs{Explanation: "e", SessionID: &r.BeginStep.SessionID})
	if err != nil || reply.ResumedWorkflow != nil || len(reply.Stack) != 1 {
		t.Errorf("got %s %v", toJSON(t, reply), err)
	}
}
