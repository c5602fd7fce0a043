// Package catalog serves the jobs of a project: one goroutine owns the job folders, and publishes
// immutable snapshots.
//
// The whole state is one immutable value, published through an atomic pointer: readers take its
// snapshot and never lock. Who finds that the files differ from the state (a call, or the poller at
// intervals) asks the owner to check the files concerned; the owner checks them and publishes the
// next state. Comparing costs one stat of each job's file, so nothing depends on events of the file
// system, which come too late for a call that follows a write, may get lost, and do not come from
// every file system.
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
	"deepwork/catalog/internal/follow"
)

// Options configures a Catalog. The zero value of a field means its default.
type Options struct {
	Root       string   // project root, absolute
	Additional []string // more job folders, absolute, after the standard ones
	Standard   fs.FS    // jobs bundled with the binary; nil means none
	// StandardDir is the folder for the files of Standard, absolute. MakeState creates its parent;
	// by default it is created if missing.
	StandardDir string
	MakeState   func() error
	Logger      *slog.Logger
	Grace       time.Duration // how long a vanished job stays served; default 500 ms
	Poll        time.Duration // how often the files are compared without a call; default 500 ms
	NoWatch     bool          // only calls compare them
}

func (o Options) withDefaults() Options {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Grace = cmp.Or(max(o.Grace, 0), 500*time.Millisecond)
	o.Poll = cmp.Or(max(o.Poll, 0), 500*time.Millisecond)
	if o.NoWatch {
		o.Poll = 1000 * time.Hour
	}
	if o.MakeState == nil {
		o.MakeState = func() error { return os.MkdirAll(filepath.Dir(o.StandardDir), 0o700) }
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
	rescheduled wait.Signal // state.due has changed
	listeners   sync.Map    // wait.Signal of each call of Changes -> nil
	cancel      context.CancelFunc
	polling     sync.WaitGroup
}

// Open loads all job folders, publishes the first snapshot and starts polling. A missing folder or
// a bad job is no error of Open; ctx bounds only the loading. It writes nothing. The caller must
// close the Catalog.
func Open(ctx context.Context, o Options) (*Catalog, error) {
	o = o.withDefaults()
	if !filepath.IsAbs(o.Root) {
		return nil, fmt.Errorf("opening the catalog: the project root %q is not an absolute path", o.Root)
	}
	o.Root = filepath.Clean(o.Root)
	c := &Catalog{options: o, rescheduled: wait.NewSignal()}
	paths := []string{filepath.Join(o.Root, filepath.FromSlash(JobsFolder))}
	if o.Standard != nil {
		if !filepath.IsAbs(o.StandardDir) {
			return nil, fmt.Errorf("opening the catalog: the folder of standard jobs %q is not an absolute path", o.StandardDir)
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
		switch {
		case !filepath.IsAbs(dir):
			o.Logger.Warn("additional job folder left out: its path is not absolute", "folder", dir)
		case !slices.Contains(paths, filepath.Clean(dir)):
			paths = append(paths, filepath.Clean(dir))
		}
	}
	first := newState(paths)
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
	c.publish(l.next, true)
	return nil
}

// start starts the owner and the poller.
func (c *Catalog) start() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.system = actor.NewSystem(c.options.Logger)
	c.owner = actor.Spawn(c.system, actor.Options{Name: "catalog"}, func() (actor.Behavior[lookAt], error) {
		return owner{c}, nil
	})
	c.polling.Go(func() { c.poll(ctx) })
}

// leastPause is the least time between two looks if something stays overdue.
const leastPause = 20 * time.Millisecond

// poll makes the owner check what changed, at intervals, and what is due: a vanished job to be
// removed, content that was too recent to be used.
func (c *Catalog) poll(ctx context.Context) {
	for next := time.Now().Add(c.options.Poll); ; { // next is when everything is compared again
		pause := time.Until(next)
		if due := c.state.Load().due; !due.IsZero() {
			pause = min(pause, max(time.Until(due), leastPause))
		}
		select {
		case <-ctx.Done():
			return
		case <-c.rescheduled:
			continue
		case <-time.After(pause):
		}
		began := time.Now()
		if began.Before(next) {
			c.tryLook(ctx, nil)
			continue
		}
		c.tryLook(ctx, c.state.Load().stale())
		// With very many jobs a comparison takes long; use at most a fiftieth of a core.
		next = time.Now().Add(max(c.options.Poll, 50*time.Since(began)))
	}
}

// tryLook is ask for the poller, if there is something to check: it logs the error.
func (c *Catalog) tryLook(ctx context.Context, keys []key) {
	if len(keys) == 0 && !c.state.Load().overdue(time.Now()) {
		return
	}
	if _, err := c.ask(ctx, keys); err != nil && ctx.Err() == nil && !errors.Is(err, actor.ErrStopped) {
		c.options.Logger.Error("job folders could not be looked at", "error", err)
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

// Close stops the goroutines and waits for them until ctx ends. Snapshots remain
// valid. Closing twice is no error.
func (c *Catalog) Close(ctx context.Context) error {
	c.cancel()
	var errs []error
	if stuck := c.system.Stop(ctx); len(stuck) > 0 {
		errs = append(errs, fmt.Errorf("closing the catalog: still busy: %v: %w", stuck, ctx.Err()))
	}
	if wait.Group(ctx, &c.polling) != nil {
		errs = append(errs, fmt.Errorf("closing the catalog: waiting for its poller: %w", ctx.Err()))
	}
	return errors.Join(errs...)
}
