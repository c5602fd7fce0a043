package workflow

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/check"
	"deepwork/session/codes"
	"deepwork/session/machine"
)

// The checks of a step run like its reviews: there is an open try in the record, a row that the process
// running them renews, and calls that wait. See review.

// subject returns what the checks of the call's step judge; without checks, the files of its outputs.
func (a *sessionActor) subject(c *candidate) *check.Subject {
	s := &check.Subject{
		Root:   a.state.RootOf(a.root(), c.plan.Step.ID),
		Job:    a.state.JobName,
		Step:   c.plan.Step.ID,
		Checks: a.checksOf(c),
		Shared: a.state.Shared || c.def.Workflow.Shared(c.plan.Index),
	}

	for _, o := range c.expanded {
		s.Outputs = append(s.Outputs, o.Value.Paths...)
	}

	if p := a.state.Progress(s.Step); p != nil {
		s.Began = p.Protected
	}
	return s
}

// checksOf returns the checks of the call's step. A check that ends rounds is a new one in each round: its
// earlier results do not count.
func (a *sessionActor) checksOf(c *candidate) []job.StepCheck {
	checks := slices.Clone(c.plan.Step.Checks)
	for i := range checks {
		if r := a.state.RoundOf(c.def, c.plan.Step.ID); checks[i].Ends && r != nil {
			checks[i].Name = fmt.Sprintf("%s, round %d", checks[i].Name, r.Number)
		}
	}
	return checks
}

// protect returns the definition with the current hashes of the files that the steps of an entry protect. s
// is the state that begins them, nil for a new session.
func (e *Engine) protect(
	ctx context.Context, root string, s *machine.State, def *machine.Definition, entry job.Entry,
) (*machine.Definition, error) {
	with := *def
	with.Protected = map[string]*machine.Protected{}
	for _, id := range entry {
		p, err := check.Protect(ctx, filepath.Join(root, s.Folder(def, id)), def.Job.Step(id).Checks)
		if err != nil {
			return nil, session.NotNow(codes.FileUnreadable,
				"Step '%s' of job '%s' cannot begin, so nothing has moved: the files that its checks protect cannot "+
					"be recorded: %v. Correct that and make the same call again.", id, def.Job.Name,
				err).With("step_id", id).Because(err)
		}
		if p != nil {
			with.Protected[id] = p
		}
	}

	return &with, nil
}

// IsolateFor records the absolute path of the folder in which the item of a current step is worked on from
// now on.
func (e *Engine) IsolateFor(ctx context.Context, id, stepID, folder string) error {
	return e.actFor(ctx, id, "", func(ctx context.Context, a *sessionActor, _ caller) error {
		def, err := a.definition(ctx)
		if err != nil {
			return err
		}

		_, i, item := job.SplitItem(stepID)
		if !item || !a.state.IsCurrent(stepID) {
			_, _, pending := a.state.Position(def)
			return a.state.NotCurrent(def, stepID, pending)
		}

		var steps job.Entry
		for _, step := range def.Workflow.Entries[def.Workflow.Find(stepID)] {
			steps = append(steps, job.Item(step, i))
		}

		if folder, err = filepath.Rel(a.root(), folder); err != nil {
			return err
		}
		def, err = e.protect(ctx, a.root(), a.state.Isolate(def, stepID, folder, e.now()), def, steps)
		if err != nil {
			return err
		}
		return a.commit(nil, a.state.Isolate(def, stepID, folder, e.now()), nil)
	})
}

// leavesEdits refuses a go_to_step that leaves an unpassed step whose protected files have changed since it
// began: when the step begins again, the edits would be taken for the original. to is the index of the entry
// with the step that it leads to.
func (a *sessionActor) leavesEdits(ctx context.Context, def *machine.Definition, to int, stepID string) error {
	_, i, item := job.SplitItem(stepID)
	for _, p := range a.state.StepProgress {
		_, k, ok := job.SplitItem(p.Key)
		at, left := def.Workflow.Find(p.Key), *p.Value
		if at < to || at == to && p.Key != stepID && (!ok || item && i != k) {
			continue
		}
		if p.Key == stepID {
			left.Protected = nil // the step keeps the hashes
		}
		if err := a.engine.leavesEdits(ctx, a.root(), a.state, &left); err != nil {
			return err
		}
	}

	return nil
}

// leavesEdits does what sessionActor.leavesEdits does for one step, and for the steps of its workflow if it
// is one, even an aborted one: they begin again with it.
func (e *Engine) leavesEdits(ctx context.Context, root string, s *machine.State, p *machine.StepProgress) error {
	if !p.Current() {
		return nil
	}

	if p.Protected != nil {
		changed, err := check.Changed(ctx, s.RootOf(root, p.StepID), p.Protected)
		what := fmt.Sprintf("it cannot be found out whether they are (%v)", err)
		if err == nil {
			what = strings.Join(changed[:min(len(changed), maxUndecided)], ", ")
		}
		if what != "" {
			return session.NotNow(codes.FileProtected,
				"The files that the checks of step '%s' protect are not as they were when it began: %s. Restore them "+
					"first, and edit them after going back, if that is what the earlier step is for. Nothing has "+
					"moved.", p.StepID, what).With("step_id", p.StepID)
		}
	}

	if p.Child == "" {
		return nil
	}
	child, err := e.records.Read(ctx, p.Child, nil)
	if session.CodeOf(err) == codes.UnknownSession {
		return nil // the session was removed
	} else if err != nil {
		return err
	}

	for _, of := range child.State.StepProgress {
		if err := e.leavesEdits(ctx, root, child.State, of.Value); err != nil {
			return err
		}
	}

	return nil
}

// checked decides about the checks of a step. It returns neither a reply nor an error if each has passed on
// the content, or a person passes over it.
func (a *sessionActor) checked(
	ctx context.Context, c *candidate, content *check.Content, how Reviewing,
) (*finished, error) {
	m, checks := c.m, a.checksOf(c)
	stepID, p := c.plan.Step.ID, a.state.ProgressOrNew(c.plan.Step.ID, a.engine.now())
	running, last := a.reviews[stepID], p.Newest()
	goesOn := last.Open() && (last.Digest == c.bound || c.checkedBy(last))
	if running != nil && (running.digest == c.bound || goesOn) {
		a.join(running, m)
		return nil, errLater
	}

	// Report the result of the last try if this call has waited for it, or no call has been told.
	reported := m.joined == c.bound ||
		last != nil && last.Checks && !last.Collected && last.State == machine.TryFailed && last.Digest == c.bound
	over := a.passedOver(c, how)
	known := make([]*machine.Verdict, len(checks))
	missing := false
	for i := range checks {
		if over[i] {
			c.over = append(c.over, checks[i].Name)
			if checks[i].Ends {
				c.ended = &machine.RoundEnd{Passed: true}
			}
			continue
		}
		known[i] = a.state.CheckedBefore(stepID, check.Key(&checks[i]), content.Digest(i))
		if v := known[i]; v != nil && !v.Passed && v.Check.Bound == check.ToOutputs && !reported {
			known[i] = nil // the cause may be in other files, which nobody has looked at
		}
		missing = missing || known[i] == nil
	}
	if missing {
		if running == nil && goesOn {
			if f, err := a.awaitOtherReview(ctx, m, stepID); f != nil || err != nil {
				return f, err
			}
		}
		if m.args.Of != nil && !goesOn && !c.handedInAs(m.args.Of) {
			return nil, a.outputsChanged(stepID)
		}
		return a.beginChecks(c, &check.Round{Subject: m.subject, Before: content, Known: known, Over: over})
	}

	var failed []*machine.Verdict
	for _, v := range known {
		if v != nil && v.Check.Ends {
			c.ended = &machine.RoundEnd{Passed: v.Passed, Why: v.Feedback}
		}
		switch {
		case v == nil:
		case v.Passed:
			c.checks = append(c.checks, v)
		case !v.Fails():
		default:
			failed = append(failed, v)
		}
	}
	if failed == nil {
		return nil, nil
	}

	m.joined = c.bound // if applied again, this call has already reported the result
	f := a.needsWork(c.def.Notice, a.failedChecks(c, p.FailedChecks, failed))
	next := a.state.CollectChecks(stepID, a.engine.now()).KeepAnswer(m.Call, c.plan.Index, f.Reply, nil)
	if next != a.state && !m.args.Untold {
		if err := a.commit(m.MovedBy, next, nil); err != nil {
			return nil, err
		}
		f.Row, f.Recorded = a.row, true
	}
	return f, nil
}

// failedChecks describes the failed checks and what to do.
func (a *sessionActor) failedChecks(c *candidate, times int, failed []*machine.Verdict) string {
	var b strings.Builder
	then := "as long as nothing has changed, the result stands"
	if slices.ContainsFunc(failed, func(v *machine.Verdict) bool { return v.Check.Bound == check.ToOutputs }) {
		then = "the checks that failed run again"
	}
	fmt.Fprintf(&b, "Checks failed: %d of %d of step '%s'; calls whose checks failed so far: %d. Correct the work, "+
		"then call finished_step again; %s.",
		len(failed), len(c.plan.Step.Checks), c.plan.Step.ID, times, then)
	if c.m.reason() != "" {
		fmt.Fprintf(&b, " quality_review_override_reason skips no check: only a person passes over one, by `%s` at a "+
			"terminal.", overrideCommand(a.id, c.plan.Step.ID))
	}
	for _, v := range failed {
		fmt.Fprintf(&b, "\n\nCheck '%s' (%s) failed. %s", v.RunEach, strings.Join(v.Check.Command, " "), v.Feedback)
	}

	return b.String()
}

// passedOver reports for each check of a step whether a person passes over it.
func (a *sessionActor) passedOver(c *candidate, how Reviewing) []bool {
	over, given := make([]bool, len(c.plan.Step.Checks)), a.state.Progress(c.plan.Step.ID)
	if !given.HasGrant() || how.Override == config.OverrideNever ||
		given.Granted.GivenFor != "" && given.Granted.GivenFor != c.bound {
		return over
	}
	for i := range over {
		over[i] = !c.plan.Step.Checks[i].Never()
	}
	return over
}

// beginChecks stores an open try of the checks, and runs those without a result for the content.
func (a *sessionActor) beginChecks(c *candidate, round *check.Round) (*finished, error) {
	e, stepID := a.engine, c.plan.Step.ID
	if e.Checks == nil {
		return nil, session.NotNow(codes.CheckNotRun,
			"Step '%s' has checks, and this process does not run any. Call a server of the project.", stepID)
	}
	r := &review{stepID: stepID, digest: c.bound, began: e.now(), round: round}
	for i := range round.Known {
		if !round.Over[i] {
			r.total++
		}
	}
	round.Done = func(n int) { r.done.Store(int64(n)) }
	next := a.replacing(stepID).OpenTry(stepID,
		machine.Try{Checks: true, OpenedAt: r.began, Outputs: c.outputs, Files: c.files, Digest: c.bound})
	c.holdGroup(next)
	task := gate.Task{
		Key:     "checks",
		RunEach: "step",
		Do:      func(ctx context.Context) error { return e.Checks.Run(ctx, round) },
	}
	sub := gate.Submission{SessionID: a.id, Job: c.def.Job, Workflow: c.def.Workflow.Name, Step: c.plan.Step}
	return a.begin(c.m, r, next, func(ctx context.Context, each func(gate.Verdict)) error {
		return e.Checks.Pool.Run(ctx, a.id, sub, []gate.Task{task}, each)
	})
}

// checkResults returns the results of the checks, or why their try is void.
func (r *review) checkResults() (verdicts []*machine.Verdict, void string) {
	switch err := r.verdicts[0].Err; {
	case err != nil:
		return nil, err.Error()
	case len(r.round.Undecided) > 0:
		return nil, "not decided, because files went on changing: " + strings.Join(r.round.Undecided, ", ")
	}
	return slices.DeleteFunc(slices.Clone(r.round.Verdicts), func(v *machine.Verdict) bool { return v == nil }), ""
}

// notChecked answers the calls that wait for checks which could not be run or did not come to a result.
func (a *sessionActor) notChecked(r *review, m *finishCall) (*finished, error) {
	if err := r.verdicts[0].Err; err != nil {
		if refused, ok := errors.AsType[*session.Error](err); ok {
			return nil, refused
		}
		return nil, session.NotNow(codes.CheckNotRun,
			"Step '%s': %v. Nothing counts and nothing has moved; correct that, or tell the user, and make the same "+
				"call again.", r.stepID, err).
			With("step_id", r.stepID).Because(err)
	}

	files, more := r.round.Undecided, ""
	if n := len(files) - maxUndecided; n > 0 {
		files, more = files[:maxUndecided], fmt.Sprintf(", and %d more", n)
	}
	return a.needsWork(m.notice,
		fmt.Sprintf("Not decided: while the checks of step '%s' ran, and when they ran once more, these files "+
			"changed: %s%s. Nothing has failed, and nothing has passed. See to it that nothing changes them (if the "+
			"program of a check makes them, git must ignore them, or the check must name its files), then call "+
			"finished_step again.",
			r.stepID, strings.Join(files, ", "), more)), nil
}

// maxUndecided is the maximum number of files the reply names that kept changing.
const maxUndecided = 20
