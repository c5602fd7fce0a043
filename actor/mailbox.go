package actor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"deepwork/actor/wait"
)

// An envelope is a message to deliver, with its ask, if any.
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

// An Address accepts messages of one type: a [Ref], or the result of [Registry.For]. No other
// package can implement it.
type Address[M any] interface {
	// Tell puts a message into the mailbox. If the mailbox is full, Tell blocks until there is room
	// or ctx ends; the error then wraps ctx.Err() and names the actor. nil means that the message
	// will be handled, not that it was.
	Tell(ctx context.Context, m M) error

	deliver(ctx context.Context, e envelope[M]) error
	name() string
}

// A Ref refers to an actor started by [Spawn]. The pointer may be copied and used from any
// goroutine.
type Ref[M any] struct {
	cell *cell[M]
}

// Spawn starts an actor that lives until it or its System is stopped. newBehavior is called once per
// incarnation, on the actor's goroutine; the first one begins at once. An error from newBehavior ends the
// incarnation like an error from Start; the next message tries again. Spawn does not block. In a stopped
// System the actor is stopped from the beginning.
func Spawn[M any](s *System, o Options, newBehavior func() (Behavior[M], error)) *Ref[M] {
	o = o.withDefaults(s.logger)
	c := newCell(s, o, func() string { return o.Name }, newBehavior)
	c.ctx, c.cancel = context.WithCancel(s.ctx)

	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.join(c) {
		c.state = dead
		c.cancel()
		close(c.ended)
	} else {
		c.ensureRunning()
	}

	return &Ref[M]{c}
}

// Tell puts a message into the mailbox, as Address.Tell does. Errors: [ErrStopped],
// [ErrTooManyRestarts], or one that wraps ctx.Err().
func (r *Ref[M]) Tell(ctx context.Context, m M) error {
	return r.deliver(ctx, envelope[M]{message: m})
}

// Stop ends the actor in order, as [System.Stop] does, and waits for it until ctx ends; then it cancels the
// Behavior's context and returns an error that wraps ctx.Err(). Stopping a stopped actor is not an error.
func (r *Ref[M]) Stop(ctx context.Context) error {
	r.cell.close()
	if wait.Done(ctx, r.cell.ended) != nil {
		r.cell.cancel()
		return fmt.Errorf("stopping actor %s: %w", r.name(), ctx.Err())
	}
	return nil
}

// Done returns a channel that is closed when the actor has stopped for good: by Stop, or because
// its restarts are used up. Passivation does not close it.
func (r *Ref[M]) Done() <-chan struct{} { return r.cell.ended }

func (r *Ref[M]) name() string { return r.cell.title() }

func (r *Ref[M]) deliver(ctx context.Context, e envelope[M]) error {
	if ctx.Err() != nil {
		return overError(ctx, r.name())
	}
	return r.cell.deliver(ctx, e)
}

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

// A keeper is notified once, when an ask that it tracks is answered, on the goroutine that answers.
type keeper interface {
	settled(request)
}

// The states of a slot.
const (
	slotOpen uint32 = iota
	slotTracked
	slotAnswered
)

// A slot holds one answer. The goroutine that sets the state to slotAnswered writes value and err once,
// before it fills done; others read them afterwards.
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
