package source

import (
	"context"
	"encoding/json"
	"strings"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/execution"
	"deepwork/transport/tool"
)

type executeArgs struct {
	WorkflowID string          `json:"workflow_id" arg:"Workflow id, job/workflow" max:"1000"`
	Input      json.RawMessage `json:"input" arg:"Arguments for its inputSchema: {goal, instance_id?}" required:"true" free:"true"`
}

// A StartedReply describes a session that was just started.
type StartedReply struct {
	ExecutionID string          `json:"execution_id" jsonschema:"the session's session_id"`
	Status      execution.State `json:"status" jsonschema:"running"`
}

// addExecute registers workflows-execute-tool. The execution is a root session that is on no stack until
// an agent names it: several callers of one server may start theirs over the same connection.
func addExecute(s *tool.Set, o Options) {
	add(s, o, tool.Tool{
		Name: "workflows-execute-tool", Title: "Run a workflow as a source",
		Description: "For other servers; agents call start_workflow. Starts a workflow and returns at once. Its session_id is the execution_id: finished_step with it finishes the steps, from any connection.",
		Outcome:     func(r any) string { return string(r.(*StartedReply).Status) },
		Recheck:     "call get_step: if no workflow is in progress on this connection, it lists those that were started",
	}, o.execute)
}

func (o Options) execute(ctx context.Context, c *tool.Caller, args executeArgs) (*StartedReply, error) {
	jobName, name, _ := strings.Cut(args.WorkflowID, "/")
	j := o.Jobs(ctx).Job(jobName)
	if j == nil || j.Bundled || j.Name != jobName || j.Workflow(name) == nil {
		return nil, session.Wrong(codes.UnknownWorkflow, "There is no workflow with the id '%s'. workflows-list-tool lists the ids.", jsontext.Clip(args.WorkflowID, tool.MaxName)).
			With("argument", "workflow_id").With("value", jsontext.Clip(args.WorkflowID, tool.MaxName))
	}
	w := newWorkflow(j, j.Workflow(name))
	r, err := w.Start(ctx, c, "Workflow '"+args.WorkflowID+"'", args.Input, true)
	if err != nil {
		return nil, err
	}
	return &StartedReply{r.BeginStep.SessionID, execution.Running}, nil
}
