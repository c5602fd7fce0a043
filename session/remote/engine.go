package remote

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/source"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/work"
)

// An Engine runs the workflows of a project's sources. Its methods may be called
// from any goroutine.
type Engine struct {
	sources Sources
	current func(context.Context) (*config.Config, error)
	last    atomic.Pointer[config.WorkflowTools] // the settings as last read
	log     *slog.Logger

	stores *store.Stores
	runs   store.RemoteRuns
	work   *work.Loop
	slots  slots

	closed context.Context // ends with Close
	end    context.CancelFunc

	mu      sync.Mutex // guards entries
	entries map[string]*entry
}

// Open returns the engine of a project. Until Close, it takes over the runs that no server follows any more. Runs whose
// sources can be asked are followed again, and cancelled when their time is over; the others have ended. No run is
// started again. Open does not wait for sources. A missing database is created with the first run.
func Open(o Options) *Engine {
	e := &Engine{
		sources: o.Sources,
		current: o.Settings,
		log:     cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		stores:  o.Stores,
		runs:    o.Stores.Database.RemoteRuns(),
		work:    o.Work,
		entries: make(map[string]*entry),
	}
	e.closed, e.end = context.WithCancel(context.Background())
	e.work.Register(work.Kind{Name: store.RemoteWork, Do: e.do})
	return e
}

// add adds a run that this process follows.
func (e *Engine) add(n *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.entries[n.id] = n
}

// remove removes a run whose end is stored, or that this process does not follow any more.
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

// Going reports whether this process follows any runs.
func (e *Engine) Going() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.entries) > 0
}

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
// for a slot has failed. Waiting calls return. Close returns the work that did not stop before ctx ended, or nil.
func (e *Engine) Close(ctx context.Context) (stuck []string) {
	defer e.end()
	return e.work.Leave(ctx, store.RemoteWork)
}

// write stores a run that had a state.
func (e *Engine) write(ctx context.Context, x *store.RemoteRun, from State) error {
	if err := e.stores.Members.Enter(ctx); err != nil {
		return err
	}
	return e.runs.Save(ctx, x, from)
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
