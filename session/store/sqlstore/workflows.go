package sqlstore

import (
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

// workflows is a Store in its role as store.Sessions.
type workflows struct{ *Store }

// sessionColumns are the columns of a session, in the order of the fields of store.Session.
var sessionColumns = Columns[store.Session]()

var addSession = `INSERT INTO workflow_sessions (` + sessionColumns + `, frame) VALUES (` +
	parameters(2+strings.Count(sessionColumns, ",")) + `) ON CONFLICT DO NOTHING`

const (
	// moveSession is the compare-and-swap on which all transitions rely. keepStatus is the same for most of
	// them: SQLite writes each index on a column that is set, even to the same value.
	keepStatus = `UPDATE workflow_sessions SET revision = ?, step = ?, moved_by = ?, machine_id = ?, machine = ?, ` +
		`place = ?, definition = ?, failed_tries = ?, updated_at = ?, frame = ?
		WHERE id = ? AND revision = ? AND status = ? AND waiting = ?`
	moveSession = `UPDATE workflow_sessions SET revision = ?, step = ?, status = ?, moved_by = ?, machine_id = ?, ` +
		`machine = ?, place = ?, definition = ?, waiting = ?, failed_tries = ?, updated_at = ?, frame = ?
		WHERE id = ? AND revision = ?`
	putParts   = `INSERT INTO session_parts (session_id, kind, key, position, body) VALUES (?, ?, ?, ?, ?)`
	onePart    = `, (?, ?, ?, ?, ?)`
	overParts  = ` ON CONFLICT (session_id, kind, key) DO UPDATE SET position = excluded.position, body = excluded.body`
	dropPart   = `DELETE FROM session_parts WHERE session_id = ? AND kind = ? AND key = ?`
	dropJudged = `DELETE FROM session_parts WHERE session_id = ? AND kind = '` + store.JudgedPart + `'`
	addRequest = `INSERT INTO session_requests (key, session_id) VALUES (?, ?) ON CONFLICT (key) DO NOTHING`
	// addDefinition leaves a recently stored definition unchanged, so that transitions do not wait for each
	// other.
	addDefinition = `INSERT INTO definitions (hash, data, put_at) SELECT ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM ` +
		`definitions WHERE hash = ? AND put_at > ?)
		ON CONFLICT (hash) DO UPDATE SET put_at = excluded.put_at`
)

// partsAtOnce is the number of parts that one statement writes: a step has three, and texts are few.
const partsAtOnce = 8

// errNotWritten rolls back a transition that another one has overtaken.
var errNotWritten = errors.New("another transition was faster")

func (w workflows) WriteSession(ctx context.Context, s *store.SessionWrite) (bool, error) {
	mode := Swapping
	if s.AttemptID != "" {
		mode = Writing // it also changes the board
	} else if m, ok := w.db.(Mover); ok && s.Also == nil {
		written, err := m.MoveSession(ctx, s, w.o.Now())
		if written && w.pruneDue() { // the statement publishes its change itself
			if err := w.Run(ctx, "removing old changes", Swapping, w.prune); err != nil {
				w.o.Logger.Warn("old changes are removed later", "error", err)
			}
		}
		return written, wrap("writing session "+s.ID, err)
	}
	err := w.Run(ctx, "writing session "+s.ID, mode, func(t Tx) { t.writeSession(s, Fresh(w.o.Now())) })
	if errors.Is(err, errNotWritten) {
		return false, nil
	}

	return err == nil, err
}

// Fresh returns, in the form of the database, the time since which a definition counts as recently stored, so
// that a transition need not store it again.
func Fresh(now time.Time) string { return task.FormatTime(now.Add(-time.Hour)) }

// writeSession makes a transition. It fails with errNotWritten if the session does not have the expected
// revision.
func (t Tx) writeSession(s *store.SessionWrite, fresh string) {
	if s.Before < 0 {
		t.mustChange(store.ErrExists, addSession, append(Values(&s.Session), s.Frame)...)
	} else if t.Exec(keepStatus, s.Revision, s.Step, s.MovedBy, s.MachineID, s.Machine, s.Place, s.Definition,
		s.FailedTries, task.FormatTime(s.UpdatedAt), s.Frame, s.ID, s.Before, s.Status, s.Waiting) == 0 {
		t.mustChange(errNotWritten, moveSession, s.Revision, s.Step, s.Status, s.MovedBy, s.MachineID, s.Machine,
			s.Place, s.Definition, s.Waiting, s.FailedTries,
			task.FormatTime(s.UpdatedAt), s.Frame, s.ID, s.Before)
	}
	for _, w := range s.EndWork {
		t.endWork(&w)
	}
	for _, w := range s.PutWork {
		t.putWork(&w)
	}
	if d := s.Define; d != nil {
		t.Exec(addDefinition, d.Hash, string(d.Data), t.Now, d.Hash, fresh)
	}
	for _, p := range s.Gone {
		t.Exec(dropPart, s.ID, p.Kind, p.Key)
	}

	for some := range slices.Chunk(s.Put, partsAtOnce) {
		args := make([]any, 0, 5*len(some))
		for _, p := range some {
			args = append(args, s.ID, p.Kind, p.Key, p.Position, p.Body)
		}
		t.Exec(putParts+strings.Repeat(onePart, len(some)-1)+overParts, args...)
	}
	if s.Status != "active" {
		t.Exec(dropJudged, s.ID)
	}
	if s.Request != nil {
		key := hex.EncodeToString(s.Request[:])
		if t.Exec(addRequest, key, s.ID) == 0 &&
			(s.Before < 0 || t.has(`FROM session_requests WHERE key = ? AND session_id <> ?`, key, s.ID)) {
			t.Fail(store.ErrRequested)
		}
	}

	t.changed(store.SessionChanged, s.ID)
	if s.AttemptID != "" {
		t.moveAttempt(s)
	}

	for _, other := range s.Also {
		t.writeSession(other, fresh)
	}
}

// moveAttempt records the position of the workflow whose session has moved in an attempt's workspace. If the
// task names a workflow, only that one counts, unless it is nested in one of the same name; otherwise only a
// workflow that is not nested counts. A run records its own position.
func (t Tx) moveAttempt(s *store.SessionWrite) {
	var job, workflow, at *string
	if !t.First(`SELECT k.job_name, k.workflow_name, a.workflow_session_id FROM attempts a JOIN tasks k ON k.id = `+
		`a.task_id WHERE a.id = ? AND a.run IS NULL`,
		[]any{s.AttemptID}, &job, &workflow, &at) {
		return // the attempt was deleted
	}
	switch {
	case job != nil && (*job != s.Job || workflow == nil || *workflow != s.Workflow),
		job == nil && s.Parent != "",
		s.Status == "aborted" && at != nil && *at != s.ID: // a later workflow counts instead
		return
	}
	if s.Parent != "" && t.count(ancestry+
		` SELECT count(*) FROM chain JOIN workflow_sessions s ON s.id = chain.id WHERE s.job = ? AND s.workflow = ?`,
		s.Parent, s.Job, s.Workflow) > 0 {
		return
	}

	if t.Exec(`UPDATE attempts SET workflow_session_id = ?, workflow_status = ?, workflow_step = ?, updated_at = ? `+
		`WHERE id = ?
		AND NOT (coalesce(workflow_session_id, '') = ? AND coalesce(workflow_status, '') = ? AND `+
		`coalesce(workflow_step, '') = ?)`,
		s.ID, s.Status, s.Step, t.Now, s.AttemptID, s.ID, s.Status, s.Step) > 0 {
		t.changed(store.AttemptChanged, s.AttemptID)
	}
	if job == nil || s.Status != "completed" {
		return
	}

	// If its agent had ended before, somebody else has completed it, and the task must be reviewed.
	of := t.taskOf(s.AttemptID)
	if t.Exec(`UPDATE tasks SET status = 'inreview', updated_at = ? WHERE id = ? AND status = 'inprogress' AND `+
		`EXISTS (SELECT 1 FROM attempts WHERE id = ? AND state = 'completed')
		AND NOT EXISTS (SELECT 1 FROM attempts WHERE task_id = ? AND state IN ('waiting', 'starting', 'running'))`,
		t.Now, of, s.AttemptID, of) > 0 {
		t.changed(store.TaskChanged, of)
	}
}

// ancestry selects the ids of a session and of those around it.
const ancestry = `WITH RECURSIVE chain (id, parent, depth) AS (SELECT id, parent, 0 FROM workflow_sessions s WHERE ` +
	`id = ?
	UNION ALL SELECT s.id, s.parent, chain.depth + 1 FROM workflow_sessions s JOIN chain ON s.id = chain.parent ` +
	`WHERE chain.depth < 1000)`

// A partRow is a part with the revision of its session. Kind is nil if the session has no parts.
type partRow struct {
	Revision  int64
	Kind, Key *string
	Position  *int64
	Body      *string
}

func (w workflows) ReadSession(ctx context.Context, id string, known int64) (*store.SessionRecord, error) {
	doing := "reading session " + id
	if known >= 0 {
		revision, err := readOnce(ctx, w.Store, doing, func(t Tx) (revision int64) {
			if !t.First(`SELECT revision FROM workflow_sessions s WHERE id = ?`, []any{id}, &revision) {
				t.Fail(store.ErrNotFound)
			}
			return revision
		})
		switch {
		case err != nil:
			return nil, err
		case revision == known:
			return &store.SessionRecord{Session: store.Session{ID: id, Revision: known}}, nil
		}
	}

	for { // until nobody moves it between the two statements
		s, err := readOnce(ctx, w.Store, doing, func(t Tx) *store.SessionRecord {
			s := firstRow[store.SessionRecord](t,
				`SELECT `+sessionColumns+`, frame FROM workflow_sessions s WHERE id = ?`, id)
			if s == nil {
				t.Fail(store.ErrNotFound)
			}
			return s
		})
		if err != nil {
			return nil, err
		}

		parts, err := readOnce(ctx, w.Store, doing, func(t Tx) []partRow {
			return List[partRow](t,
				`SELECT s.revision, p.kind, p.key, p.position, p.body FROM workflow_sessions s LEFT JOIN `+
					`session_parts p ON p.session_id = s.id AND p.kind <> '`+store.JudgedPart+`'
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
				s.Parts = append(s.Parts, store.SessionPart{
					Kind:     *p.Kind,
					Key:      *p.Key,
					Position: *p.Position,
					Body:     *p.Body,
				})
			}
		}

		return s, nil
	}
}

func (w workflows) Judged(ctx context.Context, id, step string) (body string, err error) {
	return readOnce(ctx, w.Store, "reading what was handed in for a person in session "+id, func(t Tx) (body string) {
		t.First(`SELECT body FROM session_parts p WHERE session_id = ? AND kind = ? AND key = ?`,
			[]any{id, store.JudgedPart, step}, &body)
		return body
	})
}

func (w workflows) ListSessions(ctx context.Context, q store.SessionQuery) ([]store.Session, error) {
	if q.IDs != nil && len(q.IDs) == 0 || q.Parents != nil && len(q.Parents) == 0 || !w.db.Exists() {
		return nil, nil // merely listing sessions must not create a database
	}

	var where []string
	var args []any
	require := func(condition string, values ...any) {
		where, args = append(where, condition), append(args, values...)
	}
	among := func(column string, ids []string) {
		condition, values := inCondition(column, ids)
		require(condition, values...)
	}
	if q.IDs != nil {
		among("id", q.IDs)
	}
	if q.Parents != nil {
		among("parent", q.Parents)
	}
	if q.Identity != "" {
		require(`identity = ?`, q.Identity)
	}
	if q.Root != "" {
		require(`root = ?`, q.Root)
	}
	if q.Active {
		require(`status = 'active'`)
	}
	if q.Ended {
		require(`status <> 'active'`)
	}
	if q.Attempt != nil {
		require(`attempt_id = ?`, *q.Attempt)
	}
	if q.Waiting {
		require(`waiting <> ''`)
	}
	if !q.Before.IsZero() {
		require(`updated_at < ?`, task.FormatTime(q.Before))
	}

	columns, order := sessionColumns, ` ORDER BY updated_at DESC, id`
	if q.Brief {
		columns, order = `id, job, workflow, step, status`, ``
	}
	query := `SELECT ` + columns + ` FROM workflow_sessions s`
	if where != nil {
		query += ` WHERE ` + strings.Join(where, ` AND `)
	}
	query += order
	if q.Limit > 0 {
		query += fmt.Sprintf(` LIMIT %d`, q.Limit)
	}
	return readOnce(ctx, w.Store, "listing the sessions", func(t Tx) []store.Session {
		return List[store.Session](t, query, args...)
	})
}

func (w workflows) Ancestry(ctx context.Context, id string) ([]store.Session, error) {
	query := ancestry + ` SELECT s.` + strings.ReplaceAll(sessionColumns, ", ", ", s.") +
		` FROM chain JOIN workflow_sessions s ON s.id = chain.id ORDER BY chain.depth`
	all, err := readOnce(ctx, w.Store, "reading what session "+id+" is nested in", func(t Tx) []store.Session {
		return List[store.Session](t, query, id)
	})
	for i := range all { // a cycle, which only an import can make, once around
		if slices.ContainsFunc(all[:i], func(s store.Session) bool { return s.ID == all[i].ID }) {
			all = all[:i]
			break
		}
	}
	slices.Reverse(all)
	return all, err
}

// inCondition returns the condition that a column has one of some values.
func inCondition(column string, values []string) (condition string, args []any) {
	n := 1 << bits.Len(uint(len(values)-1)) // keeps the number of different statements small
	for i := range n {
		args = append(args, values[min(i, len(values)-1)])
	}
	return column + ` IN (` + parameters(n) + `)`, args
}

// removedAtOnce is how many sessions one transaction removes, so that others get their turns.
const removedAtOnce = 256

func (w workflows) RemoveSessions(ctx context.Context, ids []string) error {
	for some := range slices.Chunk(ids, removedAtOnce) {
		err := change(ctx, w.Store, "removing sessions", func(t Tx) {
			these, args := inCondition("id", some)
			gone := List[string](t, `DELETE FROM workflow_sessions WHERE status <> 'active' AND `+these+
				` RETURNING id`, args...)
			if len(gone) == 0 {
				return
			}
			these, args = inCondition("session_id", gone)
			for _, table := range []string{"session_parts", "session_requests"} {
				t.Exec(`DELETE FROM `+table+` WHERE `+these, args...)
			}

			for _, id := range gone {
				t.changed(store.SessionChanged, id)
			}
		})
		if err != nil {
			return err
		}
	}

	return nil
}

func (w workflows) FindRequest(ctx context.Context, key store.Key) (id string, err error) {
	return readOnce(ctx, w.Store, "looking for a request_id", func(t Tx) (id string) {
		t.First(`SELECT session_id FROM session_requests r WHERE key = ?`, []any{hex.EncodeToString(key[:])}, &id)
		return id
	})
}

func (w workflows) Definition(ctx context.Context, hash string) ([]byte, error) {
	return readOnce(ctx, w.Store, "reading definition "+hash, func(t Tx) []byte {
		var data string
		if !t.First(`SELECT data FROM definitions d WHERE hash = ?`, []any{hash}, &data) {
			t.Fail(store.ErrNotFound)
		}
		return []byte(data)
	})
}

func (w workflows) PruneDefinitions(ctx context.Context, kept time.Duration) (int, error) {
	n, err := statement(ctx, w.Store, "removing definitions", Swapping, `DELETE FROM definitions WHERE put_at < ?
		AND hash NOT IN (SELECT definition FROM workflow_sessions UNION SELECT pinned FROM workflow_sessions)`,
		task.FormatTime(w.o.Now().Add(-kept)))
	return int(n), err
}
