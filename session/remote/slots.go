package remote

import (
	"slices"
	"sync"

	"deepwork/session/store"
)

// slots limits how many runs are at the sources at once. Waiting runs get a slot in order of arrival. Runs
// that agents or people perform need no slot; they are limited per source.
type slots struct {
	mu        sync.Mutex
	limit     int
	used      int
	queue     []ticket
	performed map[string]int // by source
}

// A ticket waits for a slot. It is closed when its holder gets the slot.
type ticket chan struct{}

// enter takes a slot if one is free, or if the run needs none, and returns a nil ticket. Otherwise it queues.
// ok is false if there are too many runs already.
func (s *slots) enter(limit int, x *store.RemoteRun) (t ticket, ok bool) {
	s.adjust(limit)
	s.mu.Lock()
	defer s.mu.Unlock()

	switch {
	case x.Performed && s.performed[x.Source] >= maxPerformed, !x.Performed && len(s.queue) >= maxWaiting:
		return nil, false
	case x.Performed || s.used < s.limit:
		s.add(x, 1)
		return nil, true
	}

	t = make(ticket)
	s.queue = append(s.queue, t)
	return t, true
}

// take counts a run that is already at its source, regardless of the limits.
func (s *slots) take(x *store.RemoteRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(x, 1)
}

// leave gives up a ticket, or else returns the slot of x.
func (s *slots) leave(t ticket, x *store.RemoteRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.queue, t); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		return
	}

	s.add(x, -1)
	s.grant()
}

// adjust sets the limit to its configured value, also for waiting runs.
func (s *slots) adjust(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = max(limit, 1)
	s.grant()
}

// add changes the number of runs of the kind of x. The lock must be held.
func (s *slots) add(x *store.RemoteRun, n int) {
	if !x.Performed {
		s.used += n
		return
	}

	if s.performed == nil {
		s.performed = make(map[string]int)
	}
	s.performed[x.Source] += n
}

// grant gives free slots to waiting runs. The lock must be held.
func (s *slots) grant() {
	for s.used < s.limit && len(s.queue) > 0 {
		close(s.queue[0])
		s.queue = s.queue[1:]
		s.used++
	}
}

// count returns how many runs are at the sources, and how many wait for a slot.
func (s *slots) count() (running, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	running = s.used
	for _, n := range s.performed {
		running += n
	}
	return running, len(s.queue)
}
