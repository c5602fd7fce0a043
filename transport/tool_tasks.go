package transport

import (
	"deepwork/session/attempt"
)

// addListTasks registers list_tasks (seed 004, "list_tasks provides attempt summary").
func addListTasks(s *Server) {
	addTool(s, tool[attempt.ListTasksArgs, *attempt.TasksReply]{
		name: "list_tasks", title: "List tasks",
		description: "Lists the tasks of a project, newest first, each with a summary of its attempts: the latest one's id, branch and session, whether one is " +
			"in progress, and whether the last one failed. status leaves out all others.\n\n" +
			"Returns tasks, count (returned here), total (that match), applied_filters and next_cursor, which is null when there are no more.",
		hints: hints{readOnly: true, idempotent: true},
		input: inputSchema(projectID(),
			oneOf(optional("status", maxName, "Only tasks of this status: todo, inprogress, inreview, done or cancelled. Default: all."), taskStatuses),
			listLimit(), cursor()),
		output: boardSchema[attempt.TasksReply](),
		call:   onBoard(s, boardEngine.ListTasks),
	})
}

// addGetTask registers get_task (seed 004, "MCP task tool set").
func addGetTask(s *Server) {
	addTool(s, tool[attempt.TaskArgs, *attempt.Task]{
		name: "get_task", title: "Get a task",
		description: "Returns one task with its description, its status and the summary of its attempts. list_task_attempts tells of the attempts themselves.",
		hints:       hints{readOnly: true, idempotent: true},
		input:       inputSchema(taskID()),
		output:      boardSchema[attempt.Task](),
		call:        onBoard(s, boardEngine.GetTask),
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
func addCreateTask(s *Server) {
	addTool(s, tool[attempt.CreateTaskArgs, *attempt.Task]{
		name: "create_task", title: "Create a task",
		description: "Puts a task on the board, with status todo. Nothing is started by it: call start_task_attempt for that.\n\n" +
			"Returns the task; keep its task_id.",
		hints: hints{},
		input: inputSchema(projectID(),
			required("title", maxText, titleIs),
			optional("description", maxText, descriptionIs),
			optional("job_name", maxName, jobIs),
			optional("workflow_name", maxName, workflowIs),
			requestID()),
		output: boardSchema[attempt.Task](),
		call:   onBoard(s, boardEngine.CreateTask),
	})
}

// addUpdateTask registers update_task (seed 004, "MCP task tool set").
func addUpdateTask(s *Server) {
	addTool(s, tool[attempt.UpdateTaskArgs, *attempt.Task]{
		name: "update_task", title: "Change a task",
		description: "Changes what is given of a task, and leaves the rest. Call it to set the status by hand, for example to done after you reviewed an attempt. " +
			"An agent that runs is not told.\n\nReturns the task as it then is.",
		hints: hints{destructive: true, idempotent: true},
		input: inputSchema(taskID(),
			optional("title", maxText, titleIs),
			optional("description", maxText, descriptionIs+clears),
			oneOf(optional("status", maxName, "todo, inprogress, inreview, done or cancelled."), taskStatuses),
			optional("job_name", maxName, jobIs+clears),
			optional("workflow_name", maxName, workflowIs+clears)),
		output: boardSchema[attempt.Task](),
		call:   onBoard(s, boardEngine.UpdateTask),
	})
}

// addDeleteTask registers delete_task (seed 004, "MCP task tool set").
func addDeleteTask(s *Server) {
	addTool(s, tool[attempt.TaskArgs, *attempt.DeleteReply]{
		name: "delete_task", title: "Delete a task",
		description: "Removes a task with its attempts, their worktrees and logs. It is refused while an attempt waits or runs: stop_attempt first.\n\n" +
			"Work that was not committed is kept first, as a commit under a git ref that rescued names; branches with commits stay. " +
			"To put a task aside, call update_task with status cancelled instead.",
		hints:  hints{destructive: true, idempotent: true},
		input:  inputSchema(taskID()),
		output: boardSchema[attempt.DeleteReply](),
		call:   onBoard(s, boardEngine.DeleteTask),
	})
}
