package catalog

import (
	"context"
	"sync"
)

// changes tells those who listen that there is another snapshot.
type changes struct {
	mu        sync.Mutex
	listeners map[chan struct{}]struct{}
}

// listen returns a channel of capacity 1, never closed, until ctx ends.
func (c *changes) listen(ctx context.Context) <-chan struct{} {
	ch := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listeners == nil {
		c.listeners = make(map[chan struct{}]struct{})
	}
	c.listeners[ch] = struct{}{}
	context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.listeners, ch)
	})
	return ch
}

// tell never blocks: a listener that has not taken the last word needs no other.
func (c *changes) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ch := range c.listeners {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
