package postgres

import (
	"context"
	"fmt"

	"deepwork/session/store"
)

// If the reply to a write is lost, it was made, or not, or it is still on its way. So the row is first
// changed to a next version, if it is as it was before the write: this waits for a write in progress,
// and one that arrives later finds another version. Then the transition in the row says what happened.

const fenceText = `INSERT INTO @session_records AS s (scope, id, owner, term, version, transition) VALUES ($1, $2, '', 0, 1, $3)
	ON CONFLICT (scope, id) DO UPDATE SET version = s.version + 1, transition = $3 WHERE s.version = $4`

// settle learns the outcome of a write of a record that is unknown, if there is one, and reports
// whether it was made. store.ErrPending means that another process has changed the record since.
func (r *Records) settle(ctx context.Context, scope int64, id string) (made bool, err error) {
	r.mu.Lock()
	a := r.open[id]
	r.mu.Unlock()
	if a == nil {
		return false, nil
	}
	if a.fence == "" {
		a.fence = randomHex()
	}
	var version int64
	var transition string
	err = r.s.persist(ctx, callTime, func() error {
		if _, err := r.s.exec(ctx, fenceText, scope, id, a.fence, a.before.version); err != nil {
			return err
		}
		version = 0 // also of a row that was removed
		_, err := r.s.first(ctx, `SELECT version, transition FROM @session_records WHERE scope = $1 AND id = $2`, []any{scope, id}, &version, &transition)
		return err
	})
	if err != nil {
		return false, r.s.explain(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, id)
	switch {
	case transition == a.transition && version > 0:
		r.known[id] = a.after
		return true, nil
	case transition == a.fence && a.before.version > 0:
		a.before.version = version
		r.known[id] = a.before
	case transition == a.fence: // the row keeps its id from being used
		return false, fmt.Errorf("the database has lost session %s on its way: %w", id, store.ErrUnavailable)
	case version > a.before.version+1:
		return false, fmt.Errorf("%w: another server has changed session %s since", store.ErrPending, id)
	}
	return false, nil
}

// undecided reports whether the outcome of a write of a record is unknown.
func (r *Records) undecided(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open[id] != nil
}
