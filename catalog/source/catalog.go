package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/actor"
	"deepwork/actor/wait"
	"deepwork/catalog/config"
)

// Options configure a Catalog.
type Options struct {
	Root     string                                        // project root, absolute; commands run there
	Settings func(context.Context) (*config.Config, error) // called whenever the file may have changed
	Reserved func() []string                               // names of this server's own tools; nil means none
	Version  string                                        // sent to sources
	Logger   *slog.Logger                                  // nil discards
}

// A Catalog follows the sources of one project. Its methods may be called from
// any goroutine.
type Catalog struct {
	options  Options
	snapshot atomic.Pointer[Snapshot]
	applied  atomic.Pointer[config.Config]      // the settings that the sources follow
	sources  atomic.Pointer[map[string]*source] // by name
	changed  wait.Signal                        // the snapshot changed
	offers   wait.Signal                        // an offer changed

	system  *actor.System
	owner   *actor.Ref[update]
	ctx     context.Context // parent of the watch and the sources
	cancel  context.CancelFunc
	grace   context.Context // when it ends, sources are killed
	kill    context.CancelFunc
	running sync.WaitGroup // the watch and each source
}

// Open begins to connect the sources and returns at once, without waiting for them (seed 003, 1.1). Invalid
// settings are an error of Reconfigure, not of Open; sources are connected once the settings are valid. Close
// ends the Catalog.
func Open(o Options) *Catalog {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Reserved == nil {
		o.Reserved = func() []string { return nil }
	}
	c := &Catalog{options: o, changed: wait.NewSignal(), offers: wait.NewSignal()}

	c.snapshot.Store(&Snapshot{})
	c.sources.Store(&map[string]*source{})
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.grace, c.kill = context.WithCancel(context.Background())
	c.system = actor.NewSystem(o.Logger)

	// survives a crash, since it consists of immutable offers
	state := &owner{
		c:       c,
		leaving: make(map[string]*source),
		names:   make(map[string]string),
		texts:   make(map[string]described),
	}
	c.owner = actor.Spawn(c.system, actor.Options{Name: "remote"}, func() (actor.Behavior[update], error) {
		return state, nil
	})

	c.running.Go(c.watch)
	return c
}

// watch updates the snapshot when an offer has changed, and at intervals, since the settings may have been
// edited, and the tools of an unreachable source expire.
func (c *Catalog) watch() {
	for c.ctx.Err() == nil {
		// Errors in the settings are logged where they are read.
		_ = c.update(c.ctx)
		_ = wait.Until(c.ctx, lookInterval, c.offers)
	}
}

// update applies the settings and publishes a new snapshot.
func (c *Catalog) update(ctx context.Context) error {
	_, err := actor.Ask(ctx, c.owner, func(r actor.Reply[struct{}]) update { return update{reply: r} })
	return err
}

// Snapshot returns the current snapshot; it never blocks.
func (c *Catalog) Snapshot() *Snapshot { return c.snapshot.Load() }

// Changed receives one value after one or more changes of the snapshot. It is for one reader, and is never
// closed.
func (c *Catalog) Changed() <-chan struct{} { return c.changed }

// Reconfigure reads the settings again and applies them if they changed; it does not
// wait for sources. After an error the last good ones stay in use (seed 003, 4.4).
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

// Close ends the connections and commands, and waits for them until ctx ends: about a second, at most 2.5. If
// ctx ends first, they are killed without waiting, and the error says so. Calls in flight fail.
func (c *Catalog) Close(ctx context.Context) error {
	c.cancel()
	stuck := c.system.Stop(ctx)
	err := wait.Group(ctx, &c.running)

	c.kill()
	if err != nil {
		return fmt.Errorf("closing the sources of workflows: not all ended in time: %w", ctx.Err())
	}
	if len(stuck) > 0 {
		return fmt.Errorf("closing the sources of workflows: still busy: %v: %w", stuck, ctx.Err())
	}

	return nil
}

// Refresh queries every source now, and waits for their answers for the given time, or until ctx ends (seed
// 003, 4.3). It tries once to connect a source that is down. The report's Silent lists sources that fail or
// do not answer in time; their queries continue. An error comes from the settings or ctx, and is returned
// with the changes so far.
func (c *Catalog) Refresh(ctx context.Context, within time.Duration) (Report, error) {
	before := c.Snapshot()
	if err := c.Reconfigure(ctx); err != nil {
		return compare(before, c.Snapshot()), err
	}

	late := fmt.Errorf("it did not answer within %v; its earlier workflows stay listed", within)
	limited, cancel := context.WithTimeoutCause(ctx, within, late)
	defer cancel()

	var asking sync.WaitGroup
	var mu sync.Mutex
	silent := make(map[string]error)
	for name, s := range *c.sources.Load() {
		asking.Go(func() {
			if err := s.refresh(limited); err != nil {
				mu.Lock()
				silent[name] = err
				mu.Unlock()
			}
		})
	}

	asking.Wait()
	if ctx.Err() != nil {
		return compare(before, c.Snapshot()), fmt.Errorf("waiting for the sources to answer: %w", context.Cause(ctx))
	}
	if err := c.update(ctx); err != nil {
		return compare(before, c.Snapshot()), err
	}

	now := c.Snapshot()
	report := compare(before, now)
	for _, s := range now.Sources {
		why := silent[s.Name]
		if errors.Is(why, late) {
			why = cmp.Or(s.Err, why) // the reason why the source is away has more detail
		}
		if why = cmp.Or(why, s.Err); why != nil {
			report.Silent = append(report.Silent, Skipped{Source: s.Name, Reason: why.Error()})
		}
	}
	return report, nil
}

// refresh waits for a query that starts after the call and returns its error, or the cause of ctx
// if that ends first.
func (s *source) refresh(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case s.requests <- answer:
	case <-s.done:
		return nil // the source was removed or replaced
	case <-ctx.Done():
		return context.Cause(ctx)
	}

	select {
	case err := <-answer:
		return err
	case <-s.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
