package transport

import (
	"context"
	"log/slog"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A handler carries out the calls of one tool. The error is for the protocol: what
// the caller is to read is a result.
type handler func(context.Context, *connection, *mcp.CallToolRequest) (*mcp.CallToolResult, error)

type dispatchKey struct{}

// dispatch has next carry out a call with the handler of its tool. A workflow's tool
// is not registered with the SDK, so its call goes on under the name of one that is.
func (s *Server) dispatch(ctx context.Context, conn *connection, req *mcp.CallToolRequest, next mcp.MethodHandler, method string) (mcp.Result, error) {
	registered := *req
	do := s.tools[req.Params.Name]
	if do == nil {
		if do = s.workflowTool(ctx, req.Params.Name); do == nil {
			// Tools that there are log their calls themselves.
			s.logger.LogAttrs(ctx, slog.LevelInfo, "call of an unknown tool",
				slog.String("tool", clip(req.Params.Name, 200)), stackAttr(conn.agent.Stack()))
			return next(ctx, method, req) // the SDK refuses it
		}
		params := *req.Params
		params.Name = s.anyTool
		registered.Params = &params
	}
	carryOut := func(ctx context.Context) (*mcp.CallToolResult, error) { return do(ctx, conn, req) }
	return next(context.WithValue(ctx, dispatchKey{}, carryOut), method, &registered)
}

// dispatched is the SDK's handler of every registered tool.
func dispatched(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return ctx.Value(dispatchKey{}).(func(context.Context) (*mcp.CallToolResult, error))(ctx)
}
