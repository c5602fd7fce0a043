package workflow

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

func TestRetryOfTheStepFinishedLastGivesTheReplyAgain(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.job("alpha", []testStep{{id: "one", outputs: oneFile}, {id: "two", outputs: oneFile}, {id: "three", outputs: oneFile}}, map[string]string{"main": "[one, two, three]"})
	p.write("r.md", "x")
	p.write("s.md", "x")
	srv := p.open()
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	first := p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"one"}`)
	before := toJSON(t, p.record(id))
	testkit.Equal(t, toJSON(t, p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"one"}`)), toJSON(t, first), "the reply differs")
	testkit.Equal(t, toJSON(t, p.record(id)), before, "the repetition moved the session")
	refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"s.md"},"step_id":"one"}`))).Err(), session.StateError, "step_finished", "'one' is finished already", "the current step is 'two'")
	refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"},"step_id":"three"}`))).Err(), session.StateError, "step_not_current", "the current step is 'two'")
	refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"},"step_id":"none"}`))).Err(), session.ToolError, "unknown_step", "'none'", "the current step is 'two'")

	p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"two"}`)
	refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"},"step_id":"one"}`))).Err(), session.StateError, "step_finished", "the current step is 'three'")

	// After the last step, also when the session has left the stack, and from
	// another server after a crash.
	last := p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"three"}`)
	testkit.Equal(t, toJSON(t, p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"three"}`)), toJSON(t, last), "the reply differs")
	srv.stop()
	c = p.open().Connect("local")
	testkit.Equal(t, toJSON(t, p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"three","session_id":"`+id+`"}`)), toJSON(t, last), "the reply differs")
}

func TestRetryOfANestedSessionsLastStepDoesNotFinishItsParent(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.job("beta", []testStep{{id: "one", outputs: oneFile}}, map[string]string{"main": "[one]"})
	p.write("r.md", "x")
	c := p.open().Connect("local")
	outer := p.start(c, "alpha", "main").BeginStep.SessionID
	p.start(c, "beta", "main")
	first := p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"one"}`)
	testkit.True(t, *first.ResumedWorkflow == "alpha/main" && *first.ResumedStep == "one", "resumed %s", toJSON(t, first))
	before := toJSON(t, p.record(outer))
	// The parent's current step has the same id, and takes the same outputs.
	again := p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"one"}`)
	testkit.True(t, again.Status == machine.WorkflowComplete && *again.Summary == *first.Summary && strings.Contains(*again.Notice, outer), "the repetition got %s", toJSON(t, again))
	testkit.Equal(t, toJSON(t, p.record(outer)), before, "the repetition moved the parent")
	testkit.Equal(t, p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"one","session_id":"`+outer+`"}`).Status, machine.NextStep, "the reply of the parent")
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	p := simpleProject(t)
	srv := p.open()
	c := srv.Connect("local")
	start := StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", RequestID: new("s1")}

	// Concurrent repetitions start one session.
	replies := make([]*machine.StartReply, 20)
	var wg sync.WaitGroup
	for i := range replies {
		wg.Go(func() {
			r, err := c.Start(ctx, start)
			testkit.Works(t, err)
			replies[i] = r
		})
	}
	wg.Wait()
	for _, r := range replies {
		testkit.Need(t, r.BeginStep.SessionID == replies[0].BeginStep.SessionID, "two sessions: %s, %s", r.BeginStep.SessionID, replies[0].BeginStep.SessionID)
	}
	other := start
	other.Goal = "another"
	refused(t, testkit.Get(c.Start(ctx, other)).Err(), session.ToolError, "request_id_reused", "s1")

	// Scoped to identity and tool.
	if r, err := srv.Connect("somebody").Start(ctx, start); err != nil || r.BeginStep.SessionID == replies[0].BeginStep.SessionID {
		t.Errorf("another identity got %s, %v", toJSON(t, r), err)
	}
	args := `{"outputs":{"report":"r.md"},"request_id":"s1"}`
	first := p.finish(c, args)
	if again := p.finish(c, args); toJSON(t, again) != toJSON(t, first) || first.BeginStep.StepID != "two" {
		t.Errorf("the reply differs:\n%s\n%s", toJSON(t, first), toJSON(t, again))
	}
	back := testkit.Get(c.GoTo(ctx, GoToArgs{StepID: "one", RequestID: new("g1")})).Must(t)
	again, err := c.GoTo(ctx, GoToArgs{StepID: "one", RequestID: new("g1")})
	testkit.True(t, err == nil && toJSON(t, again) == toJSON(t, back), "the reply differs: %s %s %v", toJSON(t, back), toJSON(t, again), err)
	abort := AbortArgs{Explanation: "e", RequestID: new("a1")}
	aborted := testkit.Get(c.Abort(ctx, abort)).Must(t)
	outer := p.start(c, "alpha", "main").BeginStep.SessionID // must survive the repetition of the abort

	// A server that dies and the next one, on a fresh connection.
	srv.stop()
	c = p.open().Connect("local")
	testkit.Must(t, errOf(c.Step(ctx, StepArgs{SessionID: &outer})))
	r, err := c.Abort(ctx, abort)
	testkit.True(t, err == nil && r.AbortedWorkflow == aborted.AbortedWorkflow && len(r.Stack) == 1, "the repeated abort got %s, %v", toJSON(t, r), err)
	if r, err := c.Start(ctx, start); err != nil || r.BeginStep.SessionID != replies[0].BeginStep.SessionID || !strings.Contains(*r.Notice, "has ended since (aborted)") {
		t.Errorf("the repeated start got %s, %v", toJSON(t, r), err)
	}
}

func TestARefusedCallWithARequestIDMayBeMadeAgain(t *testing.T) {
	t.Parallel()
	p, _, c, _ := begun(t)
	args := `{"outputs":{"report":"s.md"},"request_id":"f1"}`
	refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, args))).Err(), session.ToolError, "file_not_found")
	p.write("s.md", "x")
	testkit.Equal(t, p.finish(c, args).BeginStep.StepID, "two", "reply")
}

// A call with a request_id that a review refused is answered as it was when it is
// repeated, also by another server, and spends no further attempt. Only an attempt
// without a verdict is reviewed again.
func TestARepeatedCallDoesNotSpendAnotherAttempt(t *testing.T) {
	p, srv, rev := underReview(t)
	rev.how.Store(&Reviewing{External: true, MaxTries: 2, ReplyWithin: patience})
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	call := func(request string) (string, error) {
		r, err := c.Finish(ctx, FinishArgs{Outputs: outputs("report", "bad.md"), SessionID: &id, RequestID: &request})
		return toJSON(t, r), err
	}
	rev.set("exit", "")
	p.write("bad.md", "nothing to object to, if there were a verdict")
	if _, err := call("void"); session.CodeOf(err) != "review_failed" {
		t.Fatalf("a reviewer that fails: %v", err)
	}
	rev.unset("exit")
	p.write("bad.md", "CONTENT OF bad.md")
	void, err := call("void")
	testkit.Need(t, err == nil && strings.Contains(void, string(machine.NeedsWork)), "the void attempt, repeated: %s, %v", void, err)
	_, final := call("final")
	refused(t, final, session.ToolError, "quality_gate_failed", "Quality gate failed after 2 attempts", "bad.md was read")
	for _, when := range []string{"at once", "after a restart"} {
		testkit.Equal(t, testkit.Get(call("void")).Must(t), void, "%s: the repetition", when)
		if _, err := call("final"); err == nil || err.Error() != final.Error() {
			t.Errorf("%s: the refusal was %v, the repetition gave %v", when, final, err)
		}
		if one := p.record(id).Progress("one"); one.QualityTries != 2 || rev.calls() != 3 {
			t.Errorf("%s: %d attempts, %d calls of the reviewer", when, one.QualityTries, rev.calls())
		}
		srv.stop()
		srv = p.reopen(rev)
		c = srv.Connect("local")
	}
}

// A call that so much has followed that its reply is no longer kept is not done again.
func TestACallWhoseReplyIsForgottenIsNotDoneAgain(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.simple("alpha")
	srv := p.open()
	c := srv.Connect("local")
	start := func() (*machine.StartReply, error) {
		return c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", RequestID: new("first")})
	}
	first := testkit.Get(start()).Must(t)
	goTo := func(request string) error {
		_, err := c.GoTo(ctx, GoToArgs{StepID: "one", SessionID: &first.BeginStep.SessionID, RequestID: &request})
		return err
	}
	for i := range machine.KeptRequests + 1 {
		testkit.Must(t, goTo(fmt.Sprint("go ", i)))
	}
	refused(t, goTo("go 0"), session.StateError, "reply_forgotten", first.BeginStep.SessionID)
	for range 2 { // also by another server
		refused(t, testkit.Get(start()).Err(), session.StateError, "reply_forgotten", first.BeginStep.SessionID)
		srv.stop()
		srv = p.open()
		c = srv.Connect("local")
	}
}

// An edit takes the last open member out of a group whose finished member has a review.
func TestAReviewedGroupWhoseLastMemberIsEditedAwayCloses(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	rev := `[{run_each: step, quality_criteria: {Good: "Is it good?"}}]`
	a := testStep{id: "a", outputs: oneFile}
	b := testStep{id: "b", outputs: "{b_out: {type: file, description: d, required: true}}", reviews: rev}
	p.job("alpha", []testStep{a, b, {id: "x"}, {id: "d"}}, map[string]string{"main": "[[a, b, x], d]"})
	p.write("r.md", "x")
	srv, _ := p.reviewed()
	c := srv.Connect("local")
	p.start(c, "alpha", "main")
	p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"a"}`)
	p.finish(c, `{"outputs":{"b_out":"r.md"},"step_id":"b"}`)
	p.job("alpha", []testStep{a, b, {id: "d"}}, map[string]string{"main": "[[a, b], d]"})
	p.write("s.md", "y")
	r, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"b_out":"s.md"},"step_id":"b"}`))
	testkit.True(t, err == nil && r.BeginStep != nil && r.BeginStep.StepID == "d", "the group does not close: %s, %v", toJSON(t, r), err)
}

func TestRepetitionsWithFreshRequestIDsDoNotGrowTheRecord(t *testing.T) {
	t.Parallel()
	p, _, c, id := begun(t)
	for i := range 30 {
		p.finish(c, fmt.Sprintf(`{"outputs":{"report":"r.md"},"step_id":"one","session_id":"%s","request_id":"q%d"}`, id, i))
	}
	n := len(p.record(id).Replies)
	testkit.True(t, n <= machine.KeptRequests+2, "%d replies are kept", n)
}

func TestAPassingReadErrorDoesNotSendTheCallToTheParent(t *testing.T) {
	t.Parallel()
	p := simpleProject(t)
	srv := p.open()
	c := srv.Connect("local")
	parent := p.start(c, "alpha", "main").BeginStep.SessionID
	p.start(c, "alpha", "main")
	srv.makeFaulty().unread.Store(1)
	refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"}}`))).Err(), session.StateError, "session_unreadable")
	r, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"}}`))
	testkit.True(t, err == nil && r.BeginStep.SessionID != parent, "the same call again finished the parent's step: %v", err)
}
