package transport

import (
	"encoding/json"
	"strings"
	"testing"

	"deepwork/session/remote"
)

// A tool of a source whose schema model APIs refuse is listed in a form that they accept, says so, and gets its
// arguments under their own names, also by way of call_workflow_tool.
func TestField03_ASourceGetsItsOwnNames(t *testing.T) {
	f := newFactory(`{"id":"w","name":"find","description":"d","executionType":"sync","inputSchema":{"oneOf":[
		{"properties":{"filter[name]":{"type":"string"}},"required":["filter[name]"]},{"properties":{"user id":{"type":"integer"}},"required":["user id"]}]}}`)
	s, _ := withSource(t, f, "")
	cs := client(t, s)
	tool := listed(t, cs)["find"]
	if schema, _ := json.Marshal(tool.InputSchema); strings.Contains(string(schema), "oneOf") || !strings.Contains(string(schema), `"filter_name"`) {
		t.Errorf("listed as %s", schema)
	}
	meta, _ := json.Marshal(tool.Meta["deepwork/workflow"])
	for _, part := range []string{`"renamed":{"filter_name":"filter[name]","user_id":"user id"}`, `"changes":["`} {
		if !strings.Contains(string(meta), part) {
			t.Errorf("_meta lacks %s: %s", part, meta)
		}
	}
	if got := into[remote.Run](t, cs, "find", `{"user_id":7}`); !strings.Contains(string(got.Result), `{"user id":7}`) {
		t.Errorf("the source got %s", got.Result)
	}
	if got := into[remote.Run](t, cs, "call_workflow_tool", `{"name":"find","arguments":{"filter_name":"x"}}`); !strings.Contains(string(got.Result), `{"filter[name]":"x"}`) {
		t.Errorf("the source got %s", got.Result)
	}
	refusedWith(t, cs, "find", `{"user_id":7,"filter_name":"x"}`, "ToolError")
	if len(f.started) != 2 {
		t.Errorf("%d calls reached the source", len(f.started))
	}
}
