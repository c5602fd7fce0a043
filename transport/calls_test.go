package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/telemetry"
	"deepwork/actor/telemetry/telemetrytest"
	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/board"
	"deepwork/session/replies"
	"deepwork/session/spans"
	"deepwork/transport/tool"
	"deepwork/transport/web"
)

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

func TestPanicInAnyRequest(t *testing.T) {
	t.Parallel()
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
	e, ok := errors.AsType[*jsonrpc.Error](err)
	testkit.True(t, ok && e.Code == jsonrpc.CodeInternalError, "got %v", err)
	testkit.Equal(t, len(log.lines(t, "panic while handling a request")), 1, "logged")
	accepted(t, cs, "get_step", `{}`)
}

// Every call is logged in one line with tool, session and the stack as it was when it began.
func TestReq001_1_12_CallsAreLogged(t *testing.T) {
	t.Parallel()
	logger, log := logged()
	f := &fakes{setup: func(a *fakeAgent) {
		a.stack = []replies.StackEntry{{Workflow: "j/outer", SessionID: "0000000a"},
			{Workflow: "j/inner", SessionID: "0000000b"}}
	}}
	s := testkit.Get(newServer(engines{connect: f.agent}, nil, "", logger)).Must(t)
	cs := client(t, s)
	callTool(t, cs, "finished_step", `{"outputs":{},"session_id":"0a1b2c3d"}`)
	callTool(t, cs, "finished_step", `{}`)
	lines := log.lines(t, "call")
	testkit.Need(t, len(lines) == 2, "%d lines", len(lines))

	of := func(l map[string]any) string {
		return fmt.Sprintf("%v %v %v %v", l["tool"], l["session"], l["stack"], l["outcome"])
	}
	testkit.Equal(t, of(lines[0]), "finished_step 0a1b2c3d [j/outer j/inner] needs_work", "logged")

	took, ok := lines[0]["took_ms"].(float64)
	testkit.Need(t, ok, "took_ms is %v", lines[0]["took_ms"])
	testkit.True(t, took >= 0, "took_ms is %v", lines[0]["took_ms"])
	testkit.True(t, took <= 60_000, "took_ms is %v", lines[0]["took_ms"])
	testkit.Equal(t, of(lines[1]), "finished_step 0000000b [j/outer j/inner] missing_argument", "logged")

	f.mu.Lock()
	f.agents[0].stack = make([]replies.StackEntry, 1000)
	f.mu.Unlock()
	callTool(t, cs, "get_step", `{}`)
	stack := log.lines(t, "call")[2]["stack"].(map[string]any)
	testkit.True(t, stack["depth"] == 1000.0 && len(stack["top"].([]any)) == tool.StackLogged, "stack %v", stack)
	testkit.Equal(t, strings.Count(log.String(), "\n"), 3, "lines, and the SDK logs none: %s", log.String())
}

// A connection that cannot be ended is named, not waited for without end.
func TestCloseEndsConnectionsOrNamesWhatDidNotStop(t *testing.T) {
	t.Parallel()
	for _, stubborn := range []bool{false, true} {
		b := newBlocked()
		b.stubborn = stubborn
		s, f := fakeServer(t, b.agent)
		_, done := inBackground(t, client(t, s), "finished_step", `{"outputs":{}}`)
		<-b.began
		if !stubborn {
			testkit.Works(t, s.Close(t.Context()), "Close")
			<-f.agents[0].closed
			<-done
			continue
		}

		s.opened.add("sessions that did not stop", func(context.Context) error { return errors.New("x") })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := s.Close(ctx)
		testkit.Fails(t, err, "1 connections did not stop")
		testkit.Fails(t, err, "did not stop: x")

		close(b.free)
		<-done
	}
}

// Each tool that changes something says how to see what it did, by tools there are; what reads little at once
// says how in its own arguments.
func TestEveryToolCanBeRechecked(t *testing.T) {
	t.Parallel()
	s, _ := fakeServer(t, nil)
	name := regexp.MustCompile(`\b(?:get|list)_[a-z_]+|workflow_status|workflows-status-tool`)
	for _, tool := range s.tools.Names() {
		r := s.tools.Tool(tool)
		testkit.Equal(t, r.Hints.ReadOnly, r.Recheck == "", "%s: reads only, and is rechecked by %q", tool, r.Recheck)
		named := name.FindAllString(r.Recheck, -1)
		testkit.True(t, r.Hints.ReadOnly || len(named) != 0, "%s: no tool is named in %q", tool, r.Recheck)
		for _, n := range named {
			testkit.True(t, s.tools.Tool(n).Hints.ReadOnly, "%s: %s is no tool that reads", tool, n)
		}
		testkit.True(t, r.Smaller == "" || r.Hints.ReadOnly, "%s is no tool that only reads", tool)
		if argument, ok := strings.CutPrefix(r.Smaller, "give "); ok {
			argument, _, _ = strings.Cut(strings.TrimPrefix(argument, "a smaller "), ",")
			testkit.True(t, r.Input.Properties[argument] != nil, "%s has no argument %q, which its remedy names: %s",
				tool, argument, r.Smaller)
		}
	}
}

// The instructions tell of the tools that are offered, and of no others.
func TestInstructionsFitTheToolsets(t *testing.T) {
	t.Parallel()
	server, _ := project(t, nil)
	for _, c := range []struct {
		sets        []string
		workspace   *board.Context
		has, hasNot []string
	}{
		{config.DefaultToolsets, nil, []string{onBoardLine, lifecycle, "failed to load"}, []string{inWorkspaceLine}},
		{config.DefaultToolsets, new(board.Context), []string{onBoardLine, lifecycle, inWorkspaceLine}, nil},
		{[]string{"workflows"}, nil, []string{lifecycle}, []string{onBoardLine, inWorkspaceLine}},
		{[]string{"board"}, nil, []string{onBoardLine}, []string{"get_workflows", "workflows"}},
	} {
		p := server.engines
		p.workspace = c.workspace
		got := testkit.Get(newServer(p, c.sets, "", slog.New(slog.DiscardHandler))).Must(t).instructions(t.Context())
		testkit.ContainsAll(t, got, c.has, "%v", c.sets)
		for _, text := range c.hasNot {
			testkit.True(t, !strings.Contains(got, text), "%v: %q is in:\n%s", c.sets, text, got)
		}
		testkit.True(t, len(got) <= instructionBytes && strings.TrimSpace(got) == got, "%v: %d bytes:\n%s", c.sets,
			len(got), got)
	}
}

// The log line of a stateless call has the stack that the call is about.
func TestStatelessCallsAreLoggedWithTheirStack(t *testing.T) {
	t.Parallel()
	logger, log := logged()
	s, _ := project(t, func(o *Options) { o.Logger = logger })
	cs := dial(t, overHTTP(t, s, web.Options{}), "", "")
	start := `{"goal":"g","job_name":"trip","workflow_name":"plan"%s}`
	outer := into[replies.Start](t, cs, "start_workflow", fmt.Sprintf(start, "")).BeginStep.SessionID
	inner := into[replies.Start](t, cs, "start_workflow",
		fmt.Sprintf(start, `,"parent_session_id":"`+outer+`"`)).BeginStep.SessionID
	into[replies.Step](t, cs, "get_step", `{"session_id":"`+inner+`"}`)
	lines := log.lines(t, "call")
	testkit.True(t, lines[0]["session"] == outer && lines[1]["session"] == inner,
		"of the sessions that they started it logged: %v", lines[:2])

	last := lines[len(lines)-1]
	testkit.Equal(t, last["session"], any(inner), "logged")
	testkit.Equal(t, fmt.Sprint(last["stack"]), "[trip/plan trip/plan]", "logged")
}

func calling(t *testing.T, cs *mcp.ClientSession, traceparent, name string, args map[string]any) {
	t.Helper()
	res := testkit.Get(cs.CallTool(t.Context(),
		&mcp.CallToolParams{Meta: mcp.Meta{"traceparent": traceparent}, Name: name, Arguments: args})).Must(t)
	testkit.Need(t, !res.IsError, "%s", text(res))
}

// A session is in the trace of the call that starts it. A later call of another trace stays in that, with a link; one
// without a trace is in the session. What is not sampled is not sent. The next server sends again what has just ended.
func TestTracesOfCalls(t *testing.T) {
	receiver := telemetrytest.New(t)
	stop := telemetry.Start(telemetry.Options{Endpoint: receiver.URL, Service: "test"})
	s, root := project(t, nil)
	cs := client(t, s)
	start := map[string]any{"goal": "canary", "job_name": "trip", "workflow_name": "dream"}
	const first, other, hidden = "4bf92f3577b34da6a3ce929d0e0e4731", "4bf92f3577b34da6a3ce929d0e0e4732",
		"4bf92f3577b34da6a3ce929d0e0e4733"
	calling(t, cs, "00-"+first+"-00f067aa0ba902b7-01", "start_workflow", start)
	calling(t, cs, "00-"+other+"-00f067aa0ba902b8-01", "get_step", nil)
	into[replies.Finish](t, cs, "finished_step", `{"outputs":{"idea":"idea.txt"}}`)
	calling(t, cs, "00-"+hidden+"-00f067aa0ba902b9-00", "start_workflow", start)
	into[replies.Finish](t, cs, "finished_step", `{"outputs":{"idea":"idea.txt"}}`)
	stop()
	all, got := slices.Collect(maps.Values(receiver.Spans())), map[string]string{}
	session := all[slices.IndexFunc(all, func(s telemetrytest.Span) bool {
		return strings.HasPrefix(s.Name, "invoke_workflow")
	})]
	for _, s := range all {
		if s.Name != spans.Transaction { // on a slow machine
			got[s.Name+" in "+s.Trace] = s.Parent + s.Error
		}
		testkit.True(t, s.Name != "tools/call get_step" || len(s.Links) == 1 && s.Links[0] == session.ID,
			"the links of a call in another trace are %v, want %s", s.Links, session.ID)
	}
	testkit.Same(t, got, map[string]string{
		"tools/call start_workflow in " + first:  "00f067aa0ba902b7",
		"invoke_workflow trip/dream in " + first: "00f067aa0ba902b7",
		"step in " + first:                       session.ID,
		"tools/call get_step in " + other:        "00f067aa0ba902b8",
		"tools/call finished_step in " + first:   session.ID,
	})
	testkit.True(t, !strings.Contains(string(receiver.Raw()), "canary"), "the goal leaves")

	next := telemetrytest.New(t)
	defer telemetry.Start(telemetry.Options{Endpoint: next.URL, Service: "test"})()
	serverOn(t, root, nil)
	waitFor(t, "the session is sent again", func() bool {
		again := next.Spans()[session.ID]
		return again.Name == session.Name && again.End == session.End
	})
}

// A workflow at a source is in the trace of the call, and so are what the source does for it and the look
// that finds the end of its task; the looks before that are not calls.
func TestTraceOfAWorkflowAtASource(t *testing.T) {
	receiver := telemetrytest.New(t)
	stop := telemetry.Start(telemetry.Options{Endpoint: receiver.URL, Service: "test", Content: true})
	inner, _ := bareProject(t, "", asSource)
	h := overHTTP(t, inner, web.Options{})
	outer, _ := withConfig(t, "workflow_tools:\n"+fast+"  sources:\n    - {name: inner, url: \""+h.URL()+"\"}\n", nil)
	outer.names(t, "trip-dream", "trip-plan")
	c := &taker{t, httpClient(t, ""), overHTTP(t, outer, web.Options{}).URL(),
		takesTasks + `,"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4734-00f067aa0ba902b7-01"`}
	made := c.call("trip-dream", `{"goal":"canary"}`)
	c.get(made["taskId"], "working")
	agent := dial(t, h, stateful, "")
	into[replies.Finish](t, agent, "finished_step",
		`{"session_id":"`+keptBy(t, agent)+`","step_id":"idea","outputs":{"idea":"idea.txt"}}`)
	c.result(made)
	stop()
	all, got := receiver.Spans(), map[string]string{}
	for _, s := range all {
		if (s.Trace == "4bf92f3577b34da6a3ce929d0e0e4734" || strings.Contains(s.Name, "trip-dream")) &&
			!strings.HasPrefix(s.Name, "tools/call workflows-") && s.Name != spans.Transaction {
			got[s.Name] = all[s.Parent].Name
		}
	}
	testkit.Same(t, got, map[string]string{
		"tools/call workflow_tool":   "",
		"remote_workflow":            "",
		"invoke_workflow trip/dream": "remote_workflow",
		"step":                       "invoke_workflow trip/dream",
		"tools/call finished_step":   "invoke_workflow trip/dream",
	})
	testkit.True(t, strings.Contains(string(receiver.Raw()), "canary"), "the goal does not leave, although it may")
}

// Without a receiver, tracing allocates nothing on the path of a call.
func TestNoTraces(t *testing.T) {
	ctx, from := t.Context(), telemetry.Ref{}
	testkit.Equal(t, testing.AllocsPerRun(100, func() {
		ctx, call := telemetry.Begin(ctx, from)
		ctx = telemetry.About(telemetry.Under(ctx, from), from)
		testkit.True(t, call == nil, "the call is traced")
		testkit.True(t, !telemetry.Parent(ctx).IsValid(), "the context has a parent")
		testkit.True(t, !telemetry.Current(ctx).IsValid(), "the context has a span")
		testkit.True(t, telemetry.Environment(from) == nil, "the environment has a span")
	}), 0, "allocations of a call for traces that nobody gets")
}

// A mistake is a call that a client makes wrongly, and how it goes on: with nothing but what the error says, which
// learn finds. In the calls, $1 and so on are what learn found, and $name what an earlier reply was remembered by.
type mistake struct {
	wrong string // tool and arguments
	learn string
	right string // the call that must be accepted then
	keep  string // "name=path": a value of that reply, for later
}

// walk is what a user wants done; the client finds out the rest, with the mistakes that agents make.
var walk = []mistake{
	// Before anything is begun.
	{
		wrong: `finished_step {"outputs": {"idea": "idea.txt"}}`,
		learn: `call (start_workflow)|Begin one with (start_workflow); (get_workflows)`,
		right: `get_workflows {}`,
	},
	{wrong: `get_step {}`, learn: `start_workflow; (get_workflows)`, right: `$1 {}`},
	{wrong: `get_workflow {}`, learn: `did you mean (get_workflows)\?`, right: `$1 {}`},
	{wrong: `get_workflows {"job": "trip"}`, learn: `call it again with (\{\})`, right: `get_workflows $1`},
	{
		wrong: `workflow_status {"execution_id": "00000000-0000-4000-8000-000000000000"}`,
		learn: `a call of a workflow tool starts one and returns its execution_id`,
		right: `list_workflow_tools {}`,
	},
	// Starting.
	{
		wrong: `start_workflow {"goal": "Sea", "job_name": "tripp", "workflow_name": "dream"}`,
		learn: `The jobs there are: (\w+)`,
		right: `start_workflow {"goal": "Sea", "job_name": "$1", "workflow_name": "dream"}`,
		keep:  `dream=begin_step.session_id`,
	},
	{
		wrong: `start_workflow {"goal": "Sea", "job_name": "trip", "workflow_name": "planning"}`,
		learn: `Available workflows: (\w+)`,
		right: `start_workflow {"goal": "Sea", "job_name": "trip", "workflow_name": "$1"}`,
		keep:  `plan=begin_step.session_id`,
	},
	{
		wrong: `start_workflow {"goal": "Sea", "job_name": "trip/plan", "workflow_name": ""}`,
		learn: `The jobs there are: (\w+)`,
		right: `get_workflows {}`,
	},
	{
		wrong: `start_workflow {"job_name": "trip", "workflow_name": "dream"}`,
		learn: `Missing required argument "(goal)": What the user`,
		right: `start_workflow {"$1": "Sea", "job_name": "trip", "workflow_name": "dream"}`,
		keep:  `spare=begin_step.session_id`,
	},
	{
		wrong: `abort_workflow {"session_id": "$spare"}`,
		learn: `Missing required argument "(explanation)": (Why)`,
		right: `abort_workflow {"session_id": "$spare", "$1": "Begun by mistake"}`,
	},
	{
		wrong: `start_workflow {"goal": "  ", "job_name": "trip", "workflow_name": "dream"}`,
		learn: `(goal)`,
		right: `start_workflow {"$1": "Sea", "job_name": "trip", "workflow_name": "dream"}`,
		keep:  `spare=begin_step.session_id`,
	},
	{
		wrong: `start_workflow {"goals": "Sea", "job_name": "trip", "workflow_name": "dream"}`,
		learn: `did you mean (goal)\?`,
		right: `abort_workflow {"session_id": "$spare", "explanation": "Begun by mistake"}`,
	},
	{
		wrong: `start_workflow {"goal": ["Sea"], "job_name": "trip", "workflow_name": "dream"}`,
		learn: `"goal": .* is an array; expected a (string)`,
		right: `get_workflows {}`,
	},
	{
		wrong: `start_workflow {"goal": "Sea", "job_name": "broken", "workflow_name": "plan"}`,
		learn: `(?s)(/\S+/broken) does not load:.*version is missing.*(get_workflows)`,
		right: `$2 {}`,
	},
	{
		wrong: `start_workflow {"goal": "Sea", "job_name": "trip", "workflow_name": "dream", "session_id": ` +
			`"5f0c0a0e-9a6e-4a50-8a7e-0c9d5f6b8a11"}`,
		learn: `leave it out.* pass that one's id as (parent_session_id)`,
		right: `start_workflow {"goal": "Sea", "job_name": "trip", "workflow_name": "dream", "$1": "$plan"}`,
		keep:  `spare=begin_step.session_id`,
	},
	{
		wrong: `abort_workflow {"session_id": "$spare", "reason": "Enough"}`,
		learn: `Missing required argument "(explanation)"`,
		right: `abort_workflow {"session_id": "$spare", "$1": "Enough"}`,
	},
	// Another session of the stack.
	{
		wrong: `finished_step {"step_id": "hotel", "outputs": {"hotels": ["h1.txt"]}}`,
		learn: `not current yet; the current step is '(\w+)'`,
		right: `get_step {}`,
	},
	{
		wrong: `finished_step {"session_id": "$dream", "step_id": "hotel", "outputs": {"hotels": ["h1.txt"]}}`,
		learn: `not in workflow 'trip/dream'`,
		right: `get_step {"session_id": "$dream"}`,
	},
	{
		wrong: `finished_step {"session_id": "12345678", "step_id": "idea", "outputs": {"idea": "idea.txt"}}`,
		learn: `not found in this project.*(get_workflows)`,
		right: `$1 {}`,
	},
	{
		wrong: `get_step {"session_id": "$plan-1"}`,
		learn: `is not a session_id: expected 8 hexadecimal characters, as in (begin_step) and stack`,
		right: `get_step {"session_id": "$plan"}`,
	},
	// Outputs.
	{
		wrong: `finished_step {"session_id": "$plan", "step_id": "idea"}`,
		learn: `Missing required argument "(outputs)"`,
		right: `get_step {"session_id": "$plan"}`,
	},
	{
		wrong: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": {}}`,
		learn: `Missing required outputs: (\w+)\. Step 'idea' declares: \w+ \((file), required\)`,
		right: `get_step {"session_id": "$plan"}`,
	},
	{
		wrong: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": "idea.txt"}`,
		learn: `Give an object of output names and paths; step 'idea' declares: (\w+)`,
		right: `get_step {}`,
	},
	{
		wrong: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": {"ideas": "idea.txt"}}`,
		learn: `Unknown output names: ideas. Step 'idea' declares: (\w+) `,
		right: `get_step {}`,
	},
	{
		wrong: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": {"idea": ["idea.txt"]}}`,
		learn: `must be a (single string path)`,
		right: `get_step {}`,
	},
	{
		wrong: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": {"idea": "ideas.txt"}}`,
		learn: `file not found at 'ideas.txt'.*create the file first`,
		right: `get_step {}`,
	},
	{
		wrong: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": {"idea": "/etc/hosts"}}`,
		learn: `outside the project root \((/\S+)\)`,
		right: `get_step {}`,
	},
	{
		wrong: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": {"idea": ".deepwork"}}`,
		learn: `'.deepwork' is a directory. Give the path of each file`,
		right: `get_step {}`,
	},
	{
		wrong: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": {"idea": "The sea.\nIt is blue."}}`,
		learn: `looks like (the content of a file|file content)`,
		right: `get_step {}`,
	},
	{
		wrong: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": {"idea": "idea.txt"}, "note": ` +
			`"Blue"}`,
		learn: `did you mean (notes)\?`,
		right: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": {"idea": "idea.txt"}, "$1": ` +
			`"Blue"}`,
	},
	// A group.
	{
		wrong: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": {"idea": "h1.txt"}}`,
		learn: `finished already.*call (go_to_step) first`,
		right: `get_step {"session_id": "$plan"}`,
	},
	{
		wrong: `finished_step {"session_id": "$plan", "step_id": "booking", "outputs": {}}`,
		learn: `waits for '(hotel)', 'train'`,
		right: `get_step {"session_id": "$plan"}`,
	},
	{
		wrong: `finished_step {"session_id": "$plan", "step_id": "nope", "outputs": {}}`,
		learn: `not in workflow 'trip/plan'; the current concurrent group waits for '(\w+)'`,
		right: `get_step {"session_id": "$plan"}`,
	},
	{
		wrong: `finished_step {"session_id": "$plan", "step_id": "hotel", "outputs": {"hotels": "h1.txt"}}`,
		learn: `'hotels' is declared as type 'files' and must be a (list)`,
		right: `finished_step {"session_id": "$plan", "step_id": "hotel", "outputs": {"hotels": ["h1.txt"]}}`,
	},
	{
		wrong: `go_to_step {"session_id": "$plan", "step_id": "booking"}`,
		learn: `only leads back. To go forward, finish the current step with (finished_step)`,
		right: `finished_step {"session_id": "$plan", "step_id": "train", "outputs": {}}`,
	},
	{
		wrong: `go_to_step {"session_id": "$plan", "step_id": "ideas"}`,
		learn: `Its steps up to the current one: '(\w+)'`,
		right: `finished_step {"session_id": "$plan", "step_id": "booking", "outputs": {}}`,
	},
	// After the end.
	{
		wrong: `abort_workflow {"session_id": "$plan", "explanation": "Too late"}`,
		learn: `(is completed|has ended|is over)`,
		right: `get_workflows {}`,
	},
	{
		wrong: `workflows-execute-tool {}`,
		learn: `Agents of this project use get_workflows and (start_workflow)`,
		right: `get_workflows {}`,
	},
	// The board.
	{
		wrong: `create_task {"title": "Walk"}`,
		learn: `Missing required argument "project_id": .*(list_projects)`,
		right: `$1 {}`,
		keep:  `project=projects.0.project_id`,
	},
	{
		wrong: `create_task {"project_id": "root", "title": "Walk"}`,
		learn: `is not a UUID`,
		right: `create_task {"project_id": "$project", "title": "Walk"}`,
		keep:  `task=task_id`,
	},
	{
		wrong: `create_task {"project_id": "00000000-0000-4000-8000-000000000000", "title": "Walk"}`,
		learn: `call (list_projects)`,
		right: `$1 {}`,
	},
	{
		wrong: `update_task {"task_id": "$task", "status": "finished"}`,
		learn: `(?s)finished.*\b(inreview)\b`,
		right: `update_task {"task_id": "$task", "status": "$1"}`,
	},
	{
		wrong: `get_task {"task_id": "00000000-0000-4000-8000-000000000000"}`,
		learn: `call (list_tasks)`,
		right: `$1 {"project_id": "$project"}`,
	},
	{
		wrong: `list_tasks {"project_id": "$project", "limit": 5000}`,
		learn: `(\d+) at most|at most (\d+)|1 to (\d+)`,
		right: `list_tasks {"project_id": "$project", "limit": 50}`,
	},
	{
		wrong: `list_tasks {"project_id": "$project", "cursor": "2"}`,
		learn: `(next_cursor)`,
		right: `list_tasks {"project_id": "$project"}`,
	},
	{
		wrong: `start_task_attempt {"task_id": "$task", "executor": "GPT", "repos": []}`,
		learn: `(list_executors)|executor`,
		right: `list_executors {}`,
	},
	{
		wrong: `call_workflow_tool {"name": "greet"}`,
		learn: `There is no workflow tool 'greet'.*(list_workflow_tools)`,
		right: `$1 {}`,
	},
}

// A client that knows only what the server says makes common mistakes, at least forty, and recovers from each
// by the error alone.
func TestFortyMistakesAndTheirRecovery(t *testing.T) {
	t.Parallel()
	testkit.Need(t, len(walk) >= 40, "%d mistakes", len(walk))
	s, _ := project(t, nil)
	cs := client(t, s)
	known := map[string]string{}
	call := func(line string) (reply any, err error) {
		for name, value := range known {
			line = strings.ReplaceAll(line, "$"+name, value)
		}
		tool, args, _ := strings.Cut(line, " ")
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
		if err == nil && res.IsError {
			err = errors.New(text(res))
		}
		if err != nil {
			return nil, err
		}
		return res.StructuredContent, nil
	}
	for i, m := range walk {
		what := fmt.Sprintf("mistake %d, %s", i+1, m.wrong)
		_, err := call(m.wrong)
		testkit.Need(t, err != nil, "%s: was accepted", what)

		learned := regexp.MustCompile(m.learn).FindStringSubmatch(err.Error())
		testkit.True(t, learned != nil, "%s: nothing to learn (%s) from: %v", what, m.learn, err)
		right := m.right
		for n, value := range learned {
			right = strings.ReplaceAll(right, fmt.Sprintf("$%d", n), value)
		}
		reply, err := call(right)
		testkit.Need(t, err == nil, "%s: then %s: %v", what, right, err)
		if name, path, ok := strings.Cut(m.keep, "="); ok {
			known[name] = fmt.Sprint(valueAt(reply, path))
			testkit.Need(t, known[name] != "<nil>", "%s: the reply to %s has no %s", what, right, path)
		}
	}
}

func valueAt(v any, path string) any {
	for key := range strings.SplitSeq(path, ".") {
		if list, ok := v.([]any); ok && len(list) > 0 {
			v = list[0]
			continue
		}
		in, _ := v.(map[string]any)
		v = in[key]
	}
	return v
}
