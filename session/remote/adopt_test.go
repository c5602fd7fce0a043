package remote

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/source"
	"deepwork/session"
	"deepwork/session/store"
)

// lookedAt is a time by which every server has looked.
const lookedAt = lookEvery + time.Second

// TestTheRunsOfAKilledServerAreTakenUpByOneThatLives: nobody asks for them, and no
// server starts.
func TestTheRunsOfAKilledServerAreTakenUpByOneThatLives(t *testing.T) {
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
				if n := b.Stats(); n.Running != 0 {
					t.Fatalf("%+v: it was taken up while its server may live", n)
				}
				time.Sleep(2 * time.Second)
				if n := b.Stats(); n.Running != 1 {
					t.Fatalf("%+v: it was not taken up", n)
				}
				time.Sleep(graceTime + time.Second)
				p.with(func() {
					if n := len(p.cancelled); (n == 1) != (c.want == TimedOut) {
						t.Errorf("%d were cancelled at the source", n)
					}
					clear(p.jobs) // the source forgets it
				})
				if r := mustStatus(t, b.Engine, testID(1)); r.State != c.want || c.want == Completed && string(r.Result) != `1` {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

// TestALookAroundWritesNothing: not while others live, and not if there is nothing.
func TestALookAroundWritesNothing(t *testing.T) {
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
		if err != nil || r.State != Cancelled {
			t.Errorf("%+v, %v", r, err)
		}
		c.over(Cancelled, "workflow_cancelled")
		if r, err = from.Cancel(t.Context(), "me", c.id()); err != nil || r.State != Cancelled {
			t.Errorf("one that has ended: %+v, %v", r, err)
		}
	}
}
