package source

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/remote"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
	"deepwork/transport/tool"
)

type executeArgs struct {
	WorkflowID string          `json:"workflow_id" arg:"Workflow id, job/workflow" max:"1000"`
	Input      json.RawMessage `json:"input" arg:"Arguments for its inputSchema: {goal, instance_id?}" required:"true" free:"true"`
}

// A StartedReply describes a session that was just started.
type StartedReply struct {
	ExecutionID string       `json:"execution_id" jsonschema:"the session's session_id"`
	Status      remote.State `json:"status" jsonschema:"running"`
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
	return &StartedReply{r.BeginStep.SessionID, remote.Running}, nil
}

type executionArgs struct {
	WorkflowID  string `json:"workflow_id" arg:"Workflow id, job/workflow" max:"1000"`
	ExecutionID string `json:"execution_id" arg:"execution_id from workflows-execute-tool, 8 hex digits"`
}

// An executionReply describes an execution to callers of this source.
type executionReply struct {
	ExecutionID string           `json:"execution_id" jsonschema:"the session's session_id"`
	Status      remote.State     `json:"status" jsonschema:"how it is now"`
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
var executionWords = tool.Words{Enums: map[string][]any{"status": {string(remote.Running), string(remote.Completed), string(remote.Cancelled)}}}

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
		r.Status, r.Output, r.Progress.Message = remote.Completed, &x.Outputs, "complete"
	case machine.Aborted:
		r.Status, r.Error = remote.Cancelled, x.AbortReason
	default:
		r.Status = remote.Running
	}
	return r, nil
}

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
	if err != nil || now.Status != remote.Running {
		return now, err
	}
	_, aborted := c.Workflows.Abort(ctx, workflow.AbortArgs{
		Explanation: "cancelled through workflows-cancel-tool by the system that ordered it", SessionID: &args.ExecutionID,
	})
	// It may have ended in the meantime, which is fine.
	if now, err = o.executionOf(ctx, c, args); aborted != nil && (err != nil || now.Status == remote.Running) {
		return nil, aborted
	}
	return now, err
}
