package postgres

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"time"

	"deepwork/session/store"
)

// freshFor is how old a definition may grow before putting it again renews it, and half of how long
// PruneDefinitions spares it: the record that refers to it may not be written yet.
const freshFor = time.Hour

// PutDefinition implements store.Definitions.
func (r *Records) PutDefinition(ctx context.Context, hash string, data []byte) error {
	ctx, scope, cancel, err := r.call(ctx, "", false)
	defer cancel()
	if len(data) > maxRecord {
		err = fmt.Errorf("a definition of %d bytes is over the limit of %d", len(data), maxRecord)
	}
	if err == nil {
		err = r.s.again(ctx, func() error {
			var fresh bool
			found, err := r.s.first(ctx, `SELECT put_at > clock_timestamp() - interval '1 hour' FROM @definitions WHERE scope = $1 AND hash = $2`, []any{scope, hash}, &fresh)
			if err != nil || found && fresh {
				return err
			}
			_, err = r.s.exec(ctx, `INSERT INTO @definitions (scope, hash, data) VALUES ($1, $2, $3) ON CONFLICT (scope, hash) DO UPDATE SET put_at = clock_timestamp()`, scope, hash, data)
			return err
		})
	}
	return wrap("keeping definition", hash, err)
}

// Definition implements store.Definitions.
func (r *Records) Definition(ctx context.Context, hash string) (data []byte, err error) {
	ctx, scope, cancel, err := r.call(ctx, "", true)
	defer cancel()
	found := false
	if err == nil {
		err = r.s.again(ctx, func() (err error) {
			found, err = r.s.first(ctx, `SELECT data FROM @definitions WHERE scope = $1 AND hash = $2`, []any{scope, hash}, &data)
			return err
		})
	}
	if sum := sha256.Sum256(data); err == nil && !found {
		err = store.ErrNotFound
	} else if err == nil && hex.EncodeToString(sum[:]) != hash {
		err = &store.DamagedError{ID: hash, Path: r.s.where, Reason: "its checksum does not match: it was altered"}
	}
	return data, wrap("reading definition", hash, err)
}

// PruneDefinitions implements store.Definitions. It also removes what was noted of sessions that do not
// exist.
func (r *Records) PruneDefinitions(ctx context.Context, cutoff time.Time, needed func(hash string) bool) (removed int, err error) {
	ctx, scope, cancel, err := r.call(ctx, "", false)
	defer cancel()
	age := max(time.Since(cutoff), 2*freshFor).Seconds() // by the clock of the database
	var hashes []string
	if err == nil {
		hashes, err = list(ctx, r.s, func(rows *sql.Rows, hash *string) error { return rows.Scan(hash) }, `SELECT hash FROM @definitions WHERE scope = $1 AND put_at < clock_timestamp() - make_interval(secs => $2)`, scope, age)
	}
	for i := 0; i < len(hashes) && err == nil; i++ {
		if needed(hashes[i]) {
			continue
		}
		var n int64
		n, err = r.s.exec(ctx, `DELETE FROM @definitions WHERE scope = $1 AND hash = $2 AND put_at < clock_timestamp() - make_interval(secs => $3)`, scope, hashes[i], age)
		removed += int(n)
	}
	if err == nil {
		_, err = r.s.exec(ctx, `WITH x AS (DELETE FROM @session_records WHERE scope = $1 AND body IS NULL AND newest IS NULL AND updated_at < clock_timestamp() - make_interval(secs => $2))
			DELETE FROM @request_ids r WHERE scope = $1 AND noted_at < clock_timestamp() - make_interval(secs => $2) AND NOT EXISTS (SELECT FROM @session_records s WHERE s.scope = $1 AND s.id = r.session)`, scope, age)
	}
	return removed, wrap("pruning the definitions of", r.s.o.Project, r.s.explain(err))
}
