// Package board has the tools of the set "board", which put tasks on the board and have coding
// agents work on them.
package board

import (
	"context"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/transport/tool"
)

// An Engine executes the calls of these tools.
type Engine = *attempt.Engine

// GetRun returns a run, as attempt.Engine.GetRun does.
type GetRun = func(ctx context.Context, who session.Caller, a attempt.RunArgs) (*attempt.RunReply, error)

// Add registers the set: the tools of seed 004 and those that its users also need; if workspace is
// set, get_context, and no tools that merge. getRun carries out get_run.
func Add(s *tool.Set, engine Engine, getRun GetRun, workspace *attempt.Context) {
	addListProjects(s, engine)
	addListRepos(s, engine)
	addListTasks(s, engine)
	addGetTask(s, engine)
	addCreateTask(s, engine)
	addUpdateTask(s, engine)
	addDeleteTask(s, engine)
	addListExecutors(s, engine)
	addStartTaskAttempt(s, engine)
	addListTaskAttempts(s, engine)
	addGetAttempt(s, engine)
	addTailAttempt(s, engine)
	addGetAttemptDiff(s, engine)
	addFollowUp(s, engine)
	addCommentAttempt(s, engine)
	addStopAttempt(s, engine)
	addRunWorkflow(s, engine)
	addGetRun(s, getRun)
	addNeedsAttention(s, engine)
	if workspace != nil {
		addGetContext(s, workspace)
		return
	}
	addMergeAttempt(s, engine)
	addRebaseAttempt(s, engine)
	addAbortMerge(s, engine)
	addPushAttempt(s, engine)
	addChangeTarget(s, engine)
}

// add registers the tool of a method.
func add[A, R any](s *tool.Set, e Engine, method func(Engine, context.Context, session.Caller, A) (*R, error), t tool.Tool) {
	if t.Output == nil {
		t.Output = outputSchema[R]()
	}
	tool.Add(s, t, func(ctx context.Context, c *tool.Caller, args A) (*R, error) {
		return method(e, ctx, c.Caller, args)
	})
}

// smallerPage is the Smaller of tools that list.
const smallerPage = "give a smaller limit, and continue with next_cursor."

// outputSchema is the output schema of a tool of the board.
func outputSchema[R any]() *jsonschema.Schema { return tool.OutputSchema[R](words) }

// fieldsIn describes objects of a reply by the tool whose output schema has their fields: clients get
// every schema at every start.
func fieldsIn(other string, s *jsonschema.Schema, names ...string) *jsonschema.Schema {
	for _, name := range names {
		p := s.Properties[name]
		of := p
		if p.Items != nil {
			of = p.Items
		}
		of.Properties, of.PropertyOrder, of.Required = nil, nil, nil
		p.Description += "; fields: see " + other
	}
	return s
}

// withKinds sets the values that kind has in a list of a reply.
func withKinds(s *jsonschema.Schema, list string, kinds ...any) *jsonschema.Schema {
	s.Properties[list].Items.Properties["kind"].Enum = kinds
	return s
}

var (
	taskStatuses  = []any{"todo", "inprogress", "inreview", "done", "cancelled"}
	leaders       = []any{task.AgentLeads, task.ServerLeads}
	attemptStates = []any{"waiting", "starting", "running", "completed", "failed", "stopped", "interrupted"}
)

// words describe what the types of the board's replies cannot.
var words = tool.Words{
	Enums: map[string][]any{
		"status":          taskStatuses,
		"task_status":     taskStatuses,
		"state":           attemptStates,
		"workflow_status": {attempt.WorkflowActive, attempt.WorkflowCompleted, attempt.WorkflowAborted},
		"stream":          {"stdout", "stderr", "system"},
		"lead":            leaders,
		"action":          {attempt.ActionSend, attempt.ActionQueue, attempt.ActionCancel},
	},
}

// Arguments shared by several tools of the board. The schema takes ids as strings, so that an
// invalid UUID is refused with a full sentence.

func projectID() tool.Property {
	return tool.Required("project_id", tool.MaxName, "From list_projects")
}

func taskID() tool.Property {
	return tool.Required("task_id", tool.MaxName, "From list_tasks")
}

func attemptID() tool.Property {
	return tool.Required("attempt_id", tool.MaxName, "UUID")
}

func oneRepo() tool.Property {
	return tool.Optional("repo_id", tool.MaxName, "Default: all")
}

func listLimit() tool.Property {
	return integer("limit", 1, attempt.MaxLimit, "Default: 50")
}

func cursor() tool.Property {
	return tool.Optional("cursor", 1000, "next_cursor")
}

// integer returns a number that may be absent or null.
func integer(name string, least, most float64, description string) tool.Property {
	return tool.Property{Name: name, Schema: &jsonschema.Schema{Types: []string{"null", "integer"}, Minimum: &least, Maximum: &most, Description: description}}
}

// texts returns a list of strings that may be absent or null.
func texts(name string, most, limit int, description string) tool.Property {
	return tool.Property{Name: name, Schema: &jsonschema.Schema{Types: []string{"null", "array"}, MaxItems: &most,
		Items: &jsonschema.Schema{Type: "string", MaxLength: &limit}, Description: description}}
}

// number returns a number of at least 0 that may be absent or null.
func number(name string, most float64, description string) tool.Property {
	return tool.Property{Name: name, Schema: &jsonschema.Schema{Types: []string{"null", "number"}, Minimum: new(0.0), Maximum: &most, Description: description}}
}

// oneOf sets the allowed values of a string.
func oneOf(p tool.Property, values []any) tool.Property {
	p.Schema.Enum = values
	if !p.Required {
		p.Schema.Enum = append(values[:len(values):len(values)], nil)
	}
	return p
}
