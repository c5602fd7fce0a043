package transport

import (
	"context"
	"errors"
	"sync"
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

// A connection is one caller and the context of its calls.
type connection struct {
	who       session.Caller // that opened it
	workflows tool.WorkflowCaller

	ctx     context.Context // ctx, with its cause, ends when the calls must end
	cancel  context.CancelCauseFunc
	leaving context.Context // ends when calls must stop waiting for executions at sources, or with ctx
	leave   context.CancelCauseFunc

	// The following fields are guarded by connections.mu.
	key   any                // its key in the map
	ss    *mcp.ServerSession // nil if it is shared by the stateless requests of an identity
	end   func()             // ends it; blocks
	calls int                // in flight
	idle  time.Duration      // maximum time without calls; 0 means no limit
	until time.Time          // when the idle time ends
	timer *time.Timer        // fires to check until
	over  bool               // the session has ended, or is being closed because it was idle for too long
}

// connections owns the connection of each caller: it creates one at the first request of an MCP
// session and closes it when the session ends or is idle for too long. Requests without a session
// share one connection per identity.
type connections struct {
	connect   func(identity string) tool.WorkflowCaller
	stateless func(identity string) tool.WorkflowCaller
	idle      func() time.Duration // idle limit of new connections; nil means none

	mu     sync.Mutex
	byKey  map[any]*connection
	closed bool
	wg     sync.WaitGroup // one goroutine per connection
}

func (c *connections) init(connect, stateless func(string) tool.WorkflowCaller, idle func() time.Duration) {
	c.connect, c.stateless, c.idle, c.byKey = connect, stateless, idle, map[any]*connection{}
}

// sharedKey is the key of an identity's stateless requests.
type sharedKey string

// keyOf returns the key of a caller's connection: the id of its MCP session, or the
// session itself if it has none, as over stdio.
func keyOf(ctx context.Context, who session.Caller, ss *mcp.ServerSession) any {
	if web.IsStateless(ctx) {
		return sharedKey(who.Identity)
	}
	if id := ss.ID(); id != "" {
		return id
	}
	return ss
}

// of returns the connection of a request's caller, or tool.ErrStopping.
func (c *connections) of(ctx context.Context, ss *mcp.ServerSession) (*connection, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(ctx, ss)
}

// Open is like of, for a session whose client has made no call yet.
func (c *connections) Open(ctx context.Context, ss *mcp.ServerSession) error {
	_, err := c.of(ctx, ss)
	return err
}

// acquire is like of, for a call: the connection is not idle until done is called.
func (c *connections) acquire(ctx context.Context, ss *mcp.ServerSession) (conn *connection, done func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn, err = c.find(ctx, ss); err != nil {
		return nil, nil, err
	}
	conn.calls++
	return conn, func() { c.release(conn) }, nil
}

// find implements of; the caller holds the lock.
func (c *connections) find(ctx context.Context, ss *mcp.ServerSession) (*connection, error) {
	who := session.CallerOf(ctx)
	key := keyOf(ctx, who, ss)
	if conn := c.byKey[key]; conn != nil {
		if conn.over {
			return nil, errIdle // a reply would be dropped
		}
		return conn, nil
	}
	if c.closed {
		return nil, tool.ErrStopping
	}
	conn := &connection{who: who, key: key}
	conn.ctx, conn.cancel = context.WithCancelCause(context.Background())
	conn.leaving, conn.leave = context.WithCancelCause(conn.ctx)
	if who.Remote() && c.idle != nil {
		conn.idle = c.idle()
	}
	c.byKey[key] = conn
	var ended func()
	if web.IsStateless(ctx) {
		over := make(chan struct{})
		conn.workflows, conn.end = c.stateless(who.Identity), sync.OnceFunc(func() { close(over) })
		ended = func() { <-over }
	} else {
		conn.workflows, conn.ss = c.connect(who.Identity), ss
		conn.end = func() { ss.Close() } // waits for the session's calls
		ended = func() { ss.Wait() }     // waits until no call is in flight; the error is the server's
	}
	c.wg.Go(func() {
		ended()
		c.mu.Lock()
		conn.over = true
		c.mu.Unlock()
		conn.cancel(tool.ErrStopping)
		conn.workflows.Close()
		c.mu.Lock()
		c.drop(conn)
		c.mu.Unlock()
	})
	c.rest(conn)
	return conn, nil
}

// drop removes a connection from the map; the caller holds the lock.
func (c *connections) drop(conn *connection) {
	if c.byKey[conn.key] != conn {
		return
	}
	delete(c.byKey, conn.key)
	if conn.timer != nil {
		conn.timer.Stop()
	}
}

// finish ends a connection; the caller holds the lock. A shared one is dropped at once, so that the
// next request of its identity opens another.
func (c *connections) finish(conn *connection) {
	if conn.ss == nil {
		c.drop(conn)
	} else {
		conn.over = true
	}
	c.wg.Go(conn.end)
}

// release ends a call.
func (c *connections) release(conn *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn.calls--; conn.calls > 0 || c.byKey[conn.key] != conn {
		return
	}
	if conn.ss == nil && c.closed {
		c.finish(conn)
	} else {
		c.rest(conn)
	}
}

// rest starts the idle time. The timer is reset only when it fires, so that a call costs no more
// than reading the clock.
func (c *connections) rest(conn *connection) {
	if conn.idle <= 0 {
		return
	}
	conn.until = time.Now().Add(conn.idle)
	if conn.timer == nil {
		conn.timer = time.AfterFunc(conn.idle, func() { c.look(conn) })
	}
}

// look ends a connection that has been idle for too long.
func (c *connections) look(conn *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[conn.key] != conn || conn.over {
		return
	}
	if left := time.Until(conn.until); conn.calls > 0 || left > 0 {
		if conn.calls > 0 {
			left = conn.idle
		}
		conn.timer.Reset(left)
		return
	}
	c.finish(conn)
}

// Cut cancels the calls of an MCP session whose client is gone.
func (c *connections) Cut(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.byKey[id]; conn != nil {
		conn.cancel(errGone)
	}
}

// Known reports whether an MCP session is open and was opened by this caller. One whose group or rights
// have changed opens another, since the calls of a session have those of its first request; the old one
// is ended.
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
		if conn.who.Identity == identity && !conn.over {
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
		switch {
		case conn.ss != nil:
			c.wg.Go(conn.end)
		case conn.calls == 0:
			c.finish(conn)
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

// joined returns a context that ends with the request or with the connection: the SDK does not pass
// the end of the program on to handlers. The wait for an execution at a source also ends with
// leaving.
func (c *connection) joined(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	return remote.WithLeaving(ctx, c.leaving), func() { stop(); cancel(nil) }
}
