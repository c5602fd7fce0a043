package transport

import (
	"context"
	"encoding/json"

	"github.com/google/jsonschema-go/jsonschema"
)

type callArgs struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// A calledReply is what the tool that was called replied.
type calledReply struct {
	value   any
	outcome string
}

// MarshalJSON gives the reply as it is.
func (r *calledReply) MarshalJSON() ([]byte, error) { return encode(r.value) }

// addCallWorkflowTool registers call_workflow_tool, for clients that ask for the
// list of tools once and never again.
func addCallWorkflowTool(s *Server) {
	addTool(s, tool[callArgs, *calledReply]{
		name: "call_workflow_tool", title: "Call a workflow tool",
		description: "Calls a workflow tool by name, as a call of the tool itself would. For clients whose list of tools does not follow changes: " +
			"list_workflow_tools gives names and input schemas. If the call is cut off, ask workflow_status.",
		hints: hints{destructive: true, open: true},
		input: inputSchema(
			required("name", maxName, "The tool's name, as list_workflow_tools gives it."),
			property{"arguments", false, &jsonschema.Schema{Types: []string{"null", "object"},
				Description: "The tool's arguments, an object that its input_schema allows; none are {}."}},
		),
		free: []string{"arguments"},
		output: &jsonschema.Schema{Type: "object",
			Description: "The run, as workflow_status tells it; of a workflow of this project what start_workflow returns."},
		call: func(ctx context.Context, c *connection, args callArgs) (*calledReply, error) {
			do, err := s.remote.target(ctx, args.Name)
			if err != nil {
				return nil, err
			}
			if do == nil {
				return nil, s.remote.noTool(ctx, args.Name)
			}
			reply, outcome, err := do(ctx, c, args.Arguments)
			if err != nil {
				return nil, err
			}
			return &calledReply{reply, outcome}, nil
		},
		outcome: func(r *calledReply) string { return r.outcome },
	})
}
