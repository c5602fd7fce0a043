package workflow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"deepwork/actor"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// beginReview records the attempt, durably, and passes what has not passed before to the gate (seed
// 000, 001.4.8 and 001.4.11).
func (a *sessionActor) beginReview(ctx context.Context, c *candidate, sub gate.Submission, tasks []gate.Task, digest string, hashes map[string]string, how Reviewing) (*finished, error) {
	stepID := c.plan.Step.ID
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
	base := a.state
	if old := a.reviews[stepID]; old != nil {
		base = base.CloseAttempt(stepID, nil, "other outputs were submitted while the review ran", r.began)
	}
	if len(tasks) == 0 {
		c.evidence = a.evidence(c, machine.NotDue, "")
		return a.approve(ctx, base, c)
	}
	next := base.OpenAttempt(stepID, machine.Attempt{OpenedAt: r.began, Outputs: c.outputs, Files: machine.FileHashes(c.outputs, hashes), Digest: digest})
	if c.plan.ByStepID && len(c.plan.Pending) > 0 {
		next.ReportedByStepID = true // its group waits for it from now on
	}
	if len(todo) == 0 {
		// Everything to review has passed before, unchanged.
		next = next.CloseAttempt(stepID, r.reused, "", r.began).CollectAttempt(stepID, r.began)
		c.evidence = a.evidence(c, machine.ByReviewer, r.reused[0].Reviewer)
		return a.approve(ctx, next, c)
	}
	w := &store.SessionWrite{Began: &store.Review{Step: stepID, Runner: a.engine.runner, Total: r.total, Life: a.engine.reviewLife}}
	if err := a.commit(c.m.MovedBy, next, w); err != nil {
		return nil, err
	}
	if old := a.reviews[stepID]; old != nil {
		a.drop(old, superseded(stepID))
	}
	runCtx, cancel := context.WithCancel(a.engine.ctx)
	r.cancel = cancel
	a.reviews[stepID] = r
	a.engine.ran.Store(true)
	err := a.engine.Gate.Run(runCtx, a.id, sub, todo, func(v gate.Verdict) {
		if err := a.tell(func(ctx context.Context, a *sessionActor) { a.verdict(ctx, r, v) }); err != nil && runCtx.Err() == nil {
			a.engine.Logger.Warn("a verdict came to a session that is gone", "session", a.id, "step", stepID, "error", err)
		}
	})
	if err != nil {
		delete(a.reviews, stepID)
		cancel()
		if cerr := a.commit(nil, a.state.CloseAttempt(stepID, nil, err.Error(), a.engine.now()), nil); cerr != nil {
			a.engine.Logger.Warn("an attempt could not be voided", "session", a.id, "step", stepID, "error", cerr)
		}
		return nil, session.NotNow(codes.ReviewNotStarted, "The review of step '%s' could not be begun: %v. The attempt does not count; make the same call again later.", stepID, err).Because(err).Wait(10 * time.Second)
	}
	a.engine.background.Go(func() { a.renew(runCtx, r) })
	a.engine.background.Go(func() {
		// Ends with the review or the actor: then nobody would take the verdict.
		actor.Ask(runCtx, a.self(), func(reply actor.Reply[struct{}]) message {
			return func(_ context.Context, a *sessionActor) { a.hold(r, reply) }
		})
		cancel()
	})
	a.join(r, c.m, how)
	return nil, errLater
}

// submission is the input of the gate.
func (a *sessionActor) submission(c *candidate) gate.Submission {
	s := gate.Submission{
		SessionID: a.id, Job: c.def.Job, Workflow: c.def.Workflow.Name, Step: c.plan.Step, Goal: a.state.Goal,
	}
	for _, in := range a.state.In(a.engine.Place).Inputs(c.def, c.plan.Step) {
		if in.FromStep != "" {
			s.Inputs = append(s.Inputs, gate.Input{Name: in.Name, Description: in.Description, FromStep: in.FromStep, Paths: in.Paths, Omitted: in.Omitted})
		}
	}
	for _, o := range c.outputs {
		s.Outputs = append(s.Outputs, gate.Output{Name: o.Key, Paths: o.Value.Paths})
	}
	if c.m.args.Notes != nil {
		s.Notes = *c.m.args.Notes
	}
	return s
}

// contentDigest returns the digest of what a review judges: the outputs as submitted, and for each
// task its criteria and its files' content. Calls with the same digest share a review.
func contentDigest(outputs machine.Outputs, tasks []gate.Task) string {
	h := sha256.New()
	for _, o := range outputs {
		fmt.Fprintf(h, "%q %v %q\n", o.Key, o.Value.List, o.Value.Paths)
	}
	for _, t := range tasks {
		fmt.Fprintf(h, "%q %s\n", t.Key, t.Digest)
	}
	return hex.EncodeToString(h.Sum(nil))
}
