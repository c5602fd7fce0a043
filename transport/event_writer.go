package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What the SDK writes around a message.
const (
	eventHead = "event: message\ndata: "
	eventTail = "\n\n"
)

// An eventWriter writes the events that answer one call.
type eventWriter struct {
	w        http.ResponseWriter
	statuses bool // some errors are told by the status, where nothing has been written
	begun    bool
}

// statusOf is the status of an answer that is an error, where it is not an event: as
// the newest version of the protocol has it.
func statusOf(err error) int {
	fault, ok := err.(*jsonrpc.Error)
	switch {
	case !ok:
		return 0
	case fault.Code == jsonrpc.CodeMethodNotFound:
		return http.StatusNotFound
	case fault.Code == jsonrpc.CodeInvalidParams:
		return http.StatusBadRequest
	}
	return 0
}

func (e *eventWriter) begin() {
	if !e.begun {
		head := e.w.Header()
		head.Set("Cache-Control", "no-cache, no-transform")
		head.Set("Content-Type", "text/event-stream")
		e.begun = true
	}
}

// progress writes a notification, which goes out at once. It is not called at the same
// time as answer.
func (e *eventWriter) progress(_ context.Context, p *mcp.ProgressNotificationParams) error {
	params, err := encode(p)
	if err != nil {
		return err
	}
	e.begin()
	event := append(append([]byte(eventHead+`{"jsonrpc":"2.0","method":"notifications/progress","params":`), params...), "}"+eventTail...)
	if _, err := e.w.Write(event); err != nil {
		return err
	}
	return http.NewResponseController(e.w).Flush()
}

// answer writes the last event; it goes out as the request ends. That a client is gone
// is not to be told to anybody.
func (e *eventWriter) answer(id jsonrpc.ID, result encodedResult, err error) {
	if status := statusOf(err); e.statuses && !e.begun && status != 0 {
		e.w.Header().Set("Cache-Control", "no-cache, no-transform")
		e.w.Header().Set("Content-Type", "application/json")
		e.w.WriteHeader(status)
		_, _ = e.w.Write(errorMessage(id, err))
		return
	}
	e.begin()
	var event bytes.Buffer
	event.WriteString(eventHead)
	if err == nil {
		err = writeAnswer(&event, id, result)
	}
	if err != nil {
		event.Truncate(len(eventHead))
		event.Write(errorMessage(id, err))
	}
	event.WriteString(eventTail)
	_, _ = e.w.Write(event.Bytes())
}

// errorMessage is the answer to a call that is an error.
func errorMessage(id jsonrpc.ID, err error) []byte {
	message, failed := appendMessage(nil, &jsonrpc.Response{ID: id, Error: err})
	if failed != nil {
		return []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"the answer could not be written"}}`)
	}
	return message
}

// writeAnswer writes the message that has a result.
func writeAnswer(b *bytes.Buffer, id jsonrpc.ID, result encodedResult) error {
	head, err := json.Marshal(id.Raw())
	if err != nil {
		return err
	}
	data, err := result.MarshalJSON()
	if err != nil {
		return err
	}
	b.Grow(len(data) + len(head) + 64)
	b.WriteString(`{"jsonrpc":"2.0","id":`)
	b.Write(head)
	b.WriteString(`,"result":`)
	b.Write(data)
	b.WriteByte('}')
	return nil
}
