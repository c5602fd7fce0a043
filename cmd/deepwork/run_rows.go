package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"deepwork/session/attempt"
)

// A runRow is what people see of a step of a run: the last process for it, and what all have cost.
type runRow struct {
	session, step, executor, state string
	tries                          int
	took                           time.Duration
	cost                           *float64
	last                           string // line of output
}

// runRows returns the steps of a run for which agents were started, in that order. last has lines of output
// by execution.
func runRows(r *attempt.RunReply, last map[string]string, now time.Time) []*runRow {
	var all []*runRow
	of := map[[2]string]*runRow{}
	for _, x := range r.Steps {
		row := of[[2]string{x.SessionID, x.StepID}]
		if row == nil {
			row = &runRow{session: x.SessionID, step: x.StepID}
			all, of[[2]string{x.SessionID, x.StepID}] = append(all, row), row
		}
		row.tries++
		row.executor, row.state, row.last = x.Executor, x.State, cmp.Or(last[x.ExecutionID], lastLine(optional(x.FinalMessage)))
		if x.StartedAt != nil {
			if from, err := time.Parse(time.RFC3339Nano, *x.StartedAt); err == nil && x.EndedAt == nil {
				row.took += now.Sub(from)
			} else if s := seconds(x); s != nil {
				row.took += time.Duration(*s * float64(time.Second))
			}
		}
		if x.Cost != nil && x.Cost.USD != nil {
			row.cost = new(*x.Cost.USD + *cmp.Or(row.cost, new(0.0)))
		}
		if x.Error != nil {
			row.last = lastLine(*x.Error)
		}
		if x.LimitedUntil != nil {
			row.state, row.last = "limited", limitText(*x.LimitedUntil, now)
		}
	}
	for _, w := range r.Waits {
		row := of[[2]string{w.SessionID, w.StepID}]
		if row == nil {
			row = &runRow{session: w.SessionID, step: w.StepID}
			all = append(all, row)
		}
		if w.Until != nil {
			row.state, row.last = "limited", limitText(*w.Until, now)
		} else {
			row.state, row.last = "waiting", "for a person"
		}
	}
	return all
}

// limitText says how long a limit of a provider is waited for.
func limitText(until string, now time.Time) string {
	at, err := time.Parse(time.RFC3339Nano, until)
	if err != nil || !at.After(now) {
		return "its provider's limit is reached; it is tried again"
	}
	return "its provider's limit is over at " + at.Local().Format("2 Jan 15:04")
}

// text is a row of a table. session is that of the run: the others are nested in it.
func (r *runRow) text(session string) string {
	step := r.step
	if r.session != session {
		step = "  " + step
	}
	if r.tries > 1 {
		step += fmt.Sprintf(" (%d)", r.tries)
	}
	cost := ""
	if r.cost != nil {
		cost = fmt.Sprintf("%.2f USD", *r.cost)
	}
	took := ""
	if r.took > 0 {
		took = r.took.Round(time.Second).String()
	}
	return strings.TrimRight(fmt.Sprintf("%-22s %-14s %-11s %8s %10s  %s", inline(step), inline(r.executor), r.state, took, cost, inline(r.last)), " ")
}

// lastLine returns the last line of a text that is not blank.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

// A runOutput follows the last lines of the agents that run. It belongs to one goroutine.
type runOutput struct {
	board *attempt.Engine
	after map[string]int64  // by execution
	last  map[string]string // likewise
}

func newRunOutput(board *attempt.Engine) *runOutput {
	return &runOutput{board, map[string]int64{}, map[string]string{}}
}

// read reads what the agents that run have printed since the last call, and returns the last lines.
func (o *runOutput) read(ctx context.Context, r *attempt.RunReply) map[string]string {
	for _, x := range r.Steps {
		if x.StartedAt == nil || x.EndedAt != nil {
			delete(o.last, x.ExecutionID)
			continue
		}
		after, known := o.after[x.ExecutionID]
		if !known {
			after = -1
		}
		for {
			t, err := o.board.TailAttempt(ctx, atTerminal, attempt.TailArgs{Target: attempt.Target{AttemptID: &r.RunID}, ExecutionID: &x.ExecutionID, AfterIndex: &after, Limit: new(attempt.MaxTail)})
			if err != nil || len(t.Messages) == 0 {
				break // it is shown without
			}
			for _, m := range t.Messages {
				if line := lastLine(plain(m.Text)); m.Tool != "" {
					o.last[x.ExecutionID] = strings.TrimSpace(m.Tool + " " + line)
				} else if line != "" {
					o.last[x.ExecutionID] = line
				}
			}
			after, o.after[x.ExecutionID] = t.NextIndex, t.NextIndex
		}
	}
	return o.last
}
