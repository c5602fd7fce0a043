package actor_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor"
	"deepwork/actor/testkit"
)

func TestStopHandlesWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, nil)
		spawned := &disk{}
		ref := actor.Spawn(s, actor.Options{Mailbox: 2}, spawned.newProbe)
		r, of := registry(s, actor.Options{Mailbox: 2})
		ask(t, r.For("asleep"), add1, 1)
		testkit.Must(t, r.For("asleep").Tell(t.Context(), rest))
		synctest.Wait()

		release := make(chan struct{})
		var queued, waiting, kept []<-chan error
		for _, to := range []actor.Address[task]{ref, r.For("a")} {
			kept = append(kept, asking(t.Context(), to, keepReply))
			synctest.Wait()
			begun := make(chan struct{})
			testkit.Must(t, to.Tell(t.Context(), blockOn(begun, release)))
			<-begun
			queued = append(queued, asking(t.Context(), to, add1), asking(t.Context(), to, panicking))
			synctest.Wait()
			waiting = append(waiting, asking(t.Context(), to, add1)) // has no room
		}
		synctest.Wait()

		stopped := make(chan []string, 1)
		go func() { stopped <- s.Stop(t.Context()) }()
		synctest.Wait()
		for _, to := range []actor.Address[task]{ref, r.For("a"), r.For("asleep"), r.For("new")} {
			if err := to.Tell(t.Context(), add1(actor.Reply[int]{})); !errors.Is(err, actor.ErrStopped) {
				t.Errorf("told one that stops: %v", err)
			}
		}
		for _, w := range waiting {
			if err := <-w; !errors.Is(err, actor.ErrStopped) {
				t.Errorf("waited for room: %v", err)
			}
		}
		close(release)
		if stuck := <-stopped; stuck != nil {
			t.Errorf("stuck: %v", stuck)
		}
		for i, q := range queued {
			_, panicked := errors.AsType[*actor.PanicError](<-q)
			if panicked != (i%2 == 1) {
				t.Errorf("queued %d: panicked %v", i, panicked)
			}
		}
		for _, k := range kept { // failed by the crash
			if _, ok := errors.AsType[*actor.PanicError](<-k); !ok {
				t.Error("a kept reply outlived the crash")
			}
		}
		<-ref.Done()
		if spawned.value != 1 || of("a").value != 1 || r.Len() != 0 {
			t.Errorf("values %d and %d, awake %d", spawned.value, of("a").value, r.Len())
		}
		late := actor.Spawn(s, actor.Options{}, spawned.newProbe)
		<-late.Done()
		if err := late.Tell(t.Context(), answerKept); !errors.Is(err, actor.ErrStopped) {
			t.Error(err)
		}
	})
}

func TestCrashWhileStoppingStillHandlesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, nil)
		d := &disk{}
		ref := actor.Spawn(s, actor.Options{}, d.newProbe)
		release := block(t, ref)
		crashed := asking(t.Context(), ref, failing)
		synctest.Wait()
		rest := asking(t.Context(), ref, add1)
		stopped := make(chan error, 1)
		synctest.Wait()
		go func() { stopped <- ref.Stop(t.Context()) }()
		synctest.Wait()
		close(release)
		if err := <-crashed; !errors.Is(err, errTorn) {
			t.Error(err)
		}
		testkit.Must(t, <-rest)
		testkit.Must(t, <-stopped)
		if made, _, over := d.lives(); made != 2 || over != 1 {
			t.Errorf("made %d, stopped %d", made, over)
		}
	})
}

func TestOpenAskIsFailedWhenItsActorStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, nil)
		ref := actor.Spawn(s, actor.Options{}, (&disk{}).newProbe)
		kept := asking(t.Context(), ref, keepReply)
		synctest.Wait()
		testkit.Must(t, ref.Stop(t.Context()))
		if err := <-kept; !errors.Is(err, actor.ErrStopped) {
			t.Error(err)
		}
	})
}

func TestStuckActorsAreNamedAndCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := actor.NewSystem(nil)
		cancelled := make(chan string, 2)
		stuck := func(name string) task {
			return func(ctx context.Context, _ *probe) error {
				<-ctx.Done()
				cancelled <- name
				return nil
			}
		}
		ref := actor.Spawn(s, actor.Options{Name: "stuck"}, (&disk{}).newProbe)
		r, _ := registry(s, actor.Options{Name: "key"})
		actor.Spawn(s, actor.Options{Name: "fine"}, (&disk{}).newProbe)
		ask(t, r.For("fine"), add1, 1)
		for _, to := range []actor.Address[task]{ref, r.For("stuck")} {
			testkit.Must(t, to.Tell(t.Context(), stuck("one")))
		}
		synctest.Wait()

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		before := time.Now()
		if got := s.Stop(ctx); !slices.Equal(got, []string{"key/stuck", "stuck"}) || time.Since(before) != time.Second {
			t.Errorf("%v after %v", got, time.Since(before))
		}
		<-cancelled
		<-cancelled
		if got := s.Stop(t.Context()); got != nil {
			t.Errorf("once they heeded it: %v", got)
		}
	})
}

func TestRefStopDeadlineCancelsThatActorAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, nil)
		ref := actor.Spawn(s, actor.Options{Name: "stuck"}, (&disk{}).newProbe)
		other := actor.Spawn(s, actor.Options{}, (&disk{}).newProbe)
		if err := ref.Tell(t.Context(), func(ctx context.Context, _ *probe) error {
			<-ctx.Done()
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := ref.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		<-ref.Done()
		_, err := actor.Ask(t.Context(), other, func(r actor.Reply[int]) task {
			return func(ctx context.Context, _ *probe) error {
				if err := ctx.Err(); err != nil {
					r.Fail(err)
				}
				r.Send(0)
				return nil
			}
		})
		if err != nil {
			t.Errorf("another actor's context: %v", err)
		}
	})
}
