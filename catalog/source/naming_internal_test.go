package source

import (
	"fmt"
	"slices"
	"testing"
)

// Names that look like a tool of ours, or like another server's as clients write it, are
// changed.
func TestNamesThatImitate(t *testing.T) {
	var all []*offered
	for i, name := range []string{"Get-Workflows", "finished_step", "mcp__github__push", "MCP__x", "report",
		" finished\u00a0step ", "finished\u200bstep", "FINISHED.STEP", "\u2028finishedstep", "m\u200bc\u200bp", "\uff4dmcp__x", "f\u0456nished_step"} {
		all = append(all, &offered{Workflow: Workflow{ID: fmt.Sprint(i), Name: name, Source: "s"}})
	}
	got := nameAll(all, "", []string{"get_workflows", "finished_step"}, nil)
	if want := []string{"Get-Workflows_0", "finished_step_1", "source_mcp__github__push", "source_MCP__x", "report",
		"finished_step_5", "finished_step_6", "FINISHED_STEP_7", "finishedstep_8", "m_c_p", "source_mcp__x", "f_nished_step"}; !slices.Equal(got, want) {
		t.Errorf("the names are %v; expected %v", got, want)
	}
}
