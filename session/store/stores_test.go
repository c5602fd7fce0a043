package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
)

// Only what has certainly changed nothing is refused so.
func TestRefused(t *testing.T) {
	testkit.Equal(t, session.CodeOf(Refused(fmt.Errorf("writing: %w", ErrUnavailable))), "store_unavailable", "code")
	busy := Refused(fmt.Errorf("writing: %w: board.db", ErrBusy))
	e, ok := errors.AsType[*session.Error](busy)
	testkit.Need(t, ok, "a busy store is refused with %v", busy)
	testkit.Equal(t, e.Code, "store_busy", "a busy store is refused with %v", busy)
	testkit.Need(t, e.Waiting() != nil, "a busy store is refused with %v", busy)
	testkit.Contains(t, e.Error(), "board.db", "a busy store is refused with %v", busy)
	testkit.Equal(t, Refused(busy), busy, "refused twice")

	unsure := session.NotNow("session_uncertain", "It may have moved or not.").Because(ErrUnavailable)
	testkit.Equal(t, Refused(unsure), error(unsure), "a call that may have been carried out is refused")
	unknown := fmt.Errorf("%w: %w", ErrPending, ErrUnavailable)
	testkit.Equal(t, Refused(unknown), unknown, "a write that may have been made is refused")
}

// someMembers live as the map says.
type someMembers struct {
	Members
	live map[string]bool
}

func (m someMembers) Alive(id string) bool { return m.live[id] }

func TestACensusAsksOnce(t *testing.T) {
	m := someMembers{live: map[string]bool{"a": true}}
	alive := Census(m)
	testkit.True(t, alive("a") && !alive("b"), "it reports otherwise")
	delete(m.live, "a")
	testkit.True(t, alive("a") && !Census(m)("a"), "it has no memory, or too long a one")
}

// Somebody works on a session if the process that moved it last lives or, if that was at another place, one there does.
func TestSessionsInUse(t *testing.T) {
	s := &Stores{
		Members: someMembers{live: map[string]bool{"lives": true}},
		Place:   &task.Place{MachineID: "here", Root: "/p"},
		GoneFor: func(_ context.Context, p task.Place) (time.Duration, error) {
			return time.Duration(len(p.MachineID) - len("used")), nil
		},
	}

	for row, want := range map[Session]bool{
		{MovedBy: "lives"}: true,
		{MovedBy: "lives", MachineID: "here", Place: "/p"}: true,
		{MovedBy: "ended", MachineID: "used", Place: "/p"}: true,
		{}:                 false,
		{MovedBy: "ended"}: false,
		{MovedBy: "lives", MachineID: "unused", Place: "/p"}: false,
		{MachineID: "used", Place: "/p"}:                     false,
	} {
		testkit.Equal(t, s.InUse(t.Context())(&row), want, "%+v", row)
	}
}
