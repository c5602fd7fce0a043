package board

import "deepwork/transport/tool"

// addListTaskAttempts registers list_task_attempts (seed 004, "list_task_attempts
// returns attempt details").
func addListTaskAttempts(s *tool.Set, e Engine) {
	add(s, e, Engine.ListTaskAttempts, tool.Tool{
		Name: "list_task_attempts", Title: "List attempts",
		Description: "Lists a task's attempts, newest first.",
		Hints:       tool.Hints{ReadOnly: true, Idempotent: true},
		Input:       tool.InputSchema(taskID(), listLimit(), cursor()),
		Smaller:     smallerPage,
	})
}
