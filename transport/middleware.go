package transport

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/telemetry"
	"deepwork/session"
	"deepwork/transport/tasks"
	"deepwork/transport/tool"
)

// This server relies on the following behavior of the MCP SDK, which the SDK does not document. If a test of
// sdk_test.go (against the bare SDK) or of cancelled and lost calls fails after an upgrade, correct the code that is
// named here.
//
//   - The handler of a call is that of the tool that middleware puts into the request,
//     and middleware's context reaches it: tool.Set.Dispatch.
//   - Raw JSON goes in and out as it is, with its numbers and the order of its keys, but
//     for escapes: the arguments of a call, and structured content: tool.accepted.
//   - A tool that is registered again is one notification to each client:
//     tool.Set.Announce.
//   - tools/list has all registered tools in its first page, and refuses a cursor that
//     is not its own: remote.Tools.ListTools.
//   - A notification that cancels a call ends its context with the cause
//     context.Canceled; a connection that is lost ends it with another cause: byCaller in
//     tools/remote.
//   - ServerSession.Wait returns when no call is in flight any more: connections.
//   - The context of a session's calls has the values of the one that it was connected
//     with, and over streamable HTTP of its first request: session.CallerOf.
//   - Methods of capabilities that are not declared are answered: undeclared.
//   - A cancelled call is answered with an error, which wire.Stdio drops.
//   - A second stream of a session for messages from the server is refused:
//     web.standalone.
//   - jsonrpc.DecodeMessage refuses what ends the SDK's own connection over stdio: wire.Stdio.
//   - The result of a call is one line of JSON: wire.Stdio.

// undeclared are methods of a capability that the server does not declare; offered are those of capabilities that it
// declares only with the tools of workflows. The SDK would answer them with empty lists, which clients would take for
// support (found by MCP's conformance suite, SEP-2575).
var (
	undeclared = map[string]bool{"logging/setLevel": true}
	offered    = map[string]bool{
		"prompts/get":              true,
		"prompts/list":             true,
		"resources/list":           true,
		"resources/read":           true,
		"resources/templates/list": true,
	}
)

// receive is the middleware for all requests: it recovers from panics of handlers, gives the
// request its caller's connection and a context that ends with the server, computes the
// instructions when they are requested, and finds the handler of a called tool.
func (s *Server) receive(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		defer func() {
			if p := recover(); p != nil {
				s.logger.LogAttrs(ctx, slog.LevelError, "panic while handling a request",
					slog.String("method", method), slog.Any("panic", p), slog.String("trace", string(debug.Stack())))
				res, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError,
					Message: fmt.Sprintf("%s failed because of an error in the server; the server still runs, so "+
						"try again", method)}
			}
		}()

		ss, ok := req.GetSession().(*mcp.ServerSession)
		if !ok || strings.HasPrefix(method, "notifications/") {
			return next(ctx, method, req)
		}
		if undeclared[method] || s.library == nil && offered[method] {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound,
				Message: fmt.Sprintf("method not found: %q: this server does not offer it; tools/list lists its tools",
					method)}
		}

		who := session.CallerOf(ctx)
		if who == (session.Caller{}) { // a transport must set it
			return nil, &jsonrpc.Error{
				Code:    jsonrpc.CodeInternalError,
				Message: "it is not known who makes this call, so it is refused",
			}
		}
		if s.library != nil && s.library.needs(method) {
			s.library.refresh(ctx)
		}

		conn, done, err := s.conns.acquire(ctx, ss)
		if err != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error() + ": connect again"}
		}
		defer done()
		ctx, release := conn.joined(ctx)
		defer release()
		caller := &tool.Caller{Caller: who, Workflows: conn.workflows}
		if call, ok := req.(*mcp.CallToolRequest); ok {
			if telemetry.On() {
				caller.From = s.callSpan(who, call)
			}
			return s.tools.Dispatch(ctx, caller, call, next, method)
		}
		if s.tools.Tasks != nil && tasks.Is(method) {
			if ctx, err = tasks.Receive(ctx, caller, req); err != nil {
				return nil, err
			}
			if telemetry.On() {
				caller.From = s.callSpan(who, req)
			}
		}

		if list, ok := req.(*mcp.ListToolsRequest); ok && s.tools.Unregistered != nil {
			res, err = s.remote.ListTools(ctx, next, method, list)
		} else if again := conn.greeting.Load(); again != nil && method == "initialize" {
			res = again // the SDK would refuse it; some clients and proxies send it again after a pause
		} else {
			res, err = next(ctx, method, req)
		}
		if err != nil {
			return res, err
		}
		switch r := res.(type) {
		case *mcp.ListToolsResult:
			changed := *r
			changed.Tools = s.tools.Offered(ctx, r.Tools)
			res = &changed
		case *mcp.InitializeResult:
			conn.greeting.Store(r)
			changed := *r
			changed.Instructions = s.instructions(ctx)
			if r.Capabilities != nil && r.Capabilities.Extensions != nil { // of the newest protocol
				can := *r.Capabilities
				can.Extensions = nil
				changed.Capabilities = &can
			}
			res = &changed
		case *mcp.DiscoverResult:
			changed := *r
			changed.Instructions = s.instructions(ctx)
			res = &changed
		}
		return res, nil
	}
}

// needs reports whether the answer to a request depends on the current jobs.
func (l *library) needs(method string) bool {
	switch method {
	case "initialize", "server/discover", "prompts/list", "prompts/get", "resources/list", "resources/read":
		return true
	}
	return false
}

// callSpan returns the parent span of a call: the one that the caller names, else the one in which its agent was
// started.
func (s *Server) callSpan(who session.Caller, req mcp.Request) telemetry.Ref {
	var header http.Header
	if x := req.GetExtra(); x != nil {
		header = x.Header
	}
	from := telemetry.Received(req.GetParams().GetMeta(), header)
	switch {
	case from.IsValid():
	case s.agent != nil:
		from = s.agent(who.Identity)
	case who.Channel == session.ChannelStdio:
		from = telemetry.Own()
	}
	return from
}
