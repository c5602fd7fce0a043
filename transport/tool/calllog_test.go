package tool

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/workflow/machine"
)

// An atStep has one session on its stack.
type atStep struct{ WorkflowCaller }

func (atStep) StackOf(context.Context, *string) []machine.StackEntry {
	return []machine.StackEntry{{Workflow: "notes/write", SessionID: "0a1b2c3d"}}
}

// A call that hangs is in the log while it runs, once; one that ends in time has one line.
func TestSlowCallIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Log
		metrics := newMetrics()
		call := func(lasts time.Duration) string {
			before := len(log.String())
			l := &CallLog{logger: slog.New(slog.NewTextHandler(&log, nil)), metrics: &metrics, Tool: "finished_step", identity: "local", began: time.Now(), outcome: "ok"}
			l.begin(t.Context(), atStep{})
			time.Sleep(lasts)
			synctest.Wait()
			during := log.String()[before:]
			l.end(t.Context(), nil)
			time.Sleep(time.Hour)
			if all := log.String()[before:]; strings.Count(all, "\n") != strings.Count(during, "\n")+1 || !strings.Contains(all, "msg=call ") {
				t.Errorf("%s: %s", lasts, all)
			}
			return during
		}
		if got := call(slowCall - time.Millisecond); got != "" {
			t.Errorf("a call that is not slow: %s", got)
		}
		const want = `msg="call still runs" tool=finished_step caller=local session=0a1b2c3d stack=[notes/write] took_ms=10000`
		if got := call(5 * slowCall); strings.Count(got, "\n") != 1 || !strings.Contains(got, want) {
			t.Errorf("a slow call: %s", got)
		}
	})
}
