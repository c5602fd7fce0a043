package actor

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
)

// A Reply receives the answer to one ask. It is a value: a Behavior may answer at once, store it
// and answer later, or pass it to another goroutine. The first answer counts; later ones are
// dropped, as are all answers to the zero Reply.
//
// A Behavior must answer every Reply it has received: until then the actor is not passivated. If it
// crashes or stops first, the asker gets an error.
type Reply[R any] struct {
	slot *slot[R]
}

// Send answers with a value. It never blocks and may be called from any goroutine.
func (r Reply[R]) Send(v R) {
	if r.slot != nil {
		r.slot.settle(v, nil)
	}
}

// Fail answers with an error, which Ask returns unchanged. It never blocks and
// may be called from any goroutine.
func (r Reply[R]) Fail(err error) {
	if r.slot != nil {
		r.slot.fail(cmp.Or(err, errNoReason))
	}
}

// Ask sends the message that build returns for a Reply and waits for the answer until ctx ends; its
// error then wraps ctx.Err(). An accepted message is handled even if its asker no longer waits.
func Ask[M, R any](ctx context.Context, to Address[M], build func(Reply[R]) M) (R, error) {
	var none R
	s := &slot[R]{done: make(chan struct{}, 1)}
	if err := to.deliver(ctx, envelope[M]{message: build(Reply[R]{s}), ask: s}); err != nil {
		return none, err
	}
	select {
	case <-s.done:
		return s.value, s.err
	case <-ctx.Done():
	}
	// Both may have been ready: prefer the answer.
	select {
	case <-s.done:
		return s.value, s.err
	default:
		return none, fmt.Errorf("waiting for actor %s to answer: %w", to.name(), ctx.Err())
	}
}

// A request is one ask as its actor sees it, regardless of the type of its answer.
type request interface {
	fail(err error)
	// track marks the ask as received; the keeper is notified of its answer. It returns false if
	// the ask was already answered.
	track(keeper) bool
	answered() bool
}

// A keeper is notified once when an ask that it tracks is answered, on the goroutine that answered.
type keeper interface {
	settled(request)
}

// The states of a slot.
const (
	slotOpen uint32 = iota
	slotTracked
	slotAnswered
)

// A slot holds one answer. value and err are written once, by the goroutine that set the state to
// slotAnswered, before done is filled, and read after.
type slot[R any] struct {
	state  atomic.Uint32
	keeper keeper // written before slotTracked, read after
	value  R
	err    error
	done   chan struct{} // capacity 1, filled once, never closed
}

func (s *slot[R]) settle(v R, err error) {
	was := s.state.Swap(slotAnswered)
	if was == slotAnswered {
		return
	}
	s.value, s.err = v, err
	s.done <- struct{}{}
	if was == slotTracked {
		s.keeper.settled(s)
	}
}

func (s *slot[R]) fail(err error) {
	var none R
	s.settle(none, err)
}

func (s *slot[R]) track(k keeper) bool {
	s.keeper = k
	return s.state.CompareAndSwap(slotOpen, slotTracked)
}

func (s *slot[R]) answered() bool { return s.state.Load() == slotAnswered }
