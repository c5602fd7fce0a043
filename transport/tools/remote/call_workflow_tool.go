package remote

import (
	"context"
	"encoding/json"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/transport/tool"
)

type callArgs struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// addCallWorkflowTool registers call_workflow_tool, for clients that request the list of tools only
// once.
func addCallWorkflowTool(s *tool.Set, r *Tools) {
	tool.Add(s, tool.Tool{
		Name: "call_workflow_tool", Title: "Call a workflow tool",
		Description: "Calls a workflow tool by name, as a call of the tool itself would. For clients whose list of tools does not follow changes: " +
			"list_workflow_tools gives names and input schemas. If the call is cut off, ask workflow_status.",
		Hints: tool.Hints{Destructive: true, Open: true},
		Input: tool.InputSchema(
			tool.Required("name", tool.MaxName, "The tool's name, as list_workflow_tools gives it."),
			tool.Property{Name: "arguments", Schema: &jsonschema.Schema{Types: []string{"null", "object"},
				Description: "The tool's arguments, an object that its input_schema allows; none are {}."}},
		),
		Free: []string{"arguments"},
		Output: &jsonschema.Schema{Type: "object",
			Description: "The run, as workflow_status tells it; of a workflow of this project what start_workflow returns."},
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
