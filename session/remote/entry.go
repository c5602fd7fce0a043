package remote

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"deepwork/actor/telemetry"
	"deepwork/catalog/source"
	"deepwork/session"
	"deepwork/session/spans"
	"deepwork/session/store"
	"deepwork/session/work"
)

// A view is a run as its driver last published it. It is immutable.
type view struct {
	Run
	newer chan struct{} // closed when there is a newer view
	over  bool          // nothing more will become known here
	lost  bool          // over because another server has taken the run over
	code  string        // of the error for callers that wait; "" if the state determines it
}

// An entry is a run that this process drives, or whose end could not be stored. Only its driver's goroutine
// owns its state and calls its methods; others read the view.
type entry struct {
	engine   *Engine
	id       string
	identity string
	view     atomic.Pointer[view]
	drive    func(context.Context) (o outcome, slot bool) // has a slot at its end, or not
	ctx      context.Context                              // of drive
	cancel   context.CancelCauseFunc                      // ends ctx
	done     chan struct{}                                // closed when the driver has ended

	// Owned by the driver. Once the view is over they do not change, and anybody may read them.
	rec    *store.RemoteRun // immutable
	stored State            // of the run as it is stored
	logged time.Time        // when progress was last logged at info level
	task   *work.Task       // nil until the driver begins
}

// newEntry returns an entry that publishes a record.
func (e *Engine) newEntry(x *store.RemoteRun) *entry {
	n := &entry{engine: e, id: x.ID, identity: x.Identity, rec: x, stored: x.State, done: make(chan struct{})}
	n.ctx, n.cancel = context.WithCancelCause(telemetry.Under(context.Background(), refOf(x)))
	n.view.Store(&view{Run: shown(x), newer: make(chan struct{})})
	return n
}

func (n *entry) log() *slog.Logger {
	return n.engine.log.With("execution_id", n.id, "workflow", n.rec.WorkflowName, "source", n.rec.Source)
}

// write stores a record durably, even while the engine closes.
func (n *entry) write(next *store.RemoteRun) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.ctx), writeTime)
	defer cancel()
	return n.engine.write(ctx, next, n.stored)
}

// save stores a record, and makes it the entry's record.
func (n *entry) save(next *store.RemoteRun) error {
	err := n.write(next)
	if err == nil {
		n.rec, n.stored = next, next.State
	} else if errors.Is(err, work.ErrTaken) {
		n.lose()
	}
	return err
}

// saveFact is save for facts that hold even if they cannot be stored: that the source runs it, or that it has
// ended. Each poll, and persist, try again. After a crash before that, the source is asked again, or the
// state is unknown. If another server has taken the run over, it has to find out the facts itself.
func (n *entry) saveFact(next *store.RemoteRun) error {
	err := n.save(next)
	if err != nil && n.rec.State == n.stored && !n.view.Load().lost {
		n.log().Error("a remote run cannot be written down; trying again, since it will not be known as it is after "+
			"a restart", "error", err)
	}
	n.rec = next
	return err
}

// lose gives up the run: another server has taken it over, and its record says what is known.
func (n *entry) lose() {
	was := n.view.Load()
	if was.over {
		return
	}

	n.log().Info("remote run was taken up by another server; this one no longer follows it")
	n.engine.remove(n)
	n.cancel(work.ErrTaken)
	n.publish(&view{Run: was.Run, over: true, lost: true})
}

// accept records that the source runs the workflow, under an id of its own.
func (n *entry) accept(sourceExecutionID string) {
	next := *n.rec
	next.State, next.SourceExecutionID = Running, &sourceExecutionID
	_ = n.saveFact(&next)
	if v := n.view.Load(); !v.lost {
		n.log().Info("remote run accepted by its source", "source_execution_id", sourceExecutionID)
		n.show(v.Progress)
	}
}

// advance sets the progress, in memory only, if it has changed (seed 003, 7.3 and 8.3).
func (n *entry) advance(p source.Progress) {
	p.Message = clip(p.Message, maxMessage)
	v := n.view.Load()
	if v.over || v.Progress != nil && sameProgress(*v.Progress, p) {
		return
	}

	// All progress is logged for debugging, and at most one per second at info level.
	level := slog.LevelDebug
	if now := time.Now(); now.Sub(n.logged) >= time.Second {
		level, n.logged = slog.LevelInfo, now
	}
	attrs := []any{"message", p.Message}
	if p.Value != nil {
		attrs = append(attrs, "progress", *p.Value)
	}
	if p.Total != nil {
		attrs = append(attrs, "total", *p.Total)
	}
	n.log().Log(context.Background(), level, "remote run progress", attrs...)
	n.show(&p)
}

// end stores and publishes the outcome of the run. It returns work.ErrEnded when that is stored, or why it is not.
func (n *entry) end(o outcome) error {
	was := n.view.Load()
	if was.lost {
		return work.ErrTaken
	}

	next := *n.rec
	next.StatusSupported = !o.blind
	next.State = o.state
	if o.blind {
		next.State = Running
	} else {
		next.EndedAt = new(now())
	}
	if o.sourceID != "" {
		next.SourceExecutionID = &o.sourceID
	}
	next.Error = o.error()
	next.Result = o.result
	run := shown(&next)
	run.Progress = lastProgress(o, was)
	next.Progress = progressText(run.Progress)
	err := n.saveFact(&next)
	if errors.Is(err, work.ErrTaken) {
		return err
	}

	n.export()
	switch took := session.TookMS(now().Sub(run.StartedAt)); {
	case run.Error != nil:
		n.log().WarnContext(n.ctx, "remote run ended", "state", run.State, took, "error", *run.Error)
	case o.blind:
		n.log().WarnContext(n.ctx, "remote run goes on and cannot be asked about: its source has no status tool, or "+
			"gave no id")
	default:
		n.log().InfoContext(n.ctx, "remote run ended", "state", run.State, took)
	}

	if err == nil { // before the end is visible: an ended run in memory is one that could not be stored
		n.engine.remove(n)
	}
	n.publish(&view{Run: run, over: true, code: o.code})
	if err == nil {
		return work.ErrEnded
	}

	if err = persist(n.task, func() error { return n.write(n.rec) }); err != nil {
		return err
	}
	n.log().Info("the end of a remote run is written down now")
	return work.ErrEnded
}

// refOf returns the span of a run.
func refOf(x *store.RemoteRun) telemetry.Ref {
	return telemetry.Derive(telemetry.Parse(x.Trace), spans.Remote, x.ID)
}

// export exports the span of a run that is over.
func (n *entry) export() {
	x := n.rec
	s := telemetry.Span{
		Name:   spans.Remote,
		Ref:    refOf(x),
		Parent: telemetry.Parse(x.Trace),
		Start:  x.StartedAt,
		End:    now(),
		Attributes: []attribute.KeyValue{spans.Workflow.String(x.WorkflowName), spans.Source.String(x.Source),
			spans.ExecutionID.String(x.ID), spans.Outcome.String(string(x.State))},
	}

	if x.EndedAt != nil {
		s.End = *x.EndedAt
	}
	if x.State == Failed || x.State == TimedOut || x.State == Unknown {
		s.Error = string(x.State)
	}
	telemetry.Export(s)
}

// lastProgress returns the progress of a run at its end: as reported by the source together with the end,
// otherwise the last known. An ended run no longer waits for a slot, and a completed one has no current part.
func lastProgress(o outcome, was *view) *source.Progress {
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

// show publishes the record with this progress.
func (n *entry) show(p *source.Progress) {
	run := shown(n.rec)
	run.Progress = p
	n.publish(&view{Run: run})
	n.report(p)
}

// report lets other servers know the progress.
func (n *entry) report(p *source.Progress) {
	if n.task != nil {
		n.task.Report(progressText(p))
	}
}

func (n *entry) publish(v *view) {
	v.newer = make(chan struct{})
	close(n.view.Swap(v).newer)
}

// progressText returns progress in the stored form.
func progressText(p *source.Progress) json.RawMessage {
	text, _ := json.Marshal(p) // encoding numbers and a text never fails
	return text
}

func sameProgress(a, b source.Progress) bool {
	same := func(x, y *float64) bool { return x == y || x != nil && y != nil && *x == *y }
	return a.Message == b.Message && same(a.Value, b.Value) && same(a.Total, b.Total)
}
