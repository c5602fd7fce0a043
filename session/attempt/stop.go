package attempt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
)

const (
	// stopPatience bounds a stop_attempt, in addition to the grace of the agent.
	stopPatience = 30 * time.Second
	// faultPatience bounds it while the agent cannot be stopped, which may pass.
	faultPatience = 3 * time.Second
)

// StopAttempt ends an attempt's agent and all processes that it started, or cancels an attempt that
// waits. It returns when the end is on the board, or reports that it takes longer. A queued
// follow-up is dropped; the worktree stays, and a follow-up can continue. An attempt that has ended
// does not change.
func (e *Engine) StopAttempt(ctx context.Context, who session.Caller, a AttemptArgs) (*AttemptReply, error) {
	b, id, err := e.openAttempt(ctx, who, a.Target)
	if err != nil {
		return nil, err
	}
	before, err := b.AttemptDetails(ctx, id)
	if err != nil {
		return nil, found("reading the attempt", err, "attempt", "attempt_id", id, remedyAttempt)
	}
	bounded, cancel := context.WithTimeout(ctx, e.o.Grace+stopPatience)
	defer cancel()
	was, err := e.stopOpen(bounded, b, id)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, session.NotNow("still_stopping", "Attempt %s is being stopped and has not ended yet. Call get_attempt to see its state.", id).With("attempt_id", id).Because(err).Wait(retryAfter)
	}
	if err != nil {
		return nil, midway(found("stopping the attempt", err, "attempt", "attempt_id", id, remedyAttempt))
	}
	r, err := e.attemptReply(ctx, b, id)
	if err != nil {
		return nil, midway(err)
	}
	notice := ""
	switch {
	case !was.Open():
		notice = fmt.Sprintf("Nothing ran: the attempt was %s already.", was)
	case before.Session != nil && before.Session.Queued != nil && r.QueuedFollowUp == nil:
		notice = fmt.Sprintf("The follow-up that was queued was dropped: %q. Call follow_up to have it done nevertheless.", clip(before.Session.Queued.Prompt))
	}
	if r.Notice != nil && notice != "" {
		notice += " " + *r.Notice
	}
	if notice != "" {
		r.Notice = &notice
	}
	return r, nil
}

// stopOpen stops the open executions of an attempt on any server, including a queued one that
// starts in the meantime, and returns the state in which it found the first.
func (e *Engine) stopOpen(ctx context.Context, b view, attempt string) (was task.AttemptState, err error) {
	began := time.Now()
	for asked := ""; ; { // the owner and execution of the last request that was granted
		x, err := b.LatestExecution(ctx, attempt)
		if err != nil {
			return was, err
		}
		if was == "" {
			was = x.State
		}
		switch {
		case !x.State.Open():
			return was, nil
		case x.State == task.Waiting:
			if _, err := b.StopWaiting(ctx, x.ID); err != nil {
				return was, err
			}
			continue // if a server has just claimed it, stop it there
		case x.Owner == e.member.ID():
			if why := e.stopHere(x.ID).hindrance(); why != "" && time.Since(began) > faultPatience {
				return was, session.NotNow("not_stoppable", "Attempt %s cannot be stopped yet, because it is not known whether its agent runs: %s. Have that corrected: it is then stopped without another call, as get_attempt shows.", attempt, why).With("attempt_id", attempt)
			}
		case e.o.Passive && !x.Elsewhere(e.here) && !e.member.Alive(x.Owner): // nobody else may take it over
			taken, err := e.adopt(ctx, e.db.Board(), x)
			if err != nil {
				return was, err
			}
			if taken {
				e.lead(*x)
				e.stopHere(x.ID)
			}
		case x.Owner+x.ID != asked:
			stopping, err := e.askOwner(ctx, b.who, x)
			if err != nil {
				return was, err
			}
			if stopping {
				asked = x.Owner + x.ID
			} else if x.Elsewhere(e.here) {
				if err := e.stopUnreachable(ctx, b, attempt); err != nil {
					return was, err
				}
			}
		}
		e.kick() // makes serve notice a dead owner
		if err := wait.For(ctx, 50*time.Millisecond); err != nil {
			return was, fmt.Errorf("waiting for its end: %w", err)
		}
	}
}

// stopUnreachable returns an error if the machine of an attempt is gone.
func (e *Engine) stopUnreachable(ctx context.Context, b view, attempt string) error {
	a, err := b.Attempt(ctx, attempt)
	if err != nil {
		return err
	}
	return e.unreachable(ctx, a)
}

// actionStop is the only action of a request to the owner of an attempt. Its argument is the id of
// the execution, its answer whether that server leads it.
const actionStop = "stop"

// askOwner asks the server that leads an execution to stop it. It reports false if there is no
// answer or the server does not lead it yet.
func (e *Engine) askOwner(ctx context.Context, who session.Caller, x *task.Execution) (stopping bool, err error) {
	answer, err := e.db.Requests().Ask(ctx, store.Request{
		Kind: store.OfAttempt, Target: x.AttemptID, Action: actionStop, Arguments: fmt.Appendf(nil, "%q", x.ID), Caller: who,
	})
	if errors.Is(err, store.ErrNotAnswered) {
		return false, nil
	}
	return string(answer) == "true", err
}

// serveRequests carries out requests of other servers to the owner of an attempt. A stop is
// answered when it has begun: the board shows when it is done.
func (e *Engine) serveRequests() {
	owns := func(attempt string) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, r := range e.runs {
			if r.exec.AttemptID == attempt {
				return true
			}
		}
		return false
	}
	e.db.Requests().Serve(e.ctx, store.OfAttempt, owns, func(ctx context.Context, q store.Request) (any, error) {
		var id string
		if err := json.Unmarshal(q.Arguments, &id); err != nil || q.Action != actionStop {
			return nil, fmt.Errorf("an attempt's owner cannot %s %s", q.Action, q.Arguments)
		}
		x, err := e.db.Board().For(q.Caller).LatestExecution(ctx, q.Target)
		if err != nil {
			return nil, found("stopping the attempt", err, "attempt", "attempt_id", q.Target, remedyAttempt)
		}
		return x.ID == id && e.stopHere(id) != nil, nil
	})
}

// stopHere stops an execution and returns its run; nil means that this server does not lead it.
func (e *Engine) stopHere(execution string) *run {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.runs[execution]
	if r != nil {
		r.stop()
	}
	return r
}

// hindrance returns why a run cannot be stopped for now, or "".
func (r *run) hindrance() string {
	if r == nil || r.fault.Load() == nil {
		return ""
	}
	return *r.fault.Load()
}
