// Package source has the tools by which other servers find and run this project's workflows (seed
// 003): to them this server is a source of workflows. It offers this project's own workflows only:
// two servers that are each other's sources would otherwise exchange the same ones forever.
package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	sources "deepwork/catalog/source"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/outputs"
	"deepwork/session/remote"
	"deepwork/session/replies"
	"deepwork/session/workflow"
	"deepwork/transport/tool"
	"deepwork/transport/tools/workflows"
)

// Options are the parameters of Add.
type Options struct {
	Jobs     func(context.Context) *catalog.Snapshot
	Progress func(ctx context.Context, identity, sessionID string) (*workflow.Progress, error)
	Offered  func(context.Context) bool // whether the tools are offered; a change of the config may change it
}

// withheld is the error of a call while the tools are not offered.
func (o Options) withheld(ctx context.Context) *session.Error {
	if o.Offered(ctx) {
		return nil
	}
	return session.Wrong(codes.NotOffered,
		"This server does not offer its workflows to other servers. To offer them, start it with --toolsets "+
			"%s,source, or set workflow_tools.expose_jobs: true in .deepwork/config.yml. Agents of this project use "+
			"get_workflows and start_workflow.",
		strings.Join(config.DefaultToolsets, ","))
}

// add registers one of the tools.
func add[A, R any](s *tool.Set, o Options, t tool.Tool, call func(context.Context, *tool.Caller, A) (*R, error)) {
	t.Withheld = o.withheld
	tool.Add(s, t, call)
}

// Add registers the tools. While they are not offered, they are not listed, and calls are refused. An execution
// is a root session that is on no stack until an agent names it: several callers of one server may start theirs
// over the same connection.
func Add(s *tool.Set, o Options) {
	add(s, o, tool.Tool{
		Name: "workflows-list-tool", Title: "Workflows as a source",
		Description: "For other servers, which make tools of this project's workflows; agents call get_workflows.",
		Hints:       tool.Hints{ReadOnly: true, Idempotent: true},
		Output:      listSchema(),
	}, func(ctx context.Context, _ *tool.Caller, args listArgs) (*listReply, error) {
		return list(Workflows(o.Jobs(ctx)), args.Cursor)
	})

	add(s, o, tool.Tool{
		Name: "workflows-execute-tool", Title: "Run a workflow as a source",
		Description: "For other servers; agents call start_workflow. Starts a workflow and returns at once. Its " +
			"session_id is the execution_id: finished_step with it finishes the steps, from any connection.",
		Outcome: func(r any) string { return string(r.(*StartedReply).Status) },
		Recheck: "call get_step: if no workflow is in progress on this connection, it lists those that were started",
	}, o.execute)

	add(s, o, tool.Tool{
		Name: "workflows-status-tool", Title: "Status as a source",
		Description: "For other servers: returns state and progress of an execution, also after its end.",
		Hints:       tool.Hints{ReadOnly: true, Idempotent: true},
		Output:      executionSchema(),
		Session:     "execution_id",
		Polled:      true,
		Outcome:     statusOf,
	}, o.executionOf)

	add(s, o, tool.Tool{
		Name: "workflows-cancel-tool", Title: "Cancel as a source",
		Description: "For other servers: aborts an execution and returns its state. One that has ended stays as it is.",
		Hints:       tool.Hints{Destructive: true, Idempotent: true},
		Output:      executionSchema(),
		Session:     "execution_id",
		Outcome:     statusOf,
		Recheck:     "call workflows-status-tool with the execution_id to see whether it has ended",
	}, o.cancel)
}

// A Workflow is a workflow of this project in the schema of seed 003, 6.1.
type Workflow struct {
	ID            string          `json:"id" jsonschema:"workflow_id for workflows-execute-tool, job/workflow"`
	Name          string          `json:"name" jsonschema:"name for a tool"`
	Description   string          `json:"description" jsonschema:"what it does"`
	Category      string          `json:"category" jsonschema:"workflow"`
	Version       string          `json:"version" jsonschema:"version of the job, three numbers"`
	InputSchema   json.RawMessage `json:"inputSchema" jsonschema:"JSON Schema of input for workflows-execute-tool"`
	ExecutionType string          `json:"executionType" jsonschema:"async"`
	Metadata      json.RawMessage `json:"metadata" jsonschema:"job, workflow, number of steps, and performer: agent"`

	JobName  string        `json:"-"`
	Workflow *job.Workflow `json:"-"`
}

// Workflows returns the workflows that can be started, in the order of folders and files, without
// those of bundled jobs, which every deepwork has.
func Workflows(jobs *catalog.Snapshot) (all []Workflow) {
	for _, j := range jobs.Jobs {
		if j.Bundled {
			continue
		}

		for i := range j.Workflows {
			if w := &j.Workflows[i]; len(w.Entries) > 0 {
				all = append(all, newWorkflow(j, w))
			}
		}
	}
	return all
}

func newWorkflow(j *job.Job, w *job.Workflow) Workflow {
	steps := 0
	for _, e := range w.Entries {
		steps += len(e)
	}
	return Workflow{
		ID:            j.Name + "/" + w.Name,
		Name:          toolName(j.Name + "-" + w.Name),
		Description:   fmt.Sprintf("%s (job %s: %s)", w.Summary, j.Name, j.Summary),
		Category:      "workflow",
		Version:       j.Version,
		InputSchema:   tool.MustJSON(tool.Input[inputArgs](tool.InputArguments(w, taken...)...)),
		ExecutionType: "async",
		Metadata: tool.MustJSON(struct {
			Job      string `json:"job"`
			Workflow string `json:"workflow"`
			Steps    int    `json:"steps"`

			Performer sources.Performer `json:"performer"`
		}{j.Name, w.Name, steps, sources.ByAgent}),
		JobName:  j.Name,
		Workflow: w,
	}
}

// toolName bounds a name. Neither part of it has a hyphen, so no two workflows share one.
func toolName(name string) string {
	const most = 64
	if len(name) > most {
		sum := sha256.Sum256([]byte(name))
		name = name[:most-9] + "_" + hex.EncodeToString(sum[:])[:8]
	}
	return name
}

// inputArgs is the input of a workflow, beside its own inputs.
type inputArgs struct {
	Goal       string  `json:"goal" arg:"What the user wants to achieve, at most 100,000 characters" max:"100000"`
	InstanceID *string `json:"instance_id"`
}

// Tags implements fieldtag.Tagger.
func (inputArgs) Tags() map[string]string {
	return map[string]string{
		"InstanceID": `arg:"Short name for the branch, such as acme, at most 200 characters. Default: the date"`,
	}
}

// taken are the names that the inputs of a workflow do not get.
var taken = []string{"goal", "instance_id"}

// Start starts a session of a workflow with arguments of its input schema. subject names the called
// tool in errors. A root session is not nested.
func (w *Workflow) Start(
	ctx context.Context, c *tool.Caller, subject string, arguments json.RawMessage, root bool,
) (*replies.Start, error) {
	var in inputArgs
	more := tool.InputArguments(w.Workflow, taken...)
	given, err := tool.Decode(subject, arguments, &in, more...)
	if err != nil {
		return nil, err
	}
	return workflows.Start(ctx, c, workflow.StartArgs{
		Goal:         in.Goal,
		JobName:      w.JobName,
		WorkflowName: w.Workflow.Name,
		Inputs:       tool.InputValues(w.Workflow, more, given),
		InstanceID:   in.InstanceID,
		Root:         root,
	})
}

// pageSize is the number of workflows per reply.
const pageSize = 1000

// A listReply is the reply of workflows-list-tool.
type listReply struct {
	Workflows  []Workflow `json:"workflows" jsonschema:"the workflows"`
	NextCursor *string    `json:"nextCursor" jsonschema:"cursor of the next page; null: this is the last"`
}

func listSchema() *jsonschema.Schema {
	s := tool.OutputSchema[listReply](nil)
	s.Required = []string{"workflows"}
	for _, name := range []string{"inputSchema", "metadata"} {
		tool.OpenProperty(s.Properties["workflows"].Items, name, "object")
	}
	return s
}

// TextValue returns the value of the text content: the bare array.
func (r *listReply) TextValue() any { return r.Workflows }

type listArgs struct {
	Cursor *string `json:"cursor" arg:"nextCursor of the previous reply"`
}

// list returns the page after the workflow whose id the cursor holds.
func list(all []Workflow, cursor *string) (*listReply, error) {
	after, given, err := tool.CursorArgument(cursor, "nextCursor")
	if err != nil {
		return nil, err
	}
	if given {
		i := slices.IndexFunc(all, func(w Workflow) bool { return w.ID == after })
		if i < 0 {
			return nil, session.Wrong(codes.InvalidArgument,
				"Argument \"cursor\" names workflow %q, which no longer exists: list again without a cursor.",
				jsontext.Clip(after, 100)).
				With("argument", "cursor").With("value", jsontext.Clip(*cursor, 100))
		}
		all = all[i+1:]
	}
	reply := &listReply{Workflows: append([]Workflow{}, all[:min(pageSize, len(all))]...)}
	if len(all) > pageSize {
		reply.NextCursor = new(tool.Workflows.Encode(all[pageSize-1].ID))
	}
	return reply, nil
}

type executeArgs struct {
	WorkflowID string          `json:"workflow_id" arg:"Workflow id, job/workflow" max:"1000"`
	Input      json.RawMessage `json:"input" arg:"Arguments for its inputSchema: {goal, …}" required:"true" free:"true"`
}

// A StartedReply describes a session that was just started.
type StartedReply struct {
	ExecutionID string       `json:"execution_id" jsonschema:"the session's session_id, 8 hex digits"`
	Status      remote.State `json:"status" jsonschema:"running"`
}

func (o Options) execute(ctx context.Context, c *tool.Caller, args executeArgs) (*StartedReply, error) {
	jobName, name, _ := strings.Cut(args.WorkflowID, "/")
	j := o.Jobs(ctx).Job(jobName)
	if j == nil || j.Bundled || j.Name != jobName || j.Workflow(name) == nil {
		return nil, session.Wrong(codes.UnknownWorkflow,
			"There is no workflow with the id '%s'. workflows-list-tool lists the ids.",
			jsontext.Clip(args.WorkflowID, tool.MaxName)).
			With("argument", "workflow_id").With("value", jsontext.Clip(args.WorkflowID, tool.MaxName))
	}
	w := newWorkflow(j, j.Workflow(name))
	r, err := w.Start(ctx, c, "Workflow '"+args.WorkflowID+"'", args.Input, true)
	if err != nil {
		return nil, err
	}
	return &StartedReply{r.SessionID, remote.Running}, nil
}

type executionArgs struct {
	WorkflowID  string `json:"workflow_id" arg:"Workflow id, job/workflow" max:"1000"`
	ExecutionID string `json:"execution_id" arg:"execution_id from workflows-execute-tool, 8 hex digits"`
}

// An executionReply describes an execution to callers of this source.
type executionReply struct {
	ExecutionID string       `json:"execution_id" jsonschema:"the session's session_id, 8 hex digits"`
	Status      remote.State `json:"status" jsonschema:"running, completed or cancelled"`
	Progress    ownProgress  `json:"progress" jsonschema:"how far it is"`
	Output      *outputs.Map `json:"output" jsonschema:"all outputs, once completed, else null"`
	Error       *string      `json:"error" jsonschema:"why it was cancelled, else null"`
}

type ownProgress struct {
	Progress int    `json:"progress" jsonschema:"steps done"`
	Total    int    `json:"total" jsonschema:"number of steps"`
	Message  string `json:"message" jsonschema:"the current step, or complete"`
}

// executionWords are those of executionReply.
var executionWords = tool.Words{"status": {string(remote.Running), string(remote.Completed), string(remote.Cancelled)}}

func executionSchema() *jsonschema.Schema {
	s := tool.OutputSchema[executionReply](executionWords)
	output := tool.OutputSchema[struct {
		Output outputs.Map `json:"output"`
	}](nil).Properties["output"]
	s.Properties["output"] = &jsonschema.Schema{
		Types:                []string{"null", "object"},
		Description:          s.Properties["output"].Description,
		AdditionalProperties: output.AdditionalProperties,
	}
	return s
}

func statusOf(reply any) string { return string(reply.(*executionReply).Status) }

// executionOf returns the state of an execution, for callers of the identity that started it.
func (o Options) executionOf(ctx context.Context, c *tool.Caller, args executionArgs) (*executionReply, error) {
	x, err := o.Progress(ctx, c.Identity, args.ExecutionID)
	if err != nil {
		return nil, err
	}
	if of := x.JobName + "/" + x.WorkflowName; of != args.WorkflowID {
		return nil, session.Wrong(codes.WrongWorkflow,
			"Execution '%s' belongs to workflow '%s', not to '%s'. Pass that workflow_id, or another execution_id.",
			x.SessionID, of, jsontext.Clip(args.WorkflowID, tool.MaxName)).With("workflow_id", of)
	}

	r := &executionReply{ExecutionID: x.SessionID, Progress: ownProgress{x.Done, x.Total, "at step '" + x.StepID + "'"}}
	switch x.Status {
	case machine.Completed:
		r.Status = remote.Completed
		r.Output = &x.Outputs
		r.Progress.Message = "complete"
	case machine.Aborted:
		r.Status, r.Error = remote.Cancelled, x.AbortReason
	default:
		r.Status = remote.Running
	}
	return r, nil
}

func (o Options) cancel(ctx context.Context, c *tool.Caller, args executionArgs) (*executionReply, error) {
	now, err := o.executionOf(ctx, c, args)
	if err != nil || now.Status != remote.Running {
		return now, err
	}

	_, aborted := c.Workflows.Abort(ctx, workflow.AbortArgs{
		Explanation: "cancelled through workflows-cancel-tool by the system that ordered it",
		SessionID:   &args.ExecutionID,
	})
	// It may have ended in the meantime, which is fine.
	now, err = o.executionOf(ctx, c, args)
	if aborted != nil && (err != nil || now.Status == remote.Running) {
		return nil, aborted
	}
	return now, err
}
