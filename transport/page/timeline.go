package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"deepwork/actor/xslices"
	"deepwork/session/board"
	"deepwork/session/judging"
	"deepwork/session/run"
)

// A timeline shows when the agents of a run worked, with a lane for each step.
type timeline struct {
	Lanes []lane
	Ticks []string // how much time had passed, at equal distances from the begin to the end
}

// A lane is a step, with a bar for each of its agents and each of its waits. The steps of items have one bar together.
type lane struct {
	*run.Step
	Depth int // of the workflow that it is nested in, at most maxDepth
	Bars  []bar
}

// Summary says what is in the lane, in words.
func (l lane) Summary() string {
	switch {
	case l.List != nil:
		return l.List.Summary()
	case len(l.Bars) == 0:
		return word(l.State)
	}
	return strings.Join(xslices.Map(l.Bars, func(b bar) string { return b.Title }), "; ")
}

// A bar is a part of a lane, in percent of the timeline.
type bar struct {
	X, Width    float64
	Kind, Title string
}

const (
	// shortest is the width of the shortest bar, which can still be seen, in percent.
	shortest = .4
	// maxDepth is how far nested workflows are indented.
	maxDepth = 3
	// ticks is how many parts the axis has.
	ticks = 4
)

// A span is a time that something took. The end is zero if it has not ended.
type span struct {
	from, to    time.Time
	kind, title string
}

// Timeline returns when agents worked on the steps of the run, nil if none has begun.
func (v *runView) Timeline() *timeline { return v.timelineAt(time.Now()) }

func (v *runView) timelineAt(now time.Time) *timeline {
	t := &timeline{}
	var spans [][]span
	var from, to time.Time
	v.Tree.Rows(func(s *run.Step, depth int) {
		of := v.spansOf(s, now)
		for _, x := range of {
			if from.IsZero() || x.from.Before(from) {
				from = x.from
			}
			if x.to.After(to) {
				to = x.to
			}
		}
		t.Lanes, spans = append(t.Lanes, lane{Step: s, Depth: min(depth, maxDepth)}), append(spans, of)
	})
	if from.IsZero() {
		return nil
	}
	length := scale(to.Sub(from))
	at := func(when time.Time) float64 { return 100 * when.Sub(from).Seconds() / length.Seconds() }
	for i, of := range spans {
		for _, x := range of {
			begin := min(at(x.from), 100-shortest)
			t.Lanes[i].Bars = append(t.Lanes[i].Bars, bar{
				X:     begin,
				Width: max(at(x.to)-begin, shortest),
				Kind:  x.kind,
				Title: fmt.Sprintf("%s, %s", x.title, duration(x.from, &x.to)),
			})
		}
	}
	for i := range time.Duration(ticks + 1) {
		t.Ticks = append(t.Ticks, zeros.Replace((length * i / ticks).String()))
	}
	return t
}

// zeros removes the units of a duration that are 0.
var zeros = strings.NewReplacer("h0m0s", "h", "m0s", "m")

// scale returns a length that is not shorter, and whose parts have short labels.
func scale(length time.Duration) time.Duration {
	for _, n := range []time.Duration{1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600} {
		if part := n * time.Second; length <= ticks*part {
			return ticks * part
		}
	}
	return length.Truncate(ticks*time.Hour) + ticks*time.Hour
}

// spansOf returns when agents worked on a step, the oldest first, and when it waited.
func (v *runView) spansOf(s *run.Step, now time.Time) (all []span) {
	read := func(text *string) time.Time {
		at, _ := time.Parse(time.RFC3339Nano, board.OrEmpty(text)) // this program has written it
		return at
	}

	if s.List != nil {
		for _, entry := range s.Nested[0].Entries {
			for _, one := range entry {
				all = append(all, v.spansOf(one, now)...)
			}
		}
		if len(all) > 0 {
			from := slices.MinFunc(all, func(a, b span) int { return a.from.Compare(b.from) })
			to := slices.MaxFunc(all, func(a, b span) int { return a.to.Compare(b.to) })
			all = []span{{from.from, to.to, string(s.State), s.List.Summary()}}
		}
		return all
	}
	next := now // when the try after it began
	if !v.Live {
		next = time.Time{}
	}
	for i, x := range s.Agents { // the newest first
		from, to := read(x.StartedAt), read(x.EndedAt)
		if from.IsZero() {
			continue
		}
		if until := read(x.LimitedUntil); until.After(to) && !to.IsZero() && next.After(to) {
			if until.After(next) {
				until = next
			}
			all = append([]span{{to, until, "limit", "waited for a limit"}}, all...)
		}
		if to.IsZero() {
			to = now
		}
		kind, title := string(x.State), word(x.State)
		if x.State == board.Completed && (i > 0 || s.State != board.Completed && s.State != board.WaitingForYou) {
			kind, title = "unfinished", "ended, step not finished"
		}
		all, next = append([]span{{from, to, kind, title}}, all...), from
	}
	if s.Progress == nil {
		return all
	}
	for _, u := range s.Progress.Submissions {
		for _, turn := range u.Turns {
			if turn.With == judging.ByPerson {
				all = append(all, span{turn.At, *cmp.Or(turn.EndedAt, &now), "person", "waited for a person"})
			}
		}
	}
	return all
}
