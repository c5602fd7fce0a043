package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// syncSource is a source with one synchronous workflow, which echoes, of the bare SDK:
// over stdio, or, called with "http", over streamable HTTP at the URL that it writes
// to its standard output, until its standard input ends.
func syncSource() {
	s := mcp.NewServer(&mcp.Implementation{Name: "source", Version: "1"}, nil)
	add := func(name string, answer func(arguments json.RawMessage) (string, error)) {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			text, err := answer(r.Params.Arguments)
			if err != nil {
				return nil, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
		})
	}
	add("workflows-list-tool", func(json.RawMessage) (string, error) {
		return `[{"id":"w-echo","name":"echo","description":"Gives back what it gets.","executionType":"sync",
			"inputSchema":{"type":"object","properties":{"customer":{"type":"string"}},"required":["customer"]}}]`, nil
	})
	add("workflows-execute-tool", func(arguments json.RawMessage) (string, error) {
		var in struct {
			Input json.RawMessage `json:"input"`
		}
		err := json.Unmarshal(arguments, &in)
		return string(in.Input), err
	})
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "mcp-source:", err)
			os.Exit(1)
		}
	}
	if len(os.Args) < 2 {
		fail(s.Run(context.Background(), &mcp.StdioTransport{}))
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fail(err)
	both := map[bool]http.Handler{}
	for _, stateless := range []bool{true, false} {
		both[stateless] = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: stateless})
	}
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		both[r.Header.Get("Mcp-Protocol-Version") >= newest].ServeHTTP(w, r)
	}), ReadHeaderTimeout: 10 * time.Second}
	fmt.Printf("http://%s/mcp\n", l.Addr())
	go func() {
		bufio.NewReader(os.Stdin).ReadByte()
		web.Close()
	}()
	if err := web.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		fail(err)
	}
}

// The protocol versions that calls are measured in.
const (
	withSessions = "2025-11-25"
	newest       = "2026-07-28"
)

// BenchmarkSyncCall compares a call of a synchronous workflow through the server with
// the same call made to the source directly, each in turn, so that whatever else the
// machine does weighs on both. Client, server and source are processes of their own.
// times-direct is to be at most 2.5 (seed 003).
func BenchmarkSyncCall(b *testing.B) {
	for name, version := range map[string]string{"sessions": withSessions, "newest": newest} {
		connect := func(b *testing.B, over mcp.Transport) *mcp.ClientSession {
			cs, err := mcp.NewClient(&mcp.Implementation{Name: "figures", Version: "1"}, nil).Connect(b.Context(), over, &mcp.ClientSessionOptions{ProtocolVersion: version})
			must(b, err)
			b.Cleanup(func() { cs.Close() })
			return cs
		}
		command := func(args ...string) mcp.Transport {
			return &mcp.CommandTransport{Command: exec.Command(args[0], args[1:]...)}
		}
		b.Run("stdio/"+name, func(b *testing.B) {
			root := syncProject(b, "command: [mcp-source]")
			compareSync(b, connect(b, command("mcp-source")), connect(b, command("deepwork", "serve", "--path", root, "--log-level", "warn")))
		})
		b.Run("http/"+name, func(b *testing.B) {
			source := startSource(b)
			_, served, log := serveNetwork(b, syncProject(b, "url: "+source), "--transport", "http")
			go io.Copy(io.Discard, log) // one that nobody reads would stop it
			compareSync(b, connect(b, &mcp.StreamableClientTransport{Endpoint: source}), connect(b, &mcp.StreamableClientTransport{Endpoint: served}))
		})
	}
}

// syncProject is a project with one source.
func syncProject(b *testing.B, how string) string {
	root := b.TempDir()
	writeFiles(b, root, map[string]string{".deepwork/config.yml": "workflow_tools:\n  sources:\n    - name: bench\n      " + how + "\n"})
	return root
}

// startSource starts the source over HTTP, which ends with its stdin, and returns its URL.
func startSource(b *testing.B) string {
	b.Helper()
	cmd := exec.Command("mcp-source", "http")
	out, err := cmd.StdoutPipe()
	must(b, err)
	in, err := cmd.StdinPipe()
	must(b, err)
	must(b, cmd.Start())
	b.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	must(b, err)
	return strings.TrimSpace(url)
}

func compareSync(b *testing.B, direct, through *mcp.ClientSession) {
	one := func(cs *mcp.ClientSession, name, args string) (time.Duration, error) {
		began := time.Now()
		res, err := cs.CallTool(b.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(args)})
		if err == nil && res.IsError {
			err = errors.New(res.Content[0].(*mcp.TextContent).Text)
		}
		return time.Since(began), err
	}
	const args = `{"customer":"ada"}`
	// The source is connected in the background.
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		_, err := one(through, "echo", args)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			b.Fatal(err)
		}
	}
	var there, here time.Duration
	for b.Loop() {
		for _, call := range []struct {
			cs         *mcp.ClientSession
			name, args string
			took       *time.Duration
		}{{direct, "workflows-execute-tool", `{"workflow_id":"w-echo","input":` + args + `}`, &there}, {through, "echo", args, &here}} {
			took, err := one(call.cs, call.name, call.args)
			must(b, err)
			*call.took += took
		}
	}
	b.ReportMetric(float64(here)/float64(there), "times-direct")
	b.ReportMetric(float64(there.Nanoseconds())/float64(b.N), "ns-direct")
	b.ReportMetric(float64(here.Nanoseconds())/float64(b.N), "ns-through")
}
