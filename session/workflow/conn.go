package workflow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/workflow/machine"
	"deepwork/session/workflow/stack"
)

// A Conn is one MCP connection to the engine: its stack of sessions. Its methods may be called
// concurrently; each returns a *session.Error if the call is refused, and other errors for
// failures.
type Conn struct {
	engine    *Engine
	identity  string
	stateless bool // made by ConnectStateless
	stack     *stack.Stack
	declined  sync.Map // what the client's user declined to answer: session id and digest -> true

	mu       sync.Mutex // guards closed, and that no call starts after it
	closed   bool
	calls    sync.WaitGroup
	released chan struct{} // closed when Close has done its work
}

// Connect makes the stack of one MCP connection. identity is the caller's name; a session is
// accessible only to callers of the identity that started it.
func (e *Engine) Connect(identity string) *Conn {
	o := stack.Options{Name: fmt.Sprintf("stack/%d", e.conns.Add(1)), Logger: e.Logger}
	return &Conn{engine: e, identity: identity, stack: stack.New(e.system, o), released: make(chan struct{})}
}

// ConnectStateless returns the one Conn that all stateless requests of an identity share (DESIGN
// "Stacks"). A call without session_id needs the identity to have exactly one active session that
// no other living server owns; else the StateError session_id_needed lists them. start_workflow
// without parent_session_id starts a root session. The stack of a reply is its session and what it
// is nested in; that of get_workflows is empty unless there is exactly one session. A session that
// is unused for Options.StatelessIdle is released and stays resumable. The Conn lives until
// Engine.Close; its own Close does nothing. It does not block.
func (e *Engine) ConnectStateless(identity string) *Conn {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.stateless[identity]
	if c == nil {
		o := stack.Options{Name: fmt.Sprintf("pool/%d", e.conns.Add(1)), Logger: e.Logger, Idle: e.StatelessIdle, Release: e.releaseSoon}
		c = &Conn{engine: e, identity: identity, stateless: true, stack: stack.New(e.system, o)}
		e.stateless[identity] = c
	}
	return c
}

// Stack returns the current stack, bottom first. It never blocks. For a stateless Conn, which has
// none, it is empty; see StackOf.
func (c *Conn) Stack() []machine.StackEntry { return entries(c.stack.Handles()) }

// StackOf returns the stack for a call with this session_id: of a stateless Conn the session and
// what it is nested in, bottom first, as far as they are on its stack; of any other its whole
// stack. nil means no session_id. It waits for no session.
func (c *Conn) StackOf(ctx context.Context, sessionID *string) []machine.StackEntry {
	if sessionID == nil {
		return c.Stack()
	}
	return c.stackOf(ctx, *sessionID)
}

func (c *Conn) stackOf(ctx context.Context, id string) []machine.StackEntry {
	if !c.stateless {
		return c.Stack()
	}
	hs, err := c.stack.Chain(ctx, id)
	if err != nil {
		return []machine.StackEntry{} // the connection is closing
	}
	return entries(hs)
}

// entries returns the sessions that are still active.
func entries(hs []*stack.Handle) []machine.StackEntry {
	out := make([]machine.StackEntry, 0, len(hs))
	for _, h := range hs {
		if v := h.View(); v.Status == machine.Active {
			out = append(out, machine.StackEntry{Workflow: v.Workflow, Step: v.Step, SessionID: h.ID})
		}
	}
	return out
}

// push puts pinned sessions on the stack, even if the caller has left; those that a closing stack
// refuses are released.
func (c *Conn) push(ctx context.Context, links ...stack.Link) error {
	err := c.stack.Push(ctx, links)
	if err != nil {
		c.engine.letGo(links)
	}
	return err
}

// target finds the session a call is about: the one named, taken up if it is
// not on the stack, or the only one open (seed 000, 001.4.4 and 001.4.5). On a
// stateless connection, which distinguishes no callers, that is the only one the
// identity has.
func (c *Conn) target(ctx context.Context, id *string) (h *stack.Handle, err error) {
	switch {
	case id != nil && !machine.IsSessionID(*id):
		return nil, session.Wrong("bad_session_id", "session_id '%s' is not a session_id: expected 8 hexadecimal characters, as in begin_step and stack.", jsontext.Clip(*id, 100))
	case id == nil && c.stateless:
		only, err := c.only(ctx)
		if err != nil {
			return nil, err
		}
		id = &only
	case id == nil:
		if h, err = c.stack.Default(ctx); errors.Is(err, stack.ErrEmpty) {
			return nil, c.noSession(ctx)
		}
		return h, err
	}
	if h, err = c.stack.Find(ctx, *id); h != nil || err != nil {
		return h, err
	}
	return c.takeUp(ctx, *id)
}

// only finds the identity's only active session.
func (c *Conn) only(ctx context.Context) (string, error) {
	found, more := c.engine.resumable(ctx, c.identity, keptListed, nil)
	switch {
	case len(found) == 0:
		return "", c.noSession(ctx)
	case len(found) == 1 && !more:
		return found[0].SessionID, nil
	}
	var b strings.Builder
	b.WriteString("Several workflows are active, and this request comes without a connection to tell them apart. Pass session_id to say which one you mean:")
	ids := listSessions(&b, found, more, func(*machine.State) string { return "" })
	return "", session.NotNow("session_id_needed", "%s", b.String()).With("session_ids", ids)
}

// onlyStack returns the stack of get_workflows, which resumes nothing.
func (c *Conn) onlyStack(ctx context.Context) []machine.StackEntry {
	if !c.stateless {
		return c.Stack()
	}
	found, more := c.engine.resumable(ctx, c.identity, 1, nil)
	if len(found) != 1 || more {
		return []machine.StackEntry{}
	}
	s := found[0]
	return []machine.StackEntry{{Workflow: s.JobName + "/" + s.WorkflowName, Step: s.CurrentStepID, SessionID: s.SessionID}}
}

// resumed returns what continues below an ended session (seed 000, 001.6.8).
func (c *Conn) resumed(ctx context.Context, id string) (workflow, step *string) {
	hs, err := c.stack.Chain(ctx, id)
	if err != nil || len(hs) == 0 {
		return nil, nil
	}
	v := hs[len(hs)-1].View()
	return &v.Workflow, &v.Step
}

// caller returns what identifies a call for its session's actor. Only calls with a request_id are
// identified by their arguments.
func (c *Conn) caller(ctx context.Context, tool string, requestID *string, args any) (caller, error) {
	from := session.CallerOf(ctx)
	who := caller{Identity: c.identity, Channel: from.Channel, Person: from.Has(session.RightPerson), Call: machine.Call{Tool: tool, RequestID: requestID}}
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

// closeWait is how long Close waits for its work.
const closeWait = 5 * time.Second

// Close ends the connection: later calls are refused, those in flight are finished, and then the
// sessions on no other stack of this server are released, so that any server may resume them. A
// session with a running review is released after it. A failed release is logged and retried every
// 30 s. Close blocks until that is done, reviews excepted, for at most 5 s. In a server that is
// stopping nothing is written. Close may be called again; on a stateless Conn it does nothing.
func (c *Conn) Close() {
	if c.stateless {
		return
	}
	c.mu.Lock()
	again := c.closed
	c.closed = true
	c.mu.Unlock()
	if !again && !c.engine.aside(c.end) {
		close(c.released) // the engine has ended the stack
	}
	select {
	case <-c.released:
	case <-time.After(closeWait):
		c.engine.Logger.Info("a connection has closed, and its sessions are still being given up")
	}
}

// enter starts a call, which c.calls.Done ends.
func (c *Conn) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return stack.Closing()
	}
	c.calls.Add(1)
	return nil
}

// end is the work of Close.
func (c *Conn) end() {
	defer close(c.released)
	c.calls.Wait()
	held, err := c.stack.Stop(c.engine.ctx) // bottom first: when the top is resumed, its ancestors are free
	if err != nil {
		c.engine.Logger.Debug("closing a connection's stack", "error", err) // the engine is closing
	}
	c.engine.release(held)
}
