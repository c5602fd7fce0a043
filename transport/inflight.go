package transport

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// inflight knows the tool calls that run, so that a server that stops can wait
// for them and name those that did not end.
type inflight struct {
	mu    sync.Mutex
	calls map[*callLog]struct{}
	idle  chan struct{} // closed when calls becomes empty; nil: nobody waits
}

// begin records a call until the returned function is called.
func (f *inflight) begin(l *callLog) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = map[*callLog]struct{}{}
	}
	f.calls[l] = struct{}{}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if delete(f.calls, l); len(f.calls) == 0 && f.idle != nil {
			close(f.idle)
			f.idle = nil
		}
	}
}

// len is how many calls run.
func (f *inflight) len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

// wait returns when no call runs any more (true), or when ctx ends.
func (f *inflight) wait(ctx context.Context) bool {
	f.mu.Lock()
	if len(f.calls) == 0 {
		f.mu.Unlock()
		return true
	}
	if f.idle == nil {
		f.idle = make(chan struct{})
	}
	idle := f.idle
	f.mu.Unlock()
	select {
	case <-idle:
		return true
	case <-ctx.Done():
		return false
	}
}

// names says of each call that runs whose it is and for how long it has run.
func (f *inflight) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for l := range maps.Keys(f.calls) {
		out = append(out, fmt.Sprintf("%s of %s (for %v)", l.tool, l.identity, time.Since(l.began).Round(time.Millisecond)))
	}
	slices.Sort(out)
	return out
}
