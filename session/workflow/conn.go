package workflow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"deepwork/actor"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// What a stack's actor answers; whoever asked makes words of it.
var (
	errNoSession  = errors.New("the stack is empty")
	errNotOnStack = errors.New("the session is not on the stack")
)

// A Conn is one MCP connection's view of the engine: its stack of sessions. Its
// methods may be called concurrently; each returns a *session.Error when the
// call is refused, any other error when something broke.
type Conn struct {
	engine    *Engine
	identity  string
	stateless bool // made by ConnectStateless: it has a pool in place of a stack
	stack     *actor.Ref[stackMessage]
	handles   atomic.Pointer[[]*handle] // published by the stack's actor
	moves     atomic.Uint64             // transitions made on this connection

	mu       sync.Mutex // guards closed, and that no call begins after it
	closed   bool
	calls    sync.WaitGroup
	released chan struct{} // closed when Close has done its work
}

// Connect makes the stack of one MCP connection. identity is the caller's name;
// a session is reached only by callers of the identity that started it.
func (e *Engine) Connect(identity string) *Conn {
	c := &Conn{engine: e, identity: identity, released: make(chan struct{})}
	c.handles.Store(&[]*handle{})
	s := &stack{shared: &c.handles}
	// The stack is this connection's alone and in memory alone: after a crash of
	// its actor it is what it was, since its fields are kept.
	c.stack = actor.Spawn(e.system, actor.Options{Name: fmt.Sprintf("stack/%d", e.conns.Add(1)), Logger: e.log},
		func() (actor.Behavior[stackMessage], error) { return s, nil })
	return c
}

// Stack returns the stack as it is now, bottom first. It never blocks. A
// stateless Conn, which has none, returns an empty one; StackOf tells more.
func (c *Conn) Stack() []StackEntry { return entries(*c.handles.Load()) }

// StackOf returns the stack that a call with this session_id is about: of a
// stateless Conn the session and what it is nested in, bottom first, as far as
// they are held there; of any other its whole stack. nil is no session_id. It
// waits for no session.
func (c *Conn) StackOf(ctx context.Context, sessionID *string) []StackEntry {
	if sessionID == nil {
		return c.Stack()
	}
	return c.stackOf(ctx, *sessionID)
}

func (c *Conn) stackOf(ctx context.Context, id string) []StackEntry {
	if !c.stateless {
		return c.Stack()
	}
	hs, err := askStack(ctx, c, func(r actor.Reply[[]*handle]) stackMessage { return chainMessage{id, r} })
	if err != nil {
		return []StackEntry{} // the connection is closing
	}
	return entries(hs)
}

// entries are the sessions that are still active.
func entries(hs []*handle) []StackEntry {
	out := make([]StackEntry, 0, len(hs))
	for _, h := range hs {
		if v := h.view.Load(); v.Status == Active {
			out = append(out, StackEntry{Workflow: v.Workflow, Step: v.Step, SessionID: h.id})
		}
	}
	return out
}

// askStack sends a message to the stack's actor.
func askStack[R any](ctx context.Context, c *Conn, build func(actor.Reply[R]) stackMessage) (R, error) {
	r, err := actor.Ask(ctx, c.stack, build)
	if errors.Is(err, actor.ErrStopped) {
		return r, closing().Because(err)
	}
	return r, err
}

func closing() *session.Error {
	return session.NotNow("shutting_down", "This connection is closing. Connect anew; its sessions can be resumed by their session_id.")
}

// push puts pinned sessions on the stack, also where the caller has left; a
// stack that is closing lets go of them.
func (c *Conn) push(ctx context.Context, m pushMessage) error {
	_, err := askStack(context.WithoutCancel(ctx), c, func(r actor.Reply[struct{}]) stackMessage { m.Reply = r; return m })
	if err != nil {
		c.engine.letGo(m.Places)
	}
	return err
}

// target finds the session a call is about: the one named, taken up if it is
// not on the stack, or the only one open (seed 000, 001.4.4 and 001.4.5). On a
// stateless connection, which tells no callers apart, that is the only one the
// identity has.
func (c *Conn) target(ctx context.Context, id *string) (*handle, error) {
	if id != nil && !machine.IsSessionID(*id) {
		return nil, session.Wrong("bad_session_id", "session_id '%s' is none: it is 8 hexadecimal characters, as begin_step and stack tell it.", clip(*id, 100))
	}
	if id == nil && c.stateless {
		only, err := c.only(ctx)
		if err != nil {
			return nil, err
		}
		id = &only
	}
	if id != nil {
		// What is published is enough to find a session that is named.
		for _, h := range slices.Backward(*c.handles.Load()) {
			if h.id == *id && h.view.Load().Status == Active {
				return h, nil
			}
		}
	}
	h, err := askStack(ctx, c, func(r actor.Reply[*handle]) stackMessage { return resolveMessage{id, r} })
	switch {
	case errors.Is(err, errNoSession):
		return nil, c.noSession(ctx)
	case err != nil:
		return nil, err
	case h != nil:
		return h, nil
	}
	return c.takeUp(ctx, *id)
}

// moved notes that a transition was made, and which session it ended, if any;
// named tells whether the call gave its session_id.
func (c *Conn) moved(ctx context.Context, ended *endedSession, named bool) {
	n := c.moves.Add(1)
	if ended == nil {
		return
	}
	last := *ended
	last.move, last.named = n, named
	// It serves retries alone: a connection that is closing needs none.
	if err := c.stack.Tell(ctx, endedMessage{last}); err != nil {
		c.engine.log.Debug("telling a stack of an ended session", "error", err)
	}
}

// resumed tells what goes on below a session that ended
// (seed 000, 001.6.8).
func (c *Conn) resumed(ctx context.Context, id string) (workflow, step *string) {
	h, err := askStack(ctx, c, func(r actor.Reply[*handle]) stackMessage { return resumesMessage{id, r} })
	if err != nil || h == nil {
		return nil, nil
	}
	v := h.view.Load()
	return &v.Workflow, &v.Step
}

// caller identifies a call for its session's actor. Only calls with a
// request_id are told from others by their arguments.
func (c *Conn) caller(tool string, requestID *string, args any) (caller, error) {
	if requestID == nil {
		return caller{Identity: c.identity, Call: machine.Call{Tool: tool}}, nil
	}
	raw, err := json.Marshal(args)
	if err != nil {
		return caller{}, fmt.Errorf("encoding the arguments of %s: %w", tool, err)
	}
	sum := sha256.Sum256(raw)
	return caller{Identity: c.identity, Call: machine.Call{Tool: tool, RequestID: requestID, ArgsDigest: hex.EncodeToString(sum[:])}}, nil
}

// clip cuts a text for a message.
func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n]) + "…"
}
