package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
)

// A looker runs statements that read, each without a transaction. It compiles each text once for each
// connection of its pool.
type looker struct {
	pool       *sql.DB
	statements sync.Map // texts to *sql.Stmt
}

// looks returns that of the open database.
func (d *DB) looks() *looker {
	l := d.looker.Load()
	if l == nil || l.pool != d.reader {
		l = &looker{pool: d.reader}
		d.looker.Store(l) // the statements of another one are closed with its connections
	}
	return l
}

func (l *looker) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if known, ok := l.statements.Load(query); ok {
		return known.(*sql.Stmt), nil
	}
	s, err := l.pool.PrepareContext(ctx, strings.ReplaceAll(query, "@", ""))
	if err != nil {
		return nil, err
	}
	if known, loaded := l.statements.LoadOrStore(query, s); loaded {
		return known.(*sql.Stmt), s.Close()
	}
	return s, nil
}

func (l *looker) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, errors.ErrUnsupported
}

func (l *looker) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s, err := l.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args...)
}

func (l *looker) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	s, err := l.prepare(ctx, query)
	if err != nil {
		return l.pool.QueryRowContext(ctx, strings.ReplaceAll(query, "@", ""), args...) // which has the error
	}
	return s.QueryRowContext(ctx, args...)
}
