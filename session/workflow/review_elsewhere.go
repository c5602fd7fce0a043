package workflow

import (
	"context"
	"slices"
	"time"

	"deepwork/actor/wait"
	"deepwork/session/record"
	"deepwork/session/store"
)

// A review in progress is a row that its runner renews (see store.Review). Calls about it at other servers
// wait for the row; when its time is over, the next call takes the review up.

// lookEvery is how often a call looks at a review that runs in another process, if nothing wakes it.
const lookEvery = time.Second

// renew keeps a review of this engine until it ends. If another process has moved the session on, or has
// taken the review up, since this one could not renew it in time, the review is cancelled here; in the second
// case the calls that wait for it wait for that one.
func (a *sessionActor) renew(ctx context.Context, r *review) {
	e := a.engine
	changed := e.follower.changed(a.id)
	due := time.Now().Add(e.reviewLife / 3)
	for wait.Until(ctx, time.Until(due), changed) == nil {
		select {
		case <-changed:
			changed = e.follower.changed(a.id)
			_ = a.tell(look{}) // the error means that the engine is closing
		default:
		}
		if time.Now().Before(due) {
			continue
		}
		due = time.Now().Add(e.reviewLife / 3)
		bounded, cancel := context.WithTimeout(ctx, e.reviewLife/3)
		kept, err := e.records.RenewReview(bounded, a.id, store.Review{Step: r.stepID, Runner: e.runner, Done: int(r.done.Load()), Life: e.reviewLife})
		cancel()
		if err != nil || kept {
			continue // else it ends with its verdict, if nobody takes it up until then
		}
		_ = a.tell(takenUp{r}) // as above
		return
	}
}

// A look has the actor read a session under review that another process has moved.
type look struct{}

func (look) receive(ctx context.Context, a *sessionActor) {
	if _, err := a.refresh(ctx); err != nil {
		a.engine.Logger.Debug("a session under review could not be read", "session", a.id, "error", err)
	}
}

// A takenUp says that another process has taken up a review.
type takenUp struct{ review *review }

func (m takenUp) receive(ctx context.Context, a *sessionActor) {
	r := m.review
	if a.reviews[r.stepID] != r {
		return
	}
	a.engine.Logger.Warn("a review was taken up by another server", "session", a.id, "step", r.stepID)
	delete(a.reviews, r.stepID)
	r.cancel()
	r.awake.Send(struct{}{})
	a.decided(ctx, r, nil)
}

// leaveReviews gives up the reviews of an engine that closes, so that others need not wait.
func (e *Engine) leaveReviews(ctx context.Context) {
	if !e.ran.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := e.records.LeaveReviews(ctx, e.runner); err != nil {
		e.Logger.Debug("others take up the reviews of this server only when their time is over", "error", err)
	}
}

// elsewhere lets a call wait for the review of a step, open in the record, that another process runs. It
// returns neither a reply nor an error if the review is to be taken up.
func (a *sessionActor) elsewhere(ctx context.Context, m *finishCall, stepID string, how Reviewing) (*finished, error) {
	if changed, err := a.refresh(ctx); err != nil {
		return nil, err
	} else if changed {
		return nil, errOvertaken
	}
	running, err := a.runs(ctx, stepID)
	if err != nil || running == nil {
		return nil, err
	}
	p := a.state.Progress(stepID)
	m.joined = p.Newest().Digest
	left := how.ReplyWithin - time.Since(m.arrived)
	if left <= 0 {
		return a.stillRunning(m, stepID, running.Done, running.Total, p.Newest().OpenedAt), nil
	}
	a.lookAgain(m, stepID, min(left, lookEvery))
	return nil, errLater
}

// runs returns the review of a step that another process runs, or nil. One that this process began, and whose
// beginning was not confirmed, runs nowhere.
func (a *sessionActor) runs(ctx context.Context, stepID string) (*store.Review, error) {
	ctx, cancel := record.Timed(ctx)
	defer cancel()
	all, err := a.engine.records.Reviews(ctx, a.id)
	if err != nil {
		return nil, a.engine.records.Unreadable(a.id, err)
	}
	at := slices.IndexFunc(all, func(r store.Review) bool { return r.Step == stepID && !r.Over && r.Runner != a.engine.runner })
	if at < 0 {
		return nil, nil
	}
	return &all[at], nil
}

// lookAgain looks at a review in another process again, when the session has changed or the time is over.
func (a *sessionActor) lookAgain(m *finishCall, stepID string, after time.Duration) {
	changed := a.engine.follower.changed(a.id)
	a.engine.background.Go(func() {
		_ = wait.Until(a.engine.ctx, after, changed)
		if told := a.tell(lookElsewhere{m, stepID}); told != nil {
			m.reply.Fail(told)
		}
	})
}

// A lookElsewhere lets a call look again at the review of a step that runs in another process.
type lookElsewhere struct {
	call   *finishCall
	stepID string
}

func (m lookElsewhere) receive(ctx context.Context, a *sessionActor) {
	answer(m.call.reply, func() (*finished, error) { return a.looked(ctx, m.call, m.stepID) })
}

// looked goes on waiting for a review in another process, or treats the call like a later one.
func (a *sessionActor) looked(ctx context.Context, m *finishCall, stepID string) (*finished, error) {
	_, err := a.refresh(ctx)
	if err != nil {
		return nil, err
	}
	if last := a.state.Progress(stepID).Newest(); m.from.Err() == nil && last.Open() && last.Digest == m.joined && a.reviews[stepID] == nil {
		how, err := a.reviewing(ctx)
		if err != nil {
			return nil, err
		}
		running, err := a.runs(ctx, stepID)
		left := how.ReplyWithin - time.Since(m.arrived)
		switch {
		case err != nil:
			return nil, err
		case running != nil && left > 0:
			if m.progress != nil {
				m.progress(running.Done, running.Total, progressText(last.Checks, stepID, running.Done, running.Total))
			}
			a.lookAgain(m, stepID, min(left, lookEvery))
			return nil, errLater
		case running != nil:
			return a.stillRunning(m, stepID, running.Done, running.Total, a.state.Progress(stepID).Newest().OpenedAt), nil
		}
	}
	a.hash(m)
	return nil, errLater
}
