package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/session/remote"
	"deepwork/transport/tool"
	remotetools "deepwork/transport/tools/remote"
)

// bareProject is a server on a project with the trip job and this config.
func bareProject(t testing.TB, config string, change func(*Options)) (*Server, string) {
	t.Helper()
	root := t.TempDir()
	write(t, root, map[string]string{
		".deepwork/jobs/trip/job.yml": tripJob,
		".deepwork/jobs/trip/idea.md": "Think.",
		".deepwork/config.yml":        "version: \"1.0\"\n" + config,
		"idea.txt":                    "sea", "h1.txt": "x",
	})
	return serverOn(t, root, change), root
}

// serverOn is a server on a project that is there.
func serverOn(t testing.TB, root string, change func(*Options)) *Server {
	t.Helper()
	o := Options{ProjectRoot: root, StandardJobs: fstest.MapFS{}, AdditionalJobs: []string{}, Toolsets: []string{"workflows", "remote"}}
	if change != nil {
		change(&o)
	}
	return made(t, o)
}

// made is a server that is closed when the test ends.
func made(t testing.TB, o Options) *Server {
	t.Helper()
	s := testkit.Get(NewServer(o)).Must(t)
	optionsOf.Store(s, o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		noError(t, s.Close(ctx))
	})
	return s
}

// clientWith connects a client with these options.
func clientWith(t testing.TB, s *Server, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	done := make(chan struct{})
	go func() { defer close(done); s.mcp.Run(localCall(), here) }()
	cs := connect(t, there, "", o)
	t.Cleanup(func() { cs.Close(); <-done })
	return cs
}

// listed is all tools, page by page.
func listed(t testing.TB, cs *mcp.ClientSession) map[string]*mcp.Tool {
	t.Helper()
	all := map[string]*mcp.Tool{}
	for tool, err := range cs.Tools(t.Context(), nil) {
		must(t, err)
		if all[tool.Name] != nil {
			t.Errorf("%s is listed twice", tool.Name)
		}
		all[tool.Name] = tool
	}
	return all
}

type logBook struct{ testkit.Log }

func (b *logBook) into(o *Options) {
	o.Logger = slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// The sources are queried at the start, and every workflow is a tool, beside the static ones.
func TestReq003_1_1_1_2_and_2_1_EveryWorkflowIsATool(t *testing.T) {
	s, _ := bareProject(t, "workflow_tools:\n  sources:\n    - {name: factory, url: "+newFactory(standardWorkflows...).overWeb(t)+"}\n", nil)
	s.names(t, "block", "boom", "echo", "fail", "hang", "steps")
	all := listed(t, client(t, s))
	for _, name := range []string{"echo", "steps", "finished_step", "workflow_status"} {
		if all[name] == nil {
			t.Errorf("%s is not listed", name)
		}
	}
}

func TestReq003_1_3_AWorkflowThatIsGoneHasNoTool(t *testing.T) {
	t.Parallel()
	f := newFactory(standardWorkflows...)
	s, _ := withSource(t, f, "")
	cs := client(t, s)
	f.offer(standardWorkflows[0])
	s.names(t, "echo")
	testkit.Fails(t, testkit.Get(cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "steps"})).Err(), "unknown tool", "a tool that is gone")
}

func TestReq003_1_4_and_5_1_WithoutASourceTheRestIsServed(t *testing.T) {
	var log logBook
	s, _ := bareProject(t, "workflow_tools:\n  sources:\n    - {name: gone, command: [./no-such-program]}\n", log.into)
	until(t, s, "the failure", func(l *remotetools.Listing) bool {
		return len(l.From.Sources) == 1 && strings.Contains(fmt.Sprint(l.From.Sources[0].Err), "no-such-program")
	})
	cs := client(t, s)
	if all := listed(t, cs); all["get_workflows"] == nil {
		t.Error("the static tools are not listed")
	}
	callTool(t, cs, "get_workflows", `{}`)
	if text := log.String(); !strings.Contains(text, "level=WARN") || !strings.Contains(text, "no-such-program") || !strings.Contains(text, "source=gone") {
		t.Errorf("the log:\n%s", text)
	}
	res := into[remotetools.ListReply](t, cs, "list_workflow_tools", `{}`)
	if len(res.Skipped) != 1 || res.Skipped[0].Source != "gone" || !strings.Contains(res.Skipped[0].Reason, "no-such-program") {
		t.Errorf("got %+v", res)
	}
	testkit.Contains(t, refusedWith(t, cs, "call_workflow_tool", `{"name":"x"}`, "StateError"), "list_workflow_tools")
}

func TestReq003_2_2_2_3_and_8_4_ACallRunsTheWorkflow(t *testing.T) {
	f := newFactory(standardWorkflows...)
	s, _ := withSource(t, f, "")
	conforms(t, s)
	cs := client(t, s)
	res := callTool(t, cs, "echo", `{"customer":"Ada"}`)
	if res.IsError {
		t.Fatal(text(res))
	}
	var got remote.Run
	must(t, json.Unmarshal([]byte(text(res)), &got))
	if got.State != remote.Completed || got.WorkflowID != "w-echo" || got.WorkflowName != "echo" || got.Source != "factory" || got.EndedAt == nil || len(got.ExecutionID) != 36 {
		t.Errorf("got %+v", got)
	}
	if want := `{"echo":{"customer":"Ada"},"big":12345678901234567890}`; string(got.Result) != want {
		t.Errorf("result %s, want %s", got.Result, want)
	}
	if _, is := res.Content[0].(*mcp.TextContent); !is || len(res.Content) != 1 || res.StructuredContent == nil {
		t.Errorf("got %+v", res)
	}
	// Asynchronous ones are waited for (7.1), and their result is kept (8.4).
	steps := into[remote.Run](t, cs, "steps", `{}`)
	if steps.State != remote.Completed || string(steps.Result) != `{"pages":3}` || steps.SourceExecutionID == nil {
		t.Errorf("got %+v", steps)
	}
	for _, id := range []string{steps.ExecutionID, *steps.SourceExecutionID} {
		if again := into[remote.Run](t, cs, "workflow_status", `{"execution_id":"`+id+`"}`); again.ExecutionID != steps.ExecutionID || string(again.Result) != `{"pages":3}` {
			t.Errorf("status of %s: %+v", id, again)
		}
	}
}

func TestReq003_2_4_and_7_4_FailuresAreToolErrors(t *testing.T) {
	s, _ := withSource(t, newFactory(standardWorkflows...), "")
	conforms(t, s)
	cs := client(t, s)
	for name, why := range map[string]string{"boom": "the press is out of ink", "fail": "the paper tore"} {
		res := callTool(t, cs, name, `{}`)
		meta := errorMetaOf(t, res)
		id, _ := meta["execution_id"].(string)
		if !res.IsError || !strings.HasPrefix(text(res), "StateError: ") || !strings.Contains(text(res), why) || meta["code"] != "workflow_failed" || len(id) != 36 {
			t.Errorf("%s: %s %v", name, text(res), meta)
		}
		if got := into[remote.Run](t, cs, "workflow_status", `{"execution_id":"`+id+`"}`); got.State != remote.Failed || got.Error == nil || !strings.Contains(*got.Error, why) {
			t.Errorf("%s: status %+v", name, got)
		}
	}
}

// Results and errors of a source's workflow have its name in _meta, and are the source's own,
// byte for byte, whichever way the workflow was called.
func TestWhatASourceSaysHasItsLabel(t *testing.T) {
	s, _ := withSource(t, newFactory(standardWorkflows...), "")
	cs := client(t, s)
	for call, want := range map[[2]string]string{
		{"echo", `{"customer":"<Ada>"}`}:                                           `"result":{"echo":{"customer":"<Ada>"},"big":12345678901234567890}`,
		{"call_workflow_tool", `{"name":"echo","arguments":{"customer":"<Ada>"}}`}: `"result":{"echo":{"customer":"<Ada>"},"big":12345678901234567890}`,
		{"steps", `{}`}: `"result":{"pages":3}`,
		{"call_workflow_tool", `{"name":"steps"}`}: `"result":{"pages":3}`,
		{"boom", `{}`}: "the press is out of ink",
		{"call_workflow_tool", `{"name":"fail"}`}: "the paper tore",
	} {
		res := callTool(t, cs, call[0], call[1])
		testkit.Equal(t, res.Meta[tool.SourceMeta], "factory")
		testkit.Contains(t, text(res), want)
	}
	id := into[remote.Run](t, cs, "steps", `{}`).ExecutionID
	if res := callTool(t, cs, "workflow_status", `{"execution_id":"`+id+`"}`); res.Meta[tool.SourceMeta] != "factory" {
		t.Errorf("workflow_status: %v", res.Meta)
	}
	if res := callTool(t, cs, "list_workflow_tools", `{}`); res.Meta[tool.SourceMeta] != nil {
		t.Errorf("list_workflow_tools, which no source answered: %v", res.Meta)
	}
}

func TestReq003_2_5_ArgumentsAreChecked(t *testing.T) {
	f := newFactory(standardWorkflows...)
	s, _ := withSource(t, f, "")
	cs := client(t, s)
	for args, field := range map[string]string{`{}`: "customer", `{"customer":7}`: "customer", `{"customer":"a","n":"x"}`: "n"} {
		for name, call := range map[string]string{"echo": args, "call_workflow_tool": `{"name":"echo","arguments":` + args + `}`} {
			if got := refusedWith(t, cs, name, call, "ToolError"); !strings.Contains(got, field) || !strings.Contains(got, "'echo'") {
				t.Errorf("%s(%s): %s", name, args, got)
			}
		}
	}
	testkit.Equal(t, len(f.started), 0, "reached the source: %v", f.started)
}

func TestReq003_3_1_MetadataOfATool(t *testing.T) {
	hidden := `{"id":"w-odd","name":"odd","description":"a\u0007b\u202ec\u200bd\ne","executionType":"sync"}`
	long := fmt.Sprintf(`{"id":"w-long","name":"long","description":%q}`, strings.Repeat("ä", 5000))
	s, _ := withSource(t, newFactory(append(slices.Clone(standardWorkflows), hidden, long)...), "")
	all := listed(t, client(t, s))
	echo := all["echo"]
	meta, _ := json.Marshal(echo.Meta[remotetools.WorkflowMeta])
	want := `{"category":"test","execution_type":"sync","id":"w-echo","metadata":{"n":12345678901234567000,"team":"a"},"source":"factory","version":"2.1.0"}`
	if string(meta) != want { // the client's decoder rounds the number, the server does not
		t.Errorf("_meta %s", meta)
	}
	testkit.Equal(t, echo.Description, "[From the source factory] Gives its input")
	testkit.Equal(t, echo.Title, "echo")
	in := schemaFrom(t, echo.InputSchema)
	testkit.Equal(t, in.Properties["customer"].Description, "who", "input schema")
	testkit.Same(t, in.Required, []string{"customer"}, "input schema")
	described(t, "echo output", schemaFrom(t, echo.OutputSchema))
	if a := echo.Annotations; a == nil || a.ReadOnlyHint || !*a.OpenWorldHint || !*a.DestructiveHint {
		t.Errorf("annotations %+v", a)
	}
	testkit.Equal(t, all["odd"].Description, "[From the source factory] abcd\ne", "hidden characters are left")
	if n := len([]rune(all["long"].Description)); n > 2048 || n < 2000 {
		t.Errorf("the description has %d characters", n)
	}
}

// Seed 003, 3.2, 3.3, 6.1, 6.2 and 6.3, as a client sees them.
func TestReq003_3_2_RequiredFieldsAreAskedForAndOthersHaveDefaults(t *testing.T) {
	var log logBook
	f := newFactory(`{"id":"w-plain","name":"plain","description":"d"}`, `{"id":"w-bad","name":"bad","description":"d","inputSchema":[1]}`,
		`{"id":"w-null","name":"null","description":"d","inputSchema":null}`, `{"name":"no id","description":"d"}`, `{"id":"w-mute","name":"mute"}`, `7`)
	s, _ := withConfig(t, "workflow_tools:\n  sources:\n    - {name: factory, url: "+f.overWeb(t)+"}\n", log.into)
	cs := client(t, s)
	all := listed(t, cs)
	for _, name := range []string{"plain", "bad", "null"} {
		if all[name] == nil {
			t.Fatalf("%s is not listed", name)
		}
		schema := schemaFrom(t, all[name].InputSchema)
		resolved, err := schema.Resolve(nil)
		if err != nil || schema.Type != "object" || resolved.Validate(map[string]any{"any": []any{1.0}}) != nil {
			t.Errorf("%s: %+v %v", name, schema, err)
		}
		meta := all[name].Meta[remotetools.WorkflowMeta].(map[string]any)
		if meta["category"] != "workflow" || meta["version"] != "1.0.0" || meta["execution_type"] != "async" {
			t.Errorf("%s: %v", name, meta)
		}
	}
	reply := into[remotetools.ListReply](t, cs, "list_workflow_tools", `{}`)
	if len(reply.Tools) != 3 || len(reply.Skipped) != 3 {
		t.Errorf("got %+v", reply)
	}
	testkit.ContainsAll(t, log.String(), []string{"w-mute", "description", "no id"}, "the log")
}

func TestReq003_4_1_and_4_4_EditsOfTheConfigAreFollowed(t *testing.T) {
	t.Parallel()
	f := newFactory(standardWorkflows...)
	s, root := withSource(t, f, "")
	cs := client(t, s)
	sources := "  sources:\n    - {name: factory, url: " + f.url + "}\n"
	edit := func(text string) {
		write(t, root, map[string]string{".deepwork/config.yml": "version: \"1.0\"\nworkflow_tools:\n" + fast + text + sources})
	}
	edit("  include: [\"s*\", echo]\n  exclude: [steps]\n") // 4.2
	s.names(t, "echo")
	if res := callTool(t, cs, "echo", `{"customer":"a"}`); res.IsError {
		t.Error(text(res))
	}
	edit("  prefix: f_\n  include: [echo]\n")
	s.names(t, "f_echo")
	edit("  enabled: false\n")
	s.names(t)
	edit("")
	s.names(t, "block", "boom", "echo", "fail", "hang", "steps")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lists > 3 {
		t.Errorf("the source was asked %d times: filters and prefix need no question", f.lists)
	}
}

func TestReq003_4_3_RefreshTellsWhatChanged(t *testing.T) {
	f := newFactory(standardWorkflows[0], standardWorkflows[1])
	var log logBook
	s, _ := withConfig(t, "workflow_tools:\n"+fast+"  refresh_interval: 0\n  sources:\n    - {name: factory, url: "+f.overWeb(t)+"}\n", log.into)
	conforms(t, s)
	cs := client(t, s)
	f.mu.Lock()
	f.workflows = []string{strings.Replace(standardWorkflows[0], "Gives", "Returns", 1), standardWorkflows[3], `{"id":"w-mute"}`}
	f.mu.Unlock()
	got := into[remotetools.RefreshReply](t, cs, "refresh_workflow_tools", `{}`)
	if !slices.Equal(got.Added, []string{"steps"}) || !slices.Equal(got.Removed, []string{"boom"}) || !slices.Equal(got.Changed, []string{"echo"}) ||
		len(got.Skipped) != 1 || got.Skipped[0].Workflow != "w-mute" {
		t.Errorf("got %+v", got)
	}
	for _, tool := range into[remotetools.ListReply](t, cs, "list_workflow_tools", `{}`).Tools {
		if changed := tool.DescriptionChanged != nil; changed != (tool.Name == "echo") {
			t.Errorf("list_workflow_tools says of %s that its description changed: %v", tool.Name, changed)
		}
	}
	if n := strings.Count(log.String(), "changed the description"); n != 1 || !strings.Contains(log.String(), "tool=echo source=factory") {
		t.Errorf("the change was logged %d times:\n%s", n, log.String())
	}
	if tools := listed(t, cs); tools["steps"] == nil || tools["boom"] != nil || !strings.Contains(tools["echo"].Description, "] Returns") {
		t.Error("tools/list is not as the refresh told")
	}
}

func TestReq003_6_4_NamesThatClashHaveTheirIDs(t *testing.T) {
	f := newFactory(`{"id":"a","name":"twin","description":"d","executionType":"sync"}`, `{"id":"b","name":"twin","description":"d","executionType":"sync"}`,
		`{"id":"c","name":"finished_step","description":"d","executionType":"sync"}`, `{"id":"d","name":"workflows-list-tool","description":"d","executionType":"sync"}`)
	s, _ := withSource(t, f, "")
	s.names(t, "finished_step_c", "twin_a", "twin_b", "workflows-list-tool_d")
	cs := client(t, s)
	if got := into[remote.Run](t, cs, "finished_step_c", `{}`); got.WorkflowID != "c" {
		t.Errorf("got %+v", got)
	}
	// Ours is ours.
	testkit.Contains(t, refusedWith(t, cs, "finished_step", `{"outputs":{}}`, "StateError"), "No active workflow session")
}

func TestReq003_7_2_ATimeoutIsToldAndCancelledAtTheSource(t *testing.T) {
	t.Parallel()
	// A machine that is too busy to begin the run within its time has more.
	for timeout := 300 * time.Millisecond; ; timeout *= 4 {
		f := newFactory(standardWorkflows...)
		s, _ := withSource(t, f, fmt.Sprintf("  execution_timeout: %v\n", timeout))
		res := callTool(t, client(t, s), "hang", `{}`)
		if !res.IsError || errorMetaOf(t, res)["code"] != "workflow_timed_out" || !strings.Contains(text(res), timeout.String()) {
			t.Errorf("got %s", text(res))
		}
		f.mu.Lock()
		begun := f.looked()
		f.mu.Unlock()
		if begun || timeout > patience {
			f.until(t, "the cancel", func() bool { return len(f.cancelled) == 1 })
			return
		}
	}
}

func TestReq003_7_3_and_8_3_ProgressIsPassedOn(t *testing.T) {
	var log logBook
	f := newFactory(standardWorkflows...)
	s, _ := withConfig(t, "workflow_tools:\n  status_interval: 120ms\n  sources:\n    - {name: factory, url: "+f.overWeb(t)+"}\n", log.into)
	told := make(chan *mcp.ProgressNotificationParams, 100)
	cs := clientWith(t, s, &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
		told <- r.Params
	}})
	params := &mcp.CallToolParams{Name: "hang", Arguments: json.RawMessage(`{}`)}
	params.SetProgressToken("p")
	ended := make(chan *mcp.CallToolResult, 1)
	go func() {
		res, err := cs.CallTool(context.Background(), params)
		if err != nil {
			t.Error(err)
		}
		ended <- res
	}()
	last, ids := -1.0, map[string]bool{}
	for n, pages := 0, false; n < 2 || !pages; n++ { // it goes on until these are there
		p := <-told
		id, message, _ := strings.Cut(p.Message, ": ")
		if ids[id] = true; p.Progress <= last || !strings.HasPrefix(id, "execution_id ") {
			t.Errorf("after %v: %+v", last, p)
		}
		last = p.Progress
		pages = pages || strings.Contains(message, "of 3, page")
	}
	f.finish(t, "x-1")
	res := <-ended
	if res == nil || res.IsError {
		t.Fatal(res)
	}
	var got remote.Run
	json.Unmarshal([]byte(text(res)), &got)
	if len(ids) != 1 || !ids["execution_id "+got.ExecutionID] {
		t.Errorf("told of %v, and it was %s", ids, got.ExecutionID)
	}
	if text := log.String(); !strings.Contains(text, "remote run progress") || !strings.Contains(text, "page") {
		t.Error("progress is not logged")
	}
}

func TestReq003_8_5_NotSupportedIsSaid(t *testing.T) {
	f := newFactory(standardWorkflows...)
	f.blind = true
	s, _ := withSource(t, f, "")
	conforms(t, s)
	cs := client(t, s)
	got := into[remote.Run](t, cs, "hang", `{}`)
	if got.State != remote.Running || got.StatusSupported {
		t.Errorf("got %+v", got)
	}
	testkit.Contains(t, refusedWith(t, cs, "workflow_status", `{"execution_id":"`+got.ExecutionID+`"}`, "StateError"), "not supported")
}

// Ten sources that never answer, and none: clients see no difference.
func TestDeadSourcesDelayNobody(t *testing.T) {
	t.Parallel()
	var config strings.Builder
	config.WriteString("workflow_tools:\n  sources:\n")
	for i := range 10 {
		if i%2 == 0 {
			fmt.Fprintf(&config, "    - {name: dead%d, url: \"http://192.0.2.1:%d/mcp\"}\n", i, 9000+i) // nobody is there, and nobody says so
		} else {
			fmt.Fprintf(&config, "    - {name: dead%d, command: [%q], env: {%s: \"1\"}}\n", i, testkit.Get(os.Executable()).Must(t), sourceEnv)
		}
	}
	s, _ := bareProject(t, config.String(), nil)
	cs := client(t, s)
	if all := listed(t, cs); all["get_workflows"] == nil {
		t.Errorf("%d tools", len(all))
	}
	for i, source := range s.remote.Listing(t.Context()).From.Sources {
		// Of an address some systems know at once that nobody is there.
		if i%2 == 1 && (source.Err == nil || !strings.Contains(source.Err.Error(), "not established yet")) {
			t.Errorf("%s was waited for: %v", source.Name, source.Err)
		}
	}
}

// For clients that ask for the list of tools once.
func TestAFrozenListReachesThemAll(t *testing.T) {
	t.Parallel()
	f := newFactory()
	s, _ := withSource(t, f, "  expose_jobs: true\n")
	conforms(t, s)
	cs := client(t, s)
	f.offer(standardWorkflows...)
	until(t, s, "echo", func(l *remotetools.Listing) bool { return slices.Contains(namesOf(l), "echo") })

	short := into[remotetools.ListReply](t, cs, "list_workflow_tools", `{}`)
	if len(short.Tools) != 8 || string(short.Tools[0].InputSchema) != "null" || short.NextCursor != nil {
		t.Errorf("got %+v", short)
	}
	full := into[remotetools.ListReply](t, cs, "list_workflow_tools", `{"name":"ech?"}`)
	if len(full.Tools) != 1 || full.Tools[0].WorkflowID != "w-echo" || !full.Tools[0].Available || *full.Tools[0].Source != "factory" {
		t.Fatalf("got %+v", full)
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(full.Tools[0].InputSchema, &schema); err != nil || schema.Required[0] != "customer" {
		t.Errorf("input_schema %s", full.Tools[0].InputSchema)
	}
	got := into[remote.Run](t, cs, "call_workflow_tool", `{"name":"echo","arguments":{"customer":"a"}}`)
	testkit.Equal(t, got.State, remote.Completed)
	testkit.Contains(t, string(got.Result), `"customer":"a"`)
	testkit.Contains(t, text(callTool(t, cs, "call_workflow_tool", `{"name":"trip-dream","arguments":{"goal":"g"}}`)), `"begin_step"`)
	for name, want := range map[string]string{"ecko": "echo", "finished_step": "call it directly"} {
		testkit.Contains(t, refusedWith(t, cs, "call_workflow_tool", `{"name":"`+name+`"}`, "ToolError"), want)
	}
	refusedWith(t, cs, "list_workflow_tools", `{"name":"[x"}`, "ToolError")
	refusedWith(t, cs, "list_workflow_tools", `{"cursor":"x"}`, "ToolError")
	refusedWith(t, cs, "call_workflow_tool", `{"name":"echo","arguments":"customer"}`, "ToolError")
}

// A run that is in flight when the server ends goes on, and is known to the next.
func TestReq003_8_1_ARestartKeepsRuns(t *testing.T) {
	f := newFactory(standardWorkflows...)
	config := "workflow_tools:\n" + fast + "  reply_within: 50ms\n  sources:\n    - {name: factory, url: " + f.overWeb(t) + "}\n"
	first, root := bareProject(t, config, nil)
	first.connected(t)
	started := into[remote.Run](t, client(t, first), "hang", `{}`)
	id := started.ExecutionID
	testkit.Equal(t, started.State, remote.Running, "got %+v", started)
	f.until(t, "the start", func() bool { return f.looked() })
	noError(t, first.Close(t.Context()))
	s := serverOn(t, root, nil)
	s.connected(t)
	cs := client(t, s)
	if got := into[remote.Run](t, cs, "workflow_status", `{"execution_id":"`+id+`"}`); got.State != remote.Running || got.WorkflowName != "hang" {
		t.Errorf("got %+v", got)
	}
	f.mu.Lock()
	for _, r := range f.runs {
		r.workflow, r.looks = "w-steps", 10
	}
	starts := len(f.started)
	f.mu.Unlock()
	deadline := time.Now().Add(patience)
	for {
		got := into[remote.Run](t, cs, "workflow_status", `{"execution_id":"`+id+`"}`)
		if got.State == remote.Completed {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %+v", got)
		}
		time.Sleep(5 * time.Millisecond)
	}
	testkit.Equal(t, starts, 1, "it was started … times")
}
