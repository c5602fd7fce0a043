package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A journal is what others did: names in order, by event and token.
type journal map[string]map[string][]string

// readJournal reads a file of lines "event token name", each written in one piece.
func readJournal(path string) (journal, error) {
	did := journal{"ran": {}, "start": {}, "wrote": {}, "commit": {}, "end": {}, "begin": {}, "finished": {}, "beside": {}}
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("reading what was done: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 3 || did[f[0]] == nil {
			return nil, fmt.Errorf("reading what was done: %s has a line %q", filepath.Base(path), line)
		}
		did[f[0]][f[1]] = append(did[f[0]][f[1]], f[2])
	}
	return did, nil
}

// The workflows of the source.
const (
	quickWorkflow = "sim_quick" // its result answers the call
	slowWorkflow  = "sim_slow"
)

// A source is a system that runs workflows, in its own process. It writes each start into a journal
// first, so that starts can be counted. An execution is described by its id, so that a killed
// source continues it.
type source struct{ file *os.File }

// serveSource is the hidden subcommand source: its journal, and its address.
func serveSource(ctx context.Context, args []string) (err error) {
	if len(args) != 2 {
		return errUsage
	}
	var s source
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

// sourceArgs are the arguments of all its tools.
type sourceArgs struct {
	Workflow  string `json:"workflow_id"`
	Execution string `json:"execution_id"`
	Input     struct {
		Token string `json:"token"`
		Lasts int    `json:"lasts"` // milliseconds
	} `json:"input"`
}

func (source) list(sourceArgs) any {
	schema := json.RawMessage(`{"type":"object","properties":{"token":{"type":"string"},"lasts":{"type":"integer"}},"required":["token","lasts"]}`)
	var all []map[string]any
	for name, kind := range map[string]string{quickWorkflow: "sync", slowWorkflow: "async"} {
		all = append(all, map[string]any{"id": name, "name": name, "description": "Gives its token back", "inputSchema": schema, "executionType": kind})
	}
	return all
}

func (s source) execute(args sourceArgs) any {
	lasts := time.Duration(args.Input.Lasts) * time.Millisecond
	ends := time.Now().Add(lasts).UnixNano()
	id := fmt.Sprintf("x_%d_%s", ends, args.Input.Token)
	if _, err := fmt.Fprintf(s.file, "ran %s %s\n", args.Input.Token, id); err != nil {
		return map[string]any{"status": "failed", "error": err.Error()}
	}
	if args.Workflow == quickWorkflow {
		time.Sleep(lasts)
		return outputOf(args.Input.Token)
	}
	return map[string]any{"execution_id": id, "status": "running"}
}

func (source) status(args sourceArgs) any {
	var ends int64
	var token string
	if _, err := fmt.Sscanf(args.Execution, "x_%d_%s", &ends, &token); err != nil {
		return map[string]any{"status": "failed", "error": "there is no such execution"}
	}
	if left := time.Until(time.Unix(0, ends)); left > 0 {
		return map[string]any{"status": "running", "progress": left.String()}
	}
	return map[string]any{"status": "completed", "output": outputOf(token)}
}

// outputOf returns the output of an execution.
func outputOf(token string) any { return map[string]any{"token_was": token} }

func (s *simulation) sourceFile() string { return filepath.Join(s.dir, "executions") }

// startSource starts the source of workflows, also after a kill.
func (s *simulation) startSource(ctx context.Context) (err error) {
	if s.source, err = s.startOwn(ctx, "source", s.sourceFile(), s.sourceAddress); err == nil {
		s.sourceAddress = strings.TrimSuffix(strings.TrimPrefix(s.source.url, "http://"), "/mcp")
	}
	return err
}
