package catalog

import (
	"context"
	"sync"

	"deepwork/actor/wait"
)

// listeners are notified of each new snapshot.
type listeners struct {
	mu  sync.Mutex
	all map[wait.Signal]struct{}
}

// listen returns a signal that is woken at each new snapshot until ctx ends.
func (l *listeners) listen(ctx context.Context) wait.Signal {
	s := wait.NewSignal()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = make(map[wait.Signal]struct{})
	}
	l.all[s] = struct{}{}
	context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.all, s)
	})
	return s
}

// wake never blocks.
func (l *listeners) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.all {
		s.Wake()
	}
}
