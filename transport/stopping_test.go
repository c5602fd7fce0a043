package transport

import (
	"fmt"
	"testing"

	"deepwork/session/workflow/machine"
	"deepwork/transport/web"
)

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
