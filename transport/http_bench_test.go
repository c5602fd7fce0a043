package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
	"deepwork/transport/web"
)

// bareEcho is the SDK's own server over streamable HTTP, with one tool that echoes.
func bareEcho(b *testing.B, stateless bool) string {
	s := mcp.NewServer(&mcp.Implementation{Name: "echo", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
	})
	h := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: stateless}))
	b.Cleanup(h.Close)
	return h.URL
}

// connectTo connects n clients, without a stream of their own.
func connectTo(b *testing.B, url, version string, n int) []*mcp.ClientSession {
	over := &http.Transport{MaxIdleConnsPerHost: n}
	b.Cleanup(over.CloseIdleConnections)
	var all []*mcp.ClientSession
	for range n {
		cs, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).Connect(context.Background(),
			&mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: over}, DisableStandaloneSSE: true},
			&mcp.ClientSessionOptions{ProtocolVersion: version})
		must(b, err)
		b.Cleanup(func() { cs.Close() })
		all = append(all, cs)
	}
	return all
}

// BenchmarkHTTPCall is a call of finished_step over streamable HTTP around an
// engine that costs nothing, by 64 clients, beside the bare SDK's echo of the same
// arguments.
func BenchmarkHTTPCall(b *testing.B) {
	const clients = 64
	args := json.RawMessage(`{"outputs":{"report":"out/report.md"},"step_id":"step_7"}`)
	reply := &machine.FinishReply{Status: machine.NextStep, BeginStep: fullStep("step_8"), Stack: []machine.StackEntry{{Workflow: "j/w", Step: "step_8", SessionID: "0a1b2c3d"}}}
	reply.BeginStep.Instructions = strings.Repeat("Do this, then that.\n", 50)
	run := func(b *testing.B, all []*mcp.ClientSession, tool string) {
		b.ResetTimer()
		var wg sync.WaitGroup
		for i, cs := range all {
			wg.Go(func() {
				for n := i; n < b.N; n += len(all) {
					if res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: args}); err != nil || res.IsError {
						b.Errorf("%v %v", res, err)
						return
					}
				}
			})
		}
		wg.Wait()
		b.StopTimer()
	}
	for name, version := range map[string]string{"sessions": stateful, "stateless": ""} {
		b.Run(fmt.Sprintf("finished_step/%s", name), func(b *testing.B) {
			s, _ := fakeServer(b, func(a *fakeAgent) {
				a.finish = func(context.Context, workflow.FinishArgs) (*machine.FinishReply, error) { return reply, nil }
			}, withHTTP(nil))
			run(b, connectTo(b, overHTTP(b, s, web.Options{}).URL(), version, clients), "finished_step")
		})
		b.Run(fmt.Sprintf("echo/%s", name), func(b *testing.B) {
			run(b, connectTo(b, bareEcho(b, version == ""), version, clients), "echo")
		})
	}
}

// BenchmarkIdleConnection is the memory of an MCP session over streamable HTTP
// that does nothing, with a network connection and a stream of its own, on a real
// project, beside the bare SDK's. It is the heap and the stacks of the process,
// which has the client's end too, of raw connections that cost little and the
// same in both.
func BenchmarkIdleConnection(b *testing.B) {
	const sessions = 1000
	measure := func(b *testing.B, url string) {
		address := strings.TrimPrefix(strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp"), "/")
		path := "/" + strings.TrimPrefix(strings.TrimPrefix(url, "http://"+address), "/")
		for b.Loop() {
			before := memory()
			closers := make([]func(), 0, sessions)
			for range sessions {
				closers = append(closers, idleSession(b, address, path))
			}
			after := memory()
			b.ReportMetric(float64(after-before)/sessions, "B/session")
			for _, c := range closers {
				c()
			}
		}
	}
	b.Run("deepwork", func(b *testing.B) {
		s, err := NewServer(Options{ProjectRoot: b.TempDir(), Logger: slog.New(slog.DiscardHandler)})
		must(b, err)
		b.Cleanup(func() { s.Close(context.Background()) })
		measure(b, overHTTP(b, s, web.Options{}).URL())
	})
	b.Run("sdk", func(b *testing.B) { measure(b, bareEcho(b, false)) })
}

func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
