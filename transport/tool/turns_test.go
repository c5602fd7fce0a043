package tool

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/session"
)

// A caller takes turns and counts the calls that run.
type turnTaker struct {
	t     *testing.T
	turns *turns
	who   session.Caller

	mu      sync.Mutex
	running int
	ends    []func()
}

func (c *turnTaker) call() {
	go func() {
		release, err := c.turns.take(c.t.Context(), c.who)
		if err != nil {
			c.t.Error(err)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running++
		c.ends = append(c.ends, release)
	}()
	synctest.Wait()
}

// begun returns the functions that end the calls that began.
func (c *turnTaker) begun() []func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.ends)
}

func (c *turnTaker) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running, c.ends = 0, nil
}

func (c *turnTaker) want(n int) {
	c.t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running != n {
		c.t.Errorf("%d calls of %s began, want %d", c.running, c.who.Identity, n)
	}
}

// An identity that is alone has no limit; while there are several, each has its share, and one's waiting
// calls do not hold up another's.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shared turns
		ann := &turnTaker{t: t, turns: &shared, who: session.Caller{Identity: "ann", Channel: session.ChannelHTTP}}
		bob := &turnTaker{t: t, turns: &shared, who: session.Caller{Identity: "bob", Channel: session.ChannelSSE}}
		const many = 100
		for range many {
			ann.call()
		}
		ann.want(many)
		for _, end := range ann.begun() {
			end()
			end() // a turn ends once
		}
		ann.forget()

		share := max(1, runtime.GOMAXPROCS(0)/2)
		bob.call()
		bob.begun()[0]()
		for range share + 3 {
			ann.call()
		}
		ann.want(share)
		bob.call()
		bob.want(2)
		bob.begun()[1]()
		ann.begun()[0]()
		ann.want(share + 1)

		// Calls that wait for something give their turn to others, which they may wait for.
		time.Sleep(turnTime)
		ann.want(min(2*share+1, share+3))
		time.Sleep(2 * turnTime)
		ann.want(share + 3)
		for _, end := range ann.begun() {
			end()
		}

		ctx, cancel := context.WithCancelCause(t.Context())
		for range share {
			ann.call()
		}
		left := errors.New("left")
		cancel(left)
		if _, err := shared.take(ctx, ann.who); !errors.Is(err, left) {
			t.Errorf("a caller that left: %v", err)
		}
		ann.who.Channel = session.ChannelStdio
		ann.call() // it is the only caller
		ann.want(share + 3 + share + 1)

		// Alone again.
		time.Sleep(activeFor + turnTime)
		ann.who.Channel = session.ChannelHTTP
		for range many {
			ann.call()
		}
		ann.want(share + 3 + share + 1 + many)
		for _, end := range ann.begun() {
			end()
		}
	})
}
