package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
)

// A looker runs a statement that reads, in one round trip. Where the statement names a table t as @t, it
// reads the rows of the project.
type looker struct {
	s     *Store
	scope int64
}

var named = regexp.MustCompile(`@([a-z_]+)`)

func (l looker) text(query string) string {
	if known, ok := l.s.looks.Load(query); ok {
		return known.(string)
	}
	text := l.s.text(named.ReplaceAllString(query, fmt.Sprintf(`(SELECT * FROM @${1}_all WHERE scope = %d)`, l.scope)))
	l.s.looks.Store(query, text)
	return text
}

func (l looker) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, errors.ErrUnsupported
}

func (l looker) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return l.s.pool.QueryContext(ctx, l.text(query), plain(args)...)
}

func (l looker) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return l.s.pool.QueryRowContext(ctx, l.text(query), plain(args)...)
}
