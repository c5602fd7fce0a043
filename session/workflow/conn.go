package workflow

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"

	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/workflow/machine"
)

// A Conn is one MCP connection to the engine, or a request without one. Its methods may be called
// concurrently; each returns a *session.Error if the call is refused, and other errors for failures.
type Conn struct {
	engine    *Engine
	identity  string
	stateless bool // made by ConnectStateless

	calls sync.WaitGroup
	last  atomic.Pointer[[]machine.StackEntry] // the stack as it was last read

	mu     sync.Mutex // guards the following fields, and that no call starts after closed
	closed bool
	stack  stack
	ended  []ended
	moves  int // transitions made on this connection
}

// Connect makes an MCP connection. identity is the caller's name; a session is accessible only to
// callers of the identity that started it. The connection's stack is the sessions that it began or
// resumed; it is kept in memory alone.
func (e *Engine) Connect(identity string) *Conn {
	c := &Conn{engine: e, identity: identity, stack: stack{parents: map[string]string{}}}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.conns[c] = struct{}{}
	return c
}

// ConnectStateless returns what serves requests of an identity that come without a connection (DESIGN
// "Stacks"). The stack of a call is the session that it names and what that is nested in; a call without
// session_id needs the identity to have exactly one branch of active sessions that no connection works
// on, else the StateError session_id_needed lists them. start_workflow without parent_session_id starts a
// root session. Nothing is kept between calls.
func (e *Engine) ConnectStateless(identity string) *Conn {
	return &Conn{engine: e, identity: identity, stateless: true}
}

// Close ends the connection: later calls are refused, and those in flight are finished. Nothing is
// written: its sessions can be resumed by their session_id, here or at any other server.
func (c *Conn) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.engine.mu.Lock()
	delete(c.engine.conns, c)
	c.engine.mu.Unlock()
}

// connectionClosing returns the refusal of a call on a closing connection.
func connectionClosing() *session.Error {
	return session.NotNow(codes.ShuttingDown, "This connection is closing. Connect again; its sessions can be resumed by their session_id.")
}

// enter starts a call, which c.calls.Done ends.
func (c *Conn) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return connectionClosing()
	}
	c.calls.Add(1)
	return nil
}

// caller returns what identifies a call for its session's actor. Only calls with a request_id are
// identified by their arguments.
func (c *Conn) caller(ctx context.Context, tool string, requestID *string, args any) (caller, error) {
	from := session.CallerOf(ctx)
	by := ""
	if !c.stateless {
		by = c.engine.server()
	}
	who := caller{Identity: c.identity, Channel: from.Channel, Person: from.Has(session.RightPerson), MovedBy: &by, Call: machine.Call{Tool: tool, RequestID: requestID, ID: randomID(8)}}
	if requestID == nil {
		return who, nil
	}
	raw, err := json.Marshal(args)
	if err != nil {
		return caller{}, fmt.Errorf("encoding the arguments of %s: %w", tool, err)
	}
	sum := sha256.Sum256(raw)
	who.Call.ArgsDigest = hex.EncodeToString(sum[:])
	return who, nil
}

// randomID returns 2n hexadecimal characters.
func randomID(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
