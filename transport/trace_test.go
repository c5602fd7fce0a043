package transport

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/telemetry"
	"deepwork/actor/telemetry/telemetrytest"
	"deepwork/actor/testkit"
	"deepwork/session/spans"
	"deepwork/session/workflow/machine"
	"deepwork/transport/web"
)

// calling calls a tool as a span of a trace.
func calling(t *testing.T, cs *mcp.ClientSession, traceparent, name string, args map[string]any) {
	t.Helper()
	res := testkit.Get(cs.CallTool(t.Context(), &mcp.CallToolParams{Meta: mcp.Meta{"traceparent": traceparent}, Name: name, Arguments: args})).Must(t)
	testkit.Need(t, !res.IsError, "%s", text(res))
}

// A session is in the trace of the call that starts it. A later call of another trace stays in that, with a link; one
// without a trace is in the session. What is not sampled is not sent. The next server sends again what has just ended.
func TestTracesOfCalls(t *testing.T) {
	receiver := telemetrytest.New(t)
	stop := telemetry.Start(telemetry.Options{Endpoint: receiver.URL, Service: "test"})
	s, root := project(t, nil)
	cs := client(t, s)
	start := map[string]any{"goal": "canary", "job_name": "trip", "workflow_name": "dream"}
	const first, other, hidden = "4bf92f3577b34da6a3ce929d0e0e4731", "4bf92f3577b34da6a3ce929d0e0e4732", "4bf92f3577b34da6a3ce929d0e0e4733"
	calling(t, cs, "00-"+first+"-00f067aa0ba902b7-01", "start_workflow", start)
	calling(t, cs, "00-"+other+"-00f067aa0ba902b8-01", "get_step", nil)
	into[machine.FinishReply](t, cs, "finished_step", `{"outputs":{"idea":"idea.txt"}}`)
	calling(t, cs, "00-"+hidden+"-00f067aa0ba902b9-00", "start_workflow", start)
	into[machine.FinishReply](t, cs, "finished_step", `{"outputs":{"idea":"idea.txt"}}`)
	stop()
	session := telemetrytest.Span{}
	for _, s := range receiver.Spans() {
		if strings.HasPrefix(s.Name, "invoke_workflow") {
			session = s
		}
	}
	got := map[string]string{}
	for _, s := range receiver.Spans() {
		if s.Name != spans.Transaction { // on a slow machine
			got[s.Name+" in "+s.Trace] = s.Parent
		}
		testkit.True(t, s.Name != "tools/call get_step" || len(s.Links) == 1 && s.Links[0] == session.ID, "the links of a call in another trace are %v, want %s", s.Links, session.ID)
	}
	testkit.Same(t, got, map[string]string{
		"tools/call start_workflow in " + first: "00f067aa0ba902b7", "invoke_workflow trip/dream in " + first: "00f067aa0ba902b7", "step in " + first: session.ID,
		"tools/call get_step in " + other: "00f067aa0ba902b8", "tools/call finished_step in " + first: session.ID,
	})
	testkit.True(t, !strings.Contains(string(receiver.Raw()), "canary"), "the goal leaves")
	next := telemetrytest.New(t)
	stop = telemetry.Start(telemetry.Options{Endpoint: next.URL, Service: "test"})
	defer stop()
	serverOn(t, root, nil)
	waitFor(t, "the session is sent again", func() bool {
		again := next.Spans()[session.ID]
		return again.Name == session.Name && again.End == session.End
	})
}

// A workflow at a source is in the trace of the call, and so is what the source does for it.
func TestTraceOfAWorkflowAtASource(t *testing.T) {
	receiver := telemetrytest.New(t)
	stop := telemetry.Start(telemetry.Options{Endpoint: receiver.URL, Service: "test", Content: true})
	inner, _ := bareProject(t, "", asSource)
	h := overHTTP(t, inner, web.Options{})
	outer, _ := withConfig(t, "workflow_tools:\n"+fast+"  sources:\n    - {name: inner, url: \""+h.URL()+"\"}\n", nil)
	outer.names(t, "trip-dream", "trip-plan")
	cs := client(t, outer)
	var calls sync.WaitGroup
	calls.Go(func() {
		calling(t, cs, "00-4bf92f3577b34da6a3ce929d0e0e4734-00f067aa0ba902b7-01", "trip-dream", map[string]any{"goal": "canary"})
	})
	agent := dial(t, h, stateful, "")
	into[machine.FinishReply](t, agent, "finished_step", `{"session_id":"`+keptBy(t, agent)+`","step_id":"idea","outputs":{"idea":"idea.txt"}}`)
	calls.Wait()
	stop()
	all, got := receiver.Spans(), map[string]string{}
	for _, s := range all {
		if s.Trace == "4bf92f3577b34da6a3ce929d0e0e4734" && !strings.HasPrefix(s.Name, "tools/call workflows-") && s.Name != spans.Transaction {
			got[s.Name] = all[s.Parent].Name
		}
	}
	testkit.Same(t, got, map[string]string{"tools/call workflow_tool": "", "remote_workflow": "", "invoke_workflow trip/dream": "remote_workflow", "step": "invoke_workflow trip/dream", "tools/call finished_step": "invoke_workflow trip/dream"})
	testkit.True(t, strings.Contains(string(receiver.Raw()), "canary"), "the goal does not leave, although it may")
}

// A receiver that refuses, is slow or is away changes no reply, and is one warning at most.
func TestTracesWithoutAReceiver(t *testing.T) {
	release := make(chan struct{})
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer slow.Close()
	defer close(release)
	defer refuses.Close()
	s, _ := project(t, nil)
	cs := client(t, s)
	for name, url := range map[string]string{"refuses": refuses.URL, "is slow": slow.URL, "is away": "http://127.0.0.1:1"} {
		warnings := &testkit.Log{}
		stop := telemetry.Start(telemetry.Options{Endpoint: url, Service: "test", Logger: slog.New(slog.NewTextHandler(warnings, nil))})
		into[machine.StartReply](t, cs, "start_workflow", `{"goal":"g","job_name":"trip","workflow_name":"dream"}`)
		into[machine.FinishReply](t, cs, "finished_step", `{"outputs":{"idea":"idea.txt"}}`)
		stop()
		testkit.True(t, warnings.Count("\n") <= 1, "a receiver that %s: %s", name, warnings)
	}
}

// Without a receiver, tracing allocates nothing on the path of a call.
func TestNoTraces(t *testing.T) {
	ctx, from := t.Context(), telemetry.Ref{}
	testkit.Equal(t, testing.AllocsPerRun(100, func() {
		ctx, call := telemetry.Begin(ctx, from)
		ctx = telemetry.About(telemetry.Under(ctx, from), from)
		testkit.True(t, call == nil && !telemetry.Parent(ctx).IsValid() && !telemetry.Current(ctx).IsValid() && telemetry.Environment(from) == nil, "something is traced")
	}), 0, "allocations of a call for traces that nobody gets")
}
