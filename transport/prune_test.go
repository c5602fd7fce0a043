package transport

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"deepwork/catalog/config"
	"deepwork/session/state"
	"deepwork/session/store/local"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
)

// Sessions that ended longer ago than sessions.keep_ended are removed beside a server that runs;
// younger and active ones stay.
func TestEndedSessionsAreRemoved(t *testing.T) {
	s, root := project(t, nil)
	cs := client(t, s)
	into[machine.StartReply](t, cs, "start_workflow", `{"goal":"ended","job_name":"trip","workflow_name":"dream"}`)
	into[machine.AbortReply](t, cs, "abort_workflow", `{"explanation":"enough"}`)
	active := into[machine.StartReply](t, cs, "start_workflow", `{"goal":"active","job_name":"trip","workflow_name":"dream"}`).BeginStep.SessionID

	folder, err := state.Find(root)
	must(t, err)
	stores := local.Stores(folder, false, slog.New(slog.DiscardHandler))
	engine, err := workflow.Open(t.Context(), workflow.Options{Root: root, State: folder, Stores: stores})
	must(t, err)
	defer func() {
		noError(t, errors.Join(notStopped(engine.Close(context.Background())), stores.Close(context.Background())))
	}()
	p := &pruner{engine, config.Open(root).Current, slog.New(slog.DiscardHandler)}
	for _, tt := range []struct {
		config string
		after  time.Duration
		left   int
	}{
		{"", 9999 * time.Hour, 2},
		{"sessions: {keep_ended: 2h}\n", time.Hour, 2},
		{"sessions: {keep_ended: 2h}\n", 3 * time.Hour, 1},
	} {
		write(t, root, map[string]string{".deepwork/config.yml": "version: \"1.0\"\n" + tt.config})
		p.prune(t.Context(), time.Now().Add(tt.after))
		left, err := engine.List(t.Context())
		if err != nil || len(left) != tt.left || left[0].ID != active {
			t.Errorf("%q after %v: %d sessions are left, %v", tt.config, tt.after, len(left), err)
		}
	}
	into[machine.AbortReply](t, cs, "abort_workflow", `{"explanation":"its definition is still there"}`)
}
