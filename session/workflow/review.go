package workflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"deepwork/actor"
	"deepwork/catalog/config"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/workflow/machine"
)

// Reviewing is how steps are reviewed.
type Reviewing struct {
	External    bool          // by the gate's reviewer; else by the agent itself
	MaxAttempts int           // of external reviews that fail (seed 000, 001.1.5)
	ReplyWithin time.Duration // how long a call waits for its review
	Refused     error         // why nothing may be reviewed, or nil
	Override    config.Override
	Reviewer    string // External and Refused said again, in the form of machine.Pinned; "" is the agent itself
	Pin         bool   // sessions keep to the reviewer and the criteria that they began with
	// Earlier returns a reviewer of an earlier config, in the form of machine.Pinned, or why it may
	// not or cannot run. nil means that none can.
	Earlier func(reviewer string) (*gate.Reviewer, error)

	use *gate.Reviewer // that of the pinned session, instead of the configured one
}

// errLater means that a later message answers the call.
var errLater = errors.New("answered later")

// A review is a running review, in memory; its Attempt is the durable part.
type review struct {
	stepID   string
	digest   string
	began    time.Time
	total    int            // of running tasks
	order    map[string]int // of the tasks, by key
	verdicts []gate.Verdict
	done     atomic.Int64 // of the verdicts, for the store
	reused   []*machine.Verdict
	waiters  []*waiter
	awake    actor.Reply[struct{}] // an ask that keeps the actor awake
	cancel   context.CancelFunc
}

// A waiter is a call that waits for a review.
type waiter struct {
	m     *finishCall
	timer *time.Timer // for its reply_within
}

// self returns the session's own address, for work outside its actor.
func (a *sessionActor) self() actor.Address[message] { return a.engine.sessions.For(a.id) }

// tell sends the actor a message from outside.
func (a *sessionActor) tell(m message) error { return a.self().Tell(a.engine.ctx, m) }

// hash reads the submitted files outside the actor, which continues to receive.
func (a *sessionActor) hash(m *finishCall, outputs machine.Outputs) {
	var paths []string
	for _, o := range outputs {
		paths = append(paths, o.Value.Paths...)
	}
	root := a.root()
	a.engine.background.Go(func() {
		hashes, err := gate.HashFiles(a.engine.ctx, root, paths)
		told := a.tell(func(ctx context.Context, a *sessionActor) {
			answer(m.reply, func() (*finished, error) {
				return apply(ctx, a, func(ctx context.Context, a *sessionActor) (*finished, error) { return a.hashed(ctx, m, hashes, err) })
			})
		})
		if told != nil {
			m.reply.Fail(told)
		}
	})
}

// hashed decides about a call after its files were hashed: join the running review, collect an
// existing verdict, refuse, or start a review.
func (a *sessionActor) hashed(ctx context.Context, m *finishCall, hashes map[string]string, err error) (*finished, error) {
	if err != nil {
		return nil, session.Wrong(codes.FileUnreadable, "The outputs cannot be read for their review, so nothing has moved: %v. Correct that and make the same call again.", err).Because(err)
	}
	if m.from.Err() != nil {
		return nil, context.Canceled // nobody would learn the result
	}
	// The session may have moved on while the files were read.
	c, done, err := a.prepare(ctx, m)
	if err != nil || done != nil {
		return done, err
	}
	how, err := a.reviewing(ctx)
	if err != nil {
		return nil, err
	}
	stepID := c.plan.Step.ID
	sub := a.submission(c)
	sub.Reviewer = how.use
	tasks := gate.Plan(sub, hashes)
	digest := contentDigest(c.outputs, slices.Concat(tasks, gate.PlanHuman(sub, hashes)))
	c.digest, c.files = digest, machine.FileHashes(c.outputs, hashes)
	if next := a.state.Unask(stepID, digest, a.engine.now()); next != a.state {
		if err := a.commit(m.MovedBy, next, nil); err != nil {
			return nil, err
		}
	}
	if c.evidence = a.override(c, how); c.evidence != nil {
		return a.approve(ctx, a.state, c)
	}
	if a.state.Progress(stepID).HasGrant() && how.Override != config.OverrideNever {
		m.notice = fmt.Sprintf("A person has overridden the review of step '%s', but for other outputs than these: those go on without it, these do not.", stepID)
		def := *c.def
		def.Notice = strings.TrimPrefix(def.Notice+" "+m.notice, " ")
		c.def = &def
	}
	p := a.state.ProgressOrNew(stepID, a.engine.now())
	switch {
	case p.Question != nil && p.Question.Digest == digest:
		return a.approve(ctx, a.state, c) // its other reviews have passed
	case !a.engine.Reviews && len(c.plan.Step.ReviewsBy(false)) > 0:
		c.evidence = a.evidence(c, machine.Unreviewed, "")
		return a.approve(ctx, a.state, c)
	case !a.engine.reviewed(c.plan.Step):
		return a.approve(ctx, a.state, c)
	case how.Refused != nil:
		return nil, how.Refused
	case !how.External:
		return a.selfReview(c, how)
	}
	running, last := a.reviews[stepID], p.Newest()
	c.m.outputs = c.outputs
	switch {
	case m.joined == "" || last != nil && (last.Digest == m.joined || last.Digest == digest):
	case last == nil:
		return nil, movedOn(stepID, a.id)
	default:
		return nil, superseded(stepID)
	}
	if running != nil && running.digest == digest {
		a.join(running, c.m, how)
		return nil, errLater
	}
	if running == nil && last.Open() && last.Digest == digest {
		if f, err := a.elsewhere(ctx, c.m, stepID, how); f != nil || err != nil {
			return f, err
		}
	}
	waited := m.joined == digest // then another call that joined it may have collected it first
	if running == nil && last.Counts() && !last.Imported && last.Digest == digest && (!last.Collected || waited) {
		m.joined = digest // if this is applied again, it has collected the verdict
		return a.conclude(ctx, a.state.CollectAttempt(stepID, a.engine.now()), c)
	}
	if p.QualityAttempts >= how.MaxAttempts {
		if judged := p.LastCounted(); judged != nil && judged.State == machine.AttemptFailed && judged.Digest == digest {
			return nil, gateFailed(p.QualityAttempts, stepID, judged,
				strings.TrimSpace("Nothing was reviewed this time, because the outputs are those that failed. Change them and call again, go back with go_to_step, or ask the user whether to pass quality_review_override_reason. "+m.notice))
		}
	}
	return a.beginReview(ctx, c, sub, tasks, digest, hashes, how)
}

func superseded(stepID string) error {
	return session.NotNow(codes.ReviewSuperseded, "The review of step '%s' was cancelled, because other outputs were submitted for it. get_step says where the session is.", stepID)
}

// join lets a call wait for a review, as long as its budget lasts.
func (a *sessionActor) join(r *review, m *finishCall, how Reviewing) {
	m.joined = r.digest
	w := &waiter{m: m}
	left := max(how.ReplyWithin-time.Since(m.arrived), 0)
	w.timer = time.AfterFunc(left, func() {
		if err := a.tell(func(_ context.Context, a *sessionActor) { a.due(r, w) }); err != nil {
			m.reply.Fail(err)
		}
	})
	r.waiters = append(r.waiters, w)
	w.progress(r)
}

func (w *waiter) progress(r *review) {
	if w.m.progress != nil {
		w.m.progress(len(r.verdicts), r.total, progressText(r.stepID, len(r.verdicts), r.total))
	}
}

func progressText(stepID string, done, total int) string {
	return fmt.Sprintf("quality review of step '%s': %d of %d done", stepID, done, total)
}

// verdict takes one verdict of a review, unless it was cancelled meanwhile.
func (a *sessionActor) verdict(ctx context.Context, r *review, v gate.Verdict) {
	if a.reviews[r.stepID] != r {
		return
	}
	r.verdicts = append(r.verdicts, v)
	r.done.Add(1)
	for _, w := range r.waiters {
		w.progress(r)
	}
	if len(r.verdicts) == r.total {
		a.judged(ctx, r)
	}
}

// due answers a waiter whose budget is over, if it is still waiting: the review continues.
func (a *sessionActor) due(r *review, w *waiter) {
	at := slices.Index(r.waiters, w)
	if a.reviews[r.stepID] != r || at < 0 {
		return
	}
	r.waiters = slices.Delete(r.waiters, at, at+1)
	w.m.reply.Send(a.stillRunning(w.m, r.stepID, len(r.verdicts), r.total, r.began))
}

// stillRunning is the reply to a call whose budget is over before its review.
func (a *sessionActor) stillRunning(m *finishCall, stepID string, done, total int, began time.Time) *finished {
	return a.needsWork(m.notice, fmt.Sprintf(
		"Review running: the quality review of step '%s' is still running (%d of %d done, begun %s ago). Nothing is wrong so far: change nothing. Call finished_step again with the same outputs, session_id '%s' and step_id '%s' to wait for its verdict; it counts as the same attempt.",
		stepID, done, total, a.engine.now().Sub(began).Round(time.Second), a.id, stepID))
}

// hold makes an ask that keeps the actor awake during a review.
func (a *sessionActor) hold(r *review, reply actor.Reply[struct{}]) {
	if a.reviews[r.stepID] == r {
		r.awake = reply
	} else {
		reply.Send(struct{}{})
	}
}

// drop cancels a running review and answers its waiters.
func (a *sessionActor) drop(r *review, why error) {
	if a.reviews[r.stepID] == r {
		delete(a.reviews, r.stepID)
	}
	r.cancel()
	r.awake.Send(struct{}{})
	for _, w := range r.waiters {
		w.timer.Stop()
		w.m.reply.Fail(why)
	}
}
