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
	from := s.CurrentStepID
	s.CurrentEntryIndex, s.CurrentStepID, s.ReportedByStepID = index, entry[0], false
	var over OrderedMap[*StepProgress]
	for _, id := range entry {
		// Begun before, and moved behind the current step by an edit of the job.
		if p := s.progress(id); p != nil {
			if p.attempt().open() {
				p = p.settled(at)
			}
			over = append(over, Pair[*StepProgress]{id, p})
		}
		changed = append(changed, &StepProgress{StepID: id, StartedAt: at})
	}
	if over != nil {
		s.History = append(slices.Clone(s.History), &Withdrawal{At: at, From: from, To: entry[0], Progress: over})
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

// applyAbort ends the session (seed 000, 001.6.5).
func (s *State) applyAbort(c call, explanation string, at time.Time) (*State, *AbortReply) {
	n := s.next(at)
	n.Status, n.AbortReason, n.CompletedAt = Aborted, &explanation, &at
	n.settle(at)
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
			if p.attempt().open() {
				p = p.settled(at)
			}
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
		if o.Tool == ToolFinish && slices.Contains(r.InvalidatedSteps, o.StepID) {
			if o.RequestID == nil {
				continue // its step will be finished again, and must not be taken for a repetition
			}
			kept := o.clone()
			kept.StepID = "" // it is there for its request_id alone
			o = kept
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
