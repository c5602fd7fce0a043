package main

import (
	"cmp"
	"time"

	"deepwork/session"
	"deepwork/session/attempt"
)

// A runRow is what people see of a step of a run: its last agent, and what all have cost.
type runRow struct {
	runStep
	executor string
	state    string
	tries    int
	took     time.Duration
	cost     *float64
	last     string // line of output, or what it waits for
	open     bool   // it is not finished, and the run goes on
}

// runRows returns the steps that a run has come to, and how many are to come. steps are where they are by its
// sessions; those of sessions that could not be read follow as their agents were started. last has lines of
// output by execution.
func runRows(r *attempt.RunReply, steps []runStep, last map[string]string, now time.Time) (rows []*runRow, later int) {
	of := map[place]*runRow{}
	for _, x := range steps {
		of[x.place] = &runRow{runStep: x}
	}
	agents := map[place]*attempt.RunStep{} // the last for each
	var unread []*runRow
	for i := range r.Steps {
		x := &r.Steps[i]
		p := place{x.SessionID, x.StepID}
		if of[p] == nil {
			of[p] = &runRow{runStep: runStep{place: p, current: true}}
			unread = append(unread, of[p])
		}
		agents[p] = x
		of[p].agent(x, last, now)
	}
	for _, x := range steps {
		row := of[x.place]
		if !x.done && !x.current && agents[x.place] == nil {
			later++
			continue
		}
		row.settle(r, agents[x.place], now)
		rows = append(rows, row)
	}
	for _, row := range unread {
		row.open = agents[row.place].EndedAt == nil
		for _, w := range r.Waits {
			if row.place == (place{w.SessionID, w.StepID}) {
				row.asked = w.Command != nil
				row.settle(r, agents[row.place], now)
			}
		}
	}
	return append(rows, unread...), later
}

// agent adds an agent that was started for the step, of which it may be the last.
func (r *runRow) agent(x *attempt.RunStep, last map[string]string, now time.Time) {
	r.tries++
	r.executor, r.state = x.Executor, x.State
	r.last = cmp.Or(last[x.ExecutionID], lastLine(optional(x.FinalMessage)))
	if x.Error != nil {
		r.last = lastLine(*x.Error)
	}
	if x.StartedAt != nil {
		if from, err := time.Parse(time.RFC3339Nano, *x.StartedAt); err == nil && x.EndedAt == nil {
			r.took += now.Sub(from)
		} else if s := seconds(*x); s != nil {
			r.took += time.Duration(*s * float64(time.Second))
		}
	}
	if x.Cost != nil && x.Cost.USD != nil {
		r.cost = new(*x.Cost.USD + *cmp.Or(r.cost, new(0.0)))
	}
}

// settle says in a word where the step is. x is its last agent, or nil.
func (r *runRow) settle(run *attempt.RunReply, x *attempt.RunStep, now time.Time) {
	going := isOpen(run.State)
	r.open = going && r.current
	wait := func(what string) { r.state, r.last = "waiting", what }
	switch {
	case r.done:
		r.state = "finished"
	case r.asked:
		wait("for you: " + session.AwaitingStep{SessionID: r.session, Step: r.step, Review: true}.Command())
	case !going && x != nil && x.LimitedUntil != nil:
		r.state, r.last = "limited", "its provider's limit was reached"
		if at, err := time.Parse(time.RFC3339Nano, *x.LimitedUntil); err == nil && at.After(now) {
			r.last = "its provider's limit is over at " + clockTime(at, now)
		}
	case !going && x != nil && x.State != "completed":
	case !going:
		r.state = "unfinished"
	case x != nil && x.EndedAt == nil && x.StartedAt == nil:
		wait("for a free slot")
	case x != nil && x.EndedAt == nil:
	case !r.limit(run).IsZero():
		wait("for its provider's limit, until " + clockTime(r.limit(run), now))
	case r.leadsElsewhere:
		wait("for the workflow that its agent has started")
	case x == nil || run.Kept.Parallel > 0:
		wait("for its turn")
	default:
		wait("to be tried again")
	}
}

// limit returns when the step is tried again that waits for its provider's limit, or the zero time.
func (r *runRow) limit(run *attempt.RunReply) (until time.Time) {
	for _, w := range run.Waits {
		if w.Until != nil && r.place == (place{w.SessionID, w.StepID}) {
			until, _ = time.Parse(time.RFC3339Nano, *w.Until) // this program has written it
		}
	}
	return until
}

// clockTime is a time of day, with the date if it is not near.
func clockTime(at, now time.Time) string {
	if d := at.Sub(now).Abs(); d > 12*time.Hour {
		return at.Local().Format("2 Jan 15:04")
	}
	return at.Local().Format("15:04")
}
