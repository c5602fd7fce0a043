package workflow

import (
	"context"
	"fmt"
	"strings"

	"deepwork/actor"
	"deepwork/session"
)

// ConnectStateless returns the one Conn that all stateless requests of an
// identity share: MCP requests that come without a connection to tell callers
// apart (DESIGN "Stacks"). It differs from other Conns in this:
//
//   - A call without session_id needs the identity to have exactly one active
//     session, on any connection of this server or on disk, and not owned by
//     another living server; else the StateError session_id_needed lists them.
//   - start_workflow without parent_session_id begins a root session.
//   - The stack of a reply is the session concerned and what it is nested in, so
//     that what one agent does is invisible to the others. That of get_workflows
//     is empty unless the identity has exactly one session.
//   - Sessions leave it when they have ended, and when no call has been about
//     them, or about one nested in them, for Options.StatelessIdle; then they are
//     given up, as Close of another Conn does, and stay resumable.
//
// It lives until Engine.Close; its own Close does nothing. It does not block.
func (e *Engine) ConnectStateless(identity string) *Conn {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.stateless[identity]; c != nil {
		return c
	}
	c := &Conn{engine: e, identity: identity, stateless: true}
	c.handles.Store(&[]*handle{})
	p := &pool{held: map[string]*held{}, gone: map[string]string{}, idle: e.idle, let: e.releaseSoon}
	p.sweep = func() {
		if err := c.stack.Tell(e.ctx, sweepMessage{}); err != nil {
			e.log.Debug("sweeping a stateless connection", "error", err) // the engine closes
		}
	}
	c.stack = actor.Spawn(e.system, actor.Options{Name: fmt.Sprintf("pool/%d", e.conns.Add(1)), Logger: e.log},
		func() (actor.Behavior[stackMessage], error) { return p, nil })
	e.stateless[identity] = c
	return c
}

// only finds the one active session that the identity has.
func (c *Conn) only(ctx context.Context) (string, error) {
	found, more := c.engine.resumable(ctx, c.identity, keptListed)
	switch {
	case len(found) == 0:
		return "", c.noSession(ctx)
	case len(found) == 1 && !more:
		return found[0].SessionID, nil
	}
	var b strings.Builder
	b.WriteString("Several workflows are active, and this request comes without a connection to tell them apart. Pass session_id to say which one you mean:")
	ids := listSessions(&b, found, more, func(*State) string { return "" })
	return "", session.NotNow("session_id_needed", "%s", b.String()).With("session_ids", ids)
}

// onlyStack is the stack of get_workflows, which takes nothing up.
func (c *Conn) onlyStack(ctx context.Context) []StackEntry {
	found, more := c.engine.resumable(ctx, c.identity, 1)
	if len(found) != 1 || more {
		return []StackEntry{}
	}
	s := found[0]
	return []StackEntry{{Workflow: s.JobName + "/" + s.WorkflowName, Step: s.CurrentStepID, SessionID: s.SessionID}}
}
