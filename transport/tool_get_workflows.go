package transport

import (
	"context"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session/workflow"
)

// noArgs are the arguments of a tool that has none.
type noArgs struct{}

// addGetWorkflows registers get_workflows (seed 000, 001.2).
func addGetWorkflows(s *Server) {
	addTool(s, tool[noArgs, *workflow.WorkflowsReply]{
		name: "get_workflows", title: "List workflows",
		description: "Lists all jobs of this project and their workflows. Call it first, to discover what there is, and again after a job.yml was " +
			"written or changed: the reply is always as the files are now.\n\n" +
			"Returns jobs (each with name, summary, description and its workflows), errors (jobs whose job.yml has faults, each fault with line " +
			"and column, so that you can correct it) and stack (the workflows in progress on this connection).\n\n" +
			"Then call start_workflow with the job_name and workflow_name that fit what the user wants. If stack is not empty, a workflow is in " +
			"progress already: get_step tells where it stands.",
		hints:  hints{readOnly: true, idempotent: true},
		input:  inputSchema(),
		output: workflowsSchema(),
		call: func(ctx context.Context, c *connection, _ noArgs) (*workflow.WorkflowsReply, error) {
			r, err := c.agent.GetWorkflows(ctx)
			if err != nil {
				return nil, err
			}
			reply := *r // the engine may give one reply to several callers
			reply.Stack = list(reply.Stack)
			return &reply, nil
		},
	})
}

// workflowsSchema is the schema of get_workflows: its lists reach the transport
// encoded already, so their types are told here.
func workflowsSchema() *jsonschema.Schema {
	s := outputSchema[workflow.WorkflowsReply]()
	s.Properties["jobs"] = listSchema[workflow.JobInfo]("the jobs that can be started, in the order of their folders", "one job")
	s.Properties["errors"] = listSchema[workflow.JobLoadError](
		"the jobs whose files do not load now, one entry a job; of one that is in jobs too, the last good definition is served",
		"one job with faults")
	return s
}

func listSchema[T any](description, item string) *jsonschema.Schema {
	items := outputSchema[T]()
	items.Description = item
	return &jsonschema.Schema{Type: "array", Description: description, Items: items}
}

// list makes a list that is never null out of one that may be nil.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}
