package board

import (
	"fmt"
	"strings"
	"time"

	"deepwork/catalog/task"
	"deepwork/session"
)

// The values of RunWait.Kind.
const (
	WaitsForPerson = "person" // who has to pass its outputs
	WaitsForLimit  = "limit"  // of the agent's provider
)

// A RunWait is a step of a run that waits, without an agent.
type RunWait struct {
	Kind      string     `json:"kind"`
	SessionID string     `json:"session_id"`
	StepID    string     `json:"step_id"`
	Since     time.Time  `json:"since"`
	Until     *time.Time `json:"until,omitempty"` // nil for a person
}

// Equal reports whether two are the same.
func (w RunWait) Equal(other RunWait) bool {
	same := w.Until == nil && other.Until == nil || w.Until != nil && other.Until != nil && w.Until.Equal(*other.Until)
	return same && w.Since.Equal(other.Since) && w.Kind == other.Kind && w.SessionID == other.SessionID && w.StepID == other.StepID
}

// RunWaits is a step of a run that waits, for callers.
type RunWaits struct {
	For       string  `json:"for" jsonschema:"person: a person must pass its outputs; limit: a limit of the agent's provider must end"`
	SessionID string  `json:"session_id" jsonschema:"id of the session, 8 hexadecimal characters"`
	StepID    string  `json:"step_id" jsonschema:"id of the step"`
	Since     string  `json:"since" jsonschema:"since when it waits, RFC 3339 in UTC"`
	Until     *string `json:"until" jsonschema:"when the limit ends, RFC 3339 in UTC, or null"`
	Command   *string `json:"command" jsonschema:"command with which the person passes the outputs, or null"`
}

// Text says what the step waits for.
func (w *RunWaits) Text() string {
	if w.Command != nil {
		return fmt.Sprintf("Step %s waits for a person to pass its outputs: %s, or --fail --feedback TEXT", w.StepID, *w.Command)
	}
	until := OrEmpty(w.Until)
	if at, err := time.Parse(time.RFC3339, until); err == nil {
		until = at.Format(time.RFC3339) // without fractions of a second
	}
	return fmt.Sprintf("Step %s waits for the limit of its agent's provider, until %s", w.StepID, until)
}

// onlyWaits sets the state of a run in which no agent is at work, if steps of it wait.
func (r *RunReply) onlyWaits() {
	if len(r.Waits) == 0 {
		return
	}
	texts := make([]string, len(r.Waits))
	for i := range r.Waits {
		texts[i] = r.Waits[i].Text()
	}
	r.State, r.Reason = string(task.Waiting), new(strings.Join(texts, "\n"))
}

// waitsOf returns what the steps of a run wait for; a run that has ended waits for no limit.
func waitsOf(run *Run, open bool) []RunWaits {
	all := []RunWaits{}
	for _, w := range run.Waits {
		if w.Kind != WaitsForPerson && !open {
			continue
		}
		r := RunWaits{For: w.Kind, SessionID: w.SessionID, StepID: w.StepID, Since: Stamp(w.Since), Until: StampOrNull(w.Until)}
		if w.Kind == WaitsForPerson {
			r.Command = new(session.AwaitingStep{SessionID: w.SessionID, Step: w.StepID, Review: true}.Command())
		}
		all = append(all, r)
	}
	return all
}
