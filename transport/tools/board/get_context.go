package board

import (
	"context"

	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

// addGetContext registers get_context (seed 004, "Workspace context data").
func addGetContext(s *tool.Set, w *attempt.Context) {
	add(s, nil, func(_ Engine, ctx context.Context, _ session.Caller, _ tool.NoArgs) (*attempt.ContextReply, error) {
		return w.GetContext(ctx)
	}, tool.Tool{
		Name: "get_context", Title: "Get the context of this workspace",
		Description: "Returns the project, task, attempt, branch and repositories of this workspace. Call it first. If workflow_session_id is not null, call get_step with it.",
		Hints:       tool.Hints{ReadOnly: true, Idempotent: true},
	})
}
