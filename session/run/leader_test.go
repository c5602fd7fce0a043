package run

import (
	"strings"
	"testing"
	"time"

	"deepwork/catalog/task"
	"deepwork/session/attempt"
	"deepwork/session/workflow/machine"
)

// Only agents count that ended on their own since the run was resumed.
func TestWhatCountsAsATry(t *testing.T) {
	since := time.Now()
	d := &leader{lead: &attempt.Lead{Since: since}, retries: 2}
	x := func(state task.AttemptState, after time.Duration) task.StepExecution {
		return task.StepExecution{State: state, CreatedAt: since.Add(after), Error: new("its error")}
	}
	limited := x(task.Failed, 1)
	limited.LimitedUntil = &since
	none := []task.StepExecution{limited, limited, limited, x(task.Stopped, 1), x(task.Interrupted, 1), x(task.Failed, -1), x(task.Completed, -1)}
	if why := d.exhausted(job{state: new(machine.State), before: append(none, x(task.Failed, 1), x(task.Completed, 1))}); why != "" {
		t.Error(why)
	}
	if why := d.exhausted(job{state: new(machine.State), before: append(none, x(task.Failed, 1), x(task.Completed, 1), x(task.Failed, 1))}); why != "3 agents ended without finishing it. its error" {
		t.Error(why)
	}
	d.silent = map[place]bool{{}: true}
	if why := d.exhausted(job{state: new(machine.State), before: []task.StepExecution{x(task.Completed, 1), x(task.Completed, 1), x(task.Failed, 1)}}); !strings.Contains(why, "never connected to the MCP server deepwork-run") {
		t.Error(why)
	}
}
