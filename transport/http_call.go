package transport

import (
	"context"
	"encoding/json"
	"mime"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// callDirectly carries out a POST to an MCP session that holds one call of a tool,
// past the SDK, and reports whether it did: on that way a call is decoded once, and
// runs and is answered on the goroutine that brought it. It costs a third of what the
// SDK's takes, which hands it on between five. Whatever is out of the ordinary about
// a request is left to the SDK, which says what is wrong with it.
//
// The answer is the stream of events that the SDK would give, so that a client sees
// no difference.
func (h *HTTPServer) callDirectly(w http.ResponseWriter, r *http.Request, conn *connection) bool {
	body, ok := r.Body.(*readBody)
	if !ok {
		return false
	}
	for i := range body.messages {
		conn.asked.heed(&body.messages[i])
	}
	if len(body.messages) != 1 || isBatch(body.data) || !isOrdinary(r.Header) || conn.ss.InitializeParams() == nil {
		return false
	}
	c, id, ok := ordinaryCall(&body.messages[0])
	if !ok {
		return false
	}
	done, ok := h.server.conns.hold(conn)
	if !ok {
		return false // it is ending
	}
	defer done()
	ctx, cancel := context.WithCancelCause(conn.ctx)
	defer cancel(nil)
	if !conn.asked.add(id, cancel) {
		refuseID(w, id)
		return true
	}
	defer conn.asked.remove(id)
	// A client that hangs up has not cancelled its call, which goes on; its connection
	// is not to stay open for that.
	defer context.AfterFunc(r.Context(), func() { release(r) })()

	h.direct.Add(1)
	events := &eventWriter{w: w}
	c.notify = events.progress
	result, err := h.server.call(ctx, conn, c)
	conn.asked.remove(id) // the client may use it again as soon as it has the answer
	events.answer(id, result, err)
	return true
}

// isOrdinary tells whether the headers of a POST are those of a client that does what
// MCP says, in a version with sessions.
func isOrdinary(header http.Header) bool {
	switch header.Get("Mcp-Protocol-Version") {
	case "", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25":
	default:
		return false
	}
	return isJSON(header.Get("Content-Type")) && takesBoth(header.Values("Accept")) && header.Values("Last-Event-Id") == nil
}

// isJSON tells whether a content type is JSON's, whatever its parameters are.
func isJSON(kind string) bool {
	if kind == "application/json" {
		return true
	}
	base, _, err := mime.ParseMediaType(kind)
	return err == nil && base == "application/json"
}

// takesBoth tells whether a client takes JSON and streams of events, as it has to.
func takesBoth(accept []string) bool {
	var object, stream bool
	for _, line := range accept {
		for kind := range strings.SplitSeq(line, ",") {
			kind, _, _ = strings.Cut(kind, ";")
			switch strings.TrimSpace(kind) {
			case "application/json":
				object = true
			case "text/event-stream":
				stream = true
			case "*/*":
				return true
			}
		}
	}
	return object && stream
}

// ordinaryCall takes a message apart that is a call of a tool and has nothing in it
// but what a call needs.
func ordinaryCall(m *enveloped) (c *toolCall, id jsonrpc.ID, ok bool) {
	if string(m.method) != `"`+toolsCall+`"` || string(m.version) != `"2.0"` {
		return nil, id, false
	}
	id, err := decodeID(m.id)
	if err != nil || !id.IsValid() {
		return nil, id, false
	}
	var params map[string]json.RawMessage
	if json.Unmarshal(m.params, &params) != nil {
		return nil, id, false
	}
	c = &toolCall{}
	for name, value := range params {
		switch name {
		case "name":
			if json.Unmarshal(value, &c.name) != nil {
				return nil, id, false
			}
		case "arguments":
			if kindOf(value) != "object" {
				return nil, id, false
			}
			c.arguments = value
		case "_meta":
			if c.token, ok = ordinaryMeta(value); !ok {
				return nil, id, false
			}
		default:
			return nil, id, false
		}
	}
	return c, id, c.name != ""
}

// ordinaryMeta returns the progress token of a call, or nil, unless there is something
// in its _meta that MCP gives a meaning to.
func ordinaryMeta(raw json.RawMessage) (token any, ok bool) {
	var meta map[string]json.RawMessage
	if json.Unmarshal(raw, &meta) != nil {
		return nil, false
	}
	for name, value := range meta {
		if strings.HasPrefix(name, "io.modelcontextprotocol/") {
			return nil, false
		}
		if name != "progressToken" || isNull(value) {
			continue
		}
		given, err := decodeID(value) // it is made as an id is
		if err != nil {
			return nil, false
		}
		token = given.Raw()
	}
	return token, true
}

// refuseID answers a call whose id another one of the session has that is not
// answered yet, as the SDK does.
func refuseID(w http.ResponseWriter, id jsonrpc.ID) {
	data, err := appendMessage(nil, &jsonrpc.Response{ID: id, Error: &jsonrpc.Error{
		Code: jsonrpc.CodeInvalidRequest, Message: "duplicate id " + clip(idText(id), 100) + ": the request that has it is not answered yet; give each an id of its own",
	}})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = w.Write(data) // a client that is gone needs no answer
}

func idText(id jsonrpc.ID) string {
	text, err := json.Marshal(id.Raw())
	if err != nil {
		return "?"
	}
	return string(text)
}
