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
		ref := actor.Spawn(s, actor.Options{Name: "slow"}, (&disk{}).newProbe)
		release := block(t, ref)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		before := time.Now()
		_, err := actor.Ask(ctx, ref, add1)
		testkit.True(t, errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "actor slow"), "err = %v", err)
		testkit.Equal(t, time.Since(before), time.Second, "waited")
		close(release)
		ask(t, ref, add1, 2) // the write of the asker who left is the first
		r, of := registry(s, actor.Options{Name: "key"})
		testkit.FailsWith(t, testkit.Get(actor.Ask(ctx, r.For("a"), add1)).Err(), context.DeadlineExceeded, "over before it is asked")
		of("a").lived(t, 0, 0)
		testkit.Equal(t, r.Len(), 0, "awake")
	})
}

func TestFirstAnswerCounts(t *testing.T) {
	ref := actor.Spawn(newSystem(t, nil), actor.Options{}, (&disk{}).newProbe)
	cause := errors.New("refused")
	for range 100 {
		ask(t, ref, with(func(r actor.Reply[int]) {
			r.Send(1)
			r.Send(2)
			r.Fail(cause)
		}), 1)
	}
	_, err := actor.Ask(t.Context(), ref, with(func(r actor.Reply[int]) {
		r.Fail(cause)
		r.Send(1)
	}))
	testkit.Equal(t, err, cause, "not unchanged")
	_, err = actor.Ask(t.Context(), ref, with(func(r actor.Reply[int]) { r.Fail(nil) }))
	testkit.Fails(t, err, "", "Fail(nil) was taken for an answer")
	var none actor.Reply[int]
	none.Send(1)
	none.Fail(cause)
}

func TestKeptReplyIsAnsweredLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ref := actor.Spawn(newSystem(t, nil), actor.Options{}, (&disk{value: 7}).newProbe)
		later := asking(t.Context(), ref, keepReply)
		ask(t, ref, add1, 8) // the actor goes on receiving
		testkit.Must(t, ref.Tell(t.Context(), answerKept))
		testkit.Must(t, <-later)
		// The same from another goroutine, while the asker may have left.
		for _, wait := range []time.Duration{time.Minute, time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			_, err := actor.Ask(ctx, ref, with(func(r actor.Reply[int]) { time.AfterFunc(10*time.Second, func() { r.Send(1) }) }))
			cancel()
			testkit.Equal(t, errors.Is(err, context.DeadlineExceeded), wait < 10*time.Second, "%v %v", wait, err)
		}
		time.Sleep(time.Minute)
		ask(t, ref, add1, 9)
	})
}

func TestFullMailboxHoldsSendersUntilTheirContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, nil)
		ref := actor.Spawn(s, actor.Options{Name: "narrow", Mailbox: 3}, (&disk{}).newProbe)
		release := block(t, ref)
		var seen []int
		note := func(n int) task { // on the actor's goroutine
			return func(context.Context, *probe) error {
				seen = append(seen, n)
				return nil
			}
		}
		for n := range 3 {
			testkit.Must(t, ref.Tell(t.Context(), note(n)))
		}
		// One who gives up between two who wait.
		told := make(chan error, 2)
		wait := func(n int) {
			go func() { told <- ref.Tell(t.Context(), note(n)) }()
			synctest.Wait()
		}
		wait(3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		gone := asking(ctx, ref, add1)
		wait(4)
		// The figures count every mailbox, and who waits for room in one.
		r, _ := registry(s, actor.Options{Name: "r"})
		releaseX := block(t, r.For("x"))
		testkit.Must(t, r.For("x").Tell(t.Context(), rest))
		testkit.Equal(t, s.Stats(), actor.Stats{Actors: 2, Waiting: 4, Deepest: 3, Blocked: 3})
		close(releaseX)
		err := <-gone
		testkit.True(t, errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "actor narrow: its mailbox was full (3 messages)"), "err = %v", err)
		testkit.FailsWith(t, ref.Tell(ctx, note(99)), context.DeadlineExceeded)
		close(release)
		for range 2 {
			testkit.Must(t, <-told)
		}
		ask(t, ref, add1, 1) // not 2: the ask that timed out was never accepted
		testkit.Same(t, seen, []int{0, 1, 2, 3, 4})
		testkit.Equal(t, s.Stats(), actor.Stats{Actors: 1}, "when all is done")
		s.Stop(t.Context())
		testkit.Equal(t, s.Stats(), actor.Stats{}, "stopped")
	})
}
