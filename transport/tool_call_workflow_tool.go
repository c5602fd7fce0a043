package transport

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session"
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
			do := s.remote.target(ctx, args.Name)
			if do == nil {
				return nil, s.remote.noTool(args.Name)
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

// noTool refuses a name that is no workflow's.
func (r *remotes) noTool(name string) error {
	const shown = 50
	if r.server.tools[name] != nil {
		return session.Wrong("not_a_workflow_tool", "'%s' is a tool of this server and no workflow: call it directly.", name).With("argument", "name").With("value", name)
	}
	l := r.listing.Load()
	if len(l.tools) == 0 {
		return session.NotNow("unknown_workflow_tool", "There is no workflow tool '%s', and no other: no source of workflows is connected, or none offers any. "+
			"list_workflow_tools tells how the sources are doing; refresh_workflow_tools asks them again; new ones are named under workflow_tools.sources in .deepwork/config.yml.", clip(name, maxName)).
			With("argument", "name").With("value", clip(name, maxName))
	}
	names := make([]string, 0, shown)
	for _, t := range l.tools[:min(shown, len(l.tools))] {
		names = append(names, t.Name)
	}
	return session.Wrong("unknown_workflow_tool", "There is no workflow tool '%s'. There are %d, among them: %s. list_workflow_tools lists all; call again with one of its names.",
		clip(name, maxName), len(l.tools), strings.Join(names, ", ")).With("argument", "name").With("value", clip(name, maxName)).With("available", names)
}
