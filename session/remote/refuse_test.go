package remote

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/source"
	"deepwork/session"
)

// TestWhoMayHaveHadItDoneIsToldToLookFirst: nothing is called again that may have been
// carried out, and what was certainly not is not looked for.
func TestWhoMayHaveHadItDoneIsToldToLookFirst(t *testing.T) {
	running := func(string) (*source.Answer, error) { return &source.Answer{State: source.Running}, nil }
	failing := func(string) (*source.Answer, error) {
		return &source.Answer{State: source.Failed, Error: "too late"}, nil
	}
	for name, c := range map[string]struct {
		does   script
		async  bool
		limit  time.Duration
		change func(*plant)
		cancel bool // by its caller
		stop   bool // the server
		code   string
		look   bool
		says   string
	}{
		"its source refused it":       {script{err: &source.RefusedError{Text: "no ink"}}, false, 0, nil, false, false, "workflow_failed", false, "failed: no ink. Correct that and call again"},
		"an answer that is null":      {script{err: &source.RefusedError{Text: "its answer is not what MCP asks of a tool's: it is null; expected an object", Garbled: true}}, false, 0, nil, false, false, "workflow_failed", true, "it is null"},
		"neither a status nor an id":  {script{accepted: &source.Answer{}}, true, 0, nil, false, false, "workflow_failed", true, "executionType: sync"},
		"another error":               {script{err: errors.New("odd")}, false, 0, nil, false, false, "workflow_failed", true, "odd"},
		"nothing was sent":            {script{err: source.ErrAway}, false, 0, nil, false, false, "source_away", false, "Call again when the source can be reached"},
		"the connection was lost":     {script{err: fmt.Errorf("%w: %w", source.ErrAway, source.ErrLost)}, false, 0, nil, false, false, "workflow_unknown", true, "not known"},
		"a sync one in time out":      {script{lasts: time.Hour}, false, time.Minute, nil, false, false, "workflow_timed_out", true, "raise workflow_tools.execution_timeout in"},
		"it was cancelled in time":    {script{lasts: time.Hour}, true, time.Minute, nil, false, false, "workflow_timed_out", false, "raise workflow_tools.execution_timeout in"},
		"it cannot be cancelled":      {script{lasts: time.Hour}, true, time.Minute, func(p *plant) { p.cancels = false }, false, false, "workflow_timed_out", true, "no cancel tool"},
		"it still runs":               {script{lasts: time.Hour}, true, time.Minute, func(p *plant) { p.onCancel = running }, false, false, "workflow_timed_out", true, "still runs there"},
		"it failed to be cancelled":   {script{lasts: time.Hour}, true, 0, func(p *plant) { p.onCancel = failing }, true, false, "workflow_cancelled", true, "too late"},
		"cancelling is broken":        {script{lasts: time.Hour}, true, 0, func(p *plant) { p.onCancel = func(string) (*source.Answer, error) { return nil, errors.New("odd") } }, true, false, "workflow_cancelled", true, "odd"},
		"its caller cancelled it":     {script{lasts: time.Hour}, true, 0, nil, true, false, "workflow_cancelled", false, "Call again if it is still needed"},
		"a sync one is cancelled":     {script{lasts: time.Hour}, false, 0, nil, true, false, "workflow_cancelled", true, "was told that the request is cancelled"},
		"a sync one as the end comes": {script{lasts: time.Hour}, false, 0, nil, false, true, "shutting_down", true, "not known"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPlant()
				if c.change != nil {
					c.change(p)
				}
				s := open(t, newRoot(t), p, func(w *config.WorkflowTools) { w.ExecutionTimeout = new(c.limit) })
				call := s.start(workflow(t, "w", c.async, c.does), `{}`)
				synctest.Wait()
				if c.cancel {
					call.cancel(ErrCancelled)
				}
				if c.stop {
					s.stop()
				}
				_, err := call.wait()
				wantCode(t, err, session.StateError, c.code, c.says)
				if looks := strings.Contains(err.Error(), seeFirst); looks != c.look {
					t.Errorf("it is told to look first: %v: %v", looks, err)
				}
				if again := strings.Contains(err.Error(), "and call again") || strings.Contains(err.Error(), "Call again"); again && c.look {
					t.Errorf("it is told to call again: %v", err)
				}
			})
		})
	}
}

// TestTheTimeoutThatCountsIsNamed: raising another one would be of no use.
func TestTheTimeoutThatCountsIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, newRoot(t), newPlant(), func(w *config.WorkflowTools) {
			w.ExecutionTimeout = new(time.Hour)
			w.Sources = []config.WorkflowSource{{Name: "plant", ExecutionTimeout: new(time.Second)}}
		})
		e := s.start(workflow(t, "w", true, script{lasts: time.Minute}), `{}`).over(TimedOut, "workflow_timed_out")
		if !strings.Contains(e.Message, "raise workflow_tools.sources[plant].execution_timeout in .deepwork/config.yml") {
			t.Error(e)
		}
	})
}
