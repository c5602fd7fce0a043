// Package catalog serves the jobs of a project: one goroutine owns the job folders, watches them, and
// publishes immutable snapshots.
//
// The whole state is one immutable value, published through an atomic pointer: readers load its snapshot and
// never lock. Any goroutine that may know of a change (the watcher, the poller, a timer, a call that compared
// the files with the state) asks the owner to check the files concerned; the owner checks them and publishes
// the next state.
package catalog

import (
	"cmp"
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
	"deepwork/actor/wait"
	"deepwork/actor/xslices"
	"deepwork/catalog/internal/follow"
)

// Options configures a Catalog. Zero fields have their default.
type Options struct {
	Root       string   // absolute path of the project root
	Additional []string // absolute paths of more job folders, after the standard ones; others have no jobs
	Standard   fs.FS    // jobs bundled with the binary; nil means none
	// StandardDir is the absolute path of the folder for the files of Standard. MakeState creates its parent;
	// by default it is created if missing.
	StandardDir string
	MakeState   func() error
	Logger      *slog.Logger
	Debounce    time.Duration // how long a burst of events is collected; default 50 ms
	Grace       time.Duration // how long a vanished job stays served; default 500 ms
	Poll        time.Duration // interval of polling if the system cannot watch; default 1 s
	NoWatch     bool          // only poll

	// notifier creates the source of events; tests replace it.
	notifier func() (notifier, error)
}

func (o Options) withDefaults() Options {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Debounce = cmp.Or(max(o.Debounce, 0), 50*time.Millisecond)
	o.Grace = cmp.Or(max(o.Grace, 0), 500*time.Millisecond)
	o.Poll = cmp.Or(max(o.Poll, 0), time.Second)
	if o.MakeState == nil {
		o.MakeState = func() error { return os.MkdirAll(filepath.Dir(o.StandardDir), 0o700) }
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
	options     Options
	state       atomic.Pointer[state]
	standard    *standardJobs // nil means none
	system      *actor.System
	owner       *actor.Ref[lookAt]
	changed     wait.Signal // something in a watched directory may have changed
	rescheduled wait.Signal // state.due has changed
	watcher     *watcher
	listeners   sync.Map // wait.Signal of each call of Changes -> nil
	watchers    sync.Map // wait.Signal of each call of Events -> nil
	cancel      context.CancelFunc
	running     sync.WaitGroup // all goroutines except the owner's
}

// Open loads all job folders, publishes the first snapshot and starts watching. A missing folder or a bad job
// is not an error of Open. ctx limits only the loading. Open writes nothing. The caller must close the
// Catalog.
func Open(ctx context.Context, o Options) (*Catalog, error) {
	o = o.withDefaults()
	if !filepath.IsAbs(o.Root) {
		return nil, fmt.Errorf("opening the catalog: the project root %q is not an absolute path", o.Root)
	}
	o.Root = filepath.Clean(o.Root)
	c := &Catalog{options: o, changed: wait.NewSignal(), rescheduled: wait.NewSignal()}
	c.watcher = newWatcher(o, c.state.Load, c.changed)

	paths := []string{filepath.Join(o.Root, filepath.FromSlash(JobsFolder))}
	if o.Standard != nil {
		if !filepath.IsAbs(o.StandardDir) {
			return nil, fmt.Errorf("opening the catalog: the folder of standard jobs %q is not an absolute path",
				o.StandardDir)
		}
		standard, err := readStandard(o.StandardDir, o.Standard)
		if err != nil {
			return nil, fmt.Errorf("opening the catalog: reading the standard jobs: %w", err)
		}
		standard.makeState = o.MakeState
		c.standard = standard
		paths = append(paths, o.StandardDir)
	}
	for _, dir := range o.Additional {
		if filepath.IsAbs(dir) && !slices.Contains(paths, filepath.Clean(dir)) {
			paths = append(paths, filepath.Clean(dir))
		}
	}
	for _, fault := range FolderFaults(o.Additional) {
		o.Logger.Warn("a job folder is not used: " + fault)
	}

	first := &state{folders: xslices.Map(paths, newFolder)} // nothing in it has been checked
	first.snap = assemble(first.folders, 0)
	if c.standard != nil {
		first.folders[1] = c.standard.folder()
	}
	c.state.Store(first)

	if err := c.load(ctx); err != nil {
		return nil, fmt.Errorf("opening the catalog: %w", err)
	}

	c.start()
	return c, nil
}

// load reads the disk and publishes the first state.
func (c *Catalog) load(ctx context.Context) error {
	st := c.state.Load()
	l := st.look(st.listings(), c.options.Grace)
	for began := time.Now(); l.wait > 0 && time.Since(began) < follow.Bound; {
		if err := wait.For(ctx, l.wait); err != nil {
			return fmt.Errorf("waiting for a job file that is being written: %w", err)
		}
		l = l.next.look(nil, c.options.Grace)
	}

	if err := ctx.Err(); err != nil {
		return err
	}
	c.publish(l.next, true, true)
	return nil
}

// start starts the owner and the background goroutines.
func (c *Catalog) start() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.system = actor.NewSystem(c.options.Logger)
	c.owner = actor.Spawn(c.system, actor.Options{Name: "catalog"}, func() (actor.Behavior[lookAt], error) {
		return owner{c}, nil
	})

	c.running.Go(func() { c.lookWhenNeeded(ctx) })
	c.running.Go(func() { c.watch(ctx) })
}

// watch follows events, or, if the system has none, polls.
func (c *Catalog) watch(ctx context.Context) {
	if !c.options.NoWatch {
		err := c.watcher.run(ctx)
		if ctx.Err() != nil {
			return
		}
		c.changed.Wake()
		c.options.Logger.Warn("job folders cannot be watched; looking at them at intervals instead",
			"interval", c.options.Poll, "error", err)
	}

	for wait.For(ctx, c.options.Poll) == nil {
		c.changed.Wake()
	}
}

// leastPause is the minimum time between two looks while something stays overdue.
const leastPause = 20 * time.Millisecond

// lookWhenNeeded makes the owner check what has changed, once per burst of events, and what is due, such as a
// vanished job to remove, or content that was too recent to use.
func (c *Catalog) lookWhenNeeded(ctx context.Context) {
	for {
		pause := time.Hour
		if due := c.state.Load().due; !due.IsZero() {
			pause = max(time.Until(due), leastPause)
		}
		select {
		case <-ctx.Done():
			return
		case <-c.rescheduled:
			continue
		case <-c.changed:
			if wait.For(ctx, c.options.Debounce) != nil {
				return
			}
			c.watchers.Range(func(s, _ any) bool {
				s.(wait.Signal).Wake()
				return true
			})
		case <-time.After(pause):
		}

		st := c.state.Load()
		if keys := st.stale(); len(keys) > 0 || st.overdue(time.Now()) {
			if _, err := c.ask(ctx, keys); err != nil && ctx.Err() == nil && !errors.Is(err, actor.ErrStopped) {
				c.options.Logger.Error("job folders could not be looked at", "error", err)
			}
		}
	}
}

// Snapshot returns the newest published snapshot. It never blocks.
func (c *Catalog) Snapshot() *Snapshot { return c.state.Load().snap }

// Changes returns a channel (capacity 1, coalescing) that receives after each
// published change, until ctx ends. It is never closed.
func (c *Catalog) Changes(ctx context.Context) <-chan struct{} {
	s := wait.NewSignal()
	c.listeners.Store(s, nil)
	context.AfterFunc(ctx, func() { c.listeners.Delete(s) })
	return s
}

// Events receives after each burst of events in the watched folders, including those of files that jobs name,
// until ctx ends; a poll counts as a burst. A late receiver gets one value for all of them.
func (c *Catalog) Events(ctx context.Context) <-chan struct{} {
	s := wait.NewSignal()
	c.watchers.Store(s, nil)
	context.AfterFunc(ctx, func() { c.watchers.Delete(s) })
	return s
}

// Close stops the goroutines and the watches, and waits for them until ctx ends. Snapshots remain valid.
// Closing twice is not an error.
func (c *Catalog) Close(ctx context.Context) error {
	c.cancel()
	var errs []error
	if stuck := c.system.Stop(ctx); len(stuck) > 0 {
		errs = append(errs, fmt.Errorf("closing the catalog: still busy: %v: %w", stuck, ctx.Err()))
	}
	if wait.Group(ctx, &c.running) != nil {
		errs = append(errs, fmt.Errorf("closing the catalog: waiting for its watches: %w", ctx.Err()))
	}
	return errors.Join(errs...)
}
