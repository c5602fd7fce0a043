package workflow

import (
	"context"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// A reviewed step that is sent to two servers at once runs one reviewer, and both calls are answered with its
// verdict.
func TestTwoServersShareAReview(t *testing.T) {
	p, first, rev, _, id := underReview(t)
	second := p.reopen(rev)
	rev.set("wait", "")
	call := `{"outputs":{"report":"good.md"},"step_id":"one","session_id":"` + id + `"}`
	calls := []chan answered{beside(t, ctx, first.Connect("local"), call), beside(t, ctx, second.Connect("local"), call)}
	rev.runs(1)
	// Both wait now, or will.
	testkit.True(t, testkit.Get(second.Connect("local").Step(ctx, StepArgs{SessionID: &id})).Must(t).Members[0].ReviewRunning, "get_step at the other server does not say that it runs")
	rev.unset("wait")
	for i, got := range calls {
		x := await(t, got)
		testkit.True(t, x.err == nil && stepOf(x.r.BeginStep) == "two", "server %d: %s, %v", i, toJSON(t, x.r), x.err)
	}
	testkit.Equal(t, rev.calls(), 1, "calls of the reviewer")
	one := p.record(id).Progress("one")
	testkit.True(t, len(one.Tries) == 1 && one.QualityTries == 1, "tries %s", toJSON(t, one.Tries))
}

// The review of a server that can no longer renew it is taken up by another one. What the first one's reviewer
// says then does not count, if it says anything at all; the call there learns the other one's verdict.
func TestAReviewIsTakenUp(t *testing.T) {
	for name, hangs := range map[string]bool{"while its reviewer works": false, "while its reviewer hangs": true} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			p.reviewedJob(reviewedStep)
			first, rev, c, id := p.reviewed()
			first.reviewLife = 50 * time.Millisecond
			first.records.Sessions = cutOff{first.records.Sessions}
			its := &reviewer{t: t, dir: t.TempDir()}
			its.how.Store(rev.how.Load())
			second := p.reopen(its)
			rev.set("wait", "")
			its.set("wait", "")
			call := `{"outputs":{"report":"good.md"},"step_id":"one","session_id":"` + id + `"}`
			calls := []chan answered{beside(t, ctx, c, call)}
			rev.runs(1)
			calls = append(calls, beside(t, ctx, second.Connect("local"), call))
			its.runs(1)
			// The reviewer of the first one fails its outputs: nobody hears of it.
			rev.set("say", `{"passed": false, "feedback": "bad", "criteria_results": [{"criterion": "Good", "passed": false, "feedback": "no"}]}`)
			if !hangs {
				rev.unset("wait")
			}
			its.unset("wait")
			for i, got := range calls {
				x := await(t, got)
				testkit.True(t, x.err == nil && x.r.Status == machine.NextStep, "the call at server %d: %s, %v", i, toJSON(t, x.r), x.err)
			}
			one := p.record(id).Progress("one")
			testkit.True(t, len(one.Tries) == 2 && one.Tries[0].State == machine.TryVoid && one.Tries[1].State == machine.TryPassed && one.QualityTries == 1, "tries %s", toJSON(t, one.Tries))
		})
	}
}

// cutOff is a store that renews no review.
type cutOff struct{ store.Sessions }

func (cutOff) RenewReview(context.Context, string, store.Review) (bool, error) {
	return false, store.ErrUnavailable
}

// A session that is aborted at another server ends its review here, and answers the call that waits for it.
func TestAnAbortElsewhereEndsTheReview(t *testing.T) {
	p, _, rev, c, id := underReview(t)
	rev.set("wait", "")
	got := beside(t, ctx, c, good)
	rev.runs(1)
	testkit.Must(t, errOf(p.reopen(rev).Connect("local").Abort(ctx, AbortArgs{Explanation: "enough", SessionID: &id})))
	refused(t, await(t, got).err, session.StateError, "step_moved_on")
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
	testkit.True(t, r.Status == machine.NeedsWork && r.Waiting() != nil, "reply %s", toJSON(t, r))
	rev.unset("wait")
	testkit.Must(t, await(t, got).err)
	says(t, p.finish(second, call), machine.NextStep)
	testkit.Equal(t, rev.calls(), 1, "calls of the reviewer")
}

// A call that waits for a review, at either server, is told what became of the outputs that it handed in, if that was
// decided at another one: others were submitted, the step was begun again or finished, or the review was cancelled. It
// begins no review.
func TestAReviewElsewhereIsSuperseded(t *testing.T) {
	finish := func(a FinishArgs) func(*Conn, string) error {
		a.StepID = new("one")
		return func(c *Conn, id string) error { a.SessionID = &id; return errOf(c.Finish(ctx, a)) }
	}
	for name, c := range map[string]struct {
		code    string
		reviews int
		do      func(c *Conn, id string) error
	}{
		"by other outputs":         {"review_superseded", 2, finish(FinishArgs{Outputs: outputs("report", "bad.md")})},
		"by a restart of the step": {"step_moved_on", 1, func(c *Conn, id string) error { return errOf(c.GoTo(ctx, GoToArgs{StepID: "one", SessionID: &id})) }},
		"by an override":           {"", 1, finish(FinishArgs{Outputs: outputs("report", "good.md"), OverrideReason: new("Nobody needs it")})},
		"by its caller": {"review_failed", 1, func(c *Conn, id string) error {
			return c.CancelReview(ctx, machine.Going{SessionID: id, StepID: "one"}, outputs("report", "good.md"))
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
			done := make(chan error, 1)
			go func() { done <- c.do(third.Connect("local"), id) }()
			for i, got := range calls {
				x := await(t, got)
				testkit.True(t, session.CodeOf(x.err) == c.code && (c.code != "" || x.err == nil), "the call at server %d: %s, %v", i+1, toJSON(t, x.r), x.err)
			}
			rev.runs(c.reviews)
			testkit.Equal(t, rev.calls(), c.reviews, "calls of the reviewer")
			rev.unset("wait")
			testkit.Must(t, <-done)
		})
	}
}
