package workflow

import (
	"encoding/json"
	"path/filepath"
	"testing"

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
