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

func TestIdleActorIsPassivatedAndWoken(t *testing.T) {
	const idle = 5 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, nil)
		r, of := registry(s, actor.Options{Idle: idle})
		d := of("a")
		if made, _, _ := d.lives(); made != 0 || r.Len() != 0 {
			t.Error("awake before any message")
		}
		for sum := range 10 { // each message begins the time again
			ask(t, r.For("a"), add1, sum+1)
			time.Sleep(idle - 1)
			synctest.Wait()
			n := r.Len()
			testkit.Need(t, n == 1, "%d awake", n)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if made, _, over := d.lives(); made != 1 || over != 1 || r.Len() != 0 {
			t.Errorf("made %d, stopped %d, awake %d", made, over, r.Len())
		}
		ask(t, r.For("a"), add1, 11)
		if made, began, _ := d.lives(); made != 2 || began != 2 || r.Len() != 1 {
			t.Errorf("made %d, started %d, awake %d", made, began, r.Len())
		}
	})
}

func TestIdleSpawnedActorIsPassivatedAndWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, nil)
		d := &disk{}
		ref := actor.Spawn(s, actor.Options{Idle: time.Second}, d.newProbe)
		for sum := range 3 {
			ask(t, ref, add1, sum+1)
			time.Sleep(time.Second)
			synctest.Wait()
			if made, _, over := d.lives(); made != sum+1 || over != sum+1 {
				t.Errorf("made %d, stopped %d", made, over)
			}
		}
		select {
		case <-ref.Done():
			t.Error("passivated is not stopped")
		default:
		}
		testkit.Must(t, ref.Stop(t.Context()))
		<-ref.Done()
		if made, _, _ := d.lives(); made != 3 {
			t.Error("woken to be stopped")
		}
		testkit.FailsWith(t, ref.Tell(t.Context(), add1(actor.Reply[int]{})), actor.ErrStopped)
	})
}

func TestOpenAskKeepsTheActorAwake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, nil)
		r, of := registry(s, actor.Options{Name: "key", Idle: time.Minute})
		a := r.For("a")
		ask(t, a, add1, 1)
		time.Sleep(30 * time.Second) // the timer runs already

		var reply actor.Reply[int]
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		left := asking(ctx, a, func(r actor.Reply[int]) task {
			return func(context.Context, *probe) error {
				reply = r
				return nil
			}
		})
		kept := asking(t.Context(), a, keepReply)
		time.Sleep(time.Hour)
		testkit.FailsWith(t, <-left, context.DeadlineExceeded)
		testkit.Must(t, a.Tell(t.Context(), rest))
		testkit.Must(t, a.Tell(t.Context(), answerKept))
		testkit.Must(t, <-kept)
		time.Sleep(time.Hour)
		synctest.Wait()
		if r.Len() != 1 { // its work goes on, though its asker has left
			t.Fatal("passivated with an ask open")
		}

		reply.Send(0) // from outside: the actor is idle from now on
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		testkit.Equal(t, r.Len(), 1, "passivated early")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		_, _, over := of("a").lives()
		testkit.True(t, r.Len() == 0 && over == 1, "not passivated")
	})
}

func TestMessageDuringStopWakesTheNextIncarnationAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, nil)
		r, of := registry(s, actor.Options{})
		d := of("a")
		stopping, release := make(chan struct{}), make(chan struct{})
		d.onStop = func() {
			close(stopping)
			<-release
		}
		ask(t, r.For("a"), add1, 1)
		testkit.Must(t, r.For("a").Tell(t.Context(), rest))
		<-stopping
		d.set(func(d *disk) { d.onStop = nil })

		answer := asking(t.Context(), r.For("a"), add1)
		synctest.Wait()
		if made, _, _ := d.lives(); made != 1 {
			t.Error("a second incarnation beside the first")
		}
		select {
		case err := <-answer:
			t.Errorf("answered by an incarnation that was stopping: %v", err)
		default:
		}
		close(release)
		testkit.Must(t, <-answer)
		if made, _, over := d.lives(); made != 2 || over != 1 || d.value != 2 {
			t.Errorf("made %d, stopped %d, value %d", made, over, d.value)
		}
	})
}

func TestRestLetsTheMailboxEmptyAndAsksEndFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, nil)
		r, of := registry(s, actor.Options{})
		a := r.For("a")
		release := block(t, a)
		testkit.Must(t, a.Tell(t.Context(), rest))
		queued := asking(t.Context(), a, add1)
		synctest.Wait()
		close(release)
		testkit.Must(t, <-queued)
		synctest.Wait()
		if made, _, over := of("a").lives(); made != 1 || over != 0 { // a later message wants to stay
			t.Errorf("made %d, stopped %d", made, over)
		}
		kept := asking(t.Context(), a, keepReply)
		synctest.Wait()
		testkit.Must(t, a.Tell(t.Context(), rest))
		synctest.Wait()
		testkit.Equal(t, r.Len(), 1, "rests with an ask open")
		testkit.Must(t, a.Tell(t.Context(), answerKept))
		testkit.Must(t, <-kept)
		testkit.Must(t, a.Tell(t.Context(), rest))
		synctest.Wait()
		if made, _, over := of("a").lives(); made != 1 || over != 1 || r.Len() != 0 {
			t.Errorf("made %d, stopped %d, awake %d", made, over, r.Len())
		}
	})
}

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
			testkit.FailsWith(t, to.Tell(t.Context(), add1(actor.Reply[int]{})), actor.ErrStopped, "told one that stops")
		}
		for _, w := range waiting {
			testkit.FailsWith(t, <-w, actor.ErrStopped, "waited for room")
		}
		close(release)
		stuck := <-stopped
		testkit.True(t, stuck == nil, "stuck: %v", stuck)
		for i, q := range queued {
			_, panicked := errors.AsType[*actor.PanicError](<-q)
			testkit.Equal(t, panicked, (i%2 == 1), "queued %d: panicked", i)
		}
		for _, k := range kept { // failed by the crash
			_, ok := errors.AsType[*actor.PanicError](<-k)
			testkit.True(t, ok, "a kept reply outlived the crash")
		}
		<-ref.Done()
		testkit.True(t, spawned.value == 1 && of("a").value == 1 && r.Len() == 0, "values %d and %d, awake %d", spawned.value, of("a").value, r.Len())
		late := actor.Spawn(s, actor.Options{}, spawned.newProbe)
		<-late.Done()
		testkit.FailsWith(t, late.Tell(t.Context(), answerKept), actor.ErrStopped)
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
		testkit.FailsWith(t, <-crashed, errTorn)
		testkit.Must(t, <-rest)
		testkit.Must(t, <-stopped)
		made, _, over := d.lives()
		testkit.True(t, made == 2 && over == 1, "made %d, stopped %d", made, over)
	})
}

func TestOpenAskIsFailedWhenItsActorStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, nil)
		ref := actor.Spawn(s, actor.Options{}, (&disk{}).newProbe)
		kept := asking(t.Context(), ref, keepReply)
		synctest.Wait()
		testkit.Must(t, ref.Stop(t.Context()))
		testkit.FailsWith(t, <-kept, actor.ErrStopped)
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
		testkit.FailsWith(t, ref.Stop(ctx), context.DeadlineExceeded)
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
		testkit.True(t, err == nil, "another actor's context: %v", err)
	})
}
