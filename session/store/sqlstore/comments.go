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
	return read(ctx, b, "reading comments", func(t Tx) []task.Comment {
		t.attempt(attemptID)
		return List[task.Comment](t, commentRows+inOrder, attemptID)
	})
}

func (b board) ChangeComments(ctx context.Context, attemptID string, remove []string, add []task.Comment, r task.Request) (added []string, err error) {
	made, err := write(ctx, b, "changing comments", func(t Tx) string {
		t.attempt(attemptID)
		return b.makeOnce(t, r, func() string { return cmp.Or(textOfIDs(t.changeComments(attemptID, remove, add)), noComments) })
	})
	if made == noComments {
		made = ""
	}
	return strings.Fields(made), err
}

// noComments is the result of a request that added none.
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
		t.Exec(`INSERT INTO attempt_comments (id, attempt_id, repo_id, file, line, side, quote, text, identity, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			id, attemptID, c.RepoID, c.File, c.Line, c.Side, c.Quote, c.Text, identity, t.Now)
		ids = append(ids, id)
	}
	if n := t.count(`SELECT count(*) FROM attempt_comments WHERE attempt_id = ?`, attemptID); n > task.MaxComments && len(add) > 0 {
		t.Fail(fmt.Errorf("%w: with these, %d would wait, and at most %d may", task.ErrComments, n, task.MaxComments))
	}
	return ids
}

// mark marks comments as those of the queued follow-up of an attempt, and no others.
func (t Tx) mark(attemptID string, ids []string) {
	t.Exec(`UPDATE attempt_comments SET queued = FALSE WHERE attempt_id = ? AND queued`, attemptID)
	t.each(`UPDATE attempt_comments SET queued = TRUE WHERE id = ? AND attempt_id = ?`, attemptID, ids)
}

// each runs a statement for comments of an attempt, or fails with ErrSent if one no longer waits.
func (t Tx) each(query, attemptID string, ids []string) {
	for _, id := range ids {
		t.must(fmt.Errorf("comment %q: %w", id, task.ErrSent), query, id, attemptID)
	}
}

// replaceable fails with ErrQueued if comments must not replace what is queued, as it has others' words.
func (t Tx) replaceable(s *task.Session) {
	if s.Queued != nil && !t.has(`FROM attempt_comments WHERE attempt_id = ? AND queued`, s.AttemptID) {
		t.Fail(fmt.Errorf("session %q: %w", s.ID, task.ErrQueued))
	}
}
