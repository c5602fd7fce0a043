package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
	"deepwork/transport/tool"
	"deepwork/transport/web"
)

// A logBuffer collects log lines as JSON objects.
type logBuffer struct{ testkit.Log }

func (l *logBuffer) lines(t *testing.T, msg string) (out []map[string]any) {
	t.Helper()
	for line := range strings.Lines(l.String()) {
		var m map[string]any
		must(t, json.Unmarshal([]byte(line), &m))
		if m["msg"] == msg {
			out = append(out, m)
		}
	}
	return out
}

func logged() (*slog.Logger, *logBuffer) {
	l := new(logBuffer)
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelInfo})), l
}

func finishing(err error) func(*fakeAgent) {
	return func(a *fakeAgent) {
		a.finish = func(context.Context, workflow.FinishArgs) (*machine.FinishReply, error) { return nil, err }
	}
}

func TestRefusedCall(t *testing.T) {
	s, _ := fakeServer(t, finishing(fmt.Errorf("finishing: %w", session.NotNow("no_session", "No active workflow session").With("resumable", []string{"0a1b2c3d"}))))
	conforms(t, s)
	res := callTool(t, client(t, s), "finished_step", `{"outputs":{}}`)
	if !res.IsError || text(res) != "StateError: No active workflow session" || len(res.Content) != 1 || res.StructuredContent != nil {
		t.Errorf("got %+v", res)
	}
	meta := errorMetaOf(t, res)
	if meta["type"] != "StateError" || meta["code"] != "no_session" || fmt.Sprint(meta["resumable"]) != "[0a1b2c3d]" {
		t.Errorf("_meta %v", meta)
	}
}

func TestErrorTextIsBounded(t *testing.T) {
	long := "first " + strings.Repeat("é\U0001F600", 20_000) + " last"
	s, _ := fakeServer(t, finishing(session.Wrong("x", "%s", long).With("all", long).With("bad", func() {})))
	res := callTool(t, client(t, s), "finished_step", `{"outputs":{}}`)
	got := text(res)
	if n := len([]rune(got)); n > tool.ErrorChars || n < tool.ErrorChars-100 {
		t.Errorf("%d characters, want at most %d", n, tool.ErrorChars)
	}
	if !strings.HasPrefix(got, "ToolError: first") || !strings.HasSuffix(got, " last") || !strings.Contains(got, "characters cut") || strings.Contains(got, "\uFFFD") {
		t.Errorf("got %s … %s", jsontext.Clip(got, 50), got[len(got)-50:])
	}
	if meta := errorMetaOf(t, res); meta["code"] != "x" || meta["details_omitted"] != true {
		t.Errorf("_meta %v", jsontext.Clip(fmt.Sprint(meta), 200))
	}
}

func TestBrokenCall(t *testing.T) {
	logger, log := logged()
	s, _ := fakeServer(t, finishing(errors.New("disk on fire")))
	s.logger, s.tools.Logger = logger, logger
	res := callTool(t, client(t, s), "finished_step", `{"outputs":{}}`)
	if got := text(res); !res.IsError || !strings.HasPrefix(got, "ToolError: ") || !strings.Contains(got, "error in the server") || strings.Contains(got, "disk on fire") {
		t.Errorf("got %s", got)
	}
	if meta := errorMetaOf(t, res); meta["code"] != "internal" {
		t.Errorf("_meta %v", meta)
	}
	if l := log.lines(t, "call"); len(l) != 1 || l[0]["level"] != "ERROR" || l[0]["outcome"] != "internal" || !strings.Contains(fmt.Sprint(l[0]["error"]), "disk on fire") {
		t.Errorf("log %v", l)
	}
}

func TestPanicIsOneFailedCall(t *testing.T) {
	logger, log := logged()
	s, _ := fakeServer(t, func(a *fakeAgent) {
		a.finish = func(context.Context, workflow.FinishArgs) (*machine.FinishReply, error) { panic("boom") }
	})
	s.logger, s.tools.Logger = logger, logger
	cs := client(t, s)
	res := callTool(t, cs, "finished_step", `{"outputs":{}}`)
	if !res.IsError || errorMetaOf(t, res)["code"] != "internal" {
		t.Errorf("got %+v", res)
	}
	l := log.lines(t, "call")
	if len(l) != 1 || l[0]["level"] != "ERROR" || l[0]["outcome"] != "panic" || l[0]["panic"] != "boom" || !strings.Contains(fmt.Sprint(l[0]["trace"]), "calls_test.go") {
		t.Errorf("log %v", l)
	}
	if res := callTool(t, cs, "get_step", `{}`); res.IsError {
		t.Errorf("after the panic: %s", text(res))
	}
}

// Not only tools may panic.
func TestPanicInAnyRequest(t *testing.T) {
	logger, log := logged()
	s, _ := fakeServer(t, nil)
	s.logger, s.tools.Logger = logger, logger
	cs := client(t, s)
	s.mcp.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return s.receive(func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "tools/list" {
				panic("boom")
			}
			return next(ctx, method, req)
		})
	})
	_, err := cs.ListTools(context.Background(), nil)
	if e, ok := errors.AsType[*jsonrpc.Error](err); !ok || e.Code != jsonrpc.CodeInternalError {
		t.Errorf("got %v", err)
	}
	if l := log.lines(t, "panic while handling a request"); len(l) != 1 {
		t.Errorf("log %v", l)
	}
	if err := cs.Ping(context.Background(), nil); err != nil && !strings.Contains(err.Error(), "not supported") {
		t.Errorf("after the panic: %v", err)
	}
}

func TestUnknownToolIsAProtocolError(t *testing.T) {
	logger, log := logged()
	s, _ := fakeServer(t, func(a *fakeAgent) { a.stack = []machine.StackEntry{{Workflow: "notes/write", SessionID: "0a1b2c3d"}} })
	s.logger, s.tools.Logger = logger, logger
	_, err := client(t, s).CallTool(context.Background(), &mcp.CallToolParams{Name: "finish"})
	if e, ok := errors.AsType[*jsonrpc.Error](err); !ok || e.Code != jsonrpc.CodeInvalidParams || !strings.Contains(e.Message, `"finish"`) {
		t.Errorf("got %v", err)
	}
	if l := log.lines(t, "call of an unknown tool"); len(l) != 1 || l[0]["tool"] != "finish" || l[0]["session"] != "0a1b2c3d" {
		t.Errorf("log %v", l)
	}
}

func TestBadConfigRefusesCalls(t *testing.T) {
	bad := errors.New(".deepwork/config.yml:3:1: unknown key")
	s, f := fakeServer(t, nil, func(p *engines) {
		p.check = func(context.Context) (*config.Config, error) { return nil, bad }
	})
	cs := client(t, s)
	if res, err := cs.ListTools(context.Background(), nil); err != nil || len(res.Tools) < 6 {
		t.Errorf("tools/list: %v", err)
	}
	testkit.Contains(t, cs.InitializeResult().Instructions, bad.Error(), "instructions")
	res := callTool(t, cs, "get_workflows", `{}`)
	if !res.IsError || !strings.HasPrefix(text(res), "StateError: ") || !strings.Contains(text(res), bad.Error()) || errorMetaOf(t, res)["code"] != "config_invalid" {
		t.Errorf("got %s", text(res))
	}
	f.first(t)
	f.mu.Lock()
	defer f.mu.Unlock()
	testkit.Equal(t, len(f.agents), 1, "agents")
}

// Every call is logged in one line with tool, session and the stack as it was when it began.
func TestReq001_1_12_CallsAreLogged(t *testing.T) {
	logger, log := logged()
	s, f := fakeServer(t, func(a *fakeAgent) {
		a.stack = []machine.StackEntry{{Workflow: "j/outer", SessionID: "0000000a"}, {Workflow: "j/inner", SessionID: "0000000b"}}
	})
	s.logger, s.tools.Logger = logger, logger
	cs := client(t, s)
	callTool(t, cs, "finished_step", `{"outputs":{},"session_id":"0a1b2c3d"}`)
	callTool(t, cs, "finished_step", `{}`)
	lines := log.lines(t, "call")
	if len(lines) != 2 {
		t.Fatalf("%d lines", len(lines))
	}
	if l := lines[0]; l["tool"] != "finished_step" || l["session"] != "0a1b2c3d" || fmt.Sprint(l["stack"]) != "[j/outer j/inner]" || l["outcome"] != "needs_work" {
		t.Errorf("logged %v", l)
	}
	if took, ok := lines[0]["took_ms"].(float64); !ok || took < 0 || took > 60_000 {
		t.Errorf("took_ms is %v", lines[0]["took_ms"])
	}
	if l := lines[1]; l["session"] != "0000000b" || l["outcome"] != "missing_argument" {
		t.Errorf("logged %v", l)
	}
	f.mu.Lock()
	f.agents[0].stack = make([]machine.StackEntry, 1000)
	f.mu.Unlock()
	callTool(t, cs, "get_step", `{}`)
	if stack := log.lines(t, "call")[2]["stack"].(map[string]any); stack["depth"] != 1000.0 || len(stack["top"].([]any)) != tool.StackLogged {
		t.Errorf("stack %v", stack)
	}
}

func TestSDKIsQuiet(t *testing.T) {
	logger, log := logged()
	s := testkit.Get(newServer(engines{connect: new(fakes).agent}, nil, "", logger)).Must(t)
	callTool(t, client(t, s), "get_step", `{}`)
	testkit.Equal(t, strings.Count(log.String(), "\n"), 1, "lines, want 1: %s", log.String())
}

// Each MCP session has an agent of its own, closed when the session ends.
func TestConnectionsHaveTheirOwnAgents(t *testing.T) {
	s, f := fakeServer(t, nil)
	for range 2 {
		t.Run("", func(t *testing.T) { callTool(t, client(t, s), "get_step", `{}`) })
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.agents) != 2 {
		t.Fatalf("%d agents, want 2", len(f.agents))
	}
	for _, a := range f.agents {
		<-a.closed
		testkit.Equal(t, a.identity, "local", "identity")
	}
}

func TestCloseEndsConnections(t *testing.T) {
	b := newBlocked()
	s, f := fakeServer(t, b.agent)
	here, there := mcp.NewInMemoryTransports()
	ran := make(chan error, 1)
	go func() { ran <- s.mcp.Run(localCall(), here) }()
	cs := connect(t, there, "", nil)
	called := make(chan error, 1)
	go func() {
		_, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "finished_step", Arguments: json.RawMessage(`{"outputs":{}}`)})
		called <- err
	}()
	<-b.began
	testkit.Works(t, s.Close(context.Background()), "Close")
	<-f.agents[0].closed
	<-called
	<-ran
}

// A connection that cannot be ended is named, not waited for without end.
func TestCloseNamesWhatDidNotStop(t *testing.T) {
	b := newBlocked()
	b.stubborn = true
	s, _ := fakeServer(t, b.agent)
	s.opened.add("sessions that did not stop", func(context.Context) error { return errors.New("x") })
	cs := client(t, s)
	called := make(chan struct{})
	go func() {
		defer close(called)
		cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "finished_step", Arguments: json.RawMessage(`{"outputs":{}}`)})
	}()
	<-b.began
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := s.Close(ctx)
	if err == nil || !strings.Contains(err.Error(), "1 connections did not stop") || !strings.Contains(err.Error(), "did not stop: x") {
		t.Errorf("got %v", err)
	}
	close(b.free)
	<-called
}

// A tool of the board that breaks, or is cut short by the end of the server, says where on the board to
// look, and one that only reads can be called again.
func TestBoardCallThatFails(t *testing.T) {
	s, _ := fakeServer(t, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(tool.ErrStopping)
	for name, says := range map[string]string{
		"create_task": "before you call create_task again, call list_tasks",
		"get_task":    "it changes nothing, so call get_task again",
	} {
		for _, c := range []struct {
			ctx        context.Context
			err        error
			code, says string
		}{
			{t.Context(), errors.New("disk on fire"), "internal", says},
			{ctx, tool.ErrStopping, "stopping", "Connect again; " + says},
		} {
			res, err := serve(c.ctx, s, name, func() (any, error) { return nil, c.err })
			if err != nil || errorMetaOf(t, res)["code"] != c.code || !strings.Contains(text(res), c.says) || strings.Contains(text(res), "get_step") {
				t.Errorf("%s: %v: %s", name, err, text(res))
			}
		}
	}
}

// Each tool that changes something says how to see what it did, by tools there are.
func TestEveryToolCanBeRechecked(t *testing.T) {
	s, _ := fakeServer(t, nil)
	name := regexp.MustCompile(`\b(?:get|list)_[a-z_]+|workflow_status|workflows-status-tool`)
	for _, tool := range s.tools.Names() {
		r := s.tools.Tool(tool)
		testkit.Equal(t, r.Hints.ReadOnly, r.Recheck == "", "%s: reads only, and is rechecked by %q", tool, r.Recheck)
		named := name.FindAllString(r.Recheck, -1)
		if !r.Hints.ReadOnly && len(named) == 0 {
			t.Errorf("%s: no tool is named in %q", tool, r.Recheck)
		}
		for _, n := range named {
			if !s.tools.Tool(n).Hints.ReadOnly {
				t.Errorf("%s: %s is no tool that reads", tool, n)
			}
		}
	}
}

// The instructions tell of the tools that are offered, and of no others.
func TestInstructionsFitTheToolsets(t *testing.T) {
	for _, c := range []struct {
		sets        []string
		inside      bool
		has, hasNot []string
	}{
		{nil, false, []string{onBoardLine, lifecycle, "failed to load"}, []string{inWorkspaceLine}},
		{nil, true, []string{onBoardLine, lifecycle, inWorkspaceLine}, nil},
		{[]string{"workflows"}, false, []string{lifecycle}, []string{onBoardLine, inWorkspaceLine}},
		{[]string{"board"}, false, []string{onBoardLine}, []string{"get_workflows", "workflows"}},
	} {
		server, _ := project(t, func(o *Options) { o.Toolsets = c.sets })
		p := server.engines
		if c.inside {
			p.workspace = new(board.Context)
		}
		s := testkit.Get(newServer(p, c.sets, "", slog.New(slog.DiscardHandler))).Must(t)
		got := s.instructions(t.Context())
		testkit.ContainsAll(t, got, c.has, "%v", c.sets)
		for _, text := range c.hasNot {
			if strings.Contains(got, text) {
				t.Errorf("%v: %q is in:\n%s", c.sets, text, got)
			}
		}
		if len(got) > instructionBytes || strings.TrimSpace(got) != got {
			t.Errorf("%v: %d bytes:\n%s", c.sets, len(got), got)
		}
	}
}

// A hugeReply is one that no bound of its own holds back.
type hugeReply struct {
	Text string `json:"text"`
}

// serve carries out a call of a tool whose work is work.
func serve(ctx context.Context, s *Server, name string, work func() (any, error)) (*mcp.CallToolResult, error) {
	return s.tools.Serve(ctx, &tool.Caller{Workflows: &fakeAgent{}}, &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: name}}, tool.CallLog{Tool: name},
		func(*tool.CallLog) *session.Error { return nil },
		func(context.Context) (any, error) { return work() })
}

// Whatever a tool would answer, what it does
// answer has at most tool.MaxReplyBytes, and an error at most 8,000 characters; what is
// too much is told with its size and with what to do, not cut.
func TestEveryReplyIsBounded(t *testing.T) {
	s, _ := fakeServer(t, nil, inWorkspace)
	names := []string{"report_sales"} // the tool of another system's workflow
	for _, tool := range listTools(t) {
		names = append(names, tool.Name)
	}
	call := func(name string, work func() (any, error)) *mcp.CallToolResult {
		t.Helper()
		res, err := serve(t.Context(), s, name, work)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return res
	}
	frame := len(`{"text":""}`)
	for i, name := range names {
		if i%replyTools != 0 {
			continue
		}
		for size, fits := range map[int]bool{tool.MaxReplyBytes: true, tool.MaxReplyBytes + 1: false} {
			res := call(name, func() (any, error) {
				return &hugeReply{strings.Repeat("x", size-frame)}, nil
			})
			if fits {
				if res.IsError || len(text(res)) != size {
					t.Errorf("%s: %d bytes are refused: %.300s", name, size, text(res))
				}
				continue
			}
			got := text(res)
			if !res.IsError || res.StructuredContent != nil || !strings.HasPrefix(got, "StateError: "+name+" ") || !strings.Contains(got, fmt.Sprintf("%d bytes of JSON, and at most %d are sent", size, tool.MaxReplyBytes)) {
				t.Errorf("%s: %d bytes: %.300s", name, size, got)
			}
			if code := res.Meta[tool.ErrorMeta].(map[string]any)["code"]; code != "reply_too_large" {
				t.Errorf("%s: the code is %v", name, code)
			}
			if _, what, _ := strings.Cut(got, "What to do now: "); len(what) < 20 {
				t.Errorf("%s: nothing says what to do: %s", name, got)
			}
			if strings.Contains(got, tool.SeeExecution) {
				t.Errorf("%s: it is told to see whether a run that ended was started: %s", name, got)
			}
			if carried := strings.Contains(got, "was executed"); carried == s.tools.Tool(name).Hints.ReadOnly {
				t.Errorf("%s only reads: %v; it says %s", name, s.tools.Tool(name).Hints.ReadOnly, got)
			}
		}
		res := call(name, func() (any, error) {
			return nil, session.Wrong("long", "%s", strings.Repeat("é", 3*tool.ErrorChars))
		})
		if n := utf8.RuneCountInString(text(res)); !res.IsError || n > tool.ErrorChars {
			t.Errorf("%s: an error of %d characters", name, n)
		}
	}
}

// What reads little at once says how in its own arguments.
func TestRemediesForLargeRepliesNameArguments(t *testing.T) {
	tools := map[string]*mcp.Tool{}
	for _, tool := range listTools(t) {
		tools[tool.Name] = tool
	}
	s, _ := fakeServer(t, nil, inWorkspace)
	for name, tool := range tools {
		how := s.tools.Tool(name).Smaller
		if how != "" && !tool.Annotations.ReadOnlyHint {
			t.Errorf("%s is no tool that only reads", name)
			continue
		}
		argument, ok := strings.CutPrefix(how, "give ")
		if !ok {
			continue
		}
		argument, _, _ = strings.Cut(strings.TrimPrefix(argument, "a smaller "), ",")
		if schemaFrom(t, tool.InputSchema).Properties[argument] == nil {
			t.Errorf("%s has no argument %q, which its remedy names: %s", name, argument, how)
		}
	}
}

// The log line of a stateless call has the stack that the call is about.
func TestStatelessCallsAreLoggedWithTheirStack(t *testing.T) {
	logger, log := logged()
	s, _ := project(t, func(o *Options) { o.Logger = logger })
	cs := dial(t, overHTTP(t, s, web.Options{}), "", "")
	start := `{"goal":"g","job_name":"trip","workflow_name":"plan"%s}`
	outer := into[machine.StartReply](t, cs, "start_workflow", fmt.Sprintf(start, "")).BeginStep.SessionID
	inner := into[machine.StartReply](t, cs, "start_workflow", fmt.Sprintf(start, `,"parent_session_id":"`+outer+`"`)).BeginStep.SessionID
	into[machine.StepReply](t, cs, "get_step", `{"session_id":"`+inner+`"}`)
	lines := log.lines(t, "call")
	if lines[0]["session"] != outer || lines[1]["session"] != inner { // of the sessions that they started
		t.Errorf("logged: %v", lines[:2])
	}
	last := lines[len(lines)-1]
	testkit.Equal(t, last["session"], any(inner), "logged")
	testkit.Equal(t, fmt.Sprint(last["stack"]), "[trip/plan trip/plan]", "logged")
}
