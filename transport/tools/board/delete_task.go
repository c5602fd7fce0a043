package board

import "deepwork/transport/tool"

// addDeleteTask registers delete_task (seed 004, "MCP task tool set").
func addDeleteTask(s *tool.Set, e Engine) {
	add(s, e, Engine.DeleteTask, tool.Tool{
		Name: "delete_task", Title: "Delete a task",
		Description: "Deletes a task with its worktrees. Branches stay; uncommitted work is kept under the git refs in rescued.",
		Hints:       tool.Hints{Destructive: true, Idempotent: true},
		Input:       tool.InputSchema(taskID()),
		Recheck:     "call get_task: the task was deleted only if it is no longer found",
	})
}
