package machine

import (
	"maps"
	"slices"
	"time"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
)

// Abort ends the session (seed 000, 001.6.5).
func (s *State) Abort(c Call, explanation string, at time.Time) (*State, *AbortReply) {
	n := s.Next(at)
	n.Status, n.AbortReason, n.CompletedAt = Aborted, &explanation, &at
	n.settle(at)
	r := &AbortReply{
		AbortedWorkflow: s.JobName + "/" + s.WorkflowName,
		AbortedStep:     s.CurrentStepID,
		Explanation:     explanation,
	}
	n.remember(c.stored(r), s.CurrentEntryIndex)
	return n, r
}

// ReplayAbort finds the reply to the same abort.
func (s *State) ReplayAbort(explanation string) *StoredReply {
	if s.Status != Aborted || s.AbortReason == nil || *s.AbortReason != explanation {
		return nil
	}
	return s.findReply(func(r *StoredReply) bool { return r.Tool == ToolAbort })
}

// PlanGoTo finds the entry for a go_to_step.
func (s *State) PlanGoTo(def *Definition, stepID string) (int, error) {
	if s.Status != Active {
		return 0, s.Ended()
	}
	here, _, _ := s.Position(def)
	to := def.Workflow.Find(stepID)
	switch {
	case to < 0:
		return 0, session.Wrong(codes.UnknownStep, "Step '%s' is not in workflow '%s/%s'. Its steps up to the current one: %s.",
			stepID, s.JobName, s.WorkflowName, quoteList(slices.Concat(def.Workflow.Entries[:here+1]...)))
	case to > here:
		return 0, session.NotNow(codes.StepAhead, "Step '%s' is ahead of the current step '%s'; go_to_step only leads back. To go forward, finish the current step with finished_step.",
			stepID, s.CurrentStepID).With("current_step", s.CurrentStepID)
	}
	return to, nil
}

// GoTo moves the progress of an entry and all later ones to the history, and starts the entry again.
// Of a concurrent group only the step itself is started again, unless all is set: its siblings stay as
// they are.
func (s *State) GoTo(def *Definition, c Call, to int, stepID string, all bool, at time.Time, texts Instructions) (*State, *GoToReply) {
	here, _, _ := s.Position(def)
	entry := def.Workflow.Entries[to]
	alone := len(entry) > 1 && !all
	if alone {
		entry = job.Entry{stepID}
	}
	n := s.Next(at)
	n.Definition = def.Ref
	w := &Withdrawal{At: at, From: s.CurrentStepID, To: stepID}
	r := &GoToReply{InvalidatedSteps: []string{}, Notice: Notice(nil, def.Notice)}
	for _, id := range slices.Concat(entry, slices.Concat(def.Workflow.Entries[to+1:]...)) {
		if p := s.Progress(id); p != nil {
			w.Progress = append(w.Progress, jsontext.Pair[*StepProgress]{Key: id, Value: p.voided(movedOn, at)})
			r.InvalidatedSteps = append(r.InvalidatedSteps, id)
		}
	}
	// What a step protects stays as it was when it began first: beginning it again must not make edits of it good.
	again := *def
	again.Protected = maps.Clone(def.Protected)
	for _, id := range entry {
		if p := s.Progress(id); p != nil && p.Protected != nil && again.Protected[id] != nil {
			again.Protected[id] = p.Protected
		}
	}
	def = &again
	n.History = append(slices.Clone(s.History), w)
	n.StepProgress = slices.DeleteFunc(slices.Clone(s.StepProgress), func(p jsontext.Pair[*StepProgress]) bool {
		return slices.Contains(r.InvalidatedSteps, p.Key)
	})
	n.Replies = nil
	for _, o := range s.Replies {
		if o.Tool == ToolFinish && slices.Contains(r.InvalidatedSteps, o.StepID) {
			if o.RequestID == nil {
				continue // its step will be finished again, which is not a repetition
			}
			o = new(*o)
			o.StepID, o.encoded = "", nil // it is only stored for its request_id
		}
		n.Replies = append(n.Replies, o)
	}
	if alone {
		n.CurrentEntryIndex, n.CurrentStepID = to, def.Workflow.Entries[to][0]
		n.ReportedByStepID = s.ReportedByStepID || to != here
		var members []*StepProgress // of the group, in its order
		for _, id := range def.Workflow.Entries[to] {
			p := n.Progress(id)
			if p == nil { // the step, or one that an edit added
				p = &StepProgress{StepID: id, StartedAt: at, Protected: def.Protected[id]}
			}
			members = append(members, p)
		}
		n.StepProgress = slices.DeleteFunc(n.StepProgress, func(p jsontext.Pair[*StepProgress]) bool {
			return slices.Contains(def.Workflow.Entries[to], p.Key)
		})
		n.setProgress(members...)
		r.BeginStep = n.Describe(def, entry, texts).First
	} else {
		d := n.enter(def, to, at, texts)
		r.BeginStep, r.ConcurrentSteps, r.ConcurrentGroup = d.First, d.Others, d.Group
	}
	n.remember(c.stored(r), to)
	return n, r
}
