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

// calls are those of a connection about a session, or about none that is named.
func calls(c *Conn, id *string) []error {
	return []error{
		errOf(c.Step(ctx, StepArgs{SessionID: id})),
		errOf(c.Abort(ctx, AbortArgs{Explanation: "x", SessionID: id})),
		errOf(c.GoTo(ctx, GoToArgs{StepID: "one", SessionID: id})),
		errOf(c.Finish(ctx, FinishArgs{Outputs: outputs("report", "r.md"), SessionID: id})),
	}
}

func TestAStatelessCallNeedsASessionIDWhereThereAreSeveral(t *testing.T) {
	p := simpleProject(t)
	c := p.open().ConnectStateless("alice")
	refused(t, errOf(c.Step(ctx, StepArgs{})), session.StateError, "no_active_session", "No active workflow session")
	first := p.start(c, "alpha", "main")
	id := first.BeginStep.SessionID
	testkit.True(t, len(first.Stack) == 1 && first.Stack[0].SessionID == id, "stack %v", first.Stack)
	r := p.finish(c, `{"outputs":{"report":"r.md"}}`)
	testkit.True(t, r.BeginStep.StepID == "two" && len(r.Stack) == 1, "with one session: %s", toJSON(t, r))
	testkit.Same(t, testkit.Get(c.GetWorkflows(ctx)).Must(t).Stack, []machine.StackEntry{{Workflow: "alpha/main", Step: "two", SessionID: id}}, "get_workflows")
	// A second root: it is not nested in the other agent's.
	second := p.start(c, "alpha", "main")
	testkit.True(t, len(second.Stack) == 1 && p.record(second.BeginStep.SessionID).ParentSessionID == nil, "the second session is nested: %v", second.Stack)
	for _, err := range calls(c, nil) {
		refused(t, err, session.StateError, "session_id_needed", id, second.BeginStep.SessionID, "Pass session_id", "alpha/main")
	}
	testkit.Equal(t, len(testkit.Get(c.GetWorkflows(ctx)).Must(t).Stack), 0, "get_workflows")
	r = p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+id+`"}`)
	testkit.True(t, r.Status == machine.WorkflowComplete && len(r.Stack) == 0 && r.ResumedWorkflow == nil, "reply %s", toJSON(t, r))
	aborted := testkit.Get(c.Abort(ctx, AbortArgs{Explanation: "x"})).Must(t)
	testkit.True(t, aborted.AbortedStep == "one" && len(aborted.Stack) == 0, "with one session left: %s", toJSON(t, aborted))
}

func TestAStatelessCallCountsTheSessionsOfOtherConnectionsAndOfTheDisk(t *testing.T) {
	p, gone, _, id := begun(t)
	srv, other := p.open(), p.open()
	c := srv.ConnectStateless("local")
	found := func(of string) {
		t.Helper()
		testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{})).Must(t).BeginStep.SessionID, id, of)
	}
	refused(t, errOf(c.Step(ctx, StepArgs{})), session.StateError, "no_active_session") // a living server owns it
	gone.stop()
	found("the one on disk")
	p.start(other.Connect("local"), "alpha", "main") // another living server's
	p.start(srv.Connect("bob"), "alpha", "main")     // another identity's
	found("still the only one")
	beside := srv.Connect("local")
	second := p.start(beside, "alpha", "main").BeginStep.SessionID // this server's, on a connection
	found("beside one on a connection")
	beside.Close()
	refused(t, errOf(c.Step(ctx, StepArgs{})), session.StateError, "session_id_needed", id, second)
}

func TestAtMostTwentySessionsAreListed(t *testing.T) {
	p := simpleProject(t)
	c := p.open().ConnectStateless("local")
	for range keptListed + 3 {
		p.start(c, "alpha", "main")
	}
	err := errOf(c.Step(ctx, StepArgs{}))
	refused(t, err, session.StateError, "session_id_needed", "Older ones are not listed")
	testkit.Equal(t, strings.Count(err.Error(), "\n- "), keptListed, "sessions are listed")
	testkit.True(t, len(err.Error()) <= 8000, "the message has %d bytes", len(err.Error()))
}

func TestAStatelessStackIsTheChainOfTheSessionConcerned(t *testing.T) {
	p := simpleProject(t)
	p.simple("beta")
	srv := p.open()
	c := srv.ConnectStateless("local")
	nested := StartArgs{Goal: "g", JobName: "beta", WorkflowName: "main"}
	nest := func(parent string) string {
		t.Helper()
		nested.ParentSessionID = &parent
		return testkit.Get(c.Start(ctx, nested)).Must(t).BeginStep.SessionID
	}
	chain := func(of string, stack []machine.StackEntry, want ...string) {
		t.Helper()
		var ids []string
		for _, e := range stack {
			ids = append(ids, e.SessionID)
		}
		testkit.Same(t, ids, want, of)
	}
	root := p.start(c, "alpha", "main").BeginStep.SessionID
	p.start(c, "alpha", "main") // another agent's
	mid := nest(root)
	leaf, sibling := nest(mid), nest(mid)
	chain("get_step", testkit.Get(c.Step(ctx, StepArgs{SessionID: &leaf})).Must(t).Stack, root, mid, leaf)
	chain("StackOf", c.StackOf(ctx, &mid), root, mid)
	testkit.True(t, len(c.Stack()) == 0 && len(c.StackOf(ctx, nil)) == 0, "a stateless connection has no stack of its own")
	a := testkit.Get(c.Abort(ctx, AbortArgs{Explanation: "x", SessionID: &mid})).Must(t)
	chain("abort in the middle", a.Stack, root)
	testkit.Equal(t, *a.ResumedWorkflow, "alpha/main")
	chain("below what was aborted", testkit.Get(c.Step(ctx, StepArgs{SessionID: &sibling})).Must(t).Stack, root, sibling)
	p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+leaf+`"}`)
	r := p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+leaf+`"}`)
	chain("completion", r.Stack, root)
	testkit.True(t, r.Status == machine.WorkflowComplete && *r.ResumedWorkflow == "alpha/main" && *r.ResumedStep == "one", "completion: %s", toJSON(t, r))
	nested.ParentSessionID = &leaf
	refused(t, errOf(c.Start(ctx, nested)), session.StateError, "session_ended", leaf)
	// After a restart a nested session comes with its ancestors.
	srv.stop()
	chain("after a restart", testkit.Get(p.open().ConnectStateless("local").Step(ctx, StepArgs{SessionID: &sibling})).Must(t).Stack, root, sibling)
}

func TestStatelessRetries(t *testing.T) {
	p := simpleProject(t)
	c := p.open().ConnectStateless("local")
	startedAtOnce(t, c, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", RequestID: new("q")})
	p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"one"}`)
	last := p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"two"}`)
	testkit.Equal(t, toJSON(t, p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"two"}`)), toJSON(t, last), "the reply differs")
	// A call that names its session is not repeated by one that names none: that
	// is another agent's.
	one := p.start(c, "alpha", "main").BeginStep.SessionID
	two := p.start(c, "alpha", "main").BeginStep.SessionID
	for _, args := range []string{`"step_id":"one"`, `"step_id":"two"`} {
		p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+one+`",`+args+`}`)
	}
	p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+two+`","step_id":"one"}`)
	r := p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"two"}`)
	testkit.True(t, r.Status == machine.WorkflowComplete && r.Notice == nil && p.record(two).Status == machine.Completed, "the call got %s", toJSON(t, r))
}

func TestAnotherIdentityDoesNotLearnThatASessionExists(t *testing.T) {
	p := simpleProject(t)
	srv, other := p.open(), p.open()
	c := srv.Connect("alice")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	said := func(mallory *Conn, id string) string {
		t.Helper()
		var all []string
		_, nested := mallory.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", ParentSessionID: &id})
		for _, err := range append(calls(mallory, &id), nested) {
			refused(t, err, session.StateError, "unknown_session")
			e, _ := errors.AsType[*session.Error](err)
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
	s := p.record(id)
	testkit.True(t, s.Revision == 0 && s.CurrentStepID == "one" && s.Status == machine.Active, "the refused calls touched the session: %s", toJSON(t, s))
}

// What other identities have is no burden for a call that names no session.
func TestTheSessionsOfOthersAreNotFound(t *testing.T) {
	p := simpleProject(t)
	theirs := p.open().Connect("bob")
	for range 20 {
		p.start(theirs, "alpha", "main")
	}
	theirs.Close()
	srv := p.open()
	refused(t, errOf(srv.ConnectStateless("alice").Step(ctx, StepArgs{})), session.StateError, "no_active_session")
	id := p.start(srv.Connect("alice"), "alpha", "main").BeginStep.SessionID
	testkit.Equal(t, testkit.Get(p.open().ConnectStateless("alice").Step(ctx, StepArgs{SessionID: &id})).Must(t).BeginStep.SessionID, id, "alice's own")
}

// Options.Moved is called after each transition that others see, of this process or another one.
func TestMovedIsToldOfEachTransition(t *testing.T) {
	p := simpleProject(t)
	moved := make(chan struct{}, 100)
	told := func(of string) {
		t.Helper()
		select {
		case <-moved:
		case <-time.After(patience):
			t.Fatalf("nothing is told of %s", of)
		}
	}
	_, c, id := p.begin(func(o *Options) { o.Moved = func() { moved <- struct{}{} } })
	told("a start")
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	told("a step")
	for len(moved) > 0 {
		<-moved
	}
	testkit.Must(t, errOf(p.open().Connect("local").Abort(ctx, AbortArgs{Explanation: "e", SessionID: &id})))
	told("an abort at another server")
}
