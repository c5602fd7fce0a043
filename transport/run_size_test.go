package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session/remote"
	"deepwork/transport/tool"
)

// hugeWorkflows is a source whose workflows give so many bytes of JSON: one gives them
// at once, the other one later, as the result of a run that failed.
func hugeWorkflows(t *testing.T, size int) string {
	t.Helper()
	huge := `"` + strings.Repeat("x", size-2) + `"`
	srv := mcp.NewServer(&mcp.Implementation{Name: "huge", Version: "1"}, nil)
	answers := map[string]string{
		"workflows-list-tool":   `[{"id":"huge","name":"huge","description":"d","executionType":"sync"},{"id":"late","name":"late","description":"d"}]`,
		"workflows-status-tool": `{"status":"failed","error":"out of ink","output":` + huge + `}`,
		"huge":                  huge,
		"late":                  `{"execution_id":"late-1","status":"running"}`,
	}
	for _, name := range []string{"workflows-list-tool", "workflows-execute-tool", "workflows-status-tool"} {
		srv.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var in factoryInput
			if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
				return nil, err
			}
			if name == "workflows-execute-tool" {
				return said(answers[in.WorkflowID]), nil
			}
			return said(answers[name]), nil
		})
	}
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, nil))
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
	return web.URL
}

// A run whose result no reply has room for is told all the same: by the call with its
// execution_id, and by workflow_status with its state and how large the result is.
func TestARunWithTooLargeAResultIsTold(t *testing.T) {
	const size = tool.MaxReplyBytes + 1
	s, _ := withConfig(t, fmt.Sprintf("workflow_tools: {status_interval: 20ms, sources: [{name: far, url: %q}]}\n", hugeWorkflows(t, size)), nil)
	cs := client(t, s)
	for _, c := range []struct {
		tool, arguments string
		code            string
		state           remote.State
		says            string
	}{
		{"huge", `{}`, "reply_too_large", remote.Completed, ""},
		{"call_workflow_tool", `{"name":"huge"}`, "reply_too_large", remote.Completed, ""},
		{"late", `{}`, "workflow_failed", remote.Failed, "out of ink"},
	} {
		res := callTool(t, cs, c.tool, c.arguments)
		id, _ := errorMetaOf(t, res)["execution_id"].(string)
		if errorMetaOf(t, res)["code"] != c.code || len(id) != 36 || !strings.Contains(text(res), id) {
			t.Errorf("%s: %.500s %v", c.tool, text(res), res.Meta)
			continue
		}
		got := into[remote.Run](t, cs, "workflow_status", `{"execution_id":"`+id+`"}`)
		if got.State != c.state || got.EndedAt == nil || string(got.Result) != "null" && got.Result != nil {
			t.Errorf("%s: it is %s: %.100s", c.tool, got.State, got.Result)
		}
		if got.Error == nil || !strings.Contains(*got.Error, fmt.Sprintf("has %d bytes", size)) || !strings.Contains(*got.Error, c.says) {
			t.Errorf("%s: it says %v", c.tool, got.Error)
		}
	}
}

// What fits is sent whole.
func TestARunWithALargeResultIsToldWhole(t *testing.T) {
	const size = tool.MaxReplyBytes - 4096
	s, _ := withConfig(t, fmt.Sprintf("workflow_tools: {sources: [{name: far, url: %q}]}\n", hugeWorkflows(t, size)), nil)
	cs := client(t, s)
	id := into[remote.Run](t, cs, "huge", `{}`).ExecutionID
	if got := into[remote.Run](t, cs, "workflow_status", `{"execution_id":"`+id+`"}`); len(got.Result) != size || got.Error != nil {
		t.Errorf("%d bytes, %v", len(got.Result), got.Error)
	}
}
