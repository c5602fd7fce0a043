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

func TestAskEndsWithItsContextAndTheMessageIsHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, nil)
		d := &disk{}
		ref := actor.Spawn(s, actor.Options{Name: "slow"}, d.newProbe)
		release := block(t, ref)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		before := time.Now()
		_, err := actor.Ask(ctx, ref, add1)
		testkit.True(t, errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "actor slow"), "err = %v", err)
		testkit.Equal(t, time.Since(before), time.Second, "waited")

		close(release)
		ask(t, ref, add1, 2) // the write of the asker who left is the first
	})
}

func TestAskRefusesAContextThatIsOver(t *testing.T) {
	s := newSystem(t, nil)
	r, of := registry(s, actor.Options{Name: "key"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := actor.Ask(ctx, r.For("a"), add1)
	testkit.True(t, errors.Is(err, context.Canceled), "err = %v", err)
	made, _, _ := of("a").lives()
	testkit.True(t, made == 0 && r.Len() == 0, "made %d, awake %d", made, r.Len())
}

func TestFirstAnswerCounts(t *testing.T) {
	s := newSystem(t, nil)
	ref := actor.Spawn(s, actor.Options{}, (&disk{}).newProbe)
	cause := errors.New("refused")
	for range 100 {
		got, err := actor.Ask(t.Context(), ref, func(r actor.Reply[int]) task {
			return func(context.Context, *probe) error {
				r.Send(1)
				r.Send(2)
				r.Fail(cause)
				return nil
			}
		})
		testkit.Need(t, got == 1 && err == nil, "%d, %v", got, err)
	}
	_, err := actor.Ask(t.Context(), ref, func(r actor.Reply[int]) task {
		return func(context.Context, *probe) error {
			r.Fail(cause)
			r.Send(1)
			return nil
		}
	})
	testkit.True(t, err == cause, "err = %v; want it unchanged", err)
}

func TestZeroReplyAndNilFailure(t *testing.T) {
	var none actor.Reply[int]
	none.Send(1)
	none.Fail(errors.New("x"))

	s := newSystem(t, nil)
	ref := actor.Spawn(s, actor.Options{}, (&disk{}).newProbe)
	_, err := actor.Ask(t.Context(), ref, func(r actor.Reply[int]) task {
		return func(context.Context, *probe) error {
			r.Fail(nil)
			return nil
		}
	})
	testkit.Fails(t, err, "", "Fail(nil) was taken for an answer")
}

func TestKeptReplyIsAnsweredLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, nil)
		ref := actor.Spawn(s, actor.Options{}, (&disk{value: 7}).newProbe)

		later := asking(t.Context(), ref, keepReply)
		synctest.Wait()
		ask(t, ref, add1, 8) // the actor goes on receiving
		testkit.Must(t, ref.Tell(t.Context(), answerKept))
		testkit.Must(t, <-later)

		// The same from another goroutine, while the asker may have left.
		for _, wait := range []time.Duration{time.Minute, time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			_, err := actor.Ask(ctx, ref, func(r actor.Reply[int]) task {
				return func(context.Context, *probe) error {
					time.AfterFunc(10*time.Second, func() { r.Send(1) })
					return nil
				}
			})
			cancel()
			testkit.Equal(t, errors.Is(err, context.DeadlineExceeded), wait < 10*time.Second, "%v %v", wait, err)
		}
		time.Sleep(time.Minute)
		ask(t, ref, add1, 9)
	})
}

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
		testkit.Equal(t, s.Stats().Waiting, 3, "wait")

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
		testkit.True(t, errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "actor narrow: its mailbox was full (3 messages)"), "err = %v", err)
		if err := ref.Tell(ctx, appendTo(&seen, 99)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err = %v", err)
		}

		close(release)
		for range 2 {
			testkit.Must(t, <-told)
		}
		ask(t, ref, add1, 1) // not 2: the ask that timed out was never accepted
		got := len(seen)
		testkit.Need(t, got == 5, "seen %v", seen)
		for i, n := range seen {
			testkit.Need(t, i == n, "out of order: %v", seen)
		}
	})
}
