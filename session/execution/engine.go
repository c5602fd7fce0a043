package execution

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/actor"
	"deepwork/actor/presence"
	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/store"
)

// An Engine runs the workflows of a project's sources. Its methods may be called
// from any goroutine.
type Engine struct {
	sources Sources
	current func(context.Context) (*config.Config, error)
	last    atomic.Pointer[config.WorkflowTools] // the settings as they were last read
	log     *slog.Logger
	clock   func() time.Time

	db      store.Database
	store   store.Executions
	member  *presence.Member
	slots   slots
	entries entries
	system  *actor.System

	ctx     context.Context // of all goroutines but the actors'; ends with Close, the cause being errClosing
	cancel  context.CancelCauseFunc
	drivers sync.WaitGroup
	serving sync.WaitGroup // keepLooking, and what serves the requests of other processes
}

// Open makes the engine of a project and takes up the executions that servers which
// are gone have left: those that their sources can be asked about are followed again,
// and canceled when their time is over; the others have ended; none is started again.
// It waits for no source. The database need not be there, and is made with the first
// execution; one that cannot be read is logged. Until Close the engine goes on to look
// for executions of servers that are gone, every 10 s or so. ctx bounds Open alone;
// Close ends the engine.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if o.Database == nil || o.Member == nil || o.Sources == nil || o.Settings == nil {
		return nil, errors.New("opening the runs of a project: no database, member, sources, or settings are given")
	}
	e := &Engine{sources: o.Sources, current: o.Settings, log: o.Logger, clock: o.Now, db: o.Database, store: o.Database.Executions(),
		member: o.Member, entries: entries{byID: make(map[string]*entry)}}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if e.clock == nil {
		e.clock = session.Clock
	}
	e.ctx, e.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	e.system = actor.NewSystem(e.log)
	if err := e.adopt(ctx); err != nil {
		e.log.Warn("the runs of earlier servers cannot be taken up now", "error", err)
	}
	e.serving.Go(e.keepLooking)
	e.serving.Go(e.serve)
	return e, nil
}

// Stats are the numbers of now, for metrics.
type Stats struct {
	Running int // executions at the sources
	Waiting int // executions that wait for a slot
}

// Stats returns the numbers of now. It never waits for an execution or a source.
func (e *Engine) Stats() Stats {
	running, waiting := e.slots.count()
	return Stats{Running: running, Waiting: waiting}
}

// Close lets go of the executions: those whose sources can be asked about go on there
// and are taken up by the next server; a request that a source has not answered is cut
// off, and its execution is unknown; one that waited for a slot has failed. Calls that
// wait are told so. It returns the names of what did not stop before ctx ended, nil if
// all did.
func (e *Engine) Close(ctx context.Context) []string {
	all := e.entries.close()
	e.cancel(errClosing)
	var stuck []string
	if wait.Group(ctx, &e.serving) != nil {
		stuck = append(stuck, "the look for runs of servers that are gone")
	}
	for _, n := range all {
		if wait.Done(ctx, n.done) != nil {
			stuck = append(stuck, "run "+n.id)
		}
	}
	if len(stuck) == 0 {
		e.drivers.Wait()
	}
	stuck = append(stuck, e.system.Stop(ctx)...)
	slices.Sort(stuck)
	return slices.Compact(stuck)
}

// time is now, as it is stored.
func (e *Engine) time() time.Time { return e.clock().UTC().Truncate(time.Microsecond) }

// settings reads the settings as they are now. An edit of the limit takes effect
// for those that wait already.
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

// config is settings, or if they cannot be read the last ones that could; nil means
// that there never were any.
func (e *Engine) config(ctx context.Context) *config.WorkflowTools {
	if w, err := e.settings(ctx); err == nil {
		return w
	}
	return e.last.Load()
}

// timeout is how long an execution at a source may take, 0 for ever, and the setting
// that says so.
func timeout(w *config.WorkflowTools, source string) (limit time.Duration, setting string) {
	for _, s := range w.Sources {
		if s.Name == source && s.ExecutionTimeout != nil {
			return *s.ExecutionTimeout, fmt.Sprintf("workflow_tools.sources[%s].execution_timeout", source)
		}
	}
	return w.ExecutionTimeout, "workflow_tools.execution_timeout"
}
