package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// toolsCall is the method that calls a tool.
const toolsCall = "tools/call"

// A toolCall is one call of a tool, whatever brought it here.
type toolCall struct {
	name      string
	arguments json.RawMessage
	token     any // what its progress is told under; nil: nobody wants to know
	notify    func(context.Context, *mcp.ProgressNotificationParams) error
}

// A handler carries out the calls of one tool. The error is for the protocol: what
// the caller is to read is a result.
type handler func(context.Context, *connection, *toolCall) (*mcp.CallToolResult, error)

// calledOverSDK is a call that the SDK has decoded.
func calledOverSDK(req *mcp.CallToolRequest) *toolCall {
	c := &toolCall{name: req.Params.Name, arguments: req.Params.Arguments}
	if req.Session != nil {
		c.token, c.notify = req.Params.GetProgressToken(), req.Session.NotifyProgress
	}
	return c
}

// call carries out a call; ctx is to end with the connection's. A tool that there is
// not is a protocol error, as MCP wants it.
func (s *Server) call(ctx context.Context, conn *connection, c *toolCall) (res *mcp.CallToolResult, err error) {
	defer func() {
		if p := recover(); p != nil {
			res, err = nil, s.survived(ctx, toolsCall, p)
		}
	}()
	do := s.tools[c.name]
	if do == nil {
		do = s.workflowTool(ctx, c.name)
	}
	if do == nil {
		// Tools that there are log their calls themselves.
		s.logger.LogAttrs(ctx, slog.LevelInfo, "call of an unknown tool",
			slog.String("tool", clip(c.name, 200)), stackAttr(conn.agent.Stack()))
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("unknown tool %q", c.name)}
	}
	return do(ctx, conn, c)
}
