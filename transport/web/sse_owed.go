package web

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
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

// owe counts calls that were read, or answered.
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

// An sseConnection counts the calls that it reads, and the replies that were written,
// or could not be.
type sseConnection struct {
	mcp.Connection
	transport *sseTransport
}

func (c *sseConnection) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.Connection.Read(ctx)
	if call, ok := msg.(*jsonrpc.Request); ok && call.IsCall() {
		c.transport.owe(1)
	}
	return msg, err
}

func (c *sseConnection) Write(ctx context.Context, msg jsonrpc.Message) error {
	err := c.Connection.Write(ctx, msg)
	if _, ok := msg.(*jsonrpc.Response); ok {
		c.transport.owe(-1)
	}
	return err
}
