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
	"strings"
	"sync"

	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	sources "deepwork/catalog/source"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
	"deepwork/transport/tool"
	"deepwork/transport/tools/workflows"
)

// Options are the parameters of Add.
type Options struct {
	Jobs      func(context.Context) *catalog.Snapshot
	Execution func(ctx context.Context, identity, sessionID string) (*workflow.Execution, error)
	Offered   func(context.Context) bool // whether the tools are offered; a change of the config may change it
}

// withheld is the error of a call while the tools are not offered.
func (o Options) withheld(ctx context.Context) *session.Error {
	if o.Offered(ctx) {
		return nil
	}
	return session.Wrong(codes.NotOffered, "This server does not offer its workflows to other servers. To offer them, start it with --toolsets %s,source, "+
		"or set workflow_tools.expose_jobs: true in .deepwork/config.yml. Agents of this project use get_workflows and start_workflow.",
		strings.Join(config.DefaultToolsets, ","))
}

// add registers one of the tools.
func add[A, R any](s *tool.Set, o Options, t tool.Tool, call func(context.Context, *tool.Caller, A) (*R, error)) {
	t.Withheld = o.withheld
	tool.Add(s, t, call)
}

// Add registers the tools. While they are not offered, they are not listed, and calls are refused.
func Add(s *tool.Set, o Options) {
	addList(s, o)
	addExecute(s, o)
	addStatus(s, o)
	addCancel(s, o)
}

// A Workflow is a workflow of this project in the schema of seed 003, 6.1.
type Workflow struct {
	ID            string          `json:"id"`
	Name          string          `json:"name"` // valid for a tool
	Description   string          `json:"description"`
	Category      string          `json:"category"`
	Version       string          `json:"version"`
	InputSchema   json.RawMessage `json:"inputSchema"`
	ExecutionType string          `json:"executionType"`
	Metadata      json.RawMessage `json:"metadata"`

	JobName      string `json:"-"`
	WorkflowName string `json:"-"`
	Summary      string `json:"-"`
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
		ID: j.Name + "/" + w.Name, Name: toolName(j.Name + "-" + w.Name), Description: fmt.Sprintf("%s (job %s: %s)", w.Summary, j.Name, j.Summary),
		Category: "workflow", Version: j.Version, InputSchema: inputJSON(), ExecutionType: "async",
		Metadata: tool.MustJSON(struct {
			Job      string `json:"job"`
			Workflow string `json:"workflow"`
			Steps    int    `json:"steps"`

			Performer sources.Performer `json:"performer"`
		}{j.Name, w.Name, steps, sources.ByAgent}),
		JobName: j.Name, WorkflowName: w.Name, Summary: w.Summary,
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

// inputArgs is the input of a workflow.
type inputArgs struct {
	Goal       string  `json:"goal" arg:"What the user wants to achieve, at most 100,000 characters" max:"100000"`
	InstanceID *string `json:"instance_id" arg:"Short name for the branch, such as acme, at most 200 characters. Default: the date"`
}

var inputJSON = sync.OnceValue(func() json.RawMessage { return tool.MustJSON(tool.Input[inputArgs]()) })

// Start starts a session of a workflow with arguments of its input schema. subject names the called
// tool in errors. A root session is not nested.
func (w *Workflow) Start(ctx context.Context, c *tool.Caller, subject string, arguments json.RawMessage, root bool) (*machine.StartReply, error) {
	var in inputArgs
	if err := tool.Decode(subject, arguments, &in); err != nil {
		return nil, err
	}
	return workflows.Start(ctx, c, workflow.StartArgs{
		Goal: in.Goal, JobName: w.JobName, WorkflowName: w.WorkflowName, InstanceID: in.InstanceID, Root: root,
	})
}
