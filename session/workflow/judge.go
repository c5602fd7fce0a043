package workflow

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"deepwork/actor/telemetry"
	"deepwork/actor/wait"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/check"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/outputs"
	"deepwork/session/record"
	"deepwork/session/store"
)

// Judging is carried out outside of the actor, in a goroutine for each submission: it has the programs judge, then
// the reviewers, and asks the actor to record what they say. Calls wait for it, and move the step.

// A running is a submission that this process judges.
type running struct {
	session, step string
	id            int64 // of the submission
	look          *look
	call          *finishCall // as which the submission is handed on
	cancel        context.CancelFunc
	over          chan struct{} // closed when no judge runs any more

	mu     sync.Mutex // guards the following fields
	round  *round
	began  time.Time
	done   int            // number of verdicts of the round
	news   chan struct{}  // closed when there is another one
	last   *check.Content // what the checks have seen last, a moment ago; nil means nothing
	closed bool           // the engine is closing
}

// standing returns how far the judges are, and a channel that is closed when they are further.
func (j *running) standing() (s progress, news <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return progress{j.round.kind, j.done, j.round.total, j.began}, j.news
}

// tell records the number of verdicts of the round.
func (j *running) tell(done int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.done = done
	close(j.news)
	j.news = make(chan struct{})
}

// begins records that the judges of a round begin.
func (j *running) begins(r *round, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.round = r
	j.began = at
	j.done = 0
	j.last = nil // the files may change while these judge
	if r.checks != nil {
		r.checks.Done = j.tell
	}
}

// begin stores a submission that has to be judged, and has it judged.
func (a *sessionActor) begin(ctx context.Context, c *candidate) (*result, error) {
	e, stepID := a.engine, c.plan.Step.ID
	r, err := a.roundOf(c, c.now.With, c.now.Verdicts)
	if err != nil {
		return nil, err
	}
	u := a.next(c, c.now.With)
	next := a.state.Submit(stepID, u, a.replacing(stepID), e.now())
	c.holdGroup(next)
	if err := a.commit(c.m.MovedBy, next, &store.SessionWrite{Began: e.rowOf(stepID, r)}); err != nil {
		return nil, err
	}

	span := tryRef(next, stepID, r.kind == judging.ByProgram, u.Turn().At)
	runCtx, cancel := context.WithCancel(telemetry.Under(e.ctx, span))
	j := &running{
		session: a.id,
		step:    stepID,
		id:      u.ID,
		look:    c.read.look,
		call: &finishCall{
			Caller:  c.m.Caller,
			args:    c.m.args,
			from:    e.ctx,
			waited:  u.ID,
			repeats: true,
		},
		cancel: cancel,
		over:   make(chan struct{}),
		news:   make(chan struct{}),
	}
	j.call.Call.RequestID = nil
	j.call.args.OverrideReason = nil // it is a verdict of the submission
	j.begins(r, e.now())
	c.m.waited = u.ID
	if err := r.start(runCtx, r.hear(j)); err != nil {
		cancel()
		return nil, a.notBegun(stepID, u.ID, err)
	}
	if !e.runs(j, func() { e.judge(runCtx, j) }) {
		cancel()
		return nil, shuttingDown(a.id, stepID)
	}
	return &result{wait: &awaited{step: stepID, here: j}}, nil
}

// replacing returns why a submission that is judged now becomes void if another one is handed in.
func (a *sessionActor) replacing(stepID string) string {
	if a.engine.judges(a.id, stepID) != nil {
		return "other outputs were submitted while the review ran"
	}
	return lostRunner
}

// runs adds what this process judges, and carries it out.
func (e *Engine) runs(j *running, f func()) bool {
	key := j.session + "/" + j.step
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.running[key] = j
	e.ran.Store(true)
	e.background.Go(func() {
		defer func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.running[key] == j {
				delete(e.running, key)
			}
			close(j.over)
		}()
		f()
	})
	return true
}

// cancelJudging cancels what this process judges that a state of a session no longer waits for.
func (e *Engine) cancelJudging(next *machine.State) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, j := range e.running {
		if j.session == next.SessionID {
			if u := next.Judged(j.step); u == nil || u.ID != j.id {
				j.cancel()
			}
		}
	}
}

// stopJudging cancels all that this process judges, since the engine is closing.
func (e *Engine) stopJudging() {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.closing: // Close was called before
		return
	default:
		close(e.closing)
	}
	for _, j := range e.running {
		j.mu.Lock()
		j.closed = true
		j.mu.Unlock()
		j.cancel()
	}
}

// rowOf returns the row by which other processes know who judges.
func (e *Engine) rowOf(stepID string, r *round) *store.Review {
	return &store.Review{Step: stepID, Runner: e.runner, Total: r.total, Life: e.reviewLife}
}

// notBegun records that judging could not begin, and returns the error for the call.
func (a *sessionActor) notBegun(stepID string, id int64, cause error) error {
	void := &judging.Void{Why: "it was not begun: " + cause.Error(), NotBegun: true}
	if err := a.commit(nil, a.state.End(stepID, id, void, a.engine.now()), nil); err != nil {
		a.engine.Logger.Warn("a submission could not be voided", "session", a.id, "step", stepID, "error", err)
	}
	return session.NotNow(codes.ReviewNotStarted,
		"The review of step '%s' could not be begun: %v. The try does not count; make the same call again later.",
		stepID, cause).Because(cause).Wait(10 * time.Second)
}

// judge has the judges of a submission judge, one round after the other, and records what they say. ctx ends if
// the session no longer waits for that, or another process has taken it over.
func (e *Engine) judge(ctx context.Context, j *running) {
	defer j.cancel()
	renewing := make(chan struct{})
	go func() {
		defer close(renewing)
		e.renew(ctx, j)
	}()
	defer func() { <-renewing }()
	defer j.cancel()

	for r := j.round; r != nil; {
		var said []gate.Verdict
		for range cap(r.said) {
			select {
			case v := <-r.said:
				said = append(said, v)
			case <-ctx.Done():
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		verdicts, void := r.results(j.step, said)
		var read *contents
		if void == nil {
			read = j.read(ctx, r)
		}

		next, err := ask(context.WithoutCancel(ctx), e, j.session,
			func(ctx context.Context, a *sessionActor) (*round, error) {
				return a.judged(ctx, j, r, verdicts, void, read)
			})
		if err != nil {
			if !errors.Is(err, store.ErrReviewTaken) {
				e.Logger.Warn("a verdict was not recorded", "session", j.session, "step", j.step, "error", err)
			}
			return
		}
		if r = next; r == nil {
			return
		}
		j.begins(r, e.now())
		if err := r.start(ctx, r.hear(j)); err != nil {
			_, _ = ask(context.WithoutCancel(ctx), e, j.session,
				func(_ context.Context, a *sessionActor) (none struct{}, _ error) {
					return none, a.notBegun(j.step, j.id, err)
				})
			return
		}
	}
}

// read reads the content again, to hand the submission on to the next judges; nil if it cannot be read. What the
// checks have read a moment ago is not read again.
func (j *running) read(ctx context.Context, r *round) *contents {
	if r.checks != nil {
		j.mu.Lock()
		j.last = r.checks.After
		j.mu.Unlock()
	}
	if r.checks != nil && len(j.look.schemas) == 0 {
		return &contents{look: j.look, content: r.checks.After}
	}
	read, err := j.look.read(ctx)
	if err != nil {
		return nil
	}
	return read
}

// judged records what the judges of a round say, unless another process has meanwhile taken over: a verdict counts
// once. It hands the submission on to the next judges, whom it returns, if its content is as it was; what follows
// then is up to the calls that wait.
func (a *sessionActor) judged(
	ctx context.Context, j *running, r *round, verdicts []*judging.Verdict, void *judging.Void, read *contents,
) (*round, error) {
	at := a.engine.now()
	u := a.state.Judged(j.step)
	if u == nil || u.ID != j.id || u.With() != r.kind {
		return nil, store.ErrReviewTaken
	}
	w := &store.SessionWrite{}
	var then *round
	var next *machine.State
	if void != nil {
		if verdicts != nil { // of those that did come to one
			u = new(*u)
			u.Verdicts = with(u.Verdicts, r.kind, verdicts)
		}
		next = a.state.Submit(j.step, u.Ended(void, at), "", at)
	} else {
		said := u.To("", with(u.Verdicts, r.kind, verdicts), at)
		var c *candidate
		if said.EndedAt == nil && read != nil {
			c, then = a.handOn(ctx, j, said, read)
		}
		if c == nil {
			next = a.state.Submit(j.step, said, "", at)
		} else {
			next = a.state.Submit(j.step, a.next(c, c.now.With), "", at)
			next.Definition = c.def.Ref
			w = record.Defining(c.def)
		}
	}
	w.Verdict = &store.Review{Step: j.step, Runner: a.engine.runner}
	if then != nil {
		w.Began = a.engine.rowOf(j.step, then)
	}
	if err := a.commit(nil, next, w); err != nil {
		return nil, err
	}
	return then, nil
}

// with returns the verdicts of a submission with those of a kind replaced.
func with(all []*judging.Verdict, kind judging.Kind, new []*judging.Verdict) []*judging.Verdict {
	rest := slices.DeleteFunc(slices.Clone(all), func(v *judging.Verdict) bool { return v.Kind == kind })
	return append(rest, new...)
}

// handOn finds out who judges a submission next, without its caller: reviewers, in the round that it returns, or a
// person. The candidate is nil if nobody does, or if the next call has to decide.
func (a *sessionActor) handOn(
	ctx context.Context, j *running, said *judging.Submission, read *contents,
) (c *candidate, r *round) {
	def, err := a.pin.Definition(ctx, a.state)
	if err != nil {
		return nil, nil
	}
	plan, err := a.state.PlanFinish(def, &j.step, func(outputs.Map) bool { return false })
	if err != nil || plan.Replay != nil {
		return nil, nil
	}
	c = &candidate{m: j.call, def: def, plan: plan, outputs: said.Outputs, expanded: j.look.outputs}
	if c.how, err = a.pin.Reviewing(ctx, a.state); err != nil {
		return nil, nil
	}
	if l, err := a.look(c); err != nil || l == nil || !read.fits(l) {
		return nil, nil
	}
	a.bind(c, read)
	if c.digest != said.Content || c.bound != said.Bound {
		return nil, nil
	}

	past := a.state.Past(j.step)
	past.Submissions = slices.Clone(past.Submissions)
	past.Submissions[len(past.Submissions)-1] = said
	c.now = judging.Next(a.rules(c), past, a.handIn(c))
	switch {
	case c.now.Of != said:
		return nil, nil
	case c.now.Do == judging.Await && c.now.With == judging.ByPerson:
		if c.def, err = a.engine.definitions.Keep(c.def, nil); err != nil { // the person sees the step's criteria
			return nil, nil
		}
		return c, nil
	case c.now.Do == judging.Run && c.now.With == judging.ByReviewer:
		if r, err = a.roundOf(c, c.now.With, c.now.Verdicts); err != nil {
			return nil, nil
		}
		return c, r
	}
	return nil, nil
}

// renew renews what this process judges until that ends. It cancels it if another process has moved the session
// on, or has taken over because this one did not renew it in time.
func (e *Engine) renew(ctx context.Context, j *running) {
	changed := e.follower.changed(j.session)
	due := time.Now().Add(e.reviewLife / 3)
	for wait.Until(ctx, time.Until(due), changed) == nil {
		select {
		case <-changed:
			changed = e.follower.changed(j.session)
			// Reading the session cancels what it no longer waits for.
			_, err := ask(ctx, e, j.session, func(ctx context.Context, a *sessionActor) (none struct{}, err error) {
				_, err = a.refresh(ctx)
				return none, err
			})
			if err != nil {
				e.Logger.Debug("a session that is judged could not be read", "session", j.session, "error", err)
			}
		default:
		}

		if time.Now().Before(due) {
			continue
		}
		due = time.Now().Add(e.reviewLife / 3)
		s, _ := j.standing()
		bounded, cancel := context.WithTimeout(ctx, e.reviewLife/3)
		kept, err := e.records.RenewReview(bounded, j.session,
			store.Review{Step: j.step, Runner: e.runner, Done: s.done, Life: e.reviewLife})
		cancel()
		if err != nil || kept {
			continue // on an error it still ends with its verdict, unless it is taken over
		}
		if ctx.Err() == nil {
			e.Logger.Warn("a review was taken up by another server", "session", j.session, "step", j.step)
		}
		j.cancel()
		return
	}
}

// leaveJudging cancels what this process judges, and gives it up, so that other servers need not wait.
func (e *Engine) leaveJudging(ctx context.Context) {
	if !e.ran.Load() {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := e.records.LeaveReviews(ctx, e.runner); err != nil {
		e.Logger.Debug("others take up the reviews of this server only when their time is over", "error", err)
	}
}
