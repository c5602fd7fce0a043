package remote

import (
	"strconv"
	"testing"
)

// Names are remembered, not for ever: what nobody has any more goes first.
func TestHeldNamesAreBounded(t *testing.T) {
	o := &owner{held: make(map[string]string)}
	one := []*offered{named("a", "1", "one")}
	for i := range maxHeld + 10 {
		o.hold(one, []string{strconv.Itoa(i)})
		if len(o.held) > maxHeld {
			t.Fatalf("%d names are held", len(o.held))
		}
	}
	if o.held[strconv.Itoa(maxHeld+9)] != "a" {
		t.Error("the newest name is not held")
	}
}
