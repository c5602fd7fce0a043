package main

import (
	"context"
	"strings"

	"deepwork/session/attempt"
)

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
		args := attempt.TailArgs{Target: attempt.Target{AttemptID: &r.RunID}, ExecutionID: &x.ExecutionID, Limit: new(attempt.MaxTail)}
		if after, known := o.after[x.ExecutionID]; known {
			args.AfterIndex = &after
		} else {
			args.Limit, args.Newest = new(20), true
		}
		for {
			t, err := o.board.TailAttempt(ctx, atTerminal, args)
			if err != nil || len(t.Messages) == 0 {
				break // it is shown without
			}
			for _, m := range t.Messages {
				line := lastLine(plain(m.Text))
				if m.Tool != "" {
					line = strings.TrimSpace(m.Tool + " " + oneLine(m.Text, 500))
				}
				if line != "" && m.Kind != "system" {
					o.last[x.ExecutionID] = line
				}
			}
			o.after[x.ExecutionID] = t.NextIndex
			args.AfterIndex, args.Newest, args.Limit = &t.NextIndex, false, new(attempt.MaxTail)
		}
	}
	return o.last
}
