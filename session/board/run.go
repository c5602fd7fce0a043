package board

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"deepwork/actor/xslices"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/outputs"
	"deepwork/session/why"
)

// A Run is what the leader of an attempt keeps on the board (task.Attempt.Run).
type Run struct {
	JobName      string      `json:"job_name"`
	WorkflowName string      `json:"workflow_name"`
	Goal         string      `json:"goal"`
	Inputs       outputs.Map `json:"inputs,omitempty"`   // of the workflow
	Parallel     int         `json:"parallel"`           // agents at once; 0 means as many as there are slots
	Resume       bool        `json:"resume,omitempty"`   // consecutive steps share one conversation
	InPlace      bool        `json:"in_place,omitempty"` // in the project itself, without worktrees
	MaxCostUSD   *float64    `json:"max_cost_usd,omitempty"`
	MaxUnknown   *int        `json:"max_unknown,omitempty"`
	// of one execution of the leader, in nanoseconds; 0 means no limit
	MaxTime time.Duration `json:"max_time,omitempty"`
	// when it was last resumed without having ended: MaxTime counts from then
	Resumed   time.Time `json:"resumed,omitzero"`
	SessionID string    `json:"session_id,omitempty"`
	// Children are the workflows that agents have started, by the session and the step of those agents,
	// SESSION/STEP.
	Children map[string][]string `json:"children,omitempty"`
	Waits    []RunWait           `json:"waits,omitempty"` // steps that wait, as far as the leader knows
	// Failed are the steps that get no more agents unless the run is resumed, each as SESSION/STEP.
	Failed []string `json:"failed,omitempty"`
	End    *RunEnd  `json:"end,omitempty"` // how the last leader ended; nil while one leads
}

// A RunEnd says how a run ended, as far as its leader knows.
type RunEnd struct {
	// Completed, Failed (at a step that no agent finished), Stopped (by a person), Paused or Interrupted
	State State     `json:"state"`
	Step  string    `json:"step,omitempty"` // the step at which it stopped
	Why   []why.Why `json:"why,omitempty"`  // of each step that failed; or of the run
	// when the follow-up was queued that the run's end has dropped, as Why says; zero means that none was
	Dropped time.Time `json:"dropped,omitzero"`
}

// Reason says why the run ended, a sentence for each reason.
func (e *RunEnd) Reason() string { return reasons(xslices.Map(e.Why, why.Why.Sentence)) }

// maxReasons is how many reasons are named: a run over many items may have one for each.
const maxReasons = 5

func reasons(all []string) string {
	if more := len(all) - maxReasons; more > 0 {
		all = append(all[:maxReasons], fmt.Sprintf("And %d more.", more))
	}
	return strings.Join(all, "\n")
}

// WhyOf returns why an ended agent has not completed its work.
func WhyOf(x *task.Execution) (w why.Why) {
	if x.State == task.Completed || !x.State.Ended() {
		return w
	}
	first, stderr, _ := strings.Cut(OrEmpty(x.Error), "\n")
	printed := cmp.Or(why.Line(stderr), why.Line(OrEmpty(x.FinalMessage)))
	switch {
	case x.LimitedUntil != nil:
		return why.Why{Kind: why.Limit, Said: printed}
	case x.State == task.Failed && x.ExitCode != nil && !x.OverLimit:
		return why.Why{Kind: why.Agent, ExitCode: *x.ExitCode, Said: printed}
	case x.Error != nil:
		return why.Why{Kind: why.Other, Said: why.Line(first)}
	case x.State == task.Stopped:
		return why.Why{Kind: why.Stopped}
	}
	return w
}

// CheckBudgets returns an error for callers if one of the run's budgets is out of range.
func (r *Run) CheckBudgets() error {
	if r.MaxCostUSD != nil && !(*r.MaxCostUSD >= 0) {
		return session.Wrong(codes.OutOfRange, "%s is %v: expected an amount of USD of at least 0.", "max_cost_usd",
			*r.MaxCostUSD).With("argument", "max_cost_usd").With("value", fmt.Sprint(*r.MaxCostUSD))
	}
	if r.MaxUnknown != nil && *r.MaxUnknown < 0 {
		return session.Wrong(codes.OutOfRange, "%s is %d: expected a number of at least 0.", "max_unknown",
			*r.MaxUnknown).With("argument", "max_unknown").With("value", *r.MaxUnknown)
	}
	return nil
}

// LargerBudget returns the flags of deepwork run resume that double the exhausted budgets, "" if none is
// exhausted. cost is nil if none of its agents has ended.
func (r *Run) LargerBudget(cost *Cost) (flags string) {
	usd, unknown := 0.0, 0
	if cost != nil {
		usd, unknown = *cmp.Or(cost.USD, &usd), cost.Unknown
	}
	if most := r.MaxCostUSD; most != nil && usd >= *most {
		flags += fmt.Sprintf(" --max-cost %.2f", max(2*usd, 1))
	}
	if most := r.MaxUnknown; most != nil && unknown >= *most {
		flags += fmt.Sprintf(" --max-unknown %d", 2*unknown+10)
	}
	return flags
}

// The values of RunWait.Kind.
const (
	WaitsForPerson = "person" // for a person who has to pass its outputs
	WaitsForLimit  = "limit"  // for a limit of the agent's provider
)

// MaxLimits is how many consecutive agents of a step a provider's limit may end before a person is asked.
const MaxLimits = 10

// A RunWait is a step of a run that waits without an agent.
type RunWait struct {
	Kind      string     `json:"kind"`
	SessionID string     `json:"session_id"`
	StepID    string     `json:"step_id"`
	Since     time.Time  `json:"since"`
	Until     *time.Time `json:"until,omitempty"` // nil when waiting for a person
	// number of consecutive agents ended by a limit that does not say when it ends; then Until is when the
	// next one begins
	Tries int `json:"tries,omitempty"`
}

// Equal reports whether two waits are the same.
func (w RunWait) Equal(other RunWait) bool {
	same := w.Until == nil && other.Until == nil || w.Until != nil && other.Until != nil && w.Until.Equal(*other.Until)
	return same && w.Tries == other.Tries && w.Since.Equal(other.Since) && w.Kind == other.Kind &&
		w.SessionID == other.SessionID && w.StepID == other.StepID
}

// RunWaits describes a waiting step of a run for callers.
type RunWaits struct {
	For       string  `json:"for"`
	SessionID string  `json:"session_id" jsonschema:"id of the session, 8 hexadecimal characters"`
	StepID    string  `json:"step_id" jsonschema:"id of the step"`
	Since     string  `json:"since" jsonschema:"since when it waits, RFC 3339 in UTC"`
	Until     *string `json:"until"`
	Command   *string `json:"command" jsonschema:"command with which the person reviews the outputs"`

	tries int // see RunWait
}

// Tags implements fieldtag.Tagger.
func (RunWaits) Tags() map[string]string {
	return map[string]string{
		"For": `jsonschema:"person: a person must pass its outputs; limit: a limit of the agent's provider must end"`,
		"Until": `jsonschema:"when the limit ends, or the step is tried again if the provider does not say, RFC ` +
			`3339 in UTC"`,
	}
}

// Text says what the step waits for.
func (w RunWaits) Text() string {
	if w.Command != nil {
		return fmt.Sprintf("Step %s waits for a person's review: %s", w.StepID, *w.Command)
	}

	until := OrEmpty(w.Until)
	if at, err := time.Parse(time.RFC3339, until); err == nil {
		until = at.Format(time.RFC3339) // without fractions of a second
	}
	if w.tries > 0 {
		return fmt.Sprintf("Step %s waits for the limit of its agent's provider, which does not say when it ends: "+
			"after %d of %d tries the next one is at %s", w.StepID, w.tries, MaxLimits, until)
	}
	return fmt.Sprintf("Step %s waits for the limit of its agent's provider, until %s", w.StepID, until)
}

// waitsText says what the steps of the run wait for.
func (r *RunReply) waitsText() string { return reasons(xslices.Map(r.Waits, RunWaits.Text)) }

// waitsOf describes the waiting steps of a run. An ended run does not wait for limits.
func waitsOf(run *Run, open bool) []RunWaits {
	all := []RunWaits{}
	for _, w := range run.Waits {
		if w.Kind != WaitsForPerson && !open {
			continue
		}

		r := RunWaits{
			For:       w.Kind,
			SessionID: w.SessionID,
			StepID:    w.StepID,
			Since:     Stamp(w.Since),
			Until:     StampOrNull(w.Until),
			tries:     w.Tries,
		}
		if w.Kind == WaitsForPerson {
			r.Command = new(session.AwaitingStep{SessionID: w.SessionID, Step: w.StepID, Review: true}.Command())
		}
		all = append(all, r)
	}
	return all
}
