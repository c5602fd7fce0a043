package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/actor"
	"deepwork/catalog/config"
)

// Options configure a Catalog.
type Options struct {
	Root     string                                        // project root, absolute: commands run there
	Settings func(context.Context) (*config.Config, error) // asked again whenever the file may have changed
	Reserved func() []string                               // names that are this server's own tools; nil: none
	Version  string                                        // told to sources; default "dev"
	Logger   *slog.Logger                                  // nil discards
}

// A Catalog follows the sources of one project. Its methods may be called from
// any goroutine.
type Catalog struct {
	options  Options
	snapshot atomic.Pointer[Snapshot]
	applied  atomic.Pointer[config.Config]      // the settings that the sources follow
	sources  atomic.Pointer[map[string]*source] // by name
	due      atomic.Pointer[time.Time]          // when tools of a source that is away go; nil: never
	changed  chan struct{}                      // capacity 1, never closed
	news     chan struct{}                      // capacity 1: an offer is another one

	system  *actor.System
	owner   *actor.Ref[message]
	ctx     context.Context // of the watch and the sources
	cancel  context.CancelFunc
	hurry   context.Context // when it ends, sources are ended at once
	hasten  context.CancelFunc
	running sync.WaitGroup // the watch and each source
}

// Open begins to connect the sources and returns at once: it does not wait for
// any of them (seed 003, 1.1). Settings that are bad are no error of Open but of
// Reconfigure; sources are connected once they are good. Close ends it.
func Open(_ context.Context, o Options) (*Catalog, error) {
	if !filepath.IsAbs(o.Root) {
		return nil, fmt.Errorf("opening the sources of workflows: the project root %q is not an absolute path", o.Root)
	}
	if o.Settings == nil {
		return nil, errors.New("opening the sources of workflows: no settings are given")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Reserved == nil {
		o.Reserved = func() []string { return nil }
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	c := &Catalog{options: o, changed: make(chan struct{}, 1), news: make(chan struct{}, 1)}
	c.snapshot.Store(&Snapshot{})
	c.sources.Store(&map[string]*source{})
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.hurry, c.hasten = context.WithCancel(context.Background())
	c.system = actor.NewSystem(o.Logger)
	state := &owner{c: c, leaving: make(map[string]<-chan struct{}), held: make(map[string]string)} // survives a crash: it is made of offers, which are immutable
	c.owner = actor.Spawn(c.system, actor.Options{Name: "remote"}, func() (actor.Behavior[message], error) { return state, nil })
	c.running.Go(c.watch)
	c.tell()
	return c, nil
}

// tell has the owner make the next snapshot; it never blocks.
func (c *Catalog) tell() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// watch has the owner look whenever there may be something to see: an offer
// changed, time is up for the tools of a source that is away, or the settings
// may have been edited.
func (c *Catalog) watch() {
	timer := time.NewTimer(lookInterval)
	defer timer.Stop()
	for {
		wait := lookInterval
		if due := c.due.Load(); due != nil {
			wait = max(0, min(wait, time.Until(*due)))
		}
		timer.Reset(wait)
		select {
		case <-c.ctx.Done():
			return
		case <-c.news:
		case <-timer.C:
		}
		// What is wrong with the settings was logged by whoever reads them.
		_ = c.update(c.ctx)
	}
}

// update has the owner apply the settings and publish what is offered.
func (c *Catalog) update(ctx context.Context) error {
	_, err := actor.Ask(ctx, c.owner, func(r actor.Reply[struct{}]) message { return update{reply: r} })
	return err
}

// Snapshot returns what is offered now; it never blocks.
func (c *Catalog) Snapshot() *Snapshot { return c.snapshot.Load() }

// Changed receives a value after the snapshot has changed: one, however much
// changed. It is for one reader, and is never closed.
func (c *Catalog) Changed() <-chan struct{} { return c.changed }

// Reconfigure looks at the settings anew and applies them; it does not wait for
// sources. While they are the same it costs what asking for them costs. An error
// says that they cannot be had; the last good ones stay in use (seed 003, 4.4).
func (c *Catalog) Reconfigure(ctx context.Context) error {
	settings, err := c.options.Settings(ctx)
	if err != nil {
		return fmt.Errorf("configuring the sources of workflows: %w", err)
	}
	if settings == c.applied.Load() {
		return nil
	}
	return c.update(ctx)
}

// Close ends the connections and the commands that were started, and waits for
// them until ctx ends: about a second, 2.5 at most. When ctx ends first they are
// killed, and the error says that this was not waited for. Calls in flight fail.
func (c *Catalog) Close(ctx context.Context) error {
	c.cancel()
	stuck := c.system.Stop(ctx)
	done := make(chan struct{})
	go func() {
		c.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		c.hasten()
	case <-ctx.Done():
		c.hasten()
		return fmt.Errorf("closing the sources of workflows: not all ended in time: %w", ctx.Err())
	}
	if len(stuck) > 0 {
		return fmt.Errorf("closing the sources of workflows: still busy: %v: %w", stuck, ctx.Err())
	}
	return nil
}
