package workflow_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/connection"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/replies"
	. "deepwork/session/workflow"
)

// The calls that hand in the files of the reviewed job.
const (
	good  = `{"outputs":{"report":"good.md"}}`
	bad   = `{"outputs":{"report":"bad.md"}}`
	worse = `{"outputs":{"report":"worse.md"}}`
)

// ofParts are the outputs and reviews of a step each of whose files is reviewed.
func ofParts(id string) testStep {
	return testStep{
		id:      id,
		outputs: "{parts: {type: files, description: d}}",
		reviews: "[{run_each: parts, quality_criteria: {Good: \"Is it good?\"}}]",
	}
}

func TestReq001_4_11_to_14_ExternalReviews(t *testing.T) {
	p, _, rev, c, id := underReview(t)
	r := p.finish(c, bad) // 001.4.12
	testkit.Need(t, r.Status == replies.NeedsWork &&
		strings.HasPrefix(*r.Feedback, "Try 1 of 3. bad.md: bad.md was read\n"), "reply %s", toJSON(t, r))

	failed, criteria := r.FailedReviews, r.FailedCriteria
	testkit.Need(t, len(failed) == 1, "failed_reviews %s", toJSON(t, failed))
	testkit.Equal(t, failed[0].RunEach, "step", "failed_reviews %s", toJSON(t, failed))
	testkit.Need(t, failed[0].TargetFile == nil, "failed_reviews %s", toJSON(t, failed))
	testkit.True(t, !failed[0].Passed, "failed_reviews %s", toJSON(t, failed))
	testkit.Need(t, len(criteria) == 1, "failed_criteria %s", toJSON(t, criteria))
	testkit.Equal(t, criteria[0].Criterion, "Is it good?", "failed_criteria %s", toJSON(t, criteria))
	testkit.Equal(t, *criteria[0].Feedback, "no", "failed_criteria %s", toJSON(t, criteria))

	one := p.record(id).Progress("one")
	testkit.Equal(t, one.QualityTries, 1, "record %s", toJSON(t, one))
	testkit.Equal(t, one.Tries()[0].State, machine.TryFailed, "record %s", toJSON(t, one))
	testkit.True(t, !one.Tries()[0].Verdicts[0].Passed, "record %s", toJSON(t, one))
	testkit.True(t, one.Tries()[0].Files[0].SHA256 != "", "record %s", toJSON(t, one))
	testkit.True(t, one.CompletedAt == nil, "record %s", toJSON(t, one))

	// unchanged outputs count too
	p.finish(c, bad)

	// 001.4.13
	refused(t, refusal(t, c, worse), session.ToolError, "quality_gate_failed", "Quality gate failed after 3 attempts",
		"worse.md was read\n- Not met: Is it good?: no\n")
	n := rev.calls()
	refused(t, refusal(t, c, worse), session.ToolError, "quality_gate_failed", "Quality gate failed after 3 attempts",
		"worse.md was read")
	testkit.Equal(t, rev.calls(), n, "unchanged outputs were reviewed past the maximum")
	testkit.Equal(t, stepOf(p.finish(c, good).BeginStep), "two") // 001.4.14

	one = p.record(id).Progress("one")
	testkit.Equal(t, one.QualityTries, 4, "record %s", toJSON(t, one))
	testkit.Equal(t, one.Newest().State, machine.TryPassed, "record %s", toJSON(t, one))
	testkit.True(t, one.Newest().Verdicts[0].By != "", "record %s", toJSON(t, one))
	testkit.True(t, one.CompletedAt != nil, "record %s", toJSON(t, one))
}

func TestAReviewThatGivesNoVerdictVoidsTheAttempt(t *testing.T) {
	p, _, rev, c, id := underReview(t)
	for what, say := range map[string]string{"crash": "", "garbage": "I think it is fine", "two": passes + passes,
		"contradiction": `{"passed": true, "criteria_results": [{"criterion": "Good", "passed": false, "feedback": ` +
			`"x"}]}`} {
		rev.set("say", say)
		words := []string{"does not count"}
		if what == "crash" {
			rev.set("exit", "")
			words = append(words, "3", "the last words of the reviewer")
		}
		refused(t, refusal(t, c, good), session.ToolError, "review_failed", words...)
		rev.unset("exit")
		one := p.record(id).Progress("one")
		testkit.Equal(t, one.QualityTries, 0, "%s: record %s", what, toJSON(t, one))
		testkit.Equal(t, one.Newest().State, machine.TryVoid, "%s: record %s", what, toJSON(t, one))
		testkit.Need(t, one.Newest().Error != nil, "%s: record %s", what, toJSON(t, one))
		testkit.True(t, one.CompletedAt == nil, "%s: record %s", what, toJSON(t, one))
	}
	rev.set("say", passes)
	got := rev.held(c, good)
	p.write("good.md", "something else") // under the review
	rev.unset("wait")
	refused(t, (<-got).err, session.ToolError, "review_failed", "good.md")
	s := p.record(id)
	testkit.True(t, s.CurrentStepID == "one" && s.Progress("one").QualityTries == 0, "record %s", toJSON(t, s))
	says(t, p.finish(c, good), replies.NextStep)
}

// A review goes on when its call has ended, also if its caller left. Its verdict moves nothing before it is collected.
func TestAReviewOutlivesItsCallAndIsCollected(t *testing.T) {
	for name, within := range map[string]time.Duration{
		"its time is over":    20 * time.Millisecond,
		"its caller has left": patience,
	} {
		t.Run(name, func(t *testing.T) {
			p, _, rev, c, id := underReview(t, Reviewing{External: true, MaxTries: 3, ReplyWithin: within})
			rev.set("wait", "")
			if within == patience {
				leaving, leave := context.WithCancel(ctx)
				got := beside(t, leaving, c, good)
				rev.runs(1)
				leave()
				testkit.FailsWith(t, (<-got).err, context.Canceled)
			} else {
				for range 3 { // joins the same review each time
					r := p.finish(c, good)
					says(t, r, replies.NeedsWork, "Review running: ", "same outputs")
					testkit.True(t, r.Waiting() != nil && r.Waiting().Code == "review_running", "reply %s",
						toJSON(t, r))
				}
			}
			rev.unset("wait")
			var one *machine.StepProgress
			testkit.Until(t, "recorded", func() bool {
				one = p.record(id).Progress("one")
				return one != nil && !one.Newest().Open()
			})
			testkit.Equal(t, one.Newest().State, machine.TryPassed,
				"a verdict that nobody waited for moved the session: %s", toJSON(t, one))
			testkit.True(t, !one.Newest().Collected, "a verdict that nobody waited for moved the session: %s",
				toJSON(t, one))
			testkit.Need(t, one.CompletedAt == nil, "a verdict that nobody waited for moved the session: %s",
				toJSON(t, one))
			testkit.Equal(t, stackOf(t, c)[0].Step, "one",
				"a verdict that nobody waited for moved the session: %s", toJSON(t, one))

			says(t, p.finish(c, good), replies.NextStep)
			testkit.Equal(t, [2]int{p.record(id).Progress("one").QualityTries, rev.calls()}, [2]int{1, 1},
				"attempts, and calls of the reviewer")
		})
	}
}

func TestOtherOutputsCancelAReviewThatRuns(t *testing.T) {
	p, _, rev, c, id := underReview(t)
	got, other := rev.held(c, bad), beside(t, ctx, c, good)
	refused(t, (<-got).err, session.StateError, "review_superseded")
	rev.runs(2)
	rev.unset("wait")
	x := <-other
	testkit.True(t, x.err == nil && x.r.Status == replies.NextStep, "reply %s, %v", toJSON(t, x.r), x.err)

	one := p.record(id).Progress("one")
	testkit.Equal(t, one.QualityTries, 1, "tries %s", toJSON(t, one.Tries()))
	testkit.Equal(t, one.Tries()[0].State, machine.TryVoid, "tries %s", toJSON(t, one.Tries()))
	testkit.Equal(t, one.Tries()[1].Number, 1, "tries %s", toJSON(t, one.Tries()))
}

func TestPassedReviewsOfUnchangedContentAreNotRunAgain(t *testing.T) {
	p := newProject(t).alpha("[one]", ofParts("one"))
	for _, n := range []string{"good.md", "good2.md", "bad.md"} {
		p.write(n, "CONTENT OF "+n)
	}
	_, rev, c, id := p.reviewed()
	const all = `{"outputs":{"parts":["good.md","good2.md","bad.md"]}}`
	r := p.finish(c, all)
	testkit.Need(t, r.Status == replies.NeedsWork, "reply %s after %d reviews", toJSON(t, r), rev.calls())
	testkit.Need(t, len(r.FailedReviews) == 1, "reply %s after %d reviews", toJSON(t, r), rev.calls())
	testkit.Need(t, *r.FailedReviews[0].TargetFile == "bad.md", "reply %s after %d reviews", toJSON(t, r), rev.calls())
	testkit.Need(t, rev.calls() == 3, "reply %s after %d reviews", toJSON(t, r), rev.calls())

	p.write("bad.md", "CONTENT OF something better")
	p.write("good2.md", "CONTENT OF good2.md, changed")
	says(t, p.finish(c, all), replies.WorkflowComplete)
	testkit.Equal(t, rev.calls(), 5, "reviews")
	testkit.Equal(t, strings.Count(toJSON(t, p.record(id).Progress("one").Newest().Verdicts), `"reused":true`), 1,
		"verdicts that were taken over")
}

// A server that ends in the middle of a review never counts it as passed, and gives it up: the next one goes on
// without a wait.
func TestAServerThatEndsInMidReviewNeverCountsItAsPassed(t *testing.T) {
	p, srv, rev, c, id := underReview(t)
	got := rev.held(c, good)
	srv.stop()
	refused(t, (<-got).err, session.StateError, "shutting_down")
	a := p.record(id).Progress("one").Newest()
	testkit.True(t, a.Open(), "attempt %s", toJSON(t, a))

	rev.unset("wait")
	c = p.reopen(rev).Connect("local")
	began := time.Now()
	says(t, p.finish(c, `{"outputs":{"report":"good.md"},"session_id":"`+id+`"}`), replies.NextStep)
	took := time.Since(began)
	testkit.True(t, took <= 14*time.Second, "it took %v, as long as a killed server's", took)
	one := p.record(id).Progress("one")
	testkit.Equal(t, [3]int{one.QualityTries, len(one.Tries()), rev.calls()}, [3]int{1, 1, 2},
		"tries that count, tries and calls of the reviewer: record %s", toJSON(t, one))
}

func TestOverrideAndGoToStepWhileAReviewRuns(t *testing.T) {
	p, _, rev, c, id := underReview(t)
	got := rev.held(c, good)
	testkit.Must(t, errOf(c.GoTo(ctx, GoToArgs{StepID: "one"})))
	refused(t, (<-got).err, session.StateError, "step_moved_on")
	testkit.Equal(t, p.record(id).History[0].Progress[0].Value.Newest().State, machine.TryVoid, "history")
	testkit.Until(t, "ended with its try", func() bool { return rev.gate.Stats().Running == 0 })
	got = rev.held(c, good)
	says(t, p.finish(c, `{"outputs":{"report":"good.md"},"quality_review_override_reason":"the user said so"}`),
		replies.NextStep)
	testkit.Must(t, (<-got).err) // that with the same outputs has the same reply
	one := p.record(id).Progress("one")
	testkit.Equal(t, one.Newest().State, machine.TryVoid, "record %s", toJSON(t, one))
	testkit.Need(t, len(one.Overrides) == 1, "record %s", toJSON(t, one))
	testkit.Equal(t, one.QualityTries, 0, "record %s", toJSON(t, one))
	rev.unset("wait")
}

// An output that was not handed in has no review, by the agent itself or by a reviewer, and a step without
// any other review passes.
func TestReview_NothingToJudge(t *testing.T) {
	for name, external := range map[string]bool{"self": false, "reviewer": true} {
		t.Run(name, func(t *testing.T) {
			const outputs = "{report: {type: file, description: d}, extra: {type: files, description: d, required: " +
				"false}}"
			const ofExtra = `{run_each: extra, quality_criteria: {Good: "Is the extra good?"}}`
			p := newProject(t).alpha("[one, two]", testStep{id: "one", outputs: outputs, reviews: "[" + ofExtra + "]"},
				testStep{
					id:      "two",
					outputs: outputs,
					reviews: `[{run_each: report, quality_criteria: {Good: "Is the report good?"}}, ` + ofExtra + "]",
				})
			_, rev, c, id := p.reviewed(Reviewing{External: external, MaxTries: 3, ReplyWithin: patience})
			for _, outputs := range []string{`{"report":"r.md"}`, `{"report":"r.md","extra":[]}`} {
				testkit.Equal(t, stepOf(p.finish(c, `{"outputs":`+outputs+`,"step_id":"one"}`).BeginStep), "two",
					"without extra")
				testkit.Must(t, errOf(c.GoTo(ctx, GoToArgs{StepID: "one"})))
			}
			p.finish(c, `{"outputs":{"report":"r.md"}}`)
			testkit.Equal(t, p.record(id).Progress("one").FinishedWith().Why()[0].Kind, judging.NotDue)
			p.finish(c, `{"outputs":{"report":"r.md"}}`)
			if external {
				testkit.Equal(t, rev.calls(), 1, "reviewers of what was handed in")
				return
			}
			file := string(
				testkit.Get(os.ReadFile(filepath.Join(p.root, ".deepwork/tmp/quality_review_"+id+"_two.md"))).Must(t))
			testkit.True(t, strings.Contains(file, "Is the report good?") && !strings.Contains(file, "extra"),
				"the review:\n%s", file)
		})
	}
}

func TestContentThatChangesAfterItsVerdictIsJudgedAgain(t *testing.T) {
	p := newProject(t).alpha("[one, two]", ofParts("one"), testStep{id: "two"})
	p.write("good.md", "CONTENT OF good.md")
	p.write("bad.md", "CONTENT OF bad.md")
	_, rev, c, _ := p.reviewed(Reviewing{External: true, MaxTries: 9, ReplyWithin: patience})
	const both = `{"outputs":{"parts":["good.md","bad.md"]}}`
	p.finish(c, both) // good.md passes, bad.md fails
	p.write("bad.md", "CONTENT OF something better")
	got := rev.held(c, both)
	p.write("good.md", "CONTENT OF bad.md") // its verdict was for something else
	rev.unset("wait")
	x := <-got
	testkit.True(t, x.err == nil && x.r.Status == replies.NeedsWork, "content that nobody judged: %s, %v",
		toJSON(t, x.r), x.err)
}

// What the checks have read is not taken for what the files are when the review after them ends.
func TestAChangeDuringTheReviewAfterChecksIsChecked(t *testing.T) {
	s := newScript(t, "exit 0")
	k := checkedProject(t, true, "["+s.yaml("")+"]", reviewedStep)
	k.write("good.md", "CONTENT OF good.md")
	_, rev, c, id := k.reviewed(Reviewing{External: true, MaxTries: 9, ReplyWithin: patience})
	got := rev.held(c, good)
	k.write("src/a", "changed")
	rev.unset("wait")
	x := <-got
	testkit.True(t, x.err == nil && x.r.Status == replies.NextStep, "%s, %v", toJSON(t, x.r), x.err)
	testkit.Equal(t, [2]int{s.runs(), rev.calls()}, [2]int{2, 1}, "runs of the check, and of the reviewer: %s",
		toJSON(t, k.record(id).Progress("one").Submissions))
}

func TestAReviewAddedWhileOneRunsIsNotSkipped(t *testing.T) {
	p, _, rev, c, id := underReview(t)
	got := rev.held(c, good)
	p.alpha("[one, two]", testStep{id: "one", outputs: oneFile, reviews: "[{run_each: step, quality_criteria: {Good: " +
		"\"Is it good?\"}}, {run_each: report, quality_criteria: {Strict: \"Is it safe?\"}}]"}, testStep{id: "two"})
	rev.set("say", `{"passed": true, "feedback": "fine"}`)
	rev.unset("wait")
	x := <-got
	testkit.Need(t, x.err == nil && x.r.Status == replies.NextStep, "reply %s, %v", toJSON(t, x.r), x.err)
	testkit.Equal(t, strings.Count(toJSON(t, p.record(id).Progress("one").Tries()), `"run_each":"report"`), 1,
		"verdicts of the added review")
}

func TestAMemberUnderReviewHoldsItsGroup(t *testing.T) {
	p := newProject(t).alpha("[[a, b], c]", testStep{id: "a"},
		testStep{id: "b", outputs: oneFile, reviews: reviewedStep}, testStep{id: "c"})
	_, rev, c, _ := p.reviewed()
	got := rev.held(c, `{"outputs":{"report":"r.md"},"step_id":"b"}`)
	r := p.finish(c, `{"outputs":{}}`) // the primary
	testkit.True(t, r.BeginStep == nil && strings.Join(r.PendingConcurrentSteps, " ") == "b",
		"the group went on without b: %s", toJSON(t, r))

	rev.unset("wait")
	x := <-got
	testkit.True(t, x.err == nil && stepOf(x.r.BeginStep) == "c", "reply %s, %v", toJSON(t, x.r), x.err)

	for why, b := range map[string]testStep{
		"Quality review required": {id: "b", outputs: oneFile, reviews: reviewedStep},
		"expected an object":      {id: "b", outputs: "{report: {type: file, description: d, schema: {type: object}}}"},
	} {
		p := newProject(t).alpha("[[a, b], c]", testStep{id: "a"}, b, testStep{id: "c"})
		_, c, _ := p.begin()
		says(t, p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"b"}`), replies.NeedsWork, why)
		testkit.Equal(t, strings.Join(p.finish(c, `{"outputs":{}}`).PendingConcurrentSteps, " "), "b", why)
	}
}

func TestTheSameCallsJoinOneReview(t *testing.T) {
	for call, want := range map[string]replies.Status{bad: replies.NeedsWork, good: replies.NextStep} {
		p, _, rev, c, id := underReview(t)
		rev.set("wait", "")
		var all []chan answered
		joined := make(chan struct{}, 4) // a call is told how its review is as it joins it
		for range 4 {
			once := sync.OnceFunc(func() { joined <- struct{}{} })
			all = append(all, beside(t, connection.WithProgress(ctx, func(int, int, string) { once() }), c, call))
		}
		for range 4 {
			<-joined
		}

		rev.unset("wait")
		for _, got := range all {
			x := <-got
			testkit.Need(t, x.err == nil, "reply %s, %v", toJSON(t, x.r), x.err)
			testkit.Equal(t, x.r.Status, want, "reply %s, %v", toJSON(t, x.r), x.err)
			testkit.Equal(t, strings.Contains(toJSON(t, x.r.Feedback), "bad.md was read"), (call == bad),
				"reply %s, %v", toJSON(t, x.r), x.err)
		}
		testkit.Equal(t, [2]int{p.record(id).Progress("one").QualityTries, rev.calls()}, [2]int{1, 1},
			"attempts, and calls of the reviewer")
	}
}

func TestACallerThatLeavesMidCallRepeatsItSafely(t *testing.T) {
	p := newProject(t).alpha("[one, two, three]", testStep{id: "one"}, testStep{id: "two"}, testStep{id: "three"})
	_, c, _ := p.begin()
	for range 50 {
		leaving, leave := context.WithCancel(ctx)
		got := beside(t, leaving, c, `{"outputs":{},"request_id":"r"}`)
		leave()
		x := <-got
		testkit.Need(t, x.err == nil || errors.Is(x.err, context.Canceled), "%v", x.err)
	}
	testkit.Equal(t, p.finish(c, `{"outputs":{},"request_id":"r"}`).BeginStep.StepID, "two", "reply")

	starting, id := StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", RequestID: new("s")}, ""
	for i := range 51 {
		leaving, leave := context.WithCancel(ctx)
		if i < 50 {
			go leave()
		}
		r, err := c.Start(leaving, starting)
		testkit.True(t, err == nil && (id == "" || r.BeginStep.SessionID == id) || err != nil && i < 50,
			"start %d: %s, not %s, %v", i, toJSON(t, r), id, err)
		if err == nil {
			id = r.BeginStep.SessionID
		}
		leave()
	}
	testkit.Equal(t, len(stackOf(t, c)), 2, "sessions")
}

func TestTwoServersShareAReview(t *testing.T) {
	p, first, rev, _, id := underReview(t)
	second := p.reopen(rev)
	rev.set("wait", "")
	call := `{"outputs":{"report":"good.md"},"step_id":"one","session_id":"` + id + `"}`
	calls := []chan answered{beside(t, ctx, first.Connect("local"), call),
		beside(t, ctx, second.Connect("local"), call)}
	rev.runs(1)
	// Both wait now, or will.
	testkit.True(t, testkit.Get(second.Connect("local").Step(ctx, StepArgs{SessionID: &id})).Must(t).
		Members[0].ReviewRunning, "get_step at the other server does not say that it runs")

	rev.unset("wait")
	for i, got := range calls {
		x := <-got
		testkit.True(t, x.err == nil && stepOf(x.r.BeginStep) == "two", "server %d: %s, %v", i, toJSON(t, x.r), x.err)
	}
	testkit.Equal(t, rev.calls(), 1, "calls of the reviewer")

	one := p.record(id).Progress("one")
	testkit.True(t, len(one.Tries()) == 1 && one.QualityTries == 1, "tries %s", toJSON(t, one.Tries()))
}

// A call whose budget is over says that the review runs, wherever it runs.
func TestAReviewElsewhereOutlivesTheCall(t *testing.T) {
	p, _, rev, c, id := underReview(t)
	second := p.reopen(rev).Connect("local")
	rev.set("wait", "")
	call := `{"outputs":{"report":"good.md"},"step_id":"one","session_id":"` + id + `"}`
	got := beside(t, ctx, c, call)
	rev.runs(1)
	rev.how.Store(&Reviewing{External: true, MaxTries: 3, ReplyWithin: 10 * time.Millisecond})
	r := p.finish(second, call)
	testkit.True(t, r.Status == replies.NeedsWork && r.Waiting() != nil, "reply %s", toJSON(t, r))
	rev.unset("wait")
	testkit.Must(t, (<-got).err)
	says(t, p.finish(second, call), replies.NextStep)
	testkit.Equal(t, rev.calls(), 1, "calls of the reviewer")
}

// A call that waits for a review, at either server, is told what became of the outputs that it handed in, if that was
// decided at another one. It begins no review.
func TestAReviewElsewhereIsSuperseded(t *testing.T) {
	finish := func(a FinishArgs) func(*Conn, string, int64) error {
		a.StepID = new("one")
		return func(c *Conn, id string, _ int64) error {
			a.SessionID = &id
			return errOf(c.Finish(ctx, a))
		}
	}
	for name, c := range map[string]struct {
		code    string
		reviews int
		do      func(c *Conn, id string, submission int64) error
	}{
		"by other outputs": {"review_superseded", 2, finish(FinishArgs{Outputs: outputsOf("report", "bad.md")})},
		"by a restart of the step": {"step_moved_on", 1, func(c *Conn, id string, _ int64) error {
			return errOf(c.GoTo(ctx, GoToArgs{StepID: "one", SessionID: &id}))
		}},
		"by an abort": {`step_moved_on","message":"While this call was under way, another one ended the session`, 1,
			func(c *Conn, id string, _ int64) error {
				return errOf(c.Abort(ctx, AbortArgs{Explanation: "x", SessionID: &id}))
			}},
		"by an override": {"", 1, finish(FinishArgs{
			Outputs:        outputsOf("report", "good.md"),
			OverrideReason: new("Nobody needs it"),
		})},
		"by its caller": {"review_failed", 1, func(c *Conn, id string, submission int64) error {
			g := replies.Going{SessionID: id, StepID: "one", Submission: submission}
			return c.CancelReview(ctx, g)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p, _, rev, first, id := underReview(t)
			second, third := p.reopen(rev), p.reopen(rev)
			rev.set("wait", "")
			call := `{"outputs":{"report":"good.md"},"step_id":"one","session_id":"` + id + `"}`
			calls := []chan answered{beside(t, ctx, first, call)}
			rev.runs(1)
			calls = append(calls, beside(t, ctx, second.Connect("local"), call))
			second.waitsElsewhere(t, id)
			handed := p.record(id).Progress("one").Handed().ID
			done := make(chan error, 1)
			go func() { done <- c.do(third.Connect("local"), id, handed) }()

			for i, got := range calls {
				x := <-got
				testkit.True(t, strings.Contains(toJSON(t, x.err), c.code) &&
					(c.code == "" && x.err == nil || strings.Contains(c.code, "ended the session") ||
						strings.Contains(x.err.Error(), "tep 'one'")), "the call at server %d: %s, %v", i+1,
					toJSON(t, x.r), x.err)
			}

			rev.runs(c.reviews)
			testkit.Equal(t, rev.calls(), c.reviews, "calls of the reviewer")
			rev.unset("wait")
			testkit.Must(t, <-done)
		})
	}
}

// What was cancelled stays so for those who look at it, whatever becomes of its files.
func TestACancelledReviewOfWhatHasChanged(t *testing.T) {
	p, _, rev, c, id := underReview(t)
	rev.set("wait", "")
	got := beside(t, ctx, c, good)
	rev.runs(1)
	g := replies.Going{SessionID: id, StepID: "one", Submission: p.record(id).Progress("one").Handed().ID}
	testkit.Must(t, c.CancelReview(ctx, g))
	testkit.Fails(t, (<-got).err, "its caller cancelled it", "the call that waited")
	args := FinishArgs{Outputs: outputsOf("report", "good.md")}
	p.write("good.md", "CONTENT OF bad.md")
	testkit.Fails(t, errOf(c.Collect(ctx, g, args, true)), "its caller cancelled it", "edited")
	testkit.Must(t, os.Remove(filepath.Join(p.root, "good.md")))
	testkit.Fails(t, errOf(c.Collect(ctx, g, args, true)), "its caller cancelled it", "removed")
}
