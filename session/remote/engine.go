package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/actor"
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
	clock   func() time.Time

	db      store.Database
	store   store.Executions
	member  store.Members
	life    time.Duration
	slots   slots
	entries entries
	system  *actor.System

	ctx     context.Context // of all goroutines except the actors; Close ends it with errClosing
	cancel  context.CancelCauseFunc
	drivers sync.WaitGroup
	serving sync.WaitGroup // lookAround and hold
}

// Going reports whether runs run that this process follows.
func (e *Engine) Going() bool { return e.entries.any() }

// Open returns the engine of a project and takes up the runs that no server follows any more:
// those whose sources can be asked are followed again, and cancelled when their time is over; the
// others have ended; none is started again. It waits for no source. The database may be missing,
// and is created with the first run; if it cannot be read, that is logged. Until Close the
// engine searches for runs that no server follows, at least every 5 s. ctx bounds Open alone;
// Close ends the engine.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if o.Database == nil || o.Member == nil || o.Sources == nil || o.Settings == nil {
		return nil, errors.New("opening the remote runs of a project: no database, member, sources, or settings are given")
	}
	e := &Engine{sources: o.Sources, current: o.Settings, log: o.Logger, clock: o.Now, db: o.Database, store: o.Database.Executions(),
		member: o.Member, life: cmp.Or(o.Life, store.ExecutionLife), slots: slots{performed: make(map[string]int)}, entries: newEntries()}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if e.clock == nil {
		e.clock = session.Clock
	}
	e.ctx, e.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	e.system = actor.NewSystem(e.log)
	if _, err := e.adopt(ctx); err != nil {
		e.log.Warn("the remote runs of earlier servers cannot be taken up now", "error", err)
	}
	e.serving.Go(e.lookAround)
	e.serving.Go(e.hold)
	return e, nil
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

// Close stops following the runs: those whose sources can be asked continue there, and any
// other server may take them up at once; a request without an answer is cut off, and its run is
// unknown; one that waited for a slot has failed. Waiting calls return. It returns the names of
// what did not stop before ctx ended, or nil.
func (e *Engine) Close(ctx context.Context) []string {
	all := e.entries.close()
	e.cancel(errClosing)
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
	stuck = append(stuck, e.system.Stop(ctx)...)
	if len(all) > 0 {
		e.release(ctx)
	}
	slices.Sort(stuck)
	return slices.Compact(stuck)
}

// release lets other servers take up the runs of this one at once.
func (e *Engine) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	if err := e.store.Release(ctx, e.member.ID()); err != nil {
		e.log.Warn("the remote runs of this server cannot be left to others now; they take them up later", "after", e.life, "error", err)
	}
}

// time returns the current time with the precision of the store.
func (e *Engine) time() time.Time { return e.clock().UTC().Truncate(time.Microsecond) }

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

// config returns the current settings or, if they cannot be read, the last ones; nil means that
// they could never be read.
func (e *Engine) config(ctx context.Context) *config.WorkflowTools {
	if w, err := e.settings(ctx); err == nil {
		return w
	}
	return e.last.Load()
}

// timeout returns how long a run of a workflow may take, 0 for no limit, and the name of the
// setting.
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
