// Package connection serves the sessions of an engine to its clients, each over a connection.
//
// A connection finds the session that a call is about, sends it the call, and says in the reply which sessions
// are open now. What it remembers is kept in memory only: any other connection can go on with its sessions.
//
// To change the package, know these concepts:
//   - Server, Conn: the engine with its connections, and one of them, which may be stateless;
//   - call, claim: what is the same for every call, and how one that repeats a request_id waits for the first;
//   - stack, target: the sessions of a connection, and the one of them that a call is about;
//   - ended: a session that has left the stack, whose last reply may have been lost;
//   - resumable, in use: a session that the caller may go on with, and one that others probably work on;
//   - asker: the client of a call, which may ask its user what a step waits for.
package connection

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/replies"
	"deepwork/session/workflow"
)

// A Server is an engine with its connections.
type Server struct {
	*workflow.Engine

	requests sync.Map // calls with a request_id in progress: store.Key -> chan struct{}
	jobs     atomic.Pointer[encodedJobs]

	mu    sync.Mutex // guards conns
	conns map[*Conn]struct{}
}

// NewServer returns an engine without connections yet.
func NewServer(e *workflow.Engine) *Server { return &Server{Engine: e, conns: map[*Conn]struct{}{}} }

// Active returns the number of sessions on the stacks of the connections, as last read.
func (s *Server) Active() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		n += len(c.Stack())
	}
	return n
}

// open returns the sessions on the stacks of the connections.
func (s *Server) open() map[string]bool {
	open := map[string]bool{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.mu.Lock()
		for _, id := range c.stack.open {
			open[id] = true
		}
		c.mu.Unlock()
	}

	return open
}

// A Conn is one MCP connection to the server, or serves requests that come without one. Its methods may be
// called concurrently. Each returns a *session.Error if the call is refused, and other errors for failures.
type Conn struct {
	server    *Server
	identity  string
	stateless bool // made by ConnectStateless

	last atomic.Pointer[[]replies.StackEntry] // the stack as it was last read

	mu      sync.Mutex // guards the following fields
	closed  bool
	stack   stack
	next    *stackRead    // will begin, and may be joined; nil means none
	reading chan struct{} // closed when the last one that has begun is done
	ended   []ended
	moves   int // transitions made on this connection
}

// Connect makes an MCP connection. identity is the caller's name; only callers with the identity that started
// a session have access to it. The connection's stack is the sessions that it began or resumed; it is kept in
// memory only.
func (s *Server) Connect(identity string) *Conn {
	c := &Conn{server: s, identity: identity, stack: stack{parents: map[string]string{}}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
	return c
}

// ConnectStateless returns a Conn for requests of an identity that come without a connection (DESIGN
// "Stacks"). The stack of a call is the session that it names and the ones that is nested in. A call without
// session_id needs the identity to have exactly one branch of active sessions that no connection works on;
// else the StateError session_id_needed lists them. start_workflow without parent_session_id starts a root
// session. Nothing is kept between calls.
func (s *Server) ConnectStateless(identity string) *Conn {
	return &Conn{server: s, identity: identity, stateless: true}
}

// Close ends the connection: later calls are refused, and those in progress run to their end. It writes
// nothing: the sessions can be resumed by their session_id, here or at any other server.
func (c *Conn) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.server.mu.Lock()
	delete(c.server.conns, c)
	c.server.mu.Unlock()
}

// refused returns why no more calls may start, or nil.
func (c *Conn) refused() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return session.NotNow(codes.ShuttingDown,
			"This connection is closing. Connect again; its sessions can be resumed by their session_id.")
	}
	return nil
}

// caller returns what identifies a call to its session's actor. Only calls with a request_id are identified
// by their arguments.
func (c *Conn) caller(ctx context.Context, tool string, requestID *string, args any) (workflow.Caller, error) {
	from := session.CallerOf(ctx)
	by := ""
	if !c.stateless {
		by = c.server.Stores.Members.ID()
	}
	who := workflow.Caller{
		Identity: c.identity,
		Channel:  from.Channel,
		Person:   from.Has(session.RightPerson),
		MovedBy:  &by,
		Call:     machine.Call{Tool: tool, RequestID: requestID, ID: fmt.Sprintf("%016x", rand.Uint64())},
	}
	if requestID == nil {
		return who, nil
	}

	raw, err := json.Marshal(args)
	if err != nil {
		return workflow.Caller{}, fmt.Errorf("encoding the arguments of %s: %w", tool, err)
	}
	sum := sha256.Sum256(raw)
	who.Call.ArgsDigest = hex.EncodeToString(sum[:])
	return who, nil
}
