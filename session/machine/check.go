package machine

import (
	"encoding/json"
	"fmt"
	"slices"

	"deepwork/catalog/jsontext"
	"deepwork/session/judging"
	"deepwork/session/replies"
)

// A checker collects the errors in a record.
type checker []string

func (c *checker) fault(wrong bool, format string, args ...any) {
	if wrong {
		*c = append(*c, fmt.Sprintf(format, args...))
	}
}

// unusable returns why a decoded state cannot be used, or nothing. The rest of the package relies on these
// checks.
func (s *State) unusable(id string) (c checker) {
	c.fault(s.FormatVersion < 1, "format_version is %d", s.FormatVersion)
	c.fault(s.SessionID != id, "session_id is %q", s.SessionID)
	c.fault(s.Revision < 0 || s.Revision > 1<<53, "revision is %d", s.Revision)
	c.fault(s.Status != Active && s.Status != Completed && s.Status != Aborted, "status is %q", s.Status)
	c.fault(s.JobName == "" || s.WorkflowName == "", "job_name or workflow_name is empty")
	c.fault(s.CurrentEntryIndex < 0, "current_entry_index is %d", s.CurrentEntryIndex)
	c.fault(s.CurrentStepID == "", "current_step_id is empty")
	c.fault(s.Status != Active && s.CompletedAt == nil, "completed_at is null in a session that is %s", s.Status)
	c.fault(s.Status == Active && s.Progress(s.CurrentStepID) == nil, "current step %q was never begun",
		s.CurrentStepID)

	bad := func(p *StepProgress) bool {
		return p == nil || slices.ContainsFunc(p.Submissions, func(u *judging.Submission) bool {
			return u == nil || slices.ContainsFunc(u.Verdicts, func(v *judging.Verdict) bool {
				return v == nil || v.Kind == judging.ByProgram && v.Check == nil
			}) || u.EndedAt == nil && (u.Failed() || p.Finished != 0 && u.ID == p.Finished)
		})
	}
	for _, p := range s.StepProgress {
		c.fault(bad(p.Value) || p.Value.StepID != p.Key,
			"step_progress of %q is not that step's, or has an invalid submission", p.Key)
	}
	for i, w := range s.History {
		c.fault(w == nil || slices.ContainsFunc(w.Progress, func(p jsontext.Pair[*StepProgress]) bool {
			return bad(p.Value)
		}), "history[%d] is null, or a part of it", i)
	}
	for i, r := range s.Replies {
		c.fault(r == nil, "replies[%d] is null", i)
	}

	return c
}

// Faults returns what is wrong with a usable state: what no transition can have produced.
func (s *State) Faults() []string {
	var c checker
	c.fault(s.Status == Active && (s.CompletedAt != nil || s.AbortReason != nil), "it is active, and has an end")
	c.fault(s.Status == Completed && s.AbortReason != nil, "it is completed, and has the reason of an abort")
	c.fault(s.Status == Aborted && s.AbortReason == nil, "it was aborted, and has no reason")
	c.fault(s.CalledAs != "" && s.ParentSessionID == nil, "it is a step of no session")
	if s.ParentSessionID != nil {
		c.fault(!IsSessionID(*s.ParentSessionID), "its parent %.60q is the id of no session", *s.ParentSessionID)
	}
	leftOut := s.Status == Completed && len(s.StepProgress) == 0 // see Begin
	c.fault(s.Progress(s.CurrentStepID) == nil && !leftOut, "its current step %q was never begun", s.CurrentStepID)
	c.fault(s.StartedAt.IsZero() || s.UpdatedAt.IsZero(), "the time at which it began, or moved last, is missing")
	for _, e := range s.StepProgress {
		p, counted := e.Value, 0
		c.fault(p.StartedAt.IsZero(), "step %q has no time of its beginning", e.Key)
		c.fault(p.Unreported && p.Done(), "step %q is both completed and unreported", e.Key)
		c.fault(!p.Done() && len(p.Outputs) > 0, "step %q has outputs and is not completed", e.Key)
		number := 0
		for _, u := range p.Submissions {
			if u.Counts() && u.Number != number { // one that goes on with a try has its number
				counted, number = counted+1, u.Number
			}
			c.fault(u.EndedAt != nil && u.With() != "", "step %q has a submission that has ended, and is with %.60q",
				e.Key, u.With())
		}
		c.fault(p.Finished != 0 && p.FinishedWith() == nil, "step %q was finished with a submission that it lacks",
			e.Key)
		c.fault(p.QualityTries < counted, "step %q has %d tries that count, and says %d", e.Key, counted,
			p.QualityTries)
	}

	c.replies(s)
	return c
}

// ClockWentBack reports whether the times of a state decrease. That is not an error in its record.
func (s *State) ClockWentBack() bool {
	return s.UpdatedAt.Before(s.StartedAt) || s.CompletedAt != nil && s.CompletedAt.Before(s.StartedAt) ||
		slices.ContainsFunc(s.StepProgress, func(p jsontext.Pair[*StepProgress]) bool {
			return p.Value.Done() && p.Value.CompletedAt.Before(p.Value.StartedAt)
		})
}

// replies checks the stored replies: each must belong to its tool and to this session.
func (c *checker) replies(s *State) {
	related := s.CalledAs != "" // the reply may describe the first step of a nested workflow, or of what follows it
	for _, steps := range append(withdrawals(s), s.StepProgress) {
		related = related || slices.ContainsFunc(steps, func(p jsontext.Pair[*StepProgress]) bool {
			return p.Value.Child != ""
		})
	}
	for i, r := range s.Replies {
		var reply *struct {
			BeginStep *replies.StepInfo `json:"begin_step"`
		}
		err := json.Unmarshal(r.Raw, &reply)
		c.fault(!slices.Contains([]string{ToolStart, ToolFinish, ToolAbort, ToolGoTo}, r.Tool),
			"its reply %d is to an unknown tool: %.60q", i, r.Tool)
		c.fault(err != nil, "its reply %d, to %s, cannot be read: %v", i, r.Tool, err)
		c.fault((reply == nil) != (r.Refusal != nil) && err == nil, "its reply %d, to %s, cannot be read: it is null",
			i, r.Tool)
		if reply != nil && reply.BeginStep != nil {
			c.fault(reply.BeginStep.SessionID != s.SessionID && !related, "its reply %d, to %s, is of session %.60q", i,
				r.Tool, reply.BeginStep.SessionID)
		}
		c.fault(r.EntryIndex < 0, "its reply %d, to %s, is of entry %d", i, r.Tool, r.EntryIndex)
		c.fault(r.Tool == ToolAbort && s.Status != Aborted, "it keeps the reply to an abort, and was not aborted")
		c.fault(r.Tool == ToolFinish && r.StepID != "" && s.Progress(r.StepID) == nil,
			"its reply %d is to the finish of step %q, which was never begun", i, r.StepID)
		if r.RequestID == nil {
			continue
		}
		twice := slices.ContainsFunc(s.Replies[:i], func(o *StoredReply) bool {
			return o.RequestID != nil && *o.RequestID == *r.RequestID && o.Tool == r.Tool
		})
		c.fault(twice, "two of its replies are to the %s with request_id %.60q", r.Tool, *r.RequestID)
	}
}

// FaultsWith returns how the state contradicts the session's stored definition, which is used when the job is
// gone.
func (s *State) FaultsWith(def *Definition) []string {
	var c checker
	c.fault(def.Job.Hash != s.Definition.Source, "its definition %s is of another job.yml than it says",
		s.Definition.Hash)
	if def.Job.Name != s.JobName || def.Workflow.Name != s.WorkflowName {
		c.fault(true, "its definition %s is of %s/%s", s.Definition.Hash, def.Job.Name, def.Workflow.Name)
		return c
	}
	def = def.For(s)
	at := def.Workflow.Find(s.CurrentStepID)
	if at < 0 || at != s.CurrentEntryIndex {
		c.fault(true, "its current step %q is entry %d of its definition, and it says %d", s.CurrentStepID, at,
			s.CurrentEntryIndex)
		return c
	}

	_, entry, pending := s.Position(def)
	_, err := def.KeptTexts(entry)
	c.fault(s.Status == Active && len(pending) == 0, "all steps of its current entry are completed, and it is active")
	c.fault(s.Status == Active && err != nil, "its definition %s lacks instructions of the current entry",
		s.Definition.Hash)
	return c
}

// withdrawals returns the progress that go_to_step and rounds have cleared.
func withdrawals(s *State) (all []jsontext.OrderedMap[*StepProgress]) {
	for _, w := range s.History {
		all = append(all, w.Progress)
	}
	return all
}
