package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog/jsontext"
)

// maxAsked is how many requests of the source's own may wait for their answers.
const maxAsked = 1000

// maxAskedID is how long the id of one may be, in bytes.
const maxAskedID = 1000

// take deals with one message of the source's: the answer to the call ends it, what
// else may come on the way is seen to, and what cannot be read is let be.
func (x *exchange) take(ctx context.Context, data []byte) (*reply, error) {
	var m wireMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, x.unreadable(data, err)
	}
	switch {
	case m.Method == "" && x.isMine(m.ID):
		return answerOf(&m)
	case m.Method == "": // of another call; nobody waits for it here
	case !jsontext.IsNull(m.ID):
		x.answerLater(ctx, m)
	case m.Method == "notifications/progress":
		var params mcp.ProgressNotificationParams
		if json.Unmarshal(m.Params, &params) == nil {
			x.link.route(&params)
		}
	case m.Method == "notifications/tools/list_changed":
		x.link.hearChange()
	}
	return nil, nil
}

// unreadable is the error of an answer that is there and cannot be read; nil: it is
// none, or was cut off.
func (x *exchange) unreadable(data []byte, why error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](why); ok && syntax.Offset >= int64(len(data)) {
		return nil
	}
	if id := answered(withoutNaN(data)); id == nil || !x.isMine(id) {
		return nil
	}
	if json.Valid(data) {
		return &RefusedError{Text: fmt.Sprintf("its answer is not what JSON-RPC asks of one: %v", why)}
	}
	return &RefusedError{Text: fmt.Sprintf("its answer is not JSON: %v; NaN and Infinity, for example, have no place in it", why)}
}

// answerOf is what the answer to a call says.
func answerOf(m *wireMessage) (*reply, error) {
	if !jsontext.IsNull(m.Error) {
		var e jsonrpc.Error
		if err := json.Unmarshal(m.Error, &e); err != nil {
			return nil, &RefusedError{Text: "its answer is an error that is not what JSON-RPC asks of one: " + jsontext.Clip(string(m.Error), 200)}
		}
		return nil, &RefusedError{Text: jsontext.Clip(e.Message, maxErrorText)}
	}
	return replyOf(m.Result)
}

// replyOf reads the result of a call.
func replyOf(result json.RawMessage) (*reply, error) {
	r := &reply{}
	if err := r.UnmarshalJSON(result); err != nil {
		return nil, &RefusedError{Text: fmt.Sprintf("its answer cannot be read: %v", err)}
	}
	return r, nil
}

// answerLater has a request of the source's own answered, in turn, beside what goes on
// here: the answer to the call may stand right behind it. One too many is not.
func (x *exchange) answerLater(ctx context.Context, m wireMessage) {
	if len(m.ID) > maxAskedID {
		return
	}
	if x.asked == nil {
		asked := make(chan wireMessage, maxAsked) // closed by endAnswers
		if !x.link.begin(func() {
			for m := range asked {
				if ctx.Err() == nil {
					x.answer(ctx, &m)
				}
			}
		}) {
			return
		}
		x.asked = asked
	}
	select {
	case x.asked <- wireMessage{ID: bytes.Clone(m.ID), Method: jsontext.Clip(strings.ToValidUTF8(m.Method, "?"), 100)}:
	default:
	}
}

// endAnswers has the answers end when those that wait are sent, or with the request.
func (x *exchange) endAnswers() {
	if x.asked != nil {
		close(x.asked)
		x.asked = nil
	}
}

// answer answers a request of the source's own: it may ask whether we are there, and
// has been told that we offer nothing else.
func (x *exchange) answer(ctx context.Context, m *wireMessage) {
	back := &wireMessage{Version: "2.0", ID: m.ID, Result: json.RawMessage(`{}`)}
	if m.Method != "ping" {
		fault, err := json.Marshal(&jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found: " + strconv.Quote(m.Method)})
		if err != nil {
			return
		}
		back.Result, back.Error = nil, fault
	}
	_ = x.notify(ctx, back) // a source that does not take its answer has none
}
