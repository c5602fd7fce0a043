package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"

	"github.com/google/uuid"
)

const sessionRows = `SELECT id, attempt_id, executor, variant, queued_prompt, queued_variant, queued_at,
	created_at, updated_at FROM sessions `

// findSession returns the first conversation of a query, or nil.
func (t Tx) findSession(where, id string) *task.Session {
	s := firstRow[struct {
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
	t.mustSee("session", id)
	s := t.findSession(`WHERE id = ?`, id)
	if s == nil {
		t.Fail(task.Missing("session", id))
	}
	return s
}

// sessionOf returns the session of an execution that starts: its own, else the attempt's latest, else a new
// one.
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

func (b board) AddExecution(
	ctx context.Context, sessionID, prompt string, variant *string, r task.Request, comments ...string,
) (*task.Execution, error) {
	return write(ctx, b, "adding a follow-up", func(t Tx) *task.Execution {
		s := t.session(sessionID)
		if t.open(s.AttemptID) {
			t.Fail(fmt.Errorf("session %q: %w: wait for its end, or queue the follow-up", sessionID, task.ErrRunning))
		}
		of := t.taskOf(s.AttemptID)
		t.staying(of)
		id := b.doOnce(t, r, func() string {
			return t.addExecution(task.Execution{
				AttemptID: s.AttemptID,
				SessionID: &s.ID,
				FollowUp:  true,
				Prompt:    prompt,
				Variant:   variant,
			})
		})

		t.each(`DELETE FROM attempt_comments WHERE id = ? AND attempt_id = ?`, s.AttemptID, comments)
		t.setTask(of, task.InProgress)
		return t.execution(id)
	})
}

// open reports whether an execution of an attempt has not ended.
func (t Tx) open(attemptID string) bool {
	return t.has(`FROM executions WHERE attempt_id = ? AND step_id IS NULL AND state IN ('waiting', 'starting', `+
		`'running')`, attemptID)
}

func (b board) Queue(
	ctx context.Context, sessionID string, q *task.Queued, r task.Request, comments ...string,
) (before *task.Queued, idle bool, err error) {
	before, err = write(ctx, b, "queueing a follow-up", func(t Tx) *task.Queued {
		s := t.session(sessionID)
		if idle = !t.open(s.AttemptID); idle {
			if q == nil {
				b.doOnce(t, r, func() string { return queued(nil) })
			}
			return nil
		}
		if q != nil &&
			t.has(`FROM executions WHERE attempt_id = ? AND step_id IS NULL AND ended_at IS NULL AND stop_asked IS `+
				`NOT NULL`, s.AttemptID) {
			t.Fail(fmt.Errorf("session %q: %w", sessionID, task.ErrStopping))
		}

		if len(comments) > 0 {
			t.replaceable(s)
		}
		b.doOnce(t, r, func() string {
			t.changed(store.AttemptChanged, s.AttemptID)
			t.setQueued(s, q, comments...)
			return queued(s.Queued)
		})
		return s.Queued
	})
	return before, idle && err == nil, err
}

// queued returns the result of a request of Queue.
func queued(before *task.Queued) string {
	text, _ := json.Marshal(before) // texts and a time can be encoded
	return string(text)
}

// setQueued replaces what is queued. The comments of the previous prompt wait again.
func (t Tx) setQueued(s *task.Session, q *task.Queued, comments ...string) {
	t.mark(s.AttemptID, comments)
	var prompt, variant, at *string
	if q != nil {
		prompt = &q.Prompt
		variant = q.Variant
		at = &t.Now
	}
	t.Exec(`UPDATE sessions SET queued_prompt = ?, queued_variant = ?, queued_at = ?, updated_at = ? WHERE id = ?`,
		prompt, variant, at, t.Now, s.ID)
}

const (
	commentRows = `SELECT id, attempt_id, repo_id, file, line, side, quote, text, queued, identity, created_at ` +
		`FROM attempt_comments WHERE attempt_id = ? `
	inOrder = `ORDER BY repo_id, file, line, created_at, id`
)

func (b board) Comments(ctx context.Context, attemptID string) ([]task.Comment, error) {
	return read(ctx, b, "reading comments", func(t Tx) []task.Comment {
		t.attempt(attemptID)
		return List[task.Comment](t, commentRows+inOrder, attemptID)
	})
}

func (b board) ChangeComments(
	ctx context.Context, attemptID string, remove []string, add []task.Comment, r task.Request,
) (added []string, err error) {
	made, err := write(ctx, b, "changing comments", func(t Tx) string {
		t.attempt(attemptID)
		return b.makeOnce(t, r, func() string {
			return cmp.Or(strings.Join(t.changeComments(attemptID, remove, add), " "), noComments)
		})
	})
	if made == noComments {
		made = ""
	}
	return strings.Fields(made), err
}

// noComments is the result of a request that added no comments.
const noComments = "-"

func (t Tx) changeComments(attemptID string, remove []string, add []task.Comment) (ids []string) {
	t.changed(store.AttemptChanged, attemptID)
	t.each(`DELETE FROM attempt_comments WHERE NOT queued AND id = ? AND attempt_id = ?`, attemptID, remove)
	identity := session.LocalIdentity
	if t.who != nil {
		identity = t.who.Identity
	}
	for _, c := range add {
		id := uuid.NewString()
		t.Exec(`INSERT INTO attempt_comments (id, attempt_id, repo_id, file, line, side, quote, text, identity, `+
			`created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			id, attemptID, c.RepoID, c.File, c.Line, c.Side, c.Quote, c.Text, identity, t.Now)
		ids = append(ids, id)
	}

	n := t.count(`SELECT count(*) FROM attempt_comments WHERE attempt_id = ?`, attemptID)
	if n > task.MaxComments && len(add) > 0 {
		t.Fail(fmt.Errorf("%w: with these, %d would wait, and at most %d may", task.ErrComments, n, task.MaxComments))
	}
	return ids
}

// mark marks these comments, and no others, as those of an attempt's queued follow-up.
func (t Tx) mark(attemptID string, ids []string) {
	t.Exec(`UPDATE attempt_comments SET queued = FALSE WHERE attempt_id = ? AND queued`, attemptID)
	t.each(`UPDATE attempt_comments SET queued = TRUE WHERE id = ? AND attempt_id = ?`, attemptID, ids)
}

// each runs a statement for comments of an attempt. It fails with ErrSent if one no longer waits.
func (t Tx) each(query, attemptID string, ids []string) {
	for _, id := range ids {
		t.mustChange(fmt.Errorf("comment %q: %w", id, task.ErrSent), query, id, attemptID)
	}
}

// replaceable fails with ErrQueued if comments must not replace what is queued, because somebody else wrote
// that.
func (t Tx) replaceable(s *task.Session) {
	if s.Queued != nil && !t.has(`FROM attempt_comments WHERE attempt_id = ? AND queued`, s.AttemptID) {
		t.Fail(fmt.Errorf("session %q: %w", s.ID, task.ErrQueued))
	}
}
