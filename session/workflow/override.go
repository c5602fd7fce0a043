package workflow

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// codeNeedsPerson is the code of a call that only a person, or nobody, can have carried out.
const codeNeedsPerson = "override_needs_person"

// reason returns why the call skips the review; "" means that it does not.
func (m *finishCall) reason() string {
	if m.args.OverrideReason == nil {
		return ""
	}
	return strings.TrimSpace(*m.args.OverrideReason)
}

// reviewed reports whether a step is finished only after a review by a reviewer or the agent itself.
func (e *Engine) reviewed(st *job.Step) bool { return e.Reviews && len(st.ReviewsBy(false)) > 0 }

// mayOverride refuses an override by an agent where quality_gate.override does not allow it. Nothing
// of the call was evaluated.
func (a *sessionActor) mayOverride(ctx context.Context, c *candidate) error {
	if c.m.reason() == "" || !a.engine.reviewed(c.plan.Step) {
		return nil
	}
	granted := c.m.Person || a.state.Progress(c.plan.Step.ID).HasGrant()
	how, err := a.reviewing(ctx)
	if err != nil {
		return err
	}
	stepID, what := c.plan.Step.ID, ""
	switch {
	case how.Override == config.OverrideHuman && !granted:
		what = fmt.Sprintf("Only a person may override the reviews of step '%s' (quality_gate.override is human). If the user wants that, ask them to run `%s` at a terminal, in the project, then call finished_step again with the same outputs and without quality_review_override_reason. Without it the outputs are reviewed.",
			stepID, overrideCommand(a.id, stepID))
	case how.Override == config.OverrideNever:
		what = fmt.Sprintf("Nobody may override the reviews of step '%s' (quality_gate.override is never). Call finished_step without quality_review_override_reason: the outputs are reviewed.", stepID)
	default:
		return nil
	}
	return session.NotNow(codeNeedsPerson, "%s Nothing was evaluated, and no attempt was used up.", what).
		With("session_id", a.id).With("step_id", stepID).With("override", string(how.Override))
}

// override returns the evidence of a step that is finished without its reviews, at the word of a person, or
// without those that are not by people, at the word of the agent; nil if it is reviewed. mayOverride has allowed
// the agent's.
func (a *sessionActor) override(c *candidate, how Reviewing) (e *machine.Evidence) {
	given := a.state.Progress(c.plan.Step.ID)
	switch {
	case given.HasGrant() && how.Override != config.OverrideNever && slices.Contains([]string{"", c.digest, c.bound}, given.Granted.GivenFor):
		g := given.Granted
		return &machine.Evidence{Kind: machine.ByPerson, At: g.At, Identity: g.Identity, Channel: g.Channel, Reason: g.Reason, GivenFor: g.GivenFor, Digest: c.digest, Files: c.files}
	case c.m.reason() == "", given.HasGrant() && how.Override != config.OverrideAgent && !c.m.Person: // the person saw other outputs
		return nil
	case c.m.Person && how.Override != config.OverrideNever:
		e = a.evidence(c, machine.ByPerson, "")
	case !a.engine.reviewed(c.plan.Step):
		return nil
	case !how.External && how.Refused == nil && given != nil && given.Shown != nil && given.Shown.Digest == c.digest:
		e = a.evidence(c, machine.BySelf, "")
	default:
		e = a.evidence(c, machine.ByOverride, "")
	}
	e.Reason = c.m.reason()
	return e
}

// grant records a person's override, which is for the next finished_step of the step.
func (a *sessionActor) grant(ctx context.Context, g grant) error {
	how, err := a.reviewing(ctx)
	if err != nil {
		return err
	}
	if how.Override == config.OverrideNever {
		return nobodyMay(a.id, g.Step)
	}
	if def, err := a.definition(ctx); err == nil {
		if st := def.Job.Step(g.Step); st != nil && len(st.Checks) > 0 && len(st.Reviews) == 0 && !slices.ContainsFunc(st.Checks, func(c job.StepCheck) bool { return !c.Never() }) {
			return session.NotNow(codeNeedsPerson, "Nobody may pass over the checks of step '%s' of session '%s', not even a person: they have override: never.", g.Step, a.id)
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
	return session.NotNow(codeNeedsPerson, "Nobody may override the reviews of step '%s' of session '%s', not even a person: quality_gate.override is never.", stepID, id)
}

// evidence returns that of a step that its caller finishes.
func (a *sessionActor) evidence(c *candidate, kind machine.EvidenceKind, reviewer string) *machine.Evidence {
	e := &machine.Evidence{Kind: kind, At: a.engine.now(), Identity: c.m.Identity, Channel: c.m.Channel, Reviewer: reviewer, Digest: c.digest, Files: c.files}
	if given := a.state.Progress(c.plan.Step.ID); given.HasGrant() {
		e.GivenFor = given.Granted.GivenFor
	}
	return e
}

// overrideCommand is what a person types.
func overrideCommand(id, stepID string) string {
	return fmt.Sprintf("deepwork sessions override %s %s --reason TEXT", id, stepID)
}

// closing says how a step is closed after a review by the agent itself. With OverrideNever it
// cannot be.
func closing(how Reviewing, id, stepID string) (string, error) {
	switch how.Override {
	case config.OverrideNever:
		return "", session.NotNow(codeNeedsPerson,
			"Step '%s' has reviews, no reviewer is configured, and nobody may override reviews (quality_gate.override is never): the step cannot be finished. Tell the user to configure a reviewer (quality_gate.agent_review_command, or a flag of deepwork serve), or to allow overrides.", stepID).
			With("session_id", id).With("step_id", stepID).With("override", string(how.Override))
	case config.OverrideHuman:
		return fmt.Sprintf("3. Then tell the user what the review found, and ask them to look at the outputs and to run `%s` at a terminal, in the project: only a person may close this step (quality_gate.override is human).\n4. When they have done so, call finished_step again with session_id '%s', step_id '%s' and the same outputs, without quality_review_override_reason.",
			overrideCommand(id, stepID), id, stepID), nil
	}
	return fmt.Sprintf("3. Then call finished_step again with session_id '%s', step_id '%s', the same outputs and notes, and quality_review_override_reason telling in a sentence what the review found and why the step now passes.", id, stepID), nil
}

// unclosable returns a notice about the steps from an entry on that nobody can finish, or "".
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
	return fmt.Sprintf("These steps have reviews and cannot be finished, because no reviewer is configured and nobody may override reviews (quality_gate.override is never): %s. Tell the user before you begin.", strings.Join(steps, ", "))
}
