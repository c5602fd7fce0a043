package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"deepwork/session/store"
)

// maxRecord bounds a record, as in files.
const maxRecord = 64 << 20

var errReadOnly = errors.New("the store was opened read-only")

// Records are the sessions of the project. What is noted about a session is stored by the next write
// of its record, in the same transaction. RecordOptions.Keys is not used.
type Records struct {
	s *Store
	o store.RecordOptions

	mu      sync.Mutex // guards the following fields
	known   map[string]row
	pending map[string]store.Key // of the call that the next write of a session stores
	open    map[string]*attempt  // writes whose outcome is unknown, by session
}

// A row is what must be unchanged for a write: the state that this process read or wrote last.
type row struct {
	version int64 // 0 means that there is no record
	owner   string
	term    int64
}

// An attempt is a write that may have been made.
type attempt struct {
	before     row
	after      row
	caller     string // of an active session; "" of another
	transition string // of the row that the write makes
	fence      string // of the row after the write can no longer be made
}

// Records returns the sessions of the project.
func (s *Store) Records(o store.RecordOptions) (store.Records, error) {
	return &Records{s: s, o: o, known: map[string]row{}, pending: map[string]store.Key{}, open: map[string]*attempt{}}, nil
}

// Close does nothing: closing the Store ends the lease.
func (r *Records) Close(context.Context) error { return nil }

func checkID(id string) error {
	for _, c := range []byte(id) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			id = id + "?"
			break
		}
	}
	if len(id) != 8 {
		return fmt.Errorf("%.40q is not a session id, which is 8 lower-case hexadecimal characters", id)
	}
	return nil
}

// call begins a call that writes, or, with reads, one that does not.
func (r *Records) call(ctx context.Context, id string, reads bool) (_ context.Context, scope int64, cancel context.CancelFunc, err error) {
	ctx, cancel = r.s.deadline(ctx)
	switch err = ctx.Err(); {
	case err != nil:
	case (r.o.ReadOnly || r.s.o.ReadOnly) && !reads:
		err = errReadOnly
	case id != "":
		err = checkID(id)
		if err != nil && reads {
			err = fmt.Errorf("%w: %w", store.ErrNotFound, err)
		}
	}
	if err == nil {
		scope, err = r.s.connect(ctx)
	}
	return ctx, scope, cancel, err
}

func (r *Records) recall(id string) row {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[id]
}

func (r *Records) remember(id string, now row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[id] = now
}

// Forget implements store.Sessions. The outcome of a write that is unknown stays to be settled.
func (r *Records) Forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, id)
	delete(r.pending, id)
}

// Read implements store.Sessions. It first settles a write whose outcome is unknown.
func (r *Records) Read(ctx context.Context, id string) ([]byte, error) {
	ctx, scope, cancel, err := r.call(ctx, id, true)
	defer cancel()
	var body []byte
	if err == nil && !r.o.ReadOnly && !r.s.o.ReadOnly {
		// If others have changed the record since, it can be read all the same.
		if _, err = r.settle(ctx, scope, id); errors.Is(err, store.ErrPending) {
			err = nil
		}
	}
	if err == nil {
		var now row
		if now, body, err = r.read(ctx, scope, id); err == nil {
			r.remember(id, now)
		}
	}
	return body, wrap("reading session", id, err)
}

// Peek implements store.Sessions.
func (r *Records) Peek(ctx context.Context, id string) ([]byte, error) {
	ctx, scope, cancel, err := r.call(ctx, id, true)
	defer cancel()
	var body []byte
	if err == nil {
		_, body, err = r.read(ctx, scope, id)
	}
	return body, wrap("reading session", id, err)
}

func (r *Records) read(ctx context.Context, scope int64, id string) (now row, body []byte, err error) {
	var text string
	found := false
	err = r.s.again(ctx, func() (err error) {
		found, err = r.s.first(ctx, `SELECT version, owner, term, body FROM @session_records WHERE scope = $1 AND id = $2 AND body IS NOT NULL`,
			[]any{scope, id}, &now.version, &now.owner, &now.term, &text)
		return err
	})
	if err == nil && !found {
		err = store.ErrNotFound
	}
	return now, []byte(text), err
}

// List implements store.Sessions.
func (r *Records) List(ctx context.Context) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		ctx, scope, cancel, err := r.call(ctx, "", true)
		defer cancel()
		var all []store.Info
		if err == nil {
			all, err = list(ctx, r.s, func(rows *sql.Rows, i *store.Info) error { return rows.Scan(&i.ID, &i.ModTime, &i.Size) },
				`SELECT id, updated_at, octet_length(body) FROM @session_records WHERE scope = $1 AND body IS NOT NULL`, scope)
		}
		if err != nil {
			yield(store.Info{}, err)
			return
		}
		for _, info := range all {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// Remove implements store.Sessions.
func (r *Records) Remove(ctx context.Context, id string) error {
	ctx, scope, cancel, err := r.call(ctx, id, false)
	defer cancel()
	if err == nil {
		_, err = r.settle(ctx, scope, id)
	}
	if err == nil {
		err = r.s.again(ctx, func() error {
			_, err := r.s.exec(ctx, `DELETE FROM @session_records WHERE scope = $1 AND id = $2`, scope, id)
			return err
		})
	}
	if err == nil {
		r.Forget(id)
		r.s.report(id)
	}
	return wrap("removing session", id, err)
}

// Settle does nothing: what can be read is durable.
func (r *Records) Settle(context.Context) error { return nil }

func wrap(doing, id string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %.40s: %w", doing, id, err)
}

// half returns a context for one statement that leaves as much time again to learn its outcome.
func half(ctx context.Context) (context.Context, context.CancelFunc) {
	left := callTime
	if until, ok := ctx.Deadline(); ok {
		left = time.Until(until)
	}
	return context.WithTimeout(ctx, left/2)
}
