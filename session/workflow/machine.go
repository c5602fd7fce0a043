package workflow

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/job"
	"deepwork/session"
)

// The state machine of one session. Everything here is pure: time, ids, the
// texts of instructions and what was found on disk arrive in the arguments, and
// the same arguments give the same state and reply. A refused call gives an
// error and no state.

// Instructions are the texts of the steps that a transition begins, by step id.
type Instructions map[string]string

// A beginning is what a new session is made of.
type beginning struct {
	SessionID  string
	Goal       string
	InstanceID *string
	BranchName string
	Parent     *string
	Identity   string
	Owner      string
	At         time.Time
	Call       call
	Texts      Instructions
}

// A call is what identifies a tool call when it is repeated.
type call struct {
	Tool       string
	RequestID  *string
	ArgsDigest string
}

// begin makes a new session at the first entry of its workflow
// (seed 000, 001.3.7 to 001.3.14).
func begin(def *Definition, b beginning) (*State, *StartReply, error) {
	if len(def.Workflow.Entries) == 0 {
		return nil, nil, noSteps(def)
	}
	s := &State{
		FormatVersion: FormatVersion, SessionID: b.SessionID,
		JobName: def.Job.Name, WorkflowName: def.Workflow.Name,
		Goal: b.Goal, InstanceID: b.InstanceID, BranchName: b.BranchName,
		Status: Active, ParentSessionID: b.Parent,
		StartedAt: b.At, UpdatedAt: b.At,
		Identity: b.Identity, Owner: b.Owner, Definition: def.Ref,
	}
	infos := s.enter(def, 0, b.At, b.Texts)
	r := &StartReply{BeginStep: &infos[0], ConcurrentSteps: rest(infos), Notice: notice(def)}
	s.remember(&StoredReply{Tool: ToolStart, RequestID: b.Call.RequestID, ArgsDigest: b.Call.ArgsDigest, Reply: r}, 0)
	return s, r, nil
}

func noSteps(def *Definition) error {
	return session.Wrong("workflow_without_steps",
		"Workflow '%s' of job '%s' has no steps. Add steps to it in %s/%s, or start another workflow.",
		def.Workflow.Name, def.Job.Name, def.Job.Dir, job.FileName)
}

// enter begins every step of an entry and describes them; changed is what else
// the transition made of the progress. s is being made.
func (s *State) enter(def *Definition, index int, at time.Time, texts Instructions, changed ...*StepProgress) []StepInfo {
	entry := def.Workflow.Entries[index]
	s.CurrentEntryIndex, s.CurrentStepID, s.ReportedByStepID = index, entry[0], false
	for _, id := range entry {
		changed = append(changed, &StepProgress{StepID: id, StartedAt: at})
	}
	s.setProgress(changed...)
	return s.describe(def, entry, texts)
}

// place finds the current entry in the definition anew, because the job may
// have been edited, and the members that are not completed.
func (s *State) place(def *Definition) (index int, entry job.Entry, pending []string) {
	index = def.Workflow.Find(s.CurrentStepID)
	entry = def.Workflow.Entries[index] // whoever chose def saw to it that it is there
	for _, id := range entry {
		if p := s.progress(id); p == nil || p.CompletedAt == nil {
			pending = append(pending, id)
		}
	}
	return index, entry, pending
}

// A plan is what a finished_step will do, found before its outputs are looked at.
type plan struct {
	Replay   *StoredReply // the call was done before: give this again, nothing else
	Step     *job.Step    // the step that is being finished
	ByStepID bool         // named by step_id
	Index    int          // of its entry
	Pending  []string     // members still open once it is finished; nil: the entry advances
	Next     job.Entry    // the entry that then begins; nil: the workflow is complete
}

// planFinish finds which step a finished_step is about (seed 000, 001.4;
// DESIGN "Concurrent steps" and "Retries"). same tells whether the call's
// outputs are these.
func (s *State) planFinish(def *Definition, stepID *string, same func(Outputs) bool) (*plan, error) {
	if s.Status != Active {
		if stepID != nil {
			if r := s.replay(*stepID, same); r != nil {
				return &plan{Replay: r}, nil
			}
		}
		return nil, s.ended()
	}
	index, entry, pending := s.place(def)
	p := &plan{Index: index}
	switch {
	case len(pending) == 0 && (stepID == nil || slices.Contains(entry, *stepID)):
		// An edit took the last open member out of the group: whoever reports
		// a finished one again closes it.
		id := s.CurrentStepID
		if stepID != nil {
			id = *stepID
		}
		p.Step, p.ByStepID = def.Job.Step(id), true
	case stepID == nil && !s.ReportedByStepID:
		p.Step = def.Job.Step(s.CurrentStepID)
	case stepID == nil && slices.Contains(pending, s.CurrentStepID):
		p.Step, p.ByStepID = def.Job.Step(s.CurrentStepID), true
	case stepID == nil:
		return nil, session.NotNow("step_id_needed",
			"Step '%s' of session '%s' is finished already. Still pending in its concurrent group: %s. Pass step_id to say which one you finished.",
			s.CurrentStepID, s.SessionID, quoteList(pending)).With("pending_concurrent_steps", pending)
	case slices.Contains(pending, *stepID):
		p.Step, p.ByStepID = def.Job.Step(*stepID), true
	default:
		if r := s.replay(*stepID, same); r != nil {
			return &plan{Replay: r}, nil
		}
		return nil, s.notCurrent(def, *stepID, pending)
	}
	if p.ByStepID {
		for _, id := range pending {
			if id != p.Step.ID {
				p.Pending = append(p.Pending, id)
			}
		}
	}
	if p.Pending == nil && index+1 < len(def.Workflow.Entries) {
		p.Next = def.Workflow.Entries[index+1]
	}
	return p, nil
}

// replay finds the reply to the finished_step that finished this step with the
// same outputs, if it is kept.
func (s *State) replay(stepID string, same func(Outputs) bool) *StoredReply {
	p := s.progress(stepID)
	if p == nil || p.CompletedAt == nil || !same(p.Outputs) {
		return nil
	}
	for i := len(s.Replies) - 1; i >= 0; i-- {
		if r := s.Replies[i]; r.Tool == ToolFinish && r.StepID == stepID {
			return r
		}
	}
	return nil
}

// ended refuses a call to a session that is over.
func (s *State) ended() error {
	why := "is completed"
	if s.Status == Aborted {
		why = "was aborted"
	}
	return session.NotNow("session_ended",
		"Session '%s' (%s/%s) %s. Start a new one with start_workflow.",
		s.SessionID, s.JobName, s.WorkflowName, why).With("session_id", s.SessionID).With("status", string(s.Status))
}

// notCurrent refuses a step_id that cannot be finished now, and says which can.
func (s *State) notCurrent(def *Definition, stepID string, pending []string) error {
	p := s.progress(stepID)
	at := def.Workflow.Find(stepID)
	current := "the current step is '" + s.CurrentStepID + "'"
	if len(pending) > 1 || (len(pending) == 1 && pending[0] != s.CurrentStepID) {
		current = "the current concurrent group waits for " + quoteList(pending)
	}
	var e *session.Error
	switch {
	case p != nil && p.CompletedAt != nil:
		e = session.NotNow("step_finished", "Step '%s' is finished already; %s. To do it again, call go_to_step first.", stepID, current)
	case p != nil && p.Unreported:
		e = session.NotNow("group_moved_on", "Step '%s' can no longer be reported: its concurrent group was finished without it and has moved on; %s. To do it again, call go_to_step with step_id '%s'.", stepID, current, stepID)
	case at >= 0:
		e = session.NotNow("step_not_current", "Step '%s' is not current yet; %s. Finish that first.", stepID, current)
	default:
		e = session.Wrong("unknown_step", "Step '%s' is not in workflow '%s/%s'; %s.", stepID, s.JobName, s.WorkflowName, current)
	}
	return e.With("session_id", s.SessionID).With("current_step", s.CurrentStepID)
}

// A finish is a finished_step whose outputs are valid and whose reviews, if
// any, are passed or overridden.
type finish struct {
	Call     call
	At       time.Time
	Outputs  Outputs // validated, in the author's order
	Notes    *string
	Override *Override
	Texts    Instructions // of plan.Next
}

// applyFinish completes the plan's step, and advances when its entry is done
// (seed 000, 001.4.15 to 001.4.18).
func (s *State) applyFinish(def *Definition, p *plan, f finish) (*State, *FinishReply) {
	n := s.next(f.At)
	n.Definition = def.Ref
	n.CurrentEntryIndex = p.Index
	n.ReportedByStepID = s.ReportedByStepID || p.ByStepID

	done := n.progressOrNew(p.Step.ID, f.At)
	at := f.At
	done.CompletedAt, done.Outputs, done.Notes = &at, f.Outputs, f.Notes
	if f.Override != nil {
		done.Overrides = append(slices.Clone(done.Overrides), *f.Override)
	}
	changed := []*StepProgress{done}
	if p.Pending == nil {
		for _, id := range def.Workflow.Entries[p.Index] {
			if m := n.progress(id); id != p.Step.ID && (m == nil || m.CompletedAt == nil) {
				m = n.progressOrNew(id, f.At)
				m.Unreported = true
				changed = append(changed, m)
			}
		}
	}

	r := &FinishReply{Status: NextStep, Notice: notice(def)}
	switch {
	case p.Pending != nil:
		n.setProgress(changed...)
		r.PendingConcurrentSteps = p.Pending
		r.Feedback = new(fmt.Sprintf(
			"Step '%s' is recorded. Its concurrent group is not done yet: wait for %s, each to be reported by finished_step with its step_id. The next step begins when all members are finished; do not begin it before.",
			p.Step.ID, quoteList(p.Pending)))
	case p.Next == nil:
		n.setProgress(changed...)
		n.Status, n.CompletedAt = Completed, &at
		r.Status = WorkflowComplete
		r.Summary = new(n.summary(def))
		all := n.allOutputs(def)
		r.AllOutputs = &all
	default:
		infos := n.enter(def, p.Index+1, f.At, f.Texts, changed...)
		r.BeginStep, r.ConcurrentSteps = &infos[0], rest(infos)
	}
	n.remember(&StoredReply{
		Tool: ToolFinish, RequestID: f.Call.RequestID, ArgsDigest: f.Call.ArgsDigest,
		StepID: p.Step.ID, EntryIndex: p.Index, Reply: r,
	}, p.Index)
	return n, r
}

// progressOrNew copies a step's progress; an edit may have added the step to
// the entry after it began.
func (s *State) progressOrNew(id string, at time.Time) *StepProgress {
	if p := s.progress(id); p != nil {
		return p.clone()
	}
	return &StepProgress{StepID: id, StartedAt: at}
}

// applyAbort ends the session (seed 000, 001.6.5).
func (s *State) applyAbort(c call, explanation string, at time.Time) (*State, *AbortReply) {
	n := s.next(at)
	n.Status, n.AbortReason, n.CompletedAt = Aborted, &explanation, &at
	r := &AbortReply{
		AbortedWorkflow: s.JobName + "/" + s.WorkflowName,
		AbortedStep:     s.CurrentStepID,
		Explanation:     explanation,
	}
	n.remember(&StoredReply{Tool: ToolAbort, RequestID: c.RequestID, ArgsDigest: c.ArgsDigest, Reply: r}, s.CurrentEntryIndex)
	return n, r
}

// replayAbort finds the reply to the same abort.
func (s *State) replayAbort(explanation string) *StoredReply {
	if s.Status != Aborted || s.AbortReason == nil || *s.AbortReason != explanation {
		return nil
	}
	for _, r := range s.Replies {
		if r.Tool == ToolAbort {
			return r
		}
	}
	return nil
}

// planGoTo finds the entry a go_to_step leads to.
func (s *State) planGoTo(def *Definition, stepID string) (int, error) {
	if s.Status != Active {
		return 0, s.ended()
	}
	here, _, _ := s.place(def)
	to := def.Workflow.Find(stepID)
	switch {
	case to < 0:
		return 0, session.Wrong("unknown_step", "Step '%s' is not in workflow '%s/%s'. Its steps up to the current one: %s.",
			stepID, s.JobName, s.WorkflowName, quoteList(slices.Concat(def.Workflow.Entries[:here+1]...)))
	case to > here:
		return 0, session.NotNow("step_ahead", "Step '%s' is ahead of the current step '%s'; go_to_step only leads back. To go forward, finish the current step with finished_step.",
			stepID, s.CurrentStepID).With("current_step", s.CurrentStepID)
	}
	return to, nil
}

// applyGoTo clears the progress of an entry and all later ones, keeps it in the
// history, and begins the entry anew.
func (s *State) applyGoTo(def *Definition, c call, to int, stepID string, at time.Time, texts Instructions) (*State, *GoToReply) {
	n := s.next(at)
	n.Definition = def.Ref
	w := &Withdrawal{At: at, From: s.CurrentStepID, To: stepID}
	r := &GoToReply{InvalidatedSteps: []string{}, Notice: notice(def)}
	for _, id := range slices.Concat(def.Workflow.Entries[to:]...) {
		if p := s.progress(id); p != nil {
			w.Progress = append(w.Progress, Pair[*StepProgress]{id, p})
			r.InvalidatedSteps = append(r.InvalidatedSteps, id)
		}
	}
	n.History = append(slices.Clone(s.History), w)
	n.StepProgress = nil
	for _, p := range s.StepProgress {
		if !slices.Contains(r.InvalidatedSteps, p.Key) {
			n.StepProgress = append(n.StepProgress, p)
		}
	}
	n.Replies = nil
	for _, o := range s.Replies {
		if o.Tool == ToolFinish && slices.Contains(r.InvalidatedSteps, o.StepID) && o.RequestID == nil {
			continue // its step will be finished again, and must not be taken for a repetition
		}
		n.Replies = append(n.Replies, o)
	}
	infos := n.enter(def, to, at, texts)
	r.BeginStep, r.ConcurrentSteps = &infos[0], rest(infos)
	n.remember(&StoredReply{Tool: ToolGoTo, RequestID: c.RequestID, ArgsDigest: c.ArgsDigest, Reply: r}, to)
	return n, r
}

// allOutputs merges the outputs of all completed steps in the workflow's order,
// members included, later ones winning; of steps that an edit took out of the
// workflow, first (seed 000, 001.4.16).
func (s *State) allOutputs(def *Definition) Outputs {
	all := Outputs{}
	add := func(p *StepProgress) {
		if p != nil && p.CompletedAt != nil {
			for _, o := range p.Outputs {
				all = all.Set(o.Key, o.Value)
			}
		}
	}
	for _, p := range s.StepProgress {
		if def.Workflow.Find(p.Key) < 0 {
			add(p.Value)
		}
	}
	for _, id := range slices.Concat(def.Workflow.Entries...) {
		add(s.progress(id))
	}
	return all
}

func (s *State) summary(def *Definition) string {
	done, unreported := 0, []string(nil)
	for _, p := range s.StepProgress {
		switch {
		case p.Value.CompletedAt != nil:
			done++
		case p.Value.Unreported:
			unreported = append(unreported, p.Key)
		}
	}
	text := fmt.Sprintf("Workflow '%s/%s' is complete: %s finished.", s.JobName, def.Workflow.Name, count(done, "step"))
	if unreported != nil {
		text += " Members of concurrent groups that were never reported: " + quoteList(unreported) + "."
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// quoteList gives 'a', 'b', 'c'.
func quoteList(names []string) string {
	if len(names) == 0 {
		return "(none)"
	}
	return "'" + strings.Join(names, "', '") + "'"
}
