package workflow

import (
	"encoding/json"
	"fmt"
	"slices"

	"deepwork/actor/presence"
	"deepwork/session/workflow/machine"
)

// A sessionCheck holds one record against what the state machine can make of it.
type sessionCheck struct {
	*State
	faults    []string
	backwards bool // its times
}

func (c *sessionCheck) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

// check looks at what needs no definition.
func (c *sessionCheck) check() {
	switch {
	case c.Status == Active && (c.CompletedAt != nil || c.AbortReason != nil):
		c.fault("it is active, and has an end")
	case c.Status == Completed && c.AbortReason != nil:
		c.fault("it is completed, and has the reason of an abort")
	case c.Status == Aborted && c.AbortReason == nil:
		c.fault("it was aborted, and has no reason")
	}
	if c.Owner != "" && !presence.IsID(c.Owner) {
		c.fault("its owner %.60q is the id of no server", c.Owner)
	}
	if c.ParentSessionID != nil && !machine.IsSessionID(*c.ParentSessionID) {
		c.fault("its parent %.60q is the id of no session", *c.ParentSessionID)
	}
	if c.Progress(c.CurrentStepID) == nil {
		c.fault("its current step %q was never begun", c.CurrentStepID)
	}
	for _, p := range c.StepProgress {
		switch {
		case p.Value.StartedAt.IsZero():
			c.fault("step %q has no time of its beginning", p.Key)
		case p.Value.Unreported && p.Value.CompletedAt != nil:
			c.fault("step %q is both completed and unreported", p.Key)
		case p.Value.CompletedAt == nil && len(p.Value.Outputs) > 0:
			c.fault("step %q has outputs and is not completed", p.Key)
		}
		counted := 0
		for _, a := range p.Value.Attempts {
			switch a.State {
			case machine.AttemptPassed, machine.AttemptFailed:
				counted++
			case AttemptOpen, AttemptVoid:
			default:
				c.fault("step %q has a review attempt that is %.60q", p.Key, a.State)
			}
		}
		if p.Value.QualityAttempts < counted {
			c.fault("step %q has %d review attempts that count, and says %d", p.Key, counted, p.Value.QualityAttempts)
		}
	}
	c.times()
	c.replies()
}

// times are as the clock had them; one that was set back is no fault of a record.
func (c *sessionCheck) times() {
	if c.StartedAt.IsZero() || c.UpdatedAt.IsZero() {
		c.fault("the time at which it began, or moved last, is missing")
		return
	}
	c.backwards = c.UpdatedAt.Before(c.StartedAt) || c.CompletedAt != nil && c.CompletedAt.Before(c.StartedAt)
	for _, p := range c.StepProgress {
		c.backwards = c.backwards || p.Value.CompletedAt != nil && p.Value.CompletedAt.Before(p.Value.StartedAt)
	}
}

// replies are what a repeated call is answered with: each must be of its tool
// and of this session.
func (c *sessionCheck) replies() {
	requests := 0
	for i, r := range c.Replies {
		var begun *StepInfo
		var err error
		switch {
		case r.Refusal != nil && r.Tool != ToolFinish:
			err = fmt.Errorf("it is a refusal")
		case r.Refusal != nil: // of a review
		case r.Tool == ToolStart:
			begun, err = beginningOf[StartReply](r, func(s *StartReply) *StepInfo { return s.BeginStep })
		case r.Tool == ToolFinish:
			begun, err = beginningOf[FinishReply](r, func(f *FinishReply) *StepInfo { return f.BeginStep })
		case r.Tool == ToolGoTo:
			begun, err = beginningOf[GoToReply](r, func(g *GoToReply) *StepInfo { return g.BeginStep })
		case r.Tool == ToolAbort:
			_, err = beginningOf[AbortReply](r, func(*AbortReply) *StepInfo { return nil })
			if c.Status != Aborted {
				c.fault("it keeps the reply to an abort, and was not aborted")
			}
		default:
			c.fault("its reply %d is to a tool that is none: %.60q", i, r.Tool)
		}
		switch {
		case err != nil:
			c.fault("its reply %d, to %s, cannot be read: %v", i, r.Tool, err)
		case begun != nil && begun.SessionID != c.SessionID:
			c.fault("its reply %d, to %s, is of session %.60q", i, r.Tool, begun.SessionID)
		case r.EntryIndex < 0:
			c.fault("its reply %d, to %s, is of entry %d", i, r.Tool, r.EntryIndex)
		}
		if r.Tool == ToolFinish && r.StepID != "" && c.Progress(r.StepID) == nil {
			c.fault("its reply %d is to the finish of step %q, which was never begun", i, r.StepID)
		}
		if r.RequestID == nil {
			continue
		}
		requests++
		for _, o := range c.Replies[:i] {
			if o.RequestID != nil && *o.RequestID == *r.RequestID && o.Tool == r.Tool {
				c.fault("two of its replies are to the %s with request_id %.60q", r.Tool, *r.RequestID)
			}
		}
	}
	if requests > machine.KeptRequests {
		c.fault("it keeps %d replies to calls with a request_id, and never does more than %d", requests, machine.KeptRequests)
	}
}

// beginningOf reads a stored reply and returns the step that it begins.
func beginningOf[R any](r *machine.StoredReply, begun func(*R) *StepInfo) (*StepInfo, error) {
	var v *R
	if err := json.Unmarshal(r.Raw, &v); err != nil {
		return nil, err
	}
	if v == nil {
		return nil, fmt.Errorf("it is null")
	}
	return begun(v), nil
}

// checkDefinition looks at whether the session can go on with the definition
// that is kept for it, which is what it has when its job is gone.
func (c *sessionCheck) checkDefinition(k *keptDefinition) {
	switch {
	case c.Definition.Hash == "" && c.Status == Active:
		c.fault("it names no definition")
		return
	case c.Definition.Hash == "":
		return // its job was edited before its last step: that one was not kept
	case k.err != nil:
		c.fault("its definition %s cannot be used: %v", c.Definition.Hash, k.err)
		return
	case k.def.Job.Hash != c.Definition.Source:
		c.fault("its definition %s is of another job.yml than it says", c.Definition.Hash)
	case k.def.Job.Name != c.JobName || k.def.Workflow.Name != c.WorkflowName:
		c.fault("its definition %s is of %s/%s", c.Definition.Hash, k.def.Job.Name, k.def.Workflow.Name)
		return
	}
	at := k.def.Workflow.Find(c.CurrentStepID)
	if at < 0 || at != c.CurrentEntryIndex {
		c.fault("its current step %q is entry %d of its definition, and it says %d", c.CurrentStepID, at, c.CurrentEntryIndex)
		return
	}
	entry := k.def.Workflow.Entries[at]
	pending := slices.ContainsFunc(entry, func(id string) bool { return !c.Progress(id).Done() })
	if c.Status == Active && !pending {
		c.fault("all steps of its current entry are completed, and it is active")
	}
	if _, err := k.def.KeptTexts(entry); err != nil && c.Status == Active {
		c.fault("its definition %s lacks instructions of the current entry", c.Definition.Hash)
	}
}
