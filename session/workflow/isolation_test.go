package workflow

import (
	"errors"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

func TestAnotherIdentityDoesNotLearnThatASessionExists(t *testing.T) {
	t.Parallel()
	p := simpleProject(t)
	srv, other := p.open(), p.open()
	c := srv.Connect("alice")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	said := func(mallory *Conn, id string) string {
		t.Helper()
		var all []string
		for _, call := range []func() error{
			func() error { _, err := mallory.Step(ctx, StepArgs{SessionID: &id}); return err },
			func() error { _, err := mallory.Abort(ctx, AbortArgs{Explanation: "x", SessionID: &id}); return err },
			func() error { _, err := mallory.GoTo(ctx, GoToArgs{StepID: "one", SessionID: &id}); return err },
			func() error {
				_, err := mallory.Finish(ctx, FinishArgs{Outputs: outputs("report", "r.md"), SessionID: &id})
				return err
			},
			func() error {
				_, err := mallory.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", ParentSessionID: &id})
				return err
			},
		} {
			err := call()
			refused(t, err, session.StateError, "unknown_session")
			var e *session.Error
			errors.As(err, &e)
			all = append(all, strings.ReplaceAll(err.Error()+toJSON(t, e.Details), id, "ID"))
		}
		return strings.Join(all, "\n")
	}
	for _, connect := range []func(*server) *Conn{
		func(s *server) *Conn { return s.Connect("mallory") },
		func(s *server) *Conn { return s.ConnectStateless("mallory") },
	} {
		nothing := said(connect(srv), "00000000")
		testkit.Equal(t, said(connect(srv), id), nothing)
		testkit.Equal(t, said(connect(other), id), nothing, "of a session of another server")
	}
	c.Close()
	testkit.Equal(t, said(srv.Connect("mallory"), id), said(srv.Connect("mallory"), "00000000"), "of a session that nobody holds")
	if s := p.record(id); s.Revision != 0 || s.CurrentStepID != "one" || s.Status != machine.Active {
		t.Errorf("the refused calls touched the session: %s", toJSON(t, s))
	}
}

// What other identities have is no burden for a call that names no session.
func TestTheSessionsOfOthersAreNotFound(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.simple("alpha")
	theirs := p.open().Connect("bob")
	for range 20 {
		p.start(theirs, "alpha", "main")
	}
	theirs.Close()
	srv := p.open()
	c := srv.ConnectStateless("alice")
	refused(t, testkit.Get(c.Step(ctx, StepArgs{})).Err(), session.StateError, "no_active_session")
	id := p.start(srv.Connect("alice"), "alpha", "main").BeginStep.SessionID
	testkit.Equal(t, testkit.Get(p.open().ConnectStateless("alice").Step(ctx, StepArgs{SessionID: &id})).Must(t).BeginStep.SessionID, id, "alice's own")
}

// Options.Moved is called after each transition that others see, of this process or another one.
func TestMovedIsToldOfEachTransition(t *testing.T) {
	p := simpleProject(t)
	moved := make(chan struct{}, 100)
	srv := p.open(func(o *Options) { o.Moved = func() { moved <- struct{}{} } })
	told := func(of string) {
		t.Helper()
		select {
		case <-moved:
		case <-time.After(patience):
			t.Fatalf("nothing is told of %s", of)
		}
	}
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	told("a start")
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	told("a step")
	for len(moved) > 0 {
		<-moved
	}
	other := p.open().Connect("local")
	testkit.Must(t, errOf(other.Abort(ctx, AbortArgs{Explanation: "e", SessionID: &id})))
	told("an abort at another server")
}

func TestCheckWorkflow(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	srv := p.open()
	testkit.Works(t, testkit.Get(CheckWorkflow(ctx, srv.catalog, "alpha", "main")).Err())
	for _, c := range [][3]string{{"none", "main", "job_not_found"}, {"alpha", "none", "workflow_not_found"}} {
		refused(t, testkit.Get(CheckWorkflow(ctx, srv.catalog, c[0], c[1])).Err(), session.ToolError, c[2])
	}
}
