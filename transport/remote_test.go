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

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
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
		testkit.True(t, all[tool.Name] == nil, "%s is listed twice", tool.Name)
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
	t.Parallel()
	s, _ := bareProject(t, "workflow_tools:\n  sources:\n    - {name: factory, url: "+newFactory(standardWorkflows...).overWeb(t)+"}\n", nil)
	s.names(t, "block", "boom", "echo", "fail", "hang", "steps")
	all := listed(t, client(t, s))
	for _, name := range []string{"echo", "steps", "finished_step", "workflow_status"} {
		testkit.True(t, all[name] != nil, "%s is not listed", name)
	}
}

func TestReq003_1_4_and_5_1_WithoutASourceTheRestIsServed(t *testing.T) {
	t.Parallel()
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
	testkit.True(t, len(res.Skipped) == 1 && res.Skipped[0].Source == "gone" && strings.Contains(res.Skipped[0].Reason, "no-such-program"), "got %+v", res)
	testkit.Contains(t, refusedWith(t, cs, "call_workflow_tool", `{"name":"x"}`, "StateError"), "list_workflow_tools")
}

func TestReq003_3_1_MetadataOfATool(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	var log logBook
	f := newFactory(`{"id":"w-plain","name":"plain","description":"d"}`, `{"id":"w-bad","name":"bad","description":"d","inputSchema":[1]}`,
		`{"id":"w-null","name":"null","description":"d","inputSchema":null}`, `{"name":"no id","description":"d"}`, `{"id":"w-mute","name":"mute"}`, `7`)
	s, _ := withConfig(t, "workflow_tools:\n  sources:\n    - {name: factory, url: "+f.overWeb(t)+"}\n", log.into)
	cs := client(t, s)
	all := listed(t, cs)
	for _, name := range []string{"plain", "bad", "null"} {
		testkit.Need(t, all[name] != nil, "%s is not listed", name)
		schema := schemaFrom(t, all[name].InputSchema)
		resolved, err := schema.Resolve(nil)
		testkit.True(t, err == nil && schema.Type == "object" && resolved.Validate(map[string]any{"any": []any{1.0}}) == nil, "%s: %+v %v", name, schema, err)
		meta := all[name].Meta[remotetools.WorkflowMeta].(map[string]any)
		testkit.True(t, meta["category"] == "workflow" && meta["version"] == "1.0.0" && meta["execution_type"] == "async", "%s: %v", name, meta)
	}
	reply := into[remotetools.ListReply](t, cs, "list_workflow_tools", `{}`)
	testkit.True(t, len(reply.Tools) == 3 && len(reply.Skipped) == 3, "got %+v", reply)
	testkit.ContainsAll(t, log.String(), []string{"w-mute", "description", "no id"}, "the log")
}

func TestReq003_4_3_RefreshTellsWhatChanged(t *testing.T) {
	t.Parallel()
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
		testkit.Equal(t, tool.DescriptionChanged != nil, (tool.Name == "echo"), "list_workflow_tools says of %s that its description changed", tool.Name)
	}
	if n := strings.Count(log.String(), "changed the description"); n != 1 || !strings.Contains(log.String(), "tool=echo source=factory") {
		t.Errorf("the change was logged %d times:\n%s", n, log.String())
	}
	if tools := listed(t, cs); tools["steps"] == nil || tools["boom"] != nil || !strings.Contains(tools["echo"].Description, "] Returns") {
		t.Error("tools/list is not as the refresh told")
	}
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
		testkit.True(t, i%2 != 1 || source.Err != nil && strings.Contains(source.Err.Error(), "not established yet"), "%s was waited for: %v", source.Name, source.Err)
	}
}
