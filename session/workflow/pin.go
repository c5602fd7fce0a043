package workflow

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/machine"
)

// reviewer returns the current reviewer in the form of machine.Pinned.
func (e *Engine) reviewer(how Reviewing) string {
	if !e.Reviews {
		return machine.ReviewerOff
	}
	return cmp.Or(how.Reviewer, machine.ReviewerSelf)
}

// pin returns the reviewer and reviews that a new session is pinned to.
func (e *Engine) pin(how Reviewing, def *machine.Definition) *machine.Pinned {
	return &machine.Pinned{Reviewer: e.reviewer(how), Override: how.Override, Pin: how.Pin, Definition: def.Ref}
}

// reviewing returns how the session's steps are reviewed: as configured now or, in a pinned session, as when
// it began where that was stricter.
func (a *sessionActor) reviewing(ctx context.Context) (Reviewing, error) {
	how, err := a.engine.Reviewing(ctx)
	p := a.state.Pinned
	if err != nil || p == nil || !a.engine.Reviews {
		return how, err
	}
	if how.Pin = how.Pin || p.Pin; !how.Pin {
		return how, nil
	}
	if p.Override.Stricter(how.Override) {
		how.Override = p.Override
	}
	if weaker := p.WeakerReviewer(a.engine.reviewer(how)); weaker != "" {
		how.External = true
		how.Refused = fmt.Errorf("this server cannot start another reviewer than the configured one")
		if how.Earlier != nil {
			how.use, how.Refused = how.Earlier(p.Reviewer)
		}
		if how.Refused != nil {
			how.Refused = session.NotNow(codes.PinnedReviewerGone,
				"Session '%s' is pinned to the reviewer that it began with (quality_gate.pin): %s. That one cannot "+
					"be started now (%v), so no step with reviews can be finished. Tell the user to restore it, or "+
					"abort the session.", a.id, weaker, how.Refused).
				With("session_id", a.id).With("reviewer", p.Reviewer).Because(how.Refused)
		}
	}
	return how, nil
}

// definition returns the definition that the session goes on with: the job's current one or, if an edit has
// dropped or changed checks or has weakened the reviews of a pinned session, the stored one.
func (a *sessionActor) definition(ctx context.Context) (*machine.Definition, error) {
	def, err := a.engine.definitions.Current(ctx, a.state, a.engine.placeKey())
	if err != nil {
		return nil, err
	}
	if !a.edited(def) {
		return def, nil
	}
	if kept, err := a.keepingChecks(def); err != nil || kept != nil || def.Kept {
		return cmp.Or(kept, def), err
	}

	how, err := a.reviewing(ctx)
	if err != nil || !how.Pin {
		return def, err
	}
	weaker, err := a.weaker(def)
	if err != nil || len(weaker) == 0 {
		return def, err
	}

	kept, err := a.engine.definitions.Kept(a.state.Definition)
	if err != nil {
		return nil, session.NotNow(codes.DefinitionLost,
			"Session '%s' is pinned to the reviews that it began with, which cannot be read (%v). Restore job '%s' "+
				"as it was, or abort the session.", a.id, err, a.state.JobName).
			With("session_id", a.id).Because(err)
	}
	kept.Notice = fmt.Sprintf("Job '%s' was edited, and reviews less than when this session began (%s). The session "+
		"is pinned (quality_gate.pin): it goes on with the definition it has.", a.state.JobName,
		strings.Join(weaker, "; "))
	return kept.For(a.state), nil
}

// keepingChecks returns the definition to go on with instead of def, if def drops or changes checks or
// schemas that the session began with: the one stored last, or else the one that the session began with. It
// returns nil if def drops none, or if the definition that the session began with is lost; an error is the
// store's.
func (a *sessionActor) keepingChecks(def *machine.Definition) (*machine.Definition, error) {
	if a.begun == nil || a.begun.Ref != a.state.Pinned.Definition {
		begun, err := a.engine.definitions.Kept(a.state.Pinned.Definition)
		if session.CodeOf(err) != "" {
			return nil, err
		} else if err != nil {
			a.engine.Logger.Warn("the definition that a session began with cannot be read", "session", a.id,
				"error", err)
			return nil, nil
		}
		a.begun = begun
	}
	less := a.state.LessChecked(a.begun, def)
	if len(less) == 0 {
		return nil, nil
	}

	kept, err := a.engine.definitions.Kept(a.state.Definition)
	// A step was done while its checks were dropped; it must be done again.
	if err != nil || len(a.state.LessChecked(a.begun, kept)) > 0 {
		begun := *a.begun
		kept = &begun
		if kept.For(a.state).Workflow.Find(a.state.CurrentStepID) < 0 {
			return nil, session.NotNow(codes.DefinitionLost,
				"Session '%s' cannot go on: job '%s' was edited, and drops or changes checks or schemas that this "+
					"session began with (%s), when it did not have the current step '%s'. Tell the user to restore "+
					"those in job.yml, or abort the session with abort_workflow.",
				a.id, a.state.JobName, strings.Join(less, "; "), a.state.CurrentStepID).With("session_id", a.id)
		}
	}
	kept.Notice = fmt.Sprintf("Job '%s' was edited, and drops or changes checks or schemas that this session began "+
		"with (%s). The edit counts for the next session: this one goes on with the definition it has.",
		a.state.JobName, strings.Join(less, "; "))
	return kept.For(a.state), nil
}

// edited reports whether a definition differs from the one that the session began with, if that is known.
func (a *sessionActor) edited(def *machine.Definition) bool {
	p := a.state.Pinned
	return p != nil && p.Definition.Hash != "" && def.Job.Hash != p.Definition.Source
}

// weaker returns in what way a definition reviews less than the one that the session began with.
func (a *sessionActor) weaker(def *machine.Definition) ([]string, error) {
	if !a.edited(def) {
		return nil, nil
	}

	was, err := a.engine.definitions.Kept(a.state.Pinned.Definition)
	if err != nil {
		return []string{fmt.Sprintf("the job was edited, and the reviews that the session began with cannot be "+
			"read: %v", err)}, nil
	}
	return a.state.Weaker(was, def), nil
}

// weakened returns in what way the reviews are weaker than when the session began.
func (a *sessionActor) weakened(ctx context.Context, def *machine.Definition) ([]string, error) {
	p := a.state.Pinned
	if p == nil {
		return nil, nil
	}

	how, err := a.reviewing(ctx)
	if err != nil {
		return nil, err
	}

	what, err := a.weaker(def)
	// without Checks this is a command, which knows no reviewer
	if text := p.WeakerReviewer(a.engine.reviewer(how)); text != "" && how.use == nil && a.engine.Checks != nil {
		what = append(what, text)
	}
	if p.Override.Stricter(how.Override) {
		what = append(what, fmt.Sprintf("quality_gate.override was %s, and is %s", p.Override,
			cmp.Or(how.Override, "agent")))
	}
	return what, err
}

// reviewed reports whether a reviewer or the agent itself has to review a step before it is finished.
func (e *Engine) reviewed(st *job.Step) bool { return e.Reviews && len(st.ReviewsBy(false)) > 0 }

// grant records a person's override for the next finished_step of the step.
func (a *sessionActor) grant(ctx context.Context, g grant) error {
	how, err := a.reviewing(ctx)
	if err != nil {
		return err
	}
	if how.Override == config.OverrideNever {
		return nobodyMay(a.id, g.Step)
	}

	if def, err := a.definition(ctx); err == nil {
		st := def.Job.Step(g.Step)
		if st != nil && len(st.Checks) > 0 && len(st.Reviews) == 0 &&
			!slices.ContainsFunc(st.Checks, func(c job.StepCheck) bool { return !c.Never() }) {
			return session.NotNow(codes.OverrideNeedsPerson,
				"Nobody may pass over the checks of step '%s' of session '%s', not even a person: they have "+
					"override: never.", g.Step, a.id)
		}
	}
	g.Override.At = a.engine.now()
	next, err := a.state.Grant(g.Step, g.Override)
	if err != nil {
		return err
	}
	return a.commit(nil, next, nil)
}

func nobodyMay(id, stepID string) error {
	return session.NotNow(codes.OverrideNeedsPerson,
		"Nobody may override the reviews of step '%s' of session '%s', not even a person: quality_gate.override is "+
			"never.", stepID, id)
}

// overrideCommand returns the command that a person types to override.
func overrideCommand(id, stepID string) string {
	return fmt.Sprintf("deepwork sessions override %s %s --reason TEXT", id, session.InShell(stepID))
}

// closing says how to finish a step after a review by the agent itself. With OverrideNever it cannot be
// finished.
func closing(how Reviewing, id, stepID string) (string, error) {
	switch how.Override {
	case config.OverrideNever:
		return "", session.NotNow(codes.OverrideNeedsPerson,
			"Step '%s' has reviews, no reviewer is configured, and nobody may override reviews "+
				"(quality_gate.override is never): the step cannot be finished. Tell the user to configure a "+
				"reviewer (quality_gate.agent_review_command, or a flag of deepwork serve), or to allow overrides.",
			stepID).
			With("session_id", id).With("step_id", stepID).With("override", string(how.Override))
	case config.OverrideHuman:
		return fmt.Sprintf("3. Then tell the user what the review found, and ask them to look at the outputs and to "+
			"run `%s` at a terminal, in the project: only a person may close this step (quality_gate.override is "+
			"human).\n4. When they have done so, call finished_step again with session_id '%s', step_id '%s' and the "+
			"same outputs, without quality_review_override_reason.",
			overrideCommand(id, stepID), id, stepID), nil
	}
	return fmt.Sprintf("3. Then call finished_step again with session_id '%s', step_id '%s', the same outputs and "+
		"notes, and quality_review_override_reason telling in a sentence what the review found and why the step now "+
		"passes.", id, stepID), nil
}

// unclosable returns a notice about the steps, from an entry on, that nobody can finish, or "".
func (e *Engine) unclosable(how Reviewing, def *machine.Definition, from int) string {
	if how.External || how.Override != config.OverrideNever {
		return ""
	}

	var steps []string
	for _, id := range slices.Concat(def.Workflow.Entries[from:]...) {
		if e.reviewed(def.Job.Step(id)) {
			steps = append(steps, "'"+id+"'")
		}
	}
	if steps == nil {
		return ""
	}
	return fmt.Sprintf("These steps have reviews and cannot be finished, because no reviewer is configured and "+
		"nobody may override reviews (quality_gate.override is never): %s. Tell the user before you begin.",
		strings.Join(steps, ", "))
}
