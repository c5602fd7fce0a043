package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// EchoCommand is the hidden subcommand that serves Echo.
const EchoCommand = "echo"

// echoTool is the one tool of an echo server; it gives its arguments back.
const echoTool = "echo"

// Echo is what deepwork is compared with: the bare SDK's server over streamable
// HTTP at /mcp, with one tool that gives its arguments back, and /metrics of the
// process. It prints its URL to out, and serves on loopback until ctx ends.
func Echo(ctx context.Context, out io.Writer) error {
	s := mcp.NewServer(&mcp.Implementation{Name: "echo", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: echoTool, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
	})
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	mux.Handle("/metrics", promhttp.HandlerFor(process, promhttp.HandlerOpts{}))
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("serving echoes: %w", err)
	}
	fmt.Fprintf(out, "http://%s/mcp\n", listener.Addr())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { server.Close() })
	if err := server.Serve(listener); ctx.Err() == nil {
		return fmt.Errorf("serving echoes: %w", err)
	}
	return nil
}

// startEcho starts an echo server in a child process.
func startEcho(ctx context.Context, o Options, folder string) (*server, error) {
	path := filepath.Join(folder, "echo.url")
	said, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("starting an echo server: %w", err)
	}
	defer said.Close()
	s := &server{}
	if s.child, err = startChild(ctx, o, o.Self, said, EchoCommand); err != nil {
		return nil, err
	}
	s.url, err = s.child.waitFor(ctx, func() (string, error) {
		data, err := os.ReadFile(path)
		url, whole := strings.CutSuffix(string(data), "\n")
		if !whole {
			return "", err
		}
		return url, err
	})
	return s, err
}
