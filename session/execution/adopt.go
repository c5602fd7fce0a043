package execution

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
)

// A journal is what a server has written.
type journal struct {
	name  string
	lines []line
}

// damaged is why a journal is not as it was written; nil: it is.
func (j *journal) damaged() error {
	for i := range j.lines {
		if err := j.lines[i].damaged(); err != nil {
			return err
		}
	}
	return nil
}

// A legacy is what servers that are gone have left.
type legacy struct {
	journals []*journal
	runs     map[string]line // the last that is known of each, by id
	newer    bytes.Buffer    // lines of a newer deepwork
}

// gather looks what is in the journals of servers that are gone, and not known
// here yet.
func (e *Engine) gather(left []*journal) *legacy {
	g := &legacy{journals: left, runs: make(map[string]line)}
	lost := make(map[string]line) // lines that cannot be trusted
	for _, j := range left {
		for _, l := range j.lines {
			switch {
			case errors.Is(l.err, errNewer):
				e.log.Warn("the record of a run is left alone", "file", j.name, "error", l.err)
				g.newer.Write(l.raw)
				g.newer.WriteByte('\n')
			case l.rec == nil || e.kept.has(l.rec.ExecutionID):
			case l.err != nil:
				lost[l.rec.ExecutionID] = l
			default:
				// In two journals is what a server was killed over while it did this here.
				if was, is := g.runs[l.rec.ExecutionID]; !is || !was.rec.over() {
					g.runs[l.rec.ExecutionID] = l
				}
			}
		}
	}
	for id, l := range lost {
		l.doubt = l.err
		if known, is := g.runs[id]; is { // from another journal, and nobody knows which is later
			known.doubt = l.err
			l = known
		}
		g.runs[id] = l
	}
	return g
}

// adopt makes what servers that are gone have left this server's own: first in its
// journal, then in memory. Nothing is started again: what the source cannot be
// asked about is unknown from now on. The claim lock is held.
func (e *Engine) adopt(ctx context.Context, g *legacy) error {
	s := e.store
	var records []*record
	for _, l := range g.runs {
		records = append(records, e.inherited(l))
	}
	// In the order in which they are to be forgotten.
	slices.SortFunc(records, func(a, b *record) int {
		x, y := a.run(), b.run()
		return x.lastSeen().Compare(y.lastSeen())
	})
	if g.newer.Len() > 0 {
		if err := s.appendLines(ctx, false, true, g.newer.Bytes()); err != nil {
			return err
		}
	}
	if err := s.append(ctx, true, true, records...); err != nil {
		return err
	}
	for _, j := range g.journals {
		err := j.damaged()
		if err == nil {
			s.remove(j.name)
			continue
		}
		to := damagedPrefix + j.name
		if rerr := s.disk.Move(filepath.Join(s.dir, j.name), filepath.Join(s.dir, to)); rerr != nil {
			err = errors.Join(err, rerr)
		}
		s.log.Warn("a journal of runs has lines that cannot be read; it is set aside, and what can be read is taken up", "file", to, "error", err)
	}
	for _, r := range records {
		if was := g.runs[r.ExecutionID]; !was.rec.over() {
			e.log.Info("run taken up from a server that is gone", "execution_id", r.ExecutionID, "workflow", r.WorkflowName,
				"source", r.Source, "server", was.rec.Server, "was", was.rec.State, "is", r.State)
		}
		if !e.inherit(r) {
			return errStoreClosed
		}
	}
	return nil
}

// inherited is a run of a server that is gone as this one's.
func (e *Engine) inherited(l line) *record {
	next := l.rec.next()
	switch {
	case next.over(), next.State == Running: // its source knows its end
	case l.doubt != nil:
		// That it waited for a slot is not believed either: it may have got one.
		next = e.lost(next, fmt.Sprintf("a record in the journal of its server, which is gone, cannot be read, and may be of this run: %v; whether the workflow was carried out is not known", l.doubt))
	case next.State == waiting:
		next.State, next.EndedAt = Failed, new(e.time())
		next.Error = new("the server ended while the run waited for a slot; nothing was started")
	default:
		next = e.lost(next, "the server ended before the source had answered; whether the workflow was carried out is not known")
	}
	next.Server = e.store.server
	return next
}

// lost is a run of which nobody knows how it ended.
func (e *Engine) lost(r *record, why string) *record {
	next := r.next()
	next.State, next.EndedAt, next.Error = Unknown, new(e.time()), new(clip(why, maxWords))
	if next.StartedAt.IsZero() { // it could not be read
		next.StartedAt = *next.EndedAt
	}
	return next
}

// elsewhere is a run of a server that lives, as far as it can be told from its
// journal.
func (e *Engine) elsewhere(l line) *record {
	switch {
	case l.err != nil:
		l.doubt = l.err
	case l.rec.over():
		return l.rec
	}
	if l.doubt == nil {
		return l.rec
	}
	why := fmt.Sprintf("a record in the journal of its server cannot be read, and may be of this run: %v; that server runs, and may know how the run stands: ask it", l.doubt)
	if l.rec.State == Running {
		// Its end is known to its server, or will be to the next one from its source.
		next := l.rec.next()
		next.Error = new(clip(why, maxWords))
		return next
	}
	return e.lost(l.rec, why)
}

// stranded is a run of a server that is gone, as it is told while it cannot be taken
// up. What can no longer change is told as it will be.
func (e *Engine) stranded(l line, cause error) *record {
	next := e.inherited(l)
	if !next.over() {
		next.Error = new(clip(fmt.Sprintf("the server that followed it is gone, and this one cannot follow it, because that must be written down first: %v. "+
			"How it stands at its source is not known here. See to the disk and ask again: it is followed as soon as that is mended; do not start it again", cause), maxWords))
	}
	return next
}

// inherit makes a record that was taken up known, and has it followed where there
// is something to follow; false: the engine is closed.
func (e *Engine) inherit(r *record) bool {
	n := e.enter(r)
	if r.over() {
		n.view.Load().Result = nil // on disk; nobody has seen the view yet
		if !e.kept.add(n) {
			return false
		}
		e.kept.ended(n)
		return true
	}
	e.slots.take()
	if !e.hire(n, r, func(ctx context.Context) (outcome, bool) { return e.resume(ctx, n, r), true }) {
		e.slots.leave()
		return false
	}
	return true
}

// resume is the driver of a run that was taken up: it goes on where the server
// before this one was.
func (e *Engine) resume(ctx context.Context, n *entry, r *record) outcome {
	t := target{source: r.Source, workflow: r.WorkflowID, execution: *r.SourceExecutionID, timeout: r.Timeout}
	if r.Deadline != nil {
		// It may have ended in time while nobody looked: one who comes late looks first.
		left := max(r.Deadline.Sub(e.time()), graceTime)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, left, errTimedOut)
		defer cancel()
	}
	return e.follow(ctx, n, t)
}
