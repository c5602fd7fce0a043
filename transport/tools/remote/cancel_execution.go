package remote

import (
	"context"

	"deepwork/session/execution"
	"deepwork/transport/tool"
)

func addCancelExecution(s *tool.Set, r *Tools) {
	tool.Add(s, tool.Tool{
		Name: "cancel_execution", Title: "Cancel an execution",
		Description: "Cancels an execution, at its source too if that has a cancel tool. One that has ended does not change.",
		Hints:       tool.Hints{Destructive: true, Idempotent: true, Open: true},
		Output:      executionSchema(),
		Recheck:     "call workflow_status with the execution_id to see its state",
	}, func(ctx context.Context, c *tool.Caller, args statusArgs) (*execution.Execution, error) {
		x, err := r.Executions.Cancel(ctx, c.Identity, args.ExecutionID)
		if err != nil {
			return nil, err
		}
		return sendable(x), nil
	})
}
