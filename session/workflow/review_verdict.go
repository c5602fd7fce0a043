package workflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/record"
	"deepwork/session/replies"
	"deepwork/session/store"
)

// judged records the verdicts, unless another process has meanwhile taken over the review: a verdict counts
// once. The calls that wait are then treated like later ones: the verdict applies only if their outputs and
// the current job equal what was judged.
func (a *sessionActor) judged(ctx context.Context, r *review) {
	a.end(r)
	verdicts, failure := r.results()
	_, err := apply(ctx, a, func(_ context.Context, a *sessionActor) (none struct{}, err error) {
		if last := a.state.Progress(r.stepID).Newest(); !last.Open() || last.Digest != r.digest {
			return none, store.ErrReviewTaken
		}
		return none, a.commit(nil, a.state.CloseTry(r.stepID, verdicts, failure, a.engine.now()),
			&store.SessionWrite{Verdict: &store.Review{Step: r.stepID, Runner: a.engine.runner}})
	})
	switch {
	case errors.Is(err, store.ErrReviewTaken):
		a.reconsider(r) // the calls now wait for the other process's review
		return
	case err == nil && failure != "" && r.round != nil:
		for _, w := range r.waiters {
			w.timer.Stop()
			answer(w.m.reply, func() (*finished, error) { return a.notChecked(r, w.m) })
		}
		return
	case err == nil && failure != "":
		err = session.Wrong(codes.ReviewFailed, "%s\nNothing has moved.", failure).With("step_id", r.stepID)
	}
	a.decided(ctx, r, err)
}

// reconsider treats the calls that waited for a review of this process like later ones.
func (a *sessionActor) reconsider(r *review) {
	for _, w := range r.waiters {
		w.timer.Stop()
		a.hash(w.m)
	}
}

// decided reconsiders the calls that waited for a review, or answers them with an error.
func (a *sessionActor) decided(ctx context.Context, r *review, err error) {
	for _, w := range r.waiters {
		w.timer.Stop()
		switch {
		case err != nil:
			w.m.reply.Fail(err)
		case w.m.from.Err() != nil:
			w.m.reply.Fail(context.Canceled)
		case r.round != nil && r.round.After != nil && len(w.m.schemas) == 0: // the content was read a moment ago
			w.m.decideOn(r.round.After, nil).receive(ctx, a)
		default:
			a.hash(w.m)
		}
	}
}

// conclude answers a call with the newest verdict on its outputs, collected in base: the session moves on, or
// the reply says what to change (seed 000, 001.4.12 to 001.4.14).
func (a *sessionActor) conclude(ctx context.Context, base *machine.State, c *candidate) (*finished, error) {
	stepID := c.plan.Step.ID
	p := base.Progress(stepID)
	judged := p.Judged(c.digest)
	if judged.State == machine.TryPassed {
		c.evidence = a.evidence(c, machine.ByReviewer, judged.Verdicts[0].Reviewer)
		return a.approve(ctx, base, c)
	}

	how, err := a.reviewing(ctx)
	if err != nil {
		return nil, err
	}

	var f *finished
	var r *replies.Finish
	var refusal *session.Error
	if p.FailedTries() >= how.MaxTries {
		what := a.afterLimit(stepID, how)
		if p.Question != nil && p.Question.Digest == c.digest {
			what = "Change the outputs and call again, or go back with go_to_step: a person failed these. "
		}
		refusal = gateFailed(p, stepID, judged, strings.TrimSpace(what+c.m.notice))
	} else {
		failed := judged.Failed()
		f = a.needsWork(c.def.Notice,
			fmt.Sprintf("Try %d of %d. %s\nCorrect that, then call finished_step again.", p.FailedTries(), how.MaxTries,
				combined(failed)+unmet(failed, false)))
		r = f.Reply
		r.FailedCriteria = []replies.CriterionResult{}
		for _, v := range failed {
			r.FailedReviews = append(r.FailedReviews,
				replies.FailedReview{RunEach: v.RunEach, TargetFile: v.TargetFile})
			for _, cr := range v.Criteria {
				if !cr.Passed {
					cr.TargetFile = v.TargetFile
					r.FailedCriteria = append(r.FailedCriteria, cr)
				}
			}
		}
	}
	next := base.KeepAnswer(c.m.Call, c.plan.Index, r, refusal)
	// otherwise another call that joined the review has collected the verdict, or the next one does
	if next != a.state && !c.m.args.Untold {
		if err := a.commit(c.m.MovedBy, next, nil); err != nil {
			return nil, err
		}
	}

	if refusal != nil {
		return nil, refusal
	}
	f.Row, f.Recorded = a.row, next != base
	return f, nil
}

// gateFailed refuses a step that has used up its tries (seed 000, 001.4.13).
func gateFailed(p *machine.StepProgress, stepID string, judged *machine.Try, what string) *session.Error {
	n := p.FailedTries()
	return session.Wrong(codes.QualityGateFailed, "Quality gate failed after %d attempts of step '%s'.\n%s\n%s", n,
		stepID, combined(judged.Failed())+unmet(judged.Failed(), true), what).
		With("step_id", stepID).With("attempts", n)
}

// afterLimit says what an agent can do after its last try, depending on who may override a review.
func (a *sessionActor) afterLimit(stepID string, how Reviewing) string {
	switch how.Override {
	case config.OverrideHuman:
		return fmt.Sprintf("Change the outputs and call again, go back with go_to_step, or ask the user whether to "+
			"run `deepwork sessions override %s %s --reason TEXT` at a terminal. ", a.id, session.InShell(stepID))
	case config.OverrideNever:
		return "Change the outputs and call again, or go back with go_to_step. "
	}
	return "Change the outputs and call again, go back with go_to_step, or ask the user whether to pass " +
		"quality_review_override_reason. "
}

// unmet lists the unmet criteria, one per line, each after a line break. With why it adds the reasons, for
// replies that do not give them elsewhere.
func unmet(failed []*machine.Verdict, why bool) string {
	var b strings.Builder
	for _, v := range failed {
		for _, c := range v.Criteria {
			if c.Passed {
				continue
			}

			b.WriteString("\n- Not met: " + c.Criterion)
			if v.TargetFile != nil {
				b.WriteString(" (" + *v.TargetFile + ")")
			}
			if why && c.Feedback != nil {
				b.WriteString(": " + *c.Feedback)
			}
		}
	}

	return b.String()
}

// combined returns the feedback of failed reviews, each under the files and texts that it is about.
func combined(failed []*machine.Verdict) string {
	parts := make([]string, len(failed))
	for i, v := range failed {
		var names []string
		for _, f := range v.Files {
			names = append(names, f.Name())
		}
		parts[i] = jsontext.Clip(cmp.Or(strings.Join(names, ", "), "Review of "+v.RunEach), 200) + ": " + v.Feedback
	}
	return strings.Join(parts, "\n\n")
}

// results converts the gate's results for the session, in the order of the step's reviews. failure says why
// there is no verdict, or is "".
func (r *review) results() (verdicts []*machine.Verdict, failure string) {
	if r.round != nil {
		return r.checkResults()
	}

	verdicts = slices.Clone(r.reused)
	slices.SortStableFunc(r.verdicts, func(a, b gate.Verdict) int {
		return cmp.Compare(r.order[a.Task.Key], r.order[b.Task.Key])
	})

	var failures []string
	for _, v := range r.verdicts {
		if v.Err != nil {
			failures = append(failures, v.Err.Error())
			continue
		}

		out := &machine.Verdict{
			At: v.EndedAt.UTC(), Reviewer: v.Reviewer, RunEach: v.Task.RunEach, TargetFile: v.Task.Target,
			Key: v.Task.Key, Digest: v.Task.Digest, Passed: v.Passed, Feedback: v.Feedback,
			Seconds: v.EndedAt.Sub(v.StartedAt).Seconds(),
		}
		for _, f := range v.Task.Files {
			hash := machine.FileHash{Path: f.Path, SHA256: f.SHA256}
			if f.Text != nil {
				hash.Output = f.Output
			}
			out.Files = append(out.Files, hash)
		}
		for _, c := range v.Criteria {
			out.Criteria = append(out.Criteria, replies.CriterionResult{
				Criterion: questionOf(v.Task.Criteria, c.Criterion),
				Passed:    c.Passed,
				Feedback:  c.Feedback,
			})
		}
		if out.Passed && len(out.Criteria) == 0 {
			// It passed as a whole, so each of its criteria passed.
			for _, c := range v.Task.Criteria {
				out.Criteria = append(out.Criteria, replies.CriterionResult{Criterion: c.Question, Passed: true})
			}
		}
		verdicts = append(verdicts, out)
	}
	slices.SortStableFunc(verdicts, func(a, b *machine.Verdict) int {
		return cmp.Compare(r.order[a.Key], r.order[b.Key])
	})
	return verdicts, strings.Join(failures, "\n\n")
}

// questionOf returns the text of the criterion with this name (seed 001, "QualityCriteriaResult").
func questionOf(criteria []job.Criteria, name string) string {
	for _, c := range criteria {
		if c.Name == name {
			return c.Question
		}
	}
	return name
}

// A review in progress is a row that its runner renews (see store.Review). Calls about the review at other
// servers watch that row. When it expires, the next call takes over the review.

// lookEvery is how often a call looks at a review in another process when nothing wakes it.
const lookEvery = time.Second

// renew renews a review of this engine until it ends. It cancels the review if another process has moved the
// session on, or has taken over the review because this one did not renew it in time. Calls that wait for a
// review that was taken over then wait for the other process.
func (a *sessionActor) renew(ctx context.Context, r *review) {
	e := a.engine
	changed := e.follower.changed(a.id)
	due := time.Now().Add(e.reviewLife / 3)
	for wait.Until(ctx, time.Until(due), changed) == nil {
		select {
		case <-changed:
			changed = e.follower.changed(a.id)
			_ = a.tell(look{}) // fails only while the engine is closing
		default:
		}

		if time.Now().Before(due) {
			continue
		}
		due = time.Now().Add(e.reviewLife / 3)
		bounded, cancel := context.WithTimeout(ctx, e.reviewLife/3)
		kept, err := e.records.RenewReview(bounded, a.id,
			store.Review{Step: r.stepID, Runner: e.runner, Done: int(r.done.Load()), Life: e.reviewLife})
		cancel()
		if err != nil || kept {
			continue // on an error the review still ends with its verdict, unless it is taken over
		}
		_ = a.tell(takenUp{r}) // fails only while the engine is closing
		return
	}
}

// A look has the actor read a session under review after another process has moved it.
type look struct{}

func (look) receive(ctx context.Context, a *sessionActor) {
	if _, err := a.refresh(ctx); err != nil {
		a.engine.Logger.Debug("a session under review could not be read", "session", a.id, "error", err)
	}
}

// A takenUp says that another process has taken over a review.
type takenUp struct{ review *review }

func (m takenUp) receive(_ context.Context, a *sessionActor) {
	r := m.review
	if a.reviews[r.stepID] != r {
		return
	}
	a.engine.Logger.Warn("a review was taken up by another server", "session", a.id, "step", r.stepID)
	a.end(r)
	a.reconsider(r)
}

// leaveReviews gives up the reviews of an engine that is closing, so that other servers need not wait for
// them.
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

// awaitOtherReview lets a call wait for the review of a step, open in the record, that another process runs.
// It returns neither a reply nor an error if the caller should take over the review.
func (a *sessionActor) awaitOtherReview(ctx context.Context, m *finishCall, stepID string) (*finished, error) {
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
	left := time.Until(m.until)
	if left <= 0 {
		return a.stillRunning(m, stepID, running.Done, running.Total, p.Newest().OpenedAt), nil
	}
	a.lookAgain(m, stepID, min(left, lookEvery))
	return nil, errLater
}

// runs returns the review of a step that another process runs, or nil. A review that this process began, and
// whose beginning was not confirmed, runs nowhere.
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

// lookAgain looks again at a review in another process, once the session has changed or the time is up.
func (a *sessionActor) lookAgain(m *finishCall, stepID string, after time.Duration) {
	changed := a.engine.follower.changed(a.id)
	a.engine.background.Go(func() {
		_ = wait.Until(a.engine.ctx, after, changed)
		if told := a.tell(lookElsewhere{m, stepID}); told != nil {
			m.reply.Fail(told)
		}
	})
}

// A lookElsewhere has a call look again at the review of a step in another process.
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

	last := a.state.Progress(stepID).Newest()
	if m.from.Err() == nil && last.Open() && last.Digest == m.joined && a.reviews[stepID] == nil {
		running, err := a.runs(ctx, stepID)
		left := time.Until(m.until)
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
			return a.stillRunning(m, stepID, running.Done, running.Total, a.state.Progress(stepID).Newest().OpenedAt),
				nil
		}
	}
	a.hash(m)
	return nil, errLater
}
