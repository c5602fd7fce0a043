package board

import "deepwork/transport/tool"

// addDeleteTask registers delete_task (seed 004, "MCP task tool set").
func addDeleteTask(s *tool.Set, e Engine) {
	add(s, e, Engine.DeleteTask, tool.Tool{
		Name: "delete_task", Title: "Delete a task",
		Description: "Removes a task with its attempts, their worktrees and logs. It is refused while an attempt waits or runs: stop_attempt first.\n\n" +
			"Work that was not committed is kept first, as a commit under a git ref that rescued names; branches with commits stay. " +
			"To put a task aside, call update_task with status cancelled instead.",
		Hints:   tool.Hints{Destructive: true, Idempotent: true},
		Input:   tool.InputSchema(taskID()),
		Recheck: "call get_task: the task was deleted only if it is not found any more",
	})
}
