package execution

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/actor"
	"deepwork/catalog/config"
	"deepwork/session"
)

// An Engine runs the workflows of a project's sources. Its methods may be called
// from any goroutine.
type Engine struct {
	sources Sources
	current func(context.Context) (*config.Config, error)
	last    atomic.Pointer[config.WorkflowTools] // the settings as they were last read
	log     *slog.Logger
	clock   func() time.Time

	store  *store
	slots  slots
	kept   *kept
	system *actor.System

	ctx     context.Context // of the drivers; ends with Close, the cause being errClosing
	cancel  context.CancelCauseFunc
	drivers sync.WaitGroup
	looking chan struct{} // closed when keepLooking has ended
}

// Open makes the engine of a project and takes up the runs that servers which
// are gone have left: those that their sources can be asked about are followed
// again, and cancelled when their time is over; the others are unknown; none is
// started again. It reads their journals, some MB, and waits for no source.
// The folder need not be there, and is made with the first run; one that cannot
// be read is logged, and keeps no new run from being tried. Until Close the engine
// goes on to look for runs of servers that are gone, every 10 s or so. ctx bounds
// Open alone; Close ends the engine.
func Open(ctx context.Context, o Options) (*Engine, error) {
	switch {
	case !filepath.IsAbs(o.Root):
		return nil, fmt.Errorf("opening the runs of a project: its root %q is not absolute", o.Root)
	case o.Sources == nil, o.Settings == nil:
		return nil, errors.New("opening the runs of a project: no sources, or no settings, are given")
	}
	e := &Engine{sources: o.Sources, current: o.Settings, log: o.Logger, clock: o.Now, kept: newKept(), looking: make(chan struct{})}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if e.clock == nil {
		e.clock = session.Clock
	}
	e.ctx, e.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	e.store = openStore(filepath.Join(o.Root, ".deepwork", "tmp", "runs"), o.Member, e.log, e.kept.has)
	e.system = actor.NewSystem(e.log)
	if _, err := e.takeUp(ctx); err != nil {
		e.log.Warn("the runs of earlier servers cannot be taken up now", "error", err)
	}
	e.sweep()
	go func() {
		defer close(e.looking)
		e.keepLooking()
	}()
	return e, nil
}

// Stats are the numbers of now, for metrics.
type Stats struct {
	Running int // executions at the sources
	Waiting int // runs that wait for a slot
	Kept    int // runs that can be asked about, these two included
}

// Stats returns the numbers of now. It never waits for a run or a source.
func (e *Engine) Stats() Stats {
	running, waiting := e.slots.count()
	return Stats{Running: running, Waiting: waiting, Kept: e.kept.len()}
}

// Close lets go of the runs: those whose sources can be asked about go on there
// and are taken up by the next server; a request that a source has not answered
// is cut off, and its run is unknown; one that waited for a slot has failed.
// Calls that wait are told so. It returns the names of what did not stop before
// ctx ended, nil if all did.
func (e *Engine) Close(ctx context.Context) []string {
	live := e.kept.close()
	e.cancel(errClosing)
	var stuck []string
	select {
	case <-e.looking:
	case <-ctx.Done():
		stuck = append(stuck, "the look for runs of servers that are gone")
	}
	for _, n := range live {
		select {
		case <-n.done:
			continue
		default:
		}
		select {
		case <-n.done:
		case <-ctx.Done():
			stuck = append(stuck, "run "+n.id)
		}
	}
	if len(stuck) == 0 {
		e.drivers.Wait()
	}
	stuck = append(stuck, e.system.Stop(ctx)...)
	slices.Sort(stuck)
	if err := e.store.close(); err != nil {
		e.log.Error("closing the runs", "error", err)
	}
	return slices.Compact(stuck)
}

// time is now, as it is written to files.
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

// config is settings, or where they cannot be read those that were; nil: there
// never were any.
func (e *Engine) config(ctx context.Context) *config.WorkflowTools {
	if w, err := e.settings(ctx); err == nil {
		return w
	}
	return e.last.Load()
}

// timeout is how long an execution at a source may take; 0: for ever.
func timeout(w *config.WorkflowTools, source string) time.Duration {
	for _, s := range w.Sources {
		if s.Name == source && s.ExecutionTimeout != nil {
			return *s.ExecutionTimeout
		}
	}
	return w.ExecutionTimeout
}

// timeoutSetting names what timeout takes it from.
func timeoutSetting(w *config.WorkflowTools, source string) string {
	for _, s := range w.Sources {
		if s.Name == source && s.ExecutionTimeout != nil {
			return fmt.Sprintf("workflow_tools.sources[%s].execution_timeout", source)
		}
	}
	return "workflow_tools.execution_timeout"
}

// sweep forgets the runs that are over for too long.
func (e *Engine) sweep() {
	for _, id := range e.kept.sweep(e.clock()) {
		e.store.removeResult(id)
	}
}
