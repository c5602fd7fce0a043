package transport

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session/remote"
	"deepwork/transport/web"
)

func TestReq003_2_3_AResultIsAnMCPToolResult(t *testing.T) {
	f := newFactory(standardWorkflows...)
	s, _ := withSource(t, f, "")
	conforms(t, s) // the structured content fits the output schema
	res := callTool(t, client(t, s), "echo", `{"customer":"Ada"}`)
	if res.IsError || len(res.Content) != 1 {
		t.Fatalf("got %+v", res)
	}
	if _, ok := res.Content[0].(*mcp.TextContent); !ok {
		t.Errorf("content %T", res.Content[0])
	}
	within := res.StructuredContent.(map[string]any)
	if within["state"] != "completed" || within["result"].(map[string]any)["echo"].(map[string]any)["customer"] != "Ada" {
		t.Errorf("structured content %v", within)
	}
}

// The schema is JSON Schema 2020-12, nested, with references and formats of its own.
func TestReq003_3_4_TheSchemaOfTheWorkflowDecides(t *testing.T) {
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
		if res.IsError == fits {
			t.Errorf("%s: %s", args, text(res))
		}
		if !fits && (!strings.HasPrefix(text(res), "ToolError: ") || errorMetaOf(t, res)["code"] != "invalid_arguments") {
			t.Errorf("%s: %s", args, text(res))
		}
	}
	if len(f.started) != 2 {
		t.Errorf("%d calls reached the source", len(f.started))
	}
}

func TestReq003_3_5_WithoutASchemaAnyObjectIsTaken(t *testing.T) {
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

func TestReq003_5_2_ErrorsAreLoggedAndToldInWords(t *testing.T) {
	var log logBook
	f := newFactory(standardWorkflows...)
	s, _ := withConfig(t, "workflow_tools:\n"+fast+"  sources:\n    - {name: factory, url: "+f.overWeb(t)+"}\n", log.into)
	res := callTool(t, client(t, s), "boom", `{}`)
	id := fmt.Sprint(errorMetaOf(t, res)["execution_id"])
	if said := text(res); !strings.Contains(said, "'boom'") || !strings.Contains(said, "'factory'") || !strings.Contains(said, "out of ink") || !strings.Contains(said, id) {
		t.Error(said)
	}
	found := false
	for line := range strings.Lines(log.String()) {
		found = found || strings.Contains(line, "level=WARN") && strings.Contains(line, "remote run ended") && strings.Contains(line, id) && strings.Contains(line, "out of ink")
	}
	if !found {
		t.Errorf("the log:\n%s", log.String())
	}
	for _, part := range []string{`msg=call tool=boom`, "outcome=workflow_failed", "took_ms="} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("the log does not say %q", part)
		}
	}
}

func TestReq003_5_3_WhatCannotBeAToolIsSkippedAndLogged(t *testing.T) {
	var log logBook
	f := newFactory(standardWorkflows[0], `{"id":"w-bad","name":7,"description":"d"}`, fmt.Sprintf(`{"id":"w-long","name":%q,"description":"d"}`, strings.Repeat("n", 5000)))
	s, _ := withConfig(t, "workflow_tools:\n  sources:\n    - {name: factory, url: "+f.overWeb(t)+"}\n", log.into)
	s.names(t, "echo")
	if res := callTool(t, client(t, s), "echo", `{"customer":"a"}`); res.IsError {
		t.Error(text(res))
	}
	for _, id := range []string{"w-bad", "w-long"} {
		if !strings.Contains(log.String(), "workflow="+id) {
			t.Errorf("the log does not tell of %s:\n%s", id, log.String())
		}
	}
}

// A run that is waited for by nobody, asked about while it goes on and after.
func TestReq003_8_2_StatusTellsStateProgressAndResult(t *testing.T) {
	f := newFactory(standardWorkflows...)
	s, _ := withSource(t, f, "  reply_within: 20ms\n")
	conforms(t, s)
	cs := client(t, s)
	began := into[remote.Run](t, cs, "hang", `{}`)
	if began.State != remote.Running || began.EndedAt != nil || string(began.Result) != "null" {
		t.Errorf("got %+v", began)
	}
	ask := func() *remote.Run {
		return into[remote.Run](t, cs, "workflow_status", `{"execution_id":"`+began.ExecutionID+`"}`)
	}
	f.finish(t, "x-1")
	now := ask()
	for until := time.Now().Add(patience); now.State == remote.Running && time.Now().Before(until); now = ask() {
	}
	if now.State != remote.Completed || now.EndedAt == nil || string(now.Result) != `{"pages":3}` {
		t.Errorf("got %+v", now)
	}
	for id, kind := range map[string]string{`"00000000-0000-7000-8000-000000000000"`: "StateError", `"what"`: "ToolError", `7`: "ToolError"} {
		refusedWith(t, cs, "workflow_status", `{"execution_id":`+id+`}`, kind)
	}
}

func TestReq003_8_3_UpdatesOfTheSourceAreTold(t *testing.T) {
	f := newFactory(standardWorkflows...)
	s, _ := withSource(t, f, "  reply_within: 20ms\n")
	cs := client(t, s)
	began := into[remote.Run](t, cs, "hang", `{}`)
	f.until(t, "some updates", func() bool { r := f.runs["x-1"]; return r != nil && r.looks > 4 })
	about := `{"execution_id":"` + began.ExecutionID + `"}`
	now := into[remote.Run](t, cs, "workflow_status", about)
	for until := time.Now().Add(patience); now.Progress == nil && time.Now().Before(until); {
		now = into[remote.Run](t, cs, "workflow_status", about)
	}
	if now.State != remote.Running || now.Progress == nil || *now.Progress.Total != 3 || !strings.HasPrefix(now.Progress.Message, "page ") {
		t.Errorf("got %+v", now)
	}
}

// A caller with the same identity may ask, on any connection; nobody else.
func TestARunIsItsCallersAlone(t *testing.T) {
	s, _ := withSource(t, newFactory(standardWorkflows...), "  reply_within: 20ms\n")
	file, given := tokens(t, "ada", "bob")
	h := overHTTP(t, s, web.Options{TokenFile: file})
	began := into[remote.Run](t, dial(t, h, stateful, given[0]), "hang", `{}`)
	about := `{"execution_id":"` + began.ExecutionID + `"}`
	if got := into[remote.Run](t, dial(t, h, "", given[0]), "workflow_status", about); got.State != remote.Running {
		t.Errorf("got %+v", got)
	}
	if got := refusedWith(t, dial(t, h, stateful, given[1]), "workflow_status", about, "StateError"); !strings.Contains(got, "no execution") {
		t.Error(got)
	}
}

func TestReq003_8_4_TheFinalResultStays(t *testing.T) {
	s, _ := withSource(t, newFactory(standardWorkflows...), "")
	cs := client(t, s)
	ended := into[remote.Run](t, cs, "steps", `{}`)
	want, _ := json.Marshal(ended)
	for range 3 {
		if got := text(callTool(t, cs, "workflow_status", `{"execution_id":"`+ended.ExecutionID+`"}`)); got != string(want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
