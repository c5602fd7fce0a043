// Package tool is the frame around every MCP tool: it registers tools with their
// schemas, checks and decodes arguments, carries out calls, and encodes replies and
// errors. The tools themselves are in the packages below transport/tools.
//
// To add an argument to a tool, add a field to the struct of its arguments, with the tags that
// Argument describes: schema, forms and flags follow.
//
// To add a field to a tool's reply, two files are touched: the one that declares the
// reply (session/replies, session/attempt or a file below
// transport/tools), where the jsonschema tag is the field's description, and the one
// that fills it. Schemas and documents are derived: go test ./transport -update renews
// testdata/tools_list.json and cmd/deepwork/docs/reference. A field with few allowed values, or a list,
// also gets an entry in the Words of its toolset.
package tool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/telemetry"
	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
	"deepwork/catalog/source"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/connection"
	"deepwork/session/machine"
	"deepwork/session/replies"
	"deepwork/session/show"
	"deepwork/session/workflow"
)

// A WorkflowCaller is one connection to the workflow engine. It is a *connection.Conn.
type WorkflowCaller interface {
	Close()
	Stack() []replies.StackEntry
	StackOf(ctx context.Context, sessionID *string) []replies.StackEntry
	GetWorkflows(context.Context) (*replies.Workflows, error)
	Start(context.Context, workflow.StartArgs) (*replies.Start, error)
	Finish(context.Context, workflow.FinishArgs) (*replies.Finish, error)
	Collect(ctx context.Context, g replies.Going, a workflow.FinishArgs, read bool) (*replies.Finish, error)
	Abort(context.Context, workflow.AbortArgs) (*replies.Abort, error)
	Step(context.Context, workflow.StepArgs) (*replies.Step, error)
	GoTo(context.Context, workflow.GoToArgs) (*replies.GoTo, error)
	CancelReview(context.Context, replies.Going) error
}

// Newest is the first version of the protocol in which requests carry the client's capabilities, and a server asks the
// client's user by a reply.
const Newest = "2026-07-28"

// Tasks gives callers a task of MCP for a call whose work goes on; see package tasks.
type Tasks interface {
	// Admit returns why a call is refused, or nil: the tasks of its caller count like calls in flight.
	Admit(ctx context.Context, c *Caller, req *mcp.CallToolRequest) *session.Error
	// Within returns the context of a call, which ends early if the client accepts tasks.
	Within(ctx context.Context, req *mcp.CallToolRequest) context.Context
	// Instead returns what is sent instead of a reply, or nil.
	Instead(ctx context.Context, c *Caller, req *mcp.CallToolRequest, reply any) mcp.Result
}

// A Caller is the caller of a tool.
type Caller struct {
	session.Caller
	Workflows WorkflowCaller
	From      telemetry.Ref // the span that the call comes from; zero if that is unknown
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

	listed func() *mcp.Tool // as tools/list has it, with its schemas encoded once; Add sets it
}

// Hints are the tool annotations, all set explicitly.
type Hints struct {
	ReadOnly, Destructive, Idempotent bool
	Open                              bool // it reaches systems outside the project
}

// NoArgs are the arguments of a tool that has none.
type NoArgs struct{}

// Add registers a tool that is executed by call. A is the struct of its arguments, which their tags describe (see
// Argument), and R the struct of its reply. It panics if a schema cannot be made, which is a bug in the program.
func Add[A, R any](s *Set, t Tool, call func(context.Context, *Caller, A) (*R, error)) {
	if t.Output == nil {
		t.Output = OutputSchema[R](nil)
	}

	t.Input = inputSchema(Arguments(reflect.TypeFor[A]()))
	// Made at the first call: making all would delay the start, and most tools are never called.
	check := sync.OnceValue(func() *arguments { return newArguments(t.Name, reflect.TypeFor[A]()) })
	listed := &mcp.Tool{
		Meta: metaOf(t.Name), Name: t.Name, Title: t.Title, Description: t.Description,
		InputSchema: listedInput(t.Input), OutputSchema: t.Output,
		Annotations: &mcp.ToolAnnotations{
			ReadOnlyHint:    t.Hints.ReadOnly,
			DestructiveHint: new(t.Hints.Destructive),
			IdempotentHint:  t.Hints.Idempotent,
			OpenWorldHint:   new(t.Hints.Open),
		},
	}
	t.listed = sync.OnceValue(func() *mcp.Tool {
		encoded := *listed
		encoded.InputSchema, encoded.OutputSchema = MustJSON(listed.InputSchema), ListedOutput(t.Output)
		return &encoded
	})
	s.first = cmp.Or(s.first, listed)
	s.MCP.AddTool(listed, dispatched)

	s.tools[t.Name] = t
	s.handlers[t.Name] = func(ctx context.Context, c *Caller, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var args A
		log := CallLog{Tool: t.Name, outcomeOf: t.Outcome}
		if t.Polled {
			client := req.ClientInfo()
			log.Polled = client != nil && client.Name == source.ClientName
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

// A Handler executes the calls of one tool. Its error is a protocol error; errors for the caller to
// read are results.
type Handler func(context.Context, *Caller, *mcp.CallToolRequest) (*mcp.CallToolResult, error)

// A Set is the tools of one server.
type Set struct {
	MCP    *mcp.Server
	Logger *slog.Logger
	// Check returns the config, or why calls are refused; it may be nil.
	Check func(context.Context) (*config.Config, error)
	// Unregistered finds the handler of a tool that is not registered; nil means there are no such
	// tools.
	Unregistered func(ctx context.Context, name string) Handler
	Tasks        Tasks // nil means that there are none
	InFlight     InFlight

	handlers map[string]Handler
	tools    map[string]Tool
	first    *mcp.Tool // the first one registered
	metrics  *metrics
}

// NewSet returns a set without tools, whose calls are counted in m.
func NewSet(
	server *mcp.Server, logger *slog.Logger, m *telemetry.Metrics, check func(context.Context) (*config.Config, error),
) *Set {
	s := &Set{
		MCP:      server,
		Logger:   logger,
		Check:    check,
		handlers: map[string]Handler{},
		tools:    map[string]Tool{},
		metrics:  newMetrics(m),
	}

	m.Gauge("deepwork_calls_in_flight", "Tool calls that run now.", s.InFlight.Len)
	return s
}

// Has reports whether a tool is registered.
func (s *Set) Has(name string) bool { return s.handlers[name] != nil }

// Tool returns a registered tool.
func (s *Set) Tool(name string) Tool { return s.tools[name] }

// Offered returns the listed tools that are offered now. Clients list them at every start, and encoding a schema takes
// longer than the rest.
func (s *Set) Offered(ctx context.Context, listed []*mcp.Tool) (offered []*mcp.Tool) {
	offered = make([]*mcp.Tool, 0, len(listed))
	for _, t := range listed {
		own, registered := s.tools[t.Name]
		switch {
		case !registered:
			offered = append(offered, t)
		case own.Withheld == nil || own.Withheld(ctx) == nil:
			offered = append(offered, own.listed())
		}
	}
	return offered
}

// Names returns the names of the registered tools, unordered.
func (s *Set) Names() []string { return slices.Collect(maps.Keys(s.handlers)) }

// Announce has the SDK notify every client, once, that the list of tools changed, by registering
// one tool again.
func (s *Set) Announce() { s.MCP.AddTool(s.first, dispatched) }

type dispatchKey struct{}

// A dispatch is a call on its way through the SDK, whose handlers return only results of tools.
type dispatch struct {
	do      func(context.Context) (*mcp.CallToolResult, error)
	instead mcp.Result // of the result; nil means nothing
}

// Dispatch has next execute a call with the handler of its tool. A tool that is not registered with
// the SDK is called under the name of one that is.
func (s *Set) Dispatch(
	ctx context.Context, c *Caller, req *mcp.CallToolRequest, next mcp.MethodHandler, method string,
) (mcp.Result, error) {
	registered := *req
	do := s.handlers[req.Params.Name]
	if do == nil {
		if s.Unregistered != nil {
			do = s.Unregistered(ctx, req.Params.Name)
		}
		if do == nil {
			// The other tools log their calls themselves.
			unknown := CallLog{
				Tool:     jsontext.Clip(req.Params.Name, 200),
				identity: c.Identity,
				stack:    c.Workflows.Stack(),
			}
			s.Logger.LogAttrs(ctx, slog.LevelInfo, "call of an unknown tool", unknown.attrs(nil)...)
			if near := jsontext.Nearest(req.Params.Name, s.Names()); near != "" {
				return nil, &jsonrpc.Error{
					Code: jsonrpc.CodeInvalidParams,
					Message: fmt.Sprintf("unknown tool %q: did you mean %s? tools/list has all of them",
						req.Params.Name, near),
				}
			}
			return next(ctx, method, req) // the SDK will refuse it
		}

		params := *req.Params
		params.Name = s.first.Name
		registered.Params = &params
	}
	d := &dispatch{do: func(ctx context.Context) (*mcp.CallToolResult, error) { return do(ctx, c, req) }}
	res, err := next(context.WithValue(ctx, dispatchKey{}, d), method, &registered)
	if err == nil && d.instead != nil {
		res = d.instead
	}
	return res, err
}

// dispatched is the SDK's handler of every registered tool.
func dispatched(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return ctx.Value(dispatchKey{}).(*dispatch).do(ctx)
}

// Serve wraps every tool call: logs, metrics, recovery from panics, and the checks before the
// tool's own work. log has the tool's name; decode decodes the arguments for work, which returns
// the reply.
func (s *Set) Serve(ctx context.Context, c *Caller, req *mcp.CallToolRequest, log CallLog,
	decode func(*CallLog) *session.Error,
	work func(context.Context) (reply any, err error)) (res *mcp.CallToolResult, err error) {
	if log.outcomeOf == nil {
		log.outcomeOf = outcomeOf
	}

	var reply any
	ctx, span := telemetry.Begin(ctx, c.From)
	log.logger = s.Logger
	log.metrics = s.metrics
	log.identity = c.Identity
	log.began = time.Now()
	defer s.InFlight.begin(&log)()
	defer func() {
		if p := recover(); p != nil {
			log.failed(slog.LevelError, slog.Any("panic", p), slog.String("trace", string(debug.Stack())))
			res, err = s.broken(log.Tool), nil
			log.outcome = "panic"
		}
		if kind := errorKind(log.outcome, res, err); kind != "" {
			log.level = max(log.level, slog.LevelInfo)
			s.metrics.errors.Add(ctx, 1, s.metrics.series(log.label(), "kind", kind).add...)
		}
		if span != nil && (!log.waits || span.HasParts()) {
			log.trace(span, res, err)
		}
		log.end(ctx, reply)
	}()

	if log.Polled {
		log.level = slog.LevelDebug
	}
	fault := decode(&log)
	log.begin(ctx, c.Workflows)
	if fault == nil && s.Check != nil {
		if _, err := s.Check(ctx); err != nil {
			fault = BadConfig(err)
		}
	}
	if fault == nil && s.Tasks != nil {
		fault = s.Tasks.Admit(ctx, c, req)
	}
	if fault != nil {
		log.outcome = fault.Code
		return refused(fault), nil
	}

	asked, used := mcp.InputRequestMap{}, map[string]bool{}
	ctx, quiet := s.withProgress(s.withAsk(ctx, req, asked, used), req)
	defer quiet() // before the reply is sent
	if s.Tasks != nil {
		ctx = s.Tasks.Within(ctx, req)
	}

	reply, err = work(ctx)
	if err == nil {
		log.outcome, log.waits = log.outcomeOf(reply), log.goesOn != nil && log.goesOn(reply)
		if d, _ := ctx.Value(dispatchKey{}).(*dispatch); d != nil && s.Tasks != nil {
			if d.instead = s.Tasks.Instead(ctx, c, req, reply); d.instead != nil {
				log.outcome = "task"
				return &mcp.CallToolResult{}, nil
			}
		}

		if len(asked) > 0 { // the store has the questions that the keys name: RequestState decides nothing
			return &mcp.CallToolResult{
				InputRequests: asked,
				RequestState:  strings.Join(slices.Sorted(maps.Keys(asked)), " "),
			}, nil
		}
		if res, err = accepted(reply); err != nil {
			err = fmt.Errorf("encoding the reply: %w", err)
		} else if n := len(res.StructuredContent.(json.RawMessage)); n > MaxReplyBytes {
			err = s.tooLarge(log.Tool, n, reply)
		} else {
			res.Content = append(res.Content, tooLate(req, used)...)
			return res, nil
		}
	}
	res, err = s.failed(ctx, &log, err)
	return res, err
}

// BadConfig returns the error of every call while the config was never good, or while the server cannot be
// used for another reason, which err says.
func BadConfig(err error) *session.Error {
	if e, ok := errors.AsType[*session.Error](err); ok {
		return e
	}
	return session.NotNow(codes.ConfigInvalid,
		"The configuration is not valid: %v. Correct the file that this names, .deepwork/config.yml or your own "+
			"config, and call again; no restart is needed.", err).Because(err)
}

// withAsk lets a call ask the client's user by MCP's elicitation, if the client declares that: during the call or, in
// the newest protocol, by the reply, after which the client repeats the call with the answer. Questions are added to
// asked, and answers that count to used.
func (s *Set) withAsk(
	ctx context.Context, req *mcp.CallToolRequest, asked mcp.InputRequestMap, used map[string]bool,
) context.Context {
	if req.Session == nil { // a call that no client made
		return ctx
	}

	able := func() bool {
		can := req.ClientCapabilities()
		// {} means forms
		return can != nil && can.Elicitation != nil && (can.Elicitation.Form != nil || can.Elicitation.URL == nil)
	}
	return connection.WithAsk(ctx, able, slices.Sorted(maps.Keys(req.Params.InputResponses)),
		func(ctx context.Context, key, question string) (answer *machine.Answer, declined bool) {
			form := &mcp.ElicitParams{Message: show.Plain(question), RequestedSchema: answerSchema}
			if req.ProtocolVersion() >= Newest {
				r, given := req.Params.InputResponses[key].(*mcp.ElicitResult)
				used[key] = given
				if !given && question != "" {
					asked[key] = form
				}
				return AnswerOf(r), given && closed(r)
			}
			if question == "" {
				return nil, false
			}
			r, err := req.Session.Elicit(ctx, form)
			if err != nil {
				s.Logger.LogAttrs(ctx, slog.LevelDebug, "the client did not ask its user", slog.Any("error", err))
				return nil, false
			}
			return AnswerOf(r), closed(r)
		})
}

// closed reports whether a client's user closed the form without an answer.
func closed(r *mcp.ElicitResult) bool {
	return r != nil && (r.Action == "decline" || r.Action == "cancel")
}

// tooLate says that an answer of the client's user did not count.
func tooLate(req *mcp.CallToolRequest, used map[string]bool) []mcp.Content {
	for key, given := range req.Params.InputResponses {
		if r, _ := given.(*mcp.ElicitResult); AnswerOf(r) != nil && !used[key] {
			return []mcp.Content{&mcp.TextContent{Text: "The answer that your user gave in the form did not count: " +
				"others had decided before, or other outputs were handed in since. Tell them."}}
		}
	}
	return nil
}

// AnswerOf returns the answer of a client's user, or nil: only a submitted form is an answer.
func AnswerOf(r *mcp.ElicitResult) *machine.Answer {
	if r == nil || r.Action != "accept" {
		return nil
	}

	decision, _ := r.Content["decision"].(string)
	if decision != "pass" && decision != "fail" {
		return nil
	}
	feedback, _ := r.Content["feedback"].(string)
	return &machine.Answer{Passed: decision == "pass", Feedback: feedback}
}

// answerSchema is the form that a client's user fills in. Nothing in it has a default: no answer is no
// approval.
var answerSchema = &jsonschema.Schema{
	Type:          "object",
	PropertyOrder: []string{"decision", "feedback"},
	Required:      []string{"decision"},
	Properties: map[string]*jsonschema.Schema{
		"decision": {
			Type:        "string",
			Title:       "Decision",
			Description: "pass: the step goes on; fail: the agent works on it again",
			Enum:        []any{"pass", "fail"},
		},
		"feedback": {
			Type:        "string",
			Title:       "Feedback",
			Description: "What the agent should know; with fail, what to change",
		},
	},
}

const (
	// signOfLife is how often a client is notified that its call still runs.
	signOfLife = 10 * time.Second
	// progressPause is the minimum time between two notifications of a call.
	progressPause = 100 * time.Millisecond
)

type progressKey struct{}

// Progress notifies the caller, if it asked for progress. It never blocks; only the newest unsent
// message is kept.
func Progress(ctx context.Context, message string) {
	if notify, ok := ctx.Value(progressKey{}).(func(string)); ok {
		notify(message)
	}
}

// withProgress notifies a client that asked for progress of a call: at each change, and from then
// on every 10 s, for clients that give up on silent calls. The value is the call's age in seconds,
// since it has to grow. The returned function stops the notifications and waits.
func (s *Set) withProgress(ctx context.Context, req *mcp.CallToolRequest) (context.Context, func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return ctx, func() {}
	}

	began := time.Now()
	changed := wait.NewSignal()
	var newest atomic.Pointer[string]
	running, end := context.WithCancel(ctx)

	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(signOfLife)
		defer ticker.Stop()
		for {
			select {
			case <-changed:
			case <-ticker.C:
			case <-running.Done():
				return
			}

			message := newest.Load()
			if message == nil {
				continue
			}
			err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: time.Since(began).Seconds(), Message: *message,
			})
			if err != nil {
				s.Logger.LogAttrs(ctx, slog.LevelDebug, "a progress notification was not sent", slog.Any("error", err))
			}

			if wait.For(running, progressPause) != nil {
				return
			}
		}
	})
	notify := func(message string) {
		newest.Store(&message)
		changed.Wake()
	}
	notified := context.WithValue(ctx, progressKey{}, notify)
	return connection.WithProgress(notified, func(_, _ int, message string) { notify(message) }), func() {
		end()
		wg.Wait()
	}
}
