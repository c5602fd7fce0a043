package transport

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// errStopping is why calls are cancelled when the server ends.
var errStopping = errors.New("the server is stopping")

// A caller says whose call a request is: what tells connections apart, and the
// name that owns the sessions.
type caller struct {
	key      any
	identity string
}

// localCaller is the caller of a transport that has one client, its parent:
// each MCP session is a connection, and everyone is the same person.
func localCaller(ss *mcp.ServerSession, _ *mcp.RequestExtra) caller { return caller{ss, "local"} }

// A connection is one caller's agent, and the context of its calls.
type connection struct {
	agent  agent
	ctx    context.Context // ends when its calls are to end; carries the cause
	cancel context.CancelCauseFunc

	parcels atomic.Pointer[parcels] // of a transport that takes them
}

// connections owns the connection of each caller: it makes one at the first
// sight of its MCP session, and waits for that session's end to close it.
type connections struct {
	agent    func(identity string) agent
	callerOf func(*mcp.ServerSession, *mcp.RequestExtra) caller

	mu     sync.Mutex
	byKey  map[any]*connection
	live   map[*mcp.ServerSession]bool
	closed bool
	wg     sync.WaitGroup // one goroutine a live session
}

func (c *connections) init(agent func(string) agent, callerOf func(*mcp.ServerSession, *mcp.RequestExtra) caller) {
	c.agent, c.callerOf = agent, callerOf
	c.byKey, c.live = map[any]*connection{}, map[*mcp.ServerSession]bool{}
}

// of returns the connection of a request's caller, or errStopping.
func (c *connections) of(ss *mcp.ServerSession, extra *mcp.RequestExtra) (*connection, error) {
	who := c.callerOf(ss, extra)
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.byKey[who.key]; conn != nil {
		return conn, nil
	}
	if c.closed {
		return nil, errStopping
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	conn := &connection{agent: c.agent(who.identity), ctx: ctx, cancel: cancel}
	c.byKey[who.key], c.live[ss] = conn, true
	c.wg.Go(func() {
		ss.Wait() // it returns when no call is in flight any more; how it ended is told to who serves it
		c.mu.Lock()
		delete(c.byKey, who.key)
		delete(c.live, ss)
		c.mu.Unlock()
		cancel(errStopping)
		conn.agent.Close()
	})
	return conn, nil
}

// close cancels all calls, closes the sessions and waits until ctx ends; it
// returns how many were still there.
func (c *connections) close(ctx context.Context) (left int) {
	c.mu.Lock()
	c.closed = true
	for _, conn := range c.byKey {
		conn.cancel(errStopping)
	}
	for ss := range c.live {
		c.wg.Go(func() { ss.Close() }) // it waits for the session's calls
	}
	c.mu.Unlock()

	done := make(chan struct{}) // closed when every connection is
	go func() { c.wg.Wait(); close(done) }()
	select {
	case <-done:
		return 0
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.byKey)
	}
}

func (c *connections) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// joined returns a context for a call that ends with the request's and with the
// connection's: the SDK does not pass the end of the program on to handlers.
func (c *connection) joined(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}
