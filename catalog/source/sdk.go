package source

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// This file has everything that relies on undocumented behavior of the MCP SDK. sdk_test.go fails if an
// upgrade breaks one of these:
//
//   - The SDK decodes the results of tools into maps and floats, which lose the order
//     of keys, the digits of large numbers and fields that it does not know. So tools
//     are called by a custom method, whose results stay raw (reply), and which gets its
//     real name on the way out. A connection over HTTP cannot be wrapped, since the SDK
//     tells its own type when the session has started; so there, the name is replaced in
//     the request (rename).
//   - A value in the context of a call is in the context with which its message is
//     written, and of its HTTP request.
//   - A response of HTTP with status 400 and a JSON-RPC error fails its own call alone,
//     with that error; one with status 502 also fails its own call alone.
//   - The error of a message that could not be sent wraps code -32005.
//   - The error with which the connection's Read ends wraps that of rawConn.Read.
//   - That of a connection over HTTP contains these words if an answer cannot be read (undecoded).
const (
	callMethod   = "tools/call"
	raw          = "deepwork/" // prefix of the names of methods with raw results
	rejectedCode = -32005
)

// A callRequest is one call of a source's tool, or a request about a task.
type callRequest struct {
	mcp.ParamsBase
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	TaskID    string          `json:"taskId,omitempty"`

	mayBeTask bool // the answer may be a task
}

var undecoded = regexp.MustCompile("failed to decode (response|event)|malformed event|the answer is larger than")

type renamedError struct{ error }

// Error returns the text with the real name.
func (e renamedError) Error() string {
	return strings.ReplaceAll(e.error.Error(), raw, "")
}

// Unwrap returns the original error.
func (e renamedError) Unwrap() error { return e.error }

// errorOf returns the error with which the source answered a request, or nil. Other JSON-RPC errors say why
// nothing was sent, or why a connection broke.
func errorOf(err error) *jsonrpc.Error {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	if _, lost := errors.AsType[transportError](err); !ok || lost || e.Code == rejectedCode {
		return nil
	}
	return e
}

// A rawConn is the connection to a command. It renames the method with raw results.
type rawConn struct{ mcp.Connection }

// Read implements mcp.Connection. It returns a transportError, so that the waiting calls do not mistake the
// error for an answer.
func (c rawConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if err != nil {
		return nil, transportError{err}
	}
	return m, nil
}

// Write implements mcp.Connection.
func (c rawConn) Write(ctx context.Context, m jsonrpc.Message) error {
	if r, ok := m.(*jsonrpc.Request); ok {
		if call := callIn(ctx); call != nil {
			call.sent.Store(true)
		}

		if method, ok := strings.CutPrefix(r.Method, raw); ok {
			renamed := *r
			renamed.Method = method
			m = &renamed
		}
	}
	return c.Connection.Write(ctx, m)
}
