package remote

import (
	"encoding/json"
	"reflect"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog"
	"deepwork/catalog/jsontext"
	"deepwork/session/workflow/machine"
	"deepwork/transport/tool"
	"deepwork/transport/tools/source"
	"deepwork/transport/tools/workflows"
)

// A jobTool is a workflow of this project that is offered as its own tool (expose_jobs). It is
// immutable.
type jobTool struct {
	source.Workflow
	listed *mcp.Tool
}

// startJSON is the output schema of start_workflow.
var startJSON = sync.OnceValue(func() json.RawMessage { return tool.MustJSON(workflows.OutputSchema[machine.StartReply]()) })

// jobTools makes the tools of all workflows of the exposed jobs; nil exposes none. Unchanged tools
// are taken from old.
func jobTools(exposed *catalog.Snapshot, old map[string]*jobTool) map[string]*jobTool {
	if exposed == nil {
		return nil
	}
	all := map[string]*jobTool{}
	for _, w := range source.Workflows(exposed) {
		title := tool.OneLine(w.Workflow.Summary, 200)
		t := &jobTool{w, &mcp.Tool{
			Meta: mcp.Meta{WorkflowMeta: listedMeta{ID: w.ID, Category: w.Category, Version: w.Version, ExecutionType: w.ExecutionType, Metadata: w.Metadata}},
			Name: w.Name, Title: title,
			Description: jsontext.Clip("Starts a workflow of this project: "+w.Description+"\n\n"+
				"Returns its first step at once, as start_workflow does. Do what begin_step says, and report it with finished_step and the session_id given there.", descriptionChars),
			InputSchema: w.InputSchema, OutputSchema: startJSON(),
			Annotations: &mcp.ToolAnnotations{Title: title, DestructiveHint: new(false), OpenWorldHint: new(false)},
		}}
		if was := old[w.Name]; was != nil && reflect.DeepEqual(was.listed, t.listed) {
			t.listed = was.listed
		}
		all[w.Name] = t
	}
	return all
}
