package run

import (
	"encoding/json"
	"fmt"
	"strings"

	"deepwork/catalog/task"
	"deepwork/session/attempt/executors"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/replies"
)

// firstPrompt asks an agent to do a step and, in worktrees, to commit its files.
func firstPrompt(
	goal string, s *machine.State, step *replies.StepInfo, others []string, before *task.Execution, told string,
	commit bool,
) (string, error) {
	data, err := json.MarshalIndent(step, "", "  ")
	if err != nil {
		return "", err
	}

	var b strings.Builder
	fmt.Fprintf(&b, "# Goal\n\n%s\n\n# Your step: %s\n\n", strings.TrimSpace(goal), step.StepID)
	fmt.Fprintf(&b, "You do one step of the workflow %s/%s, and nothing else. This describes "+
		"it:\n\n```json\n%s\n```\n\n", s.JobName, s.WorkflowName, data)
	if len(others) > 0 {
		fmt.Fprintf(&b, "Other agents work in this folder at the same time, on the steps %s: leave their files "+
			"alone.\n\n", strings.Join(others, ", "))
	}

	if commit {
		b.WriteString("Commit the files of your step on the current branch before you hand them in, and no other " +
			"ones: name them in git add and in git commit.\n\n")
	}

	b.WriteString(howToFinish(step))
	if before != nil {
		b.WriteString("\nAn agent has worked on this step before, and you do not have its conversation; look at what " +
			"it left.")
		if before.FinalMessage != nil {
			fmt.Fprintf(&b, " Its last message was:\n\n> %s\n",
				strings.ReplaceAll(strings.TrimSpace(*before.FinalMessage), "\n", "\n> "))
		}
		fmt.Fprintf(&b, "\nThe step is not finished: %s\n", missing(step, s, told))
	}

	return b.String(), nil
}

func howToFinish(step *replies.StepInfo) string {
	return fmt.Sprintf(`When its outputs are written, call the tool finished_step of the MCP server %s with `+
		`session_id %q, step_id %q and the outputs. If it answers needs_work, do what its feedback says and call `+
		`it again. The step is done only when it answers next_step or workflow_complete; then end.
`, executors.MCPName, step.SessionID, step.StepID)
}

// againPrompt sends back an agent that ended without finishing its step.
func againPrompt(step *replies.StepInfo, s *machine.State, told string) string {
	return fmt.Sprintf("You ended, and the step %s is not finished: %s\n\n%s", step.StepID, missing(step, s, told),
		howToFinish(step))
}

// missing says why a step is not finished, with what its last review said. told is what is already known.
func missing(step *replies.StepInfo, s *machine.State, told string) string {
	if told != "" {
		return told
	}

	p := s.Progress(step.StepID)
	if failed := failedChecks(p); failed != nil {
		text := "its checks failed."
		for _, v := range failed {
			text += fmt.Sprintf("\n\nCheck '%s' (%s): %s", v.RunEach, strings.Join(v.Check.Command, " "),
				strings.TrimSpace(v.Feedback))
		}
		return text
	}

	last := p.LastTry()
	if !last.Failed() {
		return "finished_step has not accepted it yet." + expects(step)
	}

	text := "its last review did not pass."
	if last.FailedBy(judging.ByPerson) {
		text = "a person looked at its outputs, and does not pass them. The same outputs are not shown to them " +
			"again: change them."
	}
	for _, v := range last.Failures() {
		text += "\n\n" + strings.TrimSpace(v.Feedback)
	}
	return text
}

// failedChecks returns the failed checks of a step, if checks were judged last, or nil.
func failedChecks(p *machine.StepProgress) []*judging.Verdict {
	if last := p.Newest(); last != nil && last.Checks && last.State == machine.TryFailed {
		return last.Failed()
	}
	return nil
}

// limitReached tells an agent that a limit of the step ended the previous one, or returns "".
func limitReached(before *task.Execution) string {
	if before == nil || !before.OverLimit {
		return ""
	}
	return "\nThe last agent of this step did not finish. " + *before.Error +
		" Work so that this does not happen again.\n"
}

// expects names the outputs of a step, since an agent may have forgotten one.
func expects(step *replies.StepInfo) string {
	var names []string
	for _, o := range step.ExpectedOutputs {
		text := fmt.Sprintf("%q (%s)", o.Name, o.Type)
		if !o.Required {
			text = fmt.Sprintf("%q (%s, optional)", o.Name, o.Type)
		}
		names = append(names, text)
	}
	if names == nil {
		return ""
	}
	return " It expects the outputs " + strings.Join(names, ", ") + "."
}

// limitPrompt tells an agent to continue after a limit of its provider has ended it.
func limitPrompt(step *replies.StepInfo) string {
	return "The limit that stopped you has ended. Go on where you were.\n\n" + howToFinish(step)
}

// childPrompt tells an agent to continue after others have done its nested workflow.
func childPrompt(step *replies.StepInfo, children []*machine.State) string {
	var b strings.Builder
	for _, c := range children {
		fmt.Fprintf(&b, "The workflow %s/%s that you started (session %s) is %s.", c.JobName, c.WorkflowName,
			c.SessionID, c.Status)
		if c.AbortReason != nil {
			fmt.Fprintf(&b, " The reason: %s", *c.AbortReason)
		}
		b.WriteString("\n")
	}

	fmt.Fprintf(&b, "Go on with the step %s.\n\n%s", step.StepID, howToFinish(step))
	return b.String()
}

// mergePrompt asks an agent to do what the merge of an item needs first.
func mergePrompt(step *replies.StepInfo, told string) string {
	return fmt.Sprintf("# Your step: %s\n\n%s %s\n\nResolve that so that what both branches want holds, see to it "+
		"that what can be checked still passes, commit, and end. The branch is merged when you have ended: do not "+
		"call finished_step, and change no other branch.\n",
		step.StepID, step.Instructions, told)
}

// adviceFor adds the message of a person who has resumed the run.
func adviceFor(prompt, advice string) string {
	if advice = strings.TrimSpace(advice); advice == "" {
		return prompt
	}
	return prompt + "\nA person says:\n\n" + advice + "\n"
}
