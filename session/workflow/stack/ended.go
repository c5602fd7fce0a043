package stack

import (
	"context"
	"slices"

	"deepwork/session/workflow/machine"
)

// An Ended is a session whose last step was finished on this connection: the reply may have been
// lost.
type Ended struct {
	ID      string
	Step    string
	Outputs machine.Outputs
	Named   bool // the call gave its session_id

	move uint64 // the number of this transition on the connection
}

// keptEnded is the number of ended sessions that a stack remembers.
const keptEnded = 16

// Moved records a transition on the connection, and the session that it ended, or nil.
func (s *Stack) Moved(ctx context.Context, ended *Ended) {
	n := s.moves.Add(1)
	if ended == nil {
		return
	}
	e := *ended
	e.move = n
	// Only retries need it: a closing connection has none.
	_ = s.ref.Tell(ctx, func(st *sessions) {
		if st.ended = append(st.ended, e); len(st.ended) > keptEnded {
			st.ended = slices.Delete(st.ended, 0, 1)
		}
	})
}

// LastEnded returns the session that ended on this connection by finishing this
// step with the same outputs, or "". With now, it must have been the connection's
// last transition. Of a shared stack, whose callers cannot be distinguished, only a
// call that named no session can be meant.
func (s *Stack) LastEnded(ctx context.Context, stepID string, now bool, same func(machine.Outputs) bool) string {
	since := uint64(0)
	if now {
		since = s.moves.Load()
	}
	id, err := ask(ctx, s, func(st *sessions) (string, error) {
		for _, e := range slices.Backward(st.ended) {
			if e.move >= since && e.Step == stepID && !(s.shared && e.Named) && same(e.Outputs) {
				return e.ID, nil
			}
		}
		return "", nil
	})
	if err != nil {
		return ""
	}
	return id
}
