package board

import (
	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

// addListTasks registers list_tasks (seed 004, "list_tasks provides attempt summary").
func addListTasks(s *tool.Set, e Engine) {
	tool.Add(s, tool.Tool[attempt.ListTasksArgs, *attempt.TasksReply]{
		Name: "list_tasks", Title: "List tasks",
		Description: "Lists the tasks of a project, newest first, each with a summary of its attempts: the latest one's id, branch and session, whether one is " +
			"in progress, and whether the last one failed. status leaves out all others.\n\n" +
			"Returns tasks, count (returned here), total (that match), applied_filters and next_cursor, which is null when there are no more.",
		Hints: tool.Hints{ReadOnly: true, Idempotent: true},
		Input: tool.InputSchema(projectID(),
			oneOf(tool.Optional("status", tool.MaxName, "Only tasks of this status: todo, inprogress, inreview, done or cancelled. Default: all."), taskStatuses),
			listLimit(), cursor()),
		Output:  outputSchema[attempt.TasksReply](),
		Call:    call(e, Engine.ListTasks),
		Smaller: smallerPage,
	})
}

// addGetTask registers get_task (seed 004, "MCP task tool set").
func addGetTask(s *tool.Set, e Engine) {
	tool.Add(s, tool.Tool[attempt.TaskArgs, *attempt.Task]{
		Name: "get_task", Title: "Get a task",
		Description: "Returns one task with its description, its status and the summary of its attempts. list_task_attempts tells of the attempts themselves.",
		Hints:       tool.Hints{ReadOnly: true, Idempotent: true},
		Input:       tool.InputSchema(taskID()),
		Output:      outputSchema[attempt.Task](),
		Call:        call(e, Engine.GetTask),
	})
}

// The arguments of create_task and update_task that say what is to be done.
const (
	titleIs       = "What is to be done, in one line of at most 200 characters."
	descriptionIs = "What is to be done, in full: the agents of its attempts are given it. At most 100,000 characters."
	jobIs         = "The job of a workflow that each attempt is to run, as get_workflows lists it; together with workflow_name. " +
		"The task is in review only when that workflow is complete."
	workflowIs = "The workflow of that job; together with job_name."
	clears     = " An empty text clears it."
)

// addCreateTask registers create_task (seed 004, "MCP task tool set").
func addCreateTask(s *tool.Set, e Engine) {
	tool.Add(s, tool.Tool[attempt.CreateTaskArgs, *attempt.Task]{
		Name: "create_task", Title: "Create a task",
		Description: "Puts a task on the board, with status todo. Nothing is started by it: call start_task_attempt for that.\n\n" +
			"Returns the task; keep its task_id.",
		Hints: tool.Hints{},
		Input: tool.InputSchema(projectID(),
			tool.Required("title", tool.MaxText, titleIs),
			tool.Optional("description", tool.MaxText, descriptionIs),
			tool.Optional("job_name", tool.MaxName, jobIs),
			tool.Optional("workflow_name", tool.MaxName, workflowIs),
			tool.RequestID()),
		Output:  outputSchema[attempt.Task](),
		Call:    call(e, Engine.CreateTask),
		Recheck: "call list_tasks: the task was made only if it is listed there",
	})
}

// addUpdateTask registers update_task (seed 004, "MCP task tool set").
func addUpdateTask(s *tool.Set, e Engine) {
	tool.Add(s, tool.Tool[attempt.UpdateTaskArgs, *attempt.Task]{
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
		Output:  outputSchema[attempt.Task](),
		Call:    call(e, Engine.UpdateTask),
		Recheck: "call get_task to see what the task is now",
	})
}

// addDeleteTask registers delete_task (seed 004, "MCP task tool set").
func addDeleteTask(s *tool.Set, e Engine) {
	tool.Add(s, tool.Tool[attempt.TaskArgs, *attempt.DeleteReply]{
		Name: "delete_task", Title: "Delete a task",
		Description: "Removes a task with its attempts, their worktrees and logs. It is refused while an attempt waits or runs: stop_attempt first.\n\n" +
			"Work that was not committed is kept first, as a commit under a git ref that rescued names; branches with commits stay. " +
			"To put a task aside, call update_task with status cancelled instead.",
		Hints:   tool.Hints{Destructive: true, Idempotent: true},
		Input:   tool.InputSchema(taskID()),
		Output:  outputSchema[attempt.DeleteReply](),
		Call:    call(e, Engine.DeleteTask),
		Recheck: "call get_task: the task was deleted only if it is not found any more",
	})
}
