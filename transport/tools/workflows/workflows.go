// Package workflows has the tools of the set "workflows", by which agents go through the workflows
// of a project.
package workflows

import (
	"cmp"
	"context"
	"reflect"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/session/replies"
	"deepwork/transport/tool"
)

// call executes a call with a method. A list without entries is [] in the reply, unless its field may
// be absent.
func call[A, R any](
	method func(tool.WorkflowCaller, context.Context, A) (*R, error),
) func(context.Context, *tool.Caller, A) (*R, error) {
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
	"status": {string(replies.NeedsWork), string(replies.NextStep),
		string(replies.WorkflowComplete)},
	"state": {"started", "completed"},
	"branch_status": {string(replies.BranchNamed), string(replies.BranchOutsideGit),
		string(replies.BranchCreated), string(replies.BranchCheckedOut)},
	"type": {"file", "files", "string", "file_path"},
	"syntax_for_finished_step_tool": {"filepath", "array of filepaths for all individual files",
		"filepath or list of filepaths", "text, up to 100,000 characters"},
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
	s := tool.OutputSchema[replies.Start](words)
	for _, p := range stepsIn(s) {
		if s.Defs == nil {
			def := p.CloneSchemas()
			def.Type, def.Types = "", []string{"null", "object"}
			def.Description = "all that is needed to do a step; an entry of concurrent_steps lacks what begin_step " +
				"says for it: session_id, branch_name, branch_status, project_root, job_dir, common_job_info"
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
	s := OutputSchema[replies.Workflows]()
	s.Properties["jobs"] = listSchema[replies.JobInfo]("the jobs, in the order of their folders")
	s.Properties["errors"] = listSchema[replies.JobLoadError](
		"the jobs whose files have errors, one entry per job; one that is in jobs too is served as it last loaded")
	return s
}

func listSchema[T any](description string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "array", Description: description, Items: OutputSchema[T]()}
}

// seeStep is the Recheck of these tools.
const seeStep = "call get_step, with your session_id if you have one: what it does not show was not recorded"

// A row registers a tool.
type row func(*tool.Set)

// The tools: the four of seed 000 (001.2 to 001.6), and two for agents that lost their position or must
// go back.
var (
	getWorkflows = method(tool.Tool{
		Name: "get_workflows", Title: "List workflows", Hints: tool.Hints{ReadOnly: true, Idempotent: true},
		Description: "Lists this project's jobs and workflows; start one with start_workflow. Call it first, and " +
			"again after editing a job.yml. To go on with one of resumable, call get_step with its session_id.",
	}, func(w tool.WorkflowCaller, ctx context.Context, _ tool.NoArgs) (*replies.Workflows, error) {
		return w.GetWorkflows(ctx)
	})
	startWorkflow = method(tool.Tool{
		Name: "start_workflow", Title: "Start a workflow", Session: "parent_session_id", Recheck: seeStep,
		Description: "Starts a workflow and returns its first step, begin_step. Follow its step_instructions, write " +
			"step_expected_outputs to files, then call finished_step. Do concurrent_steps, if any, at the same time, " +
			"as concurrent_group says. Keep session_id: it resumes the session after a restart. " +
			"Within a step, this nests a workflow; the outer one resumes when it ends.",
	}, tool.WorkflowCaller.Start)
	finishedStep = method(tool.Tool{ // without step_id or request_id a second call may finish the next step
		Name: "finished_step", Title: "Finish a step", Session: "session_id", Recheck: seeStep,
		Description: "Reports a step as done, once its required outputs are written; they are checked and reviewed. " +
			"Returns status:\n- needs_work: do what feedback says, then call again.\n" +
			"- next_step: do begin_step and concurrent_steps, and report each. If begin_step is null, finish " +
			"pending_concurrent_steps.\n- workflow_complete: tell the user summary and all_outputs, and do " +
			"post_workflow_instructions, if any. If there is a resumed_workflow, call get_step.\n" +
			"If a reply is lost, repeat the call: nothing is done twice.",
		Outcome: func(r any) string { return string(r.(*replies.Finish).Status) },
	}, tool.WorkflowCaller.Finish)
	abortWorkflow = method(tool.Tool{
		Name:    "abort_workflow",
		Title:   "Abort a workflow",
		Session: "session_id",
		Recheck: seeStep,
		Hints:   tool.Hints{Destructive: true},
		Description: "Ends a workflow for good; files stay. To pause, just stop instead. If resumed_workflow is not " +
			"null, call get_step.",
	}, tool.WorkflowCaller.Abort)
	getStep = method(tool.Tool{
		Name:    "get_step",
		Title:   "Show the current step",
		Session: "session_id",
		Hints:   tool.Hints{ReadOnly: true, Idempotent: true},
		Description: "Returns the current step again, with its instructions as they are now, the files of completed " +
			"steps and what is pending; changes nothing. Call it after your context was compacted or a nested " +
			"workflow ended, or to resume a session.",
		Smaller: "read the instructions in the job's folder, in the instructions_file of the step.",
	}, tool.WorkflowCaller.Step)
	goToStep = method(tool.Tool{
		Name:    "go_to_step",
		Title:   "Go back to a step",
		Session: "session_id",
		Recheck: seeStep,
		Hints:   tool.Hints{Destructive: true},
		Description: "Goes back to an earlier step or restarts the current one, clearing its progress and that " +
			"of all later steps; files stay. Then do begin_step.",
	}, tool.WorkflowCaller.GoTo)
)

// Add registers the set.
func Add(s *tool.Set) {
	for _, add := range []row{getWorkflows, startWorkflow, finishedStep, abortWorkflow, getStep, goToStep} {
		add(s)
	}
}

// AddForSteps registers the tools of an agent that does one step of a run.
func AddForSteps(s *tool.Set) {
	for _, add := range []row{getStep, finishedStep, startWorkflow} {
		add(s)
	}
}

// method returns the row of a tool that a method carries out.
func method[A, R any](t tool.Tool, do func(tool.WorkflowCaller, context.Context, A) (*R, error)) row {
	return func(s *tool.Set) {
		t := t // several servers may be opened at once
		switch t.Name {
		case "get_workflows":
			t.Output = workflowsSchema()
		case "start_workflow":
			t.Output = startSchema()
		default:
			t.Output = OutputSchema[R]()
		}

		tool.Add(s, t, call(do))
	}
}
