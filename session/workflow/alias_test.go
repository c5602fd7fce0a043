package workflow

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"deepwork/actor/durable"
	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// Nobody owns a session that has ended: each server of the project answers a repeated
// call, whatever its request_id, and none writes the record.
func TestRepeatedOnSeveralServersAfterTheEnd(t *testing.T) {
	p := newProject(t)
	p.job("alpha", []testStep{{id: "a"}}, map[string]string{"main": "[a]"})
	first, second := p.open(), p.open()
	id := p.start(first.Connect("local"), "alpha", "main").BeginStep.SessionID
	finish := func(srv *server, request string) {
		t.Helper()
		r, err := srv.Connect("local").Finish(ctx, FinishArgs{Outputs: json.RawMessage("{}"), StepID: new("a"), SessionID: &id, RequestID: &request})
		if err != nil || r.Status != machine.WorkflowComplete {
			t.Fatalf("%s: %+v, %v", request, r, err)
		}
	}
	finish(first, "one")
	finish(second, "two")
	finish(first, "three")
	finish(second, "four")
	if n := len(p.record(id).Replies); n != 1 {
		t.Errorf("%d replies are kept", n)
	}
	if aside, err := filepath.Glob(filepath.Join(p.state().Tmp(), "replaced_*")); err != nil || aside != nil {
		t.Errorf("set aside: %v, %v", aside, err)
	}
}

// What is told of a session that another server has ended is on disk by then.
func TestTheEndOfAnotherServersSessionIsSettled(t *testing.T) {
	p := newProject(t)
	p.job("alpha", []testStep{{id: "a"}}, map[string]string{"main": "[a]"})
	first := p.open()
	c := first.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	testkit.Must(t, errOf(c.Abort(ctx, AbortArgs{Explanation: "enough", SessionID: &id})))
	second := p.open()
	settled := 0
	durable.Intercept = func(op durable.Op, do func() error) error {
		if op.Do == durable.OpSyncDir {
			settled++
		}
		return do()
	}
	defer func() { durable.Intercept = nil }()
	_, err := second.Connect("local").Step(ctx, StepArgs{SessionID: &id})
	refused(t, err, session.StateError, "session_ended")
	if settled == 0 {
		t.Error("the folder was not synced before the answer")
	}
}
