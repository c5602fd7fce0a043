package workflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/actor/durable"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/check"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/pin"
	"deepwork/session/record"
	"deepwork/session/replies"
)

// refuse answers a call whose hand-in is refused.
func (a *sessionActor) refuse(ctx context.Context, c *candidate) (*Finished, error) {
	stepID, of := c.plan.Step.ID, c.now.Of
	switch c.now.Why {
	case judging.MovedOn:
		return nil, a.movedOn(stepID)
	case judging.Superseded:
		return nil, superseded(stepID)
	case judging.Changed:
		return nil, a.outputsChanged(stepID)
	case judging.NoVerdict:
		return a.noVerdict(c, of.Void)
	case judging.NotReviewed:
		return nil, a.rules(c).Refused
	case judging.SelfReview:
		return a.selfReview(c)
	case judging.Unfit:
		return a.unfit(c)
	case judging.ChecksFailed:
		failed := slices.DeleteFunc(slices.Clone(c.now.Verdicts), func(v *judging.Verdict) bool {
			return v.Kind != judging.ByProgram || !v.Fails()
		})
		times := a.state.ProgressOrNew(stepID, a.engine.now()).FailedChecks
		return a.tell(c, a.needsWork(c.def.Notice, a.failedChecks(c, times, failed)), nil)
	case judging.UsedUpBefore:
		return nil, a.gateFailed(c, "Nothing was reviewed this time, because the outputs are those that failed. "+
			a.afterLimit(stepID, c.how)+c.m.notice)
	case judging.UsedUp:
		what := a.afterLimit(stepID, c.how)
		if of.FailedBy(judging.ByPerson) {
			what = "Change the outputs and call again, or go back with go_to_step: a person failed these. "
		}
		return a.tell(c, nil, a.gateFailed(c, what+c.m.notice))
	}

	failed := of.Failures()
	f := a.needsWork(c.def.Notice, fmt.Sprintf("Try %d of %d. %s\nCorrect that, then call finished_step again.",
		a.state.Progress(stepID).FailedTries(), c.how.MaxTries, combined(failed)+unmet(failed, false)))
	f.Reply.FailedCriteria = []replies.CriterionResult{}
	for _, v := range failed {
		f.Reply.FailedReviews = append(f.Reply.FailedReviews,
			replies.FailedReview{RunEach: v.RunEach, TargetFile: v.TargetFile})
		for _, cr := range v.Criteria {
			if !cr.Passed {
				cr.TargetFile = v.TargetFile
				f.Reply.FailedCriteria = append(f.Reply.FailedCriteria, cr)
			}
		}
	}
	return a.tell(c, f, nil)
}

// tell answers a call with what became of its submission, and records that, and the answer.
func (a *sessionActor) tell(c *candidate, f *Finished, refusal *session.Error) (*Finished, error) {
	var r *replies.Finish
	if f != nil {
		r = f.Reply
	}
	next := a.state.Tell(c.plan.Step.ID, c.now.Of, a.engine.now()).KeepAnswer(c.m.Call, c.plan.Index, r, refusal)
	// otherwise another call has been told already, or the next one will be
	if next != a.state && !c.m.untold {
		if err := a.commit(c.m.MovedBy, next, nil); err != nil {
			if c.now.Of != nil && errors.Is(err, errUnsure) {
				c.m.waited = c.now.Of.ID // perhaps this call was told already
			}
			return nil, err
		}
		if f != nil {
			f.Row, f.Recorded = a.row, true
		}
	}
	if refusal != nil {
		return nil, refusal
	}
	return f, nil
}

// noVerdict answers a call that has waited for a submission which is void now.
func (a *sessionActor) noVerdict(c *candidate, void *judging.Void) (*Finished, error) {
	stepID := c.plan.Step.ID
	switch {
	case void.Refusal != nil:
		return nil, new(*void.Refusal)
	case void.Undecided == nil:
		e := session.Wrong(codes.ReviewFailed,
			"There is no verdict on these outputs of step '%s': %s\nNothing has moved.", stepID,
			void.Why).With("step_id", stepID)
		if void.Cancelled {
			e.With("cancelled", true)
		}
		return nil, e
	}

	files, more := void.Undecided, ""
	if n := len(files) - maxUndecided; n > 0 {
		files, more = files[:maxUndecided], fmt.Sprintf(", and %d more", n)
	}
	return a.needsWork(c.m.notice,
		fmt.Sprintf("Not decided: while the checks of step '%s' ran, and when they ran once more, these files "+
			"changed: %s%s. Nothing has failed, and nothing has passed. See to it that nothing changes them (if the "+
			"program of a check makes them, git must ignore them, or the check must name its files), then call "+
			"finished_step again.",
			stepID, strings.Join(files, ", "), more)), nil
}

// maxUndecided is the maximum number of files the reply names that kept changing.
const maxUndecided = 20

// barred answers a call that is refused before its files are read, or returns neither a reply nor an error. Nothing
// of it was evaluated then.
func (a *sessionActor) barred(ctx context.Context, c *candidate) (why judging.Why, err error) {
	if !a.engine.reviewed(c.plan.Step) {
		return 0, nil
	}

	if c.how, err = a.pin.Reviewing(ctx, a.state); err != nil {
		return 0, err
	}
	stepID, e := c.plan.Step.ID, (*session.Error)(nil)
	switch why = judging.Barred(a.rules(c), a.state.Past(stepID), a.handIn(c)); why {
	case judging.AgentMayNot:
		e = session.NotNow(codes.OverrideNeedsPerson, "Only a person may override the reviews of step '%s' "+
			"(quality_gate.override is human). Nothing was evaluated, and no try was used up.", stepID).
			Next("have the outputs reviewed", machine.ToolFinish).
			Worded("If the user wants that, ask them to run `%s` at a terminal, in the project, then call "+
				"finished_step again with the same outputs and without quality_review_override_reason. Without it "+
				"the outputs are reviewed.", OverrideCommand(a.id, stepID))
	case judging.NobodyMay:
		e = session.NotNow(codes.OverrideNeedsPerson, "Nobody may override the reviews of step '%s' "+
			"(quality_gate.override is never). Nothing was evaluated, and no try was used up.", stepID).
			Next("have the outputs reviewed", machine.ToolFinish).
			Worded("Call finished_step without quality_review_override_reason: the outputs are reviewed.")
	default:
		return why, nil
	}
	return why, e.With("session_id", a.id).With("step_id", stepID).With("override", string(c.how.Override))
}

// askForAccount is the reply to a call that lacks the account of the work that is to be judged.
// Such a call does not count as a try of the reviews.
func (a *sessionActor) askForAccount(c *candidate) *Finished {
	st := c.plan.Step
	var b strings.Builder
	for _, r := range st.ReviewsBy(false) {
		for _, criterion := range r.Criteria {
			if r.Account {
				fmt.Fprintf(&b, "- %s: %s\n", criterion.Name, strings.TrimSpace(criterion.Question))
			}
		}
	}
	return a.needsWork(c.def.Notice,
		fmt.Sprintf("Step '%s' is reviewed also by how it was done. Call finished_step again with the same outputs, "+
			"and with notes: your account of what you did, in what order and how, by which a reviewer can judge "+
			"these requirements:\n%sNothing was reviewed, and no try was used up.", st.ID, b.String()))
}

// misfit records how outputs do not satisfy their schemas, unless the newest submission has that.
func (a *sessionActor) misfit(c *candidate) error {
	if u := a.state.Progress(c.plan.Step.ID).Handed(); u.FailedBy(judging.ByShape) && u.Content == c.digest {
		return nil
	}
	c.now.Of = nil
	c.now.Verdicts = []*judging.Verdict{
		{Kind: judging.ByShape, At: a.engine.now(), Digest: c.digest, Feedback: c.read.misfits},
	}
	next := a.state.Submit(c.plan.Step.ID, a.next(c, ""), a.replacing(c.plan.Step.ID), a.engine.now())
	c.holdGroup(next)
	return a.commit(c.m.MovedBy, next, nil)
}

// unfit answers a call whose outputs do not satisfy their schemas. The call does not count as a try of the
// reviews, and an agent cannot override it.
func (a *sessionActor) unfit(c *candidate) (*Finished, error) {
	st := c.plan.Step
	if err := a.misfit(c); err != nil {
		return nil, err
	}

	person := ""
	if c.how.Override != config.OverrideNever {
		person = fmt.Sprintf(" Only a person may pass over this: if the user wants that, ask them to run `%s` at a "+
			"terminal, in the project, and hand in the same outputs again.", OverrideCommand(a.id, st.ID))
	}
	return a.needsWork(c.def.Notice,
		fmt.Sprintf("Outputs of step '%s' do not satisfy their schemas:\n%sCorrect them, and call finished_step "+
			"again. Nothing was reviewed, and no try was used up.%s", st.ID, c.read.misfits, person)), nil
}

// reviewFile returns the project name and the path of a self-review's instructions.
func (a *sessionActor) reviewFile(stepID string) (name, path string) {
	name = fmt.Sprintf(".deepwork/tmp/quality_review_%s_%s.md", a.id, stepID)
	path = filepath.Join(a.root(), filepath.FromSlash(name))
	if a.state.RootOf("", stepID) != "" { // the agent works in another folder
		name = path
	}
	return name, path
}

// selfReview writes the review's instructions and asks the agent to carry them out (seed 000, 001.4.10). The
// session does not move.
func (a *sessionActor) selfReview(c *candidate) (*Finished, error) {
	st := c.plan.Step
	closing, err := closing(c.how, a.id, st.ID)
	if err != nil {
		return nil, err
	}

	sub := a.submission(c)
	name, path := a.reviewFile(st.ID)
	err = session.MakeSessions(a.engine.State, a.engine.Logger) // the folder may have been removed
	if err == nil {
		err = durable.Disk{}.Put(path, []byte(gate.SelfReview(sub)), durable.PutOptions{Temp: ".review-*"})
	}
	if err != nil {
		return nil, record.NotSaved(a.id, fmt.Errorf("writing the review's instructions: %w", err))
	}

	if c.now.Of.With() != judging.BySelf {
		next := a.state.Submit(st.ID, a.next(c, judging.BySelf), a.replacing(st.ID), a.engine.now())
		c.holdGroup(next)
		if err := a.commit(c.m.MovedBy, next, nil); err != nil {
			return nil, err
		}
	}
	return a.needsWork(c.def.Notice, fmt.Sprintf(`Quality review required for step '%s' before it is finished.

1. Spawn a subagent%s (with the Task tool, or another tool that starts one) with this prompt: "Read %s and follow `+
		`it. Report PASS or FAIL for each criterion."
   Do not review your own work yourself if you can start a subagent.
2. Correct what failed, and have it reviewed again until every criterion passes.
%s`, st.ID, reviewerAgents(gate.Due(sub)), name, closing)), nil
}

// reviewerAgents names the subagents that the reviews ask for, to follow "a subagent", or returns "".
func reviewerAgents(reviews []job.Review) string {
	var all []string
	for _, r := range reviews {
		of := fmt.Sprintf("'%s' for the review of %s", r.Agent, r.RunEach)
		if r.Agent != "" && !slices.Contains(all, of) {
			all = append(all, of)
		}
	}
	if all == nil {
		return ""
	}
	return " of the type " + strings.Join(all, ", ")
}

// failedChecks describes the failed checks and what to do.
func (a *sessionActor) failedChecks(c *candidate, times int, failed []*judging.Verdict) string {
	var b strings.Builder
	then := "as long as nothing has changed, the result stands"
	if slices.ContainsFunc(failed, func(v *judging.Verdict) bool { return v.Check.Bound == check.ToOutputs }) {
		then = "the checks that failed run again"
	}
	fmt.Fprintf(&b, "Checks failed: %d of %d of step '%s'; calls whose checks failed so far: %d. Correct the work, "+
		"then call finished_step again; %s.",
		len(failed), len(c.plan.Step.Checks), c.plan.Step.ID, times, then)
	if judging.Text(c.m.args.OverrideReason) != "" {
		fmt.Fprintf(&b, " quality_review_override_reason skips no check: only a person passes over one, by `%s` at a "+
			"terminal.", OverrideCommand(a.id, c.plan.Step.ID))
	}
	for _, v := range failed {
		fmt.Fprintf(&b, "\n\nCheck '%s' (%s) failed. %s", v.RunEach, strings.Join(v.Check.Command, " "), v.Feedback)
	}

	return b.String()
}

// gateFailed refuses a step that has used up its tries (seed 000, 001.4.13).
func (a *sessionActor) gateFailed(c *candidate, what string) *session.Error {
	stepID, failed := c.plan.Step.ID, c.now.Of.Failures()
	n := a.state.Progress(stepID).FailedTries()
	return session.Wrong(codes.QualityGateFailed, "Quality gate failed after %d attempts of step '%s'.\n%s\n%s", n,
		stepID, combined(failed)+unmet(failed, true), strings.TrimSpace(what)).
		With("step_id", stepID).With("attempts", n)
}

// afterLimit says what an agent can do after its last try, depending on who may override a review.
func (a *sessionActor) afterLimit(stepID string, how pin.Reviewing) string {
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
func unmet(failed []*judging.Verdict, why bool) string {
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
func combined(failed []*judging.Verdict) string {
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

func (a *sessionActor) outputsChanged(stepID string) error {
	return session.NotNow(codes.OutputsChanged,
		"The outputs of step '%s' of session '%s', or what its checks are about, changed after they were handed in, "+
			"so no verdict is about them.", stepID, a.id).
		Tell("Call finished_step again.").With("step_id", stepID)
}

func superseded(stepID string) error {
	return session.NotNow(codes.ReviewSuperseded,
		"The review of step '%s' was cancelled, because other outputs were submitted for it.", stepID).
		Tell("get_step says where the session is.")
}
