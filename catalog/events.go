package catalog

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sync/errgroup"
)

// batchLimit is how many keys a batch names; with more, looking at everything
// is no more work.
const batchLimit = 1024

// An eventWatch follows the system's events. Three goroutines share the work,
// because each of the three would stop the next: one takes events and never
// waits for anything else; one adds and removes watches, which the system may
// hold up until events are taken; one tells of batches, which waits for the
// catalog's owner.
type eventWatch struct {
	root     string
	debounce time.Duration
	open     func() (notifier, error)
	state    func() *state
	logger   *slog.Logger

	routes atomic.Pointer[plan] // by the path that events come under
	wake   chan struct{}        // capacity 1, never closed: plant again

	mu   sync.Mutex
	lost map[string]struct{} // watches that ended by themselves
	all  bool                // any may have: events were dropped
}

func newEventWatch(o Options, state func() *state) *eventWatch {
	w := &eventWatch{
		root: o.Root, debounce: o.Debounce, open: o.notifier, state: state, logger: o.Logger,
		wake: make(chan struct{}, 1),
		lost: make(map[string]struct{}),
	}
	w.routes.Store(&plan{})
	return w
}

// follow says that other directories than before may have to be watched. It
// never blocks.
func (w *eventWatch) follow() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run implements watch.
func (w *eventWatch) run(ctx context.Context, tell func(context.Context, batch)) error {
	n, err := w.open()
	if err != nil {
		return err
	}
	w.follow()
	batches := make(chan batch) // no capacity: what is not taken yet goes on growing
	found := make(chan batch)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.drain(ctx, n, batches) })
	g.Go(func() error { return w.plant(ctx, n, found) })
	g.Go(func() error {
		for {
			select {
			case b := <-batches:
				tell(ctx, b)
			case b := <-found:
				tell(ctx, b)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	// Closing first, or a system that holds an Add up until its events are taken
	// would never let go of it.
	g.Go(func() error {
		<-ctx.Done()
		return n.Close()
	})
	return g.Wait()
}

// drain takes events and gathers them into batches.
func (w *eventWatch) drain(ctx context.Context, n notifier, batches chan<- batch) error {
	pending := make(map[key]struct{})
	all, waiting := false, false
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	var out chan<- batch // nil until what is pending has been gathered for long enough
	var ready batch
	for {
		if out != nil {
			ready = batch{all: all}
			if !all {
				ready.keys = slices.Collect(maps.Keys(pending))
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ev, ok := <-n.events():
			if !ok {
				return fsnotify.ErrClosed
			}
			if !w.route(ev, pending) {
				all = true
			}
		case err, ok := <-n.errors():
			if !ok {
				return fsnotify.ErrClosed
			}
			// Whatever it says, events may be missing (fsnotify.ErrEventOverflow):
			// those too that say that a watch has ended.
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				w.logger.Debug("events of the job folders may be missing", "error", err)
			}
			all = true
			w.lose("", true)
		case <-timer.C:
			out = batches
		case out <- ready:
			clear(pending)
			all, waiting, out = false, false, nil
		}
		if len(pending) > batchLimit {
			all = true
			clear(pending)
		}
		if !waiting && (all || len(pending) > 0) {
			waiting = true
			timer.Reset(w.debounce)
		}
	}
}

// route adds what an event is about to keys; false: it is not known.
func (w *eventWatch) route(ev fsnotify.Event, keys map[key]struct{}) bool {
	routes := *w.routes.Load()
	if self, ok := routes[ev.Name]; ok {
		if ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename) {
			w.lose(ev.Name, false)
		}
		collect(self, "", keys)
	}
	dir, base := filepath.Dir(ev.Name), filepath.Base(ev.Name)
	in, known := routes[dir]
	if known {
		collect(in, base, keys)
		for _, i := range in {
			if i.only == base {
				w.follow()
			}
		}
	} else if _, self := routes[ev.Name]; !self {
		return false
	}
	return true
}

func collect(interests []interest, base string, keys map[key]struct{}) {
	for _, i := range interests {
		for _, k := range i.keysFor(base) {
			keys[k] = struct{}{}
		}
	}
}

// lose remembers that a watch has ended, or that all may have.
func (w *eventWatch) lose(dir string, all bool) {
	w.mu.Lock()
	if all {
		w.all = true
	} else {
		w.lost[dir] = struct{}{}
	}
	w.mu.Unlock()
	w.follow()
}

// takeLost returns what was lost since the last time.
func (w *eventWatch) takeLost() (lost map[string]struct{}, all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lost, all = w.lost, w.all
	w.lost, w.all = make(map[string]struct{}), false
	return lost, all
}
