package transport

import (
	"strings"
	"testing"

	"deepwork/session/workflow/machine"
	"deepwork/transport/web"
)

// A workflow is reached from another connection by its session_id, and by its own
// caller alone; it outlives its connection. Stateless requests name it as soon as
// there is more than one.
func TestWorkflowsOfCallers(t *testing.T) {
	s, _ := project(t, nil)
	file, token := tokens(t, "ann", "bob")
	h := overHTTP(t, s, web.Options{TokenFile: file})
	const start = `{"goal":"g","job_name":"trip","workflow_name":"plan"}`
	first, second, bob := dial(t, h, stateful, token[0]), dial(t, h, stateful, token[0]), dial(t, h, stateful, token[1])
	id := into[machine.StartReply](t, first, "start_workflow", start).BeginStep.SessionID
	named := `{"session_id":"` + id + `"}`

	refusedWith(t, second, "get_step", `{}`, "StateError")
	if got := refusedWith(t, bob, "get_step", `{}`, "StateError"); strings.Contains(got, id) {
		t.Errorf("another caller is told of it: %s", got)
	}
	if res := callTool(t, bob, "get_step", named); !res.IsError {
		t.Errorf("another caller reached it: %s", text(res))
	}
	if res := callTool(t, dial(t, h, "", token[1]), "abort_workflow", `{"explanation":"e","session_id":"`+id+`"}`); !res.IsError {
		t.Errorf("another caller ended it: %s", text(res))
	}
	if got := into[machine.StepReply](t, second, "get_step", named); got.BeginStep.StepID != "idea" {
		t.Errorf("on its caller's other connection: %+v", got)
	}
	must(t, first.Close())
	must(t, second.Close())

	stateless := dial(t, h, "", token[0])
	if got := into[machine.StepReply](t, stateless, "get_step", `{}`); got.BeginStep.SessionID != id {
		t.Errorf("the only one: %+v", got)
	}
	other := into[machine.StartReply](t, stateless, "start_workflow", start).BeginStep.SessionID
	if got := refusedWith(t, stateless, "get_step", `{}`, "StateError"); !strings.Contains(got, id) || !strings.Contains(got, other) || !strings.Contains(got, "session_id") {
		t.Error(got)
	}
	if got := into[machine.StepReply](t, stateless, "get_step", named); got.BeginStep.SessionID != id {
		t.Errorf("named: %+v", got)
	}
}
