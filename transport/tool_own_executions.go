package transport

import (
	"context"
	"encoding/json"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session"
	"deepwork/session/execution"
	"deepwork/session/workflow"
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
	ExecutionID string            `json:"execution_id" jsonschema:"the session's session_id"`
	Status      execution.State   `json:"status" jsonschema:"how it is now"`
	Progress    ownProgress       `json:"progress" jsonschema:"{progress, total, message}: steps done, of so many, and where it is"`
	Output      *workflow.Outputs `json:"output" jsonschema:"all outputs, once completed, else null"`
	Error       *string           `json:"error" jsonschema:"why it was cancelled, else null"`
}

type ownProgress struct {
	Progress int    `json:"progress"`
	Total    int    `json:"total"`
	Message  string `json:"message"`
}

// A startedReply is what it says of one that it has just started.
type startedReply struct {
	ExecutionID string          `json:"execution_id" jsonschema:"the session's session_id"`
	Status      execution.State `json:"status" jsonschema:"running"`
}

// executionWords are those of executionReply.
var executionWords = words{enums: map[string][]any{"status": {string(execution.Running), string(execution.Completed), string(execution.Cancelled)}}}

func executionSchema() *jsonschema.Schema {
	s := outputSchemaIn[executionReply](executionWords)
	openProperty(s, "output", "null", "object")
	openProperty(s, "progress", "object")
	return s
}

func workflowID() property {
	return required("workflow_id", maxWorkflowID, "The workflow's id, as `job/workflow`.")
}

func executionID() property {
	return required("execution_id", maxName, "Its execution_id.")
}

// maxWorkflowID is how long the id of a workflow may be, in characters.
const maxWorkflowID = 1000

// addOwnExecute registers workflows-execute-tool. The execution is a session of
// the caller's connection that is nested in no other: several callers of one
// server may order theirs over the same connection.
func addOwnExecute(s *Server) {
	addTool(s, tool[executeArgs, *startedReply]{
		name: "workflows-execute-tool", title: "Run a workflow as a source",
		description: "For servers that run this project's workflows; agents use start_workflow. Starts a session and answers at once; " +
			"finished_step with its execution_id as session_id moves it on, from any connection.",
		hints: hints{},
		input: inputSchema(workflowID(),
			property{"input", true, &jsonschema.Schema{Type: "object", Description: "What its inputSchema asks for: {goal, instance_id?}."}}),
		free:   []string{"input"},
		output: outputSchemaIn[startedReply](words{}),
		call: func(ctx context.Context, c *connection, args executeArgs) (*startedReply, error) {
			return s.execute(ctx, c, args)
		},
		outcome: func(r *startedReply) string { return string(r.Status) },
	})
}

func (s *Server) execute(ctx context.Context, c *connection, args executeArgs) (*startedReply, error) {
	jobName, flow, _ := splitOwnID(args.WorkflowID)
	j := s.jobs(ctx).Job(jobName)
	if j == nil || j.Name != jobName || j.Workflow(flow) == nil {
		return nil, session.Wrong("unknown_workflow", "There is no workflow with the id '%s'. workflows-list-tool lists those there are.", clip(args.WorkflowID, maxName)).
			With("argument", "workflow_id").With("value", clip(args.WorkflowID, maxName))
	}
	var in ownInput
	if fault := newArguments("Workflow '"+args.WorkflowID+"'", inputSchema(ownProperties()...)).decode(args.Input, &in); fault != nil {
		return nil, fault
	}
	r, err := c.agent.Start(ctx, workflow.StartArgs{
		Goal: in.Goal, JobName: jobName, WorkflowName: flow, InstanceID: in.InstanceID, Root: true,
	})
	if err != nil {
		return nil, err
	}
	return &startedReply{r.BeginStep.SessionID, execution.Running}, nil
}

// addOwnStatus registers workflows-status-tool.
func addOwnStatus(s *Server) {
	addTool(s, tool[executionArgs, *executionReply]{
		name: "workflows-status-tool", title: "Status as a source",
		description: "Tells how far an execution that workflows-execute-tool started is, also after it ended; it moves nothing.",
		hints:       hints{readOnly: true, idempotent: true},
		input:       inputSchema(workflowID(), executionID()),
		output:      executionSchema(),
		session:     func(a *executionArgs) *string { return &a.ExecutionID },
		call: func(ctx context.Context, c *connection, args executionArgs) (*executionReply, error) {
			return s.executionOf(ctx, c, args)
		},
		outcome: func(r *executionReply) string { return string(r.Status) },
	})
}

// addOwnCancel registers workflows-cancel-tool.
func addOwnCancel(s *Server) {
	addTool(s, tool[executionArgs, *executionReply]{
		name: "workflows-cancel-tool", title: "Cancel as a source",
		description: "Aborts an execution that workflows-execute-tool started, and tells how it then is. One that has ended stays as it is.",
		hints:       hints{destructive: true, idempotent: true},
		input:       inputSchema(workflowID(), executionID()),
		output:      executionSchema(),
		session:     func(a *executionArgs) *string { return &a.ExecutionID },
		call: func(ctx context.Context, c *connection, args executionArgs) (*executionReply, error) {
			now, err := s.executionOf(ctx, c, args)
			if err != nil || now.Status != execution.Running {
				return now, err
			}
			_, aborted := c.agent.Abort(ctx, workflow.AbortArgs{
				Explanation: "cancelled through workflows-cancel-tool by the system that ordered it", SessionID: &args.ExecutionID,
			})
			// It may have ended in between, which is as good.
			if now, err = s.executionOf(ctx, c, args); aborted != nil && (err != nil || now.Status == execution.Running) {
				return nil, aborted
			}
			return now, err
		},
		outcome: func(r *executionReply) string { return string(r.Status) },
	})
}

// executionOf tells how an execution is, to callers of the identity that ordered
// it.
func (s *Server) executionOf(ctx context.Context, c *connection, args executionArgs) (*executionReply, error) {
	x, err := s.execution(ctx, c.identity, args.ExecutionID)
	if err != nil {
		return nil, err
	}
	if of := x.JobName + "/" + x.WorkflowName; of != args.WorkflowID {
		return nil, session.Wrong("wrong_workflow", "Execution '%s' is of workflow '%s', not of '%s'. Pass that workflow_id, or the execution_id that is meant.",
			x.SessionID, of, clip(args.WorkflowID, maxName)).With("workflow_id", of)
	}
	r := &executionReply{ExecutionID: x.SessionID, Progress: ownProgress{x.Done, x.Total, "at step '" + x.StepID + "'"}}
	switch x.Status {
	case workflow.Completed:
		r.Status, r.Output, r.Progress.Message = execution.Completed, &x.Outputs, "complete"
	case workflow.Aborted:
		r.Status, r.Error = execution.Cancelled, x.AbortReason
	default:
		r.Status = execution.Running
	}
	return r, nil
}
