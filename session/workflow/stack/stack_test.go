package stack

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor"
	"deepwork/actor/testkit"
	"deepwork/session/workflow/machine"
)

func state(id, step string, status machine.SessionStatus) *machine.State {
	return &machine.State{SessionID: id, JobName: "alpha", WorkflowName: "main", CurrentStepID: step, Status: status, Identity: "local"}
}

func newStack(t *testing.T, o Options) *Stack {
	system := actor.NewSystem(nil)
	t.Cleanup(func() { system.Stop(context.Background()) })
	return New(system, o)
}

// Handles of sessions that look the same share their view, and one that stays as
// it is keeps what it shows.
func TestHandlesShareTheirViews(t *testing.T) {
	table := NewTable()
	a, b := table.Of(state("00000001", "s0", machine.Active), false), table.Of(state("00000002", "s0", machine.Active), false)
	if a.view.Load() != b.view.Load() || table.Of(state("00000001", "s1", machine.Active), false) != a {
		t.Error("two sessions look the same, and show two views")
	}
	a.Publish(state("00000001", "s1", machine.Active))
	if v := a.View(); v != (View{Workflow: "alpha/main", Step: "s1", Status: machine.Active, Identity: "local"}) || b.View().Step != "s0" {
		t.Errorf("published %+v", v)
	}
}

// Sessions that end leave nothing behind, however many they are, and each is
// asked about once it has ended.
func TestAStackForgetsSessionsThatEnded(t *testing.T) {
	for _, shared := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			o := Options{Name: "s"}
			if shared {
				o.Idle, o.Release = func() time.Duration { return time.Hour }, func([]*Handle) {}
			}
			s := newStack(t, o)
			table := NewTable()
			push := func(id, parent string) *Handle {
				h := table.Of(state(id, "s0", machine.Active), true)
				testkit.Must(t, s.Push(ctx, []Link{{h, parent}}))
				return h
			}
			push("up", "")
			for i := range 1000 {
				id := fmt.Sprint(i)
				middle := push("middle "+id, "up")
				h := push(id, middle.ID)
				middle.Publish(state(middle.ID, "s0", machine.Completed))
				h.Publish(state(id, "s0", machine.Completed))
				if up, err := s.Chain(ctx, id); err != nil || len(up) != 1 || up[0].ID != "up" {
					t.Fatalf("below session %s: %v, %v", id, up, err)
				}
			}
			n, err := ask(ctx, s, func(st *sessions) (int, error) { return len(st.entries) + len(st.byID), nil })
			if err != nil || n > 100 {
				t.Errorf("%d entries are remembered, %v", n, err)
			}
			if h, err := s.Default(ctx); err != nil || h.ID != "up" {
				t.Errorf("what goes on: %v, %v", h, err)
			}
		})
	}
}
