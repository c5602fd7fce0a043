// Package tool is the frame around every MCP tool: it registers tools with their
// schemas, checks and decodes arguments, carries out calls, and encodes replies and
// errors. The tools themselves are in the packages below transport/tools.
//
// To add an argument to a tool, add a field to the struct of its arguments, with the tags that
// Argument describes: schema, forms and flags follow.
//
// To add a field to a tool's reply, two files are touched: the one that declares the
// reply (session/workflow/machine/reply.go, session/attempt or a file below
// transport/tools), where the jsonschema tag is the field's description, and the one
// that fills it. Schemas and documents are derived: go test ./transport -update renews
// testdata/tools_list.json and TOOLS.md. A field with few allowed values, or a list,
// also gets an entry in the Words of its toolset.
package tool

import (
	"context"
	"log/slog"
	"reflect"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog/source"
	"deepwork/session"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
)

// A WorkflowCaller is one connection to the workflow engine. It is a *workflow.Conn.
type WorkflowCaller interface {
	Close()
	Stack() []machine.StackEntry
	StackOf(ctx context.Context, sessionID *string) []machine.StackEntry
	GetWorkflows(context.Context) (*machine.WorkflowsReply, error)
	Start(context.Context, workflow.StartArgs) (*machine.StartReply, error)
	Finish(context.Context, workflow.FinishArgs) (*machine.FinishReply, error)
	Abort(context.Context, workflow.AbortArgs) (*machine.AbortReply, error)
	Step(context.Context, workflow.StepArgs) (*machine.StepReply, error)
	GoTo(context.Context, workflow.GoToArgs) (*machine.GoToReply, error)
}

// A Caller is the caller of a tool.
type Caller struct {
	session.Caller
	Workflows WorkflowCaller
}

// A Tool describes one MCP tool.
type Tool struct {
	Name, Title string
	Description string // for the agent: when to call it, what comes back, what to do then
	Hints       Hints
	Input       *jsonschema.Schema     // that of the arguments' type; Add sets it
	Output      *jsonschema.Schema     // nil means the schema of the reply's type
	Session     string                 // the argument that names a session, for the log
	Polled      bool                   // successful calls of other deepworks are logged at debug: they are many
	Outcome     func(reply any) string // for the log; nil means the state of an execution, else "ok"

	// Withheld returns the error of every call while the tool is not offered; it is not listed then.
	// It may be nil.
	Withheld func(context.Context) *session.Error
	// Recheck says, for a tool that changes something, how a caller whose call was interrupted
	// finds out what it did.
	Recheck string
	// Smaller says, for a tool that only reads, how to get a smaller reply.
	Smaller string
}

// Hints are the tool annotations, all set explicitly.
type Hints struct {
	ReadOnly, Destructive, Idempotent bool
	Open                              bool // it reaches systems outside the project
}

// NoArgs are the arguments of a tool that has none.
type NoArgs struct{}

// Add registers a tool that is executed by call. A is the struct of its arguments, which their tags
// describe (see Argument), and R that of its reply. It panics if a schema cannot be made, which is a bug in the
// program.
func Add[A, R any](s *Set, t Tool, call func(context.Context, *Caller, A) (*R, error)) {
	if t.Output == nil {
		t.Output = OutputSchema[R](Words{})
	}
	t.Input = inputSchema(Arguments(reflect.TypeFor[A]()))
	// Made at the first call: those of all tools would delay the start, and most tools are never called.
	check := sync.OnceValue(func() *arguments { return newArguments(t.Name, reflect.TypeFor[A]()) })
	listed := &mcp.Tool{
		Name: t.Name, Title: t.Title, Description: t.Description,
		InputSchema: listedInput(t.Input), OutputSchema: t.Output,
		Annotations: &mcp.ToolAnnotations{
			ReadOnlyHint:    t.Hints.ReadOnly,
			DestructiveHint: new(t.Hints.Destructive),
			IdempotentHint:  t.Hints.Idempotent,
			OpenWorldHint:   new(t.Hints.Open),
		},
	}
	if s.first == nil {
		s.first = listed
	}
	s.MCP.AddTool(listed, dispatched)
	s.tools[t.Name] = t
	s.handlers[t.Name] = func(ctx context.Context, c *Caller, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var args A
		log := CallLog{Tool: t.Name, outcomeOf: t.Outcome}
		if client := req.ClientInfo(); t.Polled && client != nil && client.Name == source.ClientName {
			log.level = slog.LevelDebug
		}
		return s.Serve(ctx, c, req, log, func(log *CallLog) *session.Error {
			if t.Withheld != nil {
				if fault := t.Withheld(ctx); fault != nil {
					return fault
				}
			}
			given, fault := check().decode(req.Params.Arguments, &args)
			if id, ok := given[t.Session].(string); ok {
				log.session = &id
			}
			return fault
		}, func(ctx context.Context) (any, error) { return call(ctx, c, args) })
	}
}
