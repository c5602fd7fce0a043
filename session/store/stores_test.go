package store

import "testing"

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
