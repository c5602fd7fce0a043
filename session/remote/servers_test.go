package remote

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/source"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store"
)

// life is that of a row of work in tests that wait for its end; else it is recordLife.
const (
	life       = time.Second
	recordLife = 30 * time.Second
)

const lookedAt = lookEvery + time.Second

// twoServers are the one that runs a workflow, which its source has accepted, and another one.
func twoServers(t *testing.T, life time.Duration) (p *plant, a, b *server, c *pending) {
	t.Parallel()
	p = newPlant()
	a = openFor(t, testkit.Dir(t), p, func(w *config.WorkflowTools) { w.StatusInterval = 10 * time.Millisecond }, life)
	b = a.again()
	a.disk.serve.Store(true)
	b.disk.serve.Store(true)
	c = a.does(true, script{lasts: time.Hour, answer: output(`1`)})
	testkit.Until(t, "the source's id", func() bool { return b.status(c.id()).SourceExecutionID != nil })
	return p, a, b, c
}

// follower is the member that follows a run by its row of work, or "".
func (s *server) follower(id string) string {
	s.t.Helper()
	row, err := s.disk.Work().Row(s.t.Context(), store.RemoteWork, id)
	if errors.Is(err, store.ErrNotFound) {
		return ""
	}
	testkit.Must(s.t, err)
	member, _, _ := strings.Cut(row.Runner, "-")
	return member
}

func (p *plant) end() { p.with(func() { p.jobs["x-1"].until = time.Now() }) }

func (s *server) follows() {
	s.t.Helper()
	testkit.Until(s.t, "the other server follows it", func() bool { return s.Stats().Running == 1 })
}

func (s *server) completes(id string) {
	s.t.Helper()
	testkit.Until(s.t, "its end", func() bool { return s.status(id).State == Completed })
}

// TestASuspendedServerOverwritesNothing: another one goes on with its run, and what that one stores
// stays when the first one wakes up, which has its caller's reply from there.
func TestASuspendedServerOverwritesNothing(t *testing.T) {
	t.Parallel()
	for name, ended := range map[string]bool{"the run has ended": true, "the run goes on": false} {
		t.Run(name, func(t *testing.T) {
			p, a, b, c := twoServers(t, life)
			a.disk.frozen.Lock()
			b.follows()
			if ended {
				p.end()
				b.completes(c.id())
			}
			was := stored(t, b, c.id())
			a.disk.frozen.Unlock()
			testkit.Until(t, "the first one gives it up", func() bool { return a.get(c.id()) == nil })

			now := stored(t, b, c.id())
			testkit.Need(t, (!ended || reflect.DeepEqual(now, was)), "%+v, was %+v", now, was)
			testkit.Equal(t, b.follower(c.id()), map[bool]string{false: b.member.ID()}[ended])
			testkit.Equal(t, now.Over(), ended, "%+v, was %+v", now, was)

			if !ended {
				testkit.True(t, a.Stats().Running == 0 && len(p.cancelled) == 0, "%+v; cancelled at the source: %v",
					a.Stats(), p.cancelled)
				p.end()
			}

			r := c.ends()
			testkit.True(t, r.State == Completed && string(r.Result) == `1`, "%+v", r)
			a.is(c.id(), Completed, `1`)
			testkit.True(t, !a.log.has("level=ERROR") && a.log.Count("taken up by another server") == 1, "%v", a.log)
		})
	}
}

// TestAnEndThatAnotherServerStored: it is forgotten by the one that could not store it.
func TestAnEndThatAnotherServerStored(t *testing.T) {
	p, a, b, c := twoServers(t, life)
	a.disk.full.Store(true)
	p.end()
	c.ends()
	b.completes(c.id())
	a.disk.full.Store(false)
	testkit.Until(t, "the first one forgets it", func() bool { return !a.Going() })
}

// TestServersThatWereAllSuspended: the one that wakes up first leaves the others the time to go on with their runs.
func TestServersThatWereAllSuspended(t *testing.T) {
	p, a, b, c := twoServers(t, life)
	a.disk.frozen.Lock()
	b.disk.frozen.Lock()
	time.Sleep(2 * life)
	b.disk.frozen.Unlock()
	time.AfterFunc(life/10, a.disk.frozen.Unlock)
	time.Sleep(life)
	testkit.Equal(t, b.follower(c.id()), a.member.ID(), "the other server has its run")
	p.end()
	testkit.Equal(t, c.ends().State, Completed)
}

// TestACancelOutlivesTheServerThatWasAsked: the one that takes the run up cancels it.
func TestACancelOutlivesTheServerThatWasAsked(t *testing.T) {
	p, a, b, c := twoServers(t, life)
	a.disk.frozen.Lock()
	defer a.disk.frozen.Unlock()
	b.cancelled(c.id())
	testkit.Same(t, p.cancelled, []string{"x-1"}, "cancelled at the source")
}

// TestAStoppedServersRunIsTakenUpAtOnce: before its life is over.
func TestAStoppedServersRunIsTakenUpAtOnce(t *testing.T) {
	p, a, b, c := twoServers(t, time.Hour)
	a.stop()
	b.follows()
	p.end()
	b.completes(c.id())
	testkit.ContainsAll(t, c.over(Running, "shutting_down").Error(), []string{c.id(), "workflow_status"})
	testkit.True(t, p.started["w"] == 1 && len(p.cancelled) == 0, "started %d, cancelled %v", p.started["w"],
		p.cancelled)
}

// TestAKilledServersRunIsTakenUpAtOnce: by another one of the same machine, whose kernel knows, long before its life is
// over. The killed one is suspended, and its lock is free.
func TestAKilledServersRunIsTakenUpAtOnce(t *testing.T) {
	p, a, b, c := twoServers(t, time.Minute)
	time.Sleep(2 * time.Second)
	testkit.Equal(t, b.Stats(), Stats{}, "it took up what another server has")
	a.disk.frozen.Lock()
	defer a.disk.frozen.Unlock()
	a.member.Fall()
	began := time.Now()
	b.follows()
	t.Logf("taken up after %v", time.Since(began))
	testkit.True(t, time.Since(began) < 15*time.Second, "after %v", time.Since(began)) // a busy machine takes longer
	p.end()
	b.completes(c.id())
	testkit.True(t, p.started["w"] == 1 && len(p.cancelled) == 0, "started %d, cancelled %v", p.started["w"],
		p.cancelled)
}

// TestALivingServerKeepsItsRuns: also synchronous ones and those that wait for a slot, for longer than
// a record lives; other servers see their progress.
func TestALivingServerKeepsItsRuns(t *testing.T) {
	bubble(t, func(w *config.WorkflowTools) {
		oneSlot(w)
		forEver(w)
	}, func(t *testing.T, p *plant, a *server) {
		b := a.again()
		w := workflow(t, "w", false,
			script{lasts: 3 * recordLife, progress: []source.Progress{{Message: "half"}}})
		first, second := a.start(w, `1`), a.start(w, `2`)
		for range 6 {
			time.Sleep(recordLife * 11 / 12)
			for c, says := range map[*pending]string{first: "half", second: waitsForSlot} {
				r := b.status(c.id())
				testkit.True(t, r.State != Running || r.Progress != nil &&
					(r.Progress.Message == says || r.Progress.Message == "half"), "%+v, want progress %q", r, says)
			}
			testkit.Need(t, b.Stats() == (Stats{}), "%+v: it took up what another server has", b.Stats())
		}
		time.Sleep(recordLife)
		testkit.Equal(t, first.ends().State+" "+second.ends().State, "completed completed")
	})
}

// TestARunThatIsLostBeforeItsStartIsNotStarted: another server has recorded that nothing was.
func TestARunThatIsLostBeforeItsStartIsNotStarted(t *testing.T) {
	t.Parallel()
	p := newPlant()
	a := openFor(t, testkit.Dir(t), p, oneSlot, life)
	b := a.again()
	b.disk.serve.Store(true)
	first := a.start(workflow(t, "w", false, script{lasts: time.Hour}), `1`)
	second := a.start(workflow(t, "v", false, script{}), `2`)
	a.disk.frozen.Lock()
	testkit.Until(t, "the end of both", func() bool {
		return b.status(first.id()).State == Unknown && b.status(second.id()).State == Failed
	})

	first.cancel(errors.New("its caller has gone"))
	a.disk.frozen.Unlock()
	second.over(Failed, "workflow_failed")
	testkit.Until(t, "that both are given up", func() bool { return !a.Going() && a.Stats() == (Stats{}) })

	p.with(func() { testkit.Equal(t, p.started["v"], 0, "it was started") })
	x := stored(t, b, second.id())
	testkit.True(t, x.Error != nil && *x.Error == neverStarted, "%+v", x)
}

// TestACallEndsAlsoWhenAnotherFollowsTheRun: with its server, without waiting for the run's end, or cancelled
// by the other.
func TestACallEndsAlsoWhenAnotherFollowsTheRun(t *testing.T) {
	for name, cancelled := range map[string][]string{"its server stops": nil, "it is cancelled": {"x-1"}} {
		t.Run(name, func(t *testing.T) {
			p, a, b, c := twoServers(t, life)
			a.disk.frozen.Lock()
			b.follows()
			a.disk.frozen.Unlock()
			testkit.Until(t, "the first one gives it up", func() bool { return a.get(c.id()) == nil })

			if cancelled != nil {
				c.cancelled()
			} else {
				a.stop()
				c.over(Running, "shutting_down")
				b.is(c.id(), Running, "")
			}
			testkit.Same(t, p.cancelled, cancelled, "cancelled at the source")
		})
	}
}

// TestTheRunsOfAKilledServerAreTakenUpByOneThatLives: also if nobody asks for them, and no server starts.
func TestTheRunsOfAKilledServerAreTakenUpByOneThatLives(t *testing.T) {
	bubbles(t, map[string]State{"its time is over": TimedOut, "it ends": Completed},
		func(t *testing.T, want State, p *plant, open opener) {
			ends := want == Completed
			timeout := map[bool]time.Duration{true: time.Hour, false: 3 * time.Second}[ends]
			b := open(func(w *config.WorkflowTools) { w.ExecutionTimeout = &timeout })
			p.with(func() {
				p.jobs["x-1"] = &job{
					until:  time.Now().Add(map[bool]time.Duration{true: 40 * time.Second, false: time.Hour}[ends]),
					answer: output(`1`),
				}
			})

			x := written(1, Running)
			x.Timeout, x.Deadline = timeout, new(x.StartedAt.Add(timeout))
			kill(t, b.root, recordLife, x)
			time.Sleep(recordLife - time.Second)
			testkit.Need(t, b.Stats().Running == 0, "it was taken up while its server may live")
			time.Sleep(2 * time.Second)
			testkit.Need(t, b.Stats().Running == 1, "it was not taken up")
			time.Sleep(graceTime + time.Second)
			p.with(func() {
				testkit.Equal(t, len(p.cancelled) == 1, !ends, "cancelled at the source")
				clear(p.jobs) // the source forgets it
			})
			b.is(testID(1), want, map[bool]string{true: `1`}[ends])
		})
}

// TestALookAroundWritesNothing: not while others live, and not if there is nothing.
func TestALookAroundWritesNothing(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *plant, a *server) {
		b := a.again()
		time.Sleep(lookedAt)
		_, err := os.Lstat(filepath.Join(a.root, ".deepwork"))
		testkit.FailsWith(t, err, os.ErrNotExist, "a folder was made")
		a.does(true, script{lasts: time.Hour})
		synctest.Wait()
		b.disk.full.Store(true)
		time.Sleep(5 * time.Minute / 2)
		testkit.True(t, !b.log.has("begun now") && b.Stats() == (Stats{}),
			"%+v: it took up what another server has; %v", b.Stats(), b.log)
	})
}

// TestCancelOfAnotherServersRun: whichever server follows it cancels it.
func TestCancelOfAnotherServersRun(t *testing.T) {
	t.Parallel()
	a := open(t, testkit.Dir(t), newPlant(), nil)
	b := a.again()
	a.disk.serve.Store(true)
	b.disk.serve.Store(true)
	for _, from := range []*server{a, b} {
		c := a.does(true, script{lasts: time.Hour})
		wantCode(t, testkit.Get(from.Cancel(t.Context(), "you", c.id())).Err(), session.StateError, "unknown_run")
		from.cancelled(c.id())
		c.over(Cancelled, "workflow_cancelled")
		from.cancelled(c.id()) // which has ended
	}
}

// TestARunIsToldOnAFullDisk: that it cannot be taken up is no reason to say that it was never started.
func TestARunIsToldOnAFullDisk(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *plant, s *server) {
		p.with(func() { p.jobs["x-1"] = &job{until: time.Now().Add(2 * time.Hour)} })
		s.disk.full.Store(true)
		kill(t, s.root, 0, written(1, Completed), written(2, Running), written(3, store.RemoteWaiting))

		for range 2 {
			time.Sleep(lookedAt)
			s.is(testID(1), Completed, `{"n":1,"of":"<run>"}`)
			for _, n := range []int{2, 3} {
				// Nobody follows it: who asks is told so, and why, and does not wait in vain.
				r := s.is(testID(n), Running, "")
				testkit.Need(t, r.Error != nil && s.Stats().Running == 0, "%+v", r)
				testkit.ContainsAll(t, *r.Error, []string{"server that followed it is gone", syscall.ENOSPC.Error()})
			}
		}

		time.Sleep(time.Hour)
		synctest.Wait() // for the look of this moment
		testkit.Equal(t, s.log.Count("begun now"), 1, "it is logged … times that it is tried again")

		s.disk.full.Store(false)
		time.Sleep(recordLife)
		r := s.is(testID(2), Running, "")
		testkit.True(t, r.Error == nil && s.Stats().Running == 1, "it was not taken up: %+v, %+v", r, s.Stats())
		testkit.Contains(t, *s.is(testID(3), Failed, "").Error, "nothing was started")
	})
}

// TestARunThatCannotBeStored: nothing is started that is not stored before, and what
// has ended meanwhile is known to this server, and stored when that is possible.
func TestARunThatCannotBeStored(t *testing.T) {
	type full struct {
		until time.Duration // after the end of the run; 0 means until the server stops, -1 for longer
		after State         // a restart
	}
	bubbles(t, map[string]full{
		"while the server lives": {-1, Unknown},
		"until it stops":         {0, Completed},
		"until later":            {recordLife, Completed},
	}, func(t *testing.T, f full, p *plant, open opener) {
		s := open(nil)
		w := workflow(t, "w", false, script{lasts: time.Minute, answer: output(`7`)})
		c := s.start(w, `{}`)
		synctest.Wait()
		s.disk.full.Store(true)
		s.refuses(w, "run_not_saved", syscall.ENOSPC.Error())
		testkit.Equal(t, s.Stats(), (Stats{Running: 1}), "%+v, started %d", s.Stats(), p.started["w"])
		testkit.Equal(t, p.started["w"], 1, "%+v, started %d", s.Stats(), p.started["w"])
		testkit.Equal(t, string(c.ends().Result), `7`, "%+v, started %d", s.Stats(), p.started["w"])

		s.is(c.id(), Completed, `7`)
		testkit.True(t, s.log.has("level=ERROR", "cannot be written down"), "%s", s.log)
		s.disk.full.Store(f.until < 0)
		if f.until > 0 {
			time.Sleep(f.until)
			testkit.Equal(t, stored(t, s, c.id()).State, Completed)
		}

		s = s.restart()
		synctest.Wait()
		testkit.Equal(t, s.status(c.id()).State, f.after)
	})
}

// TestAnAcceptedRunIsStoredLater: otherwise no server could take it up.
func TestAnAcceptedRunIsStoredLater(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *plant, s *server) {
		p.onStart = func() { s.disk.full.Store(true) }
		c := s.does(true, script{lasts: time.Minute})
		time.Sleep(10 * time.Second)
		testkit.Equal(t, s.log.Count("cannot be written down"), 1, "it is logged … times")
		s.disk.full.Store(false)
		time.Sleep(10 * time.Second)
		testkit.Equal(t, stored(t, s, c.id()).State, Running)
	})
}

// TestWhatCannotBeRead: where the database is damaged it is not said that there is no
// such run; nothing is made before the first one, and its arguments are nowhere.
func TestWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := open(t, testkit.Dir(t), newPlant(), nil)
	path := state.Of(s.root).Database()
	s.noStatus("me", testID(1), session.StateError, "unknown_run")
	testkit.FailsWith(t, testkit.Get(os.Stat(path)).Err(), fs.ErrNotExist, "made before the first run")

	s.start(workflow(t, "w", false, script{}), `{"password":"hunter2"}`).wait()
	s.stop()
	testkit.True(t, !bytes.Contains(testkit.Get(os.ReadFile(path)).Must(t), []byte("hunter2")),
		"the arguments are in the database")
	testkit.FailsWith(t, testkit.Get(os.Stat(filepath.Join(s.root, ".deepwork"))).Err(), fs.ErrNotExist,
		"made in the project")

	testkit.Must(t, os.WriteFile(path, bytes.Repeat([]byte("no database "), 100), 0o600))
	s = s.again()
	s.noStatus("me", testID(1), session.StateError, "runs_unread", path)
	s.refuses(workflow(t, "w", false, script{}), "run_not_saved", path)
	testkit.Until(t, "logged that nothing can be taken up now", func() bool {
		return s.log.has("level=WARN", "begun now")
	})
}

func TestARestartGoesOnCountingTheTime(t *testing.T) {
	type counted struct {
		away time.Duration // between the servers
		want time.Duration // of the whole run
		ends State
	}
	bubbles(t, map[string]counted{
		"within its time":                  {time.Minute, 5 * time.Minute, TimedOut},
		"after its time":                   {time.Hour, time.Hour + time.Second + graceTime, TimedOut},
		"it completed while nobody saw it": {10 * time.Hour, 10*time.Hour + time.Second + firstPoll, Completed},
	}, func(t *testing.T, c counted, p *plant, open opener) {
		s := open(nil)
		call := s.does(true, script{lasts: 9 * time.Hour})
		time.Sleep(time.Second)
		s.stop()
		call.wait()
		time.Sleep(c.away)
		s = s.again()
		r := s.status(call.id())
		for range 24 * 60 {
			if r.State == Running {
				time.Sleep(time.Minute)
				r = s.status(call.id())
			}
		}
		testkit.Equal(t, r.State, c.ends, "%+v, cancelled %v", r, p.cancelled)
		testkit.Equal(t, r.EndedAt.Sub(r.StartedAt), c.want, "%+v, cancelled %v", r, p.cancelled)
		testkit.Equal(t, (len(p.cancelled) == 1), (c.ends == TimedOut), "%+v, cancelled %v", r, p.cancelled)
	})
}

func TestCloseCutsOffWhatCannotBeFoundAgain(t *testing.T) {
	bubbles(t, map[string]bool{"running": false, "waiting": true},
		func(t *testing.T, waits bool, p *plant, open opener) {
			s := open(oneSlot)
			w := workflow(t, "w", false, script{lasts: time.Minute})
			c := s.start(w, `1`)
			state := Unknown
			says := "not known"
			if waits {
				c = s.start(w, `2`)
				state = Failed
				says = "nothing was started"
			}
			synctest.Wait()
			s.stop()
			testkit.Contains(t, c.over(state, "shutting_down").Error(), says)

			s = s.again()
			testkit.Contains(t, *s.is(c.id(), state, "").Error, says)
			testkit.True(t, p.started["w"] == 1 && p.busy == 0, "started %d, busy %d", p.started["w"], p.busy)
		})
}

func TestCloseNamesWhatDoesNotStop(t *testing.T) {
	bubble(t, nil, func(t *testing.T, p *plant, s *server) {
		s.closed = true
		c := s.does(false, script{lasts: time.Minute, deaf: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		testkit.Same(t, s.Close(ctx), []string{"remote/" + c.id()}, "stuck")

		c.over(Running, "shutting_down")
		time.Sleep(2 * time.Minute)
		s.closed = false
		s.stop()
	})
}
