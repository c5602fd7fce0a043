package execution

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// damagedPrefix is what the name of a journal that was set aside begins with.
const damagedPrefix = "damaged_"

// others are the runs that are not this server's.
type others struct {
	runs []*record // as they are to be told
	// The journals, by name, with lines that cannot be trusted, those that were set
	// aside too: a run may be among them that is in no other.
	damaged []string
}

// takeUp makes the runs of servers that are gone this one's, and returns those of
// servers that live, as they are written down; on a full disk those of servers
// that are gone too.
func (e *Engine) takeUp(ctx context.Context) (o others, err error) {
	s := e.store
	if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
		return o, nil
	}
	err = s.claim.Do(ctx, func() error {
		names, err := s.names()
		if err != nil {
			return err
		}
		alive := s.member.Census()
		var left []*journal
		var unsure []*record // whose runs may be known from other lines
		sure := true         // that all runs are seen
		for _, name := range names {
			if strings.HasPrefix(name, damagedPrefix) {
				o.damaged = append(o.damaged, name)
			}
			server, ok := serverOf(name, "runs_", ".jsonl")
			if !ok || server == s.server {
				continue
			}
			lives := alive(server) // first: what it writes before its end is then read
			data, err := s.read(name, journalBounds)
			if err != nil {
				s.log.Warn("a journal of runs cannot be read; it is left alone", "error", err)
				o.damaged = append(o.damaged, name)
				sure = false
				continue
			}
			j := &journal{name: name, lines: latest(data)}
			if !lives {
				left = append(left, j)
				continue
			}
			if j.damaged() != nil {
				o.damaged = append(o.damaged, name)
			}
			for _, l := range j.lines {
				sure = sure && l.err == nil
				switch {
				case l.rec == nil:
				case l.err != nil:
					unsure = append(unsure, e.elsewhere(l))
				default:
					o.runs = append(o.runs, e.elsewhere(l))
				}
			}
		}
		o.runs = append(o.runs, unsure...)
		if len(left) > 0 {
			g := e.gather(left)
			err := e.adopt(ctx, g)
			for _, j := range left {
				if j.damaged() != nil {
					o.damaged = append(o.damaged, damagedPrefix+j.name) // or will be soon
				}
			}
			if err != nil {
				if ctx.Err() != nil || errors.Is(err, errStoreClosed) {
					return err
				}
				// Reading works without: they are told as far as that goes, and taken up
				// by the next one who asks.
				s.log.Warn("the runs of servers that are gone cannot be taken up now", "error", err)
				for _, l := range g.runs {
					o.runs = append(o.runs, e.stranded(l, err))
				}
				return nil
			}
		}
		s.sweep(names, alive)
		if sure {
			e.sweepResults(names, o.runs)
		}
		return nil
	})
	if err != nil {
		return others{}, fmt.Errorf("taking up runs: %w", err)
	}
	return o, nil
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
