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

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	remotetools "deepwork/transport/tools/remote"
)

// bareProject is a server on a project with the trip job and this config.
func bareProject(t testing.TB, config string, change func(*Options)) (*Server, string) {
	t.Helper()
	root := t.TempDir()
	write(t, root, map[string]string{".deepwork/jobs/trip/job.yml": tripJob, ".deepwork/jobs/trip/idea.md": "Think.",
		".deepwork/config.yml": "version: \"1.0\"\n" + config, "idea.txt": "sea", "h1.txt": "x"})
	return serverOn(t, root, change), root
}

// serverOn is a server on a project that is there.
func serverOn(t testing.TB, root string, change func(*Options)) *Server {
	t.Helper()
	o := Options{ProjectRoot: root, StandardJobs: fstest.MapFS{}, AdditionalJobs: []string{}, Toolsets: []string{"workflows", "remote"}, Logger: slog.New(slog.DiscardHandler)}
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
		testkit.Works(t, s.Close(ctx))
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
	s, _ := withSource(t, newFactory(standardWorkflows...), "")
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
	testkit.True(t, listed(t, cs)["get_workflows"] != nil, "the static tools are not listed")
	accepted(t, cs, "get_workflows", `{}`)
	testkit.ContainsAll(t, log.String(), []string{"level=WARN", "no-such-program", "source=gone"}, "the log")
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
	meta, _ := json.Marshal(echo.Meta[remotetools.WorkflowMeta]) // the client's decoder rounds the number, the server does not
	testkit.Equal(t, string(meta), `{"category":"test","execution_type":"sync","id":"w-echo","metadata":{"n":12345678901234567000,"team":"a"},"source":"factory","version":"2.1.0"}`)
	testkit.Equal(t, echo.Description, "[From the source factory] Gives its input")
	testkit.Equal(t, echo.Title, "echo")
	in := schemaFrom(t, echo.InputSchema)
	testkit.Equal(t, in.Properties["customer"].Description, "who", "input schema")
	testkit.Same(t, in.Required, []string{"customer"}, "input schema")
	fieldsOf(schemaFrom(t, echo.OutputSchema), "echo output", func(where, _ string, p *jsonschema.Schema) {
		testkit.True(t, p.Description != "", "%s is not described", where)
	})
	a := echo.Annotations
	testkit.True(t, a != nil && !a.ReadOnlyHint && *a.OpenWorldHint && *a.DestructiveHint, "annotations %+v", a)
	testkit.Equal(t, all["odd"].Description, "[From the source factory] abcd\ne", "hidden characters are left")
	n := len([]rune(all["long"].Description))
	testkit.True(t, n <= 2048 && n >= 2000, "the description has %d characters", n)
}

// Seed 003, 3.2, 3.3, 6.1, 6.2 and 6.3, as a client sees them.
func TestReq003_3_2_RequiredFieldsAreAskedForAndOthersHaveDefaults(t *testing.T) {
	t.Parallel()
	var log logBook
	f := newFactory(`{"id":"w-plain","name":"plain","description":"d"}`, `{"id":"w-bad","name":"bad","description":"d","inputSchema":[1]}`,
		`{"id":"w-null","name":"null","description":"d","inputSchema":null}`, `{"name":"no id","description":"d"}`, `{"id":"w-mute","name":"mute"}`, `7`)
	s, _ := withSource(t, f, "", log.into)
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
	s, _ := withSource(t, f, "  refresh_interval: 0\n", log.into)
	conforms(t, s)
	cs := client(t, s)
	f.mu.Lock()
	f.workflows = []string{strings.Replace(standardWorkflows[0], "Gives", "Returns", 1), standardWorkflows[3], `{"id":"w-mute"}`}
	f.mu.Unlock()
	got := into[remotetools.RefreshReply](t, cs, "refresh_workflow_tools", `{}`)
	testkit.Equal(t, fmt.Sprint(got.Added, got.Removed, got.Changed), "[steps] [boom] [echo]")
	testkit.True(t, len(got.Skipped) == 1 && got.Skipped[0].Workflow == "w-mute", "skipped %+v", got.Skipped)
	for _, tool := range into[remotetools.ListReply](t, cs, "list_workflow_tools", `{}`).Tools {
		testkit.Equal(t, tool.DescriptionChanged != nil, (tool.Name == "echo"), "list_workflow_tools says of %s that its description changed", tool.Name)
	}
	testkit.Equal(t, log.Count("changed the description"), 1, "logged")
	testkit.Contains(t, log.String(), "tool=echo source=factory", "the log")
	tools := listed(t, cs)
	testkit.True(t, tools["steps"] != nil && tools["boom"] == nil && strings.Contains(tools["echo"].Description, "] Returns"), "tools/list is not as the refresh told")
}

// Sources that never answer, and none: clients see no difference.
func TestDeadSourcesDelayNobody(t *testing.T) {
	t.Parallel()
	s, _ := bareProject(t, fmt.Sprintf("workflow_tools:\n  sources:\n    - {name: far, url: \"http://192.0.2.1:9000/mcp\"}\n    - {name: mute, command: [%q], env: {%s: \"1\"}}\n",
		testkit.Get(os.Executable()).Must(t), sourceEnv), nil) // nobody is at that address, and nobody says so
	testkit.True(t, listed(t, client(t, s))["get_workflows"] != nil, "the static tools are not listed")
	// Of an address some systems know at once that nobody is there.
	testkit.Fails(t, s.remote.Listing(t.Context()).From.Sources[1].Err, "not established yet", "was waited for")
}
