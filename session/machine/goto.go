package machine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/replies"
)

// Abort ends the session (seed 000, 001.6.5).
func (s *State) Abort(c Call, explanation string, at time.Time) (*State, *replies.Abort) {
	n := s.Next(at)
	n.Status = Aborted
	n.AbortReason = &explanation
	n.CompletedAt = &at
	n.settle(at)
	r := &replies.Abort{
		AbortedWorkflow: s.JobName + "/" + s.WorkflowName,
		AbortedStep:     s.CurrentStepID,
		Explanation:     explanation,
	}
	if s.CalledAs != "" {
		r.Notice = new(fmt.Sprintf("It was step '%s' of session '%s', which stands before that step now: go_to_step "+
			"with this session_id and step_id starts it again, abort_workflow ends that session, too.", s.CalledAs,
			*s.ParentSessionID))
	}
	n.remember(c.stored(r), s.CurrentEntryIndex)
	return n, r
}

// ReplayAbort returns the stored reply to the same abort, or nil.
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
	case to < 0, forEach(def, to) == nil && !slices.Contains(def.Workflow.Entries[to], stepID):
		return 0, session.Wrong(codes.UnknownStep,
			"Step '%s' is not in workflow '%s/%s'. Its steps up to the current one: %s.",
			stepID, s.JobName, s.WorkflowName, session.Quoted(slices.Concat(def.Workflow.Entries[:here+1]...)))
	case s.leftOut(def, to):
		return 0, session.NotNow(codes.StepNotCurrent,
			"Step '%s' is left out, since it does not hold that %s. To have it done, go back to the step that "+
				"decides that.", stepID, def.Workflow.Form(to).When)
	case !slices.Contains(s.members(def, to), stepID) && !slices.Contains(def.Workflow.Entries[to], stepID):
		return 0, session.Wrong(codes.UnknownStep,
			"'%s' is no item of the list, which has %d: its items are counted from 0.", stepID, len(s.Items(def, to)))
	case forEach(def, to) != nil && len(s.Items(def, to)) == 0:
		return 0, session.NotNow(codes.StepNotCurrent,
			"Step '%s' has nothing to do: the list of its items is empty. To have it done, go back to the step that "+
				"makes the list.", stepID)
	case to <= here && s.notBegun(def, stepID):
		template, _, _ := job.SplitItem(stepID)
		return 0, session.NotNow(codes.StepAhead,
			"Step '%s' has not begun, or a person has dropped its item; %s only leads back.", stepID, ToolGoTo).
			Next("do all items again", ToolGoTo, "step_id", template).
			Worded("To do all items again, pass the id without the index.").With("current_step", s.CurrentStepID)
	case to > here:
		return 0, session.NotNow(codes.StepAhead,
			"Step '%s' is ahead of the current step '%s'; %s only leads back.", stepID, s.CurrentStepID, ToolGoTo).
			Tell("To go forward, finish the current step with finished_step.").
			With("current_step", s.CurrentStepID)
	}

	return to, nil
}

// notBegun reports whether a step belongs to an item that has not reached it, or that was dropped.
func (s *State) notBegun(def *Definition, stepID string) bool {
	_, _, item := job.SplitItem(stepID)
	return item && (s.Progress(stepID) == nil || s.droppedItem(def, stepID) != nil)
}

// GoTo moves the progress of an entry and of all later ones to the history, and starts the entry again. Of a
// concurrent group it restarts only the step itself, unless all is set. Of items it restarts only the step's
// own item, from the step on. The other members and items stay as they are.
func (s *State) GoTo(
	def *Definition, c Call, to int, stepID string, all bool, at time.Time, texts Instructions,
) (*State, *replies.GoTo) {
	here, _, _ := s.Position(def)
	restart := s.restarts(def, to, stepID, all)
	def = s.keepProtected(def)
	n := s.Next(at)
	n.Definition = def.Ref
	round := n.sameRound(def, here, to)
	r := &replies.GoTo{Notice: replies.Notice(nil, def.Notice)}
	r.InvalidatedSteps = n.withdraw(def, at, stepID, func(id string) bool {
		entry := def.Workflow.Find(id)
		return entry > to || entry == to && (restart == nil || slices.Contains(restart, id))
	})
	if restart != nil {
		n.CurrentEntryIndex, n.CurrentStepID = to, stepID
		n.ReportedByStepID = s.ReportedByStepID || to != here
		if forEach(def, to) == nil {
			n.CurrentStepID = def.Workflow.Entries[to][0]
			n.regroup(def, to, at)
			if round != nil && stepID == n.CurrentStepID {
				n.Progress(stepID).Round = round // made by regroup
			}
		} else {
			p := n.begun(def, []string{stepID}, at)[0]
			p.Folder = s.Folder(def, stepID)
			n.setProgress(p)
		}
		r.BeginStep = n.Describe(def, job.Entry{stepID}, texts).First
	} else {
		d := n.enter(def, to, at, texts)
		if first := n.Progress(n.CurrentStepID); round != nil {
			first = first.clone()
			first.Round = round
			n.setProgress(first)
			d = n.Describe(def, n.begins(def, to), texts)
		}
		r.BeginStep = d.First
		r.ConcurrentSteps = d.Others
		r.ConcurrentGroup = d.Group
	}
	n.remember(c.stored(r), to)
	return n, r
}

// Restarts returns the steps that a go_to_step begins, whose texts it needs.
func (s *State) Restarts(def *Definition, to int, stepID string, all bool) job.Entry {
	if s.restarts(def, to, stepID, all) != nil {
		return job.Entry{stepID}
	}
	return s.begins(def, to)
}

// restarts returns the steps of an entry that a go_to_step starts again; nil means all.
func (s *State) restarts(def *Definition, to int, stepID string, all bool) (ids []string) {
	f := forEach(def, to)
	template, i, item := job.SplitItem(stepID)
	switch {
	case all, f != nil && !item, f == nil && len(def.Workflow.Entries[to]) == 1:
		return nil
	case f == nil:
		return []string{stepID}
	}
	from := slices.IndexFunc(f.Body, func(e job.Entry) bool { return slices.Contains(e, template) })
	ids = []string{stepID}
	for _, id := range slices.Concat(f.Body[from+1:]...) {
		ids = append(ids, job.Item(id, i))
	}
	return ids
}

// sameRound returns the round to continue if a go_to_step leads to the first step of the session's current
// repeated form, or nil.
func (s *State) sameRound(def *Definition, here, to int) *replies.Round {
	f := def.Workflow.Form(to)
	if f == nil || f.Repeat == nil || def.Workflow.Form(here) != f {
		return nil
	}
	if first, _ := def.Workflow.Span(f); first != to {
		return nil
	}
	return new(s.round(f))
}

// keepProtected returns the definition with what the steps protected when they first began, so that beginning
// them again does not legitimize edits.
func (s *State) keepProtected(def *Definition) *Definition {
	kept := *def
	kept.Protected = maps.Clone(def.Protected)
	for id := range kept.Protected {
		if p := s.Progress(id); p != nil && p.Protected != nil {
			kept.Protected[id] = p.Protected
		}
	}
	return &kept
}

// withdraw moves the progress of steps, with their stored replies, to the history, and returns their ids in
// the workflow's order. s is being made.
func (s *State) withdraw(def *Definition, at time.Time, to string, of func(id string) bool) []string {
	w := &Withdrawal{At: at, From: s.CurrentStepID, To: to}
	kept := make(jsontext.OrderedMap[*StepProgress], 0, len(s.StepProgress))
	for _, p := range s.StepProgress {
		if of(p.Key) {
			w.Progress = append(w.Progress,
				jsontext.Pair[*StepProgress]{Key: p.Key, Value: p.Value.left(movedOn, at)})
		} else {
			kept = append(kept, p)
		}
	}

	order := map[string]int{}
	for i, id := range slices.Concat(def.Workflow.Entries...) {
		order[id] = i
	}
	slices.SortStableFunc(w.Progress, func(a, b jsontext.Pair[*StepProgress]) int {
		one, _, _ := job.SplitItem(a.Key)
		other, _, _ := job.SplitItem(b.Key)
		return order[one] - order[other]
	})

	ids := []string{}
	gone := map[string]bool{}
	for _, p := range w.Progress {
		ids, gone[p.Key] = append(ids, p.Key), true
	}

	s.History, s.StepProgress = append(slices.Clone(s.History), w), kept
	replies := s.Replies
	s.Replies = nil
	for _, o := range replies {
		if o.Tool == ToolFinish && gone[o.StepID] {
			if o.RequestID == nil {
				continue // the step will be finished again, which is not a repetition
			}
			o = new(*o)
			o.StepID, o.encoded = "", nil // stored only for its request_id
		}
		s.Replies = append(s.Replies, o)
	}

	return ids
}

// regroup puts the progress of a group's members in order, and begins members that have none. s is being
// made.
func (s *State) regroup(def *Definition, to int, at time.Time) {
	var members []*StepProgress
	for _, id := range def.Workflow.Entries[to] {
		p := s.Progress(id)
		if p == nil { // the step, or one that an edit added
			p = s.begun(def, []string{id}, at)[0]
		}
		members = append(members, p)
	}
	s.StepProgress = slices.DeleteFunc(s.StepProgress, func(p jsontext.Pair[*StepProgress]) bool {
		return slices.Contains(def.Workflow.Entries[to], p.Key)
	})
	s.setProgress(members...)
}
