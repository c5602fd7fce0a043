package transport

import (
	"context"

	"deepwork/session/workflow"
)

// addGoToStep registers go_to_step.
func addGoToStep(s *Server) {
	addTool(s, tool[workflow.GoToArgs, *workflow.GoToReply]{
		name: "go_to_step", title: "Go back to a step",
		description: "Goes back to an earlier step of a workflow, or begins the current one anew. Call it when a later step shows that an earlier one " +
			"must be done differently. The progress of that step and of all after it is cleared; files stay as they are. " +
			"Of a concurrent group all members are cleared.\n\n" +
			"Returns begin_step, to be done now, and invalidated_steps, whose work is to be done again or confirmed.\n\n" +
			"Then do the step and call finished_step. To go forward, call finished_step: this tool refuses that.",
		hints: hints{destructive: true},
		input: inputSchema(
			required("step_id", maxName, "The step to go back to: the id of an earlier step of the workflow, or of the current one. get_step lists those completed."),
			sessionID(),
			requestID(),
		),
		session: func(a *workflow.GoToArgs) *string { return a.SessionID },
		call: func(ctx context.Context, c *connection, args workflow.GoToArgs) (*workflow.GoToReply, error) {
			r, err := c.agent.GoTo(ctx, args)
			if err != nil {
				return nil, err
			}
			reply := *r // the engine may give one reply to several callers
			reply.Stack, reply.InvalidatedSteps = list(reply.Stack), list(reply.InvalidatedSteps)
			return &reply, nil
		},
	})
}
