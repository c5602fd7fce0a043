package source_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

// modeEnv makes the test binary a source: an MCP server over stdio.
const modeEnv = "DEEPWORK_TEST_SOURCE"

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeEnv); mode != "" {
		beSource(mode)
		return
	}
	// A program built with -race sleeps for a second at its end, each child too.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	goleak.VerifyTestMain(m)
}

// A fakery is the workflows of another system, served by a real MCP server.
type fakery struct {
	mu      sync.Mutex
	list    func(cursor string) *mcp.CallToolResult // what the list tool answers
	execute func(ctx context.Context, r *mcp.CallToolRequest, id string, input json.RawMessage) (*mcp.CallToolResult, error)
	status  func(id string) *mcp.CallToolResult // nil: there is no such tool
	cancel  func(id string) *mcp.CallToolResult // nil: there is no such tool
	queries int
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

func structured(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{}, StructuredContent: json.RawMessage(s)}
}

func failure(s string) *mcp.CallToolResult {
	r := text(s)
	r.IsError = true
	return r
}

// workflow is one in the seed's schema.
func workflow(id, name string, more ...string) string {
	return fmt.Sprintf(`{"id":%q,"name":%q,"description":"does %s"%s}`, id, name, name, strings.Join(append([]string{""}, more...), ","))
}

func listOf(workflows ...string) func(string) *mcp.CallToolResult {
	return func(string) *mcp.CallToolResult { return text("[" + strings.Join(workflows, ",") + "]") }
}

func (f *fakery) set(list func(string) *mcp.CallToolResult) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = list
}

func (f *fakery) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.queries
}

// server makes the MCP server.
func (f *fakery) server() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "fakery", Version: "1"}, nil)
	add := func(name string, h mcp.ToolHandler) {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, h)
	}
	add("workflows-list-tool", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in struct{ Cursor string }
		if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
			return nil, err
		}
		f.mu.Lock()
		f.queries++
		list := f.list
		f.mu.Unlock()
		return list(in.Cursor), nil
	})
	add("workflows-execute-tool", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in struct {
			WorkflowID string `json:"workflow_id"`
			Input      json.RawMessage
		}
		if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
			return nil, err
		}
		if f.execute == nil {
			return text(string(in.Input)), nil
		}
		return f.execute(ctx, r, in.WorkflowID, in.Input)
	})
	about := func(h func(string) *mcp.CallToolResult) mcp.ToolHandler {
		return func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var in struct {
				WorkflowID  string `json:"workflow_id"`
				ExecutionID string `json:"execution_id"`
			}
			if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
				return nil, err
			}
			return h(in.WorkflowID + "/" + in.ExecutionID), nil
		}
	}
	if f.status != nil {
		add("workflows-status-tool", about(f.status))
	}
	if f.cancel != nil {
		add("workflows-cancel-tool", about(f.cancel))
	}
	return s
}

// beSource is the other process: mode is how it behaves, and its arguments.
func beSource(mode string) {
	mode, argument, _ := strings.Cut(mode, " ")
	fmt.Fprintln(os.Stderr, "source begins:", mode)
	if file := os.Getenv("PID_FILE"); file != "" {
		os.WriteFile(file+".new", []byte(strconv.Itoa(os.Getpid())), 0o600)
		os.Rename(file+".new", file)
	}
	f := &fakery{list: listOf(workflow("1", "one"), workflow("2", "two", `"executionType":"sync"`))}
	switch mode {
	case "good":
	case "file": // the list is in a file
		f.list = func(string) *mcp.CallToolResult {
			data, err := os.ReadFile(argument)
			if err != nil {
				return failure(err.Error())
			}
			return text(string(data))
		}
	case "tell": // where it runs, and with what
		f.execute = func(context.Context, *mcp.CallToolRequest, string, json.RawMessage) (*mcp.CallToolResult, error) {
			dir, _ := os.Getwd()
			return text(fmt.Sprintf(`{"dir":%q,"env":%q}`, filepath.ToSlash(dir), os.Getenv("REGION"))), nil
		}
	case "dies": // in the middle of a call
		f.execute = func(context.Context, *mcp.CallToolRequest, string, json.RawMessage) (*mcp.CallToolResult, error) {
			fmt.Fprintln(os.Stderr, "cannot go on: the disk is made of cheese")
			os.Exit(3)
			return nil, nil
		}
	case "exit": // at once
		fmt.Fprintln(os.Stderr, "no license")
		os.Exit(2)
	case "mute": // reads, never answers
		bufio.NewReader(os.Stdin).WriteTo(discard{})
		return
	case "stubborn": // answers, and does not end when it is asked to
		signal.Ignore(syscall.SIGTERM)
		f.server().Run(context.Background(), &mcp.StdioTransport{})
		for {
			time.Sleep(time.Hour)
		}
	case "garbage":
		for i := 0; ; i++ {
			fmt.Printf("<html>%d</html>\n", i)
			time.Sleep(time.Millisecond)
		}
	case "flood": // one message without an end
		fmt.Print(`{"jsonrpc":"2.0","method":"x","params":{"x":"`)
		for chunk := strings.Repeat("x", 1<<20); ; {
			if _, err := fmt.Print(chunk); err != nil {
				return
			}
		}
	case "noise": // far too much on its standard error
		go func() {
			for chunk := strings.Repeat("noise ", 10_000); ; {
				fmt.Fprintln(os.Stderr, chunk)
			}
		}()
	case "newest":
		f.newest().Run(context.Background(), &mcp.StdioTransport{})
		return
	case "raw":
		beRaw()
		return
	case "sums":
		f.list, f.execute = listOf(workflow("s/1", "sum", syncType)), sums
	}
	f.server().Run(context.Background(), &mcp.StdioTransport{})
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
