package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"iter"

	"deepwork/session/store"
)

// NoteRequest implements store.RequestIDs: the next write of the session's record stores it.
func (r *Records) NoteRequest(_ context.Context, key store.Key, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending[id] = key
	return nil
}

// NoteActive implements store.ActiveSessions: each write stores whether the session is active.
func (r *Records) NoteActive(context.Context, store.Key, string, bool) error { return nil }

// NoteNewest implements store.Sessions: nobody but the owner of a row can put back an older one.
func (r *Records) NoteNewest(context.Context, string, int64) error { return nil }

// Newest implements store.Sessions.
func (r *Records) Newest(context.Context, string) int64 { return 0 }

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
