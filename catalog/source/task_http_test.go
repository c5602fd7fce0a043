package source_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/source"
)

// aTask is what a server answers a call with, instead of a result.
const aTask = `{"resultType":"task","taskId":"t-1","status":"working","createdAt":"2026-07-28T00:00:00Z","lastUpdatedAt":"2026-07-28T00:00:00Z","ttlMs":null}`

// A source that answers every call with a task is followed where a task may come, and is at fault elsewhere: an SDK takes a
// task that it doesn't know for an empty success, as the bare one here does.
func TestATaskIsNeverAnEmptySuccess(t *testing.T) {
	t.Parallel()
	var listsTasks atomic.Bool
	declared := map[string]*atomic.Bool{}
	for _, what := range []string{"workflows-list-tool", "workflows-execute-tool", "workflows-status-tool", "plain", "tasks/get"} {
		declared[what] = new(atomic.Bool)
	}
	web := listenAndServe(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name string }
		}
		json.Unmarshal(body, &m)
		name := m.Params.Name
		if m.Method == "tasks/get" {
			name = m.Method
		}
		if d := declared[name]; d != nil && strings.Contains(string(body), "io.modelcontextprotocol/tasks") {
			d.Store(true)
		}
		result := aTask
		switch {
		case m.Method == "server/discover":
			result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"},"ttlMs":0,"cacheScope":"private"}`
		case m.Method == "tools/list":
			result = `{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"workflows-list-tool","inputSchema":{"type":"object"}},{"name":"workflows-execute-tool","inputSchema":{"type":"object"}},{"name":"workflows-status-tool","inputSchema":{"type":"object"}},{"name":"plain","inputSchema":{"type":"object"}}]}`
		case name == "workflows-list-tool" && !listsTasks.Load():
			result = `{"resultType":"complete","content":[],"structuredContent":[{"id":"w","name":"flow","description":"d","executionType":"async","inputSchema":{"type":"object"}}]}`
		case m.Method == "tasks/get":
			result = strings.Replace(aTask, `"task"`, `"complete"`, 1)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}))
	bare := testkit.Get(mcp.NewClient(&mcp.Implementation{Name: "bare", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: web.URL}, nil)).Must(t)
	defer bare.Close()
	if r, err := bare.CallTool(t.Context(), &mcp.CallToolParams{Name: "plain"}); err != nil || r.IsError || len(r.Content) != 0 {
		t.Errorf("the SDK decodes a task by now, so that less has to be done here: %+v, %v", r, err)
	}
	r := open(t, settings(named(config.WorkflowSource{Name: "s", URL: web.URL, Tools: []string{"plain"}})))
	for _, tool := range r.tools(t, "flow", "plain").Tools {
		a, err := r.Execute(t.Context(), &tool.Workflow, nil, nil)
		testkit.True(t, err == nil && a.State == source.Running && a.ExecutionID == "task:t-1", "%s: %+v, %v", tool.Name, a, err)
	}
	testkit.Equal(t, testkit.Get(r.Status(t.Context(), "s", "w", "task:t-1")).Must(t).State, source.Running, "state")
	_, err := r.Status(t.Context(), "s", "w", "x-1")
	testkit.Fails(t, err, "it is a task, which was not asked for")
	listsTasks.Store(true)
	r.refresh(t)
	r.tools(t, "flow", "plain") // not an empty list
	for what, d := range declared {
		testkit.Equal(t, d.Load(), what != "workflows-list-tool" && what != "workflows-status-tool", "%s declares the extension", what)
	}
}
