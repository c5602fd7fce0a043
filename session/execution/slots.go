package execution

import (
	"context"
	"slices"
	"sync"

	"deepwork/actor/wait"
)

// slots bounds how many executions run at the sources at once. Waiting executions get a slot in the
// order of their arrival.
type slots struct {
	mu    sync.Mutex
	limit int
	used  int
	queue []ticket
}

// A ticket waits for a slot. It is closed when its holder gets the slot.
type ticket chan struct{}

// enter takes a slot if one is free, and returns a nil ticket. Otherwise it queues. ok is false if
// too many wait already.
func (s *slots) enter(limit int) (t ticket, ok bool) {
	s.adjust(limit)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
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
		s.leave(t)
	}
	return err
}

// take counts an execution that is already at its source, regardless of the limit.
func (s *slots) take() {
	s.mu.Lock()
	s.used++
	s.mu.Unlock()
}

// leave returns a slot, or gives up a ticket.
func (s *slots) leave(t ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.queue, t); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
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

// count returns how many have a slot and how many wait for one.
func (s *slots) count() (used, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used, len(s.queue)
}
