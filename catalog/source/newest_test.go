package source_test

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog/config"
	"deepwork/catalog/source"
)

// newest is a server that speaks the newest version of MCP alone: it does not know
// initialize, and takes no request that does not say its version.
func (f *fakery) newest() *mcp.Server {
	s := f.server()
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			meta := mcp.Meta{}
			if p := r.GetParams(); p != nil && method != "initialize" && !strings.HasPrefix(method, "notifications/") {
				meta = p.GetMeta()
			}
			if version, _ := meta[mcp.MetaKeyProtocolVersion].(string); version < "2026-07-28" && !strings.HasPrefix(method, "notifications/") {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: method + " is not known"}
			}
			return next(ctx, method, r)
		}
	})
	return s
}

// A source that speaks only the newest version of MCP is reached, as a command and
// by its URL, and its next connection begins in that version.
func TestASourceOfTheNewestVersionIsReached(t *testing.T) {
	f := &fakery{list: listOf(workflow("1", "one"), workflow("2", "two", `"executionType":"sync"`))}
	web := listenAndServe(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return f.newest() }, &mcp.StreamableHTTPOptions{Stateless: true}))
	pid := filepath.Join(t.TempDir(), "pid")
	stdio := command("s", "newest")
	stdio.Env["PID_FILE"] = pid
	for name, src := range map[string]config.WorkflowSource{
		"command": stdio, "url": named(config.WorkflowSource{Name: "s", URL: web.URL}),
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, settings(src))
			s := r.tools(t, "one", "two")
			// Whatever is asked of it, and not only at first.
			got, err := r.Execute(t.Context(), &s.Tools[1].Workflow, json.RawMessage(`{"n":12345678901234567890}`), nil)
			if err != nil || string(got.Output) != `{"n":12345678901234567890}` {
				t.Errorf("%+v %v", got, err)
			}
			if report, err := r.Refresh(t.Context(), patience); err != nil {
				t.Errorf("%+v %v", report, err)
			}
			const told = "spoken to in another version"
			r.logged(t, told, "2026-07-28")
			if name != "command" {
				return
			}
			kill(t, pid)
			r.until(t, "it to be gone", away)
			r.until(t, "it to be back", func(s *source.Snapshot) bool { return len(s.Tools) == 2 && !away(s) })
			if n := strings.Count(r.log.String(), told); n != 1 {
				t.Errorf("initialize was refused %d times", n)
			}
		})
	}
}
