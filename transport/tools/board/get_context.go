package board

import (
	"context"

	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

// addGetContext registers get_context (seed 004, "Workspace context data").
func addGetContext(s *tool.Set, w Workspace) {
	add(s, nil, func(_ Engine, ctx context.Context, _ session.Caller, _ tool.NoArgs) (*attempt.ContextReply, error) {
		return w.GetContext(ctx)
	}, tool.Tool{
		Name: "get_context", Title: "Get the context of this workspace",
		Description: "Tells which project, task and attempt this workspace belongs to, on which branch and repositories it works, and where the workflow stands that the " +
			"task asks for. Call it first when you begin to work here; if workflow_session_id is not null, get_step with it gives the current step.",
		Hints: tool.Hints{ReadOnly: true, Idempotent: true},
	})
}
