package web

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/transport/wire"
)

// An sseTransport counts the calls of an SSE session that are not answered yet.
// Their POSTs are over before they are carried out, and a session that is closed
// drops the replies that are not written: a server that stops must wait for them.
type sseTransport struct {
	*mcp.SSEServerTransport
	total *atomic.Int64 // of all sessions

	mu   sync.Mutex
	owed int
	over bool
}

// Connect implements mcp.Transport.
func (t *sseTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.SSEServerTransport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &sseConnection{c, t}, nil
}

// post takes a message, whose body admit has read.
func (t *sseTransport) post(w http.ResponseWriter, r *http.Request) {
	var msg jsonrpc.Message
	if body, ok := r.Body.(*readBody); ok {
		msg, _, _ = wire.DecodeMessage(body.data)
	}
	call, ok := msg.(*jsonrpc.Request)
	if !ok || !call.IsCall() {
		t.ServeHTTP(w, r)
		return
	}
	t.owe(1) // before it is carried out, which may be faster than this
	seen := &statusWriter{ResponseWriter: w}
	if t.ServeHTTP(seen, r); seen.status != http.StatusAccepted {
		t.owe(-1)
	}
}

// owe counts calls that were taken, or answered.
func (t *sseTransport) owe(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.owed += n
		t.total.Add(int64(n))
	}
}

// end forgets what is owed: the client is gone.
func (t *sseTransport) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	t.total.Add(int64(-t.owed))
	t.owed = 0
}

// An sseConnection tells its transport of each reply that was written, or could
// not be.
type sseConnection struct {
	mcp.Connection
	transport *sseTransport
}

func (c *sseConnection) Write(ctx context.Context, msg jsonrpc.Message) error {
	err := c.Connection.Write(ctx, msg)
	if _, ok := msg.(*jsonrpc.Response); ok {
		c.transport.owe(-1)
	}
	return err
}

// A statusWriter remembers the status of a response.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}
