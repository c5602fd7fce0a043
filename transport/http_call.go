package transport

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Calls of tools over streamable HTTP go past the SDK where there is nothing out of
// the ordinary about them: so a call is decoded once, and runs and is answered on the
// goroutine that brought it. It costs a third of what the SDK's way does, which hands
// it on between five. All else is left to the SDK, which says what is wrong with it.
// The answer is the stream of events that the SDK would give, so that a client sees
// no difference.

// callInSession carries out a POST to an MCP session if it holds one call of a tool
// and is as it should be, and reports whether it did.
func (h *HTTPServer) callInSession(w http.ResponseWriter, r *http.Request, conn *connection) bool {
	body, ok := r.Body.(*readBody)
	if !ok {
		return false
	}
	switch r.Header.Get("Mcp-Protocol-Version") {
	case "", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25":
	default:
		return false
	}
	if isJSON(r.Header.Get("Content-Type")) { // else it is refused
		for i := range body.messages {
			conn.asked.heed(&body.messages[i])
		}
	}
	c, ok := ordinaryCall(r.Header, body)
	if !ok || c.meta.newest != nil || conn.ss.InitializeParams() == nil {
		return false
	}
	done, ok := h.server.conns.hold(conn)
	if !ok {
		return false // it is ending
	}
	done = sync.OnceFunc(done)
	defer done()
	ctx, cancel := context.WithCancelCause(conn.ctx)
	defer cancel(nil)
	remove := conn.asked.add(c.id, cancel)
	if remove == nil {
		refuseID(w, c.id)
		return true
	}
	defer remove()
	// A client that hangs up has not cancelled its call, which goes on; its connection
	// is not to stay open for that.
	defer context.AfterFunc(r.Context(), func() { release(r) })()

	h.direct.Add(1)
	events := &eventWriter{w: w}
	result, err := h.server.call(ctx, conn, c.told(events.progress))
	// Its client may use the id again as soon as it has the answer, and one that does
	// not read it keeps nothing from ending.
	remove()
	done()
	events.answer(c.id, encodedResult{CallToolResult: result, typed: isTyped(conn.ss)}, err)
	return true
}

// callAlone is callInSession for the newest version of the protocol, which has no
// sessions. There a client that hangs up has cancelled its call.
func (h *HTTPServer) callAlone(w http.ResponseWriter, r *http.Request) bool {
	body, ok := r.Body.(*readBody)
	if !ok || r.Header.Get("Mcp-Protocol-Version") != statelessSince || r.Header.Get("Mcp-Method") != toolsCall {
		return false
	}
	c, ok := ordinaryCall(r.Header, body)
	if !ok || c.meta.newest == nil || !c.meta.newest.fits(statelessSince) || r.Header.Get("Mcp-Name") != c.name {
		return false
	}
	conn, done, err := h.server.conns.acquire(r.Context(), nil)
	if err != nil {
		return false
	}
	done = sync.OnceFunc(done)
	defer done()
	ctx, cancel := context.WithCancelCause(conn.ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.Context(), func() { cancel(nil) })()

	h.direct.Add(1)
	events := &eventWriter{w: w, statuses: true}
	result, err := h.server.call(ctx, conn, c.told(events.progress))
	done()
	if err == nil {
		result = h.server.signed(result)
	}
	events.answer(c.id, encodedResult{CallToolResult: result, typed: true}, err)
	return true
}

// signed is a result that says whose it is, as the newest version of the protocol
// asks.
func (s *Server) signed(result *mcp.CallToolResult) *mcp.CallToolResult {
	with := *result
	with.Meta = maps.Clone(result.Meta)
	if with.Meta == nil {
		with.Meta = mcp.Meta{}
	}
	with.Meta[mcp.MetaKeyServerInfo] = s.impl
	return &with
}

// refuseID answers a call whose id another one of the session has that is not
// answered yet, as the SDK does.
func refuseID(w http.ResponseWriter, id jsonrpc.ID) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = w.Write(errorMessage(id, &jsonrpc.Error{ // a client that is gone needs no answer
		Code: jsonrpc.CodeInvalidRequest, Message: "duplicate id " + clip(idText(id), 100) + ": the request that has it is not answered yet; give each an id of its own",
	}))
}

func idText(id jsonrpc.ID) string {
	text, err := json.Marshal(id.Raw())
	if err != nil {
		return "?"
	}
	return string(text)
}
