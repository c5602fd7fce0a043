package remote

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/source"
	"deepwork/session"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestReq003_2_2_ACallThroughTheCatalog runs a workflow of an MCP server through the real catalog. Nothing
// is started by a call whose arguments do not fit, or whose source is away (2.5, 5.4).
func TestReq003_2_2_ACallThroughTheCatalog(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "system", Version: "1"}, nil)
	answers := map[string]string{
		"workflows-list-tool":    `[{"id":"w-add","name":"add","description":"adds","executionType":"sync","inputSchema":{"type":"object","properties":{"a":{"type":"number"}},"required":["a"]}}]`,
		"workflows-execute-tool": `{"sum": 3}`,
	}
	for name, answer := range answers {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: answer}}}, nil
		})
	}
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(web.Close)
	cfg := config.Default()
	cfg.WorkflowTools.Sources = []config.WorkflowSource{{Name: "system", URL: web.URL, ListTool: "workflows-list-tool", ExecuteTool: "workflows-execute-tool"}}
	root := newRoot(t)
	c := source.Open(source.Options{Root: root, Version: "test", Settings: func(context.Context) (*config.Config, error) { return cfg, nil }})
	t.Cleanup(func() { testkit.Must(t, c.Close(context.Background())) })
	s := open(t, root, c, nil)
	testkit.Until(t, "the tool", func() bool { return c.Snapshot().Tool("add") != nil })
	add := c.Snapshot().Tool("add")

	r, err := s.Call(t.Context(), "me", add, json.RawMessage(`{"a":1}`), nil)
	if err != nil || string(r.Result) != `{"sum": 3}` || r.State != Completed || r.Source != "system" || r.WorkflowID != "w-add" {
		t.Errorf("%+v, %v", r, err)
	}
	for _, arguments := range []string{``, `{"a":"one"}`} {
		_, err = s.Call(t.Context(), "me", add, json.RawMessage(arguments), nil)
		wantCode(t, err, session.ToolError, "invalid_arguments", "'add'", "a")
	}
	away := *add
	away.Away = "it is being moved"
	_, err = s.Call(t.Context(), "me", &away, json.RawMessage(`{"a":1}`), nil)
	wantCode(t, err, session.StateError, "source_away", "it is being moved", "'system'")
	if e, _ := errors.AsType[*session.Error](err); e.Details["run"] != nil {
		t.Error("a run was made")
	}
	if _, total, err := s.Newest(t.Context(), "me", 1); total != 1 || err != nil {
		t.Errorf("%d runs, want 1; %v", total, err)
	}
}
