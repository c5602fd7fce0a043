package transport

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/remote"
	"deepwork/session/state/statetest"
	"deepwork/transport/tool"
	remotetools "deepwork/transport/tools/remote"
)

// The schema is JSON Schema 2020-12, nested, with references and formats of its own.
func TestReq003_3_4_TheSchemaOfTheWorkflowDecides(t *testing.T) {
	t.Parallel()
	f := newFactory(`{"id":"w","name":"order","description":"d","executionType":"sync","inputSchema":{"type":"object",
	  "$defs":{"item":{"type":"object","properties":{"sku":{"type":"string","pattern":"^[A-Z]{3}$"},"n":{"type":"integer","minimum":1}},"required":["sku"],"additionalProperties":false}},
	  "properties":{"items":{"type":"array","minItems":1,"items":{"$ref":"#/$defs/item"}},"how":{"enum":["air","sea"]}},"required":["items"],
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
		res := callTool(t, cs, "order", args)
		testkit.True(t, res.IsError != fits, "%s: %s", args, text(res))
		if !fits && (!strings.HasPrefix(text(res), "ToolError: ") || errorMetaOf(t, res)["code"] != "invalid_arguments") {
			t.Errorf("%s: %s", args, text(res))
		}
	}
	testkit.Equal(t, len(f.started), 2, "calls reached the source")
}

func TestReq003_3_5_WithoutASchemaAnyObjectIsTaken(t *testing.T) {
	t.Parallel()
	f := newFactory(`{"id":"w","name":"any","description":"d","executionType":"sync"}`)
	s, _ := withSource(t, f, "")
	cs := client(t, s)
	if got := into[remote.Run](t, cs, "any", `{"a":[1,{"b":null}],"c":"d"}`); string(got.Result) != `{"echo":{"a":[1,{"b":null}],"c":"d"},"big":12345678901234567890}` {
		t.Errorf("result %s", got.Result)
	}
	refusedWith(t, cs, "any", `[1]`, "ToolError")
	if res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "any"}); err != nil || res.IsError { // no arguments are an empty object
		t.Errorf("%+v %v", res, err)
	}
}

func TestReq003_5_3_WhatCannotBeAToolIsSkippedAndLogged(t *testing.T) {
	t.Parallel()
	var log logBook
	f := newFactory(standardWorkflows[0], `{"id":"w-bad","name":7,"description":"d"}`, fmt.Sprintf(`{"id":"w-long","name":%q,"description":"d"}`, strings.Repeat("n", 5000)))
	s, _ := withConfig(t, "workflow_tools:\n  sources:\n    - {name: factory, url: "+f.overWeb(t)+"}\n", log.into)
	s.names(t, "echo")
	accepted(t, client(t, s), "echo", `{"customer":"a"}`)
	for _, id := range []string{"w-bad", "w-long"} {
		testkit.Contains(t, log.String(), "workflow="+id, "the log does not tell of %s", id)
	}
}

// Without the user's approval a source is not available: its tools are refused by whatever name
// they are called, with what to do, and its executions are neither asked about nor cancelled there
// meanwhile, as while it is away. With the approval it is available again.
func TestASourceThatLosesItsApproval(t *testing.T) {
	env := testkit.Get(statetest.Write(t.TempDir(), os.TempDir())).Must(t)
	for name, value := range env {
		t.Setenv(name, value)
	}
	trusted := testkit.Get(os.ReadFile(config.UserFile())).Must(t)
	f := newFactory(standardWorkflows...)
	s, root := withSource(t, f, "  reply_within: 10ms\n")
	cs := client(t, s)
	running := into[remote.Run](t, cs, "hang", `{}`)
	testkit.Need(t, running.State == remote.Running, "got %+v", running)

	must(t, os.Remove(config.UserFile()))
	s.names(t)
	for _, call := range [][2]string{
		{"echo", `{"customer":"a"}`}, {"call_workflow_tool", `{"name":"echo","arguments":{"customer":"a"}}`}, {"refresh_workflow_tools", `{}`},
	} {
		res := callTool(t, cs, call[0], call[1])
		if got := text(res); errorMetaOf(t, res)["code"] != "untrusted" || !strings.Contains(got, "'factory' (\""+f.url+"\")") || !strings.Contains(got, "deepwork trust --path "+root) {
			t.Errorf("%v: %s", call, got)
		}
	}
	testkit.Contains(t, text(callTool(t, cs, "call_workflow_tool", `{"name":"ehco","arguments":{}}`)), "There is no workflow tool 'ehco'. A source that the user has not approved may offer it: 'factory' (")
	listed := into[remotetools.ListReply](t, cs, "list_workflow_tools", `{}`)
	testkit.True(t, len(listed.Skipped) == 1 && listed.Skipped[0].Source == "factory" && strings.Contains(listed.Skipped[0].Reason, "not approved"), "list_workflow_tools: %+v", listed)
	status := `{"execution_id":"` + running.ExecutionID + `"}`
	f.mu.Lock()
	asked := f.runs["x-1"].looks
	f.runs["x-1"].workflow = "w-steps" // ends at the next polls
	f.mu.Unlock()
	for range 5 { // many times status_interval
		res := callTool(t, cs, "workflow_status", status)
		e := errorMetaOf(t, res)
		if run, is := e["run"].(map[string]any); e["code"] != "untrusted" || !is || run["state"] != "running" || !strings.Contains(text(res), "'factory' (\""+f.url+"\")") {
			t.Errorf("workflow_status: %s", text(res))
		}
		time.Sleep(20 * time.Millisecond)
	}
	f.mu.Lock()
	if f.cancelled != nil || f.runs["x-1"].looks > asked+1 { // one may have been under way
		t.Errorf("its source was asked %d times since, and to cancel %v", f.runs["x-1"].looks-asked, f.cancelled)
	}
	f.mu.Unlock()

	must(t, os.WriteFile(filepath.Clean(config.UserFile()), trusted, 0o600))
	s.names(t, "block", "boom", "echo", "fail", "hang", "steps")
	if res := callTool(t, cs, "echo", `{"customer":"a"}`); res.IsError || res.Meta[tool.SourceMeta] != "factory" {
		t.Error(text(res))
	}
	waitFor(t, "the end of the run", func() bool {
		return into[remote.Run](t, cs, "workflow_status", status).State == remote.Completed
	})
}
