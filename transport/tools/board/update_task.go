package board

import "deepwork/transport/tool"

// addUpdateTask registers update_task (seed 004, "MCP task tool set").
func addUpdateTask(s *tool.Set, e Engine) {
	add(s, e, Engine.UpdateTask, tool.Tool{
		Name: "update_task", Title: "Change a task",
		Description: "Changes the given fields of a task; empty ones are cleared. Set status done when you accept the work.",
		Hints:       tool.Hints{Destructive: true, Idempotent: true},
		Input: tool.InputSchema(taskID(),
			tool.Optional("title", tool.MaxText, titleIs),
			tool.Optional("description", tool.MaxText, descriptionIs),
			oneOf(tool.Optional("status", tool.MaxName, "New status"), taskStatuses),
			tool.Optional("job_name", tool.MaxName, jobIs),
			tool.Optional("workflow_name", tool.MaxName, workflowIs),
			dependsOn()),
		Recheck: "call get_task to see what the task is now",
	})
}
