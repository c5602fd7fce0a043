package actor_test

import (
	"context"
	"errors"
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
			if n := r.Len(); n != 1 {
				t.Fatalf("%d awake", n)
			}
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
		if err := ref.Tell(t.Context(), add1(actor.Reply[int]{})); !errors.Is(err, actor.ErrStopped) {
			t.Error(err)
		}
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
		if err := <-left; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		testkit.Must(t, a.Tell(t.Context(), rest))
		if err := a.Tell(t.Context(), answerKept); err != nil {
			t.Fatal(err)
		}
		testkit.Must(t, <-kept)
		time.Sleep(time.Hour)
		synctest.Wait()
		if r.Len() != 1 { // its work goes on, though its asker has left
			t.Fatal("passivated with an ask open")
		}

		reply.Send(0) // from outside: the actor is idle from now on
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		if r.Len() != 1 {
			t.Error("passivated early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if _, _, over := of("a").lives(); r.Len() != 0 || over != 1 {
			t.Error("not passivated")
		}
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
		if r.Len() != 1 {
			t.Error("rests with an ask open")
		}
		testkit.Must(t, a.Tell(t.Context(), answerKept))
		testkit.Must(t, <-kept)
		testkit.Must(t, a.Tell(t.Context(), rest))
		synctest.Wait()
		if made, _, over := of("a").lives(); made != 1 || over != 1 || r.Len() != 0 {
			t.Errorf("made %d, stopped %d, awake %d", made, over, r.Len())
		}
	})
}
