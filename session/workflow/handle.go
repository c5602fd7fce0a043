package workflow

import (
	"sync"
	"sync/atomic"
)

// A view is what others may know of a session without asking its actor. It is
// immutable, published by the actor alone, and the same one for all sessions that
// look the same: what a hundred thousand of them cost the collector, while a few
// move, is what their handles point at.
type view struct {
	Workflow string // job/workflow
	Step     string
	Status   SessionStatus
	Identity string // whose session it is
}

// A handle is where a session's view is published. There is one a session,
// whether its actor is awake or not.
type handle struct {
	id     string
	parent string // session id, or ""
	view   atomic.Pointer[view]
	// stacks is how many stacks it is on, or about to be pushed on: as long as
	// there is one, this server keeps the session.
	stacks atomic.Int32
}

// publish makes a state known.
func (hs *handles) publish(h *handle, s *State) {
	now := view{Step: s.CurrentStepID, Status: s.Status, Identity: s.Identity}
	if old := h.view.Load(); old != nil {
		now.Workflow = old.Workflow
		if now == *old {
			return
		}
	} else {
		now.Workflow = s.JobName + "/" + s.WorkflowName
	}
	h.view.Store(hs.views.shared(now))
}

// views are those that handles show. There are as many as there are steps that
// sessions stand at; where edits of jobs have made them very many, the old ones
// are left to the handles that show them.
type views struct {
	mu sync.RWMutex
	m  map[view]*view
}

const maxViews = 10_000

func (vs *views) shared(v view) *view {
	vs.mu.RLock()
	known := vs.m[v]
	vs.mu.RUnlock()
	if known != nil {
		return known
	}
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if known := vs.m[v]; known != nil {
		return known
	}
	if vs.m == nil || len(vs.m) >= maxViews {
		vs.m = map[view]*view{}
	}
	vs.m[v] = &v
	return &v
}

// handles are the sessions this server knows to be active. An ended one is
// forgotten here; stacks that still hold it see that it ended. So is one that is
// given up, which no stack holds.
type handles struct {
	views views
	mu    sync.RWMutex
	m     map[string]*handle
}

func newHandles() *handles { return &handles{m: map[string]*handle{}} }

// get returns the handle of an active session, or nil.
func (hs *handles) get(id string) *handle {
	hs.mu.RLock()
	defer hs.mu.RUnlock()
	return hs.m[id]
}

// of returns the session's handle, made and published where there is none.
func (hs *handles) of(s *State) *handle {
	if h := hs.get(s.SessionID); h != nil {
		return h
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.make(s)
}

// pinned is of, for a stack that the session is about to be pushed on.
func (hs *handles) pinned(s *State) *handle {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.make(s)
	h.stacks.Add(1)
	return h
}

// make is of under the lock.
func (hs *handles) make(s *State) *handle {
	h := hs.m[s.SessionID]
	if h == nil {
		h = &handle{id: s.SessionID}
		if s.ParentSessionID != nil {
			h.parent = *s.ParentSessionID
		}
		hs.publish(h, s)
		if s.Status == Active {
			hs.m[s.SessionID] = h
		}
	}
	return h
}

// pin keeps a session for a stack that it is about to be pushed on; false: it
// has been given up, or has ended, since the handle was had.
func (hs *handles) pin(h *handle) bool {
	hs.mu.RLock()
	defer hs.mu.RUnlock()
	if hs.m[h.id] != h {
		return false
	}
	h.stacks.Add(1)
	return true
}

// retire forgets an active session that is on no stack; false: it is on one,
// or gone from here already. From then on it cannot be pinned.
func (hs *handles) retire(h *handle) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.m[h.id] != h || h.stacks.Load() > 0 {
		return false
	}
	delete(hs.m, h.id)
	return true
}

// restore takes back a retirement. Only the session's actor retires, restores
// and makes the handle of a session that is on disk, so nothing is in its place.
func (hs *handles) restore(h *handle) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.m[h.id] == nil {
		hs.m[h.id] = h
	}
}

// len is how many there are.
func (hs *handles) len() int {
	hs.mu.RLock()
	defer hs.mu.RUnlock()
	return len(hs.m)
}

// forget drops the handle of a session that ended.
func (hs *handles) forget(id string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	delete(hs.m, id)
}

// lose forgets a session whose record is gone or damaged: it leaves every stack
// that it is on.
func (hs *handles) lose(id string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.m[id]
	if h == nil {
		return
	}
	v := *h.view.Load()
	v.Status = lost
	h.view.Store(hs.views.shared(v))
	delete(hs.m, id)
}

// lost is the status, in views alone, of a session whose record cannot be read.
const lost SessionStatus = "lost"
