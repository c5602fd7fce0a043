package actor

import (
	"context"
	"testing"
	"testing/synctest"

	"deepwork/actor/testkit"
)

// The figures count every mailbox, and who waits for room in one.
func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSystem(nil)
		proceed := make(chan struct{})
		slow := func() (Behavior[int], error) { return behaviorFunc(func() { <-proceed }), nil }
		a := Spawn(s, Options{Name: "a", Mailbox: 3}, slow)
		r := NewRegistry(s, Options{Name: "r"}, func(string) (Behavior[int], error) { return slow() })
		testkit.Equal(t, s.Stats(), (Stats{Actors: 1}), "at rest")
		send := func(to Address[int], n int) {
			for range n {
				go to.Tell(context.Background(), 1)
			}
			synctest.Wait()
		}
		send(a, 6)          // one is taken, three wait, two wait for room
		send(r.For("x"), 2) // one waits
		send(r.For("y"), 1)
		got, want := s.Stats(), (Stats{Actors: 3, Waiting: 4, Deepest: 3, Blocked: 2})
		testkit.True(t, got == want, "got %+v, want %+v", got, want)
		close(proceed)
		synctest.Wait()
		testkit.Equal(t, s.Stats(), (Stats{Actors: 3}), "when all is done")
		s.Stop(context.Background())
		testkit.Equal(t, s.Stats(), (Stats{}), "stopped")
	})
}

type behaviorFunc func()

func (f behaviorFunc) Receive(context.Context, int) error { f(); return nil }
