package transport

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session"
)

// A tool is one MCP tool: A are its arguments, decoded by their json tags, and
// R what it replies, a pointer to a struct.
type tool[A, R any] struct {
	name, title string
	description string // for the agent: when to call it, what comes back, what to do then
	hints       hints
	input       *jsonschema.Schema
	output      *jsonschema.Schema // nil is derived from R
	session     func(*A) *string   // the session_id among the arguments; nil: it has none
	call        func(context.Context, agent, A) (R, error)
	outcome     func(R) string // for the log; nil is "ok"
}

// hints are the tool annotations, which are set explicitly, all of them.
type hints struct{ readOnly, destructive, idempotent bool }

// addTool registers t. Schemas are made once, here; a schema that cannot be
// made is a fault of the program and panics.
func addTool[A, R any](s *Server, t tool[A, *R]) {
	if t.output == nil {
		t.output = outputSchema[R]()
	}
	check := newArguments(t.name, t.input)
	s.tools[t.name] = true
	s.mcp.AddTool(&mcp.Tool{
		Name: t.name, Title: t.title, Description: t.description,
		InputSchema: t.input, OutputSchema: t.output,
		Annotations: &mcp.ToolAnnotations{
			Title:           t.title,
			ReadOnlyHint:    t.hints.readOnly,
			DestructiveHint: new(t.hints.destructive),
			IdempotentHint:  t.hints.idempotent,
			OpenWorldHint:   new(false), // nothing but the project is touched
		},
	}, func(ctx context.Context, req *mcp.CallToolRequest) (res *mcp.CallToolResult, err error) {
		conn := ctx.Value(connectionKey{}).(*connection)
		log := callLog{logger: s.logger, tool: t.name, began: time.Now()}
		defer func() {
			if p := recover(); p != nil {
				s.logger.LogAttrs(ctx, slog.LevelError, "panic in a tool",
					slog.String("tool", t.name), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
				res, err = broken(t.name), nil
				log.outcome = "panic"
			}
			log.end(ctx)
		}()

		var args A
		fault := check.decode(req.Params.Arguments, &args)
		if t.session != nil {
			log.session = t.session(&args)
		}
		log.begin(ctx, conn.agent)
		if fault != nil {
			log.outcome = fault.Code
			return refused(fault), nil
		}
		if s.check != nil {
			if _, err := s.check(ctx); err != nil {
				fault := badConfig(err)
				log.outcome = fault.Code
				return refused(fault), nil
			}
		}
		ctx, quiet := s.withProgress(ctx, req)
		defer quiet() // before the reply goes out
		reply, err := t.call(ctx, conn.agent, args)
		if err == nil {
			log.outcome = "ok"
			if t.outcome != nil {
				log.outcome = t.outcome(reply)
			}
			if res, err = accepted(reply); err == nil {
				return res, nil
			}
			err = fmt.Errorf("encoding the reply: %w", err)
		}
		res, log.outcome, err = s.failed(ctx, t.name, err)
		return res, err
	})
}

// badConfig is how every call is refused while the config was never good.
func badConfig(err error) *session.Error {
	return session.NotNow("config_invalid",
		"The project's configuration is not valid: %v. Correct .deepwork/config.yml and call again; no restart is needed.", err).Because(err)
}
