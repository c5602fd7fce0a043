package board

import "deepwork/transport/tool"

func addGetAttempt(s *tool.Set, e Engine) {
	add(s, e, Engine.GetAttempt, tool.Tool{
		Name: "get_attempt", Title: "Get an attempt",
		Description: "Returns an attempt's state, final message, workflow step, worktrees and changed files.",
		Hints:       tool.Hints{ReadOnly: true, Idempotent: true},
		Input:       tool.InputSchema(attemptID()),
	})
}
