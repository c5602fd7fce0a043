package task

import (
	"context"
	"fmt"
	"time"
)

// A Session is a conversation with an agent.
type Session struct {
	ID        string
	AttemptID string
	Executor  string
	Variant   *string // of its first execution
	Queued    *Queued
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Queued is a follow-up that waits for the end of the current execution.
type Queued struct {
	Prompt  string
	Variant *string
	At      time.Time
}

const sessionRows = `SELECT id, attempt_id, executor, variant, queued_prompt, queued_variant, queued_at,
	created_at, updated_at FROM sessions `

func scanSession(scan scanner) (s Session, err error) {
	var (
		prompt, variant *string
		at              *time.Time
	)
	err = scan(&s.ID, &s.AttemptID, &s.Executor, &s.Variant, &prompt, &variant, perhaps{&at},
		moment{&s.CreatedAt}, moment{&s.UpdatedAt})
	if err == nil && prompt != nil && at != nil {
		s.Queued = &Queued{Prompt: *prompt, Variant: variant, At: *at}
	}
	return s, err
}

func (t tx) session(id string) (*Session, error) {
	var all []Session
	err := t.each(sessionRows+`WHERE id = ?`, []any{id}, collect(&all, scanSession))
	return only(all, err, "session", id)
}

// sessionOf is the session an execution that starts belongs to: its own, else the
// attempt's latest, else a new one.
func (t tx) sessionOf(e *Execution, executor, now string) (*Session, error) {
	if e.SessionID != nil {
		return t.session(*e.SessionID)
	}
	var id string
	found, err := t.one(`SELECT id FROM sessions WHERE attempt_id = ? ORDER BY created_at DESC, id LIMIT 1`, []any{e.AttemptID}, &id)
	if err != nil {
		return nil, err
	}
	if !found {
		if id, err = newID(); err != nil {
			return nil, err
		}
		if _, err := t.exec(`INSERT INTO sessions (id, attempt_id, executor, variant, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?)`,
			id, e.AttemptID, executor, e.Variant, now, now); err != nil {
			return nil, err
		}
	}
	return t.session(id)
}

// Session returns one, or ErrNotFound.
func (b *Board) Session(ctx context.Context, id string) (s *Session, err error) {
	err = b.read(ctx, "reading a session", func(t tx) error {
		s, err = t.session(id)
		return err
	})
	return s, err
}

// Sessions returns all of an attempt, newest first; none if its process was never
// started, or there is no such attempt.
func (b *Board) Sessions(ctx context.Context, attemptID string) (all []Session, err error) {
	err = b.read(ctx, "listing sessions", func(t tx) error {
		all = nil
		return t.each(sessionRows+`WHERE attempt_id = ? ORDER BY created_at DESC, id`, []any{attemptID}, collect(&all, scanSession))
	})
	return all, err
}

// AddExecution adds a follow-up, waiting, and puts the task inprogress;
// ErrRunning where an execution of its attempt has not ended; ErrDeleting where
// the task is being deleted; ErrNotFound where there is no such session (seed
// 004, "follow_up targeting").
func (b *Board) AddExecution(ctx context.Context, sessionID, prompt string, variant *string) (e *Execution, err error) {
	now := b.stamp()
	err = b.write(ctx, "adding a follow-up", func(t tx) error {
		s, err := t.session(sessionID)
		if err != nil {
			return err
		}
		if open, err := t.open(s.AttemptID); err != nil {
			return err
		} else if open {
			return fmt.Errorf("session %q: %w: wait for its end, or queue the follow-up", sessionID, ErrRunning)
		}
		var task string
		if _, err := t.one(`SELECT task_id FROM attempts WHERE id = ?`, []any{s.AttemptID}, &task); err != nil {
			return err
		}
		if err := t.staying(task); err != nil {
			return err
		}
		id, err := t.addExecution(Execution{AttemptID: s.AttemptID, SessionID: &s.ID, FollowUp: true, Prompt: prompt, Variant: variant}, now)
		if err != nil {
			return err
		}
		if e, err = t.execution(id); err != nil {
			return err
		}
		return t.setTask(task, InProgress, now)
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// open tells whether an execution of an attempt has not ended.
func (t tx) open(attemptID string) (bool, error) {
	var one int
	return t.one(`SELECT 1 FROM executions WHERE attempt_id = ? AND state IN ('waiting', 'starting', 'running')`, []any{attemptID}, &one)
}

// Queue sets or, with nil, clears what is queued in a session while an execution
// of its attempt has not ended, and returns what was queued before; q.At is set
// to now. idle: none runs, nothing was queued, and nothing was set. ErrNotFound:
// there is no such session.
func (b *Board) Queue(ctx context.Context, sessionID string, q *Queued) (before *Queued, idle bool, err error) {
	now := b.stamp()
	err = b.write(ctx, "queueing a follow-up", func(t tx) error {
		before, idle = nil, false
		s, err := t.session(sessionID)
		if err != nil {
			return err
		}
		open, err := t.open(s.AttemptID)
		if err != nil {
			return err
		}
		if !open {
			idle = true
			return nil
		}
		before = s.Queued
		return t.setQueued(sessionID, q, now)
	})
	if err != nil {
		return nil, false, err
	}
	return before, idle, nil
}

func (t tx) setQueued(sessionID string, q *Queued, now string) error {
	var prompt, variant, at *string
	if q != nil {
		prompt, variant, at = &q.Prompt, q.Variant, &now
	}
	_, err := t.exec(`UPDATE sessions SET queued_prompt = ?, queued_variant = ?, queued_at = ?, updated_at = ? WHERE id = ?`,
		prompt, variant, at, now, sessionID)
	return err
}
