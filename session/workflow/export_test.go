package workflow

import "deepwork/session/machine"

// What the tests see of the package. They use it over connections, whose package imports this one.

const (
	MaxBrief      = maxBrief
	MaxBriefLines = maxBriefLines
	MaxChecked    = maxChecked
	MaxHandedText = maxHandedText
)

var CheckOutputs = checkOutputs

// Awaited reports whether a call waits for a change of a session, whichever process makes it.
func (e *Engine) Awaited(id string) bool {
	e.follower.mu.Lock()
	defer e.follower.mu.Unlock()
	return e.follower.waiting[id] != nil
}

// SetMaxKnown sets how many definitions are kept in memory.
func (e *Engine) SetMaxKnown(n int) { e.definitions.MaxKnown = n }

// Decide records an answer in a session that is not stored.
func Decide(s *machine.State, stepID, digest string, a machine.Answer) error {
	return (&sessionActor{state: s}).decide(decision{Step: stepID, Digest: digest, Answer: a})
}
