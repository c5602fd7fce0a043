package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/remote"
	"deepwork/session/state/statetest"
	"deepwork/transport/tool"
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

func serverOn(t testing.TB, root string, change func(*Options)) *Server {
	t.Helper()
	o := Options{
		ProjectRoot:    root,
		StandardJobs:   fstest.MapFS{},
		AdditionalJobs: []string{},
		Toolsets:       []string{"workflows", "remote"},
		Logger:         slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	return made(t, o)
}

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

// A source that cannot be started is told of; one that never answers, and one that is not there, delay nobody.
func TestReq003_1_4_and_5_1_WithoutASourceTheRestIsServed(t *testing.T) {
	t.Parallel()
	var log logBook
	s, _ := bareProject(t, fmt.Sprintf("workflow_tools:\n  sources:\n    - {name: gone, command: "+
		"[./no-such-program]}\n    - {name: far, url: \"http://192.0.2.1:9000/mcp\"}\n    - {name: mute, command: "+
		"[%q], env: {%s: \"1\"}}\n",
		testkit.Get(os.Executable()).Must(t), sourceEnv), log.into) // nobody is at that address, and nobody says so
	cs := client(t, s)
	testkit.True(t, listed(t, cs)["get_workflows"] != nil, "the static tools are not listed")
	accepted(t, cs, "get_workflows", `{}`)
	// Of an address some systems know at once that nobody is there.
	testkit.Fails(t, s.remote.Listing(t.Context()).From.Sources[2].Err, "not established yet", "was waited for")

	until(t, s, "the failure", func(l *remotetools.Listing) bool {
		return strings.Contains(fmt.Sprint(l.From.Sources[0].Err), "no-such-program")
	})
	testkit.ContainsAll(t, log.String(), []string{"level=WARN", "no-such-program", "source=gone"}, "the log")

	skipped := into[remotetools.ListReply](t, cs, "list_workflow_tools", `{}`).Skipped
	testkit.Need(t, len(skipped) == 3, "got %+v", skipped)
	testkit.Equal(t, skipped[0].Source, "gone", "got %+v", skipped)
	testkit.Contains(t, skipped[0].Reason, "no-such-program", "got %+v", skipped)
	testkit.Contains(t, refusedWith(t, cs, "call_workflow_tool", `{"name":"x"}`, "StateError"), "list_workflow_tools")
}

func TestReq003_3_1_MetadataOfATool(t *testing.T) {
	t.Parallel()
	hidden := `{"id":"w-odd","name":"odd","description":"a\u0007b\u202ec\u200bd\ne","executionType":"sync"}`
	long := fmt.Sprintf(`{"id":"w-long","name":"long","description":%q}`, strings.Repeat("ä", 5000))
	s, _ := withSource(t, newFactory(append(slices.Clone(standardWorkflows), hidden, long)...), "")
	all := listed(t, client(t, s))
	echo := all["echo"]
	// the client's decoder rounds the number, the server does not
	meta, _ := json.Marshal(echo.Meta[remotetools.WorkflowMeta])
	testkit.Equal(t, string(meta),
		`{"category":"test","execution_type":"sync","id":"w-echo","metadata":{"n":12345678901234567000,`+
			`"team":"a"},"source":"factory","version":"2.1.0"}`)
	testkit.Equal(t, echo.Description, "[From the source factory] Gives its input")
	testkit.Equal(t, echo.Title, "echo")

	in := schemaFrom(t, echo.InputSchema)
	testkit.Equal(t, in.Properties["customer"].Description, "who", "input schema")
	testkit.Same(t, in.Required, []string{"customer"}, "input schema")

	fieldsOf(schemaFrom(t, echo.OutputSchema), "echo output", func(where, _ string, p *jsonschema.Schema) {
		testkit.True(t, p.Description != "", "%s is not described", where)
	})
	a := echo.Annotations
	testkit.Need(t, a != nil, "annotations %+v", a)
	testkit.True(t, !a.ReadOnlyHint, "annotations %+v", a)
	testkit.True(t, *a.OpenWorldHint, "annotations %+v", a)
	testkit.True(t, *a.DestructiveHint, "annotations %+v", a)
	testkit.Equal(t, all["odd"].Description, "[From the source factory] abcd\ne", "hidden characters are left")

	n := len([]rune(all["long"].Description))
	testkit.True(t, n <= 2048 && n >= 2000, "the description has %d characters", n)
}

// Seed 003, 3.2, 3.3, 6.1, 6.2 and 6.3, as a client sees them.
func TestReq003_3_2_RequiredFieldsAreAskedForAndOthersHaveDefaults(t *testing.T) {
	t.Parallel()
	var log logBook
	f := newFactory(`{"id":"w-plain","name":"plain","description":"d"}`,
		`{"id":"w-bad","name":"bad","description":"d","inputSchema":[1]}`,
		`{"id":"w-null","name":"null","description":"d","inputSchema":null}`, `{"name":"no id","description":"d"}`,
		`{"id":"w-mute","name":"mute"}`, `7`)
	s, _ := withSource(t, f, "", log.into)
	cs := client(t, s)
	all := listed(t, cs)
	for _, name := range []string{"plain", "bad", "null"} {
		testkit.Need(t, all[name] != nil, "%s is not listed", name)
		schema := schemaFrom(t, all[name].InputSchema)
		resolved, err := schema.Resolve(nil)
		testkit.Need(t, err == nil, "%s: %+v %v", name, schema, err)
		testkit.Equal(t, schema.Type, "object")
		testkit.True(t, resolved.Validate(map[string]any{"any": []any{1.0}}) == nil, "%s: %+v %v", name, schema, err)

		meta := all[name].Meta[remotetools.WorkflowMeta].(map[string]any)
		testkit.True(t, meta["category"] == "workflow", "%s: %v", name, meta)
		testkit.True(t, meta["version"] == "1.0.0", "%s: %v", name, meta)
		testkit.True(t, meta["execution_type"] == "async", "%s: %v", name, meta)
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
	f.workflows = []string{strings.Replace(standardWorkflows[0], "Gives", "Returns", 1), standardWorkflows[3],
		`{"id":"w-mute"}`}
	f.mu.Unlock()
	got := into[remotetools.RefreshReply](t, cs, "refresh_workflow_tools", `{}`)
	testkit.Equal(t, fmt.Sprint(got.Added, got.Removed, got.Changed), "[steps] [boom] [echo]")
	testkit.True(t, len(got.Skipped) == 1 && got.Skipped[0].Workflow == "w-mute", "skipped %+v", got.Skipped)
	for _, tool := range into[remotetools.ListReply](t, cs, "list_workflow_tools", `{}`).Tools {
		testkit.Equal(t, tool.DescriptionChanged != nil, (tool.Name == "echo"),
			"list_workflow_tools says of %s that its description changed", tool.Name)
	}
	testkit.Equal(t, log.Count("changed the description"), 1, "logged")
	testkit.Contains(t, log.String(), "tool=echo source=factory", "the log")

	tools := listed(t, cs)
	testkit.Need(t, tools["steps"] != nil, "tools/list is not as the refresh told")
	testkit.Need(t, tools["boom"] == nil, "tools/list is not as the refresh told")
	testkit.Contains(t, tools["echo"].Description, "] Returns", "tools/list is not as the refresh told")
}

// The schema is JSON Schema 2020-12, nested, with references and formats of its own.
func TestReq003_3_4_TheSchemaOfTheWorkflowDecides(t *testing.T) {
	t.Parallel()
	f := newFactory(`{"id":"w","name":"order","description":"d","executionType":"sync","inputSchema":{"type":"object",
	  "$defs":{"item":{"type":"object","properties":{"sku":{"type":"string","pattern":"^[A-Z]{3}$"},` +
		`"n":{"type":"integer","minimum":1}},"required":["sku"],"additionalProperties":false}},
	  "properties":{"items":{"type":"array","minItems":1,"items":{"$ref":"#/$defs/item"}},"how":{"enum":["air",` +
		`"sea"]}},"required":["items"],
	  "if":{"properties":{"how":{"const":"air"}},"required":["how"]},"then":{"properties":{"items":{"maxItems":1}}}}}`)
	s, _ := withSource(t, f, "")
	cs := client(t, s)
	for args, fits := range map[string]bool{
		`{"items":[{"sku":"ABC","n":2}]}`:                     true,
		`{"items":[{"sku":"ABC"},{"sku":"ABD"}],"how":"sea"}`: true,
		`{"items":[{"sku":"ABC"},{"sku":"ABD"}],"how":"air"}`: false,
		`{"items":[]}`:                             false,
		`{"items":[{"sku":"abc"}]}`:                false,
		`{"items":[{"sku":"ABC","n":0}]}`:          false,
		`{"items":[{"sku":"ABC","colour":"red"}]}`: false,
		`{"items":[{"sku":"ABC"}],"how":"rail"}`:   false,
		`[1]`:                                      false,
	} {
		if fits {
			accepted(t, cs, "order", args)
		} else {
			testkit.Contains(t, refusedAs(t, cs, "order", args, "invalid_arguments"), "ToolError: ")
		}
	}
	testkit.Equal(t, len(f.started), 2, "calls reached the source")
}

func TestReq003_3_5_WithoutASchemaAnyObjectIsTaken(t *testing.T) {
	t.Parallel()
	f := newFactory(`{"id":"w","name":"any","description":"d","executionType":"sync"}`)
	s, _ := withSource(t, f, "")
	cs := client(t, s)
	testkit.Equal(t, string(into[remote.Run](t, cs, "any", `{"a":[1,{"b":null}],"c":"d"}`).Result),
		`{"echo":{"a":[1,{"b":null}],"c":"d"},"big":12345678901234567890}`)

	refusedWith(t, cs, "any", `[1]`, "ToolError")
	res := testkit.Get(cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "any"})).Must(t)
	testkit.True(t, !res.IsError, "without arguments: %+v", res)
}

func TestReq003_5_3_WhatCannotBeAToolIsSkippedAndLogged(t *testing.T) {
	t.Parallel()
	var log logBook
	f := newFactory(standardWorkflows[0], `{"id":"w-bad","name":7,"description":"d"}`,
		fmt.Sprintf(`{"id":"w-long","name":%q,"description":"d"}`, strings.Repeat("n", 5000)))
	s, _ := withConfig(t, "workflow_tools:\n  sources:\n    - {name: factory, url: "+f.overWeb(t)+"}\n", log.into)
	s.names(t, "echo")
	accepted(t, client(t, s), "echo", `{"customer":"a"}`)
	for _, id := range []string{"w-bad", "w-long"} {
		testkit.Contains(t, log.String(), "workflow="+id, "the log does not tell of %s", id)
	}
}

// Without the user's approval a source is not available: its tools are refused by whatever name they are
// called, with what to do, and its executions are neither asked about nor cancelled there meanwhile, as while
// it is away. With the approval it is available again.
func TestASourceThatLosesItsApproval(t *testing.T) {
	env := testkit.Get(statetest.Write(t.TempDir(), os.TempDir())).Must(t)
	for name, value := range env {
		t.Setenv(name, value)
	}

	trusted := testkit.Get(os.ReadFile(config.UserFile())).Must(t)
	f := newFactory(standardWorkflows...)
	book := new(logBook)
	s, root := withSource(t, f, "  reply_within: 10ms\n", book.into)
	cs := client(t, s)
	running := into[remote.Run](t, cs, "hang", `{}`)
	testkit.Need(t, running.State == remote.Running, "got %+v", running)

	must(t, os.Remove(config.UserFile()))
	s.names(t)
	for _, call := range [][2]string{
		{"echo", `{"customer":"a"}`}, {"call_workflow_tool", `{"name":"echo","arguments":{"customer":"a"}}`},
		{"refresh_workflow_tools", `{}`},
	} {
		testkit.ContainsAll(t, refusedAs(t, cs, call[0], call[1], "untrusted"),
			[]string{"'factory' (\"" + f.url + "\")", "deepwork trust --path " + root}, "%v", call)
	}
	testkit.Contains(t, text(callTool(t, cs, "call_workflow_tool", `{"name":"ehco","arguments":{}}`)),
		"There is no workflow tool 'ehco'. A source that the user has not approved may offer it: 'factory' (")

	refusedAs(t, cs, strings.Repeat("z", 1000), `{}`, "untrusted")
	testkit.True(t, !strings.Contains(book.String(), strings.Repeat("z", 500)), "a name of any length is logged")
	listed := into[remotetools.ListReply](t, cs, "list_workflow_tools", `{}`)
	testkit.Need(t, len(listed.Skipped) == 1, "list_workflow_tools: %+v", listed)
	testkit.Equal(t, listed.Skipped[0].Source, "factory", "list_workflow_tools: %+v", listed)
	testkit.Contains(t, listed.Skipped[0].Reason, "not approved", "list_workflow_tools: %+v", listed)

	status := `{"execution_id":"` + running.ExecutionID + `"}`
	f.mu.Lock()
	asked := f.runs["x-1"].looks
	f.runs["x-1"].workflow = "w-steps" // ends at the next polls
	f.mu.Unlock()
	for range 5 { // many times status_interval
		res := callTool(t, cs, "workflow_status", status)
		e := errorMetaOf(t, res)
		run, _ := e["run"].(map[string]any)
		testkit.True(t, e["code"] == "untrusted", "workflow_status: %s", text(res))
		testkit.True(t, run["state"] == "running", "workflow_status: %s", text(res))
		testkit.Contains(t, text(res), "'factory' (\""+f.url+"\")", "workflow_status: %s", text(res))
		time.Sleep(20 * time.Millisecond)
	}
	f.mu.Lock()
	// one may have been under way
	testkit.True(t, f.cancelled == nil && f.runs["x-1"].looks <= asked+1,
		"its source was asked %d times since, and to cancel %v", f.runs["x-1"].looks-asked, f.cancelled)
	f.mu.Unlock()

	must(t, os.WriteFile(filepath.Clean(config.UserFile()), trusted, 0o600))
	s.names(t, "block", "boom", "echo", "fail", "hang", "steps")
	res := callTool(t, cs, "echo", `{"customer":"a"}`)
	testkit.True(t, !res.IsError && res.Meta[tool.SourceMeta] == "factory", "%s", text(res))

	waitFor(t, "the end of the run", func() bool {
		return into[remote.Run](t, cs, "workflow_status", status).State == remote.Completed
	})
}

// A tool of a source whose schema model APIs refuse is listed in a form that they accept, says so, and gets its
// arguments under their own names, also by way of call_workflow_tool.
func TestField03_ASourceGetsItsOwnNames(t *testing.T) {
	t.Parallel()
	f := newFactory(`{"id":"w","name":"find","description":"d","executionType":"sync","inputSchema":{"oneOf":[
		{"properties":{"filter[name]":{"type":"string"}},"required":["filter[name]"]},{"properties":{"user ` +
		`id":{"type":"integer"}},"required":["user id"]}]}}`)
	s, _ := withSource(t, f, "")
	cs := client(t, s)
	tool := listed(t, cs)["find"]
	schema, _ := json.Marshal(tool.InputSchema)
	testkit.True(t, !strings.Contains(string(schema), "oneOf") && strings.Contains(string(schema), `"filter_name"`),
		"listed as %s", schema)
	meta, _ := json.Marshal(tool.Meta["deepwork/workflow"])
	testkit.ContainsAll(t, string(meta),
		[]string{`"renamed":{"filter_name":"filter[name]","user_id":"user id"}`, `"changes":["`}, "_meta")
	testkit.Contains(t, string(into[remote.Run](t, cs, "find", `{"user_id":7}`).Result), `{"user id":7}`,
		"the source got")
	testkit.Contains(t, string(into[remote.Run](t, cs, "call_workflow_tool",
		`{"name":"find","arguments":{"filter_name":"x"}}`).Result), `{"filter[name]":"x"}`, "the source got")

	refusedWith(t, cs, "find", `{"user_id":7,"filter_name":"x"}`, "ToolError")
	testkit.True(t, len(f.started) == 2, "%d calls reached the source", len(f.started))
}
