package workflow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"deepwork/actor"
	"deepwork/session"
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
	engine   *Engine
	identity string
	stack    *actor.Ref[stackMessage]
	handles  atomic.Pointer[[]*handle] // published by the stack's actor
	moves    atomic.Uint64             // transitions made on this connection
}

// Connect makes the stack of one MCP connection. identity is the caller's name;
// a session is reached only by callers of the identity that started it.
func (e *Engine) Connect(identity string) *Conn {
	c := &Conn{engine: e, identity: identity}
	c.handles.Store(&[]*handle{})
	s := &stack{shared: &c.handles}
	name := fmt.Sprintf("stack/%d", e.conns.Add(1))
	// The stack is this connection's alone and in memory alone: after a crash of
	// its actor it is what it was, since its fields are kept.
	c.stack = actor.Spawn(e.system, actor.Options{Name: name, Logger: e.log},
		func() (actor.Behavior[stackMessage], error) { return s, nil })
	return c
}

// Close forgets the stack; its active sessions stay resumable by their ids.
func (c *Conn) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := c.stack.Stop(ctx); err != nil {
		c.engine.log.Warn("closing a connection's stack", "error", err)
	}
}

// Stack returns the stack as it is now, bottom first. It never blocks.
func (c *Conn) Stack() []StackEntry {
	hs := *c.handles.Load()
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
		return r, session.NotNow("shutting_down", "This connection is closing. Connect anew; its sessions can be resumed by their session_id.").Because(err)
	}
	return r, err
}

// target finds the session a call is about: the one named, taken up if it is
// not on the stack, or the only one open (seed 000, 001.4.4 and 001.4.5).
func (c *Conn) target(ctx context.Context, id *string) (*handle, error) {
	if id != nil && !sessionIDPattern.MatchString(*id) {
		return nil, session.Wrong("bad_session_id", "session_id '%s' is none: it is 8 hexadecimal characters, as begin_step and stack tell it.", clip(*id, 100))
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

// moved notes that a transition was made, and which session it ended, if any.
func (c *Conn) moved(ctx context.Context, ended *endedSession) {
	n := c.moves.Add(1)
	if ended == nil {
		return
	}
	last := *ended
	last.move = n
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
		return caller{Identity: c.identity, Call: call{Tool: tool}}, nil
	}
	raw, err := json.Marshal(args)
	if err != nil {
		return caller{}, fmt.Errorf("encoding the arguments of %s: %w", tool, err)
	}
	sum := sha256.Sum256(raw)
	return caller{Identity: c.identity, Call: call{Tool: tool, RequestID: requestID, ArgsDigest: hex.EncodeToString(sum[:])}}, nil
}

// clip cuts a text for a message.
func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n]) + "…"
}
