package remote

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/source"
	"deepwork/session"
	"deepwork/session/store"
)

// life is that of a record in tests that wait for its end.
const life = time.Second

// lookedAt is a time by which every server has looked.
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

// end ends the only job of the plant.
func (p *plant) end() { p.with(func() { p.jobs["x-1"].until = time.Now() }) }

// follows waits until a server follows one run.
func (s *server) follows() {
	s.t.Helper()
	testkit.Until(s.t, "the other server follows it", func() bool { return s.Stats().Running == 1 })
}

// completes waits until a run is completed.
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
			testkit.True(t, (!ended || reflect.DeepEqual(now, was)) && now.Owner == b.member.ID() && now.Over() == ended, "%+v, was %+v", now, was)
			if !ended {
				testkit.True(t, a.Stats().Running == 0 && len(p.cancelled) == 0, "%+v; cancelled at the source: %v", a.Stats(), p.cancelled)
				p.end()
			}
			r := c.ends()
			testkit.True(t, r.State == Completed && string(r.Result) == `1`, "%+v", r)
			a.is(c.id(), Completed, `1`)
			testkit.True(t, !a.log.has("level=ERROR"), "%v", a.log)
		})
	}
}

// TestACancelOutlivesTheServerThatWasAsked: the one that takes the run up cancels it.
func TestACancelOutlivesTheServerThatWasAsked(t *testing.T) {
	p, a, b, c := twoServers(t, life)
	a.disk.frozen.Lock()
	defer a.disk.frozen.Unlock()
	b.cancelled(c.id())
	x := stored(t, b, c.id())
	testkit.True(t, x.Owner == b.member.ID() && reflect.DeepEqual(p.cancelled, []string{"x-1"}), "%+v; cancelled at the source: %v", x, p.cancelled)
}

// TestAStoppedServersRunIsTakenUpAtOnce: before its life is over.
func TestAStoppedServersRunIsTakenUpAtOnce(t *testing.T) {
	p, a, b, c := twoServers(t, time.Hour)
	a.stop()
	b.follows()
	p.end()
	b.completes(c.id())
	c.over(Running, "shutting_down")
}

// TestALivingServerKeepsItsRuns: also synchronous ones and those that wait for a slot, for longer than
// a record lives; other servers see their progress.
func TestALivingServerKeepsItsRuns(t *testing.T) {
	bubble(t, func(w *config.WorkflowTools) { oneSlot(w); forEver(w) }, func(t *testing.T, p *plant, a *server) {
		b := a.again()
		w := workflow(t, "w", false, script{lasts: 3 * store.ExecutionLife, progress: []source.Progress{{Message: "half"}}})
		first, second := a.start(w, `1`), a.start(w, `2`)
		for range 6 {
			time.Sleep(store.ExecutionLife * 11 / 12)
			for c, says := range map[*pending]string{first: "half", second: waitsForSlot} {
				r := b.status(c.id())
				testkit.True(t, r.State != Running || r.Progress != nil && (r.Progress.Message == says || r.Progress.Message == "half"), "%+v, want progress %q", r, says)
			}
			testkit.Need(t, b.Stats() == (Stats{}), "%+v: it took up what another server has", b.Stats())
		}
		time.Sleep(store.ExecutionLife)
		testkit.Equal(t, first.ends().State, Completed)
		testkit.Equal(t, second.ends().State, Completed)
	})
}

// TestARunThatIsLostBeforeItsStartIsNotStarted: another server has recorded that nothing was.
func TestARunThatIsLostBeforeItsStartIsNotStarted(t *testing.T) {
	t.Parallel()
	p := newPlant()
	a := openFor(t, testkit.Dir(t), p, oneSlot, life)
	b := a.again()
	a.disk.serve.Store(true)
	first := a.start(workflow(t, "w", false, script{lasts: time.Hour}), `1`)
	second := a.start(workflow(t, "v", false, script{}), `2`)
	a.disk.frozen.Lock()
	testkit.Until(t, "the end of both", func() bool { return b.status(first.id()).State == Unknown && b.status(second.id()).State == Failed })
	first.cancel(errors.New("its caller has gone"))
	a.disk.frozen.Unlock()
	second.over(Failed, "workflow_failed")
	testkit.Until(t, "that both are given up", func() bool { return !a.Going() && a.Stats() == (Stats{}) })
	p.with(func() { testkit.Equal(t, p.started["v"], 0, "it was started") })
	x := stored(t, b, second.id())
	testkit.True(t, x.Error != nil && *x.Error == store.NeverStarted, "%+v", x)
}

// TestACallEndsWithItsServerAlsoWhenAnotherFollowsTheRun does not wait for the run's end.
func TestACallEndsWithItsServerAlsoWhenAnotherFollowsTheRun(t *testing.T) {
	p, a, b, c := twoServers(t, life)
	a.disk.frozen.Lock()
	b.follows()
	a.disk.frozen.Unlock()
	testkit.Until(t, "the first one gives it up", func() bool { return a.get(c.id()) == nil })
	a.stop()
	c.over(Running, "shutting_down")
	b.is(c.id(), Running, "")
	testkit.Equal(t, len(p.cancelled), 0, "cancelled at the source")
}

// TestTheRunsOfAKilledServerAreTakenUpByOneThatLives: also if nobody asks for them, and no
// server starts.
func TestTheRunsOfAKilledServerAreTakenUpByOneThatLives(t *testing.T) {
	bubbles(t, map[string]State{"its time is over": TimedOut, "it ends": Completed}, func(t *testing.T, want State, p *plant, open opener) {
		ends := want == Completed
		timeout := map[bool]time.Duration{true: time.Hour, false: 3 * time.Second}[ends]
		b := open(func(w *config.WorkflowTools) { w.ExecutionTimeout = &timeout })
		p.with(func() {
			p.jobs["x-1"] = &job{until: time.Now().Add(map[bool]time.Duration{true: 40 * time.Second, false: time.Hour}[ends]), answer: output(`1`)}
		})
		kill(t, b.root, store.ExecutionLife, written(1, Running, func(x *store.Execution) {
			x.Timeout, x.Deadline = timeout, new(x.StartedAt.Add(timeout))
		}))
		time.Sleep(store.ExecutionLife - time.Second)
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
		testkit.True(t, !b.log.has("cannot be taken up") && b.Stats() == (Stats{}), "%+v: it took up what another server has; %v", b.Stats(), b.log)
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
