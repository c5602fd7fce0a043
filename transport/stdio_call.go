package transport

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session/run"
)

// pastSDK returns what carries out calls of tools that come over a stdio connection
// past the SDK, as those over HTTP are, and reports whether it did. It is called by
// one goroutine, with each request and notification, and returns when the call has
// begun.
func (s *Server) pastSDK(c *stdio, ss *mcp.ServerSession, conn *connection) func(*jsonrpc.Request) bool {
	notify := func(ctx context.Context, p *mcp.ProgressNotificationParams) error {
		params, err := encode(p)
		if err != nil {
			return err
		}
		return c.Write(ctx, &jsonrpc.Request{Method: "notifications/progress", Params: params})
	}
	return func(req *jsonrpc.Request) bool {
		if !req.IsCall() {
			if req.Method == "notifications/cancelled" {
				conn.asked.cancel(req.Params)
			}
			return false
		}
		o := &ordinary{id: req.ID}
		if req.Method != toolsCall || !o.takeParams(req.Params) || o.name == "" {
			return false
		}
		newest := o.meta.newest != nil
		if newest && !o.meta.newest.fits(statelessSince) || !newest && ss.InitializeParams() == nil {
			return false
		}
		done, ok := s.conns.hold(conn)
		if !ok {
			return false // it is ending
		}
		ctx, cancel := context.WithCancelCause(run.WithLeaving(conn.ctx, conn.leaving))
		remove := conn.asked.add(o.id, cancel)
		if remove == nil { // the connection has looked for that
			cancel(nil)
			done()
			return false
		}
		c.past.Add(1)
		begun := make(chan struct{})
		go func() { // done is waited for by who closes the connection
			close(begun)
			result, err := s.call(ctx, conn, o.told(notify))
			remove()
			cancel(nil)
			done()
			resp := &jsonrpc.Response{ID: o.id}
			if err == nil {
				if newest {
					result = s.signed(result)
				}
				resp.Result, err = encodedResult{CallToolResult: result, typed: newest || isTyped(ss)}.MarshalJSON()
			}
			if err != nil {
				resp.Result, resp.Error = nil, err
			}
			_ = c.Write(context.Background(), resp) // a connection that is broken says so itself
		}()
		<-begun
		return true
	}
}
