package sqlite

import (
	"context"
	"fmt"
	"time"

	"deepwork/catalog/task"
	"deepwork/session/store"
)

const sessionRows = `SELECT id, attempt_id, executor, variant, queued_prompt, queued_variant, queued_at,
	created_at, updated_at FROM sessions `

const newestSession = `WHERE attempt_id = ? ORDER BY created_at DESC, id`

func scanSession(scan scanner) (s task.Session, err error) {
	var (
		prompt, variant *string
		at              *time.Time
	)
	err = scan(&s.ID, &s.AttemptID, &s.Executor, &s.Variant, &prompt, &variant, perhaps{&at},
		moment{&s.CreatedAt}, moment{&s.UpdatedAt})
	if err == nil && prompt != nil && at != nil {
		s.Queued = &task.Queued{Prompt: *prompt, Variant: variant, At: *at}
	}
	return s, err
}

func (t tx) session(id string) (*task.Session, error) {
	return only(t, "session", id, scanSession, sessionRows+`WHERE id = ?`, id)
}

// sessionOf is the session that an execution which starts belongs to: its own, else
// the attempt's latest, else a new one.
func (t tx) sessionOf(e *task.Execution, executor, now string) (*task.Session, error) {
	if e.SessionID != nil {
		return t.session(*e.SessionID)
	}
	all, err := list(t, scanSession, sessionRows+newestSession+` LIMIT 1`, e.AttemptID)
	if err != nil || len(all) > 0 {
		return &append(all, task.Session{})[0], err
	}
	id, err := newID()
	if err != nil {
		return nil, err
	}
	if _, err := t.exec(`INSERT INTO sessions (id, attempt_id, executor, variant, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?)`,
		id, e.AttemptID, executor, e.Variant, now, now); err != nil {
		return nil, err
	}
	return t.session(id)
}

func (b board) Session(ctx context.Context, id string) (*task.Session, error) {
	return read(ctx, b.DB, "reading a session", func(t tx) (*task.Session, error) { return t.session(id) })
}

func (b board) Sessions(ctx context.Context, attemptID string) ([]task.Session, error) {
	return read(ctx, b.DB, "listing sessions", func(t tx) ([]task.Session, error) {
		return list(t, scanSession, sessionRows+newestSession, attemptID)
	})
}

func (b board) AddExecution(ctx context.Context, sessionID, prompt string, variant *string) (*task.Execution, error) {
	now := b.stamp()
	return write(ctx, b.DB, "adding a follow-up", func(t tx) (*task.Execution, error) {
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
		if _, err := t.first(`SELECT task_id FROM attempts WHERE id = ?`, []any{s.AttemptID}, &of); err != nil {
			return nil, err
		}
		if err := t.staying(of); err != nil {
			return nil, err
		}
		id, err := t.addExecution(task.Execution{AttemptID: s.AttemptID, SessionID: &s.ID, FollowUp: true, Prompt: prompt, Variant: variant}, now)
		if err != nil {
			return nil, err
		}
		if err := t.setTask(of, task.InProgress, now); err != nil {
			return nil, err
		}
		return t.execution(id)
	})
}

// open reports whether an execution of an attempt has not ended.
func (t tx) open(attemptID string) (bool, error) {
	return t.first(`SELECT 1 FROM executions WHERE attempt_id = ? AND state IN ('waiting', 'starting', 'running')`, []any{attemptID}, new(int))
}

func (b board) Queue(ctx context.Context, sessionID string, q *task.Queued) (before *task.Queued, idle bool, err error) {
	now := b.stamp()
	before, err = write(ctx, b.DB, "queueing a follow-up", func(t tx) (*task.Queued, error) {
		s, err := t.session(sessionID)
		if err != nil {
			return nil, err
		}
		open, err := t.open(s.AttemptID)
		if idle = !open; err != nil || idle {
			return nil, err
		}
		t.changed(store.AttemptChanged, s.AttemptID)
		return s.Queued, t.setQueued(sessionID, q, now)
	})
	return before, idle && err == nil, err
}

func (t tx) setQueued(sessionID string, q *task.Queued, now string) error {
	var prompt, variant, at *string
	if q != nil {
		prompt, variant, at = &q.Prompt, q.Variant, &now
	}
	_, err := t.exec(`UPDATE sessions SET queued_prompt = ?, queued_variant = ?, queued_at = ?, updated_at = ? WHERE id = ?`,
		prompt, variant, at, now, sessionID)
	return err
}
