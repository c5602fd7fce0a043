package board

import (
	"deepwork/catalog/task"
	"deepwork/transport/tool"
)

// addCreateTask registers create_task (seed 004, "MCP task tool set").
func addCreateTask(s *tool.Set, e Engine) {
	add(s, e, Engine.CreateTask, tool.Tool{
		Name: "create_task", Title: "Create a task",
		Description: "Adds a task with status todo. start_task_attempt starts an agent on it.",
		Input: tool.InputSchema(projectID(),
			tool.Required("title", tool.MaxText, titleIs),
			tool.Optional("description", tool.MaxText, descriptionIs),
			tool.Optional("job_name", tool.MaxName, jobIs),
			tool.Optional("workflow_name", tool.MaxName, workflowIs),
			oneOf(tool.Optional("lead", tool.MaxName, "server: an agent per step. Default: agent"), leaders),
			dependsOn(),
			tool.RequestID()),
		Recheck: "call list_tasks: the task was created only if it is listed there",
	})
}

// Arguments of create_task and update_task that describe the work.
const (
	titleIs       = "One line"
	descriptionIs = "The work in full"
	jobIs         = "Job of the workflow to complete"
	workflowIs    = "Its workflow"
)

func dependsOn() tool.Property {
	return texts("depends_on", task.MaxDependencies, tool.MaxName, "Tasks to be done first")
}
