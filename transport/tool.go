package transport

import (
	"context"
	"encoding/json"
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
	free        []string           // arguments whose value call judges, whatever it is
	unlisted    []property         // arguments that are taken too, and that no schema tells of
	call        func(context.Context, *connection, A) (R, error)
	outcome     func(R) string // for the log; nil is "ok"
}

// hints are the tool annotations, which are set explicitly, all of them.
type hints struct {
	readOnly, destructive, idempotent bool
	open                              bool // it reaches systems that are not of the project
}

// addTool registers t. Schemas are made once, here; a schema that cannot be
// made is a fault of the program and panics.
func addTool[A, R any](s *Server, t tool[A, *R]) {
	if t.output == nil {
		t.output = outputSchema[R]()
	}
	check := newArguments(t.name, t.input)
	check.free = t.free
	check.take(t.unlisted)
	s.reads[t.name] = t.hints.readOnly
	listed := &mcp.Tool{
		Name: t.name, Title: t.title, Description: t.description,
		InputSchema: t.input, OutputSchema: t.output,
		Annotations: &mcp.ToolAnnotations{
			ReadOnlyHint:    t.hints.readOnly,
			DestructiveHint: new(t.hints.destructive),
			IdempotentHint:  t.hints.idempotent,
			OpenWorldHint:   new(t.hints.open),
		},
	}
	s.tools[t.name] = func(ctx context.Context, conn *connection, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var args A
		return s.serveCall(ctx, conn, req, callLog{tool: t.name}, func(log *callLog) *session.Error {
			fault := check.decode(req.Params.Arguments, &args)
			if t.session != nil {
				log.session = t.session(&args)
			}
			return fault
		}, func(ctx context.Context, conn *connection) (any, string, error) {
			reply, err := t.call(ctx, conn, args)
			if err != nil || t.outcome == nil {
				return reply, "ok", err
			}
			return reply, t.outcome(reply), nil
		})
	}
	s.mcp.AddTool(listed, dispatched)
	if s.announce == nil {
		// The SDK takes a tool that is registered again for a change, and tells every
		// client once.
		s.announce = func() { s.mcp.AddTool(listed, dispatched) }
		s.anyTool = t.name
	}
}

// serveCall is the frame of every tool call: what is logged, counted and
// recovered from, and what must be right before the tool's own work is done. log
// has the tool's name; decode reads the arguments into wherever work finds them;
// work returns the reply and, for the log, the outcome.
func (s *Server) serveCall(ctx context.Context, conn *connection, req *mcp.CallToolRequest, log callLog, decode func(*callLog) *session.Error,
	work func(context.Context, *connection) (reply any, outcome string, err error)) (res *mcp.CallToolResult, err error) {
	log.logger, log.metrics, log.identity, log.began = s.logger, s.metrics, conn.identity, time.Now()
	defer s.inflight.begin(&log)()
	defer func() {
		if p := recover(); p != nil {
			s.logger.LogAttrs(ctx, slog.LevelError, "panic in a tool",
				slog.String("tool", log.tool), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			res, err = s.broken(log.tool), nil
			log.outcome = "panic"
		}
		if kind := errorKind(log.outcome, res, err); kind != "" {
			s.metrics.errors.WithLabelValues(log.label(), kind).Inc()
		}
		log.end(ctx)
	}()

	fault := decode(&log)
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
	reply, outcome, err := work(ctx, conn)
	if err == nil {
		log.outcome = outcome
		if res, err = accepted(reply); err != nil {
			err = fmt.Errorf("encoding the reply: %w", err)
		} else if n := len(res.StructuredContent.(json.RawMessage)); n > maxReplyBytes {
			err = s.tooLarge(log.tool, n, reply)
		} else {
			return res, nil
		}
	}
	res, log.outcome, err = s.failed(ctx, log.tool, err)
	return res, err
}

// badConfig is how every call is refused while the config was never good.
func badConfig(err error) *session.Error {
	return session.NotNow("config_invalid",
		"The project's configuration is not valid: %v. Correct .deepwork/config.yml and call again; no restart is needed.", err).Because(err)
}

// errorKind is what went wrong with a call, for the metrics, or "".
func errorKind(outcome string, res *mcp.CallToolResult, err error) string {
	switch {
	case outcome == "panic" || outcome == "internal":
		return "broken"
	case err != nil:
		return "cancelled"
	case res != nil && res.IsError:
		return "refused"
	}
	return ""
}
