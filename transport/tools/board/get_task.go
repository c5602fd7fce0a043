package board

import (
	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

// addGetTask registers get_task (seed 004, "MCP task tool set").
func addGetTask(s *tool.Set, e Engine) {
	add(s, e, Engine.GetTask, tool.Tool{
		Name: "get_task", Title: "Get a task",
		Description: "Returns a task with its latest attempt.",
		Hints:       tool.Hints{ReadOnly: true, Idempotent: true},
		Output:      fieldsIn("get_attempt", outputSchema[attempt.TaskReply](), "cost"),
		Input:       tool.InputSchema(taskID()),
	})
}
