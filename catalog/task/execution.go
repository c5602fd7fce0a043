package task

import (
	"context"
	"fmt"
	"time"
)

// An Execution is one run of an agent.
type Execution struct {
	ID           string
	AttemptID    string
	SessionID    *string // nil before the process was started
	FollowUp     bool
	Prompt       string // all that the agent is given
	Variant      *string
	State        AttemptState
	Owner        string // the server that sees to it; "": none
	PID          int    // 0: none
	ExitCode     *int
	FinalMessage *string
	CreatedAt    time.Time
	StartedAt    *time.Time
	EndedAt      *time.Time
}

const executionRows = `SELECT id, attempt_id, session_id, follow_up, prompt, variant, state, coalesce(owner, ''),
	coalesce(pid, 0), exit_code, final_message, created_at, started_at, ended_at FROM executions `

func scanExecution(scan scanner) (e Execution, err error) {
	err = scan(&e.ID, &e.AttemptID, &e.SessionID, &e.FollowUp, &e.Prompt, &e.Variant, &e.State, &e.Owner,
		&e.PID, &e.ExitCode, &e.FinalMessage, moment{&e.CreatedAt}, perhaps{&e.StartedAt}, perhaps{&e.EndedAt})
	return e, err
}

func (t tx) executions(where string, args ...any) ([]Execution, error) {
	var all []Execution
	err := t.each(executionRows+where, args, collect(&all, scanExecution))
	return all, err
}

func (t tx) execution(id string) (*Execution, error) {
	all, err := t.executions(`WHERE id = ?`, id)
	return only(all, err, "execution", id)
}

// addExecution adds a waiting execution; its attempt waits then too.
func (t tx) addExecution(e Execution, now string) (id string, err error) {
	if e.ID == "" {
		if e.ID, err = newID(); err != nil {
			return "", err
		}
	}
	if _, err := t.exec(`INSERT INTO executions (id, attempt_id, session_id, follow_up, prompt, variant, state, created_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		e.ID, e.AttemptID, e.SessionID, e.FollowUp, e.Prompt, e.Variant, Waiting, now); err != nil {
		return "", err
	}
	return e.ID, t.setAttempt(e.AttemptID, Waiting, nil, now)
}

func (t tx) setAttempt(id string, s AttemptState, why *string, now string) error {
	_, err := t.exec(`UPDATE attempts SET state = ?, error = ?, updated_at = ? WHERE id = ?`, s, why, now, id)
	return err
}

// Execution returns one, or ErrNotFound.
func (b *Board) Execution(ctx context.Context, id string) (e *Execution, err error) {
	err = b.read(ctx, "reading an execution", func(t tx) error {
		e, err = t.execution(id)
		return err
	})
	return e, err
}

// LatestExecution returns an attempt's newest execution, or ErrNotFound.
func (b *Board) LatestExecution(ctx context.Context, attemptID string) (*Execution, error) {
	var all []Execution
	err := b.read(ctx, "reading an execution", func(t tx) (err error) {
		all, err = t.executions(`WHERE attempt_id = ? ORDER BY seq DESC LIMIT 1`, attemptID)
		return err
	})
	return only(all, err, "attempt", attemptID)
}

// Executions returns all of an attempt, newest first; none if there is no such
// attempt.
func (b *Board) Executions(ctx context.Context, attemptID string) (all []Execution, err error) {
	err = b.read(ctx, "listing executions", func(t tx) error {
		all, err = t.executions(`WHERE attempt_id = ? ORDER BY seq DESC`, attemptID)
		return err
	})
	return all, err
}

// OpenExecutions lists those that are starting or running, with their owners,
// the oldest first.
func (b *Board) OpenExecutions(ctx context.Context) (all []Execution, err error) {
	err = b.read(ctx, "listing open executions", func(t tx) error {
		all, err = t.executions(`WHERE state IN ('starting', 'running') ORDER BY seq`)
		return err
	})
	return all, err
}

// openExecutions counts those that have a slot, and waitingBefore those that wait
// for one before an execution.
const (
	openExecutions = `SELECT count(*) FROM executions WHERE state IN ('starting', 'running')`
	waitingBefore  = `SELECT count(*) FROM executions e JOIN executions o ON o.state = 'waiting' AND o.seq < e.seq
		WHERE e.id = ? AND e.state = 'waiting'`
)

// ClaimNext gives the oldest waiting execution to a server, if fewer than max are
// starting or running on the whole board: it and its attempt are then starting.
// nil: there is none, or no room. No other call on this board, in whatever
// process, gets the same one.
func (b *Board) ClaimNext(ctx context.Context, owner string, max int) (claimed *Execution, err error) {
	const doing = "claiming an execution"
	if owner == "" {
		return nil, wrap(doing, fmt.Errorf("%w: the owner is empty", ErrInvalid))
	}
	// Servers ask again and again: most find nothing, and need no lock for it.
	id := ""
	err = b.read(ctx, doing, func(t tx) error {
		id, err = t.claimable(max)
		return err
	})
	if err != nil || id == "" {
		return nil, err
	}
	now := b.stamp()
	err = b.write(ctx, doing, func(t tx) error {
		claimed = nil
		id, err := t.claimable(max)
		if err != nil || id == "" {
			return err
		}
		if _, err := t.exec(`UPDATE executions SET state = ?, owner = ? WHERE id = ?`, Starting, owner, id); err != nil {
			return err
		}
		e, err := t.execution(id)
		if err != nil {
			return err
		}
		claimed = e
		return t.setAttempt(e.AttemptID, Starting, nil, now)
	})
	if err != nil {
		return nil, err
	}
	return claimed, nil
}

// claimable is the id of the oldest waiting execution, "" if there is none, or
// no room for it.
func (t tx) claimable(max int) (id string, err error) {
	var busy int
	if _, err := t.one(openExecutions, nil, &busy); err != nil || busy >= max {
		return "", err
	}
	_, err = t.one(`SELECT id FROM executions WHERE state = 'waiting' ORDER BY seq LIMIT 1`, nil, &id)
	return id, err
}

// Adopt makes a server the owner of an execution that another owned; false: it is
// no longer that other's, or has ended.
func (b *Board) Adopt(ctx context.Context, executionID, from, to string) (adopted bool, err error) {
	const doing = "adopting an execution"
	if to == "" {
		return false, wrap(doing, fmt.Errorf("%w: the owner is empty", ErrInvalid))
	}
	err = b.write(ctx, doing, func(t tx) error {
		n, err := t.exec(`UPDATE executions SET owner = ? WHERE id = ? AND owner = ? AND state IN ('starting', 'running')`, to, executionID, from)
		adopted = n > 0
		return err
	})
	return adopted && err == nil, err
}

// StartExecution records that the process of an execution runs, since when (zero:
// since now; never before the execution was made): the attempt and
// it are running, and it belongs to the attempt's session, which is made if there
// is none. Of one that runs already the process id is renewed. ErrEnded: it has
// ended meanwhile, and the process is to be ended too; ErrInvalid: nobody has
// claimed it; ErrNotFound.
func (b *Board) StartExecution(ctx context.Context, executionID, executor string, pid int, since time.Time) (s *Session, err error) {
	now := b.stamp()
	err = b.write(ctx, "starting an execution", func(t tx) error {
		e, err := t.execution(executionID)
		switch {
		case err != nil:
			return err
		case e.State.ended():
			return fmt.Errorf("execution %q is %s: %w", executionID, e.State, ErrEnded)
		case e.State == Waiting:
			return fmt.Errorf("%w: execution %q is not claimed", ErrInvalid, executionID)
		}
		if s, err = t.sessionOf(e, executor, now); err != nil {
			return err
		}
		if _, err := t.exec(`UPDATE executions SET state = ?, session_id = ?, pid = ?, started_at = coalesce(started_at, ?) WHERE id = ?`,
			Running, s.ID, pid, between(e.CreatedAt, since, now), executionID); err != nil {
			return err
		}
		return t.setAttempt(e.AttemptID, Running, nil, now)
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// between is a moment as the board writes it, zero for now, such that it is never
// before what it follows, whatever the clock did since, nor in the future.
func between(after, at time.Time, now string) string {
	text := now
	if !at.IsZero() {
		text = min(format(at), now)
	}
	return max(text, format(after))
}
