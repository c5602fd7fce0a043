package transport

import (
	"context"

	"deepwork/session"
	"deepwork/session/execution"
)

type statusArgs struct {
	ExecutionID string `json:"execution_id"`
}

// addWorkflowStatus registers workflow_status (seed 003, requirement 8).
func addWorkflowStatus(s *Server) {
	addTool(s, tool[statusArgs, *execution.Execution]{
		name: "workflow_status", title: "Status of a run",
		description: "Tells where a run of a workflow tool is: state, progress, result or error, also after it ended (for a day). Call it when a call was cut off " +
			"or answered `running`, and do not start the workflow again. Where its source cannot be asked, that is `not supported`.",
		hints:  hints{readOnly: true, idempotent: true, open: true},
		input:  inputSchema(required("execution_id", maxExecutionID, "The run's execution_id, as progress messages, results and errors have it, or its source's id of it.")),
		output: runSchema(),
		call: func(ctx context.Context, c *connection, args statusArgs) (*execution.Execution, error) {
			r, err := s.remote.runs.Status(ctx, c.identity, args.ExecutionID)
			if refusal, ok := err.(*session.Error); ok {
				return nil, slim(refusal)
			}
			if err != nil {
				return nil, err
			}
			return sendable(r), nil
		},
		outcome: func(r *execution.Execution) string { return string(r.State) },
	})
}

// maxExecutionID is how long a source's id of a run may be, in characters.
const maxExecutionID = 1024
