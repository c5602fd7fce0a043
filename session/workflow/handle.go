package workflow

import (
	"sync"
	"sync/atomic"
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
	id     string
	view   atomic.Pointer[view]
	stacks atomic.Int32 // how many stacks it is on
}

// publish makes a state known.
func (h *handle) publish(s *State) {
	v := &view{Step: s.CurrentStepID, Status: s.Status}
	if old := h.view.Load(); old != nil {
		v.Workflow, v.Parent = old.Workflow, old.Parent
	} else {
		v.Workflow = s.JobName + "/" + s.WorkflowName
		if s.ParentSessionID != nil {
			v.Parent = *s.ParentSessionID
		}
	}
	h.view.Store(v)
}

// handles are the sessions this server knows to be active. An ended one is
// forgotten here; stacks that still hold it see that it ended.
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
	h := hs.m[s.SessionID]
	if h == nil {
		h = &handle{id: s.SessionID}
		h.publish(s)
		if s.Status == Active {
			hs.m[s.SessionID] = h
		}
	}
	return h
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
