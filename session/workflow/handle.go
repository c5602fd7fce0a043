package workflow

import (
	"sync"
	"sync/atomic"
	"unique"
)

// A view is what others may know of a session without asking its actor. It is
// immutable and published by the actor alone.
type view struct {
	Workflow string // job/workflow
	Step     string
	Status   SessionStatus
	Parent   string // session id, or ""
}

// A handle is where a session's view is published. There is one a session,
// whether its actor is awake or not.
type handle struct {
	id       string
	identity string // whose session it is
	view     atomic.Pointer[view]
	// stacks is how many stacks it is on, or about to be pushed on: as long as
	// there is one, this server keeps the session.
	stacks atomic.Int32
}

// publish makes a state known.
func (h *handle) publish(s *State) {
	old := h.view.Load()
	if old == nil {
		v := &view{
			Workflow: shared(s.JobName + "/" + s.WorkflowName),
			Step:     shared(s.CurrentStepID), Status: shared(s.Status),
		}
		if s.ParentSessionID != nil {
			v.Parent = *s.ParentSessionID
		}
		h.view.Store(v)
		return
	}
	if old.Step != s.CurrentStepID || old.Status != s.Status {
		h.view.Store(&view{Workflow: old.Workflow, Step: s.CurrentStepID, Status: s.Status, Parent: old.Parent})
	}
}

// shared returns one copy of a text for all handles that have the same: each
// that was read from a file has its own, and the collector would look at
// hundreds of thousands while a session moves.
func shared[T ~string](text T) T { return unique.Make(text).Value() }

// handles are the sessions this server knows to be active. An ended one is
// forgotten here; stacks that still hold it see that it ended. So is one that is
// given up, which no stack holds.
type handles struct {
	mu sync.RWMutex
	m  map[string]*handle
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
		h = &handle{id: s.SessionID, identity: shared(s.Identity)}
		h.publish(s)
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
	h.view.Store(&v)
	delete(hs.m, id)
}

// lost is the status, in views alone, of a session whose record cannot be read.
const lost SessionStatus = "lost"
