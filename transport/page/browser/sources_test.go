package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/transport/page/pagetest"
)

// source serves a system whose workflows run until they are cancelled. It offers those that offers has.
func source(t *testing.T, offers *atomic.Pointer[string]) (url string) {
	t.Helper()
	var cancelled atomic.Bool
	replies := map[string]func() string{
		"workflows-list-tool":    func() string { return *offers.Load() },
		"workflows-execute-tool": func() string { return `{"execution_id":"e-1","status":"running"}` },
		"workflows-status-tool": func() string {
			if cancelled.Load() {
				return `{"status":"cancelled"}`
			}
			return `{"status":"running","progress":{"progress":2,"total":3,"message":"two of three"}}`
		},
		"workflows-cancel-tool": func() string { cancelled.Store(true); return `{"status":"cancelled"}` },
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "factory", Version: "1"}, nil)
	for name, reply := range replies {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: reply()}}}, nil
		})
	}
	h := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	t.Cleanup(func() {
		for session := range s.Sessions() {
			session.Close()
		}
		h.CloseClientConnections()
		h.Close()
	})
	return h.URL
}

// Sources say how they are and what they offer; their executions are followed and cancelled.
func TestSources(t *testing.T) {
	var offers atomic.Pointer[string]
	offer := func(names ...string) {
		var all []string
		for _, n := range names {
			all = append(all, fmt.Sprintf(`{"id":%[1]q,"name":%[1]q,"description":%[2]q,"executionType":"async"}`, n, "does "+pagetest.Hostile))
		}
		list := "[" + strings.Join(all, ",") + "]"
		offers.Store(&list)
	}
	offer("assemble")
	root := pagetest.Project(t)
	testkit.Write(t, filepath.Join(root, ".deepwork/config.yml"), fmt.Sprintf(`workflow_tools:
  refresh_interval: 0
  reply_within: 1ms
  status_interval: 100ms
  sources:
    - {name: factory, url: %q}
    - {name: away, command: [sh, -c, 'echo the line is dead >&2; exit 1']}
`, source(t, &offers)))
	s := serve(t, root, overHTTP...)
	b := browse(t, s)
	b.open("/sources")
	b.until(`document.querySelector('#source-factory').innerText.includes('connected') && ` + has("assemble"))
	b.until(`document.querySelector('[aria-labelledby=source-away] .alert')`)
	offer("assemble", "paint")
	b.click("Ask all for their workflows now")
	b.until(said("New (1): paint") + ` && document.querySelector('#source-factory').innerText.includes('2 workflows')`)
	b.click("Ask all for their workflows now")
	b.until(said("Nothing has changed."))

	call := pagetest.Connect(t, s.url, "")
	call("call_workflow_tool", args{"name": "assemble", "arguments": args{}}, nil)
	b.until(`document.querySelector('#executions ~ ul .status.running') && ` + has("2 of 3") + " && " + has("two of three"))
	b.shoot("sources-running")
	b.open("/")
	b.until(`document.querySelector('[aria-labelledby=working]').innerText.includes('assemble')`)
	b.open("/sources")
	b.click("assemble")
	b.until(at("/sources/executions/") + " && " + state("running"))
	b.check("execution")
	b.open("/sources")
	b.click("Cancel")
	b.click("Cancel the execution")
	b.until(said("assemble: cancelled") + ` && !document.querySelector('#executions ~ ul .status.running')`)
	b.clickOn("#executions ~ ul a", "assemble")
	b.until(at("/sources/executions/") + " && " + state("cancelled") + " && " + has("It has no result."))
}
