package catalog

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/fsnotify/fsnotify"
)

// A fakeNotifier imitates a system that runs out of watches or drops
// events, which cannot be brought about in a test.
type fakeNotifier struct {
	ev      chan fsnotify.Event
	errs    chan error
	openErr error
	room    int // how many watches there are; negative: enough
	full    error

	mu      sync.Mutex
	dirs    []string
	adds    map[string]int
	closed  bool
	changed chan struct{} // closed and replaced at each change
}

func newFakeNotifier() *fakeNotifier {
	return &fakeNotifier{ev: make(chan fsnotify.Event), errs: make(chan error), room: -1,
		adds: make(map[string]int), changed: make(chan struct{})}
}

func (n *fakeNotifier) open() (notifier, error) {
	if n.openErr != nil {
		return nil, n.openErr
	}
	return n, nil
}

func (n *fakeNotifier) Add(dir string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.adds[dir]++
	defer n.tell()
	if slices.Contains(n.dirs, dir) {
		return nil
	}
	if n.room >= 0 && len(n.dirs) >= n.room {
		return n.full
	}
	n.dirs = append(n.dirs, dir)
	return nil
}

func (n *fakeNotifier) Remove(dir string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dirs = slices.DeleteFunc(n.dirs, func(d string) bool { return d == dir })
	n.tell()
	return nil
}

func (n *fakeNotifier) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	return nil
}

func (n *fakeNotifier) tell() {
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *fakeNotifier) isClosed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.closed
}

func (n *fakeNotifier) has(dir string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.dirs, dir)
}

func (n *fakeNotifier) await(t *testing.T, dir string) {
	t.Helper()
	n.until(t, dir+" is watched", func() bool { return slices.Contains(n.dirs, dir) })
}

func (n *fakeNotifier) awaitGone(t *testing.T, dir string) {
	t.Helper()
	n.until(t, dir+" is watched no more", func() bool { return !slices.Contains(n.dirs, dir) })
}

func (n *fakeNotifier) awaitAdds(t *testing.T, dir string, count int) {
	t.Helper()
	n.until(t, fmt.Sprintf("%s added %d times", dir, count), func() bool { return n.adds[dir] >= count })
}

// until waits for what ok, called under the lock, reports.
func (n *fakeNotifier) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		n.mu.Lock()
		is, changed := ok(), n.changed
		n.mu.Unlock()
		if is {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
}

func (n *fakeNotifier) events() <-chan fsnotify.Event { return n.ev }
func (n *fakeNotifier) errors() <-chan error          { return n.errs }
