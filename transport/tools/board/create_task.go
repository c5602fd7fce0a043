package board

import "deepwork/transport/tool"

// addCreateTask registers create_task (seed 004, "MCP task tool set").
func addCreateTask(s *tool.Set, e Engine) {
	add(s, e, Engine.CreateTask, tool.Tool{
		Name: "create_task", Title: "Create a task",
		Description: "Puts a task on the board, with status todo. Nothing is started by it: call start_task_attempt for that.\n\n" +
			"Returns the task; keep its task_id.",
		Input: tool.InputSchema(projectID(),
			tool.Required("title", tool.MaxText, titleIs),
			tool.Optional("description", tool.MaxText, descriptionIs),
			tool.Optional("job_name", tool.MaxName, jobIs),
			tool.Optional("workflow_name", tool.MaxName, workflowIs),
			tool.RequestID()),
		Recheck: "call list_tasks: the task was made only if it is listed there",
	})
}

// Arguments of create_task and update_task that describe the work.
const (
	titleIs       = "What is to be done, in one line of at most 200 characters."
	descriptionIs = "What is to be done, in full: the agents of its attempts are given it. At most 100,000 characters."
	jobIs         = "The job of a workflow that each attempt is to run, as get_workflows lists it; together with workflow_name. " +
		"The task is in review only when that workflow is complete."
	workflowIs = "The workflow of that job; together with job_name."
	clears     = " An empty text clears it."
)
