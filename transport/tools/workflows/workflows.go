// Package workflows has the tools of the set "workflows", by which agents go through the workflows
// of a project.
package workflows

import (
	"cmp"
	"context"
	"reflect"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session/workflow/machine"
	"deepwork/transport/tool"
)

// call executes a call with a method. A list without entries is [] in the reply, unless its field may
// be absent.
func call[A, R any](method func(tool.WorkflowCaller, context.Context, A) (*R, error)) func(context.Context, *tool.Caller, A) (*R, error) {
	return func(ctx context.Context, c *tool.Caller, args A) (*R, error) {
		r, err := method(c.Workflows, ctx, args)
		if err != nil {
			return nil, err
		}
		reply := *r // the engine may give one reply to several callers
		fields := reflect.ValueOf(&reply).Elem()
		for i := range fields.NumField() {
			tag := fields.Type().Field(i).Tag.Get("json")
			if f := fields.Field(i); f.Kind() == reflect.Slice && f.IsNil() && !strings.HasSuffix(tag, ",omitzero") {
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
	Enums: map[string][]any{
		"status":                        {string(machine.NeedsWork), string(machine.NextStep), string(machine.WorkflowComplete)},
		"state":                         {"started", "completed"},
		"branch_status":                 {string(machine.BranchNamed), string(machine.BranchOutsideGit), string(machine.BranchCreated), string(machine.BranchCheckedOut)},
		"type":                          {"file", "files"},
		"syntax_for_finished_step_tool": {"filepath", "array of filepaths for all individual files"},
	},
}

// OutputSchema returns the schema of a reply of these tools. The fields of a step, the largest part,
// are in the schema of start_workflow alone, since clients read tools/list at every start.
func OutputSchema[R any]() *jsonschema.Schema {
	s := tool.OutputSchema[R](words)
	for _, p := range stepsIn(s) {
		p.Description = cmp.Or(p.Description, "a step") + "; its fields are in start_workflow's output schema"
		p.Properties, p.PropertyOrder, p.Required = nil, nil, nil
	}
	return s
}

// startSchema is the schema of start_workflow's reply. It contains the schema of a step once, for two
// fields. They keep their type and description beside the reference, for clients that do not follow
// it; the definition allows null, for those that follow the reference alone.
func startSchema() *jsonschema.Schema {
	s := tool.OutputSchema[machine.StartReply](words)
	for _, p := range stepsIn(s) {
		if s.Defs == nil {
			def := p.CloneSchemas()
			def.Type, def.Types = "", []string{"null", "object"}
			def.Description = "all that is needed to do a step; an entry of concurrent_steps lacks what begin_step says for it: session_id, branch_name, branch_status, job_dir, common_job_info"
			s.Defs = map[string]*jsonschema.Schema{"step": def}
		}
		p.Ref = "#/$defs/step"
		p.Properties, p.PropertyOrder, p.Required = nil, nil, nil
	}
	return s
}

// stepsIn returns the schemas of the steps that a reply describes.
func stepsIn(s *jsonschema.Schema) (steps []*jsonschema.Schema) {
	if p := s.Properties["begin_step"]; p != nil {
		steps = append(steps, p)
	}
	if p := s.Properties["concurrent_steps"]; p != nil {
		steps = append(steps, p.Items)
	}
	return steps
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
