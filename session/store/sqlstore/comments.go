package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"

	"github.com/google/uuid"
)

const (
	commentRows = `SELECT id, attempt_id, repo_id, file, line, side, quote, text, queued, identity, created_at FROM attempt_comments WHERE attempt_id = ? `
	inOrder     = `ORDER BY repo_id, file, line, created_at, id`
)

func (b board) Comments(ctx context.Context, attemptID string) ([]task.Comment, error) {
	return read(ctx, b, "reading comments", func(t Tx) ([]task.Comment, error) {
		if _, err := t.attempt(attemptID); err != nil {
			return nil, err
		}
		return List[task.Comment](t, commentRows+inOrder, attemptID)
	})
}

func (b board) ChangeComments(ctx context.Context, attemptID string, remove []string, add []task.Comment, r task.Request) (added []string, err error) {
	made, err := write(ctx, b, "changing comments", func(t Tx) (string, error) {
		if _, err := t.attempt(attemptID); err != nil {
			return "", err
		}
		return b.makeOnce(t, r, func() (string, error) {
			ids, err := t.changeComments(attemptID, remove, add)
			return cmp.Or(strings.Join(ids, " "), noComments), err
		})
	})
	if made == noComments {
		made = ""
	}
	return strings.Fields(made), err
}

// noComments is the result of a request that added none.
const noComments = "-"

func (t Tx) changeComments(attemptID string, remove []string, add []task.Comment) (ids []string, err error) {
	t.changed(store.AttemptChanged, attemptID)
	for _, id := range remove {
		n, err := t.Exec(`DELETE FROM attempt_comments WHERE id = ? AND attempt_id = ? AND queued = ?`, id, attemptID, false)
		if err == nil && n == 0 {
			err = fmt.Errorf("comment %q: %w", id, task.ErrSent)
		}
		if err != nil {
			return nil, err
		}
	}
	identity := session.LocalIdentity
	if t.who != nil {
		identity = t.who.Identity
	}
	for _, c := range add {
		id := uuid.NewString()
		if _, err := t.Exec(`INSERT INTO attempt_comments (id, attempt_id, repo_id, file, line, side, quote, text, identity, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			id, attemptID, c.RepoID, c.File, c.Line, c.Side, c.Quote, c.Text, identity, t.Now); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	n, err := t.Count(`SELECT count(*) FROM attempt_comments WHERE attempt_id = ?`, attemptID)
	if err == nil && n > task.MaxComments && len(add) > 0 {
		err = fmt.Errorf("%w: with these, %d would wait, and at most %d may", task.ErrComments, n, task.MaxComments)
	}
	return ids, err
}

// mark marks comments as those of the queued follow-up of an attempt, and no others.
func (t Tx) mark(attemptID string, ids []string) error {
	if _, err := t.Exec(`UPDATE attempt_comments SET queued = ? WHERE attempt_id = ? AND queued = ?`, false, attemptID, true); err != nil {
		return err
	}
	return t.each(`UPDATE attempt_comments SET queued = ? WHERE id = ? AND attempt_id = ?`, attemptID, ids, true)
}

// each runs a statement for comments of an attempt, or returns ErrSent if one no longer waits.
func (t Tx) each(query, attemptID string, ids []string, args ...any) error {
	for _, id := range ids {
		n, err := t.Exec(query, append(args[:len(args):len(args)], id, attemptID)...)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("comment %q: %w", id, task.ErrSent)
		}
	}
	return nil
}

// replaceable returns ErrQueued if comments must not replace what is queued, as it has others' words.
func (t Tx) replaceable(s *task.Session) error {
	if s.Queued == nil {
		return nil
	}
	ours, err := t.First(`SELECT 1 FROM attempt_comments WHERE attempt_id = ? AND queued = ?`, []any{s.AttemptID, true}, new(int))
	if err == nil && !ours {
		err = fmt.Errorf("session %q: %w", s.ID, task.ErrQueued)
	}
	return err
}
