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

func TestIdleActorIsPassivatedAndWoken(t *testing.T) {
	const idle = 5 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		r, of := registry(newSystem(t, nil), actor.Options{Idle: idle})
		is := func(made, over, awake int) {
			t.Helper()
			synctest.Wait()
			of("a").lived(t, made, over)
			testkit.Equal(t, r.Len(), awake, "awake")
		}
		is(0, 0, 0)
		for sum := range 10 { // each message begins the time again
			ask(t, r.For("a"), add1, sum+1)
			time.Sleep(idle - 1)
			is(1, 0, 1)
		}
		time.Sleep(time.Nanosecond)
		is(1, 1, 0)
		ask(t, r.For("a"), add1, 11)
		is(2, 1, 1)
	})
}

func TestIdleSpawnedActorIsPassivatedAndWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		ref := actor.Spawn(newSystem(t, nil), actor.Options{Idle: time.Second}, d.newProbe)
		for sum := range 3 {
			ask(t, ref, add1, sum+1)
			time.Sleep(time.Second)
			synctest.Wait()
			d.lived(t, sum+1, sum+1)
		}
		select {
		case <-ref.Done():
			t.Error("passivated is not stopped")
		default:
		}
		testkit.Must(t, ref.Stop(t.Context()))
		<-ref.Done()
		d.lived(t, 3, 3) // not woken to be stopped
		testkit.FailsWith(t, ref.Tell(t.Context(), rest), actor.ErrStopped)
	})
}

func TestOpenAskKeepsTheActorAwake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, of := registry(newSystem(t, nil), actor.Options{Name: "key", Idle: time.Minute})
		a := r.For("a")
		ask(t, a, add1, 1)
		time.Sleep(30 * time.Second) // the timer runs already
		var reply actor.Reply[int]
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		left := asking(ctx, a, with(func(r actor.Reply[int]) { reply = r }))
		kept := asking(t.Context(), a, keepReply)
		time.Sleep(time.Hour)
		testkit.FailsWith(t, <-left, context.DeadlineExceeded)
		testkit.Must(t, a.Tell(t.Context(), rest))
		testkit.Must(t, a.Tell(t.Context(), answerKept))
		testkit.Must(t, <-kept)
		time.Sleep(time.Hour)
		synctest.Wait()
		testkit.Need(t, r.Len() == 1, "passivated with an ask open") // its work goes on, though its asker has left

		reply.Send(0) // from outside: the actor is idle from now on
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		testkit.Equal(t, r.Len(), 1, "passivated early")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		testkit.Equal(t, r.Len(), 0, "not passivated")
		of("a").lived(t, 1, 1)
	})
}

func TestMessageDuringStopWakesTheNextIncarnationAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, of := registry(newSystem(t, nil), actor.Options{})
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
		d.lived(t, 1, 1) // no second incarnation beside the first
		testkit.Equal(t, len(answer), 0, "answered by an incarnation that was stopping")

		close(release)
		testkit.Must(t, <-answer)
		d.lived(t, 2, 1)
		testkit.Equal(t, d.value, 2)
	})
}

func TestRestLetsTheMailboxEmptyFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, of := registry(newSystem(t, nil), actor.Options{})
		a := r.For("a")
		release := block(t, a)
		testkit.Must(t, a.Tell(t.Context(), rest))
		queued := asking(t.Context(), a, add1)
		close(release)
		testkit.Must(t, <-queued)
		synctest.Wait()
		of("a").lived(t, 1, 0) // a later message wants to stay
		kept := asking(t.Context(), a, keepReply)
		testkit.Must(t, a.Tell(t.Context(), rest))
		synctest.Wait()
		testkit.Equal(t, r.Len(), 1, "rests with an ask open")
		testkit.Must(t, a.Tell(t.Context(), answerKept))
		testkit.Must(t, <-kept)
		testkit.Must(t, a.Tell(t.Context(), rest))
		synctest.Wait()
		of("a").lived(t, 1, 1)
		testkit.Equal(t, r.Len(), 0, "awake")
	})
}

func TestStopHandlesWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, nil)
		spawned := &disk{}
		ref := actor.Spawn(s, actor.Options{Mailbox: 4}, spawned.newProbe)
		r, of := registry(s, actor.Options{Mailbox: 4})
		ask(t, r.For("asleep"), add1, 1)
		testkit.Must(t, r.For("asleep").Tell(t.Context(), rest))
		var queued, crashed, open, waiting []<-chan error
		var releases []chan struct{}
		for _, to := range []actor.Address[task]{ref, r.For("a")} {
			crashed = append(crashed, asking(t.Context(), to, keepReply)) // failed by the crash
			releases = append(releases, block(t, to))
			queued = append(queued, asking(t.Context(), to, add1))
			crashed = append(crashed, asking(t.Context(), to, panicking))
			queued = append(queued, asking(t.Context(), to, add1)) // the next incarnation's
			open = append(open, asking(t.Context(), to, keepReply))
			waiting = append(waiting, asking(t.Context(), to, add1)) // has no room
		}

		stopped := make(chan []string, 1)
		go func() { stopped <- s.Stop(t.Context()) }()
		synctest.Wait()
		for _, to := range []actor.Address[task]{ref, r.For("a"), r.For("asleep"), r.For("new")} {
			testkit.FailsWith(t, to.Tell(t.Context(), rest), actor.ErrStopped, "told one that stops")
		}
		for _, w := range waiting {
			testkit.FailsWith(t, <-w, actor.ErrStopped, "waited for room")
		}

		for _, release := range releases {
			close(release)
		}
		testkit.Same(t, <-stopped, nil, "stuck")

		for _, q := range queued {
			testkit.Works(t, <-q, "queued")
		}

		for _, c := range crashed {
			_, panicked := errors.AsType[*actor.PanicError](<-c)
			testkit.True(t, panicked, "a crash, or a kept reply that outlived it")
		}

		for _, o := range open {
			testkit.FailsWith(t, <-o, actor.ErrStopped, "an open ask")
		}

		<-ref.Done()
		testkit.Equal(t, [3]int{spawned.value, of("a").value, r.Len()}, [3]int{2, 2, 0}, "values, and awake")
		spawned.lived(t, 2, 1)
		late := actor.Spawn(s, actor.Options{}, spawned.newProbe)
		<-late.Done()
		testkit.FailsWith(t, late.Tell(t.Context(), answerKept), actor.ErrStopped)
	})
}

func TestStuckActorsAreNamedAndCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t, nil)
		cancelled := make(chan struct{}, 3)
		stuck := func(ctx context.Context, _ *probe) error {
			<-ctx.Done()
			cancelled <- struct{}{}
			return nil
		}
		ref := actor.Spawn(s, actor.Options{Name: "stuck"}, (&disk{}).newProbe)
		alone := actor.Spawn(s, actor.Options{Name: "alone"}, (&disk{}).newProbe)
		r, _ := registry(s, actor.Options{Name: "key"})
		ask(t, r.For("fine"), add1, 1)
		for _, to := range []actor.Address[task]{ref, r.For("stuck"), alone} {
			testkit.Must(t, to.Tell(t.Context(), stuck))
		}
		deadline := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			t.Cleanup(cancel)
			return ctx
		}
		testkit.FailsWith(t, alone.Stop(deadline()), context.DeadlineExceeded) // which cancels that actor alone
		<-alone.Done()
		<-cancelled
		before := time.Now()
		testkit.Same(t, s.Stop(deadline()), []string{"key/stuck", "stuck"})
		testkit.Equal(t, time.Since(before), time.Second)

		<-cancelled
		<-cancelled
		testkit.Same(t, s.Stop(t.Context()), nil, "once they heeded it")
	})
}

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
			return ok && p.Actor == "probe" && p.Value == "boom" &&
				strings.Contains(string(p.Stack), "lifecycle_test.go")
		}, "lifecycle_test.go"},
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
		testkit.True(t, errors.Is(err, actor.ErrTooManyRestarts) && strings.Contains(err.Error(), "frail"),
			"after: %v", err)
		testkit.Must(t, ref.Stop(t.Context()))
		ask(t, other, add1, 1)
		ref = actor.Spawn(s, actor.Options{Restarts: -1}, (&disk{}).newProbe)
		testkit.FailsWith(t, testkit.Get(actor.Ask(t.Context(), ref, failing)).Err(), errTorn)
		<-ref.Done()
	})
}

func TestRegistryKeyIsRefusedUntilTheWindowHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, of := registry(newSystem(t, nil),
			actor.Options{Name: "key", Restarts: 1, Within: time.Minute, Idle: time.Second})
		a := r.For("a")
		for range 2 {
			testkit.Fails(t, testkit.Get(actor.Ask(t.Context(), a, panicking)).Err(), "")
			time.Sleep(10 * time.Second) // passivated between the crashes, and not forgotten
			testkit.Need(t, r.Len() == 0, "%d awake", r.Len())
		}
		made := of("a").made
		for range 3 {
			_, err := actor.Ask(t.Context(), a, add1)
			testkit.True(t, errors.Is(err, actor.ErrTooManyRestarts) && strings.Contains(err.Error(), "key/a"),
				"err = %v", err)
		}
		testkit.Equal(t, of("a").made, made, "a condemned key was woken")

		ask(t, r.For("b"), add1, 1)
		time.Sleep(50*time.Second - 1)
		testkit.FailsWith(t, testkit.Get(actor.Ask(t.Context(), a, add1)).Err(), actor.ErrTooManyRestarts,
			"a nanosecond early")

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
		testkit.FailsWith(t, testkit.Get(actor.Ask(t.Context(), r.For("a"), add1)).Err(),
			actor.ErrTooManyRestarts, "then")
	}

	of("a").lived(t, 2, 0)
	d := &disk{onStop: func() { panic("boom") }}
	ref := actor.Spawn(s, actor.Options{Name: "stopped"}, d.newProbe)
	ask(t, ref, add1, 1)
	testkit.Must(t, ref.Stop(t.Context()))
	d.lived(t, 1, 1)
	testkit.Equal(t, log.Count(`level=ERROR msg="actor panicked" actor=stopped`), 1, "log: %s", &log)
}
