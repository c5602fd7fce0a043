package remote

import (
	"context"
	"fmt"

	"deepwork/catalog/jsontext"
	"deepwork/session/remote"
	"deepwork/transport/tool"
)

type statusArgs struct {
	ExecutionID string `json:"execution_id" arg:"UUID, or the source's own id" max:"1024"`
}

// addWorkflowStatus registers workflow_status (seed 003, requirement 8).
func addWorkflowStatus(s *tool.Set, r *Tools) {
	tool.Add(s, tool.Tool{
		Name: "workflow_status", Title: "Status of an execution",
		Description: "Returns an execution's state, progress and result. Call it, not the workflow again, if a call " +
			"was cut off or answered running.",
		Hints:  tool.Hints{ReadOnly: true, Idempotent: true, Open: true},
		Output: runSchema(),
		Smaller: "the execution ended, and its result is at its source: have the workflow return a reference instead " +
			"of a large result.",
	}, func(ctx context.Context, c *tool.Caller, args statusArgs) (*remote.Run, error) {
		x, err := r.Runs.Status(ctx, c.Identity, args.ExecutionID)
		if err != nil {
			return nil, err
		}
		if x.EndedAt == nil {
			if err := r.checkApproval(ctx, x); err != nil {
				return nil, err
			}
		}
		return sendable(x), nil
	})
}

// sendable returns a run without a result that would exceed any reply.
func sendable(x *remote.Run) *remote.Run {
	if len(x.Result) <= tool.MaxReplyBytes/2 { // the rest is about 10 KB
		return x
	}
	if data, err := jsontext.Encode(x); err != nil || len(data) <= tool.MaxReplyBytes {
		return x
	}

	lighter := *x
	lighter.Result = nil
	why := fmt.Sprintf("its result is too large to send: it has %d bytes of JSON, and a reply may have %d; get it at "+
		"its source, and have the workflow return a reference instead of a large result", len(x.Result),
		tool.MaxReplyBytes)
	if x.Error != nil {
		why = *x.Error + "; " + why
	}
	lighter.Error = &why
	return &lighter
}

func addCancelExecution(s *tool.Set, r *Tools) {
	tool.Add(s, tool.Tool{
		Name: "cancel_execution", Title: "Cancel an execution",
		Description: "Cancels an execution, at its source too if that can. One that has ended does not change.",
		Hints:       tool.Hints{Destructive: true, Idempotent: true, Open: true},
		Output:      runSchema(),
		Recheck:     "call workflow_status with the execution_id to see its state",
	}, func(ctx context.Context, c *tool.Caller, args statusArgs) (*remote.Run, error) {
		x, err := r.Runs.Cancel(ctx, c.Identity, args.ExecutionID)
		if err != nil {
			return nil, err
		}
		return sendable(x), nil
	})
}
