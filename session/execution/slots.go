package execution

import (
	"container/list"
	"context"
	"sync"
)

// slots are the places at the sources: no more executions than the limit run
// there at once, and those that wait get one in the order in which they came.
type slots struct {
	mu    sync.Mutex
	limit int
	used  int
	queue list.List // of *ticket
}

// A ticket is a place in the queue.
type ticket struct {
	ready chan struct{} // closed when the slot is its holder's
	place *list.Element // nil once it is
}

// enter takes a slot where one is free: the ticket is nil. Else it queues. ok is
// false where too many wait already.
func (s *slots) enter(limit int) (t *ticket, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resize(limit)
	switch {
	case s.used < s.limit:
		s.used++
		return nil, true
	case s.queue.Len() >= maxWaiting:
		return nil, false
	}
	t = &ticket{ready: make(chan struct{})}
	t.place = s.queue.PushBack(t)
	return t, true
}

// wait blocks until the ticket has a slot, or ctx ends; then it has none, and
// the error is the cause.
func (s *slots) wait(ctx context.Context, t *ticket) error {
	select {
	case <-t.ready:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.place == nil { // both at once
		s.used--
		s.grant()
	} else {
		s.queue.Remove(t.place)
	}
	return context.Cause(ctx)
}

// take counts an execution that is at its source already, whatever the limit.
func (s *slots) take() {
	s.mu.Lock()
	s.used++
	s.mu.Unlock()
}

// leave gives a slot back.
func (s *slots) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	s.grant()
}

// adjust makes the limit what it is configured to be now.
func (s *slots) adjust(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resize(limit)
}

// resize is adjust with the lock held.
func (s *slots) resize(limit int) {
	s.limit = max(limit, 1)
	s.grant()
}

// grant gives what is free to those who wait. The lock is held.
func (s *slots) grant() {
	for s.used < s.limit && s.queue.Len() > 0 {
		t := s.queue.Remove(s.queue.Front()).(*ticket)
		t.place = nil
		s.used++
		close(t.ready)
	}
}

// count returns how many have a slot and how many wait for one.
func (s *slots) count() (used, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used, s.queue.Len()
}
