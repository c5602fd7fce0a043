package board

import (
	"fmt"
	"time"

	"deepwork/session"
	"deepwork/session/codes"
)

// A Run is what the leader of an attempt keeps on the board (task.Attempt.Run).
type Run struct {
	JobName      string        `json:"job_name"`
	WorkflowName string        `json:"workflow_name"`
	Goal         string        `json:"goal"`
	Parallel     int           `json:"parallel"`           // agents at once; 0 means as many as there are slots
	Resume       bool          `json:"resume,omitempty"`   // one conversation for the steps that follow one another
	InPlace      bool          `json:"in_place,omitempty"` // in the project itself, without worktrees
	MaxCostUSD   *float64      `json:"max_cost_usd,omitempty"`
	MaxUnknown   *int          `json:"max_unknown,omitempty"`
	MaxTime      time.Duration `json:"max_time,omitempty"` // of one execution of the leader, in nanoseconds; 0 means no limit
	SessionID    string        `json:"session_id,omitempty"`
	// Children are the workflows that agents have started, by the session and the step of their agents,
	// SESSION/STEP.
	Children map[string][]string `json:"children,omitempty"`
	Waits    []RunWait           `json:"waits,omitempty"` // as far as its leader knows
	End      *RunEnd             `json:"end,omitempty"`   // of the last leader; nil while one leads
}

// RunState is how a run has ended.
type RunState string

// The values of RunState.
const (
	RunComplete    RunState = "complete"
	RunStopped     RunState = "stopped"     // at a step that no agent finished, or by a person
	RunPaused      RunState = "paused"      // by a budget
	RunInterrupted RunState = "interrupted" // its process was asked to end
)

// A RunEnd is how a run has ended, as far as its leader knows.
type RunEnd struct {
	State  RunState `json:"state"`
	Step   string   `json:"step,omitempty"`   // at which it stopped
	Reason string   `json:"reason,omitempty"` // a sentence for people; "" if it is complete
}

// StoppedByPerson is the reason of a run that somebody stopped.
const StoppedByPerson = "It was stopped."

// CheckBudgets returns an error for callers if a budget of the run is out of range.
func (r *Run) CheckBudgets() error {
	if r.MaxCostUSD != nil && !(*r.MaxCostUSD >= 0) {
		return session.Wrong(codes.OutOfRange, "max_cost_usd is %v: expected an amount of USD of at least 0.", *r.MaxCostUSD).With("argument", "max_cost_usd").With("value", fmt.Sprint(*r.MaxCostUSD))
	}
	if r.MaxUnknown != nil && *r.MaxUnknown < 0 {
		return session.Wrong(codes.OutOfRange, "max_unknown is %d: expected a number of at least 0.", *r.MaxUnknown).With("argument", "max_unknown").With("value", *r.MaxUnknown)
	}
	return nil
}
