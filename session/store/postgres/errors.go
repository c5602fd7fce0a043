package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"deepwork/catalog/task"
	"deepwork/session/store"

	"github.com/jackc/pgx/v5/pgconn"
)

// passing reports whether an error concerns the connection or the server's state, so that the same call may
// succeed later.
func passing(err error) bool {
	if errors.Is(err, store.ErrPending) || errors.Is(err, context.Canceled) {
		return false
	}

	if said, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch said.Code[:2] {
		case "08", "53", "57": // the connection, resources, the operator
			return true
		case "28", "3D": // the role or the database, which somebody will correct
			return true
		}
		return slices.Contains([]string{"40001", "40P01", "25P03", "55P03", "25006"}, said.Code)
	}

	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	_, network := errors.AsType[net.Error](err)
	_, not := errors.AsType[*notSent](err)

	for _, known := range []error{store.ErrUnavailable, driver.ErrBadConn, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
		pgconn.ErrConnClosed, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return true
		}
	}
	return connecting || network || not || pgconn.SafeToRetry(err)
}

// explain returns an error for callers: store.ErrUnavailable if the database does not answer now.
func (s *Store) explain(err error) error {
	switch {
	case err == nil || errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrPending) ||
		errors.Is(err, context.Canceled):
		return err
	case s.closing.Err() != nil:
		return task.ErrClosed
	case !passing(err):
		if said, ok := errors.AsType[*pgconn.PgError](err); ok && remedies[said.Code] != "" {
			err = fmt.Errorf("%w%s", err, remedies[said.Code])
		}
		return err
	}

	why := err
	if c, ok := errors.AsType[*pgconn.ConnectError](err); ok && c.Unwrap() != nil { // without the role
		why = c.Unwrap()
	}
	text := strings.ReplaceAll(why.Error(), "\n", "; ")
	if said, ok := errors.AsType[*pgconn.PgError](err); ok {
		text = said.Error() + remedies[said.Code]
	} else if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		// one of several errors with the same text
		text = dial.Error() + "; see that the server runs, and that the host and the port of the URL are right"
	}
	return fmt.Errorf("%w: %s: %s", store.ErrUnavailable, s.where, text)
}

// remedies say what to do about errors of the server, by code.
var remedies = map[string]string{
	"3D000": "; create the database, for example with createdb, or correct its name in the URL",
	"28P01": "; correct the password in the URL or in ~/.pgpass",
	"28000": "; correct the role in the URL, or create it, or let it in by pg_hba.conf",
	"42501": "; grant the role what it needs on the database: to create the schema, or to use it",
	"42P01": "; its schema was removed: put it back, or start the server again for an empty one",
	"53300": "; raise max_connections of the server, or put PgBouncer in front of it",
}
