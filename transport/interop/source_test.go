//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A session is a client of the built binary.
type session struct {
	*mcp.ClientSession
	mu       sync.Mutex
	progress []string
	changed  chan struct{} // capacity 1
}

// serveSource connects a client to the built binary, on a project with the source.
func serveSource(t *testing.T) *session {
	t.Helper()
	p := newProject(t)
	p.configure(t, sources(t))
	argv := p.command(t)
	server := exec.Command(argv[0], argv[1:]...)
	server.Stderr = t.Output()
	s := &session{changed: make(chan struct{}, 1)}
	client := mcp.NewClient(&mcp.Implementation{Name: "interop", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			select {
			case s.changed <- struct{}{}:
			default:
			}
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.progress = append(s.progress, r.Params.Message)
		},
	})
	cs := testkit.Get(client.Connect(t.Context(), &mcp.CommandTransport{Command: server, TerminateDuration: 10 * time.Second}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})).Must(t)
	t.Cleanup(func() { cs.Close() })
	s.ClientSession = cs
	return s
}

// until waits until all of these tools are listed.
func (s *session) until(t *testing.T, names ...string) map[string]*mcp.Tool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		all := map[string]*mcp.Tool{}
		for tool, err := range s.Tools(ctx, nil) {
			testkit.Must(t, err)
			all[tool.Name] = tool
		}
		if !slices.ContainsFunc(names, func(name string) bool { return all[name] == nil }) {
			return all
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			t.Fatalf("waited for %v", names)
		}
	}
}

// call calls a tool that must succeed, and returns the run's result.
func (s *session) call(t *testing.T, name, arguments string) string {
	t.Helper()
	params := &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(arguments)}
	params.SetProgressToken(name)
	res := testkit.Get(s.CallTool(t.Context(), params)).Must(t)
	var got struct {
		State  string          `json:"state"`
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal([]byte(words(res)), &got); err != nil || res.IsError || got.State != "completed" {
		t.Fatalf("%s: %s", name, words(res))
	}
	return string(got.Result)
}

func words(res *mcp.CallToolResult) string { return res.Content[0].(*mcp.TextContent).Text }

func TestSourceOfTheTypeScriptSDK(t *testing.T) {
	s := serveSource(t)
	all := s.until(t, "greet", "count", "break", "wait", "grow", "ask")
	testkit.Equal(t, all["greet"].Description, "[From the source typescript] Greets somebody", "got %+v", all["greet"])
	testkit.Equal(t, s.call(t, "greet", `{"name":"Ada"}`), `{"greeting":"Hello, Ada"}`, "greet")
	testkit.Equal(t, s.call(t, "count", `{}`), `{"counted":3}`, "count")
	s.mu.Lock()
	testkit.Contains(t, strings.Join(s.progress, "\n"), "of 3, at", "progress")
	s.mu.Unlock()
	for name, want := range map[string]string{"break": "StateError: ", "greet": "ToolError: "} {
		res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(`{}`)})
		testkit.True(t, err == nil && res.IsError && strings.HasPrefix(words(res), want), "%s: %v %v", name, res, err)
		if name == "break" && !strings.Contains(words(res), "it broke") {
			t.Errorf("%s: %s", name, words(res))
		}
	}

	// A cancelled call ends there; its execution_id is in its progress.
	ctx, cancel := context.WithCancel(t.Context())
	params := &mcp.CallToolParams{Name: "wait", Arguments: json.RawMessage(`{}`)}
	params.SetProgressToken("wait")
	ended := make(chan error, 1)
	go func() { _, err := s.CallTool(ctx, params); ended <- err }()
	id := ""
	for deadline := time.Now().Add(time.Minute); id == "" && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		s.mu.Lock()
		last := ""
		if n := len(s.progress); n > 0 {
			last = s.progress[n-1]
		}
		s.mu.Unlock()
		if strings.HasSuffix(last, "at 1") || strings.HasSuffix(last, "at 2") {
			id, _, _ = strings.Cut(strings.TrimPrefix(last, "execution_id "), ":")
		}
	}
	cancel()
	<-ended
	state := ""
	for deadline := time.Now().Add(time.Minute); state != "cancelled" && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "workflow_status", Arguments: map[string]string{"execution_id": id}})
		testkit.Need(t, err == nil && !res.IsError, "%v %v", err, res)
		var now struct{ State string }
		json.Unmarshal([]byte(words(res)), &now)
		state = now.State
	}
	testkit.Equal(t, state, "cancelled", "the run")

	// Another call cancels what a person must do there.
	if all["ask"].Description != "[From the source typescript; a person must perform the steps there] Asks somebody" {
		t.Errorf("got %+v", all["ask"])
	}
	s.mu.Lock()
	s.progress = nil
	s.mu.Unlock()
	params = &mcp.CallToolParams{Name: "ask", Arguments: json.RawMessage(`{}`)}
	params.SetProgressToken("ask")
	asked := make(chan *mcp.CallToolResult, 1)
	go func() { res, _ := s.CallTool(t.Context(), params); asked <- res }()
	id = ""
	for deadline := time.Now().Add(time.Minute); id == "" && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		s.mu.Lock()
		if len(s.progress) > 1 { // the source has it
			id, _, _ = strings.Cut(strings.TrimPrefix(s.progress[0], "execution_id "), ":")
		}
		s.mu.Unlock()
	}
	for range 2 {
		res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "cancel_execution", Arguments: map[string]string{"execution_id": id}})
		testkit.Need(t, err == nil && !res.IsError && strings.Contains(words(res), `"state":"cancelled"`) && strings.Contains(words(res), "was cancelled at its source"), "%v %v", err, res)
	}
	if res := <-asked; res == nil || !res.IsError || !strings.Contains(words(res), "was cancelled") {
		t.Errorf("the call that waited: %v", res)
	}

	// What comes later is a tool without being asked for.
	s.call(t, "grow", `{}`)
	s.until(t, "fresh")
}
