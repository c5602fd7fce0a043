package remote

import (
	"encoding/json"
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

func often(w *config.WorkflowTools) { w.StatusInterval = 10 * time.Millisecond }

// twoServers are the one that runs a workflow, which its source has accepted, and another one.
func twoServers(t *testing.T, life time.Duration) (p *plant, a, b *server, c *pending) {
	p, root := newPlant(), newRoot(t)
	a, b = openFor(t, root, p, often, life), openFor(t, root, p, often, life)
	a.disk.serve.Store(true)
	b.disk.serve.Store(true)
	c = a.start(workflow(t, "w", true, script{lasts: time.Hour, answer: source.Answer{Output: json.RawMessage(`1`)}}), `{}`)
	testkit.Until(t, "the source's id", func() bool { return mustStatus(t, b.Engine, c.id()).SourceExecutionID != nil })
	return p, a, b, c
}

// end ends the only job of the plant.
func (p *plant) end() { p.with(func() { p.jobs["x-1"].until = time.Now() }) }

// TestASuspendedServerOverwritesNothing: another one goes on with its run, and what that one stores
// stays when the first one wakes up, which has its caller's reply from there.
func TestASuspendedServerOverwritesNothing(t *testing.T) {
	t.Parallel()
	for name, ended := range map[string]bool{"the run has ended": true, "the run goes on": false} {
		t.Run(name, func(t *testing.T) {
			p, a, b, c := twoServers(t, life)
			a.disk.frozen.Lock()
			testkit.Until(t, "the other server follows it", func() bool { return b.Stats().Running == 1 })
			if ended {
				p.end()
				testkit.Until(t, "its end", func() bool { return mustStatus(t, b.Engine, c.id()).State == Completed })
			}
			was := stored(t, b, c.id())
			a.disk.frozen.Unlock()
			testkit.Until(t, "the first one gives it up", func() bool { return a.get(c.id()) == nil })
			now := stored(t, b, c.id())
			testkit.True(t, (!ended || reflect.DeepEqual(now, was)) && now.Owner == b.member.ID() && now.Over() == ended, "%+v, was %+v", now, was)
			if !ended {
				if a.Stats().Running != 0 || len(p.cancelled) > 0 {
					t.Errorf("%+v; cancelled at the source: %v", a.Stats(), p.cancelled)
				}
				p.end()
			}
			r := testkit.Get(c.wait()).Must(t)
			testkit.True(t, r.State == Completed && string(r.Result) == `1`, "%+v", r)
			testkit.Equal(t, mustStatus(t, a.Engine, c.id()).State, Completed)
			testkit.True(t, !a.log.has("level=ERROR"), "%v", a.log)
		})
	}
}

// TestACancelOutlivesTheServerThatWasAsked: the one that takes the run up cancels it.
func TestACancelOutlivesTheServerThatWasAsked(t *testing.T) {
	t.Parallel()
	p, a, b, c := twoServers(t, life)
	a.disk.frozen.Lock()
	defer a.disk.frozen.Unlock()
	testkit.Equal(t, testkit.Get(b.Cancel(t.Context(), "me", c.id())).Must(t).State, Cancelled)
	x := stored(t, b, c.id())
	testkit.True(t, x.Owner == b.member.ID() && reflect.DeepEqual(p.cancelled, []string{"x-1"}), "%+v; cancelled at the source: %v", x, p.cancelled)
}

// TestAStoppedServersRunIsTakenUpAtOnce: before its life is over.
func TestAStoppedServersRunIsTakenUpAtOnce(t *testing.T) {
	t.Parallel()
	p, a, b, c := twoServers(t, time.Hour)
	a.stop()
	testkit.Until(t, "the other server follows it", func() bool { return b.Stats().Running == 1 })
	p.end()
	testkit.Until(t, "its end", func() bool { return mustStatus(t, b.Engine, c.id()).State == Completed })
	c.over(Running, "shutting_down")
}

// TestALivingServerKeepsItsRuns: also synchronous ones and those that wait for a slot, for longer than
// a record lives; other servers see their progress.
func TestALivingServerKeepsItsRuns(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p, root := newPlant(), newRoot(t)
		one := func(w *config.WorkflowTools) { w.MaxConcurrent, w.ExecutionTimeout = 1, new(time.Duration(0)) }
		a, b := open(t, root, p, one), open(t, root, p, one)
		w := workflow(t, "w", false, script{lasts: 3 * store.ExecutionLife, progress: []source.Progress{{Message: "half"}}})
		first, second := a.start(w, `1`), a.start(w, `2`)
		for range 6 {
			time.Sleep(store.ExecutionLife * 11 / 12)
			for c, says := range map[*pending]string{first: "half", second: waitsForSlot} {
				r := mustStatus(t, b.Engine, c.id())
				testkit.True(t, r.State != Running || r.Progress != nil && (r.Progress.Message == says || r.Progress.Message == "half"), "%+v, want progress %q", r, says)
			}
			if b.Stats() != (Stats{}) {
				t.Fatalf("%+v: it took up what another server has", b.Stats())
			}
		}
		time.Sleep(store.ExecutionLife)
		for _, c := range []*pending{first, second} {
			testkit.Equal(t, testkit.Get(c.wait()).Must(t).State, Completed)
		}
	})
}

// TestARunThatIsLostBeforeItsStartIsNotStarted: another server has recorded that nothing was.
func TestARunThatIsLostBeforeItsStartIsNotStarted(t *testing.T) {
	t.Parallel()
	p, root := newPlant(), newRoot(t)
	one := func(w *config.WorkflowTools) { w.MaxConcurrent = 1 }
	a, b := openFor(t, root, p, one, life), openFor(t, root, p, one, life)
	a.disk.serve.Store(true)
	first := a.start(workflow(t, "w", false, script{lasts: time.Hour}), `1`)
	second := a.start(workflow(t, "v", false, script{}), `2`)
	a.disk.frozen.Lock()
	testkit.Until(t, "the end of both", func() bool {
		return mustStatus(t, b.Engine, first.id()).State == Unknown && mustStatus(t, b.Engine, second.id()).State == Failed
	})
	first.cancel(errors.New("its caller has gone"))
	a.disk.frozen.Unlock()
	second.over(Failed, "workflow_failed")
	testkit.Until(t, "that both are given up", func() bool { return !a.Going() && a.Stats() == (Stats{}) })
	p.with(func() {
		testkit.Equal(t, p.started["v"], 0, "it was started")
	})
	x := stored(t, b, second.id())
	testkit.True(t, x.Error != nil && *x.Error == store.NeverStarted, "%+v", x)
}

// TestACallEndsWithItsServerAlsoWhenAnotherFollowsTheRun does not wait for the run's end.
func TestACallEndsWithItsServerAlsoWhenAnotherFollowsTheRun(t *testing.T) {
	t.Parallel()
	p, a, b, c := twoServers(t, life)
	a.disk.frozen.Lock()
	testkit.Until(t, "the other server follows it", func() bool { return b.Stats().Running == 1 })
	a.disk.frozen.Unlock()
	testkit.Until(t, "the first one gives it up", func() bool { return a.get(c.id()) == nil })
	a.stop()
	c.over(Running, "shutting_down")
	r := mustStatus(t, b.Engine, c.id())
	testkit.True(t, r.State == Running && len(p.cancelled) == 0, "%+v; cancelled at the source: %v", r, p.cancelled)
}

// lookedAt is a time by which every server has looked.
const lookedAt = lookEvery + time.Second

// TestTheRunsOfAKilledServerAreTakenUpByOneThatLives: nobody asks for them, and no
// server starts.
func TestTheRunsOfAKilledServerAreTakenUpByOneThatLives(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lasts time.Duration
		want  State
	}{
		"its time is over": {time.Hour, TimedOut},
		"it ends":          {40 * time.Second, Completed},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p, root := newPlant(), newRoot(t)
				short := func(w *config.WorkflowTools) { w.ExecutionTimeout = new(3 * time.Second) }
				if c.want == Completed {
					short = nil
				}
				b := open(t, root, p, short)
				p.with(func() {
					p.jobs["x-1"] = &job{until: time.Now().Add(c.lasts), answer: source.Answer{Output: json.RawMessage(`1`)}}
				})
				kill(t, root, store.ExecutionLife, written(1, Running, func(x *store.Execution) {
					if short != nil {
						x.Timeout, x.Deadline = 3*time.Second, new(x.StartedAt.Add(3*time.Second))
					}
				}))
				time.Sleep(store.ExecutionLife - time.Second)
				n := b.Stats()
				testkit.Need(t, n.Running == 0, "%+v: it was taken up while its server may live", n)
				time.Sleep(2 * time.Second)
				n = b.Stats()
				testkit.Need(t, n.Running == 1, "%+v: it was not taken up", n)
				time.Sleep(graceTime + time.Second)
				p.with(func() {
					testkit.Equal(t, len(p.cancelled) == 1, c.want == TimedOut, "cancelled at the source")
					clear(p.jobs) // the source forgets it
				})
				r := mustStatus(t, b.Engine, testID(1))
				testkit.True(t, r.State == c.want && (c.want != Completed || string(r.Result) == `1`), "%+v", r)
			})
		})
	}
}

// TestALookAroundWritesNothing: not while others live, and not if there is nothing.
func TestALookAroundWritesNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p, root := newPlant(), newRoot(t)
		a, b := open(t, root, p, nil), open(t, root, p, nil)
		time.Sleep(lookedAt)
		if _, err := os.Lstat(filepath.Join(root, ".deepwork")); !os.IsNotExist(err) {
			t.Fatalf("a folder was made: %v", err)
		}
		c := a.start(workflow(t, "w", true, script{lasts: time.Hour}), `{}`)
		synctest.Wait()
		b.disk.full.Store(true)
		time.Sleep(5 * time.Minute / 2)
		if b.log.has("cannot be taken up") || b.Stats() != (Stats{}) {
			t.Errorf("%+v: it took up what another server has; %v", b.Stats(), b.log)
		}
		c.cancel(ErrCancelled)
		c.wait()
	})
}

// TestCancelOfAnotherServersRun: whichever server follows it cancels it.
func TestCancelOfAnotherServersRun(t *testing.T) {
	t.Parallel()
	p, root := newPlant(), newRoot(t)
	a, b := open(t, root, p, nil), open(t, root, p, nil)
	a.disk.serve.Store(true)
	b.disk.serve.Store(true)
	w := workflow(t, "w", true, script{lasts: time.Hour})
	for _, from := range []*server{a, b} {
		c := a.start(w, `{}`)
		if _, err := from.Cancel(t.Context(), "you", c.id()); session.CodeOf(err) != "unknown_run" {
			t.Errorf("another's run: %v", err)
		}
		r, err := from.Cancel(t.Context(), "me", c.id())
		testkit.True(t, err == nil && r.State == Cancelled, "%+v, %v", r, err)
		c.over(Cancelled, "workflow_cancelled")
		if r, err = from.Cancel(t.Context(), "me", c.id()); err != nil || r.State != Cancelled {
			t.Errorf("one that has ended: %+v, %v", r, err)
		}
	}
}
