package transport

import (
	"encoding/json"
	"slices"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session/execution"
)

// addRemoteTools registers the set "remote": what there is to ask of other
// systems' workflows (seed 003), and, where this project's own can be finished,
// the tools by which another system finds and runs those.
func (s *Server) addRemoteTools() {
	addListWorkflowTools(s)
	addCallWorkflowTool(s)
	addWorkflowStatus(s)
	addRefreshWorkflowTools(s)
	if s.tools["finished_step"] != nil {
		addOwnList(s)
		addOwnExecute(s)
		addOwnStatus(s)
		addOwnCancel(s)
	}
}

// anything is the type of a value that may be any JSON.
var anything = []string{"null", "boolean", "object", "array", "number", "string"}

// runSchema is the schema of a run: what calls of workflows and workflow_status
// answer with (seed 003, 2.3 and 8.2).
func runSchema() *jsonschema.Schema {
	s := outputSchemaIn[execution.Execution](words{enums: map[string][]any{"state": {
		string(execution.Running), string(execution.Completed), string(execution.Failed),
		string(execution.Cancelled), string(execution.TimedOut), string(execution.Unknown),
	}}})
	openProperty(s, "result", anything...)
	return s
}

// openProperty says of a property that is JSON as it came which types it may have.
func openProperty(s *jsonschema.Schema, name string, types ...string) {
	s.Properties[name] = &jsonschema.Schema{Types: slices.Clone(types), Description: s.Properties[name].Description}
}

// runSchemaJSON is runSchema as all the tools of a listing share it.
var runSchemaJSON = sync.OnceValue(func() json.RawMessage { return mustJSON(runSchema()) })
