package board

import "deepwork/transport/tool"

// addListTasks registers list_tasks (seed 004, "list_tasks provides attempt summary").
func addListTasks(s *tool.Set, e Engine) {
	add(s, e, Engine.ListTasks, tool.Tool{
		Name: "list_tasks", Title: "List tasks",
		Description: "Lists the tasks of a project, newest first, each with a summary of its attempts: the latest one's id, branch and session, whether one is " +
			"in progress, and whether the last one failed. status leaves out all others.\n\n" +
			"Returns tasks, count (returned here), total (that match), applied_filters and next_cursor, which is null when there are no more.",
		Hints: tool.Hints{ReadOnly: true, Idempotent: true},
		Input: tool.InputSchema(projectID(),
			oneOf(tool.Optional("status", tool.MaxName, "Only tasks of this status: todo, inprogress, inreview, done or cancelled. Default: all."), taskStatuses),
			listLimit(), cursor()),
		Smaller: smallerPage,
	})
}
