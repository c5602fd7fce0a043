package workflow

import (
	"context"
	"errors"
	"time"

	"deepwork/actor"
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

// closeWait is how long Close waits for its work to be done.
const closeWait = 5 * time.Second

// wakeMessage wakes the actor, that it may end in order.
type wakeMessage struct{ Reply actor.Reply[struct{}] }

func (wakeMessage) sessionMessage() {}

// Close ends the connection: calls that come later are refused, those in flight
// are finished, and then the sessions that are on no other stack of this server
// are given up, so that any server on the project may take them up by their ids.
// A session whose review runs is given up when the review is over: it is paid
// for, and whoever takes the session up collects its verdict. Where a record
// cannot be written that is logged, and the session stays this server's until it
// can: that is tried again every 30 s.
//
// Close blocks until that is done, reviews excepted, at most 5 s; the rest is
// done behind it. In a server that is stopping nothing is written, since its
// sessions are anybody's when it has ended. Close may be called again. That of a
// Conn made by ConnectStateless does nothing: it is shared, and ends with the Engine.
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
	timeout := time.NewTimer(closeWait)
	defer timeout.Stop()
	select {
	case <-c.released:
	case <-timeout.C:
		c.engine.log.Info("a connection has closed, and its sessions are still being given up")
	}
}

// enter begins a call, which c.calls.Done ends.
func (c *Conn) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return closing()
	}
	c.calls.Add(1)
	return nil
}

// end is the work of Close.
func (c *Conn) end() {
	defer close(c.released)
	c.calls.Wait()
	held := *c.handles.Load() // bottom first: who takes up the top finds its ancestors free
	if err := c.stack.Stop(c.engine.ctx); err != nil {
		c.engine.log.Debug("closing a connection's stack", "error", err) // the engine closes
	}
	c.engine.release(held)
}

// Stopping tells the engine that its server is about to stop: connections that
// close from now on give no session up, for a server that has ended owns none,
// and an end must not wait for a write for every session. Close implies it. It
// does not block.
func (e *Engine) Stopping() { e.stopping.Store(true) }

// aside runs f beside the actors; false: the engine is closing, and does not.
func (e *Engine) aside(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.beside.Go(f)
	return true
}

// releaseSoon is release by another goroutine.
func (e *Engine) releaseSoon(hs []*handle) {
	if len(hs) > 0 && !e.stopping.Load() {
		e.aside(func() { e.release(hs) })
	}
}

// letGo takes pins back that no stack was given, and gives up what nobody else
// holds.
func (e *Engine) letGo(places []place) {
	hs := make([]*handle, len(places))
	for i, p := range places {
		p.handle.stacks.Add(-1)
		hs[i] = p.handle
	}
	e.releaseSoon(hs)
}

// release gives up those of the sessions that no stack holds any more, one after
// the other from the bottom, and waits until that is done: whoever finds one of
// them free finds what it is nested in free too.
func (e *Engine) release(hs []*handle) {
	for _, h := range hs {
		if h.stacks.Load() > 0 || e.handles.get(h.id) != h {
			continue // held elsewhere, or over, or given up
		}
		select {
		case e.releasing <- struct{}{}:
		case <-e.ctx.Done():
			return
		}
		if !e.stopping.Load() && e.handles.get(h.id) == h { // still, after the wait
			e.end(h)
		}
		<-e.releasing
	}
}

// end has a session's actor end, awake or not: the rest is the actor's.
func (e *Engine) end(h *handle) {
	_, err := ask(e.ctx, e, h.id, func(r actor.Reply[struct{}]) message { return wakeMessage{r} })
	if err == nil {
		ctx, cancel := context.WithTimeout(e.ctx, e.askTimeout)
		defer cancel()
		err = e.sessions.Passivate(ctx, h.id)
	}
	switch {
	case errors.Is(err, actor.ErrBusy):
		e.log.Debug("a session is given up later", "session", h.id, "reason", err)
	case err != nil && !e.stopping.Load():
		e.log.Warn("a session was not given up", "session", h.id, "error", err)
		e.keep(h)
	}
}

// leave sees to a session that was busy when its last stack let go of it.
func (a *sessionActor) leave() {
	if a.handle.stacks.Load() == 0 && a.state.Status == Active && len(a.reviews) == 0 {
		a.engine.releaseSoon([]*handle{a.handle})
	}
}

// giveUp clears the session's owner, if no stack holds it. It is the last thing
// an incarnation does.
func (a *sessionActor) giveUp() {
	e := a.engine
	if a.state.Status != Active || e.stopping.Load() || !e.handles.retire(a.handle) {
		return
	}
	next := a.state.Next(a.state.UpdatedAt)
	next.Owner = ""
	if err := e.records.Release(next); err != nil {
		e.handles.restore(a.handle)
		e.keep(a.handle)
		e.log.Warn("a session could not be given up; it stays this server's for now", "session", a.id, "error", err, "again_in", releaseAgain)
		return
	}
	e.log.Debug("session given up", "session", a.id)
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
	return Stats{Active: e.handles.len(), Awake: e.sessions.Len(), Actors: e.system.Stats()}
}
