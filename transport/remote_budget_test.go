package transport

import (
	"encoding/json"
	"strings"
	"testing"
)

// Clients read tools/list at every start, and agents pay for it: the sets
// workflows and remote together stay under 40 KB, with no workflow of a source.
func TestToolsOfWorkflowsAndRemoteFitTheBudget(t *testing.T) {
	const budget = 40 << 10
	s, _ := bareProject(t, "", nil)
	lines := overStdio(t, s, hello+`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`+"\n")
	line := lines[len(lines)-1]
	if len(line) > budget {
		var list struct {
			Result struct{ Tools []json.RawMessage }
		}
		if err := json.Unmarshal([]byte(line), &list); err != nil {
			t.Fatal(err)
		}
		for _, tool := range list.Result.Tools {
			var named struct{ Name string }
			json.Unmarshal(tool, &named)
			t.Logf("%6d bytes: %s", len(tool), named.Name)
		}
		t.Errorf("tools/list has %d bytes, the budget is %d", len(line), budget)
	}
	for name, tool := range listed(t, client(t, s)) {
		if n := len(tool.Description); n >= 2048 {
			t.Errorf("%s: the description has %d bytes", name, n)
		}
	}
	if n := len(client(t, s).InitializeResult().Instructions); n >= 2048 {
		t.Errorf("the instructions have %d bytes", n)
	}
	if !strings.Contains(line, `"workflow_status"`) {
		t.Error("not all tools of the sets are listed")
	}
}
