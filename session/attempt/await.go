package attempt

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"deepwork/actor/wait"
	"deepwork/session"
	"deepwork/session/board"
)

// A Waited is the reply of a call that lasts until the agent or the run that it has started ends.
type Waited interface {
	GoesOn() string   // the id of the attempt while it has not ended; "" if it has, or the call does not wait for it
	Standing() string // the state of the attempt
}

// Going is the part of a Waited that callers do not see.
type Going struct {
	attempt string
	state   board.State
}

// GoesOn implements Waited.
func (g *Going) GoesOn() string { return g.attempt }

// Standing implements Waited.
func (g *Going) Standing() string { return string(g.state) }

// awaitLook is how often a call checks what it waits for.
const awaitLook = 500 * time.Millisecond

// Await returns an attempt once it has ended, or when the call must be answered (quality_gate.reply_within).
func (e *Engine) Await(ctx context.Context, who session.Caller, attemptID string) (*FullAttemptReply, error) {
	b, id, err := e.ViewOfAttempt(ctx, who, board.Target{AttemptID: &attemptID})
	if err != nil {
		return nil, err
	}

	cfg, err := e.Config(ctx)
	if err != nil {
		return nil, err
	}
	for until := time.Now().Add(session.ReplyWithin(ctx, cfg.QualityGate.ReplyWithin)); ; {
		now, err := b.AttemptDetails(ctx, id)
		if err != nil {
			return nil, board.AttemptFault("reading the attempt", err, id)
		}

		left := time.Until(until)
		if !now.Attempt.State.Open() || left <= 0 || wait.For(ctx, min(left, awaitLook)) != nil {
			return e.GetAttempt(ctx, who, AttemptArgs{board.Target{AttemptID: &id}})
		}
	}
}

// WaitedReply returns the reply of a tool's call that waits for an attempt. first is the tool's reply when it
// had started the attempt.
func WaitedReply(tool string, first json.RawMessage, now *FullAttemptReply) (Waited, error) {
	going := Going{state: now.State}
	if now.Open {
		going.attempt = now.AttemptID
	}
	switch tool {
	case "run_workflow":
		r := &RunMade{}
		err := json.Unmarshal(first, r)
		r.State, r.Going = now.State, going
		return r, err
	case "follow_up":
		r := &FollowUpReply{}
		err := json.Unmarshal(first, r)
		if !now.Open {
			r.QueuedPrompt = nil // it was sent or dropped
			r.Notice = new(fmt.Sprintf("The agent has ended (%s): its attempt says how.", now.State))
		}
		r.Going = going
		return r, err
	case "start_task_attempt":
		r := now.AttemptReply
		r.Going = going
		return &r, nil
	}

	return nil, fmt.Errorf("%s waits for no agent", tool)
}
