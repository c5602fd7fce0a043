package attempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/codes"
)

const (
	// stopPatience limits a stop_attempt, in addition to the agent's grace period.
	stopPatience = 30 * time.Second
	// faultPatience limits it while the agent cannot be stopped, which may pass.
	faultPatience = 3 * time.Second
)

// StopAttempt ends an attempt's agent and all processes that it started, or cancels an attempt that waits. It
// returns when the end is on the board, or reports that it takes longer. It drops a queued follow-up; the
// worktree stays, and a follow-up can continue. It does not change an attempt that has ended.
func (e *Engine) StopAttempt(ctx context.Context, who session.Caller, a AttemptArgs) (*AttemptReply, error) {
	b, id, err := e.ViewOfAttempt(ctx, who, a.Target)
	if err != nil {
		return nil, err
	}
	before, err := b.AttemptDetails(ctx, id)
	if err != nil {
		return nil, board.AttemptFault("reading the attempt", err, id)
	}

	bounded, cancel := context.WithTimeout(ctx, e.o.Grace+stopPatience)
	defer cancel()
	was, err := e.stopOpen(bounded, b, id)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, session.NotNow(codes.StillStopping,
			"Attempt %s is being stopped and has not ended yet.", id).
			Next("see its state", "get_attempt", "attempt_id", id).With("attempt_id", id).
			Because(err).Wait(board.RetryAfter)
	}
	if err != nil {
		return nil, board.Midway(board.AttemptFault("stopping the attempt", err, id))
	}

	r, err := e.attemptReply(ctx, b, id)
	if err != nil {
		return nil, board.Midway(err)
	}

	notice := ""
	switch {
	case !was.Open():
		notice = fmt.Sprintf("Nothing ran: the attempt was %s already.", was)
	case before.Session != nil && before.Session.Queued != nil && r.QueuedFollowUp == nil:
		notice = fmt.Sprintf("The follow-up that was queued was dropped: %q. Send it again to have it done "+
			"nevertheless.", board.Clip(before.Session.Queued.Prompt))
	}
	if r.Notice != nil && notice != "" {
		notice += " " + *r.Notice
	}
	if notice != "" {
		r.Notice = &notice
	}
	return r, nil
}

// stopOpen stops the open executions of an attempt on any server, including a queued one that starts
// meanwhile, and returns the state in which it found the first.
func (e *Engine) stopOpen(ctx context.Context, b board.View, attempt string) (was task.AttemptState, err error) {
	began := time.Now()
	var lookedElsewhere time.Time
	for asked := ""; ; { // the execution that was asked to stop
		x, err := b.LatestExecution(ctx, attempt)
		if err != nil {
			return was, err
		}
		was = cmp.Or(was, x.State)
		if !x.State.Open() {
			return was, nil
		}
		elsewhere := x.State != task.Waiting && x.Elsewhere(e.Here)
		if elsewhere && time.Since(lookedElsewhere) > time.Second {
			lookedElsewhere = time.Now()
			if err := e.stopUnreachable(ctx, b, attempt, x.StopAsked != nil); err != nil {
				return was, err
			}
		}
		if asked != x.ID {
			if _, err := b.Stop(ctx, x.ID); err != nil {
				return was, err
			}
			asked = x.ID
			continue
		}

		switch {
		case elsewhere: // its own machine does it
		case x.Owner == e.Members.ID():
			if r := e.stopHere(x.ID); r != nil && r.stateUnknown.Load() != nil && time.Since(began) > faultPatience {
				return was, session.NotNow(codes.NotStoppable,
					"Attempt %s cannot be stopped yet, because it is not known whether its agent runs: %s. Once "+
						"that is corrected, it is stopped without another call.", attempt,
					*r.stateUnknown.Load()).With("attempt_id", attempt)
			}
		case e.o.Passive && !e.Members.Alive(x.Owner): // nobody else can take it over
			taken, err := e.adopt(ctx, e.Database.Board(), x)
			if err != nil {
				return was, err
			}
			if taken {
				e.lead(*x)
			}
		}

		e.wakeUp() // so that serve notices a dead owner
		if err := wait.For(ctx, 50*time.Millisecond); err != nil {
			return was, fmt.Errorf("waiting for its end: %w", err)
		}
	}
}

// stopUnreachable returns an error if the machine of an attempt is gone. asked means that the attempt will be
// stopped when that machine is back.
func (e *Engine) stopUnreachable(ctx context.Context, b board.View, attempt string, asked bool) error {
	a, err := b.Attempt(ctx, attempt)
	if err != nil {
		return err
	}
	err = e.unreachable(ctx, a)
	if gone, ok := errors.AsType[*session.Error](err); ok && asked {
		gone.Add("The attempt is stopped as soon as one runs there, without another call.")
	}
	return err
}

// stopHere stops an execution and returns it; nil means that this server does not lead it.
func (e *Engine) stopHere(execution string) *execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.leading[execution]
	if r != nil {
		r.stop()
	}
	return r
}
