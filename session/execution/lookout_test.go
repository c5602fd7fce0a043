package execution

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor/durable"
	"deepwork/catalog/config"
	"deepwork/catalog/remote"
)

// lookedAt is a time by which every server has looked.
const lookedAt = lookEvery*11/10 + time.Second

// TestTheRunsOfAKilledServerAreTakenUpByOneThatLives: nobody asks for them, and no
// server starts.
func TestTheRunsOfAKilledServerAreTakenUpByOneThatLives(t *testing.T) {
	for name, c := range map[string]struct {
		lasts time.Duration
		want  State
	}{
		"its time is over": {time.Hour, TimedOut},
		"it ends":          {20 * time.Second, Completed},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p, root := newPlant(), newRoot(t)
				short := func(w *config.WorkflowTools) { w.ExecutionTimeout = 3 * time.Second }
				if c.want == Completed {
					short = nil
				}
				b := open(t, root, p, short)
				p.with(func() {
					p.jobs["x-1"] = &job{until: time.Now().Add(c.lasts), answer: remote.Answer{Output: json.RawMessage(`1`)}}
				})
				now := time.Now().UTC()
				leave(t, root, encoded(t, written(1, Running, func(r *record) {
					r.StartedAt = now
					if short != nil {
						r.Timeout, r.Deadline = 3*time.Second, new(now.Add(3*time.Second))
					}
				})))
				time.Sleep(lookedAt)
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

// TestALookAroundWritesNothing: not while others live, and not where there is no folder.
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
		if err := os.Remove(b.store.claim.Path); err != nil {
			t.Fatal(err)
		}
		before := files(t, root)
		var ops atomic.Int32
		durable.Intercept = func(op durable.Op, do func() error) error { ops.Add(1); return do() }
		t.Cleanup(func() { durable.Intercept = nil })
		time.Sleep(5 * time.Minute / 2)
		if _, err := os.Lstat(b.store.claim.Path); !os.IsNotExist(err) {
			t.Errorf("the claim lock was taken: %v", err)
		}
		if after := files(t, root); !maps.Equal(before, after) || ops.Load() != 0 {
			t.Errorf("%d writes; there are %v, there were %v", ops.Load(), after, before)
		}
		if n := b.Stats(); n != (Stats{}) {
			t.Errorf("%+v: it took up what another server has", n)
		}
		c.cancel(ErrCancelled)
		c.wait()
	})
}

// TestServersThatLookAtOnceTakeUpEachRunOnce: who has one has it alone.
func TestServersThatLookAtOnceTakeUpEachRunOnce(t *testing.T) {
	p, root := newPlant(), newRoot(t)
	const servers, runs = 4, 9
	var all []*server
	for range servers {
		all = append(all, open(t, root, p, nil))
	}
	var lines bytes.Buffer
	for n := range runs {
		lines.Write(encoded(t, written(n+1, Running, nil)))
	}
	p.with(func() { p.jobs["x-1"] = &job{until: time.Now().Add(time.Hour)} })
	leave(t, root, lines.Bytes())
	var wg sync.WaitGroup
	for _, s := range all {
		wg.Go(func() { (&lookout{engine: s.Engine}).look(t.Context()) })
	}
	wg.Wait()
	following := 0
	for _, s := range all {
		following += s.Stats().Running
	}
	if following != runs {
		t.Errorf("%d runs are followed, want %d", following, runs)
	}
}

// TestWhatCannotBeTakenUpIsTriedLessOften: and what is new at once.
func TestWhatCannotBeTakenUpIsTriedLessOften(t *testing.T) {
	bubble(t, func(t *testing.T) {
		root := newRoot(t)
		s := open(t, root, newPlant(), nil)
		var full atomic.Bool
		var tries atomic.Int32
		durable.Intercept = func(op durable.Op, do func() error) error {
			if op.Do == durable.OpWrite && full.Load() {
				tries.Add(1)
				return syscall.ENOSPC
			}
			return do()
		}
		t.Cleanup(func() { durable.Intercept = nil })
		full.Store(true)
		dir := leave(t, root, encoded(t, written(1, Running, nil)))
		time.Sleep(time.Hour)
		if n := tries.Load(); n < 10 || n > 25 {
			t.Errorf("%d tries in an hour", n)
		}
		full.Store(false)
		other := written(2, Completed, func(r *record) { r.Server, r.EndedAt = "00112233445566aa", new(time.Now().UTC()) })
		if err := os.WriteFile(filepath.Join(dir, "runs_00112233445566aa.jsonl"), encoded(t, other), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookedAt)
		if n := s.Stats(); n.Kept != 2 {
			t.Errorf("%+v", n)
		}
	})
}

// TestCloseEndsTheLook: also while it waits for the claim lock.
func TestCloseEndsTheLook(t *testing.T) {
	root := newRoot(t)
	s, other := open(t, root, newPlant(), nil), open(t, root, newPlant(), nil)
	leave(t, root, encoded(t, written(1, Running, nil)))
	err := other.store.claim.Do(t.Context(), func() error {
		done := make(chan struct{})
		go func() { defer close(done); (&lookout{engine: s.Engine}).look(s.ctx) }()
		s.stop()
		<-done
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.log.has("level=WARN", "cannot be taken up") {
		t.Errorf("%v", s.log)
	}
}
