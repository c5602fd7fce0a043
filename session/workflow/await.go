package workflow

import (
	"context"
	"fmt"
	"slices"
	"time"

	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/record"
	"deepwork/session/replies"
	"deepwork/session/store"
)

// Calls wait in goroutines of their own for judges, here or in another process.

// A progress says how far the judges of a submission are.
type progress struct {
	kind        judging.Kind
	done, total int
	began       time.Time
}

func (p progress) report(to ProgressFunc, stepID string) {
	what := "quality review"
	if p.kind == judging.ByProgram {
		what = "checks"
	}
	if to != nil {
		to(p.done, p.total, fmt.Sprintf("%s of step '%s': %d of %d done", what, stepID, p.done, p.total))
	}
}

// An awaited is what a call waits for: judges here, or in another process.
type awaited struct {
	step    string
	here    *running // nil means elsewhere
	there   progress
	changed <-chan struct{} // closed when the session has moved
}

// lookEvery is how often a call looks at judges in another process when nothing wakes it.
const lookEvery = time.Second

// await waits until what a call waits for has ended, and returns what the checks have read meanwhile, if that is
// all there is to read; or it returns the reply to a call whose time is up.
func (e *Engine) await(ctx context.Context, id string, m *finishCall, w *awaited) (*Finished, *contents, error) {
	every := lookEvery
	for {
		now, news := w.there, w.changed
		if w.here != nil {
			now, news = w.here.standing()
			every = time.Until(m.until)
		}
		now.report(m.progress, w.step)
		left := time.Until(m.until)
		if left <= 0 {
			f, err := ask(ctx, e, id, func(_ context.Context, a *sessionActor) (*Finished, error) {
				return a.stillRunning(m, w.step, now), nil
			})
			return f, nil, err
		}

		var over <-chan struct{}
		if w.here != nil {
			over = w.here.over
		}
		timer := time.NewTimer(min(left, every))
		select {
		case <-over:
			timer.Stop()
			return w.here.ended(id)
		case <-e.closing:
			timer.Stop()
			return nil, nil, shuttingDown(id, w.step)
		case <-news:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		switch {
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case w.here == nil && time.Until(m.until) > 0:
			next, err := ask(ctx, e, id, func(ctx context.Context, a *sessionActor) (*awaited, error) {
				return a.elsewhere(ctx, w.step, m.waited)
			})
			if next == nil || err != nil {
				return nil, nil, err
			}
			w = next
		}
	}
}

func shuttingDown(id, stepID string) error {
	return session.NotNow(codes.ShuttingDown, "The server is shutting down, and the review of step '%s' was "+
		"cancelled; the try does not count. When it is back, make the same call again with session_id '%s'.",
		stepID, id).Wait(5 * time.Second)
}

// ended returns what the checks have seen last, if that is all that has to be read for a call.
func (j *running) ended(id string) (*Finished, *contents, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.closed:
		return nil, nil, shuttingDown(id, j.step)
	case j.last == nil || len(j.look.schemas) > 0 || j.look.asks:
		return nil, nil, nil
	}
	return nil, &contents{look: j.look, content: j.last}, nil
}

// stillRunning is the reply to a call whose time is up before its submission is judged.
func (a *sessionActor) stillRunning(m *finishCall, stepID string, p progress) *Finished {
	what, counts := "Review running: the quality review of step '%s' is", "its verdict; it counts as the same try"
	if p.kind == judging.ByProgram {
		what, counts = "Checks running: the checks of step '%s' are", "their results"
	}
	f := a.needsWork(m.notice, fmt.Sprintf(
		what+" still running (%d of %d done, begun %s ago). Nothing is wrong so far: change nothing. Call "+
			"finished_step again with the same outputs and notes, session_id '%s' and step_id '%s' to wait for "+
			counts+".",
		stepID, p.done, p.total, a.engine.now().Sub(p.began).Round(time.Second), a.id, stepID))
	f.Reply.Going = &replies.Going{SessionID: a.id, StepID: stepID, Submission: m.waited}
	f.Reply.Waits = &session.Waiting{Code: codes.ReviewRunning, RetryAfterMS: 1000} // that call waits, too
	return f
}

// goingOn lets a repeated call wait for what is in progress, whatever the files contain now. It returns neither a
// reply nor an error if nothing is in progress any more.
func (a *sessionActor) goingOn(ctx context.Context, c *candidate) (*result, error) {
	u := a.state.Past(c.plan.Step.ID).By(c.m.waited)
	c.now = judging.Now{Of: u, With: u.With()}
	switch {
	case u.Running():
		return a.awaitOthers(ctx, c)
	case u.With() == judging.ByPerson && (u.Turn().About != "" || len(c.plan.Step.ReviewsBy(true)) > 0):
		var err error
		if c.how, err = a.pin.Reviewing(ctx, a.state); err != nil {
			return nil, err
		}
		f, err := a.askPerson(ctx, c)
		return &result{done: f}, err
	}
	return nil, nil
}

// awaitOthers lets a call wait for judges, here or in another process. It returns neither if nobody judges.
func (a *sessionActor) awaitOthers(ctx context.Context, c *candidate) (*result, error) {
	u, stepID := c.now.Of, c.plan.Step.ID
	if j := a.engine.judges(a.id, stepID); j != nil && j.id == u.ID {
		c.m.waited = u.ID
		return &result{wait: &awaited{step: stepID, here: j}}, nil
	}
	changed, err := a.refresh(ctx)
	if err == nil && changed {
		err = errOvertaken
	}
	if err != nil {
		return nil, err
	}
	w, err := a.elsewhere(ctx, stepID, u.ID)
	if w == nil || err != nil {
		return nil, err
	}
	c.m.waited = u.ID
	return &result{wait: w}, nil
}

// elsewhere returns how far another process is that judges a submission, or nil if none does.
func (a *sessionActor) elsewhere(ctx context.Context, stepID string, id int64) (*awaited, error) {
	changed := a.engine.follower.changed(a.id)
	if _, err := a.refresh(ctx); err != nil {
		return nil, err
	}
	u := a.state.Judged(stepID)
	if u == nil || u.ID != id {
		return nil, nil
	}
	row, err := a.runs(ctx, stepID)
	if row == nil || err != nil {
		return nil, err
	}
	return &awaited{
		step:    stepID,
		there:   progress{u.With(), row.Done, row.Total, u.Turn().At},
		changed: changed,
	}, nil
}

// runs returns the judging of a step in another process, or nil. What this process began, and whose beginning was
// not confirmed, runs nowhere.
func (a *sessionActor) runs(ctx context.Context, stepID string) (*store.Review, error) {
	ctx, cancel := record.Timed(ctx)
	defer cancel()
	all, err := a.engine.records.Reviews(ctx, a.id)
	if err != nil {
		return nil, a.engine.records.Unreadable(a.id, err)
	}
	at := slices.IndexFunc(all, func(r store.Review) bool {
		return r.Step == stepID && !r.Over && r.Runner != a.engine.runner
	})
	if at < 0 {
		return nil, nil
	}
	return &all[at], nil
}

// judges returns what this process judges of a step, or nil.
func (e *Engine) judges(id, stepID string) *running {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running[id+"/"+stepID]
}
