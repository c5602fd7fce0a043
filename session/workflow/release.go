package workflow

import (
	"context"
	"errors"
	"time"

	"deepwork/actor"
	"deepwork/actor/wait"
	"deepwork/session/workflow/machine"
	"deepwork/session/workflow/stack"
)

// How a session is given up. A server owns a session for as long as one of its
// connections holds it. When the last of them lets go, the session's actor ends,
// and the last thing it does is to clear the owner on disk (DESIGN "Stacks" and
// "Several servers, one project"): from then on any server may take the session
// up. It is the actor that decides, at its end, by the pins of the handle; a call
// that comes in between finds the session pinned, or waits in the mailbox for
// the next incarnation, which takes the session up like anybody else. So nothing
// that was acknowledged is undone, and no two servers own a session.

// releasesAtOnce is how many sessions are given up at the same time, by all
// connections that close: each is a synced write, and those who go on working
// come first.
const releasesAtOnce = 4

// releaseAgain is how long it is until sessions that could not be given up, on a
// disk that was full or could not be written, are tried again.
const releaseAgain = 30 * time.Second

// Stopping notifies the engine that its server is about to stop: connections that
// close from now on give no session up, for a server that has ended owns none,
// and an end must not wait for a write for every session. Close implies it. It
// does not block.
func (e *Engine) Stopping() { e.stopping.Store(true) }

// aside runs f beside the actors. It reports false, and does not run f, if the
// engine is closing.
func (e *Engine) aside(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.beside.Go(f)
	return true
}

// letGo takes back the pins of sessions that no stack was given, and gives up what
// no other stack holds.
func (e *Engine) letGo(links []stack.Link) {
	hs := make([]*stack.Handle, len(links))
	for i, l := range links {
		l.Handle.Unpin()
		hs[i] = l.Handle
	}
	e.releaseSoon(hs)
}

// releaseSoon is release by another goroutine.
func (e *Engine) releaseSoon(hs []*stack.Handle) {
	if len(hs) > 0 && !e.stopping.Load() {
		e.aside(func() { e.release(hs) })
	}
}

// release gives up those of the sessions that no stack holds any more, one after
// the other from the bottom, and waits until that is done: a caller that finds one of
// them free finds what it is nested in free too.
func (e *Engine) release(hs []*stack.Handle) {
	for _, h := range hs {
		if h.Pinned() || e.handles.Get(h.ID) != h {
			continue // held elsewhere, or over, or given up
		}
		select {
		case e.releasing <- struct{}{}:
		case <-e.ctx.Done():
			return
		}
		if !e.stopping.Load() && e.handles.Get(h.ID) == h { // still, after the wait
			e.end(h)
		}
		<-e.releasing
	}
}

// end has a session's actor end, awake or not: the rest is the actor's.
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

// releaseFailed tries again to give up sessions that could not be, until the
// engine closes: no other server can take them up before. It stops at the first
// that fails again, since the disk is as it was.
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

// leave gives up a session that was busy when its last stack let go of it.
func (a *sessionActor) leave() {
	if !a.handle.Pinned() && a.state.Status == machine.Active && len(a.reviews) == 0 {
		a.engine.releaseSoon([]*stack.Handle{a.handle})
	}
}

// giveUp clears the session's owner, if no stack holds it. It is the last thing
// an incarnation does.
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
		e.Logger.Warn("a session could not be given up; it stays this server's for now", "session", a.id, "error", err, "again_in", releaseAgain)
		return
	}
	e.Logger.Debug("session given up", "session", a.id)
}

// over removes a session that has ended, and has its actor end: a call that is
// repeated reads its file. It is called by the actor, and does not wait.
func (e *Engine) over(id string) {
	e.handles.Remove(id)
	e.aside(func() {
		if err := e.passivate(id); err != nil && !errors.Is(err, actor.ErrBusy) {
			e.Logger.Debug("a session that has ended stays in memory", "session", id, "error", err)
		}
	})
}

// Stats are figures of an Engine, for metrics.
type Stats struct {
	Active int         // sessions that this server knows to be active
	Awake  int         // those of all whose actors are in memory
	Actors actor.Stats // of sessions and stacks, and their mailboxes
}

// Stats returns the figures as they are now. It looks at every actor in memory,
// which holds none of them up.
func (e *Engine) Stats() Stats {
	return Stats{Active: e.handles.Len(), Awake: e.sessions.Len(), Actors: e.system.Stats()}
}
