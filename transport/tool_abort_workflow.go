package transport

import (
	"context"

	"deepwork/session/workflow"
)

// addAbortWorkflow registers abort_workflow (seed 000, 001.6).
func addAbortWorkflow(s *Server) {
	addTool(s, tool[workflow.AbortArgs, *workflow.AbortReply]{
		name: "abort_workflow", title: "Abort a workflow",
		description: "Ends a workflow before it is complete. Call it when the user no longer wants it, or when it cannot be finished. The session " +
			"cannot be taken up again; the files that were written stay.\n\n" +
			"Returns what was aborted and at which step. If resumed_workflow is not null, the workflow below it goes on at resumed_step: " +
			"call get_step for its instructions.\n\n" +
			"To repeat a step instead, call go_to_step; to stop for now, just stop: the session can be taken up later by its session_id.",
		hints: hints{destructive: true},
		input: inputSchema(
			required("explanation", maxText, "Why the workflow is aborted, for the user and the record, at most 100,000 characters."),
			sessionID(),
			requestID(),
		),
		session: func(a *workflow.AbortArgs) *string { return a.SessionID },
		call: func(ctx context.Context, c *connection, args workflow.AbortArgs) (*workflow.AbortReply, error) {
			r, err := c.agent.Abort(ctx, args)
			if err != nil {
				return nil, err
			}
			reply := *r // the engine may give one reply to several callers
			reply.Stack = list(reply.Stack)
			return &reply, nil
		},
	})
}
