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

func panicking(actor.Reply[int]) task {
	return func(_ context.Context, p *probe) error {
		p.value = -1 // what is only in memory is thrown away
		panic("boom")
	}
}

var errTorn = errors.New("torn")

func failing(actor.Reply[int]) task { return func(context.Context, *probe) error { return errTorn } }

func TestCrashIsAnsweredAndRestartsFromDurableState(t *testing.T) {
	for name, c := range map[string]struct {
		crash func(actor.Reply[int]) task
		check func(error) bool
		logs  string
	}{
		"panic": {panicking, func(err error) bool {
			p, ok := errors.AsType[*actor.PanicError](err)
			return ok && p.Actor == "probe" && p.Value == "boom" && strings.Contains(string(p.Stack), "crash_test.go")
		}, "crash_test.go"},
		"error": {failing, func(err error) bool {
			return errors.Is(err, errTorn) && err != errTorn && strings.Contains(err.Error(), "actor probe")
		}, "torn"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log testkit.Log
				s := newSystem(t, logTo(&log))
				d := &disk{value: 4}
				ref := actor.Spawn(s, actor.Options{Name: "probe"}, d.newProbe)
				ask(t, ref, add1, 5)
				before := time.Now()

				deferred := asking(t.Context(), ref, keepReply)
				synctest.Wait()
				release := block(t, ref)
				crashed := asking(t.Context(), ref, c.crash)
				synctest.Wait()
				after := asking(t.Context(), ref, add1) // waits in the mailbox while it crashes
				synctest.Wait()
				close(release)

				if err := <-crashed; !c.check(err) {
					t.Errorf("asker of the crash: %v", err)
				}
				if err := <-deferred; !c.check(err) {
					t.Errorf("asker of the deferred reply: %v", err)
				}
				testkit.Works(t, <-after, "asker after the crash")
				ask(t, ref, add1, 7)
				made, began, over := d.lives()
				testkit.True(t, made == 2 && began == 2 && over == 0, "made %d, started %d, stopped %d", made, began, over)
				n := log.Count("level=ERROR")
				testkit.True(t, n == 1 && log.Count(c.logs) != 0, "%d errors logged: %s", n, log.String())
				testkit.Equal(t, time.Since(before), 0, "a restart took somebody's time")
			})
		})
	}
}

func TestTooManyRestartsStopTheActorAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, nil)
		other := actor.Spawn(s, actor.Options{}, (&disk{}).newProbe)
		d := &disk{}
		ref := actor.Spawn(s, actor.Options{Name: "frail", Restarts: 2, Within: time.Minute}, d.newProbe)
		crash := func() {
			t.Helper()
			if _, err := actor.Ask(t.Context(), ref, panicking); err == nil || errors.Is(err, actor.ErrTooManyRestarts) {
				t.Errorf("err = %v", err)
			}
		}
		for range 10 { // two a minute are within the budget, for ever
			crash()
			crash()
			time.Sleep(time.Minute)
		}
		crash()
		crash()
		time.Sleep(time.Minute - 1)
		ask(t, ref, add1, 1)

		release := block(t, ref)
		last := asking(t.Context(), ref, panicking)
		synctest.Wait()
		queued := asking(t.Context(), ref, add1)
		synctest.Wait()
		close(release)
		_, ok := errors.AsType[*actor.PanicError](<-last)
		testkit.True(t, ok, "the asker of the last crash did not get it")
		testkit.FailsWith(t, <-queued, actor.ErrTooManyRestarts, "queued")
		<-ref.Done()
		time.Sleep(time.Hour)
		if err := ref.Tell(t.Context(), add1(actor.Reply[int]{})); !errors.Is(err, actor.ErrTooManyRestarts) || !strings.Contains(err.Error(), "frail") {
			t.Errorf("after: %v", err)
		}
		testkit.Must(t, ref.Stop(t.Context()))
		ask(t, other, add1, 1)
	})
}

func TestNoRestartsAtAll(t *testing.T) {
	s := newSystem(t, nil)
	ref := actor.Spawn(s, actor.Options{Restarts: -1}, (&disk{}).newProbe)
	testkit.FailsWith(t, testkit.Get(actor.Ask(t.Context(), ref, failing)).Err(), errTorn)
	<-ref.Done()
}

func TestRegistryKeyIsRefusedUntilTheWindowHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, nil)
		r, of := registry(s, actor.Options{Name: "key", Restarts: 1, Within: time.Minute, Idle: time.Second})
		a := r.For("a")
		for range 2 {
			if _, err := actor.Ask(t.Context(), a, panicking); err == nil {
				t.Fatal("no error")
			}
			time.Sleep(10 * time.Second) // passivated between the crashes, and not forgotten
			n := r.Len()
			testkit.Need(t, n == 0, "%d awake", n)
		}
		made, _, _ := of("a").lives()
		for range 3 {
			if _, err := actor.Ask(t.Context(), a, add1); !errors.Is(err, actor.ErrTooManyRestarts) || !strings.Contains(err.Error(), "key/a") {
				t.Errorf("err = %v", err)
			}
		}
		again, _, _ := of("a").lives()
		testkit.True(t, again == made, "a condemned key was woken")
		ask(t, r.For("b"), add1, 1)

		time.Sleep(50*time.Second - 1)
		testkit.FailsWith(t, testkit.Get(actor.Ask(t.Context(), a, add1)).Err(), actor.ErrTooManyRestarts, "a nanosecond early")
		time.Sleep(time.Nanosecond)
		ask(t, a, add1, 1)
		if _, err := actor.Ask(t.Context(), a, panicking); errors.Is(err, actor.ErrTooManyRestarts) {
			t.Error("did not start afresh")
		}
		ask(t, a, add1, 2)
	})
}

func TestErrorOfMakeOrStartReachesTheAskersUnchanged(t *testing.T) {
	for _, where := range []string{"make", "start"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSystem(t, nil)
				r, of := registry(s, actor.Options{Restarts: 1, Mailbox: 2})
				none := errors.New("no such key")
				release := make(chan struct{})
				d := of("a")
				set := func(err error) {
					d.set(func(d *disk) {
						if where == "make" {
							d.makeErr = err
						} else {
							d.startErr = err
						}
					})
				}
				set(none)
				for range 50 { // never counted as a crash, never tried again unasked
					if _, err := actor.Ask(t.Context(), r.For("a"), add1); err != none {
						t.Fatalf("err = %v", err)
					}
				}
				synctest.Wait()
				made, _, _ := d.lives()
				testkit.True(t, made == 50 && r.Len() == 0, "made %d, awake %d", made, r.Len())

				// Those in the mailbox and those who wait for room in it.
				d.set(func(d *disk) {
					if where == "make" {
						d.onMake = func() { <-release }
					} else {
						d.onStart = func() { <-release }
					}
				})
				var waiting []<-chan error
				for range 5 {
					waiting = append(waiting, asking(t.Context(), r.For("a"), add1))
				}
				synctest.Wait()
				close(release)
				for _, w := range waiting {
					testkit.Equal(t, <-w, none, "err =")
				}

				set(nil)
				ask(t, r.For("a"), add1, 1)
			})
		})
	}
}

func TestSpawnedActorTriesAnewAfterAFailedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Log
		s := newSystem(t, logTo(&log))
		d := &disk{startErr: errTorn}
		ref := actor.Spawn(s, actor.Options{Name: "late"}, d.newProbe)
		synctest.Wait()
		testkit.Equal(t, log.Count("actor did not start"), 1, "log")
		testkit.Equal(t, log.Count("torn"), 1, "log")
		testkit.Must(t, ref.Tell(t.Context(), add1(actor.Reply[int]{})))
		synctest.Wait()
		testkit.Equal(t, log.Count("messages_lost=1"), 1, "log: %s", log.String())
		d.set(func(d *disk) { d.startErr = nil })
		ask(t, ref, add1, 1)
	})
}

func TestPanicWhileStartingIsACrash(t *testing.T) {
	s := newSystem(t, nil)
	r, of := registry(s, actor.Options{Restarts: 1})
	of("a").onStart = func() { panic("boom") }
	_, err := actor.Ask(t.Context(), r.For("a"), add1)
	_, ok := errors.AsType[*actor.PanicError](err)
	testkit.True(t, ok && !errors.Is(err, actor.ErrTooManyRestarts), "first: %v", err)
	for range 2 {
		testkit.FailsWith(t, testkit.Get(actor.Ask(t.Context(), r.For("a"), add1)).Err(), actor.ErrTooManyRestarts, "then")
	}
	made, _, _ := of("a").lives()
	testkit.True(t, made == 2, "made %d", made)
}

func TestPanicInStopEndsTheIncarnation(t *testing.T) {
	var log testkit.Log
	s := newSystem(t, logTo(&log))
	d := &disk{onStop: func() { panic("boom") }}
	ref := actor.Spawn(s, actor.Options{}, d.newProbe)
	ask(t, ref, add1, 1)
	testkit.Must(t, ref.Stop(t.Context()))
	_, _, over := d.lives()
	testkit.True(t, over == 1 && log.Count("level=ERROR") == 1, "stopped %d times, log: %s", over, log.String())
}
