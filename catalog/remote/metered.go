package remote

import (
	"context"
	"errors"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A metered connection ends when the other side goes on sending while it does not
// read what it is answered: the SDK queues such messages without a bound.
type metered struct {
	mcp.Connection

	mu   sync.Mutex
	open map[jsonrpc.ID]bool // requests that were read and not answered
	size int                 // bytes, about, of requests and notifications read since one has been open
}

// Read implements mcp.Connection.
func (c *metered) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	r, ok := m.(*jsonrpc.Request)
	if err != nil || !ok {
		return m, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.IsCall() {
		if c.open == nil {
			c.open = make(map[jsonrpc.ID]bool)
		}
		c.open[r.ID] = true
	}
	if len(c.open) == 0 {
		return m, nil
	}
	if c.size += 1024 + len(r.Params); c.size > maxUnread {
		return nil, errors.New("it goes on sending, and does not read what its requests are answered")
	}
	return m, nil
}

// Write implements mcp.Connection.
func (c *metered) Write(ctx context.Context, m jsonrpc.Message) error {
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
