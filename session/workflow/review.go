package workflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"deepwork/actor"
	"deepwork/gate"
	"deepwork/session"
)

// Reviewing says how steps are reviewed now.
type Reviewing struct {
	External    bool          // by the gate's reviewer; else the agent sees to it itself
	MaxAttempts int           // of external reviews that fail (seed 000, 001.1.5)
	ReplyWithin time.Duration // how long a call waits for its review
}

// errLater says that a call is answered by a later message.
var errLater = errors.New("answered later")

// A review is one that runs, in memory; what is to survive is its Attempt.
type review struct {
	run      uint64 // tells it from earlier ones of the step
	stepID   string
	digest   string
	began    time.Time
	total    int
	verdicts []gate.Verdict
	reused   []*Verdict
	waiters  []*waiter
	hold     actor.Reply[struct{}] // an ask that keeps the actor awake meanwhile
	cancel   context.CancelFunc
}

// A waiter is a call that waits for a review.
type waiter struct {
	m     finishMessage
	timer *time.Timer // for its reply_within
}

// gone tells whether the caller has left: then the verdict must not move
// anything, since nobody would know.
func (w *waiter) gone() bool {
	select {
	case <-w.m.Gone:
		return true
	default:
		return false
	}
}

// hashedMessage brings the hashes of a submission's files.
type hashedMessage struct {
	M      finishMessage
	Hashes map[string]string
	Err    error
}

// verdictMessage brings one verdict of a running review.
type verdictMessage struct {
	Run     uint64
	StepID  string
	Verdict gate.Verdict
}

// dueMessage says that a waiter must be answered now.
type dueMessage struct {
	Run    uint64
	StepID string
	Waiter *waiter
}

// holdMessage keeps the actor awake while a review runs.
type holdMessage struct {
	Run    uint64
	StepID string
	Reply  actor.Reply[struct{}]
}

func (hashedMessage) sessionMessage()  {}
func (verdictMessage) sessionMessage() {}
func (dueMessage) sessionMessage()     {}
func (holdMessage) sessionMessage()    {}

// self is the session's own address, for what runs beside its actor.
func (a *sessionActor) self() actor.Address[message] { return a.engine.sessions.For(a.id) }

// tell sends the actor a message from beside it.
func (a *sessionActor) tell(m message) error { return a.self().Tell(a.engine.ctx, m) }

// hash reads the submitted files beside the actor, which goes on receiving.
func (a *sessionActor) hash(m finishMessage, outputs Outputs) {
	var paths []string
	for _, o := range outputs {
		paths = append(paths, o.Value.Paths...)
	}
	a.engine.beside.Go(func() {
		hashes, err := gate.HashFiles(a.engine.root, paths)
		if err := a.tell(hashedMessage{m, hashes, err}); err != nil {
			m.Reply.Fail(err)
		}
	})
}

// hashed decides on a call whose files' content is known: join the review that
// runs, collect a verdict that is there, refuse, or begin a review.
func (a *sessionActor) hashed(ctx context.Context, h hashedMessage) (*finished, error) {
	if h.Err != nil {
		return nil, session.Wrong("file_unreadable", "The outputs cannot be read for their review, so nothing has moved: %v. Mend that and make the same call again.", h.Err).Because(h.Err)
	}
	// The session may have moved on while the files were read.
	c, done, err := a.prepare(ctx, a.state, h.M)
	if err != nil || done != nil {
		return done, err
	}
	how, err := a.engine.reviewing(ctx)
	if err != nil {
		return nil, err
	}
	stepID := c.plan.Step.ID
	sub := a.submission(c)
	tasks := gate.Plan(sub, h.Hashes)
	digest := contentDigest(c.outputs, tasks)
	running := a.reviews[stepID]
	if running != nil && running.digest == digest {
		a.join(running, h.M, how)
		return nil, errLater
	}
	p := a.state.progress(stepID)
	last := p.attempt()
	if running == nil && last != nil && last.counts() && !last.Collected && last.Digest == digest {
		return a.conclude(ctx, a.state.collectAttempt(stepID, a.engine.now()), c)
	}
	if n := p.attemptsLeft(how.MaxAttempts); n <= 0 {
		if judged := p.lastCounted(); judged != nil && judged.State == AttemptFailed && judged.Digest == digest {
			return nil, gateFailed(p.QualityAttempts, stepID, judged,
				"Nothing was reviewed this time, because the outputs are those that failed. Change them and call again, go back with go_to_step, or ask the user whether to pass quality_review_override_reason.")
		}
	}
	return a.beginReview(ctx, c, sub, tasks, digest, h.Hashes, how)
}

// beginReview records the attempt, durably, and hands what was not passed
// before to the gate (seed 000, 001.4.8 and 001.4.11).
func (a *sessionActor) beginReview(ctx context.Context, c *candidate, sub gate.Submission, tasks []gate.Task, digest string, hashes map[string]string, how Reviewing) (*finished, error) {
	stepID := c.plan.Step.ID
	r := &review{run: a.engine.runs.Add(1), stepID: stepID, digest: digest, began: a.engine.now()}
	var todo []gate.Task
	for _, t := range tasks {
		if v := a.state.progress(stepID).passedBefore(t.Key, t.Digest); v != nil {
			again := *v
			again.Reused = true
			r.reused = append(r.reused, &again)
		} else {
			todo = append(todo, t)
		}
	}
	if len(todo) == 0 {
		// Everything there is to judge was passed, as it is.
		return a.complete(ctx, a.state, c)
	}
	r.total = len(todo)
	base := a.state
	if old := a.reviews[stepID]; old != nil {
		base = base.closeAttempt(stepID, nil, "other outputs were submitted while the review ran", r.began)
	}
	next := base.openAttempt(stepID, Attempt{OpenedAt: r.began, Outputs: c.outputs, Files: fileHashes(c.outputs, hashes), Digest: digest})
	if err := a.commit(next); err != nil {
		return nil, err
	}
	if old := a.reviews[stepID]; old != nil {
		a.drop(old, session.NotNow("review_superseded", "The review of step '%s' was cancelled, because other outputs were submitted for it. get_step tells where the session is.", stepID))
	}
	runCtx, cancel := context.WithCancel(a.engine.ctx)
	r.cancel = cancel
	a.reviews[stepID] = r
	err := a.engine.gate.Run(runCtx, a.id, sub, todo, func(v gate.Verdict) {
		if err := a.tell(verdictMessage{r.run, stepID, v}); err != nil && runCtx.Err() == nil {
			a.engine.log.Warn("a verdict came to a session that is gone", "session", a.id, "step", stepID, "error", err)
		}
	})
	if err != nil {
		delete(a.reviews, stepID)
		cancel()
		if cerr := a.commit(a.state.closeAttempt(stepID, nil, err.Error(), a.engine.now())); cerr != nil {
			a.engine.log.Warn("an attempt could not be voided", "session", a.id, "step", stepID, "error", cerr)
		}
		return nil, session.NotNow("review_not_started", "The review of step '%s' could not be begun: %v. The attempt does not count; make the same call again later.", stepID, err).Because(err)
	}
	a.engine.beside.Go(func() {
		// Ends when the review has ended, or the actor has: then nobody would
		// take the verdict.
		actor.Ask(runCtx, a.self(), func(reply actor.Reply[struct{}]) message { return holdMessage{r.run, stepID, reply} })
		cancel()
	})
	a.join(r, c.m, how)
	return nil, errLater
}

// join lets a call wait for a review, as long as its budget lasts.
func (a *sessionActor) join(r *review, m finishMessage, how Reviewing) {
	w := &waiter{m: m}
	left := max(how.ReplyWithin-time.Since(m.Arrived), 0)
	w.timer = time.AfterFunc(left, func() {
		if err := a.tell(dueMessage{r.run, r.stepID, w}); err != nil {
			m.Reply.Fail(err)
		}
	})
	r.waiters = append(r.waiters, w)
	w.progress(r)
}

func (w *waiter) progress(r *review) {
	if w.m.Progress != nil {
		w.m.Progress(len(r.verdicts), r.total, fmt.Sprintf("quality review of step '%s': %d of %d done", r.stepID, len(r.verdicts), r.total))
	}
}

// due answers a waiter whose budget is over: the review goes on.
func (a *sessionActor) due(m dueMessage) {
	r := a.reviews[m.StepID]
	if r == nil || r.run != m.Run {
		return // it ended meanwhile, and the waiter was answered
	}
	at := slices.Index(r.waiters, m.Waiter)
	if at < 0 {
		return
	}
	r.waiters = slices.Delete(r.waiters, at, at+1)
	m.Waiter.m.Reply.Send(&finished{ID: a.id, Reply: &FinishReply{
		Status: NeedsWork,
		Feedback: new(fmt.Sprintf(
			"The quality review of step '%s' is still running (%d of %d done, begun %s ago). Nothing is wrong so far: change nothing. Call finished_step again with the same outputs, session_id '%s' and step_id '%s' to wait for its verdict; it counts as the same attempt.",
			r.stepID, len(r.verdicts), r.total, a.engine.now().Sub(r.began).Round(time.Second), a.id, r.stepID)),
	}})
}

// holding keeps the ask that keeps the actor awake.
func (a *sessionActor) holding(m holdMessage) {
	r := a.reviews[m.StepID]
	if r == nil || r.run != m.Run {
		m.Reply.Send(struct{}{})
		return
	}
	r.hold = m.Reply
}

// drop cancels a running review and answers those who wait for it.
func (a *sessionActor) drop(r *review, why error) {
	if a.reviews[r.stepID] == r {
		delete(a.reviews, r.stepID)
	}
	r.cancel()
	r.hold.Send(struct{}{})
	for _, w := range r.waiters {
		w.timer.Stop()
		w.m.Reply.Fail(why)
	}
}

// verdict takes one verdict of a running review.
func (a *sessionActor) verdict(ctx context.Context, m verdictMessage) {
	r := a.reviews[m.StepID]
	if r == nil || r.run != m.Run {
		return // cancelled meanwhile
	}
	r.verdicts = append(r.verdicts, m.Verdict)
	for _, w := range r.waiters {
		w.progress(r)
	}
	if len(r.verdicts) == r.total {
		a.judged(ctx, r)
	}
}

// judged makes of the verdicts what they mean, and answers who waits.
func (a *sessionActor) judged(ctx context.Context, r *review) {
	delete(a.reviews, r.stepID)
	r.cancel()
	r.hold.Send(struct{}{})
	var waiting []*waiter
	for _, w := range r.waiters {
		w.timer.Stop()
		if !w.gone() {
			waiting = append(waiting, w)
		}
	}
	answerAll := func(done *finished, err error) {
		for _, w := range r.waiters {
			if err != nil {
				w.m.Reply.Fail(err)
			} else {
				w.m.Reply.Send(done)
			}
		}
	}
	verdicts, failure := recorded(r)
	at := a.engine.now()
	next := a.state.closeAttempt(r.stepID, verdicts, failure, at)
	if failure != "" {
		err := a.commit(next)
		if err == nil {
			err = session.Wrong("review_failed", "The quality review of step '%s' gave no verdict, so the attempt does not count and nothing has moved.\n%s", r.stepID, failure).With("step_id", r.stepID)
		}
		answerAll(nil, err)
		return
	}
	if len(waiting) == 0 {
		// The verdict is kept for the call that collects it.
		answerAll(nil, a.commit(next))
		return
	}
	c, done, err := a.prepare(ctx, next, waiting[0].m)
	if err == nil && done == nil {
		done, err = a.conclude(ctx, next.collectAttempt(r.stepID, at), c)
	}
	if err != nil && a.state.progress(r.stepID).attempt().open() {
		// It could not be told: the verdict stays to be collected.
		if cerr := a.commit(next); cerr != nil {
			a.engine.log.Warn("a verdict could not be recorded", "session", a.id, "step", r.stepID, "error", cerr)
		}
	}
	answerAll(done, err)
}

// conclude tells a call the verdict of the newest attempt, which base has as
// collected: it moves on, or says what to change (seed 000, 001.4.12 to 001.4.14).
func (a *sessionActor) conclude(ctx context.Context, base *State, c *candidate) (*finished, error) {
	stepID := c.plan.Step.ID
	p := base.progress(stepID)
	judged := p.attempt()
	if judged.State == AttemptPassed {
		return a.complete(ctx, base, c)
	}
	how, err := a.engine.reviewing(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.commit(base); err != nil {
		return nil, err
	}
	if p.attemptsLeft(how.MaxAttempts) <= 0 {
		return nil, gateFailed(p.QualityAttempts, stepID, judged,
			"Change the outputs and call again, go back with go_to_step, or ask the user whether to pass quality_review_override_reason.")
	}
	failed := judged.failedReviews()
	r := &FinishReply{Status: NeedsWork, Notice: notice(c.def), Feedback: new(combined(failed)), FailedReviews: failed, FailedCriteria: []CriterionResult{}}
	for _, f := range failed {
		for _, cr := range f.Criteria {
			if !cr.Passed {
				r.FailedCriteria = append(r.FailedCriteria, cr)
			}
		}
	}
	return &finished{ID: a.id, Reply: r}, nil
}

// gateFailed refuses a step whose attempts are used up (seed 000, 001.4.13).
func gateFailed(n int, stepID string, judged *Attempt, what string) error {
	return session.Wrong("quality_gate_failed", "Quality gate failed after %s of step '%s'.\n%s\n%s", count(n, "attempt"), stepID, combined(judged.failedReviews()), what).
		With("step_id", stepID).With("attempts", n)
}

// combined is the feedback of failed reviews: of one, its own text and nothing
// around it; of several, theirs, each named (DESIGN "Errors").
func combined(failed []FailedReview) string {
	if len(failed) == 1 {
		return failed[0].Feedback
	}
	parts := make([]string, len(failed))
	for i, f := range failed {
		name := "Review of " + f.RunEach
		if f.TargetFile != nil {
			name += " (" + *f.TargetFile + ")"
		}
		parts[i] = name + ":\n" + f.Feedback
	}
	return strings.Join(parts, "\n\n")
}
