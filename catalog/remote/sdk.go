package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog/jsontext"
)

// This file holds all that relies on more of the MCP SDK than it documents.
// sdk_test.go fails if an upgrade breaks one of these:
//
//   - The SDK decodes results into maps and floats, which lose the order of keys and
//     the digits of large numbers. So tools are called by a custom method, whose
//     results stay raw, and which gets its real name on the way out: in the message
//     (rawConn), or in the encoded message, which has its method before its
//     parameters (renameBody).
//   - A value in the context of a call is in the context with which its message is
//     written, and of its HTTP request.
//   - An HTTP response that is an error with a JSON-RPC error in its body fails its
//     own call alone, with that error.
//   - The error of a message that could not be sent wraps code -32005.
//   - The error with which the connection's Read ends wraps that of rawConn.Read.
const (
	rawPrefix    = "deepwork/"
	rawMethod    = rawPrefix + "tools/call"
	rejectedCode = -32005
	methodHeader = "Mcp-Method" // of the newest version of MCP; equal to the body's
	nameHeader   = "Mcp-Name"
)

// A callRequest is one call of a source's tool.
type callRequest struct {
	mcp.ParamsBase
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// callRaw calls a tool. Its error has the source's name of the method.
func callRaw(ctx context.Context, s *mcp.ClientSession, r *callRequest) (*reply, error) {
	answer, err := mcp.CallCustomMethod[*callRequest, *reply](ctx, s, rawMethod, r)
	if err != nil {
		return nil, renamedError{err}
	}
	return answer, nil
}

type renamedError struct{ error }

// Error returns the text with the real name.
func (e renamedError) Error() string {
	return strings.ReplaceAll(e.error.Error(), rawMethod, "tools/call")
}

// Unwrap returns the original error.
func (e renamedError) Unwrap() error { return e.error }

// renameBody replaces the method of an encoded message by its real name.
func renameBody(body []byte) []byte {
	return bytes.Replace(body, []byte(`"method":"`+rawPrefix), []byte(`"method":"`), 1)
}

// errorOf returns the error with which the source answered a request, or nil: JSON-RPC errors are
// also why nothing was sent, or why a connection broke.
func errorOf(err error) *jsonrpc.Error {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	if _, lost := errors.AsType[transportError](err); !ok || lost || e.Code == rejectedCode || e.Code == unansweredCode {
		return nil
	}
	return e
}

// unansweredCode marks errors made from an HTTP response that does not answer its call.
const unansweredCode = -32098

// A wireMessage is a message of JSON-RPC.
type wireMessage struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// failure returns a message that fails the request with this id.
func failure(id json.RawMessage, code int64, format string, args ...any) []byte {
	fault, err := json.Marshal(&jsonrpc.Error{Code: code, Message: fmt.Sprintf(format, args...)})
	if err == nil {
		fault, err = jsontext.Encode(&wireMessage{Version: "2.0", ID: id, Error: fault})
	}
	if err != nil {
		panic(err) // texts and numbers always have a JSON form
	}
	return fault
}

// A rawConn is the connection to a command. It renames the methods with raw results, and ends if
// the command keeps sending while it does not read the answers to its own requests: the SDK queues
// those without a bound.
type rawConn struct {
	mcp.Connection
	calls awaited

	mu   sync.Mutex
	open map[jsonrpc.ID]bool // unanswered requests
	size int                 // approximate bytes of requests and notifications since one has been open
}

// Read implements mcp.Connection. The error is a transportError, so that it is not mistaken for an
// answer to the waiting calls.
func (c *rawConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if err != nil {
		return nil, transportError{err}
	}
	if r, ok := m.(*jsonrpc.Request); ok && !c.accept(r) {
		return nil, transportError{errors.New("it keeps sending requests and does not read the answers")}
	}
	return m, nil
}

// accept reports whether a message of the command is within the bound.
func (c *rawConn) accept(r *jsonrpc.Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.IsCall() {
		if c.open == nil {
			c.open = make(map[jsonrpc.ID]bool)
		}
		c.open[r.ID] = true
	}
	if len(c.open) > 0 {
		c.size += 1024 + len(r.Params)
	}
	return c.size <= maxUnread
}

// Write implements mcp.Connection.
func (c *rawConn) Write(ctx context.Context, m jsonrpc.Message) error {
	if r, ok := m.(*jsonrpc.Request); ok {
		if call := callIn(ctx); call != nil {
			call.sent.Store(true)
			if r.IsCall() {
				id := fmt.Sprint(r.ID.Raw())
				c.calls.add(id, call)
				context.AfterFunc(call.ctx, func() { c.calls.remove(id) })
			}
		}
		if method, raw := strings.CutPrefix(r.Method, rawPrefix); raw {
			renamed := *r
			renamed.Method = method
			m = &renamed
		}
	}
	err := c.Connection.Write(ctx, m)
	if r, ok := m.(*jsonrpc.Response); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		if delete(c.open, r.ID); len(c.open) == 0 {
			c.size = 0
		}
	}
	return err
}
