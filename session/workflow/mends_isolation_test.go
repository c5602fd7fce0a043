package workflow

import (
	"testing"

	"deepwork/session"
)

// What other identities have is no burden for a call that names no session.
func TestTheSessionsOfOthersAreNotFound(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	theirs := p.open().Connect("bob")
	for range 20 {
		p.start(theirs, "alpha", "main")
	}
	theirs.Close()
	srv := p.open()
	c := srv.ConnectStateless("alice")
	_, err := c.Step(ctx, StepArgs{})
	refused(t, err, session.StateError, "no_active_session")
	id := p.start(srv.Connect("alice"), "alpha", "main").BeginStep.SessionID
	if r, err := p.open().ConnectStateless("alice").Step(ctx, StepArgs{SessionID: &id}); err != nil || r.BeginStep.SessionID != id {
		t.Errorf("alice's own: %s, %v", toJSON(t, r), err)
	}
}
