package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// Every tool has a command, or is known to have none, so that no message for people names one.
func TestMessagesForPeopleNameNoTools(t *testing.T) {
	data, err := os.ReadFile("../../transport/testdata/tools_list.json")
	must(t, err)
	var tools []struct{ Name string }
	var in any
	must(t, json.Unmarshal(data, &in))
	if list, ok := in.(map[string]any)["tools"]; ok {
		in = list
	}
	data, err = json.Marshal(in)
	must(t, err)
	must(t, json.Unmarshal(data, &tools))
	if len(tools) < 30 {
		t.Fatalf("only %d tools", len(tools))
	}
	for _, tool := range tools {
		if strings.HasPrefix(tool.Name, "workflows-") { // of another system
			continue
		}
		if _, is := commands[tool.Name]; !is {
			t.Errorf("commands lacks %s", tool.Name)
		}
		if got := inCommands("It is over. Call " + tool.Name + " again."); strings.Contains(got, tool.Name) || !strings.HasPrefix(got, "It is over.") {
			t.Errorf("%s: %q", tool.Name, got)
		}
	}
	if got := inCommands("Session 'x' was aborted. Start a new one with start_workflow."); got != "Session 'x' was aborted." {
		t.Errorf("%q", got)
	}
	if got := inCommands("attempts.max_concurrent is 3. Stop one with stop_attempt."); got != "attempts.max_concurrent is 3. Stop one with 'deepwork board stop'." {
		t.Errorf("%q", got)
	}
}
