package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/source"
	"deepwork/session"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A system is a real MCP server that offers workflows over streamable HTTP:
// "add", which is synchronous, "count", which runs until it is told to end, and
// "hang", which is synchronous and ends with its request.
type system struct {
	*httptest.Server
	mu        sync.Mutex
	counting  map[string]string // status by run id
	cancelled chan string       // run ids, and "hang"; capacity 10
}

const offered = `{"workflows":[
 {"id":"w-add","name":"add","description":"adds","executionType":"sync","inputSchema":{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}},"required":["a","b"]}},
 {"id":"w-hang","name":"hang","description":"hangs","executionType":"sync"},
 {"id":"w-count","name":"count","description":"counts","executionType":"async"}]}`

func text(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

func newSystem(t testing.TB) *system {
	s := &system{counting: map[string]string{}, cancelled: make(chan string, 10)}
	srv := mcp.NewServer(&mcp.Implementation{Name: "system", Version: "1"}, nil)
	add := func(name string, h func(ctx context.Context, req *mcp.CallToolRequest, workflow, execution string, input json.RawMessage) (*mcp.CallToolResult, error)) {
		srv.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var in struct {
				WorkflowID  string          `json:"workflow_id"`
				ExecutionID string          `json:"execution_id"`
				Input       json.RawMessage `json:"input"`
			}
			if err := json.Unmarshal(req.Params.Arguments, &in); err != nil {
				return nil, err
			}
			return h(ctx, req, in.WorkflowID, in.ExecutionID, in.Input)
		})
	}
	add("workflows-list-tool", func(context.Context, *mcp.CallToolRequest, string, string, json.RawMessage) (*mcp.CallToolResult, error) {
		return text(offered), nil
	})
	add("workflows-execute-tool", func(ctx context.Context, req *mcp.CallToolRequest, workflow, _ string, input json.RawMessage) (*mcp.CallToolResult, error) {
		switch workflow {
		case "w-add":
			var in struct{ A, B float64 }
			if err := json.Unmarshal(input, &in); err != nil {
				return nil, err
			}
			if in.A < 0 {
				return &mcp.CallToolResult{IsError: true, Content: text("negative numbers are not my thing").Content}, nil
			}
			return text(`{"sum": %v}`, in.A+in.B), nil
		case "w-hang":
			if token := req.Params.GetProgressToken(); token != nil {
				err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1, Total: 4, Message: "a quarter"})
				if err != nil {
					return nil, err
				}
			}
			<-ctx.Done()
			s.cancelled <- "hang"
			return nil, ctx.Err()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		id := fmt.Sprintf("e-%d", len(s.counting)+1)
		s.counting[id] = `{"status":"RUNNING","progress":{"progress":2,"total":3,"message":"two"}}`
		return text(`{"execution_id":%q,"status":"Running"}`, id), nil
	})
	add("workflows-status-tool", func(_ context.Context, _ *mcp.CallToolRequest, _, execution string, _ json.RawMessage) (*mcp.CallToolResult, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return text("%s", s.counting[execution]), nil
	})
	add("workflows-cancel-tool", func(_ context.Context, _ *mcp.CallToolRequest, _, execution string, _ json.RawMessage) (*mcp.CallToolResult, error) {
		s.cancelled <- execution
		return text(`{"status":"cancelled"}`), nil
	})
	s.Server = httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, nil))
	t.Cleanup(func() {
		s.Server.Close()
		for session := range srv.Sessions() { // of clients that could not say farewell
			session.Close()
		}
	})
	return s
}

// connect opens a catalog of the system and an engine on it.
func (s *system) connect(t testing.TB) (*server, *source.Catalog) {
	t.Helper()
	cfg := config.Default()
	cfg.WorkflowTools.Sources = []config.WorkflowSource{{
		Name: "system", URL: s.URL, ListTool: "workflows-list-tool", ExecuteTool: "workflows-execute-tool",
		StatusTool: "workflows-status-tool", CancelTool: "workflows-cancel-tool",
	}}
	cfg.WorkflowTools.StatusInterval = 10 * time.Millisecond
	root := newRoot(t)
	c := source.Open(source.Options{
		Root: root, Version: "test", Settings: func(context.Context) (*config.Config, error) { return cfg, nil },
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	srv := open(t, root, c, nil)
	srv.config.Store(cfg)
	limit := time.After(patience)
	for len(c.Snapshot().Tools) != 3 {
		select {
		case <-c.Changed():
		case <-limit:
			t.Fatalf("no tools: %+v", c.Snapshot())
		}
	}
	return srv, c
}

func tool(t testing.TB, c *source.Catalog, name string) *source.Tool {
	t.Helper()
	found := c.Snapshot().Tool(name)
	if found == nil {
		t.Fatalf("no tool %s", name)
	}
	return found
}

// TestReq003_7_1_AgainstARealServer runs workflows of an MCP server through the
// real catalog.
func TestReq003_7_1_AgainstARealServer(t *testing.T) {
	sys := newSystem(t)
	s, c := sys.connect(t)
	ctx := t.Context()

	r, err := s.Call(ctx, "me", tool(t, c, "add"), json.RawMessage(`{"a":1,"b":2}`), nil)
	if err != nil || string(r.Result) != `{"sum": 3}` || r.State != Completed || r.Source != "system" || r.WorkflowID != "w-add" {
		t.Errorf("%+v, %v", r, err)
	}
	_, err = s.Call(ctx, "me", tool(t, c, "add"), json.RawMessage(`{"a":-1,"b":2}`), nil)
	refusedAs(t, err, Failed, "workflow_failed")
	wantCode(t, err, session.StateError, "workflow_failed", "negative numbers are not my thing")

	_, before, _ := s.store.Newest(t.Context(), "me", 1)
	_, err = s.Call(ctx, "me", tool(t, c, "add"), json.RawMessage(`{"a":"one","b":2}`), nil) // seed 003, 2.5
	wantCode(t, err, session.ToolError, "invalid_arguments", "'add'", "a")
	_, err = s.Call(ctx, "me", tool(t, c, "add"), nil, nil)
	wantCode(t, err, session.ToolError, "invalid_arguments")
	if _, now, _ := s.store.Newest(t.Context(), "me", 1); now != before {
		t.Error("a call that was refused has a run")
	}

	// An asynchronous one, seen by status while it runs, and to its end.
	var told []Run
	r, err = s.Call(ctx, "me", tool(t, c, "count"), nil, func(r Run) {
		told = append(told, r)
		if r.Progress != nil {
			if now := mustStatus(t, s.Engine, "e-1"); now.State != Running || now.ExecutionID != r.ExecutionID || now.Progress.Message != "two" || *now.Progress.Total != 3 {
				t.Errorf("status: %+v", now)
			}
			sys.mu.Lock()
			sys.counting["e-1"] = `{"status":"Completed","output":{"n":3}}`
			sys.mu.Unlock()
		}
	})
	if err != nil || string(r.Result) != `{"n":3}` || *r.SourceExecutionID != "e-1" || len(told) < 2 {
		t.Errorf("%+v, %v, told %+v", r, err, told)
	}
}

// TestReq003_7_5_AgainstARealServer cancels at an MCP server.
func TestReq003_7_5_AgainstARealServer(t *testing.T) {
	sys := newSystem(t)
	s, c := sys.connect(t)
	for name, want := range map[string]string{"hang": "hang", "count": "e-1"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := s.Call(ctx, "me", tool(t, c, name), nil, func(r Run) {
			if r.Progress != nil {
				cancel(ErrCancelled)
			}
		})
		cancel(nil)
		refusedAs(t, err, Cancelled, "workflow_cancelled")
		select {
		case got := <-sys.cancelled:
			if got != want {
				t.Errorf("%s was cancelled at the source, want %s", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("%s goes on at the source", name)
		}
	}
}

func TestReq003_5_4_ASourceThatIsAway(t *testing.T) {
	sys := newSystem(t)
	s, c := sys.connect(t)
	add := tool(t, c, "add")
	away := *add
	away.Away = "it is being moved"
	_, err := s.Call(t.Context(), "me", &away, json.RawMessage(`{"a":1,"b":2}`), nil)
	wantCode(t, err, session.StateError, "source_away", "it is being moved", "'system'")
	if e, _ := errors.AsType[*session.Error](err); e.Details["run"] != nil {
		t.Error("a run was made")
	}
	sys.CloseClientConnections()
	sys.Server.Close()
	_, err = s.Call(t.Context(), "me", add, json.RawMessage(`{"a":1,"b":2}`), nil)
	code := session.CodeOf(err)
	if code != "source_away" && code != "workflow_unknown" || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("err = %v", err)
	}
}
