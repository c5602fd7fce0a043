package transport

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog"
	"deepwork/catalog/job"
	"deepwork/session/workflow"
)

// jobCategory is what this server's own workflows are, as a source of them.
const jobCategory = "workflow"

// A jobTool is a workflow of this project that is offered as a tool of its own
// (expose_jobs). It is immutable.
type jobTool struct {
	name   string
	job    *job.Job
	flow   *job.Workflow
	listed *mcp.Tool
}

// ownID is the id of a workflow of this project for those that ask for it.
func ownID(j *job.Job, w *job.Workflow) string { return j.Name + "/" + w.Name }

// ownName is a name for it that is fit for a tool. Neither part has a hyphen, so
// no two workflows share one.
func ownName(j *job.Job, w *job.Workflow) string {
	const most = 64
	name := j.Name + "-" + w.Name
	if len(name) > most {
		sum := sha256.Sum256([]byte(name))
		name = name[:most-9] + "_" + hex.EncodeToString(sum[:])[:8]
	}
	return name
}

// ownDescription says what it is for.
func ownDescription(j *job.Job, w *job.Workflow) string {
	return fmt.Sprintf("%s (job %s: %s)", w.Summary, j.Name, j.Summary)
}

// ownInput is what a workflow of this project is started with.
type ownInput struct {
	Goal       string  `json:"goal"`
	InstanceID *string `json:"instance_id"`
}

// ownInputSchema is its schema.
var ownInputSchema = sync.OnceValue(func() json.RawMessage {
	return mustJSON(inputSchema(ownProperties()...))
})

func ownProperties() []property {
	return []property{
		required("goal", maxText, "What is to be accomplished, in plain words, at most 100,000 characters."),
		optional("instance_id", maxName, "A short name for this run, at most 200 characters; it becomes part of the branch name. Without it the date is used."),
	}
}

// mustJSON is a schema of ours as JSON.
func mustJSON(v any) json.RawMessage {
	data, err := encode(v)
	if err != nil {
		panic(fmt.Sprintf("transport: %v", err)) // a fault of the program, found by its first test
	}
	return data
}

// startSchemaJSON is the output schema of start_workflow.
var startSchemaJSON = sync.OnceValue(func() json.RawMessage { return mustJSON(outputSchema[workflow.StartReply]()) })

// jobTools makes the tools of all workflows there are; one that is as it was is
// the same as in old. nil: none is exposed.
func jobTools(exposed *catalog.Snapshot, old map[string]*jobTool) map[string]*jobTool {
	if exposed == nil {
		return nil
	}
	all := map[string]*jobTool{}
	for _, j := range exposed.Jobs {
		for i := range j.Workflows {
			w := &j.Workflows[i]
			if len(w.Entries) == 0 {
				continue // it cannot be started
			}
			t := &jobTool{name: ownName(j, w), job: j, flow: w}
			title := oneLine(w.Summary, 200)
			t.listed = &mcp.Tool{
				Meta: mcp.Meta{workflowMeta: ownMeta(j, w)},
				Name: t.name, Title: title,
				Description: clip("Starts a workflow of this project: "+ownDescription(j, w)+"\n\n"+
					"Returns its first step at once, as start_workflow does. Do what begin_step says, and report it with finished_step and the session_id given there.", descriptionChars),
				InputSchema: ownInputSchema(), OutputSchema: startSchemaJSON(),
				Annotations: &mcp.ToolAnnotations{Title: title, DestructiveHint: new(false), OpenWorldHint: new(false)},
			}
			if was := old[t.name]; was != nil && sameTool(was.listed, t.listed) {
				t.listed = was.listed
			}
			all[t.name] = t
		}
	}
	return all
}

// ownMeta is what MCP has no field for.
func ownMeta(j *job.Job, w *job.Workflow) listedMeta {
	return listedMeta{
		ID: ownID(j, w), Category: jobCategory, Version: j.Version, ExecutionType: executionType(true), Metadata: ownMetadata(j, w),
	}
}

func ownMetadata(j *job.Job, w *job.Workflow) json.RawMessage {
	steps := 0
	for _, e := range w.Entries {
		steps += len(e)
	}
	return mustJSON(struct {
		Job      string `json:"job"`
		Workflow string `json:"workflow"`
		Steps    int    `json:"steps"`
	}{j.Name, w.Name, steps})
}

// start begins a session on the caller's connection; it is a target.
func (t *jobTool) start(ctx context.Context, conn *connection, arguments json.RawMessage) (any, string, error) {
	var in ownInput
	if fault := newArguments(t.name, inputSchema(ownProperties()...)).decode(arguments, &in); fault != nil {
		return nil, "", fault
	}
	r, err := conn.agent.Start(ctx, workflow.StartArgs{
		Goal: in.Goal, JobName: t.job.Name, WorkflowName: t.flow.Name, InstanceID: in.InstanceID,
	})
	if err != nil {
		return nil, "", err
	}
	reply := *r // the engine may give one reply to several callers
	reply.Stack = list(reply.Stack)
	return &reply, "ok", nil
}

// splitOwnID takes the id of a workflow of this project apart.
func splitOwnID(id string) (job, workflow string, ok bool) { return strings.Cut(id, "/") }
