package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
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

// hanging is a plant of which the first calls of each kind do not return before
// their context ends.
type hanging struct {
	*plant
	hangs int
}

func (h *hanging) Status(ctx context.Context, source, workflowID, id string) (*source.Answer, error) {
	h.mu.Lock()
	hang := h.hangs > 0
	h.hangs--
	h.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.plant.Status(ctx, source, workflowID, id)
}

func TestARestartTakesUpWhatItsSourceCanTell(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p, root := newPlant(), newRoot(t)
		s := open(t, root, p, nil)
		c := s.start(workflow(t, "w", true, script{lasts: time.Minute, answer: source.Answer{Output: json.RawMessage(`1`)}}), `{}`)
		time.Sleep(time.Second)
		go s.stop()
		e := c.over(Running, "shutting_down")
		testkit.ContainsAll(t, e.Message, []string{c.id(), "workflow_status"})
		synctest.Wait()
		testkit.Equal(t, len(p.cancelled), 0, "it was cancelled at its source")
		time.Sleep(10 * time.Second)
		s = open(t, root, p, nil)
		if r := mustStatus(t, s.Engine, c.id()); r.State != Running || *r.SourceExecutionID != "x-1" || s.Stats().Running != 1 {
			t.Errorf("%+v, %+v", r, s.Stats())
		}
		time.Sleep(time.Minute)
		if r := mustStatus(t, s.Engine, "x-1"); r.State != Completed || string(r.Result) != `1` || r.ExecutionID != c.id() || p.started["w"] != 1 {
			t.Errorf("%+v, started %d times", r, p.started["w"])
		}
	})
}

// TestARunIsToldOnAFullDisk: that it cannot be taken up is no reason to say that it
// was never started.
func TestARunIsToldOnAFullDisk(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p, root := newPlant(), newRoot(t)
		p.with(func() { p.jobs["x-1"] = &job{until: time.Now().Add(time.Hour)} })
		s := open(t, root, p, nil)
		s.disk.full.Store(true)
		leave(t, root, written(1, Completed, nil), written(2, Running, nil), written(3, store.ExecutionWaiting, nil))
		for range 2 {
			if r := mustStatus(t, s.Engine, testID(1)); r.State != Completed || string(r.Result) != `{"n":1,"of":"<run>"}` {
				t.Errorf("%+v", r)
			}
			for _, n := range []int{2, 3} {
				r := mustStatus(t, s.Engine, testID(n))
				testkit.Equal(t, r.State, Running)
				testkit.Equal(t, s.Stats().Running, 0)
				// Nobody follows it: who asks is told so, and why, and does not wait in vain.
				testkit.True(t, r.Error != nil && strings.Contains(*r.Error, "server that followed it is gone") && strings.Contains(*r.Error, syscall.ENOSPC.Error()), "it says %v", r.Error)
			}
		}
		time.Sleep(time.Hour)
		testkit.Equal(t, strings.Count(s.log.String(), "taken up now"), 1, "it is logged … times that it is tried again")
		s.disk.full.Store(false)
		if r := mustStatus(t, s.Engine, testID(2)); r.State != Running || r.Error != nil || s.Stats().Running != 1 {
			t.Errorf("it was not taken up: %+v, %+v", r, s.Stats())
		}
		if r := mustStatus(t, s.Engine, testID(3)); r.State != Failed || !strings.Contains(*r.Error, "nothing was started") {
			t.Errorf("%+v", r)
		}
	})
}

// TestARunThatCannotBeStored: nothing is started that is not stored before, and what
// has ended meanwhile is known to this server, and stored when that is possible.
func TestARunThatCannotBeStored(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		later func(s *server, id string)
		after State // a restart
	}{
		"while the server lives": {func(*server, string) {}, Unknown},
		"until it stops":         {func(s *server, _ string) { s.disk.full.Store(false) }, Completed},
		"until later": {func(s *server, id string) {
			s.disk.full.Store(false)
			time.Sleep(store.ExecutionLife)
			testkit.Equal(t, stored(t, s, id).State, Completed)
		}, Completed},
	} {
		t.Run(name, func(t *testing.T) { bubble(t, func(t *testing.T) { cannotBeStored(t, c.later, c.after) }) })
	}
}

// cannotBeStored checks a run whose end cannot be stored: what it is after a restart.
func cannotBeStored(t *testing.T, later func(s *server, id string), after State) {
	p, root := newPlant(), newRoot(t)
	s := open(t, root, p, nil)
	w := workflow(t, "w", false, script{lasts: time.Minute, answer: source.Answer{Output: json.RawMessage(`7`)}})
	c := s.start(w, `{}`)
	synctest.Wait()
	s.disk.full.Store(true)
	wantCode(t, testkit.Get(s.call(t.Context(), "me", w, nil, nil)).Err(), session.StateError, "run_not_saved", syscall.ENOSPC.Error())
	n := s.Stats()
	testkit.True(t, n == (Stats{Running: 1}) && p.started["w"] == 1, "%+v, started %d", n, p.started["w"])
	testkit.Equal(t, string(testkit.Get(c.wait()).Must(t).Result), `7`)
	r := mustStatus(t, s.Engine, c.id())
	testkit.True(t, r.State == Completed && string(r.Result) == `7` && s.log.has("level=ERROR", "cannot be written down"), "%+v", r)
	later(s, c.id())
	s.stop()
	s = open(t, root, p, nil)
	testkit.Equal(t, mustStatus(t, s.Engine, c.id()).State, after)
}

// filling is a plant whose starts are followed by something else.
type filling struct {
	*plant
	started func()
}

func (f *filling) Execute(ctx context.Context, w *source.Workflow, input json.RawMessage, progress func(source.Progress)) (*source.Answer, error) {
	defer f.started()
	return f.plant.Execute(ctx, w, input, progress)
}

// TestAnAcceptedRunIsStoredLater: otherwise no server could take it up.
func TestAnAcceptedRunIsStoredLater(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p, root := &filling{plant: newPlant()}, newRoot(t)
		s := open(t, root, p, nil)
		p.started = func() { s.disk.full.Store(true) }
		c := s.start(workflow(t, "w", true, script{lasts: time.Minute}), `{}`)
		time.Sleep(10 * time.Second)
		testkit.Equal(t, strings.Count(s.log.String(), "cannot be written down"), 1, "it is logged … times")
		s.disk.full.Store(false)
		time.Sleep(10 * time.Second)
		testkit.Equal(t, stored(t, s, c.id()).State, Running)
	})
}

// TestWhatCannotBeRead: where the database is damaged it is not said that there is no
// such run; nothing is made before the first one, and its arguments are nowhere.
func TestWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	s := open(t, root, newPlant(), nil)
	wantCode(t, testkit.Get(s.Status(t.Context(), "me", testID(1))).Err(), session.StateError, "unknown_run")
	testkit.FailsWith(t, testkit.Get(os.Stat(filepath.Join(root, ".deepwork"))).Err(), fs.ErrNotExist, "made before the first run")
	s.start(workflow(t, "w", false, script{}), `{"password":"hunter2"}`).wait()
	s.stop()
	path := state.Of(root).Database()
	data, err := os.ReadFile(path)
	testkit.True(t, err == nil && !bytes.Contains(data, []byte("hunter2")), "the arguments are in the database; %v", err)
	testkit.FailsWith(t, testkit.Get(os.Stat(filepath.Join(root, ".deepwork"))).Err(), fs.ErrNotExist, "made in the project")
	testkit.Must(t, os.WriteFile(path, bytes.Repeat([]byte("no database "), 100), 0o600))
	s = open(t, root, newPlant(), nil)
	wantCode(t, testkit.Get(s.Status(t.Context(), "me", testID(1))).Err(), session.StateError, "runs_unread", path)
	wantCode(t, testkit.Get(s.call(t.Context(), "me", workflow(t, "w", false, script{}), nil, nil)).Err(), session.StateError, "run_not_saved", path)
	testkit.Until(t, "logged that nothing can be taken up now", func() bool { return s.log.has("level=WARN", "taken up now") })
}

func TestARestartGoesOnCountingTheTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		away time.Duration // between the servers
		want time.Duration // of the whole run
		ends State
	}{
		"within its time":                  {time.Minute, 5 * time.Minute, TimedOut},
		"after its time":                   {time.Hour, time.Hour + time.Second + graceTime, TimedOut},
		"it completed while nobody saw it": {10 * time.Hour, 10*time.Hour + time.Second + firstPoll, Completed},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p, root := newPlant(), newRoot(t)
				s := open(t, root, p, nil)
				call := s.start(workflow(t, "w", true, script{lasts: 9 * time.Hour}), `{}`)
				time.Sleep(time.Second)
				s.stop()
				call.wait()
				time.Sleep(c.away)
				s = open(t, root, p, nil)
				for range 24 * 60 {
					time.Sleep(time.Minute)
					if r := mustStatus(t, s.Engine, call.id()); r.State != Running {
						testkit.Equal(t, r.State, c.ends)
						testkit.Equal(t, r.EndedAt.Sub(r.StartedAt), c.want)
						testkit.Equal(t, len(p.cancelled) == 1, c.ends == TimedOut, "cancelled %v", p.cancelled)
						return
					}
				}
				t.Error("it never ended")
			})
		})
	}
}

func TestCloseCutsOffWhatCannotBeFoundAgain(t *testing.T) {
	t.Parallel()
	for name, async := range map[string]bool{"sync": false, "waiting": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p, root := newPlant(), newRoot(t)
				s := open(t, root, p, func(w *config.WorkflowTools) { w.MaxConcurrent = 1 })
				w := workflow(t, "w", false, script{lasts: time.Minute})
				c, state, says := s.start(w, `1`), Unknown, "not known"
				if async {
					c, state, says = s.start(w, `2`), Failed, "nothing was started"
				}
				synctest.Wait()
				s.stop()
				testkit.Contains(t, c.over(state, "shutting_down").Message, says)
				s = open(t, root, p, nil)
				r := mustStatus(t, s.Engine, c.id())
				testkit.True(t, r.State == state && strings.Contains(*r.Error, says), "%+v", r)
				testkit.Equal(t, p.started["w"], 1, "started")
				testkit.Equal(t, p.busy, 0, "started")
			})
		})
	}
}

func TestCloseNamesWhatDoesNotStop(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		s := open(t, newRoot(t), newPlant(), nil)
		s.closed = true
		c := s.start(workflow(t, "w", false, script{lasts: time.Minute, deaf: true}), `{}`)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		stuck := s.Close(ctx)
		testkit.True(t, len(stuck) == 1 && stuck[0] == "remote run "+c.id(), "stuck: %v", stuck)
		refusedAs(t, func() error { _, err := c.wait(); return err }(), Running, "shutting_down")
		time.Sleep(2 * time.Minute)
		s.closed = false
		s.stop()
	})
}

// TestSeveralServersOnOneProject: a run has one owner; others tell what is written
// of it, and take it up when its owner is gone.
func TestSeveralServersOnOneProject(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p, root := newPlant(), newRoot(t)
		a := open(t, root, p, nil)
		b := open(t, root, p, nil)
		c := a.start(workflow(t, "w", true, script{lasts: time.Hour}), `{}`)
		time.Sleep(10 * time.Second)
		late := open(t, root, p, nil)
		for _, s := range []*server{b, late} {
			for _, id := range []string{c.id(), "x-1"} {
				if r := mustStatus(t, s.Engine, id); r.State != Running || r.ExecutionID != c.id() {
					t.Errorf("%+v", r)
				}
			}
			wantCode(t, testkit.Get(s.Status(t.Context(), "you", c.id())).Err(), session.StateError, "unknown_run")
			testkit.Equal(t, s.Stats(), (Stats{}), "it took up what another server has")
		}
		late.stop()
		a.stop()
		c.wait()
		time.Sleep(lookedAt)
		testkit.Equal(t, b.Stats().Running, 1, "it was not taken up at once from a server that stopped")
		testkit.Equal(t, mustStatus(t, b.Engine, "x-1").State, Running)
		late = open(t, root, p, nil)
		mustStatus(t, late.Engine, c.id())
		testkit.Equal(t, late.Stats(), (Stats{}), "two servers follow it")
		// What ended at one server is known to the others.
		d := b.start(workflow(t, "v", false, script{answer: source.Answer{Output: json.RawMessage(`2`)}}), `{}`)
		d.wait()
		if r := mustStatus(t, late.Engine, d.id()); r.State != Completed || string(r.Result) != `2` {
			t.Errorf("%+v", r)
		}
	})
}
