package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// text returns a statement for the server: @ is the schema and a dot, and the parameters ? and ?1
// become $1.
func (s *Store) text(query string) string {
	if known, ok := s.texts.Load(query); ok {
		return known.(string)
	}

	var b strings.Builder
	n := 0 // the highest number of a parameter yet
	quoted := false
	for i := 0; i < len(query); i++ {
		switch c := query[i]; {
		case c == '\'':
			quoted = !quoted
			b.WriteByte(c)
		case c == '@' && !quoted:
			b.WriteString(s.schema + ".")
		case c == '?' && !quoted && i+1 < len(query) && '1' <= query[i+1] && query[i+1] <= '9':
			b.WriteByte('$')
			n = max(n, int(query[i+1]-'0')) // no statement has ten of these
		case c == '?' && !quoted:
			n++
			fmt.Fprintf(&b, "$%d", n)
		default:
			b.WriteByte(c)
		}
	}

	known := weaken(b.String())
	s.texts.Store(query, known)
	return known
}

// noCancel prepares a connection that sends no request to cancel a statement when it is given up: PgBouncer 1.18 ends
// if such a request's own connection is lost (pgbouncer/pgbouncer#801). What is given up ends by its timeouts.
func noCancel(_ context.Context, c *pgx.ConnConfig) error {
	dial, connected := c.DialFunc, new(atomic.Bool)
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if connected.Load() {
			return nil, errors.New("requests to cancel are not sent")
		}
		return dial(ctx, network, addr)
	}
	c.AfterConnect = func(context.Context, *pgconn.PgConn) error {
		connected.Store(true)
		return nil
	}
	return nil
}

// exec runs one changing statement as a transaction of its own. An error for which sure is false may
// mean that it was carried out.
func (s *Store) exec(ctx context.Context, query string, args ...any) (changed int64, err error) {
	c, err := s.pool.Conn(ctx)
	if err != nil {
		return 0, &notSent{err}
	}
	defer c.Close()

	err = c.Raw(func(d any) error {
		tag, err := d.(*stdlib.Conn).Conn().Exec(ctx, s.text(query), args...)
		changed = tag.RowsAffected()
		return err
	})
	return changed, err
}

// first reads the first row of a query once; found is false if the query has no rows.
func (s *Store) first(ctx context.Context, query string, args []any, to ...any) (found bool, err error) {
	err = s.pool.QueryRowContext(ctx, s.text(query), args...).Scan(to...)
	if isNoRows(err) {
		return false, nil
	}
	return err == nil, err
}

func isNoRows(err error) bool { return errors.Is(err, sql.ErrNoRows) }

// onConn calls f with a connection.
func (s *Store) onConn(ctx context.Context, f func(c *pgconn.PgConn) error) error {
	c, err := s.pool.Conn(ctx)
	if err != nil {
		return &notSent{err}
	}
	defer c.Close()
	return raw(c, f)
}

func raw(c *sql.Conn, f func(c *pgconn.PgConn) error) error {
	return c.Raw(func(d any) error { return f(d.(*stdlib.Conn).Conn().PgConn()) })
}

// notSent is the error of a statement that has not reached the server.
type notSent struct{ error }

func (e *notSent) Unwrap() error { return e.error }

// notApplied reports whether the statement or transaction with this error was not carried out. The server
// says so by any error but the end of the connection, and PgBouncer may report that as its own. That
// pgx calls an error safe to retry is not enough: it may be that of a connection whose reply was lost.
func notApplied(err error) bool {
	if said, ok := errors.AsType[*pgconn.PgError](err); ok {
		return said.SeverityUnlocalized == "ERROR" || said.Severity == "ERROR"
	}
	_, not := errors.AsType[*notSent](err)
	return not
}

// weaken leaves a check out of a statement, in a program that is built for the simulation.
var weaken = func(text string) string { return text }
