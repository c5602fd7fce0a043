package workflow

import (
	"context"
	"sync"
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
	p, first, rev := underReview(t)
	servers := []*server{first, p.reopen(rev)}
	id := p.start(first.Connect("local"), "alpha", "main").BeginStep.SessionID
	rev.set("wait", "")
	var wg sync.WaitGroup
	replies := make([]*machine.FinishReply, len(servers))
	for i, s := range servers {
		wg.Go(func() {
			var err error
			replies[i], err = s.Connect("local").Finish(ctx, finishArgs(t, `{"outputs":{"report":"good.md"},"step_id":"one","session_id":"`+id+`"}`))
			testkit.Works(t, err)
		})
	}
	rev.runs(1)
	// Both wait now, or will.
	step, err := servers[1].Connect("local").Step(ctx, StepArgs{SessionID: &id})
	testkit.True(t, err == nil && step.Members[0].ReviewRunning, "get_step at the other server: %s, %v", toJSON(t, step), err)
	rev.unset("wait")
	wg.Wait()
	for i, r := range replies {
		testkit.True(t, r != nil && r.Status == machine.NextStep && r.BeginStep.StepID == "two", "server %d: %s", i, toJSON(t, r))
	}
	testkit.Equal(t, rev.calls(), 1, "calls of the reviewer")
	one := p.record(id).Progress("one")
	testkit.True(t, len(one.Tries) == 1 && one.QualityTries == 1, "tries %s", toJSON(t, one.Tries))
}

// The review of a server that can no longer renew it is taken up by another one. What the first one's reviewer
// says then does not count, if it says anything at all; the call there learns the other one's verdict.
func TestAReviewIsTakenUp(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"while its reviewer works": false, "while its reviewer hangs": true} {
		t.Run(name, func(t *testing.T) {
			p, first, rev := underReview(t)
			first.reviewLife = 50 * time.Millisecond
			cut := &cutOff{Sessions: first.records.Sessions}
			first.records.Sessions = cut
			id := p.start(first.Connect("local"), "alpha", "main").BeginStep.SessionID
			rev.set("wait", "")
			call := `{"outputs":{"report":"good.md"},"step_id":"one","session_id":"` + id + `"}`
			got := beside(t, ctx, first.Connect("local"), call)
			rev.runs(1)
			second, its := p.reviewed()
			its.set("wait", "")
			other := beside(t, ctx, second.Connect("local"), call)
			its.runs(1)
			// The reviewer of the first one fails its outputs: nobody hears of it.
			rev.set("say", `{"passed": false, "feedback": "bad", "criteria_results": [{"criterion": "Good", "passed": false, "feedback": "no"}]}`)
			if !hangs {
				rev.unset("wait")
			}
			its.unset("wait")
			for name, of := range map[string]chan answered{"first": got, "second": other} {
				x := await(t, of)
				testkit.True(t, x.err == nil && x.r != nil && x.r.Status == machine.NextStep, "the call at the %s server: %s, %v", name, toJSON(t, x.r), x.err)
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
	p, first, rev := underReview(t)
	id := p.start(first.Connect("local"), "alpha", "main").BeginStep.SessionID
	rev.set("wait", "")
	got := beside(t, ctx, first.Connect("local"), `{"outputs":{"report":"good.md"},"session_id":"`+id+`"}`)
	rev.runs(1)
	testkit.Must(t, testkit.Get(p.reopen(rev).Connect("local").Abort(ctx, AbortArgs{Explanation: "enough", SessionID: &id})).Err())
	refused(t, await(t, got).err, session.StateError, "step_moved_on")
}

// A server that stops gives up its reviews: the next call goes on without a wait.
func TestAStoppedServerLeavesItsReview(t *testing.T) {
	p, srv, rev := underReview(t)
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	rev.set("wait", "")
	got := beside(t, ctx, c, `{"outputs":{"report":"good.md"}}`)
	rev.runs(1)
	srv.stop()
	refused(t, await(t, got).err, session.StateError, "shutting_down")
	rev.unset("wait")
	began := time.Now()
	testkit.Equal(t, p.finish(p.reopen(rev).Connect("local"), `{"outputs":{"report":"good.md"},"session_id":"`+id+`"}`).Status, machine.NextStep, "reply")
	took := time.Since(began)
	testkit.True(t, took <= 14*time.Second, "it took %v, as long as a killed server's", took)
	testkit.Equal(t, rev.calls(), 2, "calls of the reviewer")
}

// A call whose budget is over says that the review runs, wherever it runs.
func TestAReviewElsewhereOutlivesTheCall(t *testing.T) {
	p, first, rev := underReview(t)
	second := p.reopen(rev)
	id := p.start(first.Connect("local"), "alpha", "main").BeginStep.SessionID
	rev.set("wait", "")
	call := `{"outputs":{"report":"good.md"},"step_id":"one","session_id":"` + id + `"}`
	got := beside(t, ctx, first.Connect("local"), call)
	rev.runs(1)
	rev.how.Store(&Reviewing{External: true, MaxTries: 3, ReplyWithin: 10 * time.Millisecond})
	r := p.finish(second.Connect("local"), call)
	testkit.True(t, r.Status == machine.NeedsWork && r.Waiting() != nil, "reply %s", toJSON(t, r))
	rev.unset("wait")
	testkit.Must(t, await(t, got).err)
	testkit.Equal(t, p.finish(second.Connect("local"), call).Status, machine.NextStep, "the next call")
	testkit.Equal(t, rev.calls(), 1, "calls of the reviewer")
}

// A call that waits for a review, at either server, is told what became of the outputs that it handed in, if that was
// decided at another one: others were submitted, the step was begun again or finished, or the review was cancelled. It
// begins no review.
func TestAReviewElsewhereIsSuperseded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code    string
		reviews int
		do      func(c *Conn, id string) error
	}{
		"by other outputs": {"review_superseded", 2, func(c *Conn, id string) error {
			return errOf(c.Finish(ctx, FinishArgs{Outputs: outputs("report", "bad.md"), StepID: new("one"), SessionID: &id}))
		}},
		"by a restart of the step": {"step_moved_on", 1, func(c *Conn, id string) error {
			return errOf(c.GoTo(ctx, GoToArgs{StepID: "one", SessionID: &id}))
		}},
		"by an override": {"", 1, func(c *Conn, id string) error {
			return errOf(c.Finish(ctx, FinishArgs{Outputs: outputs("report", "good.md"), StepID: new("one"), SessionID: &id, OverrideReason: new("Nobody needs it")}))
		}},
		"by its caller": {"review_failed", 1, func(c *Conn, id string) error {
			return c.CancelReview(ctx, machine.Going{SessionID: id, StepID: "one"}, outputs("report", "good.md"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p, first, rev := underReview(t)
			second, third := p.reopen(rev), p.reopen(rev)
			id := p.start(first.Connect("local"), "alpha", "main").BeginStep.SessionID
			rev.set("wait", "")
			call := `{"outputs":{"report":"good.md"},"step_id":"one","session_id":"` + id + `"}`
			waits := []chan answered{beside(t, ctx, first.Connect("local"), call)}
			rev.runs(1)
			waits = append(waits, beside(t, ctx, second.Connect("local"), call))
			testkit.Until(t, "waiting for the review of another server", func() bool {
				second.follower.mu.Lock()
				defer second.follower.mu.Unlock()
				return second.follower.waiting[id] != nil
			})
			done := make(chan error, 1)
			go func() { done <- c.do(third.Connect("local"), id) }()
			for i, got := range waits {
				x := await(t, got)
				if code := session.CodeOf(x.err); code != c.code || c.code == "" && x.err != nil {
					t.Errorf("the call at server %d: %s, %v", i+1, toJSON(t, x.r), x.err)
				}
			}
			rev.runs(c.reviews)
			testkit.Equal(t, rev.calls(), c.reviews, "calls of the reviewer")
			rev.unset("wait")
			testkit.Must(t, <-done)
		})
	}
}
