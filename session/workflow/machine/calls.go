package machine

import (
	"slices"

	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/codes"
)

// DueCalls returns the steps that have begun, are workflows, and have no session yet.
func (s *State) DueCalls(def *Definition) (due []*job.Step) {
	for _, p := range s.StepProgress {
		if st := def.Job.Step(p.Key); st != nil && st.Call != nil && p.Value.Child == "" && s.IsCurrent(p.Key) {
			due = append(due, st)
		}
	}
	return due
}

// Called records the session that a step is. s is being made.
func (s *State) Called(stepID, child string) {
	p := s.Progress(stepID).clone()
	p.Child = child
	s.setProgress(p)
}

// CallValues returns the values that a step gives to the workflow that it is, as start_workflow takes them.
func (s *State) CallValues(def *Definition, st *job.Step, of *job.Workflow) map[string]OutputValue {
	all := map[string]OutputValue{}
	give := func(name, from string) {
		if v, ok := s.value(def, st, from); ok {
			all[name] = v
		}
	}
	for _, in := range st.Call.Inputs {
		if in.Value != nil {
			all[in.Name] = OutputValue{Paths: []string{*in.Value}}
		} else {
			give(in.Name, in.From)
		}
	}
	if st.Call.Inputs == nil {
		for _, p := range of.Inputs {
			give(p.Name, p.Name)
		}
	}
	return all
}

// value returns the newest value of an output before a step, or that of an input of the workflow or of the step's item,
// as an argument.
func (s *State) value(def *Definition, st *job.Step, name string) (v OutputValue, ok bool) {
	index := def.Workflow.Find(st.ID)
	if _, i, item := job.SplitItem(st.ID); item {
		if name == job.ItemName {
			return s.itemInfo(def, st.ID).argument(), true
		}
		for _, id := range slices.Backward(def.Workflow.Entries[index]) {
			if p := s.Progress(job.Item(id, i)); !ok && p.Done() {
				v, ok = p.Outputs.Get(name)
			}
		}
	}
	entries := def.Workflow.Entries[:index]
	if f := def.Workflow.Form(index); f != nil && f.Repeat != nil { // of the round before, too
		entries = append(slices.Clip(entries), f.Body...)
	}
	if p := s.newest(def, entries, name); !ok && p != nil {
		v, ok = p.Outputs.Get(name)
	}
	if !ok {
		v, ok = s.Inputs.Get(name)
	}
	if v.Each != nil {
		v = v.flat()
	}
	if v.Text != nil {
		v = OutputValue{Paths: []string{*v.Text}}
	}
	return v, ok
}

// PlanCall returns the plan with which a step that is a workflow is finished when that is complete, or nil if
// the session no longer waits for it.
func (s *State) PlanCall(def *Definition, stepID, child string) *Plan {
	if p := s.Progress(stepID); s.Status != Active || !s.IsCurrent(stepID) || p.Child != child {
		return nil
	}
	plan, err := s.PlanFinish(def, &stepID, func(Outputs) bool { return false })
	if err != nil || plan.Replay != nil {
		return nil
	}
	return plan
}

// CallOpen refuses to finish a step that is a workflow before that is complete.
func (s *State) CallOpen(stepID string, child *State) error {
	p := s.Progress(stepID)
	if child != nil && child.Status == Active {
		return session.NotNow(codes.StepIsWorkflow, "Step '%s' is the workflow '%s', in session '%s', which is at step '%s'. Follow that (get_step with its session_id): when it is complete, this step is finished.",
			stepID, child.WorkflowName, child.SessionID, child.CurrentStepID).With("session_id", p.Child)
	}
	return session.NotNow(codes.StepIsWorkflow, "Step '%s' is a workflow, whose session '%s' was aborted, or is gone. Call go_to_step with step_id '%s' to start it again, or abort_workflow to end this one.", stepID, p.Child, stepID).With("session_id", s.SessionID)
}
