package session

import "time"

// An AwaitingStep is a step of a session that its review did not let go on, and that a person may
// have go on without it (deepwork sessions override).
type AwaitingStep struct {
	SessionID, Step, Goal string
	Since                 time.Time
}
