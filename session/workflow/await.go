package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"deepwork/actor/wait"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/record"
	"deepwork/session/replies"
	"deepwork/session/store"
)

// Calls wait in goroutines of their own for judges, here or in another process.

// A progress says how far the judges are that a submission is with.
type progress struct {
	judging.Turn
	done, total int
}

func (p progress) report(to ProgressFunc, stepID string) {
	what := "quality review"
	if p.With == judging.ByProgram {
		what = "checks"
	}
	if to != nil {
		to(p.done, p.total, fmt.Sprintf("%s of step '%s': %d of %d done", what, stepID, p.done, p.total))
	}
}

// An awaited is what a call waits for: judges here, or in another process.
type awaited struct {
	step string
	here *running // nil means elsewhere
	now  progress
	news <-chan struct{} // closed when there is another verdict or, elsewhere, when the session has moved
}

// lookEvery is how often a call looks at judges in another process when nothing wakes it.
const lookEvery = time.Second

// await waits until what a call waits for has ended, and returns what the checks have read meanwhile, if that is
// all there is to read; or it returns the reply to a call whose time is up.
func (e *Engine) await(ctx context.Context, id string, m *finishCall, w *awaited) (*Finished, *contents, error) {
	within, cancel := context.WithDeadline(ctx, m.until)
	defer cancel()
	defer context.AfterFunc(e.closing, cancel)()
	for {
		w.now.report(m.progress, w.step)
		every := lookEvery
		if w.here != nil {
			every = time.Until(m.until)
		}
		_ = wait.Until(within, every, w.news)
		switch {
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case e.closing.Err() != nil:
			return nil, nil, shuttingDown(id, w.step)
		}

		over := within.Err() != nil
		next, err := ask(ctx, e, id, func(ctx context.Context, a *sessionActor) (*result, error) {
			next, err := a.waitsFor(ctx, w.step, m.waited)
			if next != nil && over {
				return &result{done: a.stillRunning(m, next)}, nil
			}
			return &result{wait: next}, err
		})
		switch {
		case err != nil:
			return nil, nil, err
		case next.done != nil:
			return next.done, nil, nil
		case next.wait == nil:
			return nil, w.here.lastSeen(), nil
		}
		w = next.wait
	}
}

func shuttingDown(id, stepID string) error {
	return session.NotNow(codes.ShuttingDown, "The server is shutting down. The review of step '%s' goes on at "+
		"the next one: when that is there, make the same call again with session_id '%s'.", stepID, id).
		Wait(5 * time.Second)
}

// lastSeen returns what the checks have seen last, if that is all that has to be read for a call. j may be nil.
func (j *running) lastSeen() *contents {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.last == nil || len(j.look.schemas) > 0 || j.look.asks {
		return nil
	}
	return &contents{look: j.look, content: j.last}
}

// stillRunning is the reply to a call whose time is up before its submission is judged.
func (a *sessionActor) stillRunning(m *finishCall, w *awaited) *Finished {
	p, stepID := w.now, w.step
	what, counts := "Review running: the quality review of step '%s' is", "its verdict; it counts as the same try"
	if p.With == judging.ByProgram {
		what, counts = "Checks running: the checks of step '%s' are", "their results"
	}
	f := a.needsWork(m.notice, fmt.Sprintf(
		what+" still running (%d of %d done, begun %s ago). Nothing is wrong so far: change nothing. Call "+
			"finished_step again with the same outputs and notes, session_id '%s' and step_id '%s' to wait for "+
			counts+".",
		stepID, p.done, p.total, a.engine.now().Sub(p.At).Round(time.Second), a.id, stepID))
	f.Reply.Going = &replies.Going{SessionID: a.id, StepID: stepID, Submission: m.waited}
	f.Reply.Waits = &session.Waiting{Code: codes.ReviewRunning, RetryAfterMS: 1000} // that call waits, too
	return f
}

// goingOn lets a repeated call wait for what is in progress, whatever the files contain now, or says that its caller
// has cancelled that. It returns neither a reply nor an error if nothing is in progress any more.
func (a *sessionActor) goingOn(ctx context.Context, c *candidate) (*result, error) {
	u := a.state.Past(c.plan.Step.ID).By(c.m.waited)
	c.now = judging.Now{Of: u, With: u.With()}
	switch {
	case u != nil && u.Void != nil && u.Void.Cancelled:
		f, err := a.noVerdict(c, u.Void)
		return &result{done: f}, err
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
	before := c.m.waited
	c.m.waited = c.now.Of.ID // if the session has moved meanwhile, the call is told what became of it
	w, err := a.waitsFor(ctx, c.plan.Step.ID, c.now.Of.ID)
	if w == nil {
		if err == nil {
			c.m.waited = before
		}
		return nil, err
	}
	return &result{wait: w}, nil
}

// waitsFor returns what a call for a submission waits for, or nil if nobody judges it.
func (a *sessionActor) waitsFor(ctx context.Context, stepID string, id int64) (*awaited, error) {
	if j := a.engine.judges(a.id, stepID); j != nil && j.id == id {
		return j.awaited(), nil
	}
	changed := a.engine.follower.changed(a.id)
	if moved, err := a.refresh(ctx); err != nil {
		return nil, err
	} else if moved {
		return nil, errOvertaken
	}
	u := a.state.Judged(stepID)
	if u == nil || u.ID != id {
		return nil, nil
	}
	row, err := a.judgingRow(ctx, stepID)
	if row == nil || err != nil {
		return nil, err
	}
	now := progress{Turn: u.Turn()}
	_ = json.Unmarshal(row.About, &now.total) // without them, nobody sees how far it is
	_ = json.Unmarshal(row.Progress, &now.done)
	return &awaited{step: stepID, now: now, news: changed}, nil
}

// judgingRow returns the row of judging a step, or nil if nobody does that any more. A server of this place goes
// on with what nobody does here; what nobody does at another place is up to a call.
func (a *sessionActor) judgingRow(ctx context.Context, stepID string) (*store.WorkRow, error) {
	e, of := a.engine, store.Judging(a.id, stepID)
	ctx, cancel := record.Timed(ctx)
	defer cancel()
	row, err := e.Stores.Database.Work().Row(ctx, of.Kind, of.Key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, e.records.Unreadable(a.id, err)
	case row.Place != e.here() && row.In <= 0:
		return nil, nil
	case row.Place == e.here() && strings.HasPrefix(row.Runner, e.server()+"-"):
		e.Work.Run(*row) // its beginning was not confirmed; otherwise it runs already
	}
	return row, nil
}
