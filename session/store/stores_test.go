package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session"
)

// Only what has certainly changed nothing is refused so.
func TestRefused(t *testing.T) {
	testkit.Equal(t, session.CodeOf(Refused(fmt.Errorf("writing: %w", ErrUnavailable))), "store_unavailable", "code")
	busy := Refused(fmt.Errorf("writing: %w: board.db", ErrBusy))
	e, is := errors.AsType[*session.Error](busy)
	testkit.True(t, is && e.Code == "store_busy" && e.Waiting() != nil && strings.Contains(e.Message, "board.db"), "a busy store is refused with %v", busy)
	testkit.Equal(t, Refused(busy), busy, "refused twice")
	unsure := session.NotNow("session_uncertain", "It may have moved or not.").Because(ErrUnavailable)
	testkit.Equal(t, Refused(unsure), error(unsure), "a call that may have been carried out is refused")
	unknown := fmt.Errorf("%w: %w", ErrPending, ErrUnavailable)
	testkit.Equal(t, Refused(unknown), unknown, "a write that may have been made is refused")
}

// someMembers live as the map says.
type someMembers map[string]bool

func (m someMembers) Alive(id string) bool { return m[id] }

func TestACensusAsksOnce(t *testing.T) {
	m := someMembers{"a": true}
	alive := Census(m)
	testkit.True(t, alive("a") && !alive("b"), "it reports otherwise")
	delete(m, "a")
	testkit.True(t, alive("a") && !Census(m)("a"), "it has no memory, or too long a one")
}
