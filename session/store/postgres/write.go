package postgres

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"deepwork/actor/wait"
	"deepwork/session/store"
)

// Create implements store.Sessions. A request_id starts one session: if another record was created for
// the one noted, nothing is written.
func (r *Records) Create(ctx context.Context, id string, body []byte) error {
	ctx, scope, cancel, err := r.call(ctx, id, false)
	defer cancel()
	var made bool
	if err == nil {
		r.remember(id, row{})
		if made, err = r.write(ctx, scope, id, body); err == nil && !made {
			err = store.ErrExists
		}
	}
	if err != nil {
		r.mu.Lock()
		delete(r.open, id) // it is read before it is written again
		r.mu.Unlock()
		r.Forget(id)
	}
	return wrap("creating session", id, err)
}

// Write implements store.Sessions. A *store.OwnedError reports that the record is no longer as this
// process read or wrote it last: it must be read again.
func (r *Records) Write(ctx context.Context, id string, body []byte) error {
	ctx, scope, cancel, err := r.call(ctx, id, false)
	defer cancel()
	var made bool
	if err == nil {
		if _, err = r.settle(ctx, scope, id); err == nil {
			if made, err = r.write(ctx, scope, id, body); err == nil && !made {
				err = r.owned(ctx, scope, id)
			}
		}
	}
	return wrap("writing session", id, err)
}

// Update implements store.Sessions. change may be called again, if another process has changed the
// record, or its owner has a new term.
func (r *Records) Update(ctx context.Context, id string, change func(body []byte) ([]byte, error)) error {
	ctx, scope, cancel, err := r.call(ctx, id, false)
	defer cancel()
	if err == nil {
		_, err = r.settle(ctx, scope, id)
	}
	for made := false; err == nil && !made; {
		var now row
		var body []byte
		if now, body, err = r.read(ctx, scope, id); err != nil {
			break
		}
		r.remember(id, now)
		next, refused := change(body)
		if refused != nil || next == nil {
			return refused
		}
		made, err = r.write(ctx, scope, id, next)
	}
	return wrap("updating session", id, err)
}

// What a write stores: $1 scope, $2 id, $3 owner, $4 its term, $5 transition, $6 caller, $7 body, and for
// a new record $8 the request that creates it. An update names owner $8, term $9 and version $10 of the
// row.
const (
	insertText = `INSERT INTO @session_records AS s (scope, id, version, owner, term, transition, caller, body, request) VALUES ($1, $2, 1, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (scope, id) DO UPDATE SET version = 1, owner = $3, term = $4, transition = $5, caller = $6, body = $7, request = $8, updated_at = clock_timestamp() WHERE s.version = 0`
	updateText = `UPDATE @session_records SET version = version + 1, owner = $3, term = $4, transition = $5, caller = $6, body = $7, updated_at = clock_timestamp()
		WHERE scope = $1 AND id = $2 AND owner = $8 AND term = $9 AND version = $10`
	insertNoted = `WITH noted AS (INSERT INTO @request_ids (scope, key, session) VALUES ($1, $8, $2) ON CONFLICT DO NOTHING) ` + insertText
	updateNoted = `WITH noted AS (INSERT INTO @request_ids (scope, key, session) VALUES ($1, $11, $2) ON CONFLICT DO NOTHING) ` + updateText
)

// write replaces a record by body, or makes it, if the row is as it is known. It reports false if it is
// not. Its errors mean that nothing was written, except store.ErrPending.
func (r *Records) write(ctx context.Context, scope int64, id string, body []byte) (made bool, err error) {
	if len(body) > maxRecord {
		return false, fmt.Errorf("a record of %d bytes is over the limit of %d", len(body), maxRecord)
	}
	r.mu.Lock()
	key, noted := r.pending[id]
	delete(r.pending, id)
	r.mu.Unlock()
	begun := time.Now()
	for {
		term, err := r.s.enter(ctx)
		if err != nil {
			return false, err
		}
		a := r.attempt(id, term, body)
		args := []any{scope, id, a.after.owner, a.after.term, a.transition, a.caller, string(body)}
		text, withNote := insertText, insertNoted
		if a.before.version > 0 {
			args = append(args, a.before.owner, a.before.term, a.before.version)
			text, withNote = updateText, updateNoted
		}
		if noted {
			args, text = append(args, hex.EncodeToString(key[:])), withNote
		} else if a.before.version == 0 {
			args = append(args, nil)
		}
		within, cancel := half(ctx)
		changed, err := r.s.exec(within, text, args...)
		cancel()
		switch {
		case err == nil && changed > 0:
			made = true
		case err == nil:
			if a.before.owner != r.s.id {
				return false, nil
			}
			if now, _ := r.s.Term(); now == term {
				// A statement of an earlier term that arrived after the sessions were moved from it left this one behind.
				moved, err := r.s.exec(ctx, `UPDATE @session_records SET term = $3 WHERE scope = $1 AND id = $2 AND term < $3 AND owner = $4 AND version = $5`, scope, id, term, r.s.id, a.before.version)
				if err != nil || moved == 0 {
					return false, r.s.explain(err)
				}
			}
		case !sure(err):
			r.mu.Lock()
			r.open[id] = a
			r.mu.Unlock()
			if made, err = r.settle(ctx, scope, id); err != nil && r.undecided(id) {
				return false, fmt.Errorf("%w: %w", store.ErrPending, err)
			} else if err != nil {
				return false, err
			}
		case requested(err):
			return false, errors.New("another call with this request_id has started a session meanwhile")
		case !passing(err) || time.Since(begun) > patience || wait.For(ctx, 20*time.Millisecond) != nil:
			return false, r.s.explain(err)
		}
		if made {
			r.remember(id, a.after)
			r.s.report(id)
			return true, nil
		}
		if ctx.Err() != nil {
			return false, r.s.explain(ctx.Err())
		}
	}
}

// attempt returns what a write of body in a term expects and makes.
func (r *Records) attempt(id string, term int64, body []byte) *attempt {
	a := &attempt{before: r.recall(id), transition: randomHex()}
	a.after.version = a.before.version + 1
	h := r.o.Head(body)
	if a.after.owner = h.Owner; h.Active {
		a.caller = hex.EncodeToString(h.Caller[:])
	}
	if a.before.owner == r.s.id {
		a.before.term = term // a new term has moved the row to it
	}
	switch a.after.owner {
	case r.s.id:
		a.after.term = term
	case a.before.owner:
		a.after.term = a.before.term
	}
	return a
}

// owned returns the error of a write that found another row than the known one.
func (r *Records) owned(ctx context.Context, scope int64, id string) error {
	now, _, err := r.read(ctx, scope, id)
	r.Forget(id)
	if err != nil {
		return err
	}
	e := &store.OwnedError{ID: id, Owner: now.owner, Where: "nobody now"}
	if now.owner != "" {
		if e.Where = r.s.Describe(now.owner); now.owner == r.s.id {
			e.Where = "this one, which did not write it last"
		}
	}
	return e
}
