package actor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor"
	"deepwork/actor/testkit"
)

// appendTo makes a task that notes its number, on the actor's goroutine.
func appendTo(seen *[]int, n int) task {
	return func(context.Context, *probe) error {
		*seen = append(*seen, n)
		return nil
	}
}

func TestFullMailboxHoldsSendersUntilTheirContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, nil)
		ref := actor.Spawn(s, actor.Options{Name: "narrow", Mailbox: 3}, (&disk{}).newProbe)
		release := block(t, ref)
		var seen []int
		for n := range 3 {
			testkit.Must(t, ref.Tell(t.Context(), appendTo(&seen, n)))
		}
		if n := s.Stats().Waiting; n != 3 {
			t.Errorf("%d wait", n)
		}

		// One who gives up between two who wait.
		told := make(chan error, 2)
		wait := func(n int) {
			go func() { told <- ref.Tell(t.Context(), appendTo(&seen, n)) }()
			synctest.Wait()
		}
		wait(3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		gone := asking(ctx, ref, add1)
		synctest.Wait()
		wait(4)
		err := <-gone
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "actor narrow: its mailbox was full (3 messages)") {
			t.Errorf("err = %v", err)
		}
		if err := ref.Tell(ctx, appendTo(&seen, 99)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err = %v", err)
		}

		close(release)
		for range 2 {
			testkit.Must(t, <-told)
		}
		ask(t, ref, add1, 1) // not 2: the ask that timed out was never accepted
		if got := len(seen); got != 5 {
			t.Fatalf("seen %v", seen)
		}
		for i, n := range seen {
			if i != n {
				t.Fatalf("out of order: %v", seen)
			}
		}
	})
}
