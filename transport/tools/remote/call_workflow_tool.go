package remote

import (
	"context"
	"encoding/json"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/transport/tool"
)

type callArgs struct {
	Name      string          `json:"name" arg:"Name from list_workflow_tools"`
	Arguments json.RawMessage `json:"arguments" arg:"What its input_schema allows" free:"true"`
}

// addCallWorkflowTool registers call_workflow_tool, for clients that request the list of tools only
// once.
func addCallWorkflowTool(s *tool.Set, r *Tools) {
	tool.Add(s, tool.Tool{
		Name: "call_workflow_tool", Title: "Call a workflow tool",
		Description: "Calls a workflow tool that is missing from your list of tools.",
		Hints:       tool.Hints{Destructive: true, Open: true},
		Output: &jsonschema.Schema{Type: "object",
			Description: "The reply is that of workflow_status; for a workflow of this project, that of start_workflow."},
		Recheck: tool.SeeExecution,
	}, func(ctx context.Context, c *tool.Caller, args callArgs) (*any, error) {
		do, err := r.target(ctx, args.Name)
		if err == nil && do == nil {
			err = r.noTool(ctx, args.Name)
		}
		if err != nil {
			return nil, err
		}
		reply, err := do(ctx, c, args.Arguments)
		return &reply, err
	})
}
