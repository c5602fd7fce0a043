package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"deepwork/actor"
	"deepwork/actor/telemetry"
	"deepwork/catalog/config"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/check"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/outputs"
	"deepwork/session/replies"
	"deepwork/session/store"
)

// Reviewing says how steps are reviewed.
type Reviewing struct {
	External    bool          // by the gate's reviewer; else by the agent itself
	MaxTries    int           // maximum number of failed external reviews (seed 000, 001.1.5)
	ReplyWithin time.Duration // how long a call waits for its review
	Refused     error         // why nothing can be reviewed, or nil
	Override    config.Override
	Reviewer    string // External and Refused said again, in the form of machine.Pinned; "" is the agent itself
	Pin         bool   // sessions keep the reviewer and the criteria that they began with
	// Earlier returns a reviewer of an earlier config, given in the form of machine.Pinned, or the reason why
	// it is not allowed or unable to run. nil means that no earlier reviewer can run.
	Earlier func(reviewer string) (*gate.Reviewer, error)

	use *gate.Reviewer // the pinned session's reviewer, replacing the configured one
}

// errLater means that a later message answers the call.
var errLater = errors.New("answered later")

// A review is a running review in memory. Its Try is the stored part.
type review struct {
	stepID   string
	digest   string
	began    time.Time
	total    int            // number of running tasks
	order    map[string]int // positions of the tasks, by key
	verdicts []gate.Verdict
	done     atomic.Int64 // number of verdicts or checks so far
	round    *check.Round // for a review that runs the step's checks; total is their number, and there is one verdict
	reused   []*machine.Verdict
	waiters  []*waiter
	awake    actor.Reply[struct{}] // an ask that keeps the actor awake
	cancel   context.CancelFunc
}

// A waiter is a call that waits for a review.
type waiter struct {
	m     *finishCall
	timer *time.Timer // fires at the end of its reply_within
}

// self returns the session's own address, for code that runs outside its actor.
func (a *sessionActor) self() actor.Address[message] { return a.engine.sessions.For(a.id) }

// tell sends the actor a message from outside.
func (a *sessionActor) tell(m message) error { return a.self().Tell(a.engine.ctx, m) }

// external has the gate review outputs: the call joins the running review, collects an existing verdict, is
// refused, or starts a review.
func (a *sessionActor) external(
	ctx context.Context, c *candidate, sub gate.Submission, tasks []gate.Task, hashes map[string]string, how Reviewing,
) (*finished, error) {
	m := c.m
	stepID := c.plan.Step.ID
	digest := c.digest
	p := a.state.ProgressOrNew(stepID, a.engine.now())
	running := a.reviews[stepID]
	last := p.Newest()
	reviewed := p.NewestReview()
	m.outputs = c.expanded
	if running != nil && running.digest == digest {
		a.join(running, m)
		return nil, errLater
	}
	if running == nil && last.Open() && last.Digest == digest {
		if f, err := a.awaitOtherReview(ctx, m, stepID); f != nil || err != nil {
			return f, err
		}
	}
	waited := m.joined == digest || m.args.Of != nil // then another call that joined it may already have collected it
	if running == nil && reviewed.Counts() && !reviewed.Imported && reviewed.Digest == digest &&
		(!reviewed.Collected || waited) {
		m.joined = digest // if applied again, this call has collected the verdict
		return a.conclude(ctx, a.state.CollectTry(stepID, a.engine.now()), c)
	}
	if p.FailedTries() >= how.MaxTries {
		if judged := p.LastCounted(); judged != nil && judged.State == machine.TryFailed && judged.Digest == digest {
			return nil, gateFailed(p, stepID, judged,
				strings.TrimSpace("Nothing was reviewed this time, because the outputs are those that failed. "+
					a.afterLimit(stepID, how)+m.notice))
		}
	}

	return a.beginReview(ctx, c, sub, tasks, hashes)
}

// join lets a call wait for a review until its time is up.
func (a *sessionActor) join(r *review, m *finishCall) {
	m.joined = r.digest
	w := &waiter{m: m}
	left := max(time.Until(m.until), 0)
	w.timer = time.AfterFunc(left, func() {
		if err := a.tell(waitOver{r, w}); err != nil {
			m.reply.Fail(err)
		}
	})
	r.waiters = append(r.waiters, w)
	w.progress(r)
}

func (w *waiter) progress(r *review) {
	if w.m.progress != nil {
		done := int(r.done.Load())
		w.m.progress(done, r.total, progressText(r.round != nil, r.stepID, done, r.total))
	}
}

func progressText(checks bool, stepID string, done, total int) string {
	what := "quality review"
	if checks {
		what = "checks"
	}
	return fmt.Sprintf("%s of step '%s': %d of %d done", what, stepID, done, total)
}

// A judgement is one verdict of a review, which may have been cancelled meanwhile.
type judgement struct {
	review  *review
	verdict gate.Verdict
}

func (m judgement) receive(ctx context.Context, a *sessionActor) {
	r := m.review
	if a.reviews[r.stepID] != r {
		return
	}
	r.verdicts = append(r.verdicts, m.verdict)
	if r.round != nil {
		a.judged(ctx, r)
		return
	}
	r.done.Add(1)
	for _, w := range r.waiters {
		w.progress(r)
	}
	if len(r.verdicts) == r.total {
		a.judged(ctx, r)
	}
}

// A waitOver says that a waiter's time is up. The waiter gets an answer if it still waits; the review
// continues.
type waitOver struct {
	review *review
	waiter *waiter
}

func (m waitOver) receive(_ context.Context, a *sessionActor) {
	r, w := m.review, m.waiter
	at := slices.Index(r.waiters, w)
	if a.reviews[r.stepID] != r || at < 0 {
		return
	}
	r.waiters = slices.Delete(r.waiters, at, at+1)
	w.m.reply.Send(a.stillRunning(w.m, r.stepID, int(r.done.Load()), r.total, r.began))
}

// stillRunning is the reply to a call whose time is up before its review ends.
func (a *sessionActor) stillRunning(m *finishCall, stepID string, done, total int, began time.Time) *finished {
	what, counts := "Review running: the quality review of step '%s' is", "its verdict; it counts as the same try"
	if last := a.state.Progress(stepID).Newest(); last != nil && last.Checks {
		what, counts = "Checks running: the checks of step '%s' are", "their results"
	}
	f := a.needsWork(m.notice, fmt.Sprintf(
		what+" still running (%d of %d done, begun %s ago). Nothing is wrong so far: change nothing. Call "+
			"finished_step again with the same outputs and notes, session_id '%s' and step_id '%s' to wait for "+
			counts+".",
		stepID, done, total, a.engine.now().Sub(began).Round(time.Second), a.id, stepID))
	f.Reply.Going = &replies.Going{SessionID: a.id, StepID: stepID, Digest: m.joined, Content: m.content}
	f.Reply.Waits = &session.Waiting{Code: codes.ReviewRunning, RetryAfterMS: 1000} // that call waits, too
	return f
}

// A hold keeps the actor awake during a review: it is an ask that is answered when the review ends.
type hold struct {
	review *review
	reply  actor.Reply[struct{}]
}

func (m hold) receive(_ context.Context, a *sessionActor) {
	if a.reviews[m.review.stepID] == m.review {
		m.review.awake = m.reply
	} else {
		m.reply.Send(struct{}{})
	}
}

// end ends a review of this process. Later verdicts are ignored.
func (a *sessionActor) end(r *review) {
	if a.reviews[r.stepID] == r {
		delete(a.reviews, r.stepID)
	}
	r.cancel()
	r.awake.Send(struct{}{})
}

// drop cancels a running review and answers its waiters.
func (a *sessionActor) drop(r *review, why error) {
	a.end(r)
	for _, w := range r.waiters {
		w.timer.Stop()
		w.m.reply.Fail(why)
	}
}

// beginReview stores the open try, then sends the gate what has not passed before (seed 000, 001.4.8 and
// 001.4.11).
func (a *sessionActor) beginReview(
	ctx context.Context, c *candidate, sub gate.Submission, tasks []gate.Task, hashes map[string]string,
) (*finished, error) {
	stepID, digest := c.plan.Step.ID, c.digest
	r := &review{stepID: stepID, digest: digest, began: a.engine.now(), order: map[string]int{}}
	var todo []gate.Task
	for i, t := range tasks {
		r.order[t.Key] = i
		if v := a.state.ProgressOrNew(stepID, r.began).PassedBefore(t.Key, t.Digest); v != nil {
			again := *v
			again.Reused = true
			r.reused = append(r.reused, &again)
		} else {
			todo = append(todo, t)
		}
	}
	r.total = len(todo)
	next := a.replacing(stepID).OpenTry(stepID,
		machine.Try{OpenedAt: r.began, Outputs: c.outputs, Files: c.files, Digest: digest})
	c.holdGroup(next)
	if len(todo) == 0 {
		// All outputs to review have passed before and are unchanged.
		next = next.CloseTry(stepID, r.reused, "", r.began).CollectTry(stepID, r.began)
		c.evidence = a.evidence(c, machine.ByReviewer, r.reused[0].Reviewer)
		return a.approve(ctx, next, c)
	}
	return a.begin(c.m, r, next, func(ctx context.Context, each func(gate.Verdict)) error {
		return a.engine.Gate.Run(ctx, a.id, sub, todo, each)
	})
}

// replacing returns the state without a step's running review, if another one is to begin.
func (a *sessionActor) replacing(stepID string) *machine.State {
	if a.reviews[stepID] == nil {
		return a.state
	}
	return a.state.CloseTry(stepID, nil, "other outputs were submitted while the review ran", a.engine.now())
}

// begin stores next, in which the review's try is open, starts the review, and lets the call wait for it.
func (a *sessionActor) begin(
	m *finishCall, r *review, next *machine.State, start func(ctx context.Context, each func(gate.Verdict)) error,
) (*finished, error) {
	stepID := r.stepID
	w := &store.SessionWrite{Began: &store.Review{
		Step:   stepID,
		Runner: a.engine.runner,
		Total:  r.total,
		Life:   a.engine.reviewLife,
	}}
	if err := a.commit(m.MovedBy, next, w); err != nil {
		return nil, err
	}
	if old := a.reviews[stepID]; old != nil {
		a.drop(old, superseded(stepID))
	}
	runCtx, cancel := context.WithCancel(
		telemetry.Under(a.engine.ctx, tryRef(next, stepID, next.Progress(stepID).Newest())))
	r.cancel = cancel
	a.reviews[stepID] = r
	a.engine.ran.Store(true)
	err := start(runCtx, func(v gate.Verdict) {
		if err := a.tell(judgement{r, v}); err != nil && runCtx.Err() == nil {
			a.engine.Logger.Warn("a verdict came to a session that is gone", "session", a.id, "step", stepID,
				"error", err)
		}
	})
	if err != nil {
		delete(a.reviews, stepID)
		cancel()
		cerr := a.commit(nil, a.state.LeaveTry(stepID, err.Error(), a.engine.now()), nil)
		if cerr != nil {
			a.engine.Logger.Warn("a try could not be voided", "session", a.id, "step", stepID, "error", cerr)
		}
		return nil, session.NotNow(codes.ReviewNotStarted,
			"The review of step '%s' could not be begun: %v. The try does not count; make the same call again later.",
			stepID, err).Because(err).Wait(10 * time.Second)
	}
	a.engine.background.Go(func() { a.renew(runCtx, r) })
	a.engine.background.Go(func() {
		// The ask ends with the review or with the actor: then nobody would receive the verdict.
		actor.Ask(runCtx, a.self(), func(reply actor.Reply[struct{}]) message { return hold{r, reply} })
		cancel()
	})
	a.join(r, m)
	return nil, errLater
}

// goingOn lets a repeated call wait for what is in progress, whatever the files contain now: a review or
// checks, here or in another process, or a person. It returns neither a reply nor an error if nothing is in
// progress any more.
func (a *sessionActor) goingOn(ctx context.Context, c *candidate) (*finished, error) {
	m, stepID := c.m, c.plan.Step.ID
	p := a.state.ProgressOrNew(stepID, a.engine.now())
	last := p.Newest()
	switch running := a.reviews[stepID]; {
	case running != nil && running.digest == m.joined:
		a.join(running, m)
		return nil, errLater
	case running == nil && last.Open() && last.Digest == m.joined:
		return a.awaitOtherReview(ctx, m, stepID)
	case p.Question.Open() && p.Question.Digest == m.joined && len(c.plan.Step.ReviewsBy(true)) > 0:
		c.digest = m.joined
		return a.approve(ctx, a.state, c)
	}

	return nil, nil
}

// CancelReview ends the review or the checks of these outputs that a finished_step waits for, which makes
// their try void, and withdraws a question to a person. It changes nothing if they are over, and reports
// whether the try is void.
func (c *Conn) CancelReview(ctx context.Context, g replies.Going, given json.RawMessage) (done bool, err error) {
	err = c.engine.actFor(ctx, g.SessionID, "", func(_ context.Context, a *sessionActor, _ caller) error {
		at, next := a.engine.now(), a.state
		is := func(digest string, of outputs.Map) bool {
			return digest == g.Digest || outputs.Same(given, of)
		}
		last := a.state.ProgressOrNew(g.StepID, at).Newest()
		if last.Open() && is(last.Digest, last.Outputs) {
			next = next.CloseTry(g.StepID, nil, "its caller cancelled it", at)
		} else if p := a.state.Progress(g.StepID); p != nil && p.Question.Open() &&
			is(p.Question.Digest, p.Question.Outputs) {
			next = next.Unask(g.StepID, "", at)
		}
		if next == a.state {
			done = last != nil && last.State == machine.TryVoid && is(last.Digest, last.Outputs)
			return nil
		}
		done = true
		return a.commit(nil, next, nil)
	})
	return done, err
}
