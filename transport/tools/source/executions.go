package source

import (
	"context"
	"deepwork/session/workflow/machine"
	"encoding/json"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/execution"
	"deepwork/session/workflow"
	"deepwork/transport/tool"
)

type executeArgs struct {
	WorkflowID string          `json:"workflow_id"`
	Input      json.RawMessage `json:"input"`
}

type executionArgs struct {
	WorkflowID  string `json:"workflow_id"`
	ExecutionID string `json:"execution_id"`
}

// An executionReply is what a source says of an execution.
type executionReply struct {
	ExecutionID string           `json:"execution_id" jsonschema:"the session's session_id"`
	Status      execution.State  `json:"status" jsonschema:"how it is now"`
	Progress    ownProgress      `json:"progress" jsonschema:"{progress, total, message}: steps done, of so many, and where it is"`
	Output      *machine.Outputs `json:"output" jsonschema:"all outputs, once completed, else null"`
	Error       *string          `json:"error" jsonschema:"why it was cancelled, else null"`
}

type ownProgress struct {
	Progress int    `json:"progress"`
	Total    int    `json:"total"`
	Message  string `json:"message"`
}

// A StartedReply is what it says of one that it has just started.
type StartedReply struct {
	ExecutionID string          `json:"execution_id" jsonschema:"the session's session_id"`
	Status      execution.State `json:"status" jsonschema:"running"`
}

// executionWords are those of executionReply.
var executionWords = tool.Words{Enums: map[string][]any{"status": {string(execution.Running), string(execution.Completed), string(execution.Cancelled)}}}

func executionSchema() *jsonschema.Schema {
	s := tool.OutputSchema[executionReply](executionWords)
	tool.OpenProperty(s, "output", "null", "object")
	tool.OpenProperty(s, "progress", "object")
	return s
}

func workflowID() tool.Property {
	return tool.Required("workflow_id", maxWorkflowID, "The workflow's id, as `job/workflow`.")
}

func executionID() tool.Property {
	return tool.Required("execution_id", tool.MaxName, "Its execution_id.")
}

// maxWorkflowID is how long the id of a workflow may be, in characters.
const maxWorkflowID = 1000

// addExecute registers workflows-execute-tool. The execution is a session of
// the caller's connection that is nested in no other: several callers of one
// server may order theirs over the same connection.
func addExecute(s *tool.Set, o Options) {
	tool.Add(s, tool.Tool[executeArgs, *StartedReply]{
		Name: "workflows-execute-tool", Title: "Run a workflow as a source",
		Description: "For servers that run this project's workflows; agents use start_workflow. Starts a session and answers at once; " +
			"finished_step with its execution_id as session_id moves it on, from any connection.",
		Hints: tool.Hints{},
		Input: tool.InputSchema(workflowID(),
			tool.Property{Name: "input", Required: true, Schema: &jsonschema.Schema{Type: "object", Description: "What its inputSchema asks for: {goal, instance_id?}."}}),
		Free:    []string{"input"},
		Output:  tool.OutputSchema[StartedReply](tool.Words{}),
		Call:    o.execute,
		Outcome: func(r *StartedReply) string { return string(r.Status) },
		Recheck: "call get_step: where no workflow is in progress on the connection it lists those that were started",
	})
}

func (o Options) execute(ctx context.Context, c *tool.Caller, args executeArgs) (*StartedReply, error) {
	jobName, name, _ := strings.Cut(args.WorkflowID, "/")
	j := o.Jobs(ctx).Job(jobName)
	if j == nil || j.Name != jobName || j.Workflow(name) == nil {
		return nil, session.Wrong("unknown_workflow", "There is no workflow with the id '%s'. workflows-list-tool lists those there are.", jsontext.Clip(args.WorkflowID, tool.MaxName)).
			With("argument", "workflow_id").With("value", jsontext.Clip(args.WorkflowID, tool.MaxName))
	}
	w := newWorkflow(j, j.Workflow(name))
	r, err := w.Start(ctx, c, "Workflow '"+args.WorkflowID+"'", args.Input, true)
	if err != nil {
		return nil, err
	}
	return &StartedReply{r.BeginStep.SessionID, execution.Running}, nil
}

// addStatus registers workflows-status-tool.
func addStatus(s *tool.Set, o Options) {
	tool.Add(s, tool.Tool[executionArgs, *executionReply]{
		Name: "workflows-status-tool", Title: "Status as a source",
		Description: "Tells how far an execution that workflows-execute-tool started is, also after it ended; it moves nothing.",
		Hints:       tool.Hints{ReadOnly: true, Idempotent: true},
		Input:       tool.InputSchema(workflowID(), executionID()),
		Output:      executionSchema(),
		Session:     func(a *executionArgs) *string { return &a.ExecutionID },
		Call:        o.executionOf,
		Outcome:     func(r *executionReply) string { return string(r.Status) },
	})
}

// addCancel registers workflows-cancel-tool.
func addCancel(s *tool.Set, o Options) {
	tool.Add(s, tool.Tool[executionArgs, *executionReply]{
		Name: "workflows-cancel-tool", Title: "Cancel as a source",
		Description: "Aborts an execution that workflows-execute-tool started, and tells how it then is. One that has ended stays as it is.",
		Hints:       tool.Hints{Destructive: true, Idempotent: true},
		Input:       tool.InputSchema(workflowID(), executionID()),
		Output:      executionSchema(),
		Session:     func(a *executionArgs) *string { return &a.ExecutionID },
		Call: func(ctx context.Context, c *tool.Caller, args executionArgs) (*executionReply, error) {
			now, err := o.executionOf(ctx, c, args)
			if err != nil || now.Status != execution.Running {
				return now, err
			}
			_, aborted := c.Workflows.Abort(ctx, workflow.AbortArgs{
				Explanation: "cancelled through workflows-cancel-tool by the system that ordered it", SessionID: &args.ExecutionID,
			})
			// It may have ended in between, which is as good.
			if now, err = o.executionOf(ctx, c, args); aborted != nil && (err != nil || now.Status == execution.Running) {
				return nil, aborted
			}
			return now, err
		},
		Outcome: func(r *executionReply) string { return string(r.Status) },
		Recheck: "call workflows-status-tool with the execution_id to see whether it has ended",
	})
}

// executionOf tells how an execution is, to callers of the identity that ordered
// it.
func (o Options) executionOf(ctx context.Context, c *tool.Caller, args executionArgs) (*executionReply, error) {
	x, err := o.Execution(ctx, c.Identity, args.ExecutionID)
	if err != nil {
		return nil, err
	}
	if of := x.JobName + "/" + x.WorkflowName; of != args.WorkflowID {
		return nil, session.Wrong("wrong_workflow", "Execution '%s' is of workflow '%s', not of '%s'. Pass that workflow_id, or the execution_id that is meant.",
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
