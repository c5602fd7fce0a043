package workflow

import (
	"context"
	"errors"
	"time"

	"deepwork/actor"
	"deepwork/actor/wait"
	"deepwork/session"
	"deepwork/session/workflow/machine"
	"deepwork/session/workflow/stack"
)

// How a session is released. A server owns a session while one of its connections holds it. When
// the last one drops it, the session's actor ends and finally clears the owner on disk (DESIGN
// "Stacks"): from then on any server may resume the session. The actor decides by the pins of the
// handle; a call in between pins the session, or waits in the mailbox for the next incarnation,
// which resumes it. So nothing acknowledged is undone, and no two servers own a session.

// releasesAtOnce is how many sessions are released concurrently, by all connections that close:
// each is a synced write, and active callers have priority.
const releasesAtOnce = 4

// releaseAgain is the pause before retrying to release sessions, after the disk was full or not
// writable.
const releaseAgain = 30 * time.Second

// Stopping notifies the engine that its server is about to stop: connections that close from now on
// release no session, for a server that has ended owns none, and the end must not wait for a write
// per session. Close implies it. It does not block.
func (e *Engine) Stopping() { e.stopping.Store(true) }

// aside runs f outside the actors. It reports false, without running f, if the engine is closing.
func (e *Engine) aside(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.beside.Go(f)
	return true
}

// letGo unpins sessions that were not pushed, and releases those that no other stack holds.
func (e *Engine) letGo(links []stack.Link) {
	hs := make([]*stack.Handle, len(links))
	for i, l := range links {
		l.Handle.Unpin()
		hs[i] = l.Handle
	}
	e.releaseSoon(hs)
}

// releaseSoon calls release on another goroutine.
func (e *Engine) releaseSoon(hs []*stack.Handle) {
	if len(hs) > 0 && !e.stopping.Load() {
		e.aside(func() { e.release(hs) })
	}
}

// release releases those of the sessions that no stack holds, one after the other from the bottom,
// and waits: when a caller finds one of them free, its ancestors are free too.
func (e *Engine) release(hs []*stack.Handle) {
	for _, h := range hs {
		if h.Pinned() || e.handles.Get(h.ID) != h {
			continue // held elsewhere, ended, or released
		}
		select {
		case e.releasing <- struct{}{}:
		case <-e.ctx.Done():
			return
		}
		if !e.stopping.Load() && e.handles.Get(h.ID) == h { // unchanged after the wait
			e.end(h)
		}
		<-e.releasing
	}
}

// end ends a session's actor, in memory or not; the actor does the rest.
func (e *Engine) end(h *stack.Handle) {
	_, err := ask(e.ctx, e, h.ID, func(context.Context, *sessionActor) (struct{}, error) { return struct{}{}, nil })
	if err == nil {
		err = e.passivate(h.ID)
	}
	switch {
	case errors.Is(err, actor.ErrBusy):
		e.Logger.Debug("a session is given up later", "session", h.ID, "reason", err)
	case err != nil && !e.stopping.Load():
		e.Logger.Warn("a session was not given up", "session", h.ID, "error", err)
		e.unreleased.Store(true)
	}
}

// passivate ends a session's actor.
func (e *Engine) passivate(id string) error {
	ctx, cancel := context.WithTimeout(e.ctx, e.AskTimeout)
	defer cancel()
	return e.sessions.Passivate(ctx, id)
}

// releaseFailed retries failed releases until the engine closes: before, no other server can resume
// the sessions. It stops at the first new failure, since the disk has not changed.
func (e *Engine) releaseFailed() {
	for wait.For(e.ctx, releaseAgain) == nil {
		if !e.unreleased.Swap(false) {
			continue
		}
		for _, h := range e.handles.Unpinned() {
			if e.release([]*stack.Handle{h}); e.unreleased.Load() {
				break
			}
		}
	}
}

// leave releases a session that was busy when its last stack dropped it.
func (a *sessionActor) leave() {
	if !a.handle.Pinned() && a.state.Status == machine.Active && len(a.reviews) == 0 {
		a.engine.releaseSoon([]*stack.Handle{a.handle})
	}
}

// giveUp clears the session's owner, if no stack holds it. It is the last action of an actor.
func (a *sessionActor) giveUp() {
	e := a.engine
	if a.state.Status != machine.Active || e.stopping.Load() || !e.handles.Retire(a.handle) {
		return
	}
	next := a.state.Next(a.state.UpdatedAt)
	next.Owner = ""
	if err := e.records.Release(next); err != nil {
		e.handles.Restore(a.handle)
		e.unreleased.Store(true)
		e.Logger.Warn("a session could not be given up; it stays this server's for now", "session", a.id, "error", err, session.MS("again_in_ms", releaseAgain))
		return
	}
	e.Logger.Debug("session given up", "session", a.id)
}

// over removes an ended session and ends its actor: a repeated call reads its file. It is called by
// the actor, and does not wait.
func (e *Engine) over(id string) {
	e.handles.Remove(id)
	e.aside(func() {
		if err := e.passivate(id); err != nil && !errors.Is(err, actor.ErrBusy) {
			e.Logger.Debug("a session that has ended stays in memory", "session", id, "error", err)
		}
	})
}

// Stats are metrics of an Engine.
type Stats struct {
	Active int         // active sessions that this server knows
	Awake  int         // sessions with an actor in memory
	Actors actor.Stats // sessions, stacks and their mailboxes
}

// Stats returns the current figures. It visits every actor in memory, without delaying them.
func (e *Engine) Stats() Stats {
	return Stats{Active: e.handles.Len(), Awake: e.sessions.Len(), Actors: e.system.Stats()}
}
