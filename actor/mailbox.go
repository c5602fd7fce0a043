package actor

import "slices"

// An envelope is a message to deliver, with its ask, or nil.
type envelope[M any] struct {
	message M
	ask     request
}

// A mailbox holds accepted messages and blocked senders, oldest first. Its cell's lock guards it,
// which makes "close if empty" one step.
type mailbox[M any] struct {
	limit   int
	queue   []envelope[M]
	waiting []*sender[M]
}

// A sender is blocked until a mailbox has room.
type sender[M any] struct {
	envelope envelope[M]
	done     chan error // capacity 1: nil once accepted, else the reason
}

// put accepts an envelope if there is room.
func (b *mailbox[M]) put(e envelope[M]) bool {
	if len(b.queue) >= b.limit {
		return false
	}
	b.queue = append(b.queue, e)
	return true
}

// take removes the oldest envelope and admits the first blocked sender.
func (b *mailbox[M]) take() (e envelope[M], ok bool) {
	if len(b.queue) == 0 {
		return e, false
	}
	e = b.queue[0]
	b.queue = slices.Delete(b.queue, 0, 1)
	if len(b.waiting) > 0 {
		s := b.waiting[0]
		b.leave(s)
		b.put(s.envelope)
		s.done <- nil
	}
	return e, true
}

// leave removes a sender from the queue. It returns false if the sender is no longer in it; done
// then holds the result.
func (b *mailbox[M]) leave(s *sender[M]) bool {
	i := slices.Index(b.waiting, s)
	if i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	return i >= 0
}

// refuse fails all blocked senders.
func (b *mailbox[M]) refuse(err error) (refused int) {
	refused = len(b.waiting)
	for _, s := range b.waiting {
		s.done <- err
	}
	b.waiting = nil
	return refused
}
