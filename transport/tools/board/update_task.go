package board

import "deepwork/transport/tool"

// addUpdateTask registers update_task (seed 004, "MCP task tool set").
func addUpdateTask(s *tool.Set, e Engine) {
	add(s, e, Engine.UpdateTask, tool.Tool{
		Name: "update_task", Title: "Change a task",
		Description: "Changes what is given of a task, and leaves the rest. Call it to set the status by hand, for example to done after you reviewed an attempt. " +
			"An agent that runs is not told.\n\nReturns the task as it then is.",
		Hints: tool.Hints{Destructive: true, Idempotent: true},
		Input: tool.InputSchema(taskID(),
			tool.Optional("title", tool.MaxText, titleIs),
			tool.Optional("description", tool.MaxText, descriptionIs+clears),
			oneOf(tool.Optional("status", tool.MaxName, "todo, inprogress, inreview, done or cancelled."), taskStatuses),
			tool.Optional("job_name", tool.MaxName, jobIs+clears),
			tool.Optional("workflow_name", tool.MaxName, workflowIs+clears)),
		Recheck: "call get_task to see what the task is now",
	})
}
