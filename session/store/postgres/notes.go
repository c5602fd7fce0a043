package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"iter"

	"deepwork/session/store"
)

// NoteRequest implements store.RequestIDs.
func (r *Records) NoteRequest(ctx context.Context, key store.Key, id string) error {
	if r.o.Head != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.pending[id] = key
		return nil
	}
	return r.note(ctx, id, `INSERT INTO @request_ids (scope, session, key) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, hex.EncodeToString(key[:]))
}

// NoteActive implements store.ActiveSessions.
func (r *Records) NoteActive(ctx context.Context, caller store.Key, id string, over bool) error {
	if r.o.Head != nil {
		return nil
	}
	who := hex.EncodeToString(caller[:])
	if over {
		who = ""
	}
	return r.note(ctx, id, `INSERT INTO @session_records (scope, id, owner, term, version, transition, caller) VALUES ($1, $2, '', 0, 0, '', $3)
		ON CONFLICT (scope, id) DO UPDATE SET caller = $3, updated_at = clock_timestamp()`, who)
}

// NoteNewest implements store.Sessions.
func (r *Records) NoteNewest(ctx context.Context, id string, number int64) error {
	if r.o.Head != nil {
		return nil
	}
	return r.note(ctx, id, `INSERT INTO @session_records (scope, id, owner, term, version, transition, newest) VALUES ($1, $2, '', 0, 0, '', $3)
		ON CONFLICT (scope, id) DO UPDATE SET newest = $3`, number)
}

func (r *Records) note(ctx context.Context, id, query string, value any) error {
	ctx, scope, cancel, err := r.call(ctx, id, false)
	defer cancel()
	if err == nil {
		err = r.s.again(ctx, func() error {
			_, err := r.s.exec(ctx, query, scope, id, value)
			return err
		})
	}
	return wrap("noting something of session", id, err)
}

// Newest implements store.Sessions.
func (r *Records) Newest(ctx context.Context, id string) (number int64) {
	if r.o.Head != nil {
		return 0
	}
	ctx, scope, cancel, err := r.call(ctx, id, true)
	defer cancel()
	if err == nil {
		_, err = r.s.first(ctx, `SELECT coalesce(newest, 0) FROM @session_records WHERE scope = $1 AND id = $2`, []any{scope, id}, &number)
	}
	if err != nil {
		r.s.o.Logger.Warn("reading the number of a session's newest record", "session", id, "error", err)
	}
	return number
}

// FindRequest implements store.RequestIDs.
func (r *Records) FindRequest(ctx context.Context, key store.Key) ([]string, error) {
	ids, err := r.ids(ctx, `SELECT session FROM @request_ids WHERE scope = $1 AND key = $2 ORDER BY noted_at DESC`, key)
	if err != nil {
		return nil, fmt.Errorf("looking for a request_id: %w", err)
	}
	return ids, nil
}

// Active implements store.ActiveSessions.
func (r *Records) Active(ctx context.Context, caller store.Key) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		ids, err := r.ids(ctx, `SELECT id FROM @session_records WHERE scope = $1 AND caller = $2 AND caller <> '' ORDER BY updated_at DESC`, caller)
		if err != nil {
			yield("", fmt.Errorf("looking for active sessions: %w", err))
			return
		}
		for _, id := range ids {
			if !yield(id, nil) {
				return
			}
		}
	}
}

func (r *Records) ids(ctx context.Context, query string, key store.Key) ([]string, error) {
	ctx, scope, cancel, err := r.call(ctx, "", true)
	defer cancel()
	if err != nil {
		return nil, err
	}
	return list(ctx, r.s, func(rows *sql.Rows, id *string) error { return rows.Scan(id) }, query, scope, hex.EncodeToString(key[:]))
}
