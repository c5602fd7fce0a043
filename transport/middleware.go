package transport

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session"
	"deepwork/transport/tool"
)

// receive is the middleware for all requests: it recovers from panics of handlers, gives the
// request its caller's connection and a context that ends with the server, computes the
// instructions when they are requested, and finds the handler of a called tool.
func (s *Server) receive(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		defer func() {
			if p := recover(); p != nil {
				res, err = nil, s.survived(ctx, method, p)
			}
		}()
		ss, ok := req.GetSession().(*mcp.ServerSession)
		if !ok || strings.HasPrefix(method, "notifications/") {
			return next(ctx, method, req)
		}
		if undeclared[method] || s.library == nil && offered[method] {
			return nil, notOffered(method)
		}
		who := session.CallerOf(ctx)
		if who == (session.Caller{}) { // a transport must set it
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "it is not known who makes this call, so it is refused"}
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
		if call, ok := req.(*mcp.CallToolRequest); ok {
			res, err := s.tools.Dispatch(ctx, &tool.Caller{Caller: who, Workflows: conn.workflows}, call, next, method)
			if called, ok := res.(*mcp.CallToolResult); ok && called != nil {
				return encoded(called), err
			}
			return res, err
		}
		if list, ok := req.(*mcp.ListToolsRequest); ok && s.tools.Unregistered != nil {
			res, err = s.remote.ListTools(ctx, next, method, list)
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
			changed := *r
			changed.Instructions = s.instructions(ctx)
			res = &changed
		case *mcp.DiscoverResult:
			changed := *r
			changed.Instructions = s.instructions(ctx)
			res = &changed
		}
		return res, nil
	}
}

// survived logs a panic of a handler and returns the answer.
func (s *Server) survived(ctx context.Context, method string, p any) error {
	s.logger.LogAttrs(ctx, slog.LevelError, "panic while handling a request",
		slog.String("method", method), slog.Any("panic", p), slog.String("trace", string(debug.Stack())))
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError,
		Message: fmt.Sprintf("%s failed because of an error in the server; the server still runs, so try again", method)}
}
