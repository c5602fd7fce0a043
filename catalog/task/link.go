package task

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// pragmas are what each connection is set to: SQLite itself waits for a lock
// only shortly, for that wait cannot be cancelled; and a commit is on the disk
// when it returns.
const pragmas = `
PRAGMA busy_timeout = 50;
PRAGMA foreign_keys = ON;
PRAGMA synchronous = FULL;
PRAGMA journal_size_limit = 16777216;
`

// A link is one connection with its prepared statements. It is used by one
// goroutine at a time: whoever took it from its pool.
type link struct {
	conn       *sql.Conn // nil: not connected
	statements map[string]*sql.Stmt
}

func (l *link) connect(ctx context.Context, p *pool) error {
	if l.conn != nil {
		return nil
	}
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return err
	}
	setup := pragmas
	if p.reads {
		setup += "PRAGMA query_only = ON;"
	}
	if _, err := conn.ExecContext(context.WithoutCancel(ctx), setup); err != nil {
		return errors.Join(err, conn.Close())
	}
	l.conn, l.statements = conn, make(map[string]*sql.Stmt)
	return nil
}

// close closes the connection; the link can be connected anew.
func (l *link) close() error {
	if l.conn == nil {
		return nil
	}
	var err error
	for _, s := range l.statements {
		err = errors.Join(err, s.Close())
	}
	err = errors.Join(err, l.conn.Close())
	l.conn, l.statements = nil, nil
	return err
}

// walMode lets readers and the writer work side by side. It is a property of
// the file; where the file system has no shared memory the journal stays as it
// is, and the board is slower and no less safe.
func (l *link) walMode(ctx context.Context, logger *slog.Logger) error {
	var mode string
	if err := l.conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return err
	}
	if mode == "wal" {
		return nil
	}
	if err := l.conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		logger.Warn("the file system of the task board has no write-ahead log", "journal_mode", mode)
	}
	return nil
}

// transact runs f between begin and COMMIT. What f does is undone if it fails
// or panics.
func (l *link) transact(ctx context.Context, begin string, f func(t tx) error) (err error) {
	t := tx{ctx, l}
	if _, err := t.exec(begin); err != nil {
		return err
	}
	committed := false
	defer func() {
		if committed {
			return
		}
		undo := tx{context.WithoutCancel(ctx), l}
		if _, failed := undo.exec("ROLLBACK"); failed != nil {
			// SQLite has undone it itself, or the connection is of no use: a new
			// one is in no transaction in either case.
			_ = l.close()
		}
	}()
	if err := f(t); err != nil {
		return err
	}
	if _, err := t.exec("COMMIT"); err != nil {
		return err
	}
	committed = true
	return nil
}

// A tx is a transaction under way on a link.
type tx struct {
	ctx context.Context
	l   *link
}

// prepared returns a statement, which is compiled once a connection. Queries
// are constants, so there are not many.
func (t tx) prepared(query string) (*sql.Stmt, error) {
	if s := t.l.statements[query]; s != nil {
		return s, nil
	}
	s, err := t.l.conn.PrepareContext(t.ctx, query)
	if err != nil {
		return nil, err
	}
	t.l.statements[query] = s
	return s, nil
}

// exec runs a statement and returns how many rows it changed.
func (t tx) exec(query string, args ...any) (int64, error) {
	s, err := t.prepared(query)
	if err != nil {
		return 0, err
	}
	r, err := s.ExecContext(t.ctx, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// A scanner takes the columns of a row.
type scanner func(to ...any) error

// each calls f with each row of a query.
func (t tx) each(query string, args []any, f func(scan scanner) error) error {
	s, err := t.prepared(query)
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(t.ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close()
}

// one reads the first row of a query; false: there is none.
func (t tx) one(query string, args []any, to ...any) (found bool, err error) {
	err = t.each(query, args, func(scan scanner) error {
		if found {
			return nil
		}
		found = true
		return scan(to...)
	})
	return found, err
}

// strings reads the first column of all rows.
func (t tx) strings(query string, args ...any) ([]string, error) {
	var all []string
	err := t.each(query, args, func(scan scanner) error {
		var s string
		if err := scan(&s); err != nil {
			return err
		}
		all = append(all, s)
		return nil
	})
	return all, err
}
