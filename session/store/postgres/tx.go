package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"deepwork/actor/wait"
	"deepwork/session/store"
	"deepwork/session/store/sqlstore"

	"github.com/jackc/pgx/v5/pgconn"
)

// A querier runs statements in a transaction; parameters are ? or ?1.
type querier struct {
	s *Store
	c *sql.Conn
}

// text is that of the store; an id is unique in a project.
func (q querier) text(query string) string {
	return q.s.text(strings.Replace(query, "ON CONFLICT (", "ON CONFLICT (scope, ", 1))
}

func (q querier) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return q.c.ExecContext(ctx, q.text(query), plain(args)...)
}

func (q querier) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return q.c.QueryContext(ctx, q.text(query), plain(args)...)
}

func (q querier) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return q.c.QueryRowContext(ctx, q.text(query), plain(args)...)
}

// A process that is suspended within a transaction keeps others waiting until the server ends it.
const beginText = `; SET LOCAL idle_in_transaction_session_timeout = 2000; SET LOCAL search_path = %s; SET LOCAL statement_timeout = %d; SET LOCAL lock_timeout = %[2]d; SET LOCAL deepwork.scope = '%d'`

// errLapsed is the error of a transaction that found that the lease of this process has ended.
var errLapsed = errors.New("the lease of this process has ended")

// Transact implements sqlstore.Database. The tables of the project are in the search path. f runs
// again also if the connection is lost before the end. If a commit is not confirmed, Transact asks
// for its outcome; store.ErrPending means that it could not be learned.
func (s *Store) Transact(ctx context.Context, mode sqlstore.Mode, f func(context.Context, sqlstore.Querier) error) error {
	err := s.transact(ctx, mode, f)
	if err == nil && mode != sqlstore.Reading && mode != sqlstore.Looking {
		s.hint()
	}
	if ended := ctx.Err(); ended != nil && errors.Is(err, store.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", err, ended)
	}
	return err
}

func (s *Store) transact(ctx context.Context, mode sqlstore.Mode, f func(context.Context, sqlstore.Querier) error) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	scope, err := s.connect(ctx)
	if err != nil {
		return err
	}
	if mode == sqlstore.Looking {
		return s.again(ctx, func() error { return f(ctx, looker{s, scope}) })
	}
	if mode == sqlstore.Reading {
		return s.again(ctx, func() error { return s.once(ctx, scope, 0, "", false, false, f) })
	}
	if mode == sqlstore.Swapping {
		return s.again(ctx, func() error {
			err := s.once(ctx, scope, 0, "", false, true, f)
			if _, unknown := errors.AsType[*unconfirmed](err); unknown {
				return fmt.Errorf("%w: the database did not confirm the change: %w", store.ErrPending, err)
			}
			return err
		})
	}
	// Those of this process wait here, without a connection.
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
	case <-ctx.Done():
		return s.explain(ctx.Err())
	}
	return s.again(ctx, func() error {
		term, err := s.enter(ctx)
		if err != nil {
			return err
		}
		token := randomHex()
		err = s.once(ctx, scope, term, token, mode == sqlstore.Unsynced, true, f)
		if errors.Is(err, errLapsed) {
			s.lease.lapse(term)
		}
		if _, unknown := errors.AsType[*unconfirmed](err); unknown {
			return s.outcome(scope, token, err)
		}
		return err
	})
}

// unconfirmed is the error of a commit that may have been made.
type unconfirmed struct{ error }

func (e *unconfirmed) Unwrap() error { return e.error }

// once runs f in one transaction, which changes something; with a term, in one that has the lock of the
// project and stores a token.
func (s *Store) once(ctx context.Context, scope, term int64, token string, unsynced, changes bool, f func(context.Context, sqlstore.Querier) error) (err error) {
	c, err := s.pool.Conn(ctx)
	if err != nil {
		return &notSent{err}
	}
	defer c.Close() // also discards a connection that is in a transaction
	begin := "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
	if changes {
		begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
	}
	left, within := callTime, ctx
	if changes { // a change that has begun is finished
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(context.WithoutCancel(ctx), left)
		defer cancel()
	} else if until, ok := ctx.Deadline(); ok {
		left = max(time.Until(until), time.Millisecond)
	}
	begin += fmt.Sprintf(beginText, s.schema, left.Milliseconds()+1, scope)
	if unsynced {
		begin += "; SET LOCAL synchronous_commit = off"
	}
	if term > 0 {
		// The lease is checked while the lock is held: a process that takes over from this process waits for it.
		begin += fmt.Sprintf(`; SELECT pg_advisory_xact_lock(hashtextextended('deepwork writes %s', %d)); INSERT INTO commits
			SELECT id, '%s' FROM members WHERE id = '%s' AND term = %d AND expires > clock_timestamp() FOR KEY SHARE
			ON CONFLICT (member) DO UPDATE SET token = EXCLUDED.token`, s.schema, scope, token, s.id, term)
	}
	err = raw(c, func(p *pgconn.PgConn) error {
		all, err := p.Exec(ctx, begin).ReadAll()
		if err == nil && term > 0 && all[len(all)-1].CommandTag.RowsAffected() == 0 {
			err = errLapsed
		}
		return err
	})
	done := false
	defer func() {
		if !done {
			raw(c, func(p *pgconn.PgConn) error {
				_, err := p.Exec(within, "ROLLBACK").ReadAll()
				return err
			})
		}
	}()
	if err == nil {
		err = f(within, querier{s, c})
	}
	if err != nil {
		return err
	}
	done = true
	return raw(c, func(p *pgconn.PgConn) error {
		within, cancel := context.WithTimeout(context.WithoutCancel(within), callTime/2)
		defer cancel()
		all, err := p.Exec(within, "COMMIT").ReadAll()
		switch {
		case err == nil && all[0].CommandTag.String() != "COMMIT":
			return errors.New("the transaction was rolled back, since one of its statements had failed")
		case err != nil && changes && !sure(err):
			return &unconfirmed{err}
		}
		return err
	})
}

// outcome reports whether the transaction that stored a token was committed: nil, or its error, if it
// was not. This process stores no other token meanwhile.
func (s *Store) outcome(scope int64, token string, lost error) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	var last string
	err := s.persist(ctx, callTime, func() error {
		return s.onConn(ctx, func(p *pgconn.PgConn) error {
			// Who gets the lock after it sees its end. The statement that takes the lock sees the
			// state of before.
			all, err := p.Exec(ctx, fmt.Sprintf(`BEGIN; SET LOCAL lock_timeout = 5000; SELECT pg_advisory_xact_lock(hashtextextended('deepwork writes %s', %d));
				SELECT token FROM %[1]s.commits WHERE member = '%[3]s'; COMMIT`, s.schema, scope, s.id)).ReadAll()
			if err == nil && len(all[3].Rows) > 0 {
				last = string(all[3].Rows[0][0])
			}
			return err
		})
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w: the database does not say whether it has made the change: %w", store.ErrPending, err)
	case last == token:
		return nil
	}
	return &notSent{errors.Unwrap(lost)}
}

// patience is how long a call repeats what was certainly not carried out, as after a restart of the
// database.
const patience = 2 * time.Second

// again calls f until it succeeds or its error is final, for a short time, and explains the error.
func (s *Store) again(ctx context.Context, f func() error) error {
	return s.explain(s.persist(ctx, patience, f))
}

func (s *Store) persist(ctx context.Context, at time.Duration, f func() error) error {
	begun := time.Now()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 300*time.Millisecond) {
		err := f()
		if err == nil || !passing(err) || time.Since(begun)+pause > at || s.closing.Err() != nil || wait.For(ctx, pause) != nil {
			return err
		}
	}
}
