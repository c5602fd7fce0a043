package workflow

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"deepwork/actor"
	"deepwork/session"
)

// A stack is the sessions one connection is working on, bottom first. Its actor
// owns the order; which of them are still active is each session's own to say,
// so a session that ends anywhere leaves every stack at once.
type stack struct {
	entries []place
	gone    map[string]string // ended sessions and the parents they had
	ended   endedSessions
	shared  *atomic.Pointer[[]*handle]
}

// A place is a session on a stack and the one it is nested in, which is the
// nearest that has not ended.
type place struct {
	handle *handle
	parent string
}

// An endedSession is one whose last step was finished on this connection: the
// reply to that may have been lost.
type endedSession struct {
	id      string
	step    string
	outputs Outputs
	named   bool   // the call gave its session_id
	move    uint64 // which of the connection's transitions it was
}

// keptEnded is how many ended sessions a stack remembers.
const keptEnded = 16

// keptGone is how many ended sessions' parents are remembered, at least.
const keptGone = 4096

type stackMessage interface{ stackMessage() }

// resolveMessage asks which session a call is about. An id that is not on the
// stack gives a nil handle: it has to be taken up. A pool is always told an id.
type resolveMessage struct {
	ID    *string
	Reply actor.Reply[*handle]
}

// pushMessage puts sessions, which are pinned, on top, in this order; those
// already there stay.
type pushMessage struct {
	Places []place
	// Ended is a session that was asked for and is over, and EndedParent the one
	// that goes on below it; "" where there is none.
	Ended, EndedParent string
	Reply              actor.Reply[struct{}]
}

// parentMessage asks who the parent of a new session is: "" where there is none.
type parentMessage struct {
	ID    *string
	Reply actor.Reply[string]
}

// resumesMessage asks for the nearest active ancestor of a session that ended.
type resumesMessage struct {
	ID    string
	Reply actor.Reply[*handle]
}

// endedMessage tells that a session was finished on this connection.
type endedMessage struct{ endedSession }

// lastEndedMessage asks for the session that ended with this step and these
// outputs, by the transition Since or a later one; "" where there is none.
type lastEndedMessage struct {
	StepID  string
	Same    func(Outputs) bool
	Since   uint64
	Unnamed bool // and by a call without a session_id
	Reply   actor.Reply[string]
}

func (resolveMessage) stackMessage()   {}
func (pushMessage) stackMessage()      {}
func (parentMessage) stackMessage()    {}
func (resumesMessage) stackMessage()   {}
func (endedMessage) stackMessage()     {}
func (lastEndedMessage) stackMessage() {}

func (s *stack) Receive(ctx context.Context, m stackMessage) error {
	switch m := m.(type) {
	case resolveMessage:
		s.purge()
		answer(m.Reply, func() (*handle, error) { return s.resolve(m.ID) })
	case pushMessage:
		s.purge()
		if m.Ended != "" && s.gone[m.Ended] == "" {
			s.trim()
			if s.gone == nil {
				s.gone = map[string]string{}
			}
			s.gone[m.Ended] = m.EndedParent
		}
		s.push(m.Places)
		m.Reply.Send(struct{}{})
	case parentMessage:
		s.purge()
		answer(m.Reply, func() (string, error) { return s.parent(m.ID) })
	case resumesMessage:
		m.Reply.Send(s.resumes(m.ID))
	case endedMessage:
		s.ended.add(m.endedSession)
	case lastEndedMessage:
		m.Reply.Send(s.ended.find(m))
	default:
		return fmt.Errorf("a stack was sent a %T", m)
	}
	return nil
}

// purge drops sessions that ended; their children are then their parents'.
func (s *stack) purge() {
	before := len(s.gone)
	for _, e := range s.entries {
		if e.handle.view.Load().Status != Active {
			if s.gone == nil {
				s.gone = map[string]string{}
			}
			s.gone[e.handle.id] = e.parent
		}
	}
	if len(s.gone) == before {
		return
	}
	kept := make([]place, 0, len(s.entries))
	for _, e := range s.entries {
		if _, dead := s.gone[e.handle.id]; dead {
			e.handle.stacks.Add(-1)
		} else {
			e.parent = s.living(e.parent)
			kept = append(kept, e)
		}
	}
	s.entries = kept
	s.publish()
}

// trim forgets the sessions that ended, where they are many: after purge every
// entry has a living parent.
func (s *stack) trim() {
	if len(s.gone) > keptGone {
		clear(s.gone)
	}
}

// living follows a parent up to one that has not ended.
func (s *stack) living(id string) string {
	for {
		up, dead := s.gone[id]
		if !dead {
			return id
		}
		id = up
	}
}

func (s *stack) publish() {
	hs := make([]*handle, len(s.entries))
	for i, e := range s.entries {
		hs[i] = e.handle
	}
	s.shared.Store(&hs)
}

func (s *stack) find(id string) *place {
	for i := len(s.entries) - 1; i >= 0; i-- {
		if s.entries[i].handle.id == id {
			return &s.entries[i]
		}
	}
	return nil
}

func (s *stack) push(places []place) {
	for _, p := range places {
		if s.find(p.handle.id) != nil {
			p.handle.stacks.Add(-1) // it has a pin here already
			continue
		}
		delete(s.gone, p.handle.id) // it was lost, and is there again
		p.parent = s.living(p.parent)
		s.entries = append(s.entries, p)
	}
	s.publish()
}

// Stop lets go of the sessions; whoever stops it sees to what becomes of them.
func (s *stack) Stop(context.Context) {
	for _, e := range s.entries {
		e.handle.stacks.Add(-1)
	}
	s.entries = nil
	s.publish()
}

func (s *stack) resolve(id *string) (*handle, error) {
	if id != nil {
		if p := s.find(*id); p != nil {
			return p.handle, nil
		}
		return nil, nil
	}
	if len(s.entries) == 0 {
		return nil, errNoSession
	}
	leaves := s.leaves()
	if len(leaves) == 1 {
		return leaves[0], nil
	}
	names := make([]string, 0, len(leaves))
	ids := make([]string, 0, len(leaves))
	for _, h := range leaves {
		v := h.view.Load()
		ids = append(ids, h.id)
		if len(names) < 20 {
			names = append(names, fmt.Sprintf("%s (%s, step '%s')", h.id, v.Workflow, v.Step))
		}
	}
	more := ""
	if n := len(leaves) - len(names); n > 0 {
		more = fmt.Sprintf(", and %d more", n)
	}
	return nil, session.NotNow("session_id_needed",
		"Several workflows are open side by side on this connection: %s%s. Pass session_id to say which one you mean.",
		strings.Join(names, ", "), more).With("session_ids", ids)
}

// leaves are the sessions that no other on the stack is nested in.
func (s *stack) leaves() []*handle {
	inner := make(map[string]bool, len(s.entries))
	for _, e := range s.entries {
		inner[e.parent] = true
	}
	var out []*handle
	for _, e := range s.entries {
		if !inner[e.handle.id] {
			out = append(out, e.handle)
		}
	}
	return out
}

func (s *stack) parent(id *string) (string, error) {
	switch {
	case id == nil && len(s.entries) == 0:
		return "", nil
	case id == nil:
		return s.entries[len(s.entries)-1].handle.id, nil
	case s.find(*id) == nil:
		return "", errNotOnStack
	}
	return *id, nil
}

// resumes finds the nearest active ancestor of a session that ended, or nil.
func (s *stack) resumes(id string) *handle {
	s.purge()
	up := s.find(s.living(id))
	s.trim()
	if up == nil {
		return nil
	}
	return up.handle
}

// endedSessions are those that ended on a connection of late, the newest last.
type endedSessions []endedSession

func (es *endedSessions) add(e endedSession) {
	*es = append(*es, e)
	if n := len(*es) - keptEnded; n > 0 {
		*es = append((*es)[:0:0], (*es)[n:]...)
	}
}

// find answers a lastEndedMessage.
func (es endedSessions) find(m lastEndedMessage) string {
	for i := len(es) - 1; i >= 0; i-- {
		e := es[i]
		if e.move >= m.Since && e.step == m.StepID && !(m.Unnamed && e.named) && m.Same(e.outputs) {
			return e.id
		}
	}
	return ""
}
