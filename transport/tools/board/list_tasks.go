package board

import "deepwork/transport/tool"

// addListTasks registers list_tasks (seed 004, "list_tasks provides attempt summary").
func addListTasks(s *tool.Set, e Engine) {
	add(s, e, Engine.ListTasks, tool.Tool{
		Name: "list_tasks", Title: "List tasks",
		Description: "Lists a project's tasks, newest first, with their latest attempt.",
		Hints:       tool.Hints{ReadOnly: true, Idempotent: true},
		Input: tool.InputSchema(projectID(),
			oneOf(tool.Optional("status", tool.MaxName, "Only this status"), taskStatuses),
			listLimit(), cursor()),
		Smaller: smallerPage,
	})
}
