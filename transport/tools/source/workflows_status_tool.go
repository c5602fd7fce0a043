package source

import (
	"context"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/execution"
	"deepwork/session/workflow/machine"
	"deepwork/transport/tool"
)

type executionArgs struct {
	WorkflowID  string `json:"workflow_id" arg:"Workflow id, job/workflow" max:"1000"`
	ExecutionID string `json:"execution_id" arg:"execution_id from workflows-execute-tool, 8 hex digits"`
}

// An executionReply describes an execution to callers of this source.
type executionReply struct {
	ExecutionID string           `json:"execution_id" jsonschema:"the session's session_id"`
	Status      execution.State  `json:"status" jsonschema:"how it is now"`
	Progress    ownProgress      `json:"progress" jsonschema:"{progress, total, message}: steps done, number of steps, and current step"`
	Output      *machine.Outputs `json:"output" jsonschema:"all outputs, once completed, else null"`
	Error       *string          `json:"error" jsonschema:"why it was cancelled, else null"`
}

type ownProgress struct {
	Progress int    `json:"progress"`
	Total    int    `json:"total"`
	Message  string `json:"message"`
}

// executionWords are those of executionReply.
var executionWords = tool.Words{Enums: map[string][]any{"status": {string(execution.Running), string(execution.Completed), string(execution.Cancelled)}}}

func executionSchema() *jsonschema.Schema {
	s := tool.OutputSchema[executionReply](executionWords)
	tool.OpenProperty(s, "output", "null", "object")
	tool.OpenProperty(s, "progress", "object")
	return s
}

func statusOf(reply any) string { return string(reply.(*executionReply).Status) }

func addStatus(s *tool.Set, o Options) {
	add(s, o, tool.Tool{
		Name: "workflows-status-tool", Title: "Status as a source",
		Description: "For other servers: returns state and progress of an execution, also after its end.",
		Hints:       tool.Hints{ReadOnly: true, Idempotent: true},
		Output:      executionSchema(),
		Session:     "execution_id",
		Polled:      true,
		Outcome:     statusOf,
	}, o.executionOf)
}

// executionOf returns the state of an execution, for callers of the identity that started it.
func (o Options) executionOf(ctx context.Context, c *tool.Caller, args executionArgs) (*executionReply, error) {
	x, err := o.Execution(ctx, c.Identity, args.ExecutionID)
	if err != nil {
		return nil, err
	}
	if of := x.JobName + "/" + x.WorkflowName; of != args.WorkflowID {
		return nil, session.Wrong(codes.WrongWorkflow, "Execution '%s' belongs to workflow '%s', not to '%s'. Pass that workflow_id, or another execution_id.",
			x.SessionID, of, jsontext.Clip(args.WorkflowID, tool.MaxName)).With("workflow_id", of)
	}
	r := &executionReply{ExecutionID: x.SessionID, Progress: ownProgress{x.Done, x.Total, "at step '" + x.StepID + "'"}}
	switch x.Status {
	case machine.Completed:
		r.Status, r.Output, r.Progress.Message = execution.Completed, &x.Outputs, "complete"
	case machine.Aborted:
		r.Status, r.Error = execution.Cancelled, x.AbortReason
	default:
		r.Status = execution.Running
	}
	return r, nil
}
