package remote

import (
	"slices"
	"testing"
)

// Names that look like a tool of ours, or like another server's as clients write it, are
// changed.
func TestNamesThatImitate(t *testing.T) {
	var all []*offered
	for _, name := range []string{"Get-Workflows", "finished_step", "mcp__github__push", "MCP__x", "report"} {
		all = append(all, &offered{Workflow: Workflow{ID: "7", Name: name, Source: "s"}})
	}
	got := nameAll(all, "", []string{"get_workflows", "finished_step"}, nil)
	if want := []string{"Get-Workflows_7", "finished_step_7", "source_mcp__github__push", "source_MCP__x", "report"}; !slices.Equal(got, want) {
		t.Errorf("the names are %v, and are to be %v", got, want)
	}
}
