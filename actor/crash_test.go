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
		bubble(t, name, func(t *testing.T) {
			var log testkit.Log
			d := &disk{value: 4}
			ref := actor.Spawn(newSystem(t, logTo(&log)), actor.Options{Name: "probe"}, d.newProbe)
			ask(t, ref, add1, 5)
			before := time.Now()
			deferred := asking(t.Context(), ref, keepReply)
			release := block(t, ref)
			crashed := asking(t.Context(), ref, c.crash)
			after := asking(t.Context(), ref, add1) // waits in the mailbox while it crashes
			close(release)
			for _, err := range []error{<-crashed, <-deferred} {
				testkit.True(t, c.check(err), "asker of the crash, or of a reply that was kept: %v", err)
			}
			testkit.Works(t, <-after, "asker after the crash")
			ask(t, ref, add1, 7)
			d.lived(t, 2, 0)
			testkit.Equal(t, d.began, 2)
			testkit.True(t, log.Count("level=ERROR") == 1 && log.Count(c.logs) != 0, "logged: %s", &log)
			testkit.Equal(t, time.Since(before), 0, "a restart took somebody's time")
		})
	}
}

func TestTooManyRestartsStopTheActorAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, nil)
		other := actor.Spawn(s, actor.Options{}, (&disk{}).newProbe)
		ref := actor.Spawn(s, actor.Options{Name: "frail", Restarts: 2, Within: time.Minute}, (&disk{}).newProbe)
		crash := func() {
			t.Helper()
			_, err := actor.Ask(t.Context(), ref, panicking)
			testkit.True(t, err != nil && !errors.Is(err, actor.ErrTooManyRestarts), "err = %v", err)
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
		last, queued := asking(t.Context(), ref, panicking), asking(t.Context(), ref, add1)
		close(release)
		_, ok := errors.AsType[*actor.PanicError](<-last)
		testkit.True(t, ok, "the asker of the last crash did not get it")
		testkit.FailsWith(t, <-queued, actor.ErrTooManyRestarts, "queued")
		<-ref.Done()
		time.Sleep(time.Hour)
		err := ref.Tell(t.Context(), rest)
		testkit.True(t, errors.Is(err, actor.ErrTooManyRestarts) && strings.Contains(err.Error(), "frail"), "after: %v", err)
		testkit.Must(t, ref.Stop(t.Context()))
		ask(t, other, add1, 1)

		ref = actor.Spawn(s, actor.Options{Restarts: -1}, (&disk{}).newProbe)
		testkit.FailsWith(t, testkit.Get(actor.Ask(t.Context(), ref, failing)).Err(), errTorn)
		<-ref.Done()
	})
}

func TestRegistryKeyIsRefusedUntilTheWindowHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, of := registry(newSystem(t, nil), actor.Options{Name: "key", Restarts: 1, Within: time.Minute, Idle: time.Second})
		a := r.For("a")
		for range 2 {
			testkit.Fails(t, testkit.Get(actor.Ask(t.Context(), a, panicking)).Err(), "")
			time.Sleep(10 * time.Second) // passivated between the crashes, and not forgotten
			testkit.Need(t, r.Len() == 0, "%d awake", r.Len())
		}
		made := of("a").made
		for range 3 {
			_, err := actor.Ask(t.Context(), a, add1)
			testkit.True(t, errors.Is(err, actor.ErrTooManyRestarts) && strings.Contains(err.Error(), "key/a"), "err = %v", err)
		}
		testkit.Equal(t, of("a").made, made, "a condemned key was woken")
		ask(t, r.For("b"), add1, 1)

		time.Sleep(50*time.Second - 1)
		testkit.FailsWith(t, testkit.Get(actor.Ask(t.Context(), a, add1)).Err(), actor.ErrTooManyRestarts, "a nanosecond early")
		time.Sleep(time.Nanosecond)
		ask(t, a, add1, 1)
		_, err := actor.Ask(t.Context(), a, panicking)
		testkit.True(t, !errors.Is(err, actor.ErrTooManyRestarts), "did not start afresh")
		ask(t, a, add1, 2)
	})
}

func TestErrorOfMakeOrStartReachesTheAskersUnchanged(t *testing.T) {
	for _, where := range []string{"make", "start"} {
		bubble(t, where, func(t *testing.T) {
			r, of := registry(newSystem(t, nil), actor.Options{Restarts: 1, Mailbox: 2})
			none := errors.New("no such key")
			d := of("a")
			failure, hook := &d.makeErr, &d.onMake
			if where == "start" {
				failure, hook = &d.startErr, &d.onStart
			}
			d.set(func(*disk) { *failure = none })
			for range 50 { // never counted as a crash, never tried again unasked
				testkit.Equal(t, testkit.Get(actor.Ask(t.Context(), r.For("a"), add1)).Err(), none)
			}
			synctest.Wait()
			d.lived(t, 50, 0)
			testkit.Equal(t, r.Len(), 0, "awake")

			// Those in the mailbox and those who wait for room in it.
			release := make(chan struct{})
			d.set(func(*disk) { *hook = func() { <-release } })
			var waiting []<-chan error
			for range 5 {
				waiting = append(waiting, asking(t.Context(), r.For("a"), add1))
			}
			close(release)
			for _, w := range waiting {
				testkit.Equal(t, <-w, none)
			}
			d.set(func(*disk) { *failure = nil })
			ask(t, r.For("a"), add1, 1)
		})
	}
}

func TestSpawnedActorTriesAnewAfterAFailedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Log
		d := &disk{startErr: errTorn}
		ref := actor.Spawn(newSystem(t, logTo(&log)), actor.Options{Name: "late"}, d.newProbe)
		synctest.Wait()
		testkit.ContainsAll(t, log.String(), []string{"actor did not start", "torn"})
		testkit.Must(t, ref.Tell(t.Context(), rest))
		synctest.Wait()
		testkit.Equal(t, log.Count("messages_lost=1"), 1, "log: %s", &log)
		d.set(func(d *disk) { d.startErr = nil })
		ask(t, ref, add1, 1)
	})
}

func TestPanicsInStartAndStop(t *testing.T) {
	var log testkit.Log
	s := newSystem(t, logTo(&log))
	r, of := registry(s, actor.Options{Restarts: 1})
	of("a").onStart = func() { panic("boom") }
	_, err := actor.Ask(t.Context(), r.For("a"), add1)
	_, ok := errors.AsType[*actor.PanicError](err)
	testkit.True(t, ok && !errors.Is(err, actor.ErrTooManyRestarts), "first: %v", err)
	for range 2 {
		testkit.FailsWith(t, testkit.Get(actor.Ask(t.Context(), r.For("a"), add1)).Err(), actor.ErrTooManyRestarts, "then")
	}
	of("a").lived(t, 2, 0)

	d := &disk{onStop: func() { panic("boom") }}
	ref := actor.Spawn(s, actor.Options{Name: "stopped"}, d.newProbe)
	ask(t, ref, add1, 1)
	testkit.Must(t, ref.Stop(t.Context()))
	d.lived(t, 1, 1)
	testkit.Equal(t, log.Count(`level=ERROR msg="actor panicked" actor=stopped`), 1, "log: %s", &log)
}
