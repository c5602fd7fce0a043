package actor

import "container/list"

// An envelope is a message on its way, with the ask it belongs to, or nil.
type envelope[M any] struct {
	message M
	ask     asked
}

// A mailbox holds what was accepted, in order, and those who wait for room. Its
// cell's lock guards it; that is how "empty, so close" is one step.
type mailbox[M any] struct {
	limit   int
	ring    []envelope[M] // its length is a power of two; grows up to hold limit
	head    int
	count   int
	waiting list.List // of *sender[M], the one that came first in front
}

// A sender waits for room in a mailbox.
type sender[M any] struct {
	envelope envelope[M]
	place    *list.Element
	done     chan error // capacity 1: nil once accepted, else why not
}

// put accepts an envelope if there is room.
func (b *mailbox[M]) put(e envelope[M]) bool {
	if b.count >= b.limit {
		return false
	}
	if b.count == len(b.ring) {
		b.grow()
	}
	b.ring[(b.head+b.count)&(len(b.ring)-1)] = e
	b.count++
	return true
}

// grow doubles the ring; a mailbox that never fills stays small.
func (b *mailbox[M]) grow() {
	ring := make([]envelope[M], max(4, 2*len(b.ring)))
	for i := range b.count {
		ring[i] = b.ring[(b.head+i)&(len(b.ring)-1)]
	}
	b.ring, b.head = ring, 0
}

// take removes the oldest envelope and lets the first waiting sender in.
func (b *mailbox[M]) take() (e envelope[M], ok bool) {
	if b.count == 0 {
		return e, false
	}
	e, b.ring[b.head] = b.ring[b.head], e
	b.head = (b.head + 1) & (len(b.ring) - 1)
	b.count--
	if front := b.waiting.Front(); front != nil {
		s := front.Value.(*sender[M])
		b.leave(s)
		b.put(s.envelope)
		s.done <- nil
	}
	return e, true
}

// wait queues a sender for whom there was no room.
func (b *mailbox[M]) wait(e envelope[M]) *sender[M] {
	s := &sender[M]{envelope: e, done: make(chan error, 1)}
	s.place = b.waiting.PushBack(s)
	return s
}

// leave takes a sender out of the queue; false: it is no longer in it, and done
// holds what became of it.
func (b *mailbox[M]) leave(s *sender[M]) bool {
	if s.place == nil {
		return false
	}
	b.waiting.Remove(s.place)
	s.place = nil
	return true
}

// refuse turns away all who wait for room.
func (b *mailbox[M]) refuse(err error) (refused int) {
	for front := b.waiting.Front(); front != nil; front = b.waiting.Front() {
		s := front.Value.(*sender[M])
		b.leave(s)
		s.done <- err
		refused++
	}
	return refused
}

// drain removes everything that was accepted and gives up the ring.
func (b *mailbox[M]) drain() []envelope[M] {
	out := make([]envelope[M], 0, b.count)
	for i := range b.count {
		out = append(out, b.ring[(b.head+i)&(len(b.ring)-1)])
	}
	b.ring, b.head, b.count = nil, 0, 0
	return out
}
