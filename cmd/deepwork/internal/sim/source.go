//go:build unix

package sim

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
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// SourceEnv is the environment variable by which a binary that calls Source is
// told the file that the source writes its executions into, and its address.
const SourceEnv = "DEEPWORK_FAULT_SOURCE"

// Source is a source of workflows over HTTP, a process of its own. It prints its
// address, and ends when its standard input does. Each execution that it starts is
// a line of a file, so that how often each was started can be told, and that a
// source that was killed goes on where it was.
func Source() error {
	file, address, _ := strings.Cut(os.Getenv(SourceEnv), "@")
	s, err := openSource(file)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.server }, nil)
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println(l.Addr())
	return (&http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}).Serve(l)
}

// An execution is one line of the source's file.
type execution struct {
	ID    string        `json:"id"`
	Token string        `json:"token"` // of the call
	Begun time.Time     `json:"begun"`
	Lasts time.Duration `json:"lasts"`
}

// readExecutions reads the source's file. Each line was written in one piece.
func readExecutions(path string) (all []execution, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); ; {
		if !lines.Scan() {
			return all, lines.Err()
		}
		var e execution
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%s holds %q: %w", path, lines.Text(), err)
		}
		all = append(all, e)
	}
}

// A source is the system that runs workflows.
type source struct {
	server *mcp.Server

	mu   sync.Mutex // guards what follows
	file *os.File
	all  map[string]execution
}

// The workflows that there are.
const (
	quickWorkflow = "sim_quick" // its result is the answer to the call
	slowWorkflow  = "sim_slow"
)

func openSource(path string) (*source, error) {
	before, err := readExecutions(path)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	s := &source{server: mcp.NewServer(&mcp.Implementation{Name: "simulation", Version: "1"}, nil), file: file, all: map[string]execution{}}
	for _, e := range before {
		s.all[e.ID] = e
	}
	for name, call := range map[string]func(sourceArgs) any{
		"workflows-list-tool": s.list, "workflows-execute-tool": s.execute,
		"workflows-status-tool": s.status, "workflows-cancel-tool": func(sourceArgs) any { return map[string]any{} },
	} {
		s.server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var args sourceArgs
			if len(r.Params.Arguments) > 0 {
				if err := json.Unmarshal(r.Params.Arguments, &args); err != nil {
					return nil, err
				}
			}
			text, err := json.Marshal(call(args))
			if err != nil {
				return nil, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}, nil
		})
	}
	return s, nil
}

type sourceArgs struct {
	Workflow  string `json:"workflow_id"`
	Execution string `json:"execution_id"`
	Input     struct {
		Token string `json:"token"`
		Lasts int    `json:"lasts"` // milliseconds
	} `json:"input"`
}

func (s *source) list(sourceArgs) any {
	schema := json.RawMessage(`{"type":"object","properties":{"token":{"type":"string"},"lasts":{"type":"integer"}},"required":["token","lasts"]}`)
	var all []map[string]any
	for name, kind := range map[string]string{quickWorkflow: "sync", slowWorkflow: "async"} {
		all = append(all, map[string]any{"id": "w-" + name, "name": name, "description": "Gives its token back", "inputSchema": schema, "executionType": kind})
	}
	return all
}

// execute writes down that an execution begins before anything else.
func (s *source) execute(args sourceArgs) any {
	e := execution{Token: args.Input.Token, Begun: time.Now(), Lasts: time.Duration(args.Input.Lasts) * time.Millisecond}
	s.mu.Lock()
	e.ID = fmt.Sprintf("x-%d", len(s.all)+1)
	line, err := json.Marshal(e)
	if err == nil {
		_, err = s.file.Write(append(line, '\n'))
	}
	s.all[e.ID] = e
	s.mu.Unlock()
	if err != nil {
		return map[string]any{"status": "failed", "error": err.Error()}
	}
	if args.Workflow == "w-"+quickWorkflow {
		time.Sleep(e.Lasts)
		return outputOf(e.Token)
	}
	return map[string]any{"execution_id": e.ID, "status": "running"}
}

func (s *source) status(args sourceArgs) any {
	s.mu.Lock()
	e, is := s.all[args.Execution]
	s.mu.Unlock()
	switch {
	case !is:
		return map[string]any{"status": "failed", "error": "there is no such execution"}
	case time.Since(e.Begun) < e.Lasts:
		return map[string]any{"status": "running", "progress": time.Since(e.Begun).String()}
	}
	return map[string]any{"status": "completed", "output": outputOf(e.Token)}
}

// outputOf is what an execution gives.
func outputOf(token string) any { return map[string]any{"token_was": token} }
