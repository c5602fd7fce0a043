package source

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
)

// These tests fail if an upgrade of the SDK breaks what this package relies on.

const digits = `{"z":9007199254740993,"a":[1.10],"é":null}`

// answering is a server whose tool gives digits.
func answering(t *testing.T) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "t", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{}, StructuredContent: json.RawMessage(digits)}, nil
		})
	t.Cleanup(func() {
		for session := range s.Sessions() {
			session.Close()
		}
	})
	return s
}

// A memoryWire is a wire over pipes in memory.
type memoryWire struct {
	other mcp.Transport
	conn  *written
}

// A written connection notes with which call a tool was called.
type written struct {
	mcp.Connection
	call *call
	fail atomic.Pointer[jsonrpc.Error] // of Read, instead of the next message
}

func (c *written) Write(ctx context.Context, m jsonrpc.Message) error {
	if r, ok := m.(*jsonrpc.Request); ok && r.Method == "tools/call" {
		c.call = callIn(ctx)
	}
	return c.Connection.Write(ctx, m)
}

func (c *written) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if e := c.fail.Load(); e != nil {
		return nil, e
	}
	return m, err
}

func (w *memoryWire) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := w.other.Connect(ctx)
	w.conn = &written{Connection: c}
	return rawConn{w.conn}, err
}
func (w *memoryWire) transport() mcp.Transport { return w }
func (w *memoryWire) begun()                   {}
func (w *memoryWire) end()                     { w.conn.Close() }
func (w *memoryWire) leave(_ context.Context, f func()) {
	w.conn.Close()
	f()
}
func (w *memoryWire) reason(err error) error { return err }

func linkTo(t *testing.T, w wire) *link {
	t.Helper()
	l := testkit.Get(connect(t.Context(), w, Options{Version: "test"}, handshake)).Must(t)
	t.Cleanup(func() { l.close(context.Background()) })
	return l
}

func callTool(t *testing.T, l *link) (*reply, error) {
	return l.call(t.Context(), callMethod, &callRequest{Name: "t", Arguments: []byte(`{}`)}, nil)
}

func TestSDKPassesCallsOnAndTheirResultsRaw(t *testing.T) {
	ours, theirs := mcp.NewInMemoryTransports()
	testkit.Get(answering(t).Connect(t.Context(), theirs, nil)).Must(t)
	memory := &memoryWire{other: ours}
	server := answering(t)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	for name, w := range map[string]wire{"in memory": memory, "over HTTP": wireTo(t, serving(t, handler.ServeHTTP))} {
		l := linkTo(t, w)
		got, err := callTool(t, l)
		testkit.True(t, err == nil && string(got.Structured) == digits,
			"%s: a raw method is not sent under its real name, or its result is not raw: %+v, %v", name, got, err)
		testkit.Works(t, l.findTools(t.Context(), "t"), "%s: the list of tools is not read", name)
		testkit.True(t, l.has("t"), "%s: the list of tools is not read", name)
		l.close(t.Context())
		testkit.Equal(t, context.Cause(l.ctx), errClosed, "why the calls of %s end", name)
	}
	testkit.True(t, memory.conn.call != nil && memory.conn.call.sent.Load(),
		"the context of a call does not reach the write of its message")
}

func TestSDKFailsACallAloneOverARefusal(t *testing.T) {
	t.Parallel()
	var refuse atomic.Bool
	says := "no"
	server := answering(t)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	web := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if refuse.Load() && r.Method == http.MethodPost {
			http.Error(w, says, http.StatusTeapot)
			return
		}
		handler.ServeHTTP(w, r)
	})
	l := linkTo(t, wireTo(t, web))
	refuse.Store(true)
	_, err := callTool(t, l)
	_, lost := errors.AsType[transportError](err)
	testkit.True(t, lost && err.Error() == "calling a tool: 418 I'm a teapot",
		"a refusal does not come back as the call's error: %v", err)

	says = `{"jsonrpc":"2.0","id":1,"error":{"code":7,"message":"out of cheese"}}`
	_, err = callTool(t, l)
	refused, ok := errors.AsType[*RefusedError](err)
	testkit.True(t, ok && refused.Text == "out of cheese",
		"an error in the body of a response does not come back as the call's error: %v", err)

	refuse.Store(false)
	testkit.Works(t, testkit.Get(callTool(t, l)).Err(), "a refused call has ended the session")
	web.CloseClientConnections()
	web.Close()
	e, ok := errors.AsType[*jsonrpc.Error](l.session.Ping(t.Context(), nil))
	testkit.True(t, ok && e.Code == rejectedCode,
		"the error of a message that could not be sent has not the code %d: %v", rejectedCode, e)
}

func TestSDKGivesTheErrorOfReadToTheCallsInFlight(t *testing.T) {
	ours, theirs := mcp.NewInMemoryTransports()
	testkit.Get(answering(t).Connect(t.Context(), theirs, nil)).Must(t)
	w := &memoryWire{other: ours}
	l := linkTo(t, w)
	w.conn.fail.Store(&jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "made of cheese"})
	_, err := callTool(t, l)
	_, lost := errors.AsType[transportError](err)
	testkit.True(t, lost && strings.Contains(err.Error(), "made of cheese"),
		"the error of Read is not that of the call: %v", err)
}
