package machine

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/outputs"
	"deepwork/session/replies"
)

// A Plan is what a finished_step will do, determined before its outputs are checked.
type Plan struct {
	Replay   *StoredReply // the stored reply of a repeated call; then nothing else is done
	Step     *job.Step    // the step to finish
	ByStepID bool         // named by step_id
	Index    int          // the index of its entry
	Pending  []string     // members still open afterwards; nil if the session moves on
}

// PlanFinish finds the step of a finished_step (seed 000, 001.4; DESIGN "Concurrent steps" and "Retries").
// same reports whether the call has the given outputs.
func (s *State) PlanFinish(def *Definition, stepID *string, same func(outputs.Map) bool) (*Plan, error) {
	if s.Status != Active {
		if stepID != nil {
			if r := s.Replay(*stepID, same); r != nil {
				return &Plan{Replay: r}, nil
			}
		}
		return nil, s.Ended()
	}

	index, entry, pending := s.Position(def)
	open := s.Open(def, index, pending)
	p := &Plan{Index: index}
	switch {
	case forEach(def, index) != nil && stepID == nil:
		if len(open) != 1 {
			return nil, session.NotNow(codes.StepIDNeeded,
				"Steps of several items may be finished now in session '%s': %s. Pass step_id to say which one you "+
					"finished.",
				s.SessionID, some(open)).With("pending_concurrent_steps", open[:min(len(open), ShownItems)])
		}
		p.Step, p.ByStepID = def.Job.Step(open[0]), true
	case len(pending) == 0 && (stepID == nil || slices.Contains(entry, *stepID)):
		// An edit removed the last open member of the group: repeating the call for a finished member ends
		// the group.
		id := s.CurrentStepID
		if stepID != nil {
			id = *stepID
		}
		p.Step, p.ByStepID = def.Job.Step(id), true
	case stepID == nil && !s.ReportedByStepID:
		p.Step = def.Job.Step(s.CurrentStepID)
		// The group waits for members that a person or a check must pass, and for members that are workflows.
		p.ByStepID = slices.ContainsFunc(pending, func(id string) bool {
			st := def.Job.Step(id)
			return id != p.Step.ID && (len(st.ReviewsBy(true)) > 0 || len(st.Checks) > 0 || st.Call != nil)
		})
	case stepID == nil && slices.Contains(pending, s.CurrentStepID):
		p.Step, p.ByStepID = def.Job.Step(s.CurrentStepID), true
	case stepID == nil:
		return nil, session.NotNow(codes.StepIDNeeded,
			"Step '%s' of session '%s' is finished already. Still pending in its concurrent group: %s. Pass step_id "+
				"to say which one you finished.",
			s.CurrentStepID, s.SessionID, session.Quoted(pending)).With("pending_concurrent_steps", pending)
	case slices.Contains(open, *stepID):
		p.Step, p.ByStepID = def.Job.Step(*stepID), true
	default:
		if r := s.Replay(*stepID, same); r != nil {
			return &Plan{Replay: r}, nil
		}
		return nil, s.NotCurrent(def, *stepID, pending)
	}
	if p.ByStepID {
		for _, id := range pending {
			if id != p.Step.ID {
				p.Pending = append(p.Pending, id)
			}
		}
	}
	return p, nil
}

// Replay returns the stored reply to the finished_step that finished this step with the same outputs, or nil.
func (s *State) Replay(stepID string, same func(outputs.Map) bool) *StoredReply {
	p := s.Progress(stepID)
	if !p.Done() || !same(p.Outputs) {
		return nil
	}
	return s.findReply(func(r *StoredReply) bool { return r.Tool == ToolFinish && r.StepID == stepID })
}

// await says that the step is recorded, and which members of its group are pending. Of these, open may be
// worked on now.
func await(r *replies.Finish, stepID string, open, pending []string) {
	r.PendingConcurrentSteps = pending[:min(len(pending), ShownItems)]
	needs := some(open)
	if later := len(pending) - len(open); later > 0 {
		needs += fmt.Sprintf(", and later %d more", later)
	}
	r.Feedback = new(fmt.Sprintf(
		"Waiting: step '%s' is recorded. Its concurrent group still needs %s. If subagents do that, wait for their "+
			"reports; what nobody does, do now (get_step with its step_id shows it) and report it by finished_step "+
			"with its step_id. The next step begins with the last report; do not begin it before.",
		stepID, needs))
}

// some is session.Quoted for steps that may belong to many items.
func some(ids []string) string {
	if more := len(ids) - ShownItems; more > 0 {
		return session.Quoted(ids[:ShownItems]) + fmt.Sprintf(" and %d more", more)
	}
	return session.Quoted(ids)
}

// Ended returns the error for a call to an ended session.
func (s *State) Ended() error {
	why := "is completed"
	if s.Status == Aborted {
		why = "was aborted"
	}

	e := session.NotNow(codes.SessionEnded, "Session '%s' (%s/%s) %s.", s.SessionID, s.JobName, s.WorkflowName, why).
		With("session_id", s.SessionID).With("status", string(s.Status))
	if s.CalledAs == "" {
		return e.Next("start a new one with start_workflow", ToolStart).Worded("Start a new one with start_workflow.")
	}
	return e.Add("It was step '%s' of session '%s'.", s.CalledAs, *s.ParentSessionID).
		Next("see how that goes on", "get_step", "session_id", *s.ParentSessionID)
}

// current lists the steps that can be finished now.
func (s *State) current(pending []string) string {
	if len(pending) > 1 || (len(pending) == 1 && pending[0] != s.CurrentStepID) {
		return "the current concurrent group waits for " + some(pending)
	}
	return "the current step is '" + s.CurrentStepID + "'"
}

// misnamed says how to name a step of an entry that has begun, if an id names an item that the entry lacks,
// or names none although the step is done for items. It returns "" if the id is right, or if that cannot be
// known yet.
func (s *State) misnamed(def *Definition, id string) string {
	at := def.Workflow.Find(id)
	if at < 0 || at > def.Workflow.Find(s.CurrentStepID) || slices.Contains(s.members(def, at), id) {
		return ""
	}

	step, _, _ := job.SplitItem(id)
	if forEach(def, at) == nil {
		return "the step is done once, and has no items"
	} else if n := len(s.Items(def, at)); n > 0 {
		return fmt.Sprintf("'%s' is done for each of %s, counted from 0, as '%s'", step, Count(n, "item"),
			job.Item(step, 0))
	}

	return ""
}

// NotShown returns the error for a step_id of get_step that is not in the current entry.
func (s *State) NotShown(def *Definition, stepID string, pending []string) error {
	current := s.current(pending)
	var e *session.Error
	switch {
	case s.misnamed(def, stepID) != "":
		return s.NotCurrent(def, stepID, pending)
	case s.Progress(stepID).Done():
		e = session.NotNow(codes.StepFinished,
			"Step '%s' is finished; %s.", stepID, current).
			Tell("get_step shows current steps only; without step_id it lists the outputs of finished steps in "+
				"completed_steps. To do step '%s' again, call go_to_step.", stepID)
	case def.Workflow.Find(stepID) >= 0:
		e = session.NotNow(codes.StepNotCurrent,
			"Step '%s' is not current; %s.", stepID, current).
			Tell("get_step shows current steps only: leave step_id out, or pass one of those.")
	default:
		return s.NotCurrent(def, stepID, pending)
	}

	return e.With("session_id", s.SessionID).With("current_step", s.CurrentStepID)
}

// NotCurrent returns the error for a step_id that cannot be finished now. It lists those that can.
func (s *State) NotCurrent(def *Definition, stepID string, pending []string) error {
	p := s.Progress(stepID)
	at := def.Workflow.Find(stepID)
	current := s.current(pending)

	var e *session.Error
	switch {
	case s.misnamed(def, stepID) != "":
		e = session.Wrong(codes.UnknownStep, "Step '%s' is not in workflow '%s/%s': %s; %s.", stepID, s.JobName,
			s.WorkflowName, s.misnamed(def, stepID), current)
	case p.Done():
		e = session.NotNow(codes.StepFinished,
			"Step '%s' is finished already; %s.", stepID, current).
			Tell("To do it again, call go_to_step first.")
	case p != nil && p.Unreported:
		e = session.NotNow(codes.GroupMovedOn,
			"Step '%s' can no longer be reported: its concurrent group was finished without it and has moved on; %s.",
			stepID, current).
			Tell("To do it again, call go_to_step with step_id '%s'.", stepID)
	case s.droppedItem(def, stepID) != nil:
		e = session.NotNow(codes.StepFinished, "A person has dropped the item of step '%s' (%s); %s.", stepID,
			s.droppedItem(def, stepID).Reason, current)
	case at >= 0 && slices.Contains(pending, stepID):
		e = session.NotNow(codes.StepNotCurrent, "Step '%s' has not had its turn yet: what may be finished now is %s.",
			stepID, some(s.Open(def, at, pending)))
	case at >= 0:
		e = session.NotNow(codes.StepNotCurrent, "Step '%s' is not current yet; %s. Finish that first.",
			stepID, current)
	default:
		e = session.Wrong(codes.UnknownStep, "Step '%s' is not in workflow '%s/%s'; %s.", stepID, s.JobName,
			s.WorkflowName, current)
	}

	return e.With("session_id", s.SessionID).With("current_step", s.CurrentStepID)
}

// A FinishInput is the input of a finished_step with valid outputs whose reviews, if any, have passed or were
// overridden.
type FinishInput struct {
	Call     Call
	At       time.Time
	Outputs  outputs.Map // validated, in the author's order
	Notes    *string
	With     *judging.Submission          // what it is finished with; nil if the step has no judges
	Over     []string                     // the checks that a person passes over
	Texts    Instructions                 // for the steps that Begins returns
	Lists    map[string][]json.RawMessage // the items of the outputs that Lists returns
	Ended    *judging.RoundEnd            // what the program that ends the rounds said; nil means none
	Weakened []string                     // how the reviews are weaker than State.Pinned
	// if this completes the workflow: outputs of earlier steps that no longer exist
	Lost []string
}

// Finish completes the plan's step, and advances if its entry is done (seed 000, 001.4.15 to
// 001.4.18).
func (s *State) Finish(def *Definition, p *Plan, f FinishInput) (*State, *replies.Finish) {
	n := s.Next(f.At)
	if def.Ref.Hash != "" { // otherwise the job was edited before its last step ended; nothing has to be stored
		n.Definition, n.CurrentEntryIndex = def.Ref, p.Index
	}
	n.ReportedByStepID = s.ReportedByStepID || p.ByStepID

	n.weaken(p.Step.ID, f.Weakened, f.At)
	done := n.ProgressOrNew(p.Step.ID, f.At)
	at := f.At
	done.CompletedAt = &at
	done.Outputs = f.Outputs
	done.Notes = f.Notes
	done.Unreported = false
	done.Lists = f.Lists
	done.Ended = f.Ended
	done.Place = n.Place

	done.prove(f.With, p.Step, f.Over, n.Revision, f.At)
	changed := []*StepProgress{done}
	if p.Pending == nil && forEach(def, p.Index) == nil {
		for _, id := range def.Workflow.Entries[p.Index] {
			if id != p.Step.ID && !n.Progress(id).Done() {
				m := n.ProgressOrNew(id, f.At)
				m.Unreported = true
				changed = append(changed, m)
			}
		}
	}
	if p.Pending == nil {
		for _, o := range n.StepProgress { // members that an edit has removed
			if def.Workflow.Find(o.Key) < 0 && o.Value.Current() {
				m := o.Value.clone()
				m.Unreported = true
				changed = append(changed, m)
			}
		}
	}
	n.setProgress(changed...)

	if job.IsMerge(p.Step.ID) {
		n.StepProgress = n.Isolate(def, p.Step.ID, "", f.At).StepProgress
	}

	r := replies.NewFinish(replies.NextStep, def.Notice, notice(f.With, p.Step.ID))
	stored := f.Call.stored(r)
	stored.StepID, stored.EntryIndex = p.Step.ID, p.Index
	next := n.move(def, p.Index, p.Pending, f, r)
	switch {
	case p.Pending == nil && next <= p.Index:
		stored.StepID = "" // the next round finishes the step again, which is not a repetition
	case p.Pending != nil && r.BeginStep == nil:
		await(r, p.Step.ID, n.Open(def, p.Index, p.Pending), p.Pending)
	case p.Pending != nil:
		r.PendingConcurrentSteps = p.Pending[:min(len(p.Pending), ShownItems)]
	case next == len(def.Workflow.Entries):
		r.Status = replies.WorkflowComplete
		r.Summary = new(n.summary(def, f.Lost))
		all := n.AllOutputs(def)
		r.AllOutputs, r.Closing = &all, def.Workflow.Closing
	}
	n.settle(f.At)
	n.remember(stored, p.Index)
	return n, r
}

// move begins what follows a step that is finished in s, in the entry at an index, and describes it in the
// reply. pending are the steps that the entry still waits for. It returns the index of the current entry,
// len(Entries) if the workflow is complete. s is being made.
func (s *State) move(def *Definition, index int, pending []string, f FinishInput, r *replies.Finish) int {
	next, ids := s.opening(def, index, pending)
	var d Described
	switch {
	case pending != nil:
		if open := s.Open(def, index, pending); forEach(def, index) != nil && len(open) > 0 {
			s.CurrentStepID = open[0]
		}
		if ids == nil {
			return index
		}
		s.setProgress(s.begun(def, ids, f.At)...)
		d = s.Describe(def, ids, f.Texts)
	case ids == nil:
		s.Status, s.CompletedAt = Completed, new(f.At)
		return next
	case next <= index: // another round
		again := s.nextRound(def, def.Workflow.Form(next))
		def = s.keepProtected(def)
		_, after := def.Workflow.Span(def.Workflow.Form(next))
		s.withdraw(def, f.At, ids[0], func(id string) bool {
			at := def.Workflow.Find(id)
			return next <= at && at < after
		})
		s.enter(def, next, f.At, f.Texts)
		first := s.Progress(ids[0]).clone()
		first.Round = again
		s.setProgress(first)
		d = s.Describe(def, ids, f.Texts)
		r.Feedback = new(fmt.Sprintf("Round %d of %d begins, since it does not hold that %s. %s", again.Number,
			again.AtMost, again.Until, again.Failed))
	default:
		d = s.enter(s.keepProtected(def), next, f.At, f.Texts)
	}
	r.BeginStep = d.First
	r.ConcurrentSteps = d.Others
	r.ConcurrentGroup = d.Group
	return next
}

// ProgressOrNew returns a copy of a step's progress, or a new one: an edit may have added the step to the
// entry after that began.
func (s *State) ProgressOrNew(id string, at time.Time) *StepProgress {
	if p := s.Progress(id); p != nil {
		return p.clone()
	}
	return &StepProgress{StepID: id, StartedAt: at}
}
