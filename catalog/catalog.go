// Package catalog knows which jobs there are: one goroutine owns the job
// folders, watches them, and publishes immutable snapshots.
//
// Everything known is one immutable state, published through an atomic pointer:
// readers take the snapshot in it and never lock. Whoever may have heard of a
// change (the watcher, the poller, a timer, a call that compared the files with
// the state) asks the owner to look at what it names; the owner looks, and
// publishes the next state.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/actor"
)

// Options configure a Catalog. The zero value of a field is its default.
type Options struct {
	Root       string   // project root, absolute
	Additional []string // more job folders, absolute, after the standard ones
	Standard   fs.FS    // jobs bundled with the binary; nil: none
	Logger     *slog.Logger
	Debounce   time.Duration // how long a burst of events is gathered; default 50 ms
	Grace      time.Duration // how long a vanished job stays served; default 500 ms
	Poll       time.Duration // interval where no watch can be had; default 1 s
	NoWatch    bool          // poll only

	// notifier makes what tells of events; tests put one here that fails.
	notifier func() (notifier, error)
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Debounce <= 0 {
		o.Debounce = 50 * time.Millisecond
	}
	if o.Grace <= 0 {
		o.Grace = 500 * time.Millisecond
	}
	if o.Poll <= 0 {
		o.Poll = time.Second
	}
	if o.notifier == nil {
		o.notifier = openNotifier
	}
	return o
}

// JobsFolder is where a project keeps its own jobs, relative to its root.
const JobsFolder = ".deepwork/jobs"

// A Catalog serves the jobs of a project. Its methods may be called from any
// goroutine.
type Catalog struct {
	options  Options
	state    atomic.Pointer[state]
	bundle   *bundle // the standard jobs; nil: none
	placed   atomic.Pointer[placement]
	failed   atomic.Pointer[string] // what of the standard jobs was logged last
	system   *actor.System
	owner    *actor.Ref[message]
	alarm    *alarm
	watching *eventWatch
	changes  changes
	cancel   context.CancelFunc
	running  chan struct{} // closed when every goroutine but the owner's has ended
	closing  sync.Once
}

// Open loads every job folder, publishes the first snapshot and begins to watch.
// A folder that is missing is no error, and a bad job none of Open; ctx bounds
// the loading alone. It writes nothing. The caller closes the Catalog.
func Open(ctx context.Context, o Options) (*Catalog, error) {
	o = o.withDefaults()
	if !filepath.IsAbs(o.Root) {
		return nil, fmt.Errorf("opening the catalog: the project root %q is not an absolute path", o.Root)
	}
	o.Root = filepath.Clean(o.Root)
	c := &Catalog{options: o, alarm: newAlarm(), running: make(chan struct{})}
	c.watching = newEventWatch(o, c.state.Load)

	paths := []string{filepath.Join(o.Root, filepath.FromSlash(JobsFolder))}
	if o.Standard != nil {
		b, err := readBundle(o.Standard)
		if err != nil {
			return nil, fmt.Errorf("opening the catalog: reading the standard jobs: %w", err)
		}
		c.bundle = b
		paths = append(paths, standardDir(o.Root))
	}
	for _, dir := range o.Additional {
		switch {
		case !filepath.IsAbs(dir):
			o.Logger.Warn("additional job folder left out: its path is not absolute", "folder", dir)
		case !slices.Contains(paths, filepath.Clean(dir)):
			paths = append(paths, filepath.Clean(dir))
		}
	}
	first := newState(paths)
	if c.bundle != nil {
		first.folders[1] = c.bundle.folder(standardDir(o.Root))
	}
	c.state.Store(first)
	if err := c.load(ctx); err != nil {
		return nil, fmt.Errorf("opening the catalog: %w", err)
	}
	c.start()
	return c, nil
}

// load makes and publishes the first real state.
func (c *Catalog) load(ctx context.Context) error {
	st := c.state.Load()
	out := st.look(st.everything(), c.options.Grace)
	for began := time.Now(); out.wait > 0 && time.Since(began) < freshBound; {
		if err := sleep(ctx, out.wait); err != nil {
			return fmt.Errorf("waiting for a job file that is being written: %w", err)
		}
		out = out.next.look(nil, c.options.Grace)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	out.visible = true
	c.publish(out)
	return nil
}

// start begins everything that goes on in the background.
func (c *Catalog) start() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.system = actor.NewSystem(c.options.Logger)
	c.owner = actor.Spawn(c.system, actor.Options{Name: "catalog"}, func() (actor.Behavior[message], error) {
		return owner{c}, nil
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		c.alarm.run(ctx, func() time.Time { return c.state.Load().due }, func(ctx context.Context) {
			c.ask(ctx, nil)
		})
	})
	wg.Go(func() { c.watch(ctx) })
	go func() {
		wg.Wait()
		close(c.running)
	}()
}

// watch follows events, or, where there are none to be had, polls.
func (c *Catalog) watch(ctx context.Context) {
	if !c.options.NoWatch {
		err := c.watching.run(ctx, c.hear)
		if ctx.Err() != nil {
			return
		}
		c.options.Logger.Warn("job folders cannot be watched; looking at them at intervals instead",
			"interval", c.options.Poll, "error", err)
	}
	pollWatch{c.options.Poll}.run(ctx, c.hear)
}

// hear has the owner look at what of a batch really changed.
func (c *Catalog) hear(ctx context.Context, b batch) {
	st := c.state.Load()
	keys := b.keys
	if b.all {
		keys = st.stale()
	} else {
		keys = slices.DeleteFunc(keys, func(k key) bool { return !st.staleKey(k) })
	}
	if len(keys) > 0 {
		c.ask(ctx, keys)
	}
}

// ask is lookAt for those who have nobody to give the answer to.
func (c *Catalog) ask(ctx context.Context, keys []key) {
	_, err := actor.Ask(ctx, c.owner, func(reply actor.Reply[looked]) message {
		return lookAt{keys: keys, reply: reply}
	})
	if err != nil && ctx.Err() == nil && !errors.Is(err, actor.ErrStopped) {
		c.options.Logger.Error("job folders could not be looked at", "error", err)
	}
}

// Snapshot returns the newest published snapshot. It never blocks.
func (c *Catalog) Snapshot() *Snapshot { return c.state.Load().snap }

// Changes returns a channel (capacity 1, coalescing) that receives after each
// published change, until ctx ends. It is never closed.
func (c *Catalog) Changes(ctx context.Context) <-chan struct{} { return c.changes.listen(ctx) }

// Close stops the goroutine and the watches and waits for them until ctx ends.
// Snapshots stay good; what was laid out in a temporary folder, because the
// project could not be written to, is removed. Closing twice is no error.
func (c *Catalog) Close(ctx context.Context) error {
	c.cancel()
	var errs []error
	if stuck := c.system.Stop(ctx); len(stuck) > 0 {
		errs = append(errs, fmt.Errorf("closing the catalog: still busy: %v: %w", stuck, ctx.Err()))
	}
	select {
	case <-c.running:
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("closing the catalog: waiting for its watches: %w", ctx.Err()))
	}
	c.closing.Do(func() {
		if p := c.placed.Load(); p != nil && p.private {
			if err := os.RemoveAll(p.base); err != nil {
				errs = append(errs, fmt.Errorf("closing the catalog: removing the standard jobs' folder: %w", err))
			}
		}
	})
	return errors.Join(errs...)
}
