package workflow

import (
	"testing"
	"time"

	"deepwork/session/workflow/machine"
)

// Handles of sessions that look the same, though each was read from a file of its
// own, show one view, and one that stays as it is keeps what it shows.
func TestHandlesShareTheirViews(t *testing.T) {
	read := func(id string) *State {
		s, _, err := machine.Begin(loop(t, 2), machine.NewSession{SessionID: id, Goal: "g", Identity: "local", Owner: "o", At: time.Unix(1, 0).UTC(), Call: machine.Call{Tool: ToolStart}, Texts: machine.Instructions{}})
		if err != nil {
			t.Fatal(err)
		}
		body, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if s, err = machine.Decode(id, body); err != nil {
			t.Fatal(err)
		}
		return s
	}
	hs := newHandles()
	one, two := read("00000001"), read("00000002")
	a, b := hs.of(one), hs.of(two)
	va := a.view.Load()
	if b.view.Load() != va {
		t.Error("two sessions look the same, and show two views")
	}
	hs.publish(a, read("00000001"))
	if a.view.Load() != va {
		t.Error("nothing has moved, and a new view was made")
	}
	moved := one.Next(one.UpdatedAt)
	moved.CurrentStepID = "s1"
	hs.publish(a, moved)
	if v := *a.view.Load(); v != (view{Workflow: "alpha/main", Step: "s1", Status: Active, Identity: "local"}) {
		t.Errorf("published %+v", v)
	}
}
