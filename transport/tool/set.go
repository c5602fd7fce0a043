package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
)

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
	InFlight     InFlight

	handlers map[string]Handler
	tools    map[string]Tool
	first    *mcp.Tool // the first one registered
	metrics  metrics
}

// NewSet returns a set without tools.
func NewSet(server *mcp.Server, logger *slog.Logger, check func(context.Context) (*config.Config, error)) *Set {
	return &Set{MCP: server, Logger: logger, Check: check, handlers: map[string]Handler{}, tools: map[string]Tool{}, metrics: newMetrics()}
}

// Has reports whether a tool is registered.
func (s *Set) Has(name string) bool { return s.handlers[name] != nil }

// Tool returns a registered tool.
func (s *Set) Tool(name string) Tool { return s.tools[name] }

// Offered returns those of the listed tools that are offered now.
func (s *Set) Offered(ctx context.Context, listed []*mcp.Tool) []*mcp.Tool {
	return slices.DeleteFunc(slices.Clone(listed), func(t *mcp.Tool) bool {
		withheld := s.tools[t.Name].Withheld
		return withheld != nil && withheld(ctx) != nil
	})
}

// Names returns the names of the registered tools, unordered.
func (s *Set) Names() []string { return slices.Collect(maps.Keys(s.handlers)) }

// Announce has the SDK notify every client, once, that the list of tools changed, by registering
// one tool again.
func (s *Set) Announce() { s.MCP.AddTool(s.first, dispatched) }

type dispatchKey struct{}

// Dispatch has next execute a call with the handler of its tool. A tool that is not registered with
// the SDK is called under the name of one that is.
func (s *Set) Dispatch(ctx context.Context, c *Caller, req *mcp.CallToolRequest, next mcp.MethodHandler, method string) (mcp.Result, error) {
	registered := *req
	do := s.handlers[req.Params.Name]
	if do == nil {
		if s.Unregistered != nil {
			do = s.Unregistered(ctx, req.Params.Name)
		}
		if do == nil {
			// The other tools log their calls themselves.
			unknown := CallLog{Tool: jsontext.Clip(req.Params.Name, 200), identity: c.Identity, stack: c.Workflows.Stack()}
			s.Logger.LogAttrs(ctx, slog.LevelInfo, "call of an unknown tool", unknown.attrs(nil)...)
			if near := jsontext.Nearest(req.Params.Name, s.Names()); near != "" {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("unknown tool %q: did you mean %s? tools/list has all of them", req.Params.Name, near)}
			}
			return next(ctx, method, req) // the SDK refuses it
		}
		params := *req.Params
		params.Name = s.first.Name
		registered.Params = &params
	}
	carryOut := func(ctx context.Context) (*mcp.CallToolResult, error) { return do(ctx, c, req) }
	return next(context.WithValue(ctx, dispatchKey{}, carryOut), method, &registered)
}

// dispatched is the SDK's handler of every registered tool.
func dispatched(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return ctx.Value(dispatchKey{}).(func(context.Context) (*mcp.CallToolResult, error))(ctx)
}

// Serve wraps every tool call: logs, metrics, recovery from panics, and the checks before the
// tool's own work. log has the tool's name; decode decodes the arguments for work, which returns
// the reply.
func (s *Set) Serve(ctx context.Context, c *Caller, req *mcp.CallToolRequest, log CallLog, decode func(*CallLog) *session.Error,
	work func(context.Context) (reply any, err error)) (res *mcp.CallToolResult, err error) {
	if log.outcomeOf == nil {
		log.outcomeOf = outcomeOf
	}
	var reply any
	log.logger, log.metrics, log.identity, log.began = s.Logger, &s.metrics, c.Identity, time.Now()
	defer s.InFlight.begin(&log)()
	defer func() {
		if p := recover(); p != nil {
			log.failed(slog.LevelError, slog.Any("panic", p), slog.String("trace", string(debug.Stack())))
			res, err = s.broken(log.Tool), nil
			log.outcome = "panic"
		}
		if kind := errorKind(log.outcome, res, err); kind != "" {
			log.level = max(log.level, slog.LevelInfo)
			s.metrics.errors.WithLabelValues(log.label(), kind).Inc()
		}
		log.end(ctx, reply)
	}()

	fault := decode(&log)
	log.begin(ctx, c.Workflows)
	if fault == nil && s.Check != nil {
		if _, err := s.Check(ctx); err != nil {
			fault = BadConfig(err)
		}
	}
	if fault != nil {
		log.outcome = fault.Code
		return refused(fault), nil
	}
	ctx, quiet := s.withProgress(s.withAsk(ctx, req), req)
	defer quiet() // before the reply is sent
	reply, err = work(ctx)
	if err == nil {
		log.outcome = log.outcomeOf(reply)
		if res, err = accepted(reply); err != nil {
			err = fmt.Errorf("encoding the reply: %w", err)
		} else if n := len(res.StructuredContent.(json.RawMessage)); n > MaxReplyBytes {
			err = s.tooLarge(log.Tool, n, reply)
		} else {
			return res, nil
		}
	}
	res, err = s.failed(ctx, &log, err)
	return res, err
}

// BadConfig returns the error of every call while the config was never good, or while the server cannot be
// used for another reason, which err says.
func BadConfig(err error) *session.Error {
	if e, is := errors.AsType[*session.Error](err); is {
		return e
	}
	return session.NotNow(codes.ConfigInvalid,
		"The configuration is not valid: %v. Correct the file that this names, .deepwork/config.yml or your own config, and call again; no restart is needed.", err).Because(err)
}
