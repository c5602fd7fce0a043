package remote

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"deepwork/catalog/source"
)

// TestWhoLeavesWaitsForNoRun: and the run goes on.
func TestWhoLeavesWaitsForNoRun(t *testing.T) {
	for name, async := range map[string]bool{"async": true, "sync": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPlant()
				s := open(t, newRoot(t), p, nil)
				w := workflow(t, "w", async, script{lasts: time.Minute, answer: source.Answer{Output: json.RawMessage(`1`)}})
				enough := errors.New("enough")
				leaving, leave := context.WithCancelCause(t.Context())
				time.AfterFunc(10*time.Second, func() { leave(enough) })
				began := time.Now()
				var id string
				_, err := s.call(WithLeaving(t.Context(), leaving), "me", w, json.RawMessage(`{}`), func(r Run) { id = r.ExecutionID })
				if took := time.Since(began); !errors.Is(err, enough) || took != 10*time.Second {
					t.Fatalf("%v after %v", err, took)
				}
				if r := mustStatus(t, s.Engine, id); r.State != Running {
					t.Errorf("%+v", r)
				}
				// Who comes after that is told as well which run it has begun.
				id = ""
				if _, err := s.call(WithLeaving(t.Context(), leaving), "me", w, json.RawMessage(`{}`), func(r Run) { id = r.ExecutionID }); !errors.Is(err, enough) || id == "" {
					t.Errorf("%v, run %q", err, id)
				}
				time.Sleep(time.Minute + 3*time.Second)
				if r := mustStatus(t, s.Engine, id); r.State != Completed || string(r.Result) != `1` {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}
