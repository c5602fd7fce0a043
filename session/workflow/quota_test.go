package workflow

import (
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// A caller with as many reviews as it may have is refused, with no attempt spent; others and the
// user are not, and a place is free again when a review has ended.
func TestReviewsOfOneCallerAreBounded(t *testing.T) {
	p := newProject(t)
	p.reviewedJob()
	srv, rev := p.reviewed()
	rev.how.Store(&Reviewing{External: true, MaxAttempts: 3, ReplyWithin: time.Millisecond, PerCaller: 1})
	rev.set("wait", "")
	ann, ann2, bob, user := srv.Connect("ann"), srv.Connect("ann"), srv.Connect("bob"), srv.Connect("local")
	callers := map[*Conn]session.Caller{ann: {Identity: "ann"}, ann2: {Identity: "ann"}, bob: {Identity: "bob"}, user: session.LocalCaller("")}
	finish := func(c *Conn) (*machine.FinishReply, error) {
		return c.Finish(session.WithCaller(ctx, callers[c]), finishArgs(t, `{"outputs":{"report":"good.md"}}`))
	}
	idle := func() {
		testkit.Until(t, "the end of all reviews", func() bool {
			srv.mu.Lock()
			defer srv.mu.Unlock()
			return len(srv.reviewsOf) == 0
		})
	}
	ids := map[*Conn]string{}
	for c := range callers {
		ids[c] = p.start(c, "alpha", "main").BeginStep.SessionID
	}
	for _, c := range []*Conn{ann, bob, user} {
		if r, err := finish(c); err != nil || r.Status != machine.NeedsWork {
			t.Fatalf("%s: %s %v", callers[c].Identity, toJSON(t, r), err)
		}
	}
	for range 5 { // more than there are attempts
		_, err := finish(ann2)
		refused(t, err, session.StateError, "too_many_reviews", "StateError: Waiting: ", "1 reviews of ann run or wait", "http.quotas.reviews", "no attempt is spent", "in 30 seconds")
	}
	if one := p.record(ids[ann2]).ProgressOrNew("one", time.Now()); len(one.Attempts) != 0 {
		t.Errorf("attempts of a refused review: %s", toJSON(t, one))
	}
	// Other outputs replace the review of the step.
	if r, err := ann.Finish(session.WithCaller(ctx, callers[ann]), finishArgs(t, `{"outputs":{"report":"bad.md"}}`)); err != nil || r.Status != machine.NeedsWork {
		t.Errorf("other outputs: %v", err)
	}
	rev.unset("wait")
	rev.how.Store(&Reviewing{External: true, MaxAttempts: 3, ReplyWithin: time.Minute, PerCaller: 1})
	for _, c := range []*Conn{ann, bob, user} {
		if r, err := finish(c); err != nil || r.Status != machine.NextStep {
			t.Errorf("%s: %s %v", callers[c].Identity, toJSON(t, r), err)
		}
	}
	idle()
	if r, err := finish(ann2); err != nil || r.Status != machine.NextStep {
		t.Errorf("later: %s %v", toJSON(t, r), err)
	}
	idle()
}
