package store

import (
	"fmt"
	"testing"

	"deepwork/session"
)

// Only what has certainly changed nothing is refused so.
func TestRefused(t *testing.T) {
	if code := session.CodeOf(Refused(fmt.Errorf("writing: %w", ErrUnavailable))); code != CodeUnavailable {
		t.Errorf("code %q", code)
	}
	unknown := fmt.Errorf("%w: %w", ErrPending, ErrUnavailable)
	if err := Refused(unknown); err != unknown {
		t.Errorf("a write that may have been made is refused: %v", err)
	}
}

// someMembers live as the map says.
type someMembers map[string]bool

func (m someMembers) Alive(id string) bool { return m[id] }

func TestACensusAsksOnce(t *testing.T) {
	m := someMembers{"a": true}
	alive := Census(m)
	if !alive("a") || alive("b") {
		t.Error("it reports otherwise")
	}
	delete(m, "a")
	if !alive("a") || Census(m)("a") {
		t.Error("it has no memory, or too long a one")
	}
}
