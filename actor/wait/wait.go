// Package wait provides ways to wait: For sleeps, Done and Group wait for others, a Backoff spaces out
// retries, and a Signal wakes a goroutine. Every wait ends with its context.
package wait

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// For waits until d has passed and returns nil, or until ctx ends and returns
// context.Cause(ctx). A d of zero or less returns at once, with the cause if ctx
// has ended already.
func For(ctx context.Context, d time.Duration) error { return Until(ctx, d, nil) }

// Until is like For but also returns when early, which may be nil, is closed or receives.
func Until(ctx context.Context, d time.Duration, early <-chan struct{}) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	if d <= 0 {
		return nil
	}

	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-early:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Done waits until a channel is closed and returns nil, even if ctx has ended by then. If ctx ends first, it
// returns context.Cause(ctx).
func Done(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}

	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Group waits for a group of goroutines as Done does for a channel. After an error, one goroutine is left
// that ends with the group.
func Group(ctx context.Context, group *sync.WaitGroup) error {
	done := make(chan struct{}) // closed when all goroutines have ended
	go func() {
		group.Wait()
		close(done)
	}()
	return Done(ctx, done)
}

// A Backoff spaces out retries: each pause is twice the previous one, from Min up to Max. A random part of up
// to half is cut off each, so that callers that failed together do not retry together. It is for one
// goroutine.
type Backoff struct {
	Min, Max time.Duration

	pause time.Duration // the last pause, before shortening; zero means none yet
}

// Next returns the next pause.
func (b *Backoff) Next() time.Duration {
	b.pause = min(max(2*b.pause, b.Min), b.Max)
	return Jitter(b.pause)
}

// Wait waits for the next pause. Its error is context.Cause(ctx), if ctx ends first.
func (b *Backoff) Wait(ctx context.Context) error { return For(ctx, b.Next()) }

// Reset makes the next pause Min again; call it after a success.
func (b *Backoff) Reset() { b.pause = 0 }

// Jitter returns d shortened by a random part of up to half.
func Jitter(d time.Duration) time.Duration {
	if d < 2 {
		return d
	}
	return d - rand.N(d/2)
}

// A Signal wakes one waiting goroutine. Any number of calls to Wake before the goroutine receives
// count as one, and none is lost: a Wake that arrives while nobody waits is received by the next
// wait. Use NewSignal to create one.
type Signal chan struct{}

// NewSignal returns a Signal. Its channel has room for one value and is never closed.
func NewSignal() Signal { return make(Signal, 1) }

// Wake wakes the goroutine that receives from s, now or at its next receive. It
// never blocks and may be called from any goroutine.
func (s Signal) Wake() {
	select {
	case s <- struct{}{}:
	default:
	}
}
