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

type session struct {
	*mcp.ClientSession
	mu       sync.Mutex
	progress []string
	changed  chan struct{} // capacity 1
}

func connect(t *testing.T, over mcp.Transport) *session {
	t.Helper()
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
	s.ClientSession = testkit.Get(client.Connect(t.Context(), over, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})).Must(t)
	t.Cleanup(func() { s.Close() })
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

func (s *session) call(ctx context.Context, name, arguments string) (*mcp.CallToolResult, error) {
	params := &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(arguments)}
	params.SetProgressToken(name)
	return s.CallTool(ctx, params)
}

// gives calls a tool that must succeed, and returns the run's result.
func (s *session) gives(t *testing.T, name, arguments string) string {
	t.Helper()
	res := testkit.Get(s.call(t.Context(), name, arguments)).Must(t)
	var got struct {
		State  string          `json:"state"`
		Result json.RawMessage `json:"result"`
	}
	testkit.Must(t, json.Unmarshal([]byte(words(res)), &got))
	testkit.Need(t, !res.IsError && got.State == "completed", "%s: %s", name, words(res))
	return string(got.Result)
}

// running waits for the progress of a call that its source has, and returns its execution_id.
func (s *session) running(t *testing.T, name string) (id string) {
	t.Helper()
	testkit.Until(t, name+" runs at its source", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := len(s.progress); n > 1 { // the first is before the source has it
			id, _, _ = strings.Cut(strings.TrimPrefix(s.progress[n-1], "execution_id "), ":")
		}
		return id != ""
	})
	return id
}

func words(res *mcp.CallToolResult) string { return res.Content[0].(*mcp.TextContent).Text }

func TestSourceOfTheTypeScriptSDK(t *testing.T) {
	p := newProject(t)
	p.configure(t, sources(t))
	argv := p.command(t)
	server := exec.Command(argv[0], argv[1:]...)
	server.Stderr = t.Output()
	s := connect(t, &mcp.CommandTransport{Command: server, TerminateDuration: 10 * time.Second})
	all := s.until(t, "greet", "count", "break", "wait", "grow", "ask")
	testkit.Equal(t, all["greet"].Description, "[From the source typescript] Greets somebody")
	testkit.Equal(t, all["ask"].Description, "[From the source typescript; a person must perform the steps there] Asks somebody")
	testkit.Equal(t, s.gives(t, "greet", `{"name":"Ada"}`), `{"greeting":"Hello, Ada"}`, "greet")
	testkit.Equal(t, s.gives(t, "count", `{}`), `{"counted":3}`, "count")
	s.mu.Lock()
	testkit.Contains(t, strings.Join(s.progress, "\n"), "of 3, at", "progress")
	s.progress = nil
	s.mu.Unlock()
	for name, wants := range map[string][]string{"break": {"StateError: ", "it broke"}, "greet": {"ToolError: "}} {
		res := testkit.Get(s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(`{}`)})).Must(t)
		testkit.ContainsAll(t, words(res), wants, "%s", name)
		testkit.True(t, res.IsError, "%s is no error", name)
	}

	// A cancelled call ends there; its execution_id is in its progress.
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan *mcp.CallToolResult, 1)
	go func() { res, _ := s.call(ctx, "wait", `{}`); ended <- res }()
	id := s.running(t, "wait")
	cancel()
	<-ended
	testkit.Until(t, "the run is cancelled", func() bool {
		res := testkit.Get(s.CallTool(t.Context(), &mcp.CallToolParams{Name: "workflow_status", Arguments: map[string]string{"execution_id": id}})).Must(t)
		testkit.Need(t, !res.IsError, "%s", words(res))
		return strings.Contains(words(res), `"state":"cancelled"`)
	})

	// Another call cancels what a person must do there.
	s.mu.Lock()
	s.progress = nil
	s.mu.Unlock()
	go func() { res, _ := s.call(t.Context(), "ask", `{}`); ended <- res }()
	id = s.running(t, "ask")
	for range 2 {
		res := testkit.Get(s.CallTool(t.Context(), &mcp.CallToolParams{Name: "cancel_execution", Arguments: map[string]string{"execution_id": id}})).Must(t)
		testkit.Need(t, !res.IsError && strings.Contains(words(res), `"state":"cancelled"`) && strings.Contains(words(res), "was cancelled at its source"), "%s", words(res))
	}
	res := <-ended
	testkit.True(t, res != nil && res.IsError && strings.Contains(words(res), "was cancelled"), "the call that waited: %v", res)

	// What comes later is a tool without being asked for.
	s.gives(t, "grow", `{}`)
	s.until(t, "fresh")
}
