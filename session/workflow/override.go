package workflow

import (
	"context"
	"fmt"
	"slices"

	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/pin"
)

// reviewed reports whether a judge, a reviewer or the agent itself has to review a step before it is finished.
func (e *Engine) reviewed(st *job.Step) bool {
	return e.Reviews && (len(st.ReviewsBy(false)) > 0 || e.hasJudges(st))
}

// grant records a person's override for the next finished_step of the step.
func (a *sessionActor) grant(ctx context.Context, g grant) error {
	how, err := a.pin.Reviewing(ctx, a.state)
	if err != nil {
		return err
	}
	if how.Override == config.OverrideNever {
		return nobodyMay(a.id, g.Step)
	}

	if def, err := a.pin.Definition(ctx, a.state); err == nil {
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
func OverrideCommand(id, stepID string) string {
	return fmt.Sprintf("deepwork sessions override %s %s --reason TEXT", id, session.InShell(stepID))
}

// closing says how to finish a step after a review by the agent itself. With OverrideNever it cannot be
// finished.
func closing(how pin.Reviewing, id, stepID string) (string, error) {
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
			OverrideCommand(id, stepID), id, stepID), nil
	}
	return fmt.Sprintf("3. Then call finished_step again with session_id '%s', step_id '%s', the same outputs and "+
		"notes, and quality_review_override_reason telling in a sentence what the review found and why the step now "+
		"passes.", id, stepID), nil
}
