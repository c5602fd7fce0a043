package attempt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/runner"
	"deepwork/session/store"
)

// stopPatience bounds a stop_attempt, beside the grace that the agent has.
const stopPatience = 30 * time.Second

// StopAttempt ends an attempt's agent with all that it started, or takes the
// attempt from those that wait. It answers when the end
// is on the board, or says that it takes longer. What is queued is dropped; the
// worktree stays, and a follow-up goes on. One that has ended is left as it is.
func (e *Engine) StopAttempt(ctx context.Context, identity string, a AttemptArgs) (*AttemptReply, error) {
	id, err := a.must()
	if err != nil {
		return nil, err
	}
	b, _, err := e.ready(ctx)
	if err != nil {
		return nil, err
	}
	before, err := b.AttemptNow(ctx, id)
	if err != nil {
		return nil, found("reading the attempt", err, "attempt", "attempt_id", id, remedyAttempt)
	}
	bounded, cancel := context.WithTimeout(ctx, e.o.Grace+stopPatience)
	defer cancel()
	was, err := e.stopOpen(bounded, b, id)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, session.NotNow("still_stopping", "Attempt %s is being stopped, and has not ended yet. Call get_attempt to see when it has.", id).With("attempt_id", id).Because(err)
	}
	if err != nil {
		return nil, found("stopping the attempt", err, "attempt", "attempt_id", id, remedyAttempt)
	}
	r, err := e.attemptReply(ctx, b, id)
	if err != nil {
		return nil, err
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

// stopOpen stops what is open of an attempt, wherever it runs, and returns the
// state in which it found it. What was queued and began in the very moment is
// stopped too.
func (e *Engine) stopOpen(ctx context.Context, b store.Board, attempt string) (was task.AttemptState, err error) {
	for {
		x, err := b.LatestExecution(ctx, attempt)
		if err != nil {
			return was, err
		}
		if was == "" {
			was = x.State
		}
		if !x.State.Open() {
			return was, nil
		}
		switch {
		case x.State == task.Waiting:
			if _, err := b.StopWaiting(ctx, x.ID); err != nil {
				return was, err
			}
			continue // where a server has just claimed it, it is to be stopped there
		case x.Owner == e.member.ID():
			if done := e.stopHere(x.ID); done != nil {
				select {
				case <-done:
					continue
				case <-ctx.Done():
				}
			}
		default:
			if err := e.stopElsewhere(ctx, *x); err != nil {
				return was, err
			}
		}
		e.kick() // an owner that is dead is noticed by that
		if err := wait.For(ctx, 50*time.Millisecond); err != nil {
			return was, fmt.Errorf("waiting for its end: %w", err)
		}
	}
}

// stopHere stops an execution that this server runs. The channel is closed when its
// end is on the board; nil means that it does not run here.
func (e *Engine) stopHere(id string) (done <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.runs[id]
	if r == nil {
		return nil
	}
	r.stop()
	return r.done
}

// stopElsewhere stops an execution that another server sees to: its process,
// which any server can reach, or, while there is none, by a mark that its server
// looks for.
func (e *Engine) stopElsewhere(ctx context.Context, x task.Execution) error {
	if x.State == task.Running {
		p, err := e.executor.Find(ctx, x.AttemptID, x.ID)
		if err == nil {
			_, err = p.Stop(ctx, e.o.Grace)
		}
		if !errors.Is(err, runner.ErrNoRun) {
			return err
		}
	}
	mark := e.stopMark(x)
	if err := os.MkdirAll(filepath.Dir(mark), 0o700); err != nil {
		return fmt.Errorf("asking its server to stop it: %w", err)
	}
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return fmt.Errorf("asking its server to stop it: %w", err)
	}
	return nil
}

// drop removes a mark; that there is none is no error, and one that stays
// is harmless.
func drop(path string) { _ = os.Remove(path) }
