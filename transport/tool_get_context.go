package transport

import (
	"context"

	"deepwork/session/attempt"
)

// addGetContext registers get_context (seed 004, "Workspace context data").
func addGetContext(s *Server) {
	addTool(s, tool[noArgs, *attempt.ContextReply]{
		name: "get_context", title: "Get the context of this workspace",
		description: "Tells which project, task and attempt this workspace belongs to, on which branch and repositories it works, and where the workflow stands that the " +
			"task asks for. Call it first when you begin to work here; if workflow_session_id is not null, get_step with it gives the current step.",
		hints:  hints{readOnly: true, idempotent: true},
		input:  inputSchema(),
		output: boardSchema[attempt.ContextReply](),
		call: func(ctx context.Context, _ *connection, _ noArgs) (*attempt.ContextReply, error) {
			return s.workspace.GetContext(ctx)
		},
	})
}
