package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"deepwork/catalog/task"
	"deepwork/session/store"

	"github.com/google/uuid"
)

const sessionRows = `SELECT id, attempt_id, executor, variant, queued_prompt, queued_variant, queued_at,
	created_at, updated_at FROM sessions `

// A sessionRow is a stored session.
type sessionRow struct {
	task.Session
	QueuedPrompt, QueuedVariant *string
	QueuedAt                    *time.Time
}

// sessionWhere returns the first session of a query, or ErrNotFound for something of this
// kind and id.
func (t Tx) sessionWhere(what, id, where string) (*task.Session, error) {
	s, err := only[sessionRow](t, what, id, sessionRows+where, id)
	if err != nil {
		return nil, err
	}
	if s.QueuedPrompt != nil && s.QueuedAt != nil {
		s.Queued = &task.Queued{Prompt: *s.QueuedPrompt, Variant: s.QueuedVariant, At: *s.QueuedAt}
	}
	return &s.Session, nil
}

func (t Tx) session(id string) (*task.Session, error) {
	if err := t.own("session", id); err != nil {
		return nil, err
	}
	return t.sessionWhere("session", id, `WHERE id = ?`)
}

// sessionOf returns the session of an execution that starts: its own, else the attempt's latest,
// else a new one.
func (t Tx) sessionOf(e *task.Execution, executor string) (*task.Session, error) {
	if e.SessionID != nil {
		return t.session(*e.SessionID)
	}
	s, err := t.sessionWhere("attempt", e.AttemptID, `WHERE attempt_id = ? ORDER BY created_at DESC, id LIMIT 1`)
	if !errors.Is(err, task.ErrNotFound) {
		return s, err
	}
	id := uuid.NewString()
	if _, err := t.Exec(`INSERT INTO sessions (id, attempt_id, executor, variant, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?)`,
		id, e.AttemptID, executor, e.Variant, t.Now, t.Now); err != nil {
		return nil, err
	}
	return t.session(id)
}

func (b board) Session(ctx context.Context, id string) (*task.Session, error) {
	return read(ctx, b, "reading a session", func(t Tx) (*task.Session, error) { return t.session(id) })
}

func (b board) AddExecution(ctx context.Context, sessionID, prompt string, variant *string, comments ...string) (*task.Execution, error) {
	return write(ctx, b, "adding a follow-up", func(t Tx) (*task.Execution, error) {
		s, err := t.session(sessionID)
		if err != nil {
			return nil, err
		}
		if open, err := t.open(s.AttemptID); err != nil {
			return nil, err
		} else if open {
			return nil, fmt.Errorf("session %q: %w: wait for its end, or queue the follow-up", sessionID, task.ErrRunning)
		}
		var of string
		if _, err := t.First(`SELECT task_id FROM attempts WHERE id = ?`, []any{s.AttemptID}, &of); err != nil {
			return nil, err
		}
		if err := t.staying(of); err != nil {
			return nil, err
		}
		id, err := t.addExecution(task.Execution{AttemptID: s.AttemptID, SessionID: &s.ID, FollowUp: true, Prompt: prompt, Variant: variant})
		if err != nil {
			return nil, err
		}
		if err := t.each(`DELETE FROM attempt_comments WHERE id = ? AND attempt_id = ?`, s.AttemptID, comments); err != nil {
			return nil, err
		}
		if err := t.setTask(of, task.InProgress); err != nil {
			return nil, err
		}
		return t.execution(id)
	})
}

// open reports whether an execution of an attempt has not ended.
func (t Tx) open(attemptID string) (bool, error) {
	return t.First(`SELECT 1 FROM executions WHERE attempt_id = ? AND step_id IS NULL AND state IN ('waiting', 'starting', 'running')`, []any{attemptID}, new(int))
}

func (b board) Queue(ctx context.Context, sessionID string, q *task.Queued, comments ...string) (before *task.Queued, idle bool, err error) {
	before, err = write(ctx, b, "queueing a follow-up", func(t Tx) (*task.Queued, error) {
		s, err := t.session(sessionID)
		if err != nil {
			return nil, err
		}
		open, err := t.open(s.AttemptID)
		if idle = !open; err != nil || idle {
			return nil, err
		}
		if len(comments) > 0 {
			if err := t.replaceable(s); err != nil {
				return nil, err
			}
		}
		t.changed(store.AttemptChanged, s.AttemptID)
		return s.Queued, t.setQueued(s, q, comments...)
	})
	return before, idle && err == nil, err
}

// setQueued replaces what is queued. Comments of what was queued wait again.
func (t Tx) setQueued(s *task.Session, q *task.Queued, comments ...string) error {
	if err := t.mark(s.AttemptID, comments); err != nil {
		return err
	}
	var prompt, variant, at *string
	if q != nil {
		prompt, variant, at = &q.Prompt, q.Variant, &t.Now
	}
	_, err := t.Exec(`UPDATE sessions SET queued_prompt = ?, queued_variant = ?, queued_at = ?, updated_at = ? WHERE id = ?`,
		prompt, variant, at, t.Now, s.ID)
	return err
}
