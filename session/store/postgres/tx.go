package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
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

// text returns the store's text of a statement; an id is unique within a project.
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

// A process that is suspended within a transaction makes others wait until the server ends the transaction.
const beginText = `; SET LOCAL idle_in_transaction_session_timeout = 2000; SET LOCAL search_path = %s; SET LOCAL ` +
	`statement_timeout = %d; SET LOCAL lock_timeout = %[2]d; SET LOCAL deepwork.scope = '%d'`

// Each transaction begins by reading the schema's version and the database's clock. A changing transaction
// also reads its id, by which its outcome is found if the reply to its commit is lost, and the start time of
// the server, which may reuse ids after a restart.
const (
	looksText   = `; SELECT version, extract(epoch FROM clock_timestamp()) FROM schema_version`
	changesText = `; SELECT version, extract(epoch FROM clock_timestamp()), pg_current_xact_id(), extract(epoch ` +
		`FROM pg_postmaster_start_time()) FROM schema_version`
)

// Transact implements sqlstore.Dialect. The project's tables are in the search path. f runs again also if the
// connection is lost before the end. If a commit is not confirmed, Transact asks for its outcome;
// store.ErrPending means that it could not be determined.
func (s *Store) Transact(
	ctx context.Context, mode sqlstore.Mode, f func(context.Context, sqlstore.Querier) error,
) error {
	err := s.transact(ctx, mode, f)
	if err == nil && mode != sqlstore.Reading && mode != sqlstore.Looking {
		s.hint()
	}

	if ended := ctx.Err(); ended != nil && errors.Is(err, store.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", err, ended)
	}
	return err
}

func (s *Store) transact(
	ctx context.Context, mode sqlstore.Mode, f func(context.Context, sqlstore.Querier) error,
) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	scope, err := s.connect(ctx)
	if err != nil {
		return err
	}
	if mode == sqlstore.Looking {
		return s.retry(ctx, func() error { return f(ctx, singleReader{s, scope}) })
	}

	how := kind{
		scope:    scope,
		reads:    mode == sqlstore.Reading,
		alone:    mode != sqlstore.Swapping,
		unsynced: mode == sqlstore.Unsynced,
	}
	if how.reads || !how.alone {
		return s.retry(ctx, func() error { return s.inTransaction(ctx, how, f) })
	}

	// Transactions of this process wait here, without a connection.
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
	case <-ctx.Done():
		return s.explain(ctx.Err())
	}
	return s.retry(ctx, func() error { return s.inTransaction(ctx, how, f) })
}

// A kind describes a transaction.
type kind struct {
	scope    int64
	reads    bool // changes nothing
	alone    bool // has the lock of the project, if it changes something
	unsynced bool
}

// inTransaction runs f in one transaction.
func (s *Store) inTransaction(
	ctx context.Context, how kind, f func(context.Context, sqlstore.Querier) error,
) (err error) {
	c, err := s.pool.Conn(ctx)
	if err != nil {
		return &notSent{err}
	}
	defer c.Close() // also discards a connection with an open transaction

	begin := "BEGIN ISOLATION LEVEL READ COMMITTED"
	if how.reads {
		begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
	}

	left, within := callTime, ctx
	if !how.reads { // a change that has begun must be finished
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(context.WithoutCancel(ctx), left)
		defer cancel()
	} else if until, ok := ctx.Deadline(); ok {
		left = max(time.Until(until), time.Millisecond)
	}
	begin += fmt.Sprintf(beginText, s.schema, left.Milliseconds()+1, how.scope)
	switch {
	case how.reads:
		begin += looksText
	case how.alone:
		begin += fmt.Sprintf(`; SELECT pg_advisory_xact_lock(hashtextextended('deepwork writes %s', %d))`, s.schema,
			how.scope) + changesText
	default:
		begin += changesText
	}
	if how.unsynced {
		begin += "; SET LOCAL synchronous_commit = off"
	}

	var id commit
	err = raw(c, func(p *pgconn.PgConn) error {
		all, err := p.Exec(ctx, begin).ReadAll()
		if err == nil {
			id, err = s.begun(all)
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
	said := ""
	err = raw(c, func(p *pgconn.PgConn) error {
		within, cancel := context.WithTimeout(context.WithoutCancel(within), callTime/2)
		defer cancel()
		all, err := p.Exec(within, "COMMIT").ReadAll()
		if err == nil {
			said = all[0].CommandTag.String()
		}
		return err
	})
	switch {
	case err != nil && !how.reads && !notApplied(err):
		return s.outcome(id, err)
	case err == nil && said != "COMMIT":
		return errors.New("the transaction was rolled back, since one of its statements had failed")
	}

	return err
}

// A commit identifies a transaction: its id, and the start of the server that gave it.
type commit struct{ id, start string }

// begun evaluates the replies to the beginning of a transaction.
func (s *Store) begun(replies []*pgconn.Result) (c commit, err error) {
	for _, r := range replies {
		if len(r.Rows) != 1 || len(r.Rows[0]) < 2 {
			continue // not the reply to looksText or changesText
		}
		row := r.Rows[0]
		version, err := strconv.Atoi(string(row[0]))
		if err != nil {
			return c, err
		}

		clock, err := strconv.ParseFloat(string(row[1]), 64)
		if err != nil {
			return c, err
		}
		s.setClock(clock)
		if len(row) == 4 {
			c = commit{string(row[2]), string(row[3])}
		}
		return c, checkVersion(version)
	}

	return c, errors.New("the database did not say which version its schema has")
}

// errInProgress reports that a transaction has not ended yet.
var errInProgress = fmt.Errorf("%w: the transaction is still in progress", store.ErrUnavailable)

// outcome returns nil if a transaction was committed although the reply was lost. Otherwise it returns the
// lost error if the transaction was not committed, so that it may be repeated, or store.ErrPending. A
// committed transaction keeps its id for good. An uncommitted one may lose it if the server crashes: then
// another transaction can get the id, and be committed. So after a restart of the server, a committed id
// proves nothing. There is one gap, as in the feed: if only a process of the server crashes, the server goes
// on without a restart.
func (s *Store) outcome(c commit, lost error) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	var status *string
	var same bool
	err := s.persist(ctx, callTime, func() error {
		_, err := s.first(ctx,
			`SELECT pg_xact_status($1::xid8), extract(epoch FROM pg_postmaster_start_time())::text = $2`,
			[]any{c.id, c.start}, &status, &same)
		if said, ok := errors.AsType[*pgconn.PgError](err); ok && said.Code == "22023" { // an id that is not given yet
			status, err = new("aborted"), nil
		}
		if err == nil && status != nil && *status == "in progress" && same {
			err = errInProgress
		}
		return err
	})
	switch {
	case err != nil:
	case status == nil:
		err = errors.New("it has forgotten the transaction")
	case *status == "committed" && same:
		return nil
	case *status == "committed":
		err = errors.New("it was started again")
	default:
		return &notSent{lost}
	}

	return fmt.Errorf("%w: the database does not say whether it has made the change: %w", store.ErrPending, err)
}

// patience is how long a call repeats what was certainly not carried out, for example after a restart of the
// database.
const patience = 2 * time.Second

// retry calls f for a short time, until it succeeds or its error is final, and explains the error.
func (s *Store) retry(ctx context.Context, f func() error) error {
	err := s.explain(s.persist(ctx, patience, f))
	if errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrPending) {
		s.keep()
		s.contact.probe.Wake()
	}
	return err
}

func (s *Store) persist(ctx context.Context, at time.Duration, f func() error) error {
	begun := time.Now()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 300*time.Millisecond) {
		err := f()
		if err == nil || !passing(err) || time.Since(begun)+pause > at || s.closing.Err() != nil ||
			wait.For(ctx, pause) != nil {
			return err
		}
	}
}
