package attempt

import (
	"fmt"
	"strings"

	"deepwork/catalog/task"
)

// firstPrompt is the first prompt of an attempt's agent: the task, then the
// caller's own words, then how to run the workflow that the task names.
func firstPrompt(t *task.Task, prompt *string) string {
	parts := []string{"# " + t.Title}
	if t.Description != nil && strings.TrimSpace(*t.Description) != "" {
		parts = append(parts, strings.TrimSpace(*t.Description))
	}
	if prompt != nil && strings.TrimSpace(*prompt) != "" {
		parts = append(parts, strings.TrimSpace(*prompt))
	}
	if t.JobName != nil && t.WorkflowName != nil {
		parts = append(parts, workflowPrompt(t.Title, *t.JobName, *t.WorkflowName))
	}
	return strings.Join(parts, "\n\n") + "\n"
}

// workflowPrompt tells an agent to do its task by a workflow, and that the task
// is done when that is complete.
func workflowPrompt(title, job, workflow string) string {
	return fmt.Sprintf(`## Do this by the workflow %[2]s/%[3]s

The MCP server `+"`deepwork`"+` leads you through it. If its tools are not there, say so and stop.

1. Call `+"`start_workflow`"+` with goal: %[1]q, job_name: %[2]q, workflow_name: %[3]q. If it was started here before (`+"`get_context`"+` gives workflow_session_id), call `+"`get_step`"+` with that session_id instead and go on from there.
2. Do the step as its instructions say, and call `+"`finished_step`"+` with its outputs. Act on what comes back.
3. Go on until the answer is workflow_complete. Only then the task is done; do not stop before.`, title, job, workflow)
}
