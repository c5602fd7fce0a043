package board

import "deepwork/transport/tool"

// addListTaskAttempts registers list_task_attempts (seed 004, "list_task_attempts
// returns attempt details").
func addListTaskAttempts(s *tool.Set, e Engine) {
	add(s, e, Engine.ListTaskAttempts, tool.Tool{
		Name: "list_task_attempts", Title: "List attempts",
		Description: "Lists the attempts of a task, newest first, with their branch, state and latest session. get_attempt tells more of one.\n\n" +
			"Returns attempts, latest_attempt_id, latest_session_id, count, total and next_cursor, which is null when there are no more.",
		Hints:   tool.Hints{ReadOnly: true, Idempotent: true},
		Input:   tool.InputSchema(taskID(), listLimit(), cursor()),
		Smaller: smallerPage,
	})
}
