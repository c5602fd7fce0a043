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

// text returns a statement for the server: @ becomes the schema and a dot, and the parameters ? and ?1 become
// $1.
func (s *Store) text(query string) string {
	if known, ok := s.texts.Load(query); ok {
		return known.(string)
	}

	var b strings.Builder
	n := 0 // the highest number of a parameter so far
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
			n = max(n, int(query[i+1]-'0')) // no statement has ten parameters with numbers
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

// noCancel prepares a connection that does not ask the server to cancel a statement that is given up:
// PgBouncer 1.18 ends if the connection of such a request is lost (pgbouncer/pgbouncer#801). Abandoned
// statements end by their timeouts.
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

// exec runs one changing statement as a transaction of its own. After an error without sure, it may have been
// carried out.
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

// first reads the first row of a query once. found is false if the query has no rows.
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

// notApplied reports whether the statement or transaction with this error was certainly not carried out. The
// server says so by any error except the end of the connection, and PgBouncer may report that as its own
// error. It is not enough that pgx calls an error safe to retry: it may come from a connection whose reply
// was lost.
func notApplied(err error) bool {
	if said, ok := errors.AsType[*pgconn.PgError](err); ok {
		return said.SeverityUnlocalized == "ERROR" || said.Severity == "ERROR"
	}
	_, not := errors.AsType[*notSent](err)
	return not
}

// weaken leaves a check out of a statement, in a program built for the simulation.
var weaken = func(text string) string { return text }
