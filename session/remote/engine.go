package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/catalog/source"
	"deepwork/session"
	"deepwork/session/store"
)

// An Engine runs the workflows of a project's sources. Its methods may be called
// from any goroutine.
type Engine struct {
	sources Sources
	current func(context.Context) (*config.Config, error)
	last    atomic.Pointer[config.WorkflowTools] // the settings as last read
	log     *slog.Logger

	db        store.Database
	store     store.RemoteRuns
	member    store.Members
	retention time.Duration
	slots     slots

	ctx     context.Context // parent of all goroutines' contexts; Close ends it with errClosing
	cancel  context.CancelCauseFunc
	closed  context.Context // ends with Close
	end     context.CancelFunc
	drivers sync.WaitGroup
	serving sync.WaitGroup // serve

	added        wait.Signal // for serve
	mu           sync.Mutex  // guards the fields below
	closing      bool
	entries      map[string]*entry // by id
	lastLook     time.Time         // when adopt last looked; zero before the first look
	takeoverFrom time.Time         // nothing is taken over before this
}

// Open returns the engine of a project and takes over the runs that no server follows any more. Runs whose
// sources can be asked are followed again, and cancelled when their time is over; the others have ended. No
// run is started again. Open does not wait for sources. A missing database is created with the first run; if
// the database cannot be read, that is only logged. Until Close, the engine searches for runs that no server
// follows, at least every 5 s. ctx limits only Open; Close ends the engine.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if o.Database == nil || o.Member == nil || o.Sources == nil || o.Settings == nil {
		return nil,
			errors.New("opening the remote runs of a project: no database, member, sources, or settings are given")
	}

	e := &Engine{
		sources:   o.Sources,
		current:   o.Settings,
		log:       cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		db:        o.Database,
		store:     o.Database.RemoteRuns(),
		member:    o.Member,
		retention: cmp.Or(o.Life, store.RemoteRunLife),
		added:     wait.NewSignal(),
		entries:   make(map[string]*entry),
	}

	e.ctx, e.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	e.closed, e.end = context.WithCancel(context.WithoutCancel(ctx))
	_, err := e.adopt(ctx)
	e.serving.Go(func() { e.serve(err) })
	return e, nil
}

// add adds a run. It reports false if the engine is closed or has the run already.
func (e *Engine) add(n *entry) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing || e.entries[n.id] != nil {
		return false
	}
	e.entries[n.id] = n

	e.added.Wake()
	return true
}

// remove removes a run whose end is stored, or that another server has taken over.
func (e *Engine) remove(n *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.entries, n.id)
}

// get returns the run with an id, or nil.
func (e *Engine) get(id string) *entry {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.entries[id]
}

// all returns all runs that this process has in memory.
func (e *Engine) all() []*entry {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.entries))
}

// Going reports whether this process follows any runs.
func (e *Engine) Going() bool { return len(e.all()) > 0 }

// Stats are the current counts, for metrics.
type Stats struct {
	Running int // runs at the sources
	Waiting int // runs that wait for a slot
}

// Stats returns the current counts. It never waits for a run or a source.
func (e *Engine) Stats() Stats {
	running, waiting := e.slots.count()
	return Stats{Running: running, Waiting: waiting}
}

// Close stops following the runs. Runs whose sources can be asked continue there, and any other server may
// take them over at once. A request without an answer is cut off, and its run is unknown. A run that waited
// for a slot has failed. Waiting calls return. Close returns the names of what did not stop before ctx ended,
// or nil.
func (e *Engine) Close(ctx context.Context) []string {
	e.mu.Lock()
	e.closing = true
	e.mu.Unlock()

	all := e.all()
	e.cancel(errClosing)
	defer e.end()

	var stuck []string
	if wait.Group(ctx, &e.serving) != nil {
		stuck = append(stuck, "the look at the remote runs of other servers")
	}
	for _, n := range all {
		if wait.Done(ctx, n.done) != nil {
			stuck = append(stuck, "remote run "+n.id)
		}
	}
	if len(stuck) == 0 {
		e.drivers.Wait()
	}
	if len(all) > 0 { // let other servers take over these runs at once
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
		defer cancel()
		e.saveEnds(ctx)
		if err := e.store.Release(ctx, e.member.ID()); err != nil {
			e.log.Warn("the remote runs of this server cannot be left to others now; they take them up later", "after",
				e.retention, "error", err)
		}
	}

	slices.Sort(stuck)
	return stuck
}

// write stores a record durably.
func (e *Engine) write(ctx context.Context, x *store.RemoteRun) error {
	if err := e.member.Enter(ctx); err != nil {
		return err
	}
	return e.store.Save(ctx, x, e.retention)
}

// now returns the current time with the precision of the store.
func now() time.Time { return session.Clock().UTC().Truncate(time.Microsecond) }

// settings reads the current settings. A new limit also applies to waiting runs.
func (e *Engine) settings(ctx context.Context) (*config.WorkflowTools, error) {
	cfg, err := e.current(ctx)
	if err != nil {
		return nil, err
	}
	w := &cfg.WorkflowTools
	if e.last.Swap(w) != w {
		e.slots.adjust(w.MaxConcurrent)
	}
	return w, nil
}

// config returns the current settings or, if they cannot be read, the last ones. nil means that they were
// never read.
func (e *Engine) config(ctx context.Context) *config.WorkflowTools {
	if w, err := e.settings(ctx); err == nil {
		return w
	}
	return e.last.Load()
}

// timeout returns how long a run of a workflow may take, 0 for no limit, and the name of the setting.
func timeout(c *config.WorkflowTools, w *source.Workflow) (limit time.Duration, setting string) {
	for _, s := range c.Sources {
		if s.Name == w.Source && s.ExecutionTimeout != nil {
			return *s.ExecutionTimeout, fmt.Sprintf("workflow_tools.sources[%s].execution_timeout", w.Source)
		}
	}

	limit = defaultTimeout
	if c.ExecutionTimeout != nil {
		limit = *c.ExecutionTimeout
	} else if w.Performer != "" {
		limit = 0
	}
	return limit, "workflow_tools.execution_timeout"
}

// replyWithin returns how long a call of a workflow waits for its end, 0 for no limit.
func replyWithin(c *config.WorkflowTools, w *source.Workflow) time.Duration {
	switch {
	case c.ReplyWithin != nil:
		return *c.ReplyWithin
	case w.Performer != "":
		return performedReply
	}
	return 0
}
