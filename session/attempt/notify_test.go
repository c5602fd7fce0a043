package attempt

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/state"
)

// Each item is notified once, by any number of servers, also of a later one; a failure that comes
// again is new. A command that fails or hangs is logged once, and holds nothing up.
func TestNotify(t *testing.T) {
	p := newProject(t)
	got := filepath.Join(t.TempDir(), "got")
	use := func(script string) {
		p.Configure(func(c *config.Config) { c.Notify = []string{"sh", "-c", script, "sh", got} })
	}
	use(`cat >> "$1"; pwd >> "$1.dir"`)
	soon := time.Now().Add(time.Hour)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	change := func(o *Options) {
		o.Logger = logger
		o.Steps = func(context.Context, session.Caller, []string) ([]session.AwaitingStep, error) {
			return []session.AwaitingStep{{SessionID: "0a1b2c3d", Step: "write", Goal: "A report", Since: soon}}, nil
		}
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
			if data, _ = os.ReadFile(state.Of(p.Root).Notified()); !strings.Contains(string(data), last.Kind+" "+last.ID+" "+deref(last.Since)) {
				return fmt.Sprintf("%+v is not in %s", last, data)
			}
			return ""
		})
		return last
	}
	s := p.open(change)
	want := []string{"step_waits 0a1b2c3d"}
	if n := notified(want...); n.Project != p.Root || n.Title != "Step write: A report" || deref(n.Since) != board.Stamp(soon) || !strings.HasPrefix(n.Command, "deepwork sessions override 0a1b2c3d write") {
		t.Errorf("%+v", n)
	}
	beside := p.open(change)
	v := s.newTask("! exit 3")
	x := s.ends(s.begin(v).AttemptID)
	want = append(want, "attempt_failed "+x.AttemptID)
	if n := notified(want...); n.Title != v.Title || deref(n.Since) != *x.EndedAt {
		t.Errorf("%+v", n)
	}
	if dir, err := os.ReadFile(got + ".dir"); err != nil || strings.Contains(string(dir), p.Root) {
		t.Errorf("it ran in %s, %v", dir, err)
	}
	s.stop()
	beside.stop()

	use(`cat >> "$1"; echo broken >&2; exit 3`)
	s = p.open(change) // repeats nothing
	_, err := s.FollowUp(ctx, me, FollowUpArgs{Target: board.Target{AttemptID: &x.AttemptID}, Action: ActionSend, Prompt: new("! exit 4")})
	must(t, err)
	s.reaches(x.AttemptID, "running", "failed")
	s.ends(x.AttemptID)
	want = append(want, "attempt_failed "+x.AttemptID)
	notified(want...)
	w := s.newTask("! say done")
	y := s.ends(s.begin(w).AttemptID)
	want = append(want, "attempt_to_review "+y.AttemptID)
	notified(want...)
	use(`echo >> "$1.hangs"; trap "" TERM; sleep 1000 & wait; sleep 1000`)
	z := s.ends(s.begin(s.newTask("! exit 5")).AttemptID)
	testkit.Eventually(t, func() string {
		if _, err := os.Stat(got + ".hangs"); err != nil {
			return err.Error()
		}
		return ""
	})
	if r, err := s.NeedsAttention(ctx, me); err != nil || len(r.Items) != 4 {
		t.Errorf("%+v, %v", r, err)
	}
	s.stop() // ends it
	if n := strings.Count(log.String(), "the command of notify failed"); n != 2 || !strings.Contains(log.String(), "broken") {
		t.Errorf("%d failures were logged:\n%s", n, log.String())
	}
	use(`cat >> "$1"`)
	p.open(change) // what was cut short is notified of again
	notified(append(want, "attempt_failed "+z.AttemptID)...)
}
