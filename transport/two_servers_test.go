package transport

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session/workflow/machine"
	"deepwork/transport/web"
)

// alternating are clients of two servers of one project. Each call goes to the other one than the call before,
// as behind a load balancer.
type alternating struct {
	t       *testing.T
	clients [2]*mcp.ClientSession
	calls   int
}

func (a *alternating) next() *mcp.ClientSession {
	a.calls++
	return a.clients[a.calls%2]
}

// twoServers serves a project by two servers over HTTP.
func twoServers(t *testing.T) (connect func(version string) *alternating, root string) {
	first, root := project(t, nil)
	second := made(t, Options{ProjectRoot: root, StandardJobs: fstest.MapFS{}})
	at := [2]*web.Server{overHTTP(t, first, web.Options{}), overHTTP(t, second, web.Options{})}
	return func(version string) *alternating {
		return &alternating{t: t, clients: [2]*mcp.ClientSession{dial(t, at[0], version, ""), dial(t, at[1], version, "")}}
	}, root
}

// Any server of the project serves any session at any time: no call is refused that one server alone would not
// have refused, and a repeated call gets its reply from the other one.
func TestCallsThroughTwoServersInTurn(t *testing.T) {
	connect, _ := twoServers(t)
	for _, version := range []string{"", stateful} {
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() { planThrough(connect(version), fmt.Sprint(version, n)) })
		}
		all.Wait()
	}
}

// planThrough does a workflow with a group and a nested workflow, and makes each call twice.
func planThrough(a *alternating, name string) {
	t := a.t
	request := 0
	// twice makes a call with a request_id at one server and again at the other.
	twice := func(tool, args string) (r *machine.FinishReply) {
		request++
		args = fmt.Sprintf(`{"request_id":"%s %d",%s}`, name, request, args)
		r = into[machine.FinishReply](t, a.next(), tool, args)
		again := into[machine.FinishReply](t, a.next(), tool, args)
		r.Stack, again.Stack = nil, nil // as it is then
		if !reflect.DeepEqual(r, again) {
			t.Errorf("%s(%s) of %s: %s, and again %s", tool, args, name, asJSON(r), asJSON(again))
		}
		return r
	}
	outer := twice("start_workflow", `"goal":"g","job_name":"trip","workflow_name":"plan"`).BeginStep.SessionID
	inner := twice("start_workflow", `"goal":"g","job_name":"trip","workflow_name":"dream","parent_session_id":"`+outer+`"`).BeginStep.SessionID
	if r := twice("finished_step", `"session_id":"`+inner+`","step_id":"idea","outputs":{"idea":"idea.txt"}`); r.Status != machine.WorkflowComplete {
		t.Errorf("%s: %s", name, asJSON(r))
	}
	named := `"session_id":"` + outer + `",`
	twice("finished_step", named+`"step_id":"idea","outputs":{"idea":"idea.txt"}`)
	twice("finished_step", named+`"step_id":"train","outputs":{}`)
	if at := into[machine.StepReply](t, a.next(), "get_step", `{"session_id":"`+outer+`"}`); len(at.PendingConcurrentSteps) != 1 || at.PendingConcurrentSteps[0] != "hotel" {
		t.Errorf("%s: %s", name, asJSON(at))
	}
	twice("finished_step", named+`"step_id":"hotel","outputs":{"hotels":["h1.txt"]}`)
	twice("go_to_step", named+`"step_id":"hotel"`)
	twice("finished_step", named+`"step_id":"hotel","outputs":{"hotels":["h1.txt"]}`)
	if r := twice("finished_step", named+`"step_id":"booking","outputs":{}`); r.Status != machine.WorkflowComplete {
		t.Errorf("%s: %s", name, asJSON(r))
	}
}

func asJSON(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

// Calls about one session that come to two servers at once take effect one after the other.
func TestCallsAtTwoServersAtOnce(t *testing.T) {
	connect, _ := twoServers(t)
	a := connect("")
	for range 10 {
		id := into[machine.StartReply](t, a.next(), "start_workflow", planTrip).BeginStep.SessionID
		into[machine.FinishReply](t, a.next(), "finished_step", `{"session_id":"`+id+`","outputs":{"idea":"idea.txt"}}`)
		var both sync.WaitGroup
		for i, args := range []string{`"step_id":"train","outputs":{}`, `"step_id":"hotel","outputs":{"hotels":["h1.txt"]}`} {
			both.Go(func() {
				into[machine.FinishReply](t, a.clients[i], "finished_step", `{"session_id":"`+id+`",`+args+`}`)
			})
		}
		both.Wait()
		if at := into[machine.StepReply](t, a.next(), "get_step", `{"session_id":"`+id+`"}`); at.BeginStep.StepID != "booking" {
			t.Errorf("it is at %s", asJSON(at))
		}
	}
}

// The file of a session is an export: editing, damaging and removing it change nothing, and the next call
// writes it again.
func TestTheFileOfASessionIsAnExport(t *testing.T) {
	s, root := project(t, nil)
	cs := client(t, s)
	id := into[machine.StartReply](t, cs, "start_workflow", planTrip).BeginStep.SessionID
	file := filepath.Join(root, ".deepwork", "tmp", "session_"+id+".json")
	as := func() string {
		data, err := os.ReadFile(file)
		must(t, err)
		return string(data)
	}
	first := as()
	for _, text := range []string{"", "{}", first[:len(first)/2], `{"session_id": "` + id + `", "status": "completed"}`} {
		must(t, os.WriteFile(file, []byte(text), 0o600))
		if at := into[machine.StepReply](t, cs, "get_step", `{"session_id":"`+id+`"}`); at.BeginStep.StepID != "idea" {
			t.Errorf("with %.20q it is at %s", text, at.BeginStep.StepID)
		}
	}
	into[machine.FinishReply](t, cs, "finished_step", `{"outputs":{"idea":"idea.txt"}}`)
	second := as()
	if !json.Valid([]byte(second)) || second == first {
		t.Errorf("the file is %s", second)
	}
	must(t, os.WriteFile(file, []byte(first), 0o600)) // put back
	into[machine.FinishReply](t, cs, "finished_step", `{"step_id":"train","outputs":{}}`)
	must(t, os.Remove(file))
	into[machine.FinishReply](t, cs, "finished_step", `{"step_id":"hotel","outputs":{"hotels":["h1.txt"]}}`)
	if r := into[machine.FinishReply](t, cs, "finished_step", `{"outputs":{}}`); r.Status != machine.WorkflowComplete {
		t.Errorf("%s", asJSON(r))
	}
	var end struct{ Status string }
	must(t, json.Unmarshal([]byte(as()), &end))
	if end.Status != "completed" {
		t.Errorf("the file says %q", end.Status)
	}
}
