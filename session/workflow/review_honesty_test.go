package workflow

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/gate"
	"deepwork/session/workflow/machine"
)

// answered is what a call that is made beside others gives.
type answered struct {
	r   *machine.FinishReply
	err error
}

// beside makes a finished_step that the test goes on from.
func beside(t *testing.T, ctx context.Context, c *Conn, args string) chan answered {
	a := finishArgs(t, args)
	got := make(chan answered, 1)
	go func() {
		r, err := c.Finish(ctx, a)
		got <- answered{r, err}
	}()
	return got
}

// await takes an answer, or ends the test.
func await(t *testing.T, got chan answered) answered {
	t.Helper()
	select {
	case x := <-got:
		return x
	case <-time.After(patience):
		t.Fatal("the call is not answered")
	}
	return answered{}
}

func TestContentThatChangesAfterItsVerdictIsJudgedAgain(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.job("alpha", []testStep{{id: "one", outputs: "{parts: {type: files, description: d}}", reviews: "[{run_each: parts, quality_criteria: {Good: \"Is it good?\"}}]"}, {id: "two"}}, map[string]string{"main": "[one, two]"})
	p.write("good.md", "CONTENT OF good.md")
	p.write("bad.md", "CONTENT OF bad.md")
	srv, rev := p.reviewed()
	rev.how.Store(&Reviewing{External: true, MaxTries: 9, ReplyWithin: time.Minute})
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	p.finish(c, `{"outputs":{"parts":["good.md","bad.md"]}}`) // good.md passes, bad.md fails
	p.write("bad.md", "CONTENT OF something better")
	rev.set("wait", "")
	got := beside(t, ctx, c, `{"outputs":{"parts":["good.md","bad.md"]}}`)
	rev.runs(3)
	p.write("good.md", "CONTENT OF bad.md") // its verdict was for something else
	rev.unset("wait")
	if x := await(t, got); x.err != nil || x.r.Status != machine.NeedsWork {
		t.Errorf("content that nobody judged: %s, %v, step now %s", toJSON(t, x.r), x.err, p.record(id).CurrentStepID)
	}
}

func TestAReviewAddedWhileOneRunsIsNotSkipped(t *testing.T) {
	t.Parallel()
	p, srv, rev := underReview(t)
	c := srv.Connect("local")
	rev.set("wait", "")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	got := beside(t, ctx, c, `{"outputs":{"report":"good.md"}}`)
	rev.runs(1)
	p.job("alpha", []testStep{{id: "one", outputs: oneFile, reviews: "[{run_each: step, quality_criteria: {Good: \"Is it good?\"}}, {run_each: report, quality_criteria: {Strict: \"Is it safe?\"}}]"}, {id: "two"}}, map[string]string{"main": "[one, two]"})
	rev.set("say", `{"passed": true, "feedback": "fine"}`)
	rev.unset("wait")
	x := await(t, got)
	testkit.Need(t, x.err == nil && x.r.Status == machine.NextStep, "reply %s, %v", toJSON(t, x.r), x.err)
	strict := 0
	for _, a := range p.record(id).Progress("one").Tries {
		for _, v := range a.Verdicts {
			if v.RunEach == "report" {
				strict++
			}
		}
	}
	testkit.Equal(t, strict, 1, "verdicts of the added review")
}

func TestAMemberUnderReviewHoldsItsGroup(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.job("alpha", []testStep{{id: "a"}, {id: "b", outputs: oneFile, reviews: reviewedStep}, {id: "c"}}, map[string]string{"main": "[[a, b], c]"})
	p.write("good.md", "CONTENT OF good.md")
	srv, rev := p.reviewed()
	c := srv.Connect("local")
	rev.set("wait", "")
	p.start(c, "alpha", "main")
	got := beside(t, ctx, c, `{"outputs":{"report":"good.md"},"step_id":"b"}`)
	rev.runs(1)
	r := p.finish(c, `{"outputs":{}}`) // the primary
	testkit.True(t, r.BeginStep == nil && strings.Join(r.PendingConcurrentSteps, " ") == "b", "the group went on without b: %s", toJSON(t, r))
	rev.unset("wait")
	x := await(t, got)
	testkit.True(t, x.err == nil && x.r.BeginStep != nil && x.r.BeginStep.StepID == "c", "reply %s, %v", toJSON(t, x.r), x.err)
}

func TestCallsThatJoinedAFailingReviewAreOneAttempt(t *testing.T) {
	t.Parallel()
	p, srv, rev := underReview(t)
	c := srv.Connect("local")
	rev.set("wait", "")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	var all []chan answered
	joined := make(chan struct{}, 4) // a call is told how its review is as it joins it
	for range 4 {
		once := sync.OnceFunc(func() { joined <- struct{}{} })
		all = append(all, beside(t, WithProgress(ctx, func(int, int, string) { once() }), c, `{"outputs":{"report":"bad.md"}}`))
	}
	for range 4 {
		<-joined
	}
	rev.unset("wait")
	for _, got := range all {
		x := await(t, got)
		testkit.True(t, x.err == nil && x.r.Status == machine.NeedsWork && strings.Contains(*x.r.Feedback, "bad.md was read"), "reply %s, %v", toJSON(t, x.r), x.err)
	}
	if one := p.record(id).Progress("one"); one.QualityTries != 1 || rev.calls() != 1 {
		t.Errorf("%d attempts, %d reviews", one.QualityTries, rev.calls())
	}
}

func TestACallerThatLeavesMidCallRepeatsItSafely(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.job("alpha", []testStep{{id: "one"}, {id: "two"}, {id: "three"}}, map[string]string{"main": "[one, two, three]"})
	srv := p.open()
	c := srv.Connect("local")
	p.start(c, "alpha", "main")
	for range 50 {
		leaving, leave := context.WithCancel(ctx)
		got := beside(t, leaving, c, `{"outputs":{},"request_id":"r"}`)
		leave()
		x := await(t, got)
		testkit.Need(t, x.err == nil || errors.Is(x.err, context.Canceled), "%v", x.err)
	}
	testkit.Equal(t, p.finish(c, `{"outputs":{},"request_id":"r"}`).BeginStep.StepID, "two", "reply")
	starting := StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", RequestID: new("s")}
	ids := map[string]bool{}
	for range 50 {
		leaving, leave := context.WithCancel(ctx)
		go leave()
		if r, err := c.Start(leaving, starting); err == nil {
			ids[r.BeginStep.SessionID] = true
		}
	}
	if r, err := c.Start(ctx, starting); err != nil {
		t.Fatal(err)
	} else {
		ids[r.BeginStep.SessionID] = true
	}
	if len(ids) != 1 || len(c.stackOf(ctx, "")) != 2 {
		t.Errorf("%d sessions, stack %v", len(ids), c.stackOf(ctx, ""))
	}
}

// Who waits for a group by repeating its report learns that the group has changed since.
func TestARepeatedReportOfAMemberSaysThatItsGroupHasChanged(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.job("alpha", []testStep{{id: "a"}, {id: "b"}, {id: "c"}, {id: "d"}}, map[string]string{"main": "[[a, b, c], d]"})
	c := p.open().Connect("local")
	p.start(c, "alpha", "main")
	report := func(step string) *machine.FinishReply { return p.finish(c, `{"outputs":{},"step_id":"`+step+`"}`) }
	r := report("b")
	testkit.True(t, r.Waiting() != nil && r.Notice == nil, "b: %s", toJSON(t, r))
	r = report("b")
	testkit.True(t, r.Waiting() != nil && r.Notice == nil, "b, again: %s", toJSON(t, r))
	report("c")
	r = report("b")
	testkit.True(t, r.Waiting() == nil && r.Notice != nil && strings.Contains(*r.Notice, "get_step"), "b, after c: %s", toJSON(t, r))
}

// A reviewer gets the inputs of the step as paths; the verdict is given for the
// outputs alone.
func TestASubmissionHasTheInputsForReference(t *testing.T) {
	t.Parallel()
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
	def := testkit.Get(srv.definitions.Current(ctx, s, "")).Must(t)
	st := def.Job.Step("two")
	a := &sessionActor{id: id, state: s, engine: srv.Engine}
	sub := a.submission(&candidate{m: &finishCall{}, def: def, plan: &machine.Plan{Step: st}, outputs: machine.Outputs{{Key: "report", Value: machine.OutputValue{Paths: []string{"out.md"}}}}})
	testkit.Need(t, len(sub.Inputs) == 1 && strings.Join(sub.Inputs[0].Paths, " ") == "in.md" && sub.Inputs[0].FromStep == "one", "inputs %+v", sub.Inputs)
	hashes := map[string]string{"out.md": "1"}
	with := contentDigest(nil, gate.Plan(sub, hashes))
	if sub.Inputs = nil; contentDigest(nil, gate.Plan(sub, hashes)) != with {
		t.Error("the digest of the outputs depends on the inputs")
	}
}
