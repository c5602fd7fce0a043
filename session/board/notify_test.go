package board

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store"
)

// Each item is notified once, by any number of servers, also of a later one; a failure that comes
// again is new. A command that fails or hangs is logged once, and holds nothing up.
func TestNotify(t *testing.T) {
	t.Parallel()
	p, got := newProject(t), filepath.Join(t.TempDir(), "got")
	use := func(script string) {
		p.Configure(func(c *config.Config) { c.Notify = []string{"sh", "-c", script, "sh", got} })
	}
	use(`cat >> "$1"; pwd >> "$1.dir"`)
	soon := time.Now().Add(time.Hour)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	open := func() (*server, func()) {
		s := p.open(func(o *Options) {
			o.Logger = logger
			o.Steps = func(context.Context, session.Caller, []string) ([]session.AwaitingStep, error) {
				return []session.AwaitingStep{{SessionID: "0a1b2c3d", Step: "write", Goal: "A report", Since: soon}}, nil
			}
		})
		ctx, cancel := context.WithCancel(ctx)
		var notifying sync.WaitGroup
		notifying.Go(func() { s.Notify(ctx) })
		stop := sync.OnceFunc(func() { cancel(); notifying.Wait(); s.stop() })
		t.Cleanup(stop)
		return s, stop
	}
	notified := func(want ...string) (last Notification) {
		t.Helper()
		testkit.Eventually(t, func() string {
			data, _ := os.ReadFile(got)
			var all []string
			for line := range strings.Lines(string(data)) {
				if err := json.Unmarshal([]byte(line), &last); err != nil {
					return fmt.Sprintf("%v: %s", err, data)
				}
				all = append(all, last.Kind+" "+last.ID)
			}
			if fmt.Sprint(all) != fmt.Sprint(want) {
				return fmt.Sprintf("notified of %v, want %v", all, want)
			}
			if data, _ = os.ReadFile(state.Of(p.Root).Notified()); !strings.Contains(string(data), last.Kind+" "+last.ID+" "+OrEmpty(last.Since)) {
				return fmt.Sprintf("%+v is not in %s", last, data)
			}
			return ""
		})
		return last
	}
	s, stop := open()
	want := []string{"step_waits 0a1b2c3d"}
	n := notified(want...)
	testkit.True(t, n.Project == p.Root && n.Title == "Step write: A report" && OrEmpty(n.Since) == Stamp(soon) && strings.HasPrefix(n.Command, "deepwork sessions override 0a1b2c3d write"), "%+v", n)
	_, stopOther := open()
	v := s.newTask()
	x := s.attempt(v, task.Failed, nil)
	want = append(want, "attempt_failed "+x.ID)
	n = notified(want...)
	testkit.Equal(t, n.Title, "Add a basket")
	dir := testkit.Get(os.ReadFile(got + ".dir")).Must(t)
	testkit.True(t, !strings.Contains(string(dir), p.Root), "it ran in %s", dir)
	stop()
	stopOther()
	use(`cat >> "$1"; echo broken >&2; exit 3`)
	s, stop = open() // repeats nothing
	latest := testkit.Get(testkit.Get(s.Store(ctx)).Must(t).Task(ctx, v.TaskID)).Must(t).LatestSessionID
	testkit.Get(testkit.Get(s.Store(ctx)).Must(t).AddExecution(ctx, *latest, "p", nil, task.Request{})).Must(t)
	s.brings(task.Failed)
	want = append(want, "attempt_failed "+x.ID)
	notified(want...)
	want = append(want, "attempt_to_review "+s.attempt(s.newTask(), task.Completed, nil).ID)
	notified(want...)
	use(`echo >> "$1.hangs"; trap "" TERM; sleep 1000 & wait; sleep 1000`)
	z := s.attempt(s.newTask(), task.Failed, nil)
	testkit.Until(t, "the command to hang", func() bool { return exists(got + ".hangs") })
	testkit.Equal(t, len(testkit.Get(s.NeedsAttention(ctx, me)).Must(t).Items), 4)
	stop() // ends it
	failures := strings.Count(log.String(), "the command of notify failed")
	testkit.True(t, failures == 2 && strings.Contains(log.String(), "broken"), "%d failures were logged:\n%s", failures, log.String())
	use(`cat >> "$1"`)
	s, _ = open() // what was cut short is notified of again
	want = append(want, "attempt_failed "+z.ID)
	notified(want...)
	// Each question of a source, also if no look is between two.
	for _, asks := range []string{"Which city?", "Which day?"} {
		x := store.RemoteRun{ID: nobody, Owner: "0011223344556677", Source: "trips", State: store.RemoteRunning, StatusSupported: true, SourceExecutionID: new("7"), StartedAt: soon}
		x.Progress = json.RawMessage(`{"asks":"` + asks + `"}`)
		must(t, s.Database.RemoteRuns().Save(ctx, &x, time.Hour))
		want = append(want, "source_asks "+nobody)
		notified(want...)
	}
}
