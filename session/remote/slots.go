package remote

import (
	"context"
	"slices"
	"sync"

	"deepwork/actor/wait"
	"deepwork/session/store"
)

// slots bounds how many runs run at the sources at once. Waiting runs get a slot in the
// order of their arrival. Those that agents or people perform occupy no slot: they are bounded per
// source.
type slots struct {
	mu        sync.Mutex
	limit     int
	used      int
	queue     []ticket
	performed map[string]int // by source
}

// A ticket waits for a slot. It is closed when its holder gets the slot.
type ticket chan struct{}

// enter takes a slot if one is free, or if the run needs none, and returns a nil ticket.
// Otherwise it queues. ok is false if there are too many already.
func (s *slots) enter(limit int, source string, performed bool) (t ticket, ok bool) {
	s.adjust(limit)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case performed && s.performed[source] >= maxPerformed:
		return nil, false
	case performed:
		s.performed[source]++
		return nil, true
	case s.used < s.limit:
		s.used++
		return nil, true
	case len(s.queue) >= maxWaiting:
		return nil, false
	}
	t = make(ticket)
	s.queue = append(s.queue, t)
	return t, true
}

// wait blocks until the ticket has a slot or ctx ends; in that case it has none, and the error is
// the cause.
func (s *slots) wait(ctx context.Context, t ticket) error {
	err := wait.Done(ctx, t)
	if err != nil {
		s.leave(t, nil)
	}
	return err
}

// take counts a run that is already at its source, regardless of the limits.
func (s *slots) take(x *store.Execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.Performed {
		s.performed[x.Source]++
	} else {
		s.used++
	}
}

// leave gives up a ticket, or else returns what x has.
func (s *slots) leave(t ticket, x *store.Execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.queue, t); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		return
	}
	if x != nil && x.Performed {
		if s.performed[x.Source]--; s.performed[x.Source] == 0 {
			delete(s.performed, x.Source)
		}
		return
	}
	s.used--
	s.grant()
}

// adjust sets the limit to its configured value, also for those that wait.
func (s *slots) adjust(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = max(limit, 1)
	s.grant()
}

// grant gives free slots to those that wait. The lock must be held.
func (s *slots) grant() {
	for s.used < s.limit && len(s.queue) > 0 {
		close(s.queue[0])
		s.queue = s.queue[1:]
		s.used++
	}
}

// count returns how many are at the sources and how many wait for a slot.
func (s *slots) count() (running, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	running = s.used
	for _, n := range s.performed {
		running += n
	}
	return running, len(s.queue)
}
