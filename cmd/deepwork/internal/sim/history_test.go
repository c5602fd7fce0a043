//go:build unix

package sim

import (
	"fmt"
	"testing"
)

// Lost calls that tell nothing do not keep the checker from its end, and what cannot
// have come about is found among them.
func TestLostCallsThatTellNothing(t *testing.T) {
	for after, faults := range map[string]int{"at s1 done s0": 0, "at s2 done s0,s1": 1, "!session_ended aborted": 0} {
		h := newHistory()
		add := func(at int64, in input, out string, until int64) { h.add(1, "a", in, at, out, until) }
		add(1, input{Tool: "start_workflow", Workflow: "chain"}, "begin s0", 2)
		for i := range int64(40) {
			add(3+i, input{Tool: "get_step"}, lost, never)
			add(3+i, input{Tool: "abort_workflow", Text: fmt.Sprint("because ", i%2)}, lost, never)
		}
		add(100, input{Tool: "finished_step", Step: "s0"}, "begin s1", 101)
		add(102, input{Tool: "get_step"}, after, 103)
		h.check(t.TempDir())
		if h.tangled != 0 || len(h.faults) != faults {
			t.Errorf("%s: %d are tangled, faults %v", after, h.tangled, h.faults)
		}
	}
}
