package run

import (
	"fmt"
	"strings"
	"time"

	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
	"deepwork/session/attempt/executors"
	"deepwork/session/attempt/limit"
	"deepwork/session/board"
	"deepwork/session/judging"
	"deepwork/session/machine"
)

// exhausted returns why a step gets no more agents, or "". These executions do not count: those ended by a
// limit of the provider or the end of a leader, those that handed in outputs about which a person is asked,
// and the first that left a workflow to others. Executions from before the run was resumed, or before a
// person failed the outputs, do not count either.
func (d *leader) exhausted(j job) string {
	tries, why, said := 0, "", ""
	p := j.state.Progress(j.step)
	since := d.since(p)
	if limits := limit.Row(j.executions, since); limits >= board.MaxLimits {
		return fmt.Sprintf("A limit of its agent's provider ended %d agents in a row. Resume the run when the limit "+
			"is over. %s", limits, deref(j.executions[0].Error))
	}

	left := map[string]bool{} // by workflow
	for _, x := range j.executions {
		if x.CreatedAt.Before(since) || x.LimitedUntil != nil || asked(&x, p) ||
			x.State != task.Completed && x.State != task.Failed && !d.cut[x.ID] {
			continue
		}

		before := len(left)
		for _, s := range leftBy(&x, j.ended) {
			left[s.JobName+"/"+s.WorkflowName] = true
		}
		if len(left) > before {
			continue
		}

		tries++
		if tries == 1 { // the newest execution
			said = strings.Join(strings.Fields(deref(x.FinalMessage)), " ")
		}
		if why == "" {
			why = deref(x.Error)
		}
	}
	if tries <= d.retries {
		return ""
	}

	agents := "1 agent"
	if tries > 1 {
		agents = fmt.Sprintf("%d agents", tries)
	}
	text := agents + " ended without finishing it."
	if why = strings.TrimSpace(why); why != "" {
		text += " " + why
		if !strings.ContainsRune(".!?", rune(why[len(why)-1])) { // for example the last line that a program printed
			text += "."
		}
	}

	saw := lastSaid(p, j.refusal)
	if said != "" && saw == "" && !strings.Contains(why, said) {
		text += fmt.Sprintf(" The last one said: %q.", jsontext.Clip(said, 300))
	}
	text += saw
	if d.silent[j.stepRef] {
		text += fmt.Sprintf(" The last one never connected to the MCP server %s: its program must know that server "+
			"('deepwork help tutorials/run').", executors.MCPName)
	}
	return text
}

// since returns the time from which agents of a step count: since the run was resumed, and since a person
// last reviewed the step.
func (d *leader) since(p *machine.StepProgress) time.Time {
	since := d.attemptLead.Since
	if u := p.LastByPerson(); u != nil && u.EndedAt.After(since) {
		return *u.EndedAt
	}
	return since
}

// maxFailedChecks is how often a step's checks may fail before the run stops.
const maxFailedChecks = 10

// checksFailed returns why a step is given up because its checks have failed too often since a time, or "".
func checksFailed(p *machine.StepProgress, since time.Time) string {
	if p == nil {
		return ""
	}

	n, last := 0, ""
	for _, a := range p.Tries() {
		if a.Checks && a.State == machine.TryFailed && a.ClosedAt != nil && a.ClosedAt.After(since) {
			n++
			last = fmt.Sprintf("Check '%s': %s", a.Failed()[0].RunEach, a.Failed()[0].Feedback)
		}
	}
	if n < maxFailedChecks || p.Done() {
		return ""
	}
	return fmt.Sprintf("Its checks failed %d times. %s", n, jsontext.Clip(last, maxSaid))
}

// asked reports whether an agent has done its work: it handed in the outputs about which a person is asked.
func asked(x *task.Execution, p *machine.StepProgress) bool {
	u := p.Asked()
	if u == nil || x.EndedAt == nil {
		return false
	}
	at := u.LastTurn(judging.ByPerson).At
	return !at.Before(x.CreatedAt) && !at.After(*x.EndedAt)
}

// leftBy returns the workflows that an agent started and left to others: they ended after the agent.
func leftBy(x *task.Execution, ended []*machine.State) (left []*machine.State) {
	for _, s := range ended {
		if x.EndedAt != nil && s.CompletedAt != nil && !s.StartedAt.Before(x.CreatedAt) &&
			s.StartedAt.Before(*x.EndedAt) && s.CompletedAt.After(*x.EndedAt) {
			left = append(left, s)
		}
	}
	return left
}

// failedSince reports whether the agent does not know of a failed review: it failed after the agent had ended
// or, if a person reviewed, after the agent had begun, since a running agent is not told.
func failedSince(p *machine.StepProgress, before *task.Execution) bool {
	last := p.LastTry()
	if !last.Failed() || before.EndedAt == nil {
		return false
	}
	knew := *before.EndedAt
	if last.FailedBy(judging.ByPerson) {
		knew = before.CreatedAt
	}
	return last.EndedAt.After(knew)
}

// maxSaid limits how much of a review a person is shown, in characters.
const maxSaid = 500

// lastSaid returns, for people, why a step was not accepted the last time, or "". told is what is already
// known.
func lastSaid(p *machine.StepProgress, told string) string {
	if told != "" {
		return " " + told
	}

	if p == nil {
		return ""
	}
	if failed := failedChecks(p); failed != nil {
		return jsontext.Clip(fmt.Sprintf(" Its check '%s' failed: %s", failed[0].RunEach, failed[0].Feedback), maxSaid)
	}

	last := p.LastTry()
	if !last.Failed() {
		return ""
	}

	text := " Its last review did not pass:"
	if last.FailedBy(judging.ByPerson) {
		text = " A person did not pass its outputs:"
		if last.Told {
			text = " A person did not pass its outputs, and the same ones were handed in again:"
		}
	}
	for _, v := range last.Failures() {
		text += " " + strings.TrimSpace(v.Feedback)
	}
	return jsontext.Clip(text, maxSaid)
}
