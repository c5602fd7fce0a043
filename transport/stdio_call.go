package transport

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session/execution"
)

// carryOut has a call carried out past the SDK, if that can be, or notes that the SDK
// has it. While it has one, the next go there too: they begin in about the order in
// which they came.
func (c *stdio) carryOut(req *jsonrpc.Request) bool {
	direct := c.direct.Load()
	if !req.IsCall() {
		if direct != nil {
			(*direct)(req) // it may cancel one of those
		}
		return false
	}
	c.mu.Lock()
	call, known := c.calls[req.ID]
	alone := c.handed == 0
	c.mu.Unlock()
	if direct != nil && alone && known && !call.parked && (*direct)(req) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if call, known = c.calls[req.ID]; known && !call.parked {
		call.handed = true
		c.calls[req.ID] = call
		c.handed++
	}
	return false
}

// pastSDK returns what carries out calls of tools that come over a stdio connection
// past the SDK, as those over HTTP are, and reports whether it did. It is called by
// one goroutine, with each request and notification, and returns when the call is about
// to begin, so that calls begin in about the order in which they came.
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
		// The SDK makes a session of the first request that it gets.
		if ss.InitializeParams() == nil || newest && !(o.meta.newest.fits(statelessSince) && isTyped(ss)) {
			return false
		}
		done, ok := s.conns.hold(conn)
		if !ok {
			return false // it is ending
		}
		ctx, cancel := context.WithCancelCause(execution.WithLeaving(conn.ctx, conn.leaving))
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
			resp := &jsonrpc.Response{ID: o.id, Error: err}
			if err == nil {
				resp.Result, resp.Error = s.encodeAnswer(ctx, result, newest, newest || isTyped(ss))
			}
			if err := c.Write(context.Background(), resp); err != nil && c.failure() == nil {
				s.logger.LogAttrs(ctx, slog.LevelError, "an answer could not be written", slog.String("tool", o.name), slog.Any("error", err))
				_ = c.send(context.Background(), false, &jsonrpc.Response{ID: o.id, Error: wireError(errors.New("the answer could not be written"))})
			}
		}()
		<-begun
		return true
	}
}

// encodeAnswer encodes a result. What breaks over it is that call's error.
func (s *Server) encodeAnswer(ctx context.Context, result *mcp.CallToolResult, signed, typed bool) (data json.RawMessage, err error) {
	defer func() {
		if p := recover(); p != nil {
			data, err = nil, s.survived(ctx, toolsCall, p)
		}
	}()
	if signed {
		result = s.signed(result)
	}
	return encodedResult{CallToolResult: result, typed: typed}.MarshalJSON()
}
