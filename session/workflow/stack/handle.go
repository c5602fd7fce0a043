package stack

import (
	"sync"
	"sync/atomic"
	"unique"
	"weak"

	"deepwork/session/workflow/machine"
)

// A View is the public part of a session, read without its actor.
type View struct {
	Workflow string // job/workflow
	Step     string
	Status   machine.SessionStatus
	Identity string // the caller it belongs to
}

// ViewOf returns the view of a state.
func ViewOf(s *machine.State) View {
	return View{Workflow: s.JobName + "/" + s.WorkflowName, Step: s.CurrentStepID, Status: s.Status, Identity: s.Identity}
}

// lost is the status, in views only, of a session whose record cannot be read.
const lost machine.SessionStatus = "lost"

// A Handle publishes a session's view, whether its actor is in memory or not. A server has one for
// each session it knows to be active.
type Handle struct {
	ID     string
	Parent string // session id, or ""
	// view is a unique.Handle[View]: most of a hundred thousand sessions share few views.
	view atomic.Value
	// state is a weak.Pointer to what was published last: it keeps nothing in memory.
	state atomic.Value
	pins  atomic.Int32
}

// View returns the current view.
func (h *Handle) View() View { return h.view.Load().(unique.Handle[View]).Value() }

// State returns the state that was published last, or nil if it is no longer in memory.
func (h *Handle) State() *machine.State {
	p, _ := h.state.Load().(weak.Pointer[machine.State])
	return p.Value()
}

// Active reports whether the session is in progress.
func (h *Handle) Active() bool { return h.View().Status == machine.Active }

// Pinned reports whether the session is on a stack, or about to be pushed onto one. While it is,
// this server owns the session.
func (h *Handle) Pinned() bool { return h.pins.Load() > 0 }

// Unpin takes back one pin.
func (h *Handle) Unpin() { h.pins.Add(-1) }

// Publish publishes a state, and the view of it. Only the session's actor calls it.
func (h *Handle) Publish(s *machine.State) {
	now := View{Workflow: h.View().Workflow, Step: s.CurrentStepID, Status: s.Status, Identity: s.Identity}
	if h.View() != now {
		h.view.Store(unique.Make(now))
	}
	h.state.Store(weak.Make(s))
}

// A Table has the handles of the sessions that this server knows to be active. An ended session is
// removed from it; stacks that still hold its handle see that it ended. A released session, which
// no stack holds, is removed too. Its methods may be called from any goroutine.
type Table struct {
	mu      sync.RWMutex
	handles map[string]*Handle
}

// NewTable returns an empty table.
func NewTable() *Table { return &Table{handles: map[string]*Handle{}} }

// Get returns the handle of an active session, or nil.
func (t *Table) Get(id string) *Handle {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.handles[id]
}

// Of returns the handle of the session with this state; it creates and publishes one if necessary.
// pin pins it, for the stack it will be pushed onto.
func (t *Table) Of(s *machine.State, pin bool) *Handle {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.handles[s.SessionID]
	if h == nil {
		h = &Handle{ID: s.SessionID}
		if s.ParentSessionID != nil {
			h.Parent = *s.ParentSessionID
		}
		h.view.Store(unique.Make(ViewOf(s)))
		if s.Status == machine.Active {
			t.handles[s.SessionID] = h
		}
	}
	if pin {
		h.pins.Add(1)
	}
	return h
}

// Pin pins a session for the stack it will be pushed onto. It reports false if the session was
// released or has ended since the caller got the handle.
func (t *Table) Pin(h *Handle) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.handles[h.ID] != h {
		return false
	}
	h.pins.Add(1)
	return true
}

// Retire removes an active session that no stack holds, so that it can no longer be pinned. It
// reports false if a stack holds it, or if it was removed already.
func (t *Table) Retire(h *Handle) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.handles[h.ID] != h || h.Pinned() {
		return false
	}
	delete(t.handles, h.ID)
	return true
}

// Restore undoes Retire. Only the session's actor retires, restores and makes the handle of a
// session that is on disk, so nothing has replaced it.
func (t *Table) Restore(h *Handle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.handles[h.ID] = h
}

// Remove removes a session that ended.
func (t *Table) Remove(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.handles, id)
}

// Lose removes a session whose record is gone or damaged; it leaves all its stacks.
func (t *Table) Lose(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.handles[id]; h != nil {
		v := h.View()
		v.Status = lost
		h.view.Store(unique.Make(v))
		delete(t.handles, id)
	}
}

// Len returns the number of sessions in the table.
func (t *Table) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.handles)
}

// Unpinned returns the sessions that no stack holds.
func (t *Table) Unpinned() []*Handle {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var out []*Handle
	for _, h := range t.handles {
		if !h.Pinned() {
			out = append(out, h)
		}
	}
	return out
}
