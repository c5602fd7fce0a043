package transport

import (
	"encoding/json"
	"os"
	"os/exec"
	"runtime/debug"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// BenchmarkSyncCall compares a call of a synchronous workflow through the server
// with the same call made to the source directly, each in turn, so that whatever
// else the machine does weighs on both. times-direct is to be at most 2.5.
func BenchmarkSyncCall(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as `deepwork serve` has it over HTTP
	binary, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	connect := func(over mcp.Transport) *mcp.ClientSession {
		cs, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).Connect(b.Context(), over, &mcp.ClientSessionOptions{ProtocolVersion: stateful})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { cs.Close() })
		return cs
	}
	compare := func(b *testing.B, direct, through *mcp.ClientSession) {
		one := func(cs *mcp.ClientSession, name, args string) time.Duration {
			began := time.Now()
			res, err := cs.CallTool(b.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(args)})
			if err != nil || res.IsError {
				b.Fatal(err, res)
			}
			return time.Since(began)
		}
		var there, here time.Duration
		for b.Loop() {
			there += one(direct, "workflows-execute-tool", `{"workflow_id":"w-echo","input":{"customer":"ada"}}`)
			here += one(through, "echo", `{"customer":"ada"}`)
		}
		b.ReportMetric(float64(here)/float64(there), "times-direct")
		b.ReportMetric(float64(there.Nanoseconds())/float64(b.N), "ns-direct")
		b.ReportMetric(float64(here.Nanoseconds())/float64(b.N), "ns-through")
	}
	b.Run("stdio", func(b *testing.B) {
		s, _ := withConfig(b, "workflow_tools:\n  sources:\n"+child(b, "child", "standard"), nil)
		source := exec.CommandContext(b.Context(), binary)
		source.Env = append(os.Environ(), sourceEnv+"=standard")
		compare(b, connect(&mcp.CommandTransport{Command: source}), onPipes(b, s, connect))
	})
	b.Run("http", func(b *testing.B) {
		f := newFactory(standardWorkflows...)
		s, _ := withSource(b, f, "")
		h := overHTTP(b, s, HTTPOptions{})
		compare(b, connect(&mcp.StreamableClientTransport{Endpoint: f.url, HTTPClient: httpClient(b, "")}),
			connect(&mcp.StreamableClientTransport{Endpoint: h.URL(), HTTPClient: httpClient(b, "")}))
	})
}

// onPipes serves a client over the stdio transport on the system's pipes, as a
// process has them.
func onPipes(b *testing.B, s *Server, connect func(mcp.Transport) *mcp.ClientSession) *mcp.ClientSession {
	in, toServer, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	fromServer, out, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	go s.ServeStdio(b.Context(), in, out)
	return connect(&mcp.IOTransport{Reader: fromServer, Writer: toServer})
}

// BenchmarkTenThousandWorkflows is the time from a source's list_changed until
// its 10,000 workflows are tools: at most 2 s. list-changed is how often a client was
// told of that: once.
func BenchmarkTenThousandWorkflows(b *testing.B) {
	f := newFactory()
	s, _ := withSource(b, f, "")
	flows := thousands(10_000)
	w := watching(b, func(o *mcp.ClientOptions) *mcp.ClientSession { return clientWith(b, s, o) })
	w.ready(b, s)
	told := int64(0)
	for b.Loop() {
		f.offer(flows...)
		s.remote.until(b, "all of them", func(l *listing) bool { return len(l.tools) == len(flows) })
		b.StopTimer()
		w.until(b, 1)
		told += w.told.Load()
		f.offer()
		s.remote.until(b, "none", func(l *listing) bool { return len(l.tools) == 0 })
		w.until(b, 2)
		w.told.Store(0)
		b.StartTimer()
	}
	b.ReportMetric(float64(told)/float64(b.N), "list-changed")
}

// BenchmarkToolsListOfThousands is one page of tools/list, of 1,000 tools.
func BenchmarkToolsListOfThousands(b *testing.B) {
	f := newFactory()
	f.workflows = thousands(10_000)
	s, _ := withSource(b, f, "")
	cs := client(b, s)
	for b.Loop() {
		if _, err := cs.ListTools(b.Context(), nil); err != nil {
			b.Fatal(err)
		}
	}
}
