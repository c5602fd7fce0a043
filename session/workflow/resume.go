package workflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
	"deepwork/session/workflow/stack"
)

const codeNoSession = "no_active_session"

// keptListed is how many sessions an error lists, and triedListed how many
// files it reads for them.
const (
	keptListed  = 20
	triedListed = 10_000
)

// takeUp puts a session that is named by its id, and its ancestors, on the
// stack: after a crash, a restart, or when its connection is gone. Of one that
// has ended, which is returned all the same, only the ancestors.
func (c *Conn) takeUp(ctx context.Context, id string) (*stack.Handle, error) {
	h, err := c.hold(ctx, id)
	if err != nil {
		return nil, err
	}
	links := []stack.Link{{Handle: h}} // from the session up
	seen := map[string]bool{id: true}
	for up := h.Parent; up != "" && !seen[up]; {
		seen[up] = true
		p, err := c.hold(ctx, up)
		if err != nil && !outOfReach(err) {
			// It is taken up with its ancestors: once it is on the stack, nobody
			// looks for them any more.
			c.engine.letGo(links)
			return nil, err
		}
		if err != nil {
			c.engine.Logger.Warn("an ancestor of a resumed session was not taken up", "session", id, "ancestor", up, "error", err)
			break
		}
		if p.Active() { // else the next one goes on below it
			links[len(links)-1].Parent = up
			links = append(links, stack.Link{Handle: p})
		}
		up = p.Parent
	}
	slices.Reverse(links)
	if err := c.push(ctx, links...); err != nil {
		return nil, err
	}
	c.engine.Logger.Info("session taken up", "session", id, "sessions_on_stack", len(links))
	return h, nil
}

// outOfReach reports whether a session cannot be taken up now or at the next call: one
// that was nested in it goes on without it.
func outOfReach(err error) bool {
	return !errors.Is(err, store.ErrPending) && slices.Contains(
		[]string{"unknown_session", codeOwned, codeTaken, "session_damaged", "session_foreign", "session_unreadable", "definition_lost"}, session.CodeOf(err))
}

// hold reaches a session and pins it, if it is active. Where it was given up in
// between, because the last connection that held it closed, it is reached again.
func (c *Conn) hold(ctx context.Context, id string) (*stack.Handle, error) {
	for {
		h, err := c.reach(ctx, id)
		if err != nil || !h.Active() || c.engine.handles.Pin(h) {
			return h, err
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("taking up session %s: %w", id, err)
		}
	}
}

// reach wakes a session's actor, which makes this server its owner. A session
// of another identity is not touched, and reported as unknown.
func (c *Conn) reach(ctx context.Context, id string) (*stack.Handle, error) {
	if h := c.engine.handles.Get(id); h != nil {
		if h.View().Identity != c.identity {
			return nil, unknownSession(id)
		}
	} else {
		s, err := c.engine.records.Peek(id)
		if err == nil && s.Identity != c.identity {
			return nil, unknownSession(id)
		}
		// What cannot be read is looked at again, and set aside, by the actor.
	}
	return ask(ctx, c.engine, id, func(_ context.Context, a *sessionActor) (*stack.Handle, error) {
		_, err := a.repetition(caller{Identity: c.identity})
		return a.handle, err
	})
}

// noSession says that there is no session to speak of, and which could be
// resumed (seed 000, 001.4.4 and 001.6.4).
func (c *Conn) noSession(ctx context.Context) error {
	found, more := c.engine.resumable(ctx, c.identity, keptListed, nil)
	if len(found) == 0 && more {
		return session.NotNow(codeNoSession, "No active workflow session. Begin one with start_workflow; there are so many session files that only the newest were looked at: `deepwork sessions list` has those that could be resumed by their session_id.")
	}
	if len(found) == 0 {
		return session.NotNow(codeNoSession, "No active workflow session. Begin one with start_workflow; get_workflows lists the available ones.")
	}
	var b strings.Builder
	b.WriteString("No active workflow session on this connection. Begin one with start_workflow, or resume one of these by passing its session_id (get_step says where it is):")
	ids := listSessions(&b, found, more, func(s *machine.State) string {
		if h := c.engine.handles.Get(s.SessionID); h != nil && h.Pinned() {
			return " (in use on another connection)"
		}
		return ""
	})
	return session.NotNow(codeNoSession, "%s", b.String()).With("resumable", ids)
}

// listSessions writes a line for each session, with what remark says of it, and
// returns their ids; more says that these are not all.
func listSessions(b *strings.Builder, found []*machine.State, more bool, remark func(*machine.State) string) []string {
	ids := make([]string, len(found))
	for i, s := range found {
		ids[i] = s.SessionID
		fmt.Fprintf(b, "\n- %s: %s/%s, at step '%s', last moved %s, goal: %s%s",
			s.SessionID, s.JobName, s.WorkflowName, s.CurrentStepID, s.UpdatedAt.Format("2006-01-02 15:04:05Z"),
			jsontext.Clip(strings.Join(strings.Fields(s.Goal), " "), 80), remark(s))
	}
	if more {
		b.WriteString("\nOlder ones are not listed; `deepwork sessions list` has them all.")
	}
	return ids
}

// usedElsewhere reports whether another connection works on a session. Those of a stateless
// connection cannot be distinguished.
func (c *Conn) usedElsewhere(id string) bool {
	h := c.engine.handles.Get(id)
	return h != nil && !c.stateless && h.Pinned()
}

// resumable returns the newest sessions that the caller can resume, for get_workflows.
func (c *Conn) resumable(ctx context.Context) []machine.ResumableSession {
	found, _ := c.engine.resumable(ctx, c.identity, keptListed, c.usedElsewhere)
	out := make([]machine.ResumableSession, len(found))
	for i, s := range found {
		out[i] = machine.ResumableSession{
			SessionID: s.SessionID, Workflow: s.JobName + "/" + s.WorkflowName, Step: s.CurrentStepID,
			Goal: jsontext.Clip(strings.Join(strings.Fields(s.Goal), " "), 200),
			Age:  session.Ago(c.engine.now().Sub(s.UpdatedAt)),
		}
	}
	return out
}

// duplicates says that a workflow is in progress already, on the stack of a session or resumable by
// the caller, and how to go on with it; "" if it is not. It examines the caller's newest 20 sessions.
func (c *Conn) duplicates(ctx context.Context, workflow, on string) string {
	var same, ids []string
	for _, e := range slices.Backward(c.stackOf(ctx, on)) {
		if ids = append(ids, e.SessionID); e.Workflow == workflow {
			same = append(same, fmt.Sprintf("session '%s' (on the stack, at step '%s')", e.SessionID, e.Step))
		}
	}
	alive, looked := store.Census(c.engine.records), 0
	for id, err := range c.engine.records.Active(ctx, c.identity) {
		if looked++; err != nil || looked > keptListed {
			break
		}
		if slices.Contains(ids, id) || c.usedElsewhere(id) {
			continue
		}
		if h := c.engine.handles.Get(id); h != nil { // there may be thousands of stateless ones: nothing is read for them
			if v := h.View(); v.Workflow == workflow && h.Active() {
				same = append(same, fmt.Sprintf("session '%s' (at step '%s')", id, v.Step))
			}
		} else if s := c.engine.resumableRecord(id, c.identity, alive); s != nil && s.JobName+"/"+s.WorkflowName == workflow {
			same = append(same, fmt.Sprintf("session '%s' (at step '%s', last moved %s ago)", id, s.CurrentStepID, session.Ago(c.engine.now().Sub(s.UpdatedAt))))
		}
	}
	if same == nil {
		return ""
	}
	more := ""
	if n := len(same) - 3; n > 0 {
		same, more = same[:3], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%s is already in progress in %s%s; this is another session of it. To go on with the earlier one instead, call abort_workflow for this one, then get_step with the session_id of the earlier one.",
		workflow, strings.Join(same, ", "), more)
}

// resumable finds the newest active sessions of an identity that no other living server owns, this
// server's own included, without those that skip reports; at most so many, and more reports that
// there are others, or may be. skip may be nil.
func (e *Engine) resumable(ctx context.Context, identity string, most int, skip func(id string) bool) (found []*machine.State, more bool) {
	alive := store.Census(e.records)
	tried := 0
	for id, err := range e.records.Active(ctx, identity) {
		if err != nil {
			e.Logger.Warn("listing the active sessions", "error", err)
			break
		}
		if skip != nil && skip(id) {
			continue
		}
		if tried++; tried > triedListed || ctx.Err() != nil {
			more = true
			break
		}
		s := e.resumableRecord(id, identity, alive)
		if s == nil {
			continue
		}
		if more = len(found) == most; more {
			break
		}
		found = append(found, s)
	}
	slices.SortStableFunc(found, func(a, b *machine.State) int { return b.UpdatedAt.Compare(a.UpdatedAt) })
	return found, more
}

// resumableRecord reads a session. It returns nil if the identity cannot resume it.
func (e *Engine) resumableRecord(id, identity string, alive func(server string) bool) *machine.State {
	s, err := e.records.Peek(id)
	switch code := session.CodeOf(err); {
	case code == "unknown_session": // about to be written, or removed
		return nil
	case err != nil:
		if _, logged := e.read.get(id); code != codeForeign || !logged {
			e.Logger.Warn("reading an active session", "session", id, "error", err)
			e.read.put(id, struct{}{})
		}
		return nil
	case s.Status != machine.Active: // its server was killed before it could note that
		e.records.NoteActive(s)
		return nil
	case s.Identity != identity, s.Owner != e.records.Server() && alive(s.Owner):
		return nil
	}
	return s
}
