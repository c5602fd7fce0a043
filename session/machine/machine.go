// Package machine is the pure state machine of one session: its state, the transitions between states, and
// the replies to the calls that make them. Time, ids, the texts of instructions and what was found on disk
// are arguments, and equal arguments give equal states and replies. A refused call returns an error and no
// state.
//
// To change it, know these concepts:
//   - State, StepProgress, Definition, part: what a session is, of which workflow, and how it is stored;
//   - entry, form, item, round (package job): where it is; Plan, Withdrawal: what a call will do, and has cleared;
//   - StoredReply, Call: what a repeated call is answered by;
//   - what is submitted for a step is of package judging; Try is a view of it, by which nothing is decided.
package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/outputs"
	"deepwork/session/replies"
)

// Instructions are the texts of the steps that a transition begins, by step id.
type Instructions map[string]string

// NewSession holds the inputs of Begin.
type NewSession struct {
	SessionID  string
	Goal       string
	Inputs     outputs.Map // as ParseInputs returns them
	InstanceID *string
	BranchName string
	Branch     replies.BranchStatus
	BranchDue  bool // a branch is to be made
	Parent     *string
	CalledAs   string // the step of the parent that this session is; "" if none
	Isolated   bool   // see State.Isolated
	Shared     bool   // see State.Shared
	Identity   string
	Place      *task.Place // the server's place, or nil
	AttemptID  string      // see State.AttemptID
	At         time.Time
	Call       Call
	Texts      Instructions
	Notice     string // for the caller
	Pinned     *Pinned
	Trace      string // see State.Trace
}

// A Call identifies a tool call, so that a repetition is recognized.
type Call struct {
	Tool       string
	RequestID  *string
	ArgsDigest string
	Named      bool   // the call named its session
	ID         string // of this one call, however often it is applied; "" if it moves nothing
}

// stored returns the stored form of a reply to the call.
func (c Call) stored(reply any) *StoredReply {
	return &StoredReply{
		Tool:       c.Tool,
		RequestID:  c.RequestID,
		ArgsDigest: c.ArgsDigest,
		CallID:     c.ID,
		Named:      c.Named,
		Reply:      reply,
	}
}

// Begin makes a new session at the first entry of its workflow (seed 000, 001.3.7 to 001.3.14). If the
// session is a step and all of its own steps are left out, it is complete at once, and its reply begins no
// step.
func Begin(def *Definition, b NewSession) (*State, *replies.Start, error) {
	if len(def.Workflow.Entries) == 0 {
		return nil, nil, NoSteps(def)
	}

	s := &State{
		FormatVersion:   FormatVersion,
		SessionID:       b.SessionID,
		JobName:         def.Job.Name,
		WorkflowName:    def.Workflow.Name,
		Goal:            b.Goal,
		Inputs:          b.Inputs,
		InstanceID:      b.InstanceID,
		BranchName:      b.BranchName,
		BranchStatus:    b.Branch,
		BranchDue:       b.BranchDue,
		Status:          Active,
		ParentSessionID: b.Parent,
		CalledAs:        b.CalledAs,
		Isolated:        b.Isolated,
		Shared:          b.Shared,
		StartedAt:       b.At,
		UpdatedAt:       b.At,
		Identity:        b.Identity,
		Place:           b.Place,
		AttemptID:       b.AttemptID,
		Definition:      def.Ref,
		Pinned:          b.Pinned,
		Trace:           b.Trace,
	}

	r := &replies.Start{Notice: replies.Notice(nil, cmp.Or(b.Notice, def.Notice))}
	switch first := s.skip(def, 0); {
	case first < len(def.Workflow.Entries):
		d := s.enter(def, first, b.At, b.Texts)
		r.BeginStep = d.First
		r.ConcurrentSteps = d.Others
		r.ConcurrentGroup = d.Group
	case b.CalledAs != "":
		s.CurrentStepID = def.Workflow.Entries[0][0]
		s.Status = Completed
		s.CompletedAt = &b.At
	default:
		return nil, nil, nothingToDo(def)
	}
	s.remember(b.Call.stored(r), 0)
	return s, r, nil
}

// NoSteps returns the error for starting a workflow without steps, or nil.
func NoSteps(def *Definition) error {
	return session.Wrong(codes.WorkflowWithoutSteps,
		"Workflow '%s' of job '%s' has no steps. Add steps to it in %s/%s, or start another workflow.",
		def.Workflow.Name, def.Job.Name, def.Job.Dir, job.FileName)
}

// nothingToDo returns the error for starting a workflow all of whose steps are left out.
func nothingToDo(def *Definition) error {
	return session.Wrong(codes.WorkflowWithoutSteps,
		"With these inputs, the conditions of workflow '%s' of job '%s' leave nothing to do.", def.Workflow.Name,
		def.Job.Name)
}

// enter begins the first steps of an entry, and describes them. changed has other progress that the
// transition changes. s is being made.
func (s *State) enter(
	def *Definition, index int, at time.Time, texts Instructions, changed ...*StepProgress,
) Described {
	entry := s.begins(def, index)
	from := s.CurrentStepID
	var over jsontext.OrderedMap[*StepProgress]
	for _, p := range s.StepProgress {
		// The step began earlier, and an edit of the job moved it behind the current one.
		if def.Workflow.Find(p.Key) == index {
			over = append(over, jsontext.Pair[*StepProgress]{Key: p.Key, Value: p.Value.left(movedOn, at)})
		}
	}
	s.CurrentEntryIndex = index
	s.CurrentStepID = entry[0]
	s.ReportedByStepID = false
	if over != nil {
		s.History = append(slices.Clone(s.History), &Withdrawal{At: at, From: from, To: entry[0], Progress: over})
		s.StepProgress = slices.DeleteFunc(slices.Clone(s.StepProgress), func(p jsontext.Pair[*StepProgress]) bool {
			return def.Workflow.Find(p.Key) == index && !slices.Contains(entry, p.Key)
		})
	}
	s.setProgress(append(changed, s.begun(def, entry, at)...)...)
	return s.Describe(def, entry, texts)
}

// Position returns the current entry, its members, and those that it waits for. It finds the entry by its
// step's id, since the job may have been edited. It does not wait for completed members, nor for those that
// the group went on without before go_to_step came back to it. def must have the step.
func (s *State) Position(def *Definition) (index int, entry job.Entry, pending []string) {
	index = def.Workflow.Find(s.CurrentStepID)
	entry = s.members(def, index)
	if forEach(def, index) != nil {
		return index, entry, s.pendingItems(def, index)
	}
	for _, id := range entry {
		if p := s.Progress(id); !p.Done() && (p == nil || !p.Unreported) {
			pending = append(pending, id)
		}
	}
	return index, entry, pending
}

// HadTurn reports whether a step of an earlier definition, in the entry at this index, is finished or no
// longer due.
func (s *State) HadTurn(was, now *Definition, index int, id string) bool {
	at, p := now.Workflow.Find(id), s.Progress(id)
	return p.Done() || p != nil && p.Unreported ||
		at >= 0 && at < now.Workflow.Find(s.CurrentStepID) && s.passedBy(now, at) && s.passedBy(was, index) &&
			index < s.reached(was)
}

// passedBy reports whether the steps of an entry need not be done, because its condition does not hold or its
// items are done or dropped.
func (s *State) passedBy(def *Definition, index int) bool {
	if forEach(def, index) == nil {
		return s.leftOut(def, index)
	}
	return s.pendingItems(def, index) == nil
}

// pendingItems returns the steps of all items of an entry that are still to do.
func (s *State) pendingItems(def *Definition, index int) (ids []string) {
	all := s.byID()
	for i := range s.Items(def, index) {
		ids = append(ids, all.pending(def.Workflow.Entries[index], i)...)
	}
	return ids
}

// reached returns the index of the session's current entry in an earlier definition. If that lacks the
// current step, it is the entry after the finished ones.
func (s *State) reached(was *Definition) int {
	if at := was.Workflow.Find(s.CurrentStepID); at >= 0 {
		return at
	}

	last := -1
	for _, p := range s.StepProgress {
		if p.Value.Done() {
			last = max(last, was.Workflow.Find(p.Key))
		}
	}
	return s.skip(was, last+1)
}

// AllOutputs returns the Results in the form of replies: texts are plain strings, shortened if they are too
// long together (seed 000, 001.4.16).
func (s *State) AllOutputs(def *Definition) outputs.Map {
	return outputs.PlainWithin(s.Results(def), outputs.MaxReplied)
}

// Results merges the outputs of all completed steps in the workflow's order, including members; later ones
// win. Steps removed by an edit come first. A nil def means a workflow without steps.
func (s *State) Results(def *Definition) outputs.Map {
	all, steps := outputs.Map{}, []string{}
	for _, p := range s.StepProgress {
		if def == nil || def.Workflow.Find(p.Key) < 0 {
			steps = append(steps, p.Key)
		}
	}

	add := func(ids []string) {
		for _, id := range ids {
			if p := s.Progress(id); p.Done() {
				for _, o := range p.Outputs {
					all = all.Set(o.Key, o.Value)
				}
			}
		}
	}
	add(steps)
	if def == nil {
		return all
	}

	for i, entry := range def.Workflow.Entries {
		if forEach(def, i) == nil {
			add(entry)
			continue
		}

		for _, id := range entry {
			for _, name := range s.outputsOf(def, i, id) {
				if v := s.each(def, i, id, name); len(v.Each) > 0 {
					all = all.Set(name, v)
				}
			}
		}
	}
	return all
}

// maxLostNamed is the maximum number of missing files that a summary names.
const maxLostNamed = 20

func (s *State) summary(def *Definition, lost []string) string {
	done := 0
	unreported := []string(nil)
	dropped := []string(nil)
	drops := map[int64]bool{}
	for _, p := range s.StepProgress {
		switch {
		case p.Value.Done():
			done++
		case p.Value.Unreported:
			unreported = append(unreported, p.Key)
		}
		if d := p.Value.Dropped; d != nil && !drops[d.At.UnixMicro()] { // the steps of an item were dropped at one time
			drops[d.At.UnixMicro()] = true
			dropped = append(dropped, fmt.Sprintf("'%s' (%s)", p.Key, jsontext.Clip(d.Reason, 200)))
		}
	}
	text := fmt.Sprintf("Workflow '%s/%s' is completed: %s finished.", s.JobName, def.Workflow.Name,
		Count(done, "step"))
	if unreported != nil {
		text += " Members of concurrent groups that were never reported: " + session.Quoted(unreported) + "."
	}
	if more := len(dropped) - ShownItems; more > 0 {
		dropped = append(slices.Clip(dropped[:ShownItems]), Count(more, "other"))
	}
	if dropped != nil {
		text += " Items that a person has dropped: " + strings.Join(dropped, ", ") + "."
	}
	for _, p := range s.StepProgress {
		if where := s.outputsPlace(p.Value); p.Value.Done() && where != "" {
			text += fmt.Sprintf(" The outputs of step '%s' are on the machine %s.", p.Key, where)
		}
	}
	if more := len(lost) - maxLostNamed; more > 0 {
		lost = append(slices.Clip(lost[:maxLostNamed]), Count(more, "other"))
	}
	if lost != nil {
		text += " Files that earlier steps delivered and that are no longer there: " + strings.Join(lost, ", ") + "."
	}
	return text
}

// Count returns texts such as "1 step" and "2 steps".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
