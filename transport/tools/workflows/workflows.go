// Package workflows has the tools of the set "workflows", by which agents go through the workflows
// of a project.
package workflows

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session/workflow/machine"
	"deepwork/transport/tool"
)

// Add registers the set: the four tools of seed 000, and two for agents that lost their position or
// must go back.
func Add(s *tool.Set) {
	addGetWorkflows(s)
	addStartWorkflow(s)
	addFinishedStep(s)
	addAbortWorkflow(s)
	addGetStep(s)
	addGoToStep(s)
}

// seeStep is the Recheck of these tools.
const seeStep = "call get_step, with your session_id if you have one, to see where the workflow stands: what it does not show was not recorded"

// add registers the tool of a method.
func add[A, R any](s *tool.Set, method func(tool.WorkflowCaller, context.Context, A) (*R, error), t tool.Tool) {
	if t.Output == nil {
		t.Output = OutputSchema[R]()
	}
	tool.Add(s, t, call(method))
}

// call executes a call with a method. A list that may not be null is [] in the reply.
func call[A, R any](method func(tool.WorkflowCaller, context.Context, A) (*R, error)) func(context.Context, *tool.Caller, A) (*R, error) {
	return func(ctx context.Context, c *tool.Caller, args A) (*R, error) {
		r, err := method(c.Workflows, ctx, args)
		if err != nil {
			return nil, err
		}
		reply := *r // the engine may give one reply to several callers
		fields := reflect.ValueOf(&reply).Elem()
		for i := range fields.NumField() {
			name, _, _ := strings.Cut(fields.Type().Field(i).Tag.Get("json"), ",")
			if f := fields.Field(i); f.Kind() == reflect.Slice && f.IsNil() && !slices.Contains(words.Nullable, name) {
				f.Set(reflect.MakeSlice(f.Type(), 0, 0))
			}
		}
		return &reply, nil
	}
}

// Start starts a workflow, as start_workflow does.
var Start = call(tool.WorkflowCaller.Start)

// words describe the fields of these replies.
var words = tool.Words{
	Nullable: []string{"concurrent_steps", "failed_reviews", "failed_criteria", "pending_concurrent_steps"},
	Enums: map[string][]any{
		"status":                        {string(machine.NeedsWork), string(machine.NextStep), string(machine.WorkflowComplete)},
		"state":                         {"started", "completed"},
		"type":                          {"file", "files"},
		"syntax_for_finished_step_tool": {"filepath", "array of filepaths for all individual files"},
	},
}

// OutputSchema returns the schema of a reply of these tools. It contains the schema of a step, the
// largest part, once, even if the reply describes steps in two fields: clients read tools/list at
// every start. The fields keep their type and description beside the reference, for clients that do
// not follow it; the definition allows null, for those that follow the reference alone.
func OutputSchema[R any]() *jsonschema.Schema {
	const name = "step"
	s := tool.OutputSchema[R](words)
	for _, field := range []string{"begin_step", "concurrent_steps"} {
		p := s.Properties[field]
		if p == nil {
			continue
		}
		if p.Items != nil {
			p = p.Items
		}
		if s.Defs == nil {
			def := p.CloneSchemas()
			def.Type, def.Types, def.Description = "", []string{"null", "object"}, "all that is needed to do a step"
			s.Defs = map[string]*jsonschema.Schema{name: def}
		}
		p.Ref = "#/$defs/" + name
		p.Properties, p.PropertyOrder, p.Required, p.AdditionalProperties = nil, nil, nil, nil
	}
	return s
}
