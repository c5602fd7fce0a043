package workflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
	c.engine.Logger.Info("session taken up", "session", id, "on_the_stack", len(links))
	return h, nil
}

// outOfReach reports whether a session cannot be taken up now or at the next call: one
// that was nested in it goes on without it.
func outOfReach(err error) bool {
	return !errors.Is(err, store.ErrPending) && slices.Contains(
		[]string{"unknown_session", "session_owned", "session_damaged", "session_foreign", "session_unreadable", "definition_lost"}, session.CodeOf(err))
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
	found, more := c.engine.resumable(ctx, c.identity, keptListed)
	if len(found) == 0 && more {
		return session.NotNow(codeNoSession, "No active workflow session. Begin one with start_workflow; there are so many session files that only the newest were looked at: `deepwork sessions list` has those that could be resumed by their session_id.")
	}
	if len(found) == 0 {
		return session.NotNow(codeNoSession, "No active workflow session. Begin one with start_workflow; get_workflows lists what there is.")
	}
	var b strings.Builder
	b.WriteString("No active workflow session on this connection. Begin one with start_workflow, or resume one of these by passing its session_id (get_step tells where it is):")
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

// A readRecord is whose a record is that was read, and whether it has ended. Neither
// ever changes: a search for the active ones of one identity need not read it again.
type readRecord struct {
	at       time.Time // its file's time, for an id that is used again
	identity string
	over     bool
}

// skip reports whether the record is no active one of this identity.
func (r readRecord) skip(info store.Info, identity string) bool {
	return r.at.Equal(info.ModTime) && (r.over || r.identity != identity)
}

// maxRead is how many records are remembered as read; beyond it all are read again.
const maxRead = 100_000

// resumable finds the newest active sessions of an identity that no other
// living server owns, this server's own included; at most so many, and more
// reports that there are others, or may be.
func (e *Engine) resumable(ctx context.Context, identity string, most int) (found []*machine.State, more bool) {
	var infos []store.Info
	for info, err := range e.records.List(ctx) {
		if err != nil {
			e.Logger.Warn("listing the session files", "error", err)
			break
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b store.Info) int { return b.ModTime.Compare(a.ModTime) })
	alive := aliveOnce(e.records)
	tried := 0
	for _, info := range infos {
		if r, ok := e.read.get(info.ID); ok && r.skip(info, identity) {
			continue
		}
		if h := e.handles.Get(info.ID); h != nil && h.View().Identity != identity {
			continue
		}
		if tried++; tried > triedListed || ctx.Err() != nil {
			return found, true
		}
		s, err := e.records.Peek(info.ID)
		if err != nil {
			e.Logger.Warn("listing the session files", "session", info.ID, "error", err)
			if session.CodeOf(err) == codeForeign {
				e.read.put(info.ID, readRecord{at: info.ModTime, over: true}) // logged once
			}
			continue
		}
		if s.Status != machine.Active || s.Identity != identity {
			e.read.put(info.ID, readRecord{info.ModTime, s.Identity, s.Status != machine.Active})
			continue
		}
		if s.Owner != e.records.Server() && alive(s.Owner) {
			continue
		}
		if len(found) == most {
			return found, true
		}
		found = append(found, s)
	}
	return found, false
}
