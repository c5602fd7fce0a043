package session

import (
	"fmt"
	"time"
)

// An AwaitingStep is a step of a session that goes on once a person has passed its outputs or, if
// Review is false, has overridden the review that did not let it go on.
type AwaitingStep struct {
	SessionID, Step, Goal string
	Review                bool
	Since                 time.Time
}

// Command is what the person runs at a terminal, where the outputs are shown and confirmed first.
func (s AwaitingStep) Command() string {
	if s.Review {
		return fmt.Sprintf("deepwork sessions review %s %s --pass", s.SessionID, s.Step)
	}
	return fmt.Sprintf("deepwork sessions override %s %s --reason TEXT", s.SessionID, s.Step)
}
