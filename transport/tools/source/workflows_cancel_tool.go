package source

import (
	"context"

	"deepwork/session/execution"
	"deepwork/session/workflow"
	"deepwork/transport/tool"
)

func addCancel(s *tool.Set, o Options) {
	add(s, o, tool.Tool{
		Name: "workflows-cancel-tool", Title: "Cancel as a source",
		Description: "For other servers: aborts an execution and returns its state. One that has ended stays as it is.",
		Hints:       tool.Hints{Destructive: true, Idempotent: true},
		Output:      executionSchema(),
		Session:     "execution_id",
		Outcome:     statusOf,
		Recheck:     "call workflows-status-tool with the execution_id to see whether it has ended",
	}, o.cancel)
}

func (o Options) cancel(ctx context.Context, c *tool.Caller, args executionArgs) (*executionReply, error) {
	now, err := o.executionOf(ctx, c, args)
	if err != nil || now.Status != execution.Running {
		return now, err
	}
	_, aborted := c.Workflows.Abort(ctx, workflow.AbortArgs{
		Explanation: "cancelled through workflows-cancel-tool by the system that ordered it", SessionID: &args.ExecutionID,
	})
	// It may have ended in the meantime, which is fine.
	if now, err = o.executionOf(ctx, c, args); aborted != nil && (err != nil || now.Status == execution.Running) {
		return nil, aborted
	}
	return now, err
}
