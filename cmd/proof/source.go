package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A ran is one line of the source's file: what it has started.
type ran struct {
	ID    string        `json:"id"`
	Token string        `json:"token"` // of the call
	Begun time.Time     `json:"begun"`
	Lasts time.Duration `json:"lasts"`
}

// readRan reads the source's file. Each line was written in one piece.
func readRan(path string) (all []ran, err error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		var e ran
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return nil, fmt.Errorf("%s holds %q: %w", path, line, err)
		}
		all = append(all, e)
	}
	return all, nil
}

// The workflows that the source has.
const (
	quickWorkflow = "sim_quick" // its result is the answer to the call
	slowWorkflow  = "sim_slow"
)

// A source is a system that runs workflows, a process of its own. What it starts it
// writes into a file first, so that how often each was started can be told, and that a
// source that was killed goes on where it was.
type source struct {
	mu   sync.Mutex // guards what follows
	file *os.File
	all  map[string]ran
}

// serveSource is the hidden subcommand source: its file, and its address.
func serveSource(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	before, err := readRan(args[0])
	if err != nil {
		return err
	}
	s := &source{all: map[string]ran{}}
	for _, e := range before {
		s.all[e.ID] = e
	}
	if s.file, err = os.OpenFile(args[0], os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600); err != nil {
		return err
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "simulation", Version: "1"}, nil)
	for name, call := range map[string]func(sourceArgs) any{
		"workflows-list-tool": s.list, "workflows-execute-tool": s.execute,
		"workflows-status-tool": s.status, "workflows-cancel-tool": func(sourceArgs) any { return map[string]any{} },
	} {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var args sourceArgs
			if len(r.Params.Arguments) > 0 {
				if err := json.Unmarshal(r.Params.Arguments, &args); err != nil {
					return nil, err
				}
			}
			text, err := json.Marshal(call(args))
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}, err
		})
	}
	return serveMCP(ctx, server, args[1])
}

// sourceArgs are the arguments of any of its tools.
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
		all = append(all, map[string]any{"id": name, "name": name, "description": "Gives its token back", "inputSchema": schema, "executionType": kind})
	}
	return all
}

func (s *source) execute(args sourceArgs) any {
	e := ran{Token: args.Input.Token, Begun: time.Now(), Lasts: time.Duration(args.Input.Lasts) * time.Millisecond}
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
	if args.Workflow == quickWorkflow {
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

func (s *simulation) sourceFile() string { return filepath.Join(s.dir, "executions") }

// startSource starts the source of workflows, or starts it again after a kill.
func (s *simulation) startSource(ctx context.Context) (err error) {
	if s.sourceAddress == "" {
		s.sourceAddress = "127.0.0.1:0"
	}
	if s.source, err = s.startOwn(ctx, "source", s.sourceFile(), s.sourceAddress); err == nil {
		s.sourceAddress = strings.TrimSuffix(strings.TrimPrefix(s.source.url, "http://"), "/mcp")
	}
	return err
}
