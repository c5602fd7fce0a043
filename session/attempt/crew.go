package attempt

import (
	"context"
	"sync"
)

// A crew is a group of goroutines that is waited for together.
type crew struct {
	mu     sync.Mutex // guards closed, and that wg only grows before it is set
	closed bool
	wg     sync.WaitGroup
}

// do runs f on a goroutine of the crew; false: the crew is closed, and f is not run.
func (c *crew) do(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Go(f)
	return true
}

// close takes nobody in any more, and waits for all until ctx ends; false: some
// had not ended then.
func (c *crew) close(ctx context.Context) bool {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	done := make(chan struct{}) // closed when all have ended
	go func() { c.wg.Wait(); close(done) }()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
