package transport

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/wait"
	"deepwork/session"
	"deepwork/session/remote"
	"deepwork/transport/tool"
	"deepwork/transport/web"
)

// errGone is the cause of cancelled calls whose client is gone.
var errGone = errors.New("the client is gone")

// errIdle refuses a call that arrives while its session ends.
var errIdle = errors.New("the connection was idle for too long and is being closed")

// A clientConn is one caller and the context of its calls.
type clientConn struct {
	who       session.Caller // that opened it
	workflows tool.WorkflowCaller

	ctx     context.Context // ctx, with its cause, ends when the calls must end
	cancel  context.CancelCauseFunc
	leaving context.Context // ends when calls must stop waiting for remote runs, or with ctx
	leave   context.CancelCauseFunc

	greeting atomic.Pointer[mcp.InitializeResult] // the answer to initialize, for when it is sent again

	// The following fields are guarded by connections.mu.
	key   any                // its key in the map
	ss    *mcp.ServerSession // nil for a request without an MCP session
	calls int                // in flight
	idle  time.Duration      // maximum time without calls; 0 means no limit
	timer *time.Timer        // ends it after that; nil without a limit
	over  bool               // the session has ended, or is being closed because it was idle for too long
}

// connections owns the connection of each caller: it creates one at the first request of an MCP
// session and closes it when the session ends or is idle for too long. A request without a session
// is a connection of its own.
type connections struct {
	connect   func(identity string) tool.WorkflowCaller
	stateless func(identity string) tool.WorkflowCaller
	idle      func() time.Duration // idle limit of new connections; nil means none

	mu     sync.Mutex
	byKey  map[any]*clientConn // by the id of the MCP session, or the session itself if it has none, as over stdio
	closed bool
	wg     sync.WaitGroup // one per connection, and the goroutines that end them
}

// Open opens the connection of a session whose client has made no call yet.
func (c *connections) Open(ctx context.Context, ss *mcp.ServerSession) error {
	_, err := c.get(ctx, ss)
	return err
}

// get returns the connection of a session, or tool.ErrStopping.
func (c *connections) get(ctx context.Context, ss *mcp.ServerSession) (*clientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(session.CallerOf(ctx), ss)
}

// acquire returns the connection of a request, which is not idle until done is called.
func (c *connections) acquire(ctx context.Context, ss *mcp.ServerSession) (conn *clientConn, done func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	who := session.CallerOf(ctx)
	if web.IsStateless(ctx) {
		if conn, err = c.add(new(int), who); err != nil {
			return nil, nil, err
		}
		conn.workflows = c.stateless(who.Identity)

		c.wg.Add(1)
		return conn, func() {
			c.drop(conn)
			c.wg.Done()
		}, nil
	}
	if conn, err = c.find(who, ss); err != nil {
		return nil, nil, err
	}
	conn.calls++
	return conn, func() { c.release(conn) }, nil
}

// add makes a connection; the caller holds the lock.
func (c *connections) add(key any, who session.Caller) (*clientConn, error) {
	if c.closed {
		return nil, tool.ErrStopping
	}

	conn := &clientConn{who: who, key: key}
	conn.ctx, conn.cancel = context.WithCancelCause(context.Background())
	conn.leaving, conn.leave = context.WithCancelCause(conn.ctx)
	c.byKey[key] = conn
	return conn, nil
}

// find implements of; the caller holds the lock.
func (c *connections) find(who session.Caller, ss *mcp.ServerSession) (*clientConn, error) {
	key := any(ss)
	if id := ss.ID(); id != "" {
		key = id
	}
	if conn := c.byKey[key]; conn != nil {
		if conn.over {
			return nil, errIdle // a reply would be dropped
		}
		return conn, nil
	}
	conn, err := c.add(key, who)
	if err != nil {
		return nil, err
	}
	conn.workflows, conn.ss = c.connect(who.Identity), ss
	if who.Remote() && c.idle != nil {
		if conn.idle = c.idle(); conn.idle > 0 {
			conn.timer = time.AfterFunc(conn.idle, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				if conn.calls == 0 { // else the end of the last call starts the time again
					c.finish(conn)
				}
			})
		}
	}
	c.wg.Go(func() {
		ss.Wait() // until no call is in flight; the error is the server's
		c.mu.Lock()
		conn.over = true
		c.mu.Unlock()
		c.drop(conn)
	})
	return conn, nil
}

// drop ends the calls of a connection and removes it.
func (c *connections) drop(conn *clientConn) {
	conn.cancel(tool.ErrStopping)
	conn.workflows.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byKey, conn.key)
	if conn.timer != nil {
		conn.timer.Stop()
	}
}

// finish ends the session of a connection; the caller holds the lock.
func (c *connections) finish(conn *clientConn) {
	if conn.ss != nil && !conn.over {
		conn.over = true
		c.wg.Go(func() { conn.ss.Close() }) // waits for its calls
	}
}

// release ends a call.
func (c *connections) release(conn *clientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn.calls--
	if conn.calls == 0 && conn.timer != nil && !conn.over {
		conn.timer.Reset(conn.idle)
	}
}

// Cut cancels the calls of an MCP session whose client is gone.
func (c *connections) Cut(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.byKey[id]; conn != nil {
		conn.cancel(errGone)
	}
}

// Known reports whether an MCP session is open and was opened by this caller. If the caller's group or rights have
// changed, it ends the session, whose calls would keep those of its first request, and the caller opens another.
func (c *connections) Known(id string, who session.Caller) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.byKey[id]
	if conn == nil || conn.over {
		return false
	}
	if conn.who.Identity == who.Identity && conn.who != who {
		c.finish(conn)
	}
	return conn.who == who
}

// End ends the connections of an identity and cancels their calls; it does not wait for them.
func (c *connections) End(identity string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.byKey {
		if conn.who.Identity == identity {
			conn.cancel(errGone)
			c.finish(conn)
		}
	}
}

// Len returns the number of connections.
func (c *connections) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byKey)
}

// Stop cancels all calls, with tool.ErrStopping as the cause, and admits no new
// connections.
func (c *connections) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, conn := range c.byKey {
		conn.cancel(tool.ErrStopping)
	}
}

// Close calls Stop, then closes the sessions and waits for them until ctx ends. It returns how many
// are left.
func (c *connections) Close(ctx context.Context) (left int) {
	c.Stop()
	c.mu.Lock()
	for _, conn := range c.byKey {
		if conn.ss != nil {
			c.wg.Go(func() { conn.ss.Close() })
		}
	}
	c.mu.Unlock()

	if wait.Group(ctx, &c.wg) == nil {
		return 0
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byKey)
}

// joined returns a context that ends with the request or the connection: the SDK does not tell handlers that the
// program ends. Waiting for a remote run also ends with leaving.
func (c *clientConn) joined(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	return remote.WithLeaving(ctx, c.leaving), func() {
		stop()
		cancel(nil)
	}
}
