package run

import (
	"cmp"
	"time"

	definition "deepwork/catalog/job"
	"deepwork/catalog/task"
	"deepwork/session/attempt/executors"
	"deepwork/session/attempt/limit"
	"deepwork/session/board"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/why"
)

// exhausted returns why a step gets no more agents, or the zero Why. These executions do not count: those ended by a
// limit of the provider or the end of a leader, those that handed in outputs about which a person is asked,
// and the first that left a workflow to others. Executions from before the run was resumed, or before a
// person failed the outputs, do not count either.
func (d *leader) exhausted(j job) (w why.Why) {
	tries := 0
	var last task.Execution
	p := j.state.Progress(j.step)
	since := d.since(p)
	if limits := limit.Row(j.executions, since); limits >= board.MaxLimits {
		w = board.WhyOf(&j.executions[0])
		w.Tries = limits
		return w
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
			last = x
		}
	}
	if tries <= d.retries {
		return w
	}

	switch w = p.Why(); {
	case j.refusal != "" && definition.IsMerge(j.step):
		return why.Why{Kind: why.Conflict, Said: j.refusal}
	case j.refusal != "":
		return why.Why{Kind: why.Agent, Tries: tries, Said: j.refusal}
	case w.Kind == why.Refused && p.LastTry().Told:
		w.Kind = why.Again
		return w
	case w.Kind != "":
		return w
	}

	w = board.WhyOf(&last)
	w.Kind, w.Tries = why.Agent, tries
	w.Said = cmp.Or(w.Said, why.Line(deref(last.FinalMessage)))
	if d.silent[j.stepRef] {
		w.Kind, w.By = why.Silent, executors.MCPName
	}
	return w
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

// checksFailed returns why a step is given up because its checks have failed too often since a time, or the zero Why.
func checksFailed(p *machine.StepProgress, since time.Time) (w why.Why) {
	n := 0
	for _, a := range p.Tries() {
		if a.Checks && a.State == machine.TryFailed && a.ClosedAt != nil && a.ClosedAt.After(since) {
			n++
		}
	}
	if n < maxFailedChecks || p.Done() {
		return w
	}
	w = p.Why()
	w.Kind, w.Tries = why.Check, n
	return w
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
