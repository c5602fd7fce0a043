package workflows

import (
	"context"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session/workflow/machine"
	"deepwork/transport/tool"
)

// addGetWorkflows registers get_workflows (seed 000, 001.2).
func addGetWorkflows(s *tool.Set) {
	add(s, func(w tool.WorkflowCaller, ctx context.Context, _ tool.NoArgs) (*machine.WorkflowsReply, error) {
		return w.GetWorkflows(ctx)
	}, tool.Tool{
		Name: "get_workflows", Title: "List workflows",
		Description: "Lists all jobs of this project and their workflows. Call it first, to discover what there is, and again after a job.yml was " +
			"written or changed: the reply is always as the files are now.\n\n" +
			"Returns jobs (each with name, summary, description and its workflows), errors (jobs whose job.yml has faults, each fault with line " +
			"and column, so that you can correct it), stack (the workflows in progress on this connection) and resumable (your sessions of before, which go on " +
			"after get_step with their session_id).\n\n" +
			"Then call start_workflow with the job_name and workflow_name that fit what the user wants. If stack is not empty, a workflow is in " +
			"progress already: get_step tells where it stands.",
		Hints:  tool.Hints{ReadOnly: true, Idempotent: true},
		Output: workflowsSchema(),
	})
}

// workflowsSchema is the schema of get_workflows: its lists are already encoded when they reach the
// transport, so their types are given here.
func workflowsSchema() *jsonschema.Schema {
	s := OutputSchema[machine.WorkflowsReply]()
	s.Properties["jobs"] = listSchema[machine.JobInfo]("the jobs that can be started, in the order of their folders", "one job")
	s.Properties["errors"] = listSchema[machine.JobLoadError](
		"the jobs whose files do not load now, one entry a job; of one that is in jobs too, the last good definition is served",
		"one job with faults")
	return s
}

func listSchema[T any](description, item string) *jsonschema.Schema {
	items := OutputSchema[T]()
	items.Description = item
	return &jsonschema.Schema{Type: "array", Description: description, Items: items}
}
