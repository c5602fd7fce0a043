package transport

import (
	"context"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
	"deepwork/transport/web"
)

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
	got := make(chan session.Caller, 1)
	s, _ := fakeServer(t, callerAgent(got), withHTTP(nil))
	file, token := tokens(t, "ann")
	check := func(name string, want session.Caller) {
		t.Helper()
		if c := <-got; c != want {
			t.Errorf("%s: the caller is %+v, want %+v", name, c, want)
		}
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
	s, _ := fakeServer(t, nil)
	here, there := mcp.NewInMemoryTransports()
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.mcp.Run(ctx, here) }()
	_, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), there, nil)
	if err == nil || !strings.Contains(err.Error(), "it is not known who makes this call") {
		t.Errorf("%v", err)
	}
	if n := s.conns.Len(); n != 0 {
		t.Errorf("it has %d connections", n)
	}
	cancel()
	<-ran
}
