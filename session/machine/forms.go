package machine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/outputs"
	"deepwork/session/replies"
)

// made returns the value of an output from the entries with indexes from first to after-1, as submitted by
// the last finished step that has the output, or nil, and that step's progress. For a for_each it returns the
// values of all items. With handed, steps that left the output out are ignored, as in all_outputs.
func (s *State) made(def *Definition, first, after int, output string, handed bool) (*outputs.Value, *StepProgress) {
	for i := after - 1; i >= first; i-- {
		for _, id := range slices.Backward(def.Workflow.Entries[i]) {
			if st := def.Job.Step(id); st == nil || st.Output(output) == nil {
				continue
			}
			if forEach(def, i) != nil {
				return new(s.each(def, i, id, output)), nil
			}

			if p := s.Progress(id); p.Done() {
				if v, ok := p.Outputs.Get(output); ok {
					return &v, p
				} else if !handed {
					return nil, p
				}
			}
		}
	}

	return nil, nil
}

// SameMakers reports whether the same steps made the lists and texts that the forms of two definitions use.
// The definitions must have the same forms.
func (s *State) SameMakers(one, other *Definition) bool {
	makers := func(def *Definition) (all []*StepProgress) {
		for i, f := range def.Workflow.Forms {
			if f == nil || i > 0 && def.Workflow.Forms[i-1] == f {
				continue
			}

			first, after, output := 0, i, ""
			switch {
			case f.ForEach != nil:
				output = f.ForEach.Output
			case f.When != nil:
				output = f.When.Output
			default:
				first, after = def.Workflow.Span(f)
				output = f.Repeat.Until.Output
			}
			_, p := s.made(def, first, after, output, false)
			all = append(all, p)
		}
		return all
	}
	return slices.Equal(makers(one), makers(other))
}

// text returns the text that a condition tests, "" if there is none.
func (s *State) text(def *Definition, c *job.Condition, first, after int) string {
	v, _ := s.made(def, first, after, c.Output, false)
	if c.Input != "" {
		given, _ := s.Inputs.Get(c.Input)
		v = &given
	}
	if v == nil || v.Text == nil {
		return ""
	}
	return *v.Text
}

// next returns the index of the entry that follows the one at an index: the first entry of its form, if the
// form's steps are repeated. len(Entries) means that the workflow is complete.
func (s *State) next(def *Definition, index int) int {
	wf := def.Workflow
	if f := wf.Form(index); f != nil && f.Repeat != nil {
		if first, after := wf.Span(f); index == after-1 && !s.ends(def, f) && (!s.lastRound(f) || s.more(f) != "") {
			return first
		}
	}
	return s.skip(def, index+1)
}

// skip returns the index of the next entry, from index on, that is not left out.
func (s *State) skip(def *Definition, index int) int {
	wf := def.Workflow
	for index < len(wf.Entries) {
		f := wf.Form(index)
		switch {
		case f != nil && f.When != nil && s.leftOut(def, index):
			_, index = wf.Span(f)
		case f != nil && f.ForEach != nil && len(s.Items(def, index)) == 0:
			index++
		default:
			return index
		}
	}
	return index
}

// leftOut reports whether the entry at an index depends on a condition that does not hold.
func (s *State) leftOut(def *Definition, index int) bool {
	f := def.Workflow.Form(index)
	if f == nil || f.When == nil {
		return false
	}
	first, _ := def.Workflow.Span(f)
	return !f.When.Holds(s.text(def, f.When, 0, first))
}

// ends reports whether the condition that ends a repeated form's rounds holds.
func (s *State) ends(def *Definition, f *job.Form) bool {
	if f.Repeat.Until.Run != nil {
		p := s.Progress(f.Body[len(f.Body)-1][0])
		return p != nil && p.Ended != nil && p.Ended.Passed
	}
	first, after := def.Workflow.Span(f)
	return f.Repeat.Until.Holds(s.text(def, &f.Repeat.Until, first, after))
}

// round returns the current round of a repeated form.
func (s *State) round(f *job.Form) replies.Round {
	if s != nil {
		if p := s.Progress(f.Body[0][0]); p != nil && p.Round != nil {
			return *p.Round
		}
	}
	return replies.Round{Number: 1, AtMost: f.Repeat.AtMost, Until: f.Repeat.Until.String()}
}

func (s *State) lastRound(f *job.Form) bool { return s.round(f).Number >= f.Repeat.AtMost }

// more says who asks for one more round after the current one, "" if nobody does.
func (s *State) more(f *job.Form) string {
	for _, id := range f.Body[len(f.Body)-1] {
		if p := s.Progress(id); p != nil && p.Ended != nil && p.Ended.More != "" {
			return p.Ended.More
		}
	}
	return ""
}

// nextRound returns the round that follows the current one, which did not end the rounds.
func (s *State) nextRound(def *Definition, f *job.Form) *replies.Round {
	r := s.round(f)
	r.Number++
	r.AtMost = max(r.AtMost, r.Number)
	if p := s.Progress(f.Body[len(f.Body)-1][0]); f.Repeat.Until.Run != nil && p != nil && p.Ended != nil {
		r.Failed = p.Ended.Why
	} else {
		first, after := def.Workflow.Span(f)
		r.Failed = fmt.Sprintf("The text was %s.",
			jsontext.Clip(strconv.Quote(strings.TrimSpace(s.text(def, &f.Repeat.Until, first, after))), 500))
	}
	r.Failed = strings.TrimSpace(r.Failed + " " + s.more(f))
	return &r
}

// Exhausted returns why finishing a step with these outputs uses up the rounds, unless a program says that they end:
// its round is the last one, and the condition that ends the rounds does not hold. Otherwise it returns "".
func (s *State) Exhausted(def *Definition, p *Plan, given outputs.Map) string {
	f := def.Workflow.Form(p.Index)
	if p.Pending != nil || f == nil || f.Repeat == nil || !s.lastRound(f) {
		return ""
	}
	if _, after := def.Workflow.Span(f); p.Index != after-1 {
		return ""
	}

	n := s.Next(s.UpdatedAt)
	done := n.ProgressOrNew(p.Step.ID, s.UpdatedAt)
	done.CompletedAt = new(s.UpdatedAt)
	done.Outputs = given
	n.setProgress(done)
	if n.ends(def, f) {
		return ""
	}
	return fmt.Sprintf("round %[1]d of %[1]d is over, and it does not hold that %[2]s", s.round(f).Number,
		&f.Repeat.Until)
}

// opening returns the steps that the transition to n begins after a step in the entry at an index was
// finished in it: those of the next entry, or of items whose turn has come.
func (s *State) opening(def *Definition, index int, pending []string) (next int, ids job.Entry) {
	if pending != nil {
		if forEach(def, index) == nil {
			return index, nil
		}

		begun := s.byID()
		for _, id := range s.Open(def, index, pending) {
			if begun[id] == nil {
				ids = append(ids, id)
			}
		}
		return index, ids
	}
	next = s.next(def, index)
	return next, s.begins(def, next)
}

// begins returns the steps with which an entry begins; nil means that there are no more entries.
func (s *State) begins(def *Definition, index int) job.Entry {
	if index >= len(def.Workflow.Entries) {
		return nil
	}
	if forEach(def, index) == nil {
		return def.Workflow.Entries[index]
	}

	// enter moves what is left of an earlier visit to the history.
	bare := *s
	bare.StepProgress = slices.DeleteFunc(slices.Clone(s.StepProgress), func(p jsontext.Pair[*StepProgress]) bool {
		return def.Workflow.Find(p.Key) == index
	})
	return bare.Open(def, index, nil)
}

// Shown returns the members of the current entry that a reply describes: all or, for many items, those that
// may be worked on now.
func (s *State) Shown(def *Definition) job.Entry {
	index, entry, pending := s.Position(def)
	if forEach(def, index) != nil {
		return s.Open(def, index, pending)
	}
	return entry
}

// First returns the steps with which a session of a definition begins; nil means that there is nothing to do.
func First(def *Definition, inputs outputs.Map) job.Entry {
	s := &State{Inputs: inputs}
	return s.begins(def, s.skip(def, 0))
}

// Begins returns the steps that a finished_step begins, whose texts it needs.
func (s *State) Begins(def *Definition, p *Plan, fin FinishInput) job.Entry {
	if def.Workflow.Forms == nil { // the usual case
		if p.Pending == nil && p.Index+1 < len(def.Workflow.Entries) {
			return def.Workflow.Entries[p.Index+1]
		}
		return nil
	}

	n := s.Next(s.UpdatedAt)
	done := n.ProgressOrNew(p.Step.ID, s.UpdatedAt)
	done.CompletedAt = new(s.UpdatedAt)
	done.Outputs = fin.Outputs
	done.Lists = fin.Lists
	done.Ended = fin.Ended
	n.setProgress(done)
	_, ids := n.opening(def, p.Index, p.Pending)
	return ids
}

// Ends reports whether a finished_step completes the workflow.
func (s *State) Ends(def *Definition, p *Plan, fin FinishInput) bool {
	return p.Pending == nil && s.Begins(def, p, fin) == nil
}

// RoundOf returns the round of a step, or nil.
func (s *State) RoundOf(def *Definition, id string) *replies.Round {
	if f := def.Workflow.Form(def.Workflow.Find(id)); f != nil && f.Repeat != nil {
		return new(s.round(f))
	}
	return nil
}

// Counts returns how many steps a session has, and how many of them are done, left out or dropped. Steps of
// items count once their list is known. A nil def means that the definition is lost.
func (s *State) Counts(def *Definition) (done, total int) {
	all := s.byID()
	over := func(id string) bool {
		p := all[id]
		return p.Done() || p != nil && p.Unreported
	}
	if def == nil {
		for _, p := range s.StepProgress {
			total++
			if over(p.Key) {
				done++
			}
		}
		return done, total
	}

	here := def.Workflow.Find(s.CurrentStepID)
	for i, entry := range def.Workflow.Entries {
		ids, passed := entry, i < here || s.Status == Completed
		if passed || i == here {
			ids = s.members(def, i)
		}
		total += len(ids)
		leftOut := passed && s.leftOut(def, i)
		for _, id := range ids {
			if _, item, ok := job.SplitItem(id); leftOut || over(id) || ok && all.dropped(entry, item) != nil {
				done++
			}
		}
	}
	return done, total
}

// DueCalls returns the steps that have begun, are workflows, and have no session yet.
func (s *State) DueCalls(def *Definition) (due []*job.Step) {
	for _, p := range s.StepProgress {
		if st := def.Job.Step(p.Key); st != nil && st.Call != nil && p.Value.Child == "" && s.IsCurrent(p.Key) {
			due = append(due, st)
		}
	}
	return due
}

// Called records the session of a step that is a workflow. s is being made.
func (s *State) Called(stepID, child string) {
	p := s.Progress(stepID).clone()
	p.Child = child
	s.setProgress(p)
}

// CallValues returns the values that a step passes to its workflow, in the form of start_workflow's inputs.
func (s *State) CallValues(def *Definition, st *job.Step, of *job.Workflow) map[string]outputs.Value {
	all := map[string]outputs.Value{}
	give := func(name, from string) {
		if v, ok := s.value(def, st, from); ok {
			all[name] = v
		}
	}
	for _, in := range st.Call.Inputs {
		if in.Value != nil {
			all[in.Name] = outputs.Value{Paths: []string{*in.Value}}
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

// value returns, as an argument, the newest value of an output before a step, or the value of an input of the
// workflow or of the step's item.
func (s *State) value(def *Definition, st *job.Step, name string) (v outputs.Value, ok bool) {
	index := def.Workflow.Find(st.ID)
	if _, i, item := job.SplitItem(st.ID); item {
		if name == job.ItemName {
			return outputs.Value{Paths: []string{ItemText(s.itemInfo(def, st.ID).Value)}}, true
		}
		for _, id := range slices.Backward(def.Workflow.Entries[index]) {
			if p := s.Progress(job.Item(id, i)); !ok && p.Done() {
				v, ok = p.Outputs.Get(name)
			}
		}
	}
	if found := s.newest(def, index, name); !ok && found != nil {
		v, ok = *found, true
	}
	if !ok {
		v, ok = s.Inputs.Get(name)
	}
	if v.Text != nil {
		v = outputs.Value{Paths: []string{*v.Text}}
	}
	return v, ok
}

// newest returns the newest value of an output before the entry at an index, including the previous round's,
// or nil.
func (s *State) newest(def *Definition, index int, output string) (v *outputs.Value) {
	if f := def.Workflow.Form(index); f != nil && f.Repeat != nil {
		first, after := def.Workflow.Span(f)
		if v, _ = s.made(def, first, index, output, true); v != nil {
			return v
		}
		for _, w := range slices.Backward(s.History) {
			before := &State{StepProgress: w.Progress}
			if before.Progress(f.Body[0][0]) != nil && before.round(f).Number == s.round(f).Number-1 {
				if v, _ = before.made(def, index, after, output, true); v != nil {
					return v
				}
				break
			}
		}
	}
	v, _ = s.made(def, 0, index, output, true)
	return v
}

// PlanCall returns the plan to finish a step whose workflow is complete, or nil if the session no longer
// waits for it.
func (s *State) PlanCall(def *Definition, stepID, child string) *Plan {
	if p := s.Progress(stepID); s.Status != Active || !s.IsCurrent(stepID) || p.Child != child {
		return nil
	}

	plan, err := s.PlanFinish(def, &stepID, func(outputs.Map) bool { return false })
	if err != nil || plan.Replay != nil {
		return nil
	}
	return plan
}

// CallOpen returns the error for finishing a step before its workflow is complete.
func (s *State) CallOpen(stepID string, child *State) error {
	p := s.Progress(stepID)
	if child != nil && child.Status == Active {
		return session.NotNow(codes.StepIsWorkflow,
			"Step '%s' is the workflow '%s', in session '%s', which is at step '%s'.", stepID, child.WorkflowName,
			child.SessionID, child.CurrentStepID).
			Next("follow that", "get_step", "session_id", p.Child).
			Worded("Follow that (get_step with its session_id): when it is complete, this step is finished.").
			With("session_id", p.Child)
	}
	return session.NotNow(codes.StepIsWorkflow,
		"Step '%s' is a workflow, whose session '%s' was aborted, or is gone.", stepID, p.Child).
		Next("end this one", ToolAbort, "session_id", s.SessionID).
		Worded("Call go_to_step with step_id '%s' to start it again, or abort_workflow to end this one.", stepID).
		With("session_id", s.SessionID)
}
