package workflow

import (
	"strings"
	"sync"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

func TestAStatelessCallNeedsASessionIDWhereThereAreSeveral(t *testing.T) {
	t.Parallel()
	p := simpleProject(t)
	srv := p.open()
	c := srv.ConnectStateless("alice")
	refused(t, testkit.Get(c.Step(ctx, StepArgs{})).Err(), session.StateError, "no_active_session", "No active workflow session")

	first := p.start(c, "alpha", "main")
	id := first.BeginStep.SessionID
	testkit.True(t, len(first.Stack) == 1 && first.Stack[0].SessionID == id, "stack %v", first.Stack)
	r := p.finish(c, `{"outputs":{"report":"r.md"}}`)
	testkit.True(t, r.BeginStep.StepID == "two" && len(r.Stack) == 1, "with one session: %s", toJSON(t, r))
	w := testkit.Get(c.GetWorkflows(ctx)).Must(t)
	testkit.True(t, len(w.Stack) == 1 && w.Stack[0] == (machine.StackEntry{Workflow: "alpha/main", Step: "two", SessionID: id}), "get_workflows: %s", toJSON(t, w))

	// A second root: it is not nested in the other agent's.
	second := p.start(c, "alpha", "main")
	testkit.True(t, len(second.Stack) == 1 && p.record(second.BeginStep.SessionID).ParentSessionID == nil, "the second session is nested: %v", second.Stack)
	for _, call := range []func() error{
		func() error { _, err := c.Step(ctx, StepArgs{}); return err },
		func() error { _, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"}}`)); return err },
		func() error { _, err := c.Abort(ctx, AbortArgs{Explanation: "x"}); return err },
		func() error { _, err := c.GoTo(ctx, GoToArgs{StepID: "one"}); return err },
	} {
		refused(t, call(), session.StateError, "session_id_needed", id, second.BeginStep.SessionID, "Pass session_id", "alpha/main")
	}
	testkit.Equal(t, len(testkit.Get(c.GetWorkflows(ctx)).Must(t).Stack), 0, "get_workflows")
	r = p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+id+`"}`)
	testkit.True(t, r.Status == machine.WorkflowComplete && len(r.Stack) == 0 && r.ResumedWorkflow == nil, "reply %s", toJSON(t, r))
	aborted := testkit.Get(c.Abort(ctx, AbortArgs{Explanation: "x"})).Must(t)
	testkit.True(t, aborted.AbortedStep == "one" && len(aborted.Stack) == 0, "with one session left: %s", toJSON(t, aborted))
}

func TestAStatelessCallCountsTheSessionsOfOtherConnectionsAndOfTheDisk(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.simple("alpha")
	gone := p.open()
	id := p.start(gone.Connect("local"), "alpha", "main").BeginStep.SessionID
	srv, other := p.open(), p.open()
	c := srv.ConnectStateless("local")
	_, err := c.Step(ctx, StepArgs{}) // a living server owns it
	refused(t, err, session.StateError, "no_active_session")
	gone.stop()
	testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{})).Must(t).BeginStep.SessionID, id, "the one on disk")
	p.start(other.Connect("local"), "alpha", "main") // another living server's
	p.start(srv.Connect("bob"), "alpha", "main")     // another identity's
	testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{})).Must(t).BeginStep.SessionID, id, "still the only one")
	beside := srv.Connect("local")
	second := p.start(beside, "alpha", "main").BeginStep.SessionID // this server's, on a connection
	testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{})).Must(t).BeginStep.SessionID, id, "beside one on a connection")
	beside.Close()
	refused(t, testkit.Get(c.Step(ctx, StepArgs{})).Err(), session.StateError, "session_id_needed", id, second)
}

func TestAtMostTwentySessionsAreListed(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.simple("alpha")
	c := p.open().ConnectStateless("local")
	for range keptListed + 3 {
		p.start(c, "alpha", "main")
	}
	_, err := c.Step(ctx, StepArgs{})
	refused(t, err, session.StateError, "session_id_needed", "Older ones are not listed")
	testkit.Equal(t, strings.Count(err.Error(), "\n- "), keptListed, "sessions are listed")
	if len(err.Error()) > 8000 {
		t.Errorf("the message has %d bytes", len(err.Error()))
	}
}

func TestAStatelessStackIsTheChainOfTheSessionConcerned(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.simple("alpha")
	p.simple("beta")
	p.write("r.md", "x")
	srv := p.open()
	c := srv.ConnectStateless("local")
	nest := func(parent string) string {
		t.Helper()
		r := testkit.Get(c.Start(ctx, StartArgs{Goal: "g", JobName: "beta", WorkflowName: "main", ParentSessionID: &parent})).Must(t)
		return r.BeginStep.SessionID
	}
	ids := func(stack []machine.StackEntry) string {
		var out []string
		for _, e := range stack {
			out = append(out, e.SessionID)
		}
		return strings.Join(out, " ")
	}
	root := p.start(c, "alpha", "main").BeginStep.SessionID
	p.start(c, "alpha", "main") // another agent's
	mid := nest(root)
	leaf, sibling := nest(mid), nest(mid)
	step, err := c.Step(ctx, StepArgs{SessionID: &leaf})
	testkit.True(t, err == nil && ids(step.Stack) == root+" "+mid+" "+leaf, "stack %v, %v", step.Stack, err)
	testkit.Equal(t, ids(c.StackOf(ctx, &mid)), root+" "+mid, "StackOf")
	testkit.True(t, len(c.Stack()) == 0 && len(c.StackOf(ctx, nil)) == 0, "a stateless connection has no stack of its own")
	a, err := c.Abort(ctx, AbortArgs{Explanation: "x", SessionID: &mid})
	testkit.True(t, err == nil && ids(a.Stack) == root && *a.ResumedWorkflow == "alpha/main", "abort in the middle: %s, %v", toJSON(t, a), err)
	if step, err = c.Step(ctx, StepArgs{SessionID: &sibling}); err != nil || ids(step.Stack) != root+" "+sibling {
		t.Errorf("stack %v, %v", step.Stack, err)
	}
	p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+leaf+`"}`)
	r := p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+leaf+`"}`)
	testkit.True(t, r.Status == machine.WorkflowComplete && ids(r.Stack) == root && *r.ResumedWorkflow == "alpha/main" && *r.ResumedStep == "one", "completion: %s", toJSON(t, r))
	refused(t, testkit.Get(c.Start(ctx, StartArgs{Goal: "g", JobName: "beta", WorkflowName: "main", ParentSessionID: &leaf})).Err(), session.StateError, "session_ended", leaf)

	// After a restart a nested session comes with its ancestors.
	srv.stop()
	c = p.open().ConnectStateless("local")
	if step, err = c.Step(ctx, StepArgs{SessionID: &sibling}); err != nil || ids(step.Stack) != root+" "+sibling {
		t.Errorf("stack %v, %v", step.Stack, err)
	}
}

func TestStatelessRetries(t *testing.T) {
	t.Parallel()
	p := simpleProject(t)
	srv := p.open()
	c := srv.ConnectStateless("local")
	start := StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", RequestID: new("q")}
	var wg sync.WaitGroup
	replies := make([]*machine.StartReply, 8)
	for i := range replies {
		wg.Go(func() {
			r, err := c.Start(ctx, start)
			testkit.Works(t, err)
			replies[i] = r
		})
	}
	wg.Wait()
	for _, r := range replies {
		testkit.Need(t, toJSON(t, r) == toJSON(t, replies[0]), "two replies: %s, %s", toJSON(t, r), toJSON(t, replies[0]))
	}
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
	if r := p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"two"}`); r.Status != machine.WorkflowComplete || r.Notice != nil || p.record(two).Status != machine.Completed {
		t.Errorf("the call got %s", toJSON(t, r))
	}
}
