package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// takeUp makes the runs of servers that are gone this one's, and returns those of
// servers that live, as they are written down; on a full disk the others too.
func (e *Engine) takeUp(ctx context.Context) (others []*record, err error) {
	s := e.store
	if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	err = s.underClaim(ctx, func() error {
		names, err := s.names()
		if err != nil {
			return err
		}
		lives := make(map[string]bool)
		alive := func(server string) bool {
			if server == s.server {
				return true
			}
			is, known := lives[server]
			if !known {
				is = s.alive(server)
				lives[server] = is
			}
			return is
		}
		var left []*journal
		sure := true // that all runs are seen
		for _, name := range names {
			server, ok := serverOf(name, "runs_", ".jsonl")
			if !ok || server == s.server {
				continue
			}
			data, err := s.read(name, journalBounds)
			if err != nil {
				s.log.Warn("a journal of runs cannot be read; it is left alone", "error", err)
				sure = false
				continue
			}
			j := &journal{name: name, lines: latest(data)}
			if !alive(server) {
				left = append(left, j)
				continue
			}
			for _, l := range j.lines {
				if sure = sure && l.err == nil; l.err == nil {
					others = append(others, l.rec)
				}
			}
		}
		if len(left) > 0 {
			if err := e.adopt(ctx, left); err != nil {
				if ctx.Err() != nil || errors.Is(err, errStoreClosed) {
					return err
				}
				// Reading works without: they are shown as they are written down, and
				// taken up by the next one who asks.
				s.log.Warn("the runs of servers that are gone cannot be taken up now", "error", err)
				for _, j := range left {
					for _, l := range j.lines {
						if l.err == nil {
							others = append(others, l.rec)
						}
					}
				}
				return nil
			}
		}
		s.sweep(names, alive)
		if sure {
			e.sweepResults(names, others)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("taking up runs: %w", err)
	}
	return others, nil
}

// sweepResults removes the long results of runs that nobody knows: their records
// were lost. A result is never there before its run is in a journal, and the
// names are from before the journals were read.
func (e *Engine) sweepResults(names []string, others []*record) {
	for _, name := range names {
		id, ok := strings.CutSuffix(name, ".result")
		if ok && isID(id) && !e.kept.has(id) && !slices.ContainsFunc(others, func(r *record) bool { return r.ExecutionID == id }) {
			e.store.remove(name)
		}
	}
}

// A journal is what a server that is gone has left.
type journal struct {
	name  string
	lines []line
}

// adopt makes what is in journals this server's own: first in its journal, then
// in memory. Nothing is started again: what the source cannot be asked about is
// unknown from now on. The claim lock is held.
func (e *Engine) adopt(ctx context.Context, left []*journal) error {
	s := e.store
	var keep bytes.Buffer // lines of a newer deepwork
	found := make(map[string]*record)
	damaged := make(map[*journal]error)
	for _, j := range left {
		for _, l := range j.lines {
			switch {
			case errors.Is(l.err, errNewer):
				s.log.Warn("the record of a run is left alone", "file", j.name, "error", l.err)
				keep.Write(l.raw)
				keep.WriteByte('\n')
			case l.err != nil:
				damaged[j] = l.err
			case e.kept.has(l.rec.ExecutionID):
			default:
				// In two journals is what a server was killed over while it did this here.
				if was := found[l.rec.ExecutionID]; was == nil || !was.over() {
					found[l.rec.ExecutionID] = l.rec
				}
			}
		}
	}
	var records []*record
	for _, r := range found {
		records = append(records, e.inherited(r))
	}
	// In the order in which they are to be forgotten.
	slices.SortFunc(records, func(a, b *record) int {
		x, y := a.run(), b.run()
		return x.lastSeen().Compare(y.lastSeen())
	})
	if keep.Len() > 0 {
		if err := s.appendLines(ctx, false, true, keep.Bytes()); err != nil {
			return err
		}
	}
	if err := s.append(ctx, true, true, records...); err != nil {
		return err
	}
	for _, j := range left {
		err := damaged[j]
		if err == nil {
			s.remove(j.name)
			continue
		}
		to := "damaged_" + j.name
		if rerr := s.disk.Move(filepath.Join(s.dir, j.name), filepath.Join(s.dir, to)); rerr != nil {
			err = errors.Join(err, rerr)
		}
		s.log.Warn("a journal of runs has lines that cannot be read; it is set aside, and what can be read is taken up", "file", to, "error", err)
	}
	for _, r := range records {
		if !e.inherit(r) {
			return errStoreClosed
		}
	}
	return nil
}

// inherited is a run of a server that is gone as this one's.
func (e *Engine) inherited(r *record) *record {
	next := r.next()
	next.Server = e.store.server
	switch {
	case r.over():
		return next
	case r.State == waiting:
		next.State, next.EndedAt = Failed, new(e.time())
		next.Error = new("the server ended while the run waited for a slot; nothing was started")
	case r.State == starting:
		next.State, next.EndedAt = Unknown, new(e.time())
		next.Error = new("the server ended before the source had answered; whether the workflow was carried out is not known")
	}
	e.log.Info("run taken up from a server that is gone", "execution_id", r.ExecutionID, "workflow", r.WorkflowName,
		"source", r.Source, "server", r.Server, "was", r.State, "is", next.State)
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
