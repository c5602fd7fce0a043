package sqlstore

import (
	"context"
	"fmt"
	"time"

	"deepwork/catalog/task"
	"deepwork/session/store"

	"github.com/google/uuid"
)

const sessionRows = `SELECT id, attempt_id, executor, variant, queued_prompt, queued_variant, queued_at,
	created_at, updated_at FROM sessions `

// findSession returns the first conversation of a query, or nil.
func (t Tx) findSession(where, id string) *task.Session {
	s := one[struct {
		task.Session
		QueuedPrompt, QueuedVariant *string
		QueuedAt                    *time.Time
	}](t, sessionRows+where, id)
	if s == nil {
		return nil
	}
	if s.QueuedPrompt != nil && s.QueuedAt != nil {
		s.Queued = &task.Queued{Prompt: *s.QueuedPrompt, Variant: s.QueuedVariant, At: *s.QueuedAt}
	}
	return &s.Session
}

func (t Tx) session(id string) *task.Session {
	t.own("session", id)
	s := t.findSession(`WHERE id = ?`, id)
	if s == nil {
		t.Fail(task.Missing("session", id))
	}
	return s
}

// sessionOf returns the session of an execution that starts: its own, else the attempt's latest,
// else a new one.
func (t Tx) sessionOf(e *task.Execution, executor string) *task.Session {
	if e.SessionID != nil {
		return t.session(*e.SessionID)
	}
	if s := t.findSession(`WHERE attempt_id = ? ORDER BY created_at DESC, id LIMIT 1`, e.AttemptID); s != nil {
		return s
	}
	id := uuid.NewString()
	t.Exec(`INSERT INTO sessions (id, attempt_id, executor, variant, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?)`,
		id, e.AttemptID, executor, e.Variant, t.Now, t.Now)
	return t.session(id)
}

func (b board) Session(ctx context.Context, id string) (*task.Session, error) {
	return read(ctx, b, "reading a session", func(t Tx) *task.Session { return t.session(id) })
}

func (b board) AddExecution(ctx context.Context, sessionID, prompt string, variant *string, comments ...string) (*task.Execution, error) {
	return write(ctx, b, "adding a follow-up", func(t Tx) *task.Execution {
		s := t.session(sessionID)
		if t.open(s.AttemptID) {
			t.Fail(fmt.Errorf("session %q: %w: wait for its end, or queue the follow-up", sessionID, task.ErrRunning))
		}
		of := t.taskOf(s.AttemptID)
		t.staying(of)
		id := t.addExecution(task.Execution{AttemptID: s.AttemptID, SessionID: &s.ID, FollowUp: true, Prompt: prompt, Variant: variant})
		t.each(`DELETE FROM attempt_comments WHERE id = ? AND attempt_id = ?`, s.AttemptID, comments)
		t.setTask(of, task.InProgress)
		return t.execution(id)
	})
}

// open reports whether an execution of an attempt has not ended.
func (t Tx) open(attemptID string) bool {
	return t.has(`FROM executions WHERE attempt_id = ? AND step_id IS NULL AND state IN ('waiting', 'starting', 'running')`, attemptID)
}

func (b board) Queue(ctx context.Context, sessionID string, q *task.Queued, comments ...string) (before *task.Queued, idle bool, err error) {
	before, err = write(ctx, b, "queueing a follow-up", func(t Tx) *task.Queued {
		s := t.session(sessionID)
		if idle = !t.open(s.AttemptID); idle {
			return nil
		}
		if len(comments) > 0 {
			t.replaceable(s)
		}
		t.changed(store.AttemptChanged, s.AttemptID)
		t.setQueued(s, q, comments...)
		return s.Queued
	})
	return before, idle && err == nil, err
}

// setQueued replaces what is queued. Comments of what was queued wait again.
func (t Tx) setQueued(s *task.Session, q *task.Queued, comments ...string) {
	t.mark(s.AttemptID, comments)
	var prompt, variant, at *string
	if q != nil {
		prompt, variant, at = &q.Prompt, q.Variant, &t.Now
	}
	t.Exec(`UPDATE sessions SET queued_prompt = ?, queued_variant = ?, queued_at = ?, updated_at = ? WHERE id = ?`,
		prompt, variant, at, t.Now, s.ID)
}
