package tool

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"deepwork/session"
)

const (
	// turnTime is how long a call may hold the turn of its identity. One that takes longer waits for
	// something, such as a review, an agent or another call, rather than for the processor.
	turnTime = 50 * time.Millisecond
	// activeFor is how long after its last call an identity counts as one that shares the server.
	activeFor = time.Minute
)

// turns shares a server between the identities that call it over the network: as long as there are
// several, each has its share of the processors for the calls that run at once, at least one, and its
// other calls wait, so that one with many callers does not slow down the rest. An identity that is
// alone has no limit. The zero value is ready.
type turns struct {
	mu sync.Mutex
	of map[string]*turn
}

// A turn is what one identity has running and waiting.
type turn struct {
	running int
	waiting []chan struct{} // in order; each is closed when its call may run
	last    time.Time       // when a call began
}

// take waits until a call may run; the caller calls release when the call has ended. The error is the
// cause of ctx, if that ends first.
func (t *turns) take(ctx context.Context, who session.Caller) (release func(), err error) {
	if !who.Remote() {
		return func() {}, nil
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string]*turn{}
	}
	for name, other := range t.of {
		if other.running == 0 && len(other.waiting) == 0 && now.Sub(other.last) > activeFor {
			delete(t.of, name)
		}
	}
	mine := t.of[who.Identity]
	if mine == nil {
		mine = &turn{}
		t.of[who.Identity] = mine
	}
	mine.last = now
	ready := make(chan struct{})
	mine.waiting = append(mine.waiting, ready)
	t.next(mine)
	t.mu.Unlock()
	select {
	case <-ready:
	case <-ctx.Done():
	}
	t.mu.Lock()
	select {
	case <-ready:
	default:
		mine.waiting = slices.DeleteFunc(mine.waiting, func(c chan struct{}) bool { return c == ready })
		return nil, context.Cause(ctx)
	}
	end := sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		mine.running--
		t.next(mine)
	})
	timer := time.AfterFunc(turnTime, end)
	return func() { timer.Stop(); end() }, nil
}

// next lets the calls of an identity run that may.
func (t *turns) next(of *turn) {
	for len(of.waiting) > 0 && (len(t.of) == 1 || of.running < max(1, runtime.GOMAXPROCS(0)/len(t.of))) {
		close(of.waiting[0])
		of.waiting = of.waiting[1:]
		of.running++
	}
}
