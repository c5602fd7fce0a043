package execution

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"deepwork/actor"
	"deepwork/catalog/remote"
)

// message is what a run's actor receives.
type message interface{ runMessage() }

// watchMessage asks for the run once it has changed since a version.
type watchMessage struct {
	Since uint64
	Reply actor.Reply[*view]
}

// startMessage says that the run has a slot, after it waited for one.
type startMessage struct {
	Deadline *time.Time
	Reply    actor.Reply[struct{}]
}

// acceptMessage says that the source runs it, under an id of its own.
type acceptMessage struct {
	SourceExecutionID string
	Reply             actor.Reply[struct{}]
}

// progressMessage says how far it is.
type progressMessage struct{ Progress remote.Progress }

// endMessage says how it ended.
type endMessage struct {
	outcome
	Reply actor.Reply[struct{}]
}

func (watchMessage) runMessage()    {}
func (startMessage) runMessage()    {}
func (acceptMessage) runMessage()   {}
func (progressMessage) runMessage() {}
func (endMessage) runMessage()      {}

// A runActor owns the state of one run. What it is told is on disk before
// anybody sees it, progress aside, which is in memory only.
type runActor struct {
	engine   *Engine
	entry    *entry
	rec      *record // nil before Start
	log      *slog.Logger
	watchers []watchMessage
	told     time.Time // when progress was last logged for all to see
}

// Start reads the record where an incarnation before this one crashed.
func (a *runActor) Start(context.Context) error {
	if a.rec == nil {
		r, err := a.engine.store.last(a.entry.id)
		if err != nil {
			return fmt.Errorf("taking up run %s after a crash: %w", a.entry.id, err)
		}
		a.rec = r
	}
	a.log = a.engine.log.With("execution_id", a.rec.ExecutionID, "workflow", a.rec.WorkflowName, "source", a.rec.Source)
	return nil
}

// Receive handles one message.
func (a *runActor) Receive(ctx context.Context, m message) error {
	switch m := m.(type) {
	case watchMessage:
		if v := a.entry.view.Load(); v.over || v.version > m.Since {
			m.Reply.Send(v)
		} else {
			a.watchers = append(a.watchers, m)
		}
	case startMessage:
		next := a.rec.next()
		next.State, next.Deadline = starting, m.Deadline
		// Synced whatever its kind: that it waits may be on disk with another run's
		// sync, and who finds that after a loss of power says that nothing was started.
		if err := a.save(ctx, next, nil, true); err != nil {
			m.Reply.Fail(err) // nothing was sent: the driver gives up
			return nil
		}
		a.log.Info("run started")
		a.publish(nil)
		m.Reply.Send(struct{}{})
	case acceptMessage:
		next := a.rec.next()
		next.State, next.SourceExecutionID = Running, &m.SourceExecutionID
		a.must(ctx, next, nil, true)
		a.log.Info("run accepted by its source", "source_execution_id", m.SourceExecutionID)
		a.publish(a.entry.view.Load().Progress)
		m.Reply.Send(struct{}{})
	case progressMessage:
		a.advance(m.Progress)
	case endMessage:
		a.end(ctx, m.outcome)
		m.Reply.Send(struct{}{})
	default:
		return fmt.Errorf("run %s was sent a %T", a.entry.id, m)
	}
	return nil
}

// save makes a record durable and the actor's own.
func (a *runActor) save(ctx context.Context, next *record, result json.RawMessage, sync bool) error {
	if err := a.engine.store.save(ctx, next, result, sync); err != nil {
		return err
	}
	a.rec = next
	return nil
}

// must is save for what is true whether it can be written or not: the source
// runs it, or it has ended. After a crash it is then learned from the source
// again, or unknown.
func (a *runActor) must(ctx context.Context, next *record, result json.RawMessage, sync bool) (written bool) {
	if err := a.save(ctx, next, result, sync); err != nil {
		a.log.Error("a run cannot be written down; it will not be known as it is after a restart", "error", err)
		a.rec = next
		return false
	}
	return true
}

// advance notes progress, if it is any (seed 003, 7.3 and 8.3).
func (a *runActor) advance(p remote.Progress) {
	v := a.entry.view.Load()
	if v.over || v.Progress != nil && sameProgress(*v.Progress, p) {
		return
	}
	// All of it is for debugging; one a second is for the log of every day.
	level := slog.LevelDebug
	if now := time.Now(); now.Sub(a.told) >= time.Second {
		level, a.told = slog.LevelInfo, now
	}
	attrs := []any{"message", p.Message}
	if p.Value != nil {
		attrs = append(attrs, "progress", *p.Value)
	}
	if p.Total != nil {
		attrs = append(attrs, "total", *p.Total)
	}
	a.log.Log(context.Background(), level, "run progress", attrs...)
	a.publish(&p)
}

// end makes the outcome the run's. What comes later changes nothing.
func (a *runActor) end(ctx context.Context, o outcome) {
	if a.entry.view.Load().over {
		return
	}
	next := a.rec.next()
	next.StatusSupported = !o.blind
	if next.State = o.state; o.blind {
		next.State = Running
	} else {
		next.EndedAt = new(a.engine.time())
	}
	if o.sourceID != "" {
		next.SourceExecutionID = &o.sourceID
	}
	if o.words != "" {
		next.Error = new(clip(o.words, maxWords))
	}
	var long json.RawMessage
	switch size := len(o.result); {
	case size <= inlineLimit:
		next.Result = o.result
	case size <= maxOnDisk:
		long, next.ResultKept, next.ResultSum = o.result, true, checksum(o.result)
	case next.Error == nil:
		next.Error = new(resultDropped(size))
	}
	stored := a.must(ctx, next, long, next.Async) && (long != nil || len(next.Result) > 0)

	run := next.run()
	run.Result = o.result
	if o.words == "" {
		run.Error = nil // what it says is true once the result is gone
	}
	was := a.entry.view.Load()
	run.Progress = a.lastProgress(o, was)
	attrs := []any{"state", run.State, "took", a.engine.time().Sub(run.StartedAt)}
	switch {
	case run.Error != nil:
		a.log.Warn("run ended", append(attrs, "error", *run.Error)...)
	case o.blind:
		a.log.Warn("run goes on and cannot be asked about: its source has no status tool, or gave no id")
	default:
		a.log.Info("run ended", attrs...)
	}
	a.tell(&view{Execution: run, version: was.version + 1, over: true, stored: stored, long: next.ResultKept, code: o.code, unsure: o.unsure})
}

// lastProgress is how far a run was at its end: as its source said with the end, else
// as it said before. What has ended waits for no slot any more, and what is completed
// is at no part of it.
func (a *runActor) lastProgress(o outcome, was *view) *remote.Progress {
	switch {
	case o.progress != nil:
		p := *o.progress
		p.Message = clip(p.Message, maxMessage)
		return &p
	case o.state == Completed, was.Progress == nil, was.Progress.Message == waitsForSlot && was.Progress.Value == nil:
		return nil
	}
	return was.Progress
}

// publish shows the record to all, with this progress.
func (a *runActor) publish(p *remote.Progress) {
	run := a.rec.run()
	run.Progress = p
	a.tell(&view{Execution: run, version: a.entry.view.Load().version + 1})
}

func (a *runActor) tell(v *view) {
	a.entry.view.Store(v)
	if v.over {
		a.engine.kept.ended(a.entry)
	}
	for _, w := range a.watchers {
		w.Reply.Send(v)
	}
	a.watchers = nil
}

func sameProgress(a, b remote.Progress) bool {
	same := func(x, y *float64) bool { return x == y || x != nil && y != nil && *x == *y }
	return a.Message == b.Message && same(a.Value, b.Value) && same(a.Total, b.Total)
}
