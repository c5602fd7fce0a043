package sqlstore

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/task"
	"deepwork/session/store"
)

// workflows is a Store as store.Sessions.
type workflows struct{ *Store }

const sessionColumns = `id, revision, root, parent, job, workflow, step, status, goal, identity, moved_by, attempt_id, machine_id, machine, place, definition, pinned, waiting, branch, started_at, updated_at`

const (
	addSession = `INSERT INTO workflow_sessions (` + sessionColumns + `, frame) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	// moveSession is the compare-and-swap that all transitions rely on.
	moveSession = `UPDATE workflow_sessions SET revision = ?, step = ?, status = ?, moved_by = ?, machine_id = ?, machine = ?, place = ?, definition = ?, waiting = ?, updated_at = ?, frame = ?
		WHERE id = ? AND revision = ?`
	putParts   = `INSERT INTO session_parts (session_id, kind, key, position, body) VALUES (?, ?, ?, ?, ?)`
	onePart    = `, (?, ?, ?, ?, ?)`
	overParts  = ` ON CONFLICT (session_id, kind, key) DO UPDATE SET position = excluded.position, body = excluded.body`
	dropPart   = `DELETE FROM session_parts WHERE session_id = ? AND kind = ? AND key = ?`
	addRequest = `INSERT INTO session_requests (key, session_id) VALUES (?, ?) ON CONFLICT (key) DO NOTHING`
	// addDefinition leaves one that was stored a short time ago as it is, so that transitions do not wait for
	// each other.
	addDefinition = `INSERT INTO definitions (hash, data, put_at) SELECT ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM definitions WHERE hash = ? AND put_at > ?)
		ON CONFLICT (hash) DO UPDATE SET put_at = excluded.put_at`
	endReview  = `DELETE FROM session_reviews WHERE session_id = ? AND step = ? AND runner = ?`
	dropReview = `DELETE FROM session_reviews WHERE session_id = ? AND step = ?`
	takeReview = `INSERT INTO session_reviews (session_id, step, runner, total, done, until) VALUES (?, ?, ?, ?, 0, unixepoch('subsec') + ?)
		ON CONFLICT (session_id, step) DO UPDATE SET runner = excluded.runner, total = excluded.total, done = 0, until = excluded.until`
	keepReview = `UPDATE session_reviews SET done = ?, until = unixepoch('subsec') + ? WHERE session_id = ? AND step = ? AND runner = ?`
)

// partsAtOnce is the number of parts that one statement writes: a step has three, and the texts are few.
const partsAtOnce = 8

// A Mover is a Database that makes a transition of a session by one statement.
type Mover interface {
	// MoveSession is WriteSession for a session of no attempt.
	MoveSession(ctx context.Context, w *store.SessionWrite, now time.Time) (written bool, err error)
}

// errNotWritten rolls back a transition that another one has overtaken.
var errNotWritten = errors.New("another transition was faster")

func (w workflows) WriteSession(ctx context.Context, s *store.SessionWrite) (bool, error) {
	mode := Swapping
	if s.AttemptID != "" {
		mode = Writing // it changes the board, too
	} else if m, ok := w.db.(Mover); ok {
		written, err := m.MoveSession(ctx, s, w.o.Now())
		if written && w.pruneDue() { // the statement adds its change itself
			if _, perr := transact(ctx, w.Store, "removing old changes", Swapping, func(t Tx) (none struct{}, err error) { return none, w.prune(t) }); perr != nil {
				w.o.Logger.Warn("old changes are removed later", "error", perr)
			}
		}
		return written, wrap("writing session "+s.ID, err)
	}
	_, err := transact(ctx, w.Store, "writing session "+s.ID, mode, func(t Tx) (none struct{}, err error) {
		return none, t.writeSession(s, Fresh(w.o.Now()))
	})
	if errors.Is(err, errNotWritten) {
		return false, nil
	}
	return err == nil, err
}

// Fresh returns the time, as databases store it, after which a definition was stored so that a transition
// need not store it again.
func Fresh(now time.Time) string { return task.FormatTime(now.Add(-time.Hour)) }

// writeSession makes a transition; errNotWritten means that the session is not as expected.
func (t Tx) writeSession(s *store.SessionWrite, fresh string) error {
	n, err := int64(0), error(nil)
	started, updated := task.FormatTime(s.StartedAt), task.FormatTime(s.UpdatedAt)
	if s.Before < 0 {
		n, err = t.Exec(addSession, s.ID, s.Revision, s.Root, s.Parent, s.Job, s.Workflow, s.Step, s.Status, s.Goal, s.Identity, s.MovedBy, s.AttemptID,
			s.MachineID, s.Machine, s.Place, s.Definition, s.Pinned, s.Waiting, s.Branch, started, updated, s.Frame)
	} else {
		n, err = t.Exec(moveSession, s.Revision, s.Step, s.Status, s.MovedBy, s.MachineID, s.Machine, s.Place, s.Definition, s.Waiting, updated, s.Frame, s.ID, s.Before)
	}
	switch {
	case err != nil:
		return err
	case n == 0 && s.Before < 0:
		return store.ErrExists
	case n == 0:
		return errNotWritten
	}
	if v := s.Verdict; v != nil {
		if n, err := t.Exec(endReview, s.ID, v.Step, v.Runner); err != nil || n == 0 {
			return cmp.Or(err, store.ErrReviewTaken)
		}
	}
	for _, step := range s.Reviewed {
		if _, err := t.Exec(dropReview, s.ID, step); err != nil {
			return err
		}
	}
	if r := s.Began; r != nil {
		if _, err := t.Exec(takeReview, s.ID, r.Step, r.Runner, r.Total, r.Life.Seconds()); err != nil {
			return err
		}
	}
	if d := s.Define; d != nil {
		if _, err := t.Exec(addDefinition, d.Hash, string(d.Data), t.Now, d.Hash, fresh); err != nil {
			return err
		}
	}
	for _, p := range s.Gone {
		if _, err := t.Exec(dropPart, s.ID, p.Kind, p.Key); err != nil {
			return err
		}
	}
	for some := range slices.Chunk(s.Put, partsAtOnce) {
		args := make([]any, 0, 5*len(some))
		for _, p := range some {
			args = append(args, s.ID, p.Kind, p.Key, p.Position, p.Body)
		}
		if _, err := t.Exec(putParts+strings.Repeat(onePart, len(some)-1)+overParts, args...); err != nil {
			return err
		}
	}
	if s.Request != nil {
		key := hex.EncodeToString(s.Request[:])
		n, err := t.Exec(addRequest, key, s.ID)
		if err != nil {
			return err
		}
		id := s.ID
		if n == 0 && s.Before >= 0 {
			if _, err := t.First(`SELECT session_id FROM session_requests WHERE key = ?`, []any{key}, &id); err != nil {
				return err
			}
		}
		if n == 0 && (s.Before < 0 || id != s.ID) {
			return store.ErrRequested
		}
	}
	t.changed(store.SessionChanged, s.ID)
	if s.AttemptID != "" {
		return t.moveAttempt(s)
	}
	return nil
}

// moveAttempt records the position of the workflow in whose attempt's workspace a session moved. If the task names a
// workflow, only that one counts, and not one that is nested in the same workflow; else only one that is
// nested in none. A run records its own position.
func (t Tx) moveAttempt(s *store.SessionWrite) error {
	var job, workflow, at *string
	found, err := t.First(`SELECT k.job_name, k.workflow_name, a.workflow_session_id FROM attempts a JOIN tasks k ON k.id = a.task_id WHERE a.id = ? AND a.run IS NULL`,
		[]any{s.AttemptID}, &job, &workflow, &at)
	if err != nil || !found {
		return err // it was deleted
	}
	switch {
	case job != nil && (*job != s.Job || workflow == nil || *workflow != s.Workflow),
		job == nil && s.Parent != "",
		s.Status == "aborted" && at != nil && *at != s.ID: // a later workflow counts instead
		return nil
	}
	if s.Parent != "" {
		around, err := t.Count(ancestry+` SELECT count(*) FROM chain JOIN workflow_sessions s ON s.id = chain.id WHERE s.job = ? AND s.workflow = ?`, s.Parent, s.Job, s.Workflow)
		if err != nil || around > 0 {
			return err
		}
	}
	n, err := t.Exec(`UPDATE attempts SET workflow_session_id = ?, workflow_status = ?, workflow_step = ?, updated_at = ? WHERE id = ?
		AND NOT (coalesce(workflow_session_id, '') = ? AND coalesce(workflow_status, '') = ? AND coalesce(workflow_step, '') = ?)`,
		s.ID, s.Status, s.Step, t.Now, s.AttemptID, s.ID, s.Status, s.Step)
	if n > 0 {
		t.changed(store.AttemptChanged, s.AttemptID)
	}
	return err
}

// ancestry names the ids of a session and of what it is nested in, in a transaction.
const ancestry = `WITH RECURSIVE chain (id, parent, depth) AS (SELECT id, parent, 0 FROM workflow_sessions s WHERE id = ?
	UNION ALL SELECT s.id, s.parent, chain.depth + 1 FROM workflow_sessions s JOIN chain ON s.id = chain.parent WHERE chain.depth < 1000)`

// A partRow is a part with the revision of its session; Kind is nil if the session has no parts.
type partRow struct {
	Revision  int64
	Kind, Key *string
	Position  *int64
	Body      *string
}

func (w workflows) ReadSession(ctx context.Context, id string, known int64) (*store.SessionRecord, error) {
	if known >= 0 {
		revision, err := look(ctx, w.Store, "reading session "+id, func(t Tx) (revision int64, err error) {
			found, err := t.First(`SELECT revision FROM @workflow_sessions s WHERE id = ?`, []any{id}, &revision)
			if err == nil && !found {
				err = store.ErrNotFound
			}
			return revision, err
		})
		switch {
		case err != nil:
			return nil, err
		case revision == known:
			return &store.SessionRecord{Session: store.Session{ID: id, Revision: known}}, nil
		}
	}
	for { // until nobody has moved it between the two statements
		s, err := look(ctx, w.Store, "reading session "+id, func(t Tx) (*store.SessionRecord, error) {
			rows, err := List[store.SessionRecord](t, `SELECT `+sessionColumns+`, frame FROM @workflow_sessions s WHERE id = ?`, id)
			if err == nil && len(rows) == 0 {
				err = store.ErrNotFound
			}
			if err != nil {
				return nil, err
			}
			return &rows[0], nil
		})
		if err != nil {
			return nil, err
		}
		parts, err := look(ctx, w.Store, "reading session "+id, func(t Tx) ([]partRow, error) {
			return List[partRow](t, `SELECT s.revision, p.kind, p.key, p.position, p.body FROM @workflow_sessions s LEFT JOIN @session_parts p ON p.session_id = s.id
				WHERE s.id = ? ORDER BY p.kind, p.position`, id)
		})
		if err != nil {
			return nil, err
		}
		if len(parts) == 0 || parts[0].Revision != s.Revision {
			continue
		}
		for _, p := range parts {
			if p.Kind != nil {
				s.Parts = append(s.Parts, store.SessionPart{Kind: *p.Kind, Key: *p.Key, Position: *p.Position, Body: *p.Body})
			}
		}
		return s, nil
	}
}

func (w workflows) ListSessions(ctx context.Context, q store.SessionQuery) ([]store.Session, error) {
	if q.IDs != nil && len(q.IDs) == 0 || q.Parents != nil && len(q.Parents) == 0 || !w.db.Exists() {
		return nil, nil // a project whose sessions are only listed gets no database
	}
	var where []string
	var args []any
	is := func(condition string, values ...any) {
		where, args = append(where, condition), append(args, values...)
	}
	among := func(column string, ids []string) {
		condition, values := in(column, ids)
		is(condition, values...)
	}
	if q.IDs != nil {
		among("id", q.IDs)
	}
	if q.Parents != nil {
		among("parent", q.Parents)
	}
	if q.Identity != "" {
		is(`identity = ?`, q.Identity)
	}
	if q.Active {
		is(`status = 'active'`)
	}
	if q.Ended {
		is(`status <> 'active'`)
	}
	if q.Attempt != nil {
		is(`attempt_id = ?`, *q.Attempt)
	}
	if q.Waiting {
		is(`waiting <> ''`)
	}
	if !q.Before.IsZero() {
		is(`updated_at < ?`, task.FormatTime(q.Before))
	}
	columns := sessionColumns
	if q.Brief {
		columns = `id, job, workflow, step, status`
	}
	query := `SELECT ` + columns + ` FROM @workflow_sessions s`
	if where != nil {
		query += ` WHERE ` + strings.Join(where, ` AND `)
	}
	query += ` ORDER BY updated_at DESC, id`
	if q.Limit > 0 {
		query += fmt.Sprintf(` LIMIT %d`, q.Limit)
	}
	return look(ctx, w.Store, "listing the sessions", func(t Tx) ([]store.Session, error) { return List[store.Session](t, query, args...) })
}

func (w workflows) Ancestry(ctx context.Context, id string) ([]store.Session, error) {
	query := strings.ReplaceAll(ancestry+` SELECT s.`+strings.ReplaceAll(sessionColumns, ", ", ", s.")+` FROM chain JOIN workflow_sessions s ON s.id = chain.id ORDER BY chain.depth`,
		" workflow_sessions ", " @workflow_sessions ")
	all, err := look(ctx, w.Store, "reading what session "+id+" is nested in", func(t Tx) ([]store.Session, error) { return List[store.Session](t, query, id) })
	for i := range all { // of a cycle, which only an import can make, once around
		if slices.ContainsFunc(all[:i], func(s store.Session) bool { return s.ID == all[i].ID }) {
			all = all[:i]
			break
		}
	}
	slices.Reverse(all)
	return all, err
}

// in is the condition that a column has one of some values.
func in(column string, values []string) (condition string, args []any) {
	n := 1 << bits.Len(uint(len(values)-1)) // few different statements
	for i := range n {
		args = append(args, values[min(i, len(values)-1)])
	}
	return column + ` IN (?` + strings.Repeat(", ?", n-1) + `)`, args
}

// removedAtOnce is how many sessions are removed by one transaction, so that others get their turns.
const removedAtOnce = 256

func (w workflows) RemoveSessions(ctx context.Context, ids []string) error {
	for some := range slices.Chunk(ids, removedAtOnce) {
		err := change(ctx, w.Store, "removing sessions", func(t Tx) error {
			these, args := in("id", some)
			gone, err := List[string](t, `DELETE FROM workflow_sessions WHERE status <> 'active' AND `+these+` RETURNING id`, args...)
			if err != nil || len(gone) == 0 {
				return err
			}
			these, args = in("session_id", gone)
			for _, table := range []string{"session_parts", "session_requests", "session_reviews"} {
				if _, err := t.Exec(`DELETE FROM `+table+` WHERE `+these, args...); err != nil {
					return err
				}
			}
			for _, id := range gone {
				t.changed(store.SessionChanged, id)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w workflows) FindRequest(ctx context.Context, key store.Key) (id string, err error) {
	return look(ctx, w.Store, "looking for a request_id", func(t Tx) (id string, err error) {
		_, err = t.First(`SELECT session_id FROM @session_requests r WHERE key = ?`, []any{hex.EncodeToString(key[:])}, &id)
		return id, err
	})
}

func (w workflows) Reviews(ctx context.Context, id string) ([]store.Review, error) {
	return look(ctx, w.Store, "reading the reviews of session "+id, func(t Tx) ([]store.Review, error) {
		return List[store.Review](t, `SELECT step, runner, total, done, until <= @unixepoch('subsec') AS over FROM @session_reviews r WHERE session_id = ?`, id)
	})
}

func (w workflows) RenewReview(ctx context.Context, id string, r store.Review) (bool, error) {
	n, err := statement(ctx, w.Store, "renewing a review", Swapping, keepReview, r.Done, r.Life.Seconds(), id, r.Step, r.Runner)
	return n > 0, err
}

func (w workflows) LeaveReviews(ctx context.Context, runner string) error {
	_, err := statement(ctx, w.Store, "leaving reviews", Swapping, `UPDATE session_reviews SET until = 0 WHERE runner = ?`, runner)
	return err
}

func (w workflows) Definition(ctx context.Context, hash string) ([]byte, error) {
	return look(ctx, w.Store, "reading definition "+hash, func(t Tx) ([]byte, error) {
		var data string
		found, err := t.First(`SELECT data FROM @definitions d WHERE hash = ?`, []any{hash}, &data)
		if err == nil && !found {
			err = store.ErrNotFound
		}
		return []byte(data), err
	})
}

func (w workflows) PruneDefinitions(ctx context.Context, cutoff time.Time) (int, error) {
	n, err := statement(ctx, w.Store, "removing definitions", Swapping, `DELETE FROM definitions WHERE put_at < ?
		AND hash NOT IN (SELECT definition FROM workflow_sessions UNION SELECT pinned FROM workflow_sessions)`, task.FormatTime(cutoff))
	return int(n), err
}
