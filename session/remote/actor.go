package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"deepwork/actor"
	"deepwork/catalog/source"
	"deepwork/session"
	"deepwork/session/store"
)

// message is what a run's actor receives.
type message interface{ runMessage() }

// watchMessage asks for the run once it is newer than a version.
type watchMessage struct {
	Since uint64
	Reply actor.Reply[*view]
}

// startMessage reports that the run has a slot after waiting for one.
type startMessage struct {
	Deadline *time.Time
	Reply    actor.Reply[struct{}]
}

// acceptMessage reports that the source runs it, under its own id.
type acceptMessage struct {
	SourceExecutionID string
	Reply             actor.Reply[struct{}]
}

// progressMessage reports its progress.
type progressMessage struct{ Progress source.Progress }

// lostMessage reports that another server has taken it up.
type lostMessage struct{}

// endMessage reports how it ended.
type endMessage struct {
	outcome
	Reply actor.Reply[struct{}]
}

func (watchMessage) runMessage()    {}
func (startMessage) runMessage()    {}
func (acceptMessage) runMessage()   {}
func (progressMessage) runMessage() {}
func (lostMessage) runMessage()     {}
func (endMessage) runMessage()      {}

// A runActor owns the state of one run. It stores each change before publishing it,
// except progress, which is in memory only.
type runActor struct {
	engine   *Engine
	entry    *entry
	rec      *store.Execution // nil before Start; immutable once stored
	watchers []watchMessage
	logged   time.Time // when progress was last logged at info level
}

// Start reads the record if an earlier incarnation of this actor crashed.
func (a *runActor) Start(ctx context.Context) error {
	if a.rec == nil {
		r, err := a.engine.store.Execution(ctx, a.entry.id)
		if err != nil {
			return fmt.Errorf("taking up remote run %s after a crash: %w", a.entry.id, err)
		}
		r.Owner = a.engine.member.ID() // if another server has taken it up, this one can store nothing
		a.rec = r
	}
	return nil
}

func (a *runActor) log() *slog.Logger {
	return a.engine.log.With("execution_id", a.rec.ID, "workflow", a.rec.WorkflowName, "source", a.rec.Source)
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
		next := *a.rec
		next.State, next.Deadline = store.ExecutionStarting, m.Deadline
		if err := a.save(ctx, &next); err != nil {
			m.Reply.Fail(err) // nothing was sent: the driver gives up
			return nil
		}
		a.log().Info("remote run started")
		a.publish(nil)
		m.Reply.Send(struct{}{})
	case acceptMessage:
		next := *a.rec
		next.State, next.SourceExecutionID = Running, &m.SourceExecutionID
		a.must(ctx, &next)
		if v := a.entry.view.Load(); !v.lost {
			a.log().Info("remote run accepted by its source", "source_execution_id", m.SourceExecutionID)
			a.publish(v.Progress)
		}
		m.Reply.Send(struct{}{})
	case progressMessage:
		a.advance(m.Progress)
	case lostMessage:
		a.lose()
	case endMessage:
		a.end(ctx, m.outcome)
		m.Reply.Send(struct{}{})
	default:
		return fmt.Errorf("remote run %s was sent a %T", a.entry.id, m)
	}
	return nil
}

// save stores a record durably and sets the actor's.
func (a *runActor) save(ctx context.Context, next *store.Execution) error {
	err := a.engine.member.Enter(ctx)
	if err == nil {
		err = a.engine.store.Save(ctx, next, a.engine.life)
	}
	switch {
	case err == nil:
		a.rec = next
	case errors.Is(err, store.ErrNotOwner):
		a.lose()
	}
	return err
}

// lose gives the run up: another server has taken it up, and its record says what is known.
func (a *runActor) lose() {
	was := a.entry.view.Load()
	if was.over {
		return
	}
	a.log().Info("remote run was taken up by another server; this one no longer follows it")
	a.engine.entries.remove(a.entry)
	a.entry.cancel(errLost)
	a.tell(&view{Run: was.Run, version: was.version + 1, over: true, lost: true})
}

// must is save for facts that hold even if they cannot be stored: the source runs it, or it has
// ended. After a crash the source is asked again, or the state is unknown. If another server has taken
// the run up, they are that server's to find out.
func (a *runActor) must(ctx context.Context, next *store.Execution) (stored bool) {
	err := a.save(ctx, next)
	if err != nil && !a.entry.view.Load().lost {
		a.log().Error("a remote run cannot be written down; it will not be known as it is after a restart", "error", err)
		a.rec = next
	}
	return err == nil
}

// advance sets the progress, if it has changed (seed 003, 7.3 and 8.3).
func (a *runActor) advance(p source.Progress) {
	v := a.entry.view.Load()
	if v.over || v.Progress != nil && sameProgress(*v.Progress, p) {
		return
	}
	// All progress is logged for debugging, and at most one per second at info level.
	level := slog.LevelDebug
	if now := time.Now(); now.Sub(a.logged) >= time.Second {
		level, a.logged = slog.LevelInfo, now
	}
	attrs := []any{"message", p.Message}
	if p.Value != nil {
		attrs = append(attrs, "progress", *p.Value)
	}
	if p.Total != nil {
		attrs = append(attrs, "total", *p.Total)
	}
	a.log().Log(context.Background(), level, "remote run progress", attrs...)
	a.publish(&p)
}

// end sets the outcome of the run. Later messages change nothing.
func (a *runActor) end(ctx context.Context, o outcome) {
	was := a.entry.view.Load()
	if was.over {
		return
	}
	next := *a.rec
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
	next.Result = o.result
	run := shown(&next)
	run.Progress = a.lastProgress(o, was)
	next.Progress = progressText(run.Progress)
	stored := a.must(ctx, &next)
	if a.entry.view.Load().lost {
		return
	}
	attrs := []any{"state", run.State, session.TookMS(a.engine.time().Sub(run.StartedAt))}
	switch {
	case run.Error != nil:
		a.log().Warn("remote run ended", append(attrs, "error", *run.Error)...)
	case o.blind:
		a.log().Warn("remote run goes on and cannot be asked about: its source has no status tool, or gave no id")
	default:
		defer func() { // its caller does not wait for it
			runtime.Gosched()
			a.log().Info("remote run ended", attrs...)
		}()
	}
	v := &view{Run: run, version: was.version + 1, over: true, code: o.code, unsure: o.unsure}
	if stored { // before the end is visible: what is in memory and has ended is not stored
		a.engine.entries.remove(a.entry)
	}
	a.tell(v)
}

// lastProgress returns the progress of a run at its end: as the source reported it with the
// end, otherwise the last known. An ended run no longer waits for a slot, and a completed one
// has no current part.
func (a *runActor) lastProgress(o outcome, was *view) *source.Progress {
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

// publish publishes the record with this progress.
func (a *runActor) publish(p *source.Progress) {
	run := shown(a.rec)
	run.Progress = p
	a.tell(&view{Run: run, version: a.entry.view.Load().version + 1})
}

func (a *runActor) tell(v *view) {
	a.entry.view.Store(v)
	for _, w := range a.watchers {
		w.Reply.Send(v)
	}
	a.watchers = nil
}

// progressText returns progress as it is stored; nil means no progress.
func progressText(p *source.Progress) json.RawMessage {
	if p == nil {
		return nil
	}
	text, _ := json.Marshal(p) // numbers and a text: encoding cannot fail
	return text
}

func sameProgress(a, b source.Progress) bool {
	same := func(x, y *float64) bool { return x == y || x != nil && y != nil && *x == *y }
	return a.Message == b.Message && same(a.Value, b.Value) && same(a.Total, b.Total)
}
