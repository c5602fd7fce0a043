package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/wait"
	"deepwork/session/store"
)

// A journal is what others did: names in order, by event and token.
type journal map[string]map[string][]string

// readJournal reads a file of lines "event token name", each written in one piece.
func readJournal(path string) (journal, error) {
	did := journal{
		"ran":      {},
		"start":    {},
		"wrote":    {},
		"commit":   {},
		"end":      {},
		"begin":    {},
		"finished": {},
		"beside":   {},
		"asked":    {},
		"odd":      {},
	}

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

// A source is a system that runs workflows, in its own process. It first writes each start into a journal, where starts
// are counted. An execution's id describes it, so a killed source can continue it.
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
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
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
	schema := json.RawMessage(`{"type":"object","properties":{"token":{"type":"string"},` +
		`"lasts":{"type":"integer"}},"required":["token","lasts"]}`)
	var all []map[string]any
	for name, kind := range map[string]string{quickWorkflow: "sync", slowWorkflow: "async"} {
		all = append(all, map[string]any{
			"id":            name,
			"name":          name,
			"description":   "Gives its token back",
			"inputSchema":   schema,
			"executionType": kind,
		})
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

// A caller is a client that runs workflows of another system and asks for their state later,
// whichever server was killed meanwhile.
type caller struct {
	*agent
	known []*execution
}

// An execution is one that a call reported.
type execution struct {
	id, token string
	source    bool   // the source's id was reported too, and is stored
	state     string // the final state, once reported and stored
}

// act makes a call.
func (c *caller) act(ctx context.Context) {
	if len(c.known) == 0 || c.below(2) == 0 {
		c.begin(ctx)
	} else {
		c.ask(ctx, c.known[c.below(len(c.known))])
	}
}

// nothingStarted is the text about an execution that its source was never asked for.
var nothingStarted = regexp.MustCompile(`(?i)nothing was started|was not started`)

// goesOn is the text of a stopping server about an execution that continues.
var goesOn = regexp.MustCompile(`goes on at its source .*execution_id '([^']+)'`)

// An executionReply is what a tool reports of an execution.
type executionReply struct {
	ID     string          `json:"execution_id"`
	Source string          `json:"source_execution_id"`
	State  string          `json:"state"`
	Result json.RawMessage `json:"result"`
	Error  string          `json:"error"`
}

// begin runs a workflow. Such a call has no request_id, so it is made once.
func (c *caller) begin(ctx context.Context) {
	token, name := c.token("x"), quickWorkflow
	if c.below(3) > 0 {
		name = slowWorkflow
	}
	e := c.history.ask("workflow at the source", token, &effect{})
	t, _ := c.tell(ctx, "call_workflow_tool",
		map[string]any{"name": name, "arguments": map[string]any{"token": token, "lasts": c.below(400)}}, false)

	c.history.with(func() { e.refused = t.kind == noEffect || nothingStarted.MatchString(t.text) })
	known := &execution{token: token}
	var r executionReply
	if m := goesOn.FindStringSubmatch(t.text); m != nil {
		known.id = m[1]
	} else if c.reads(t, &r) {
		known.id = r.ID
		c.learn(known, r, t.by.full)
	} else {
		return
	}
	c.known = append(c.known, known)
}

// ask asks for the state of an execution.
func (c *caller) ask(ctx context.Context, known *execution) (over bool) {
	t, _ := c.tell(ctx, "workflow_status", map[string]any{"execution_id": known.id}, false)
	var r executionReply
	switch {
	case t.kind == gone:
		begun := 0
		c.history.with(func() { begun = len(c.history.effects["workflow at the source"]) })
		if begun <= store.RemoteRunsKept { // otherwise it may be one that is not kept any more
			c.history.fault("a lost execution", "client %d: execution %s of %s: %s", c.number, known.id,
				known.token, t.text)
		}
		return true
	case c.reads(t, &r):
		c.learn(known, r, t.by.full)
		return r.State != "running"
	}

	return false
}

// learn compares a report about an execution with earlier ones.
func (c *caller) learn(known *execution, r executionReply, full bool) {
	wrong := func(format string, args ...any) {
		c.history.fault("a wrong execution", "client %d: execution %s of %s: %s: %+v", c.number, known.id, known.token,
			fmt.Sprintf(format, args...), r)
	}
	if r.ID != known.id {
		wrong("it is another")
	}
	if known.state != "" && r.State != known.state {
		wrong("it was %s, and is %s", known.state, r.State)
	}
	switch r.State {
	case "completed":
		var got any
		if err := json.Unmarshal(r.Result, &got); err != nil || !reflect.DeepEqual(got, outputOf(known.token)) {
			wrong("its result is not what the source gave")
		}
	case "running":
	case "unknown":
		if known.source {
			wrong("it was at its source, and is lost sight of")
		}
	case "failed":
		if !nothingStarted.MatchString(r.Error) {
			wrong("nothing fails here")
		}
		c.history.with(func() { c.history.effects["workflow at the source"][known.token].refused = true })
	default:
		wrong("nobody has ended it")
	}

	if full { // what a source accepted or ended may not have been written
		return
	}
	known.source = known.source || r.Source != ""
	if r.State != "running" {
		known.state = r.State
	}
}

// settle asks until every execution has ended.
func (c *caller) settle(ctx context.Context) {
	until := time.Now().Add(settleTime)
	for _, known := range c.known {
		for !c.ask(ctx, known) {
			if ctx.Err() != nil || time.Now().After(until) {
				c.history.fault("an execution that does not end", "client %d: execution %s of %s", c.number, known.id,
					known.token)
				break
			}
			_ = wait.For(ctx, 20*time.Millisecond)
		}
	}
}

// judgeExecutions compares what was started at the source with the calls.
func (s *simulation) judgeExecutions() error {
	did, err := readJournal(s.sourceFile())
	if err != nil {
		return err
	}
	s.executions = len(did["ran"])
	completed := map[string]bool{}
	for _, c := range s.callers {
		for _, known := range c.known {
			completed[known.token] = known.state == "completed"
		}
	}
	s.history.once("workflow at the source", did["ran"], func(token string, _ *effect) bool { return completed[token] })
	return nil
}
