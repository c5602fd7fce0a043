package workflow

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"deepwork/actor"
)

// A pool is what a stateless connection has in place of a stack: the sessions of
// one identity, each beside the others, or nested in the one it names as its
// parent. There may be thousands, so nothing but a sweep looks at all of them.
// As on a stack, which of them are active is each session's own to say.
type pool struct {
	held  map[string]*held
	gone  map[string]string // sessions that ended and left, and the parents they had
	ended endedSessions

	idle  func() time.Duration // after which a session that no call is about leaves
	let   func([]*handle)      // gives up those that left; does not block
	sweep func()               // has the pool sent a sweepMessage
	timer *time.Timer          // for the next one; nil while nothing is held
}

// A held session is one of a pool.
type held struct {
	place
	used time.Time // by the last call about it, or about one nested in it
}

// chainMessage asks a pool for a session and what it is nested in, bottom first,
// as far as they are active.
type chainMessage struct {
	ID    string
	Reply actor.Reply[[]*handle]
}

// sweepMessage has a pool drop what has ended or is idle.
type sweepMessage struct{}

func (chainMessage) stackMessage() {}
func (sweepMessage) stackMessage() {}

func (p *pool) Receive(ctx context.Context, m stackMessage) error {
	switch m := m.(type) {
	case resolveMessage:
		m.Reply.Send(p.active(*m.ID))
		p.touch(*m.ID)
	case pushMessage:
		p.push(m)
		m.Reply.Send(struct{}{})
	case parentMessage:
		if p.active(*m.ID) == nil {
			m.Reply.Fail(errNotOnStack)
		} else {
			m.Reply.Send(*m.ID)
		}
		p.touch(*m.ID)
	case resumesMessage:
		m.Reply.Send(p.active(p.living(m.ID)))
	case chainMessage:
		m.Reply.Send(p.chain(m.ID))
	case endedMessage:
		p.ended.add(m.endedSession)
	case lastEndedMessage:
		m.Reply.Send(p.ended.find(m))
	case sweepMessage:
		p.clear(time.Now())
	default:
		return fmt.Errorf("a pool was sent a %T", m)
	}
	return nil
}

// Stop lets go of all sessions; it comes with the end of the engine.
func (p *pool) Stop(context.Context) {
	if p.timer != nil {
		p.timer.Stop()
	}
	for _, h := range p.held {
		h.handle.stacks.Add(-1)
	}
	clear(p.held)
}

// active returns the handle of a held session that has not ended, or nil.
func (p *pool) active(id string) *handle {
	if h := p.held[id]; h != nil && h.handle.view.Load().Status == Active {
		return h.handle
	}
	return nil
}

// parentOf tells what a session is, or was, nested in; known is false where it
// was never here.
func (p *pool) parentOf(id string) (parent string, known bool) {
	if h := p.held[id]; h != nil {
		return h.parent, true
	}
	parent, known = p.gone[id]
	return parent, known
}

// living follows a session up to one that has not ended; "" where there is none.
func (p *pool) living(id string) string {
	for p.active(id) == nil {
		up, known := p.parentOf(id)
		if !known {
			return ""
		}
		id = up
	}
	return id
}

func (p *pool) chain(id string) []*handle {
	var out []*handle
	for id = p.living(id); id != ""; id = p.living(p.held[id].parent) {
		out = append(out, p.held[id].handle)
	}
	slices.Reverse(out)
	return out
}

// touch keeps a session, and what it is nested in, from being idle.
func (p *pool) touch(id string) {
	now := time.Now()
	for id = p.living(id); id != ""; id = p.living(p.held[id].parent) {
		p.held[id].used = now
	}
}

func (p *pool) push(m pushMessage) {
	if m.Ended != "" && p.held[m.Ended] == nil {
		p.gone[m.Ended] = m.EndedParent
		p.trim()
	}
	for _, pl := range m.Places {
		id := pl.handle.id
		if h := p.held[id]; h != nil {
			// Pinned here already; or lost, and there again under another handle.
			h.handle.stacks.Add(-1)
			pl.parent = h.parent
		}
		delete(p.gone, id)
		p.held[id] = &held{place: pl}
		p.touch(id)
	}
	if p.timer == nil && len(p.held) > 0 {
		p.timer = time.AfterFunc(p.every(), p.sweep)
	}
}

// trim forgets the sessions that left, where they are many: the parents of those
// that are held are living ones then.
func (p *pool) trim() {
	if len(p.gone) <= keptGone {
		return
	}
	for _, h := range p.held {
		h.parent = p.living(h.parent)
	}
	clear(p.gone)
}

// maxSweep is how late a pool may see that the idle time has been made shorter.
const maxSweep = 10 * time.Minute

// every is how long it is until a pool is swept again.
func (p *pool) every() time.Duration { return min(max(p.idle()/8, time.Millisecond), maxSweep) }

// clear drops the sessions that ended, and gives up those that are idle.
func (p *pool) clear(now time.Time) {
	var idle []*handle
	after := p.idle()
	for id, h := range p.held {
		switch over := p.active(id) == nil; {
		case over:
			p.gone[id] = h.parent
		case now.Sub(h.used) >= after:
			idle = append(idle, h.handle)
		default:
			continue
		}
		h.handle.stacks.Add(-1)
		delete(p.held, id)
	}
	p.trim()
	p.held = maps.Clone(p.held) // a map keeps the room it once needed
	p.let(idle)
	p.timer = nil
	if len(p.held) > 0 {
		p.timer = time.AfterFunc(p.every(), p.sweep)
	}
}
