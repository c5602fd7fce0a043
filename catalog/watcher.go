package catalog

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sync/errgroup"

	"deepwork/actor/wait"
)

// A notifier is the system's source of events in directories. Add may block until another goroutine
// receives from events, so no goroutine may do both.
type notifier interface {
	Add(dir string) error
	Remove(dir string) error
	Close() error
	events() <-chan fsnotify.Event
	errors() <-chan error
}

type fsNotifier struct{ *fsnotify.Watcher }

func (n fsNotifier) events() <-chan fsnotify.Event { return n.Events }
func (n fsNotifier) errors() <-chan error          { return n.Errors }

func openNotifier() (notifier, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return fsNotifier{w}, nil
}

// A watcher wakes changed when an event shows that a job folder may have changed. Two goroutines share the
// work, because each would block the other: one receives events and never waits for anything else; the other
// adds and removes watches, which the system may delay until events are received.
type watcher struct {
	root    string
	open    func() (notifier, error)
	state   func() *state
	logger  *slog.Logger
	changed wait.Signal

	rewatch wait.Signal          // the directories to watch may have changed
	plan    atomic.Pointer[plan] // by the path in events

	mu      sync.Mutex
	ended   map[string]bool // watches removed by the system
	unknown bool            // events were lost, so any watch may have been removed
}

func newWatcher(o Options, state func() *state, changed wait.Signal) *watcher {
	w := &watcher{
		root: o.Root, open: o.notifier, state: state, logger: o.Logger, changed: changed,
		rewatch: wait.NewSignal(), ended: make(map[string]bool),
	}
	w.plan.Store(&plan{})
	return w
}

// run watches until ctx ends, or until the system no longer can, and returns that error.
func (w *watcher) run(ctx context.Context) error {
	n, err := w.open()
	if err != nil {
		return err
	}

	w.rewatch.Wake()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.receive(ctx, n) })
	g.Go(func() error { return w.keepWatches(ctx, n) })

	// Close comes first: a system that delays an Add until its events are received would otherwise never
	// return from it.
	g.Go(func() error {
		<-ctx.Done()
		return n.Close()
	})
	return g.Wait()
}

// receive receives events and routes them.
func (w *watcher) receive(ctx context.Context, n notifier) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ev, ok := <-n.events():
			if !ok {
				return fsnotify.ErrClosed
			}
			w.route(ev)
		case err, ok := <-n.errors():
			if !ok {
				return fsnotify.ErrClosed
			}

			// After any error, events may be missing (fsnotify.ErrEventOverflow), even those that report the
			// end of a watch.
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				w.logger.Debug("events of the job folders may be missing", "error", err)
			}
			w.lose("")
			w.changed.Wake()
		}
	}
}

// route wakes changed and rewatch if an event concerns them.
func (w *watcher) route(ev fsnotify.Event) {
	plan := *w.plan.Load()
	_, isSelf := plan[ev.Name]
	if isSelf && (ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename)) {
		w.lose(ev.Name)
	}
	names, isBelow := plan[filepath.Dir(ev.Name)]
	leads := slices.Contains(names, filepath.Base(ev.Name))
	if leads {
		w.rewatch.Wake()
	}
	if isSelf || !isBelow || leads || slices.Contains(names, anyName) {
		w.changed.Wake()
	}
}

// lose records that a watch has ended; "" means that any may have ended.
func (w *watcher) lose(dir string) {
	w.mu.Lock()
	w.ended[dir] = true
	w.unknown = w.unknown || dir == ""
	w.mu.Unlock()
	w.rewatch.Wake()
}
