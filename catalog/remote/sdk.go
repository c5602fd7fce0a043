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
//     the digits of large numbers, and accepts no list of tools if one of them is
//     malformed. So both are called as custom methods, whose results stay raw, and
//     get their real names on the way out: in the message (rawConn), or in the
//     encoded message, which has its method before its parameters (renameBody).
//   - A value in the context of a call is in the context with which its message is
//     written, and of its HTTP request.
//   - An HTTP response that is an error with a JSON-RPC error in its body fails its
//     own call alone, with that error.
//   - The error of a message that could not be sent wraps code -32005.
//   - The error with which the connection's Read ends wraps that of rawConn.Read.
const (
	rawPrefix     = "deepwork/"
	rawCallMethod = rawPrefix + "tools/call"
	rawListMethod = rawPrefix + "tools/list"
	rejectedCode  = -32005
	methodHeader  = "Mcp-Method" // of the newest version of MCP, as in the body
	nameHeader    = "Mcp-Name"
)

// A callRequest is one call of a source's tool.
type callRequest struct {
	mcp.ParamsBase
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// A listRequest asks for a page of a source's tools.
type listRequest struct {
	mcp.ParamsBase
	Cursor string `json:"cursor,omitempty"`
}

// A listReply is a page of a source's tools.
type listReply struct {
	mcp.ResultBase
	Names      []string
	NextCursor string
}

// UnmarshalJSON implements json.Unmarshaler. It takes the names that it finds.
func (r *listReply) UnmarshalJSON(data []byte) error {
	var in struct {
		Tools      []json.RawMessage `json:"tools"`
		NextCursor json.RawMessage   `json:"nextCursor"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return fmt.Errorf("its answer is no list of tools: %w", err)
	}
	for _, raw := range in.Tools {
		var tool struct {
			Name string `json:"name"`
		}
		if json.Unmarshal(raw, &tool) == nil {
			r.Names = append(r.Names, tool.Name)
		}
	}
	textOf(in.NextCursor, &r.NextCursor)
	return nil
}

// registerRaw lets a client send the methods with raw results.
func registerRaw(c *mcp.Client) error {
	if err := mcp.AddSendingCustomMethod[*listRequest, *listReply](c, rawListMethod); err != nil {
		return err
	}
	return mcp.AddSendingCustomMethod[*callRequest, *reply](c, rawCallMethod)
}

// listRaw asks for a page of tools.
func listRaw(ctx context.Context, s *mcp.ClientSession, r *listRequest) (*listReply, error) {
	page, err := mcp.CallCustomMethod[*listRequest, *listReply](ctx, s, rawListMethod, r)
	return page, realName(err)
}

// callRaw calls a tool.
func callRaw(ctx context.Context, s *mcp.ClientSession, r *callRequest) (*reply, error) {
	answer, err := mcp.CallCustomMethod[*callRequest, *reply](ctx, s, rawCallMethod, r)
	return answer, realName(err)
}

// realName makes an error name the method as the source knows it.
func realName(err error) error {
	if err == nil {
		return nil
	}
	return renamedError{err}
}

type renamedError struct{ error }

// Error returns the text with the real names.
func (e renamedError) Error() string {
	return strings.ReplaceAll(e.error.Error(), rawPrefix+"tools/", "tools/")
}

// Unwrap returns the error as it was.
func (e renamedError) Unwrap() error { return e.error }

// renameBody gives an encoded message the real name of its method.
func renameBody(body []byte) []byte {
	return bytes.Replace(body, []byte(`"method":"`+rawPrefix), []byte(`"method":"`), 1)
}

// errorOf returns the error with which the source has answered a request, or nil: an
// error of JSON-RPC is also why nothing was sent, or why a connection broke.
func errorOf(err error) *jsonrpc.Error {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	if _, lost := errors.AsType[transportError](err); !ok || lost || e.Code == rejectedCode || e.Code == unansweredCode {
		return nil
	}
	return e
}

// unansweredCode marks the errors that stand in for an HTTP response which is no
// answer to its call.
const unansweredCode = -32098

// A wireMessage is a message of JSON-RPC.
type wireMessage struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// failure returns a message that fails the request of this id.
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

// A rawConn is the connection to a command. It renames the methods with raw results,
// and ends if the command goes on sending while it does not read the answers to its
// own requests: the SDK queues those without a bound.
type rawConn struct {
	mcp.Connection

	mu   sync.Mutex
	open map[jsonrpc.ID]bool // requests that are not answered
	size int                 // bytes, about, of requests and notifications since one has been open
}

// Read implements mcp.Connection. The error is a transportError, so that it is not
// taken for an answer to the calls that wait.
func (c *rawConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if err != nil {
		return nil, transportError{err}
	}
	if r, ok := m.(*jsonrpc.Request); ok && !c.accept(r) {
		return nil, transportError{errors.New("it goes on sending, and does not read what its requests are answered")}
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
