package transport

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
	"deepwork/transport/web"
)

// Tokens of the user's config count as those of the file do, also on loopback, as long
// as they are there.
func TestTokensOfTheConfig(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	s, _ := project(t, nil)
	h := overHTTP(t, s, web.Options{})
	old := dial(t, h, stateful, "")
	callTool(t, old, "get_workflows", `{}`)
	token, line, err := web.NewToken(config.Token{Name: "ann"})
	must(t, err)
	hash := line[len("ann:"):]
	write(t, os.Getenv("XDG_CONFIG_HOME"), map[string]string{"deepwork/config.yml": "http: {tokens: [{name: ann, sha256: " + hash + "}]}\n"})
	send(t, httpClient(t, ""), "POST", h.URL(), initialize).is(t, 401)
	c := httpClient(t, token)
	open(t, c, h)
	// The session that was there before is nobody's any more.
	send(t, c, "POST", h.URL(), `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id: "+old.ID()).is(t, 404)
}

// A workflow is reached from another connection by its session_id, and by its own
// caller alone; it outlives its connection. Stateless requests name it as soon as
// there is more than one.
func TestWorkflowsOfCallers(t *testing.T) {
	t.Parallel()
	s, _ := project(t, nil)
	file, token := tokens(t, "ann", "bob")
	h := overHTTP(t, s, web.Options{TokenFile: file})
	const start = `{"goal":"g","job_name":"trip","workflow_name":"plan"}`
	first, second, bob := dial(t, h, stateful, token[0]), dial(t, h, stateful, token[0]), dial(t, h, stateful, token[1])
	stateless := dial(t, h, "", token[0])
	id := into[machine.StartReply](t, stateless, "start_workflow", start).BeginStep.SessionID
	named := `{"session_id":"` + id + `"}`
	into[machine.StepReply](t, first, "get_step", named)

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

	testkit.Equal(t, into[machine.StepReply](t, stateless, "get_step", `{}`).BeginStep.SessionID, id, "the only one")
	other := into[machine.StartReply](t, stateless, "start_workflow", start).BeginStep.SessionID
	testkit.ContainsAll(t, refusedWith(t, stateless, "get_step", `{}`, "StateError"), []string{id, other, "session_id"})
	testkit.Equal(t, into[machine.StepReply](t, stateless, "get_step", named).BeginStep.SessionID, id, "named")
}

// callerAgent makes agents whose calls of start_workflow send their caller.
func callerAgent(got chan<- session.Caller) func(*fakeAgent) {
	return func(a *fakeAgent) {
		a.start = func(ctx context.Context, _ workflow.StartArgs) (*machine.StartReply, error) {
			got <- session.CallerOf(ctx)
			return &machine.StartReply{BeginStep: fullStep("a"), Stack: a.stack}, nil
		}
	}
}

const anyStart = `{"goal":"g","job_name":"j","workflow_name":"w"}`

// The context of a call has its caller, over each transport.
func TestEachCallHasItsCaller(t *testing.T) {
	t.Parallel()
	got := make(chan session.Caller, 1)
	s, _ := fakeServer(t, callerAgent(got), withHTTP(nil))
	file, token := tokens(t, "ann")
	check := func(name string, want session.Caller) {
		t.Helper()
		testkit.Equal(t, <-got, want, "%s: the caller", name)
	}
	cs, stop, served := onStdio(t, s)
	callTool(t, cs, "start_workflow", anyStart)
	check("stdio", session.LocalCaller(session.ChannelStdio))
	stop()
	<-served
	for name, o := range map[string]web.Options{"http": {}, "sse": {Transport: web.SSE}} {
		for _, version := range []string{stateful, ""} {
			callTool(t, dial(t, overHTTP(t, s, o), version, ""), "start_workflow", anyStart)
			check(name+version, session.LocalCaller(name))
			o := o
			o.TokenFile = file
			callTool(t, dial(t, overHTTP(t, s, o), version, token[0]), "start_workflow", anyStart)
			check(name+version+" with a token", session.Caller{Identity: "ann", Channel: name})
		}
	}
}

// A call of nobody knows whom is not one of the user: it is refused.
func TestACallWithoutACallerIsRefused(t *testing.T) {
	t.Parallel()
	s, _ := fakeServer(t, nil)
	here, there := mcp.NewInMemoryTransports()
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.mcp.Run(ctx, here) }()
	_, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), there, nil)
	testkit.Fails(t, err, "it is not known who makes this call")
	testkit.Equal(t, s.conns.Len(), 0, "connections")
	cancel()
	<-ran
}
