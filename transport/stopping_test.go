package transport

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"deepwork/session/workflow/machine"
	"deepwork/transport/web"
)

// A connection that closes writes nothing, and its sessions can be resumed at once. The end of the server
// leaves a session as its last transition left it.
func TestTheEndWritesNoSession(t *testing.T) {
	s, root := project(t, nil)
	cs, other := client(t, s), client(t, s)
	const start = `{"goal":"g","job_name":"trip","workflow_name":"plan"}`
	record := func(id string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(root, ".deepwork", "tmp", "session_"+id+".json"))
		must(t, err)
		return string(data)
	}
	freed := into[machine.StartReply](t, other, "start_workflow", start).BeginStep.SessionID
	before := record(freed)
	resumable := func() (ids []string) {
		for _, r := range into[machine.WorkflowsReply](t, cs, "get_workflows", `{}`).Resumable {
			ids = append(ids, r.SessionID)
		}
		return ids
	}
	if ids := resumable(); len(ids) != 0 {
		t.Errorf("%v can be resumed while their connection is open", ids)
	}
	must(t, other.Close())
	waitFor(t, "the session of a closed connection can be resumed", func() bool { return slices.Equal(resumable(), []string{freed}) })
	if after := record(freed); after != before {
		t.Errorf("the end of a connection wrote the session:\n%s\nwas\n%s", after, before)
	}
	id := into[machine.StartReply](t, cs, "start_workflow", start).BeginStep.SessionID
	before = record(id)
	must(t, s.Close(t.Context()))
	if after := record(id); after != before {
		t.Errorf("the end wrote the session:\n%s\nwas\n%s", after, before)
	}
}

// The log line of a stateless call has the stack that the call is about.
func TestStatelessCallsAreLoggedWithTheirStack(t *testing.T) {
	logger, log := logged()
	s, _ := project(t, func(o *Options) { o.Logger = logger })
	cs := dial(t, overHTTP(t, s, web.Options{}), "", "")
	start := `{"goal":"g","job_name":"trip","workflow_name":"plan"%s}`
	outer := into[machine.StartReply](t, cs, "start_workflow", fmt.Sprintf(start, "")).BeginStep.SessionID
	inner := into[machine.StartReply](t, cs, "start_workflow", fmt.Sprintf(start, `,"parent_session_id":"`+outer+`"`)).BeginStep.SessionID
	into[machine.StepReply](t, cs, "get_step", `{"session_id":"`+inner+`"}`)
	lines := log.lines(t, "call")
	if lines[0]["session"] != outer || lines[1]["session"] != inner { // of the sessions that they started
		t.Errorf("logged: %v", lines[:2])
	}
	last := lines[len(lines)-1]
	if last["session"] != inner || fmt.Sprint(last["stack"]) != "[trip/plan trip/plan]" {
		t.Errorf("logged: %v", last)
	}
}
