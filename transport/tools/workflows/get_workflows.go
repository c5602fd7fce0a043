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
		Description: "Lists this project's jobs and workflows; start one with start_workflow. Call it first, and again after editing a job.yml: it shows the files as they are now. To go on with one of resumable, call get_step with its session_id.",
		Hints:       tool.Hints{ReadOnly: true, Idempotent: true},
		Output:      workflowsSchema(),
	})
}

// workflowsSchema is the schema of get_workflows: its lists are already encoded when they reach the
// transport, so their types are given here.
func workflowsSchema() *jsonschema.Schema {
	s := OutputSchema[machine.WorkflowsReply]()
	s.Properties["jobs"] = listSchema[machine.JobInfo]("the jobs, in the order of their folders")
	s.Properties["errors"] = listSchema[machine.JobLoadError](
		"the jobs whose files have faults, one entry per job; one that is in jobs too is served as it last loaded")
	return s
}

func listSchema[T any](description string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "array", Description: description, Items: OutputSchema[T]()}
}
