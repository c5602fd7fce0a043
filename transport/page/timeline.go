package page

import (
	"fmt"
	"strings"
	"time"

	"deepwork/actor/xslices"
	"deepwork/session/board"
	"deepwork/session/run"
)

// A timeline shows when the agents of a run worked, with a lane for each step.
type timeline struct {
	Lanes []lane
	Ticks []string // how much time had passed, at equal distances from the begin to the end
}

// A lane is a step, with a bar for each of its agents and each of its waits.
type lane struct {
	*run.Step
	Depth int // of the workflow that it is nested in, at most maxDepth
	Bars  []bar
}

// Summary says what is in the lane, in words.
func (l lane) Summary() string {
	if len(l.Bars) == 0 {
		return word(l.State)
	}
	return strings.Join(xslices.Map(l.Bars, func(b bar) string { return b.Title }), "; ")
}

// A bar is a part of a lane, in thousandths of the timeline.
type bar struct {
	X, Width    int
	Kind, Title string
}

const (
	// timelineLength is the length of a timeline, and shortest that of a bar that can still be seen.
	timelineLength, shortest = 1000, 4
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
	v.Tree.Each(func(s *run.Step, depth int) {
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
	length := max(to.Sub(from), time.Second)
	at := func(when time.Time) int { return int(timelineLength * when.Sub(from).Seconds() / length.Seconds()) }
	for i, of := range spans {
		for _, x := range of {
			begin := min(at(x.from), timelineLength-shortest)
			t.Lanes[i].Bars = append(t.Lanes[i].Bars, bar{
				X:     begin,
				Width: max(at(x.to)-begin, shortest),
				Kind:  x.kind,
				Title: fmt.Sprintf("%s, %s", x.title, duration(x.from, &x.to)),
			})
		}
	}
	for i := range ticks + 1 {
		t.Ticks = append(t.Ticks, duration(from, new(from.Add(length*time.Duration(i)/ticks))))
	}
	t.Ticks[0] = "0"
	return t
}

// spansOf returns when agents worked on a step, the oldest first, and when it waited.
func (v *runView) spansOf(s *run.Step, now time.Time) (all []span) {
	read := func(text *string) time.Time {
		at, _ := time.Parse(time.RFC3339Nano, board.OrEmpty(text)) // this program has written it
		return at
	}

	next := now // when the try after it began
	if !v.Live {
		next = time.Time{}
	}
	for _, x := range s.Agents { // the newest first
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
		all, next = append([]span{{from, to, string(x.State), word(x.State)}}, all...), from
	}
	for _, w := range v.Kept.Waits {
		if w.SessionID == s.SessionID && w.StepID == s.ID && w.Kind == board.WaitsForPerson {
			all = append(all, span{w.Since, now, "person", "waits for a person"})
		}
	}
	return all
}
