package transport

import (
	"context"

	"deepwork/session/workflow"
)

// addGetStep registers get_step (DESIGN "Stacks").
func addGetStep(s *Server) {
	addTool(s, tool[workflow.StepArgs, *workflow.StepReply]{
		name: "get_step", title: "Show the current step",
		description: "Shows where a workflow stands, without moving it. Call it when you have lost the current step's instructions (your context " +
			"was compacted), after a workflow above was completed or aborted, to see what is still pending in a concurrent group, or with a session_id " +
			"to take up a session after a restart or a lost connection.\n\n" +
			"Returns begin_step as it was when the step was begun, concurrent_steps and members of its group with what each has reached, " +
			"pending_concurrent_steps, the goal, the steps completed so far, and stack.\n\n" +
			"Then go on with the step and call finished_step. If no workflow is in progress, the error lists the sessions that can be taken up.",
		hints:   hints{readOnly: true, idempotent: true},
		input:   inputSchema(sessionID()),
		session: func(a *workflow.StepArgs) *string { return a.SessionID },
		call: func(ctx context.Context, c *connection, args workflow.StepArgs) (*workflow.StepReply, error) {
			r, err := c.agent.Step(ctx, args)
			if err != nil {
				return nil, err
			}
			reply := *r // the engine may give one reply to several callers
			reply.Stack, reply.Members, reply.CompletedSteps = list(reply.Stack), list(reply.Members), list(reply.CompletedSteps)
			return &reply, nil
		},
	})
}
