package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"deepwork/catalog/task"

	"github.com/google/uuid"
)

// A tx is a transaction under way, or a connection for one statement.
type tx struct {
	ctx context.Context
	querier
}

type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// exec runs a statement and returns how many rows it changed.
func (t tx) exec(query string, args ...any) (int64, error) {
	r, err := t.ExecContext(t.ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// A scanner takes the columns of a row.
type scanner func(to ...any) error

// list reads all rows of a query.
func list[T any](t tx, scan func(scanner) (T, error), query string, args ...any) ([]T, error) {
	rows, err := t.QueryContext(t.ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		row, err := scan(rows.Scan)
		if err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

// only reads the one row of a query, or returns ErrNotFound for something of this
// kind and id.
func only[T any](t tx, what, id string, scan func(scanner) (T, error), query string, args ...any) (*T, error) {
	all, err := list(t, scan, query, args...)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, task.Missing(what, id)
	}
	return &all[0], nil
}

// value scans the single column of a row.
func value[T any](scan scanner) (v T, err error) {
	err = scan(&v)
	return v, err
}

// first reads the first row of a query; found is false if there is none.
func (t tx) first(query string, args []any, to ...any) (found bool, err error) {
	err = t.QueryRowContext(t.ctx, query, args...).Scan(to...)
	if err == sql.ErrNoRows {
		return false, nil
	}
	return err == nil, err
}

// count reads a number.
func (t tx) count(query string, args ...any) (n int, err error) {
	_, err = t.first(query, args, &n)
	return n, err
}

// ids reads the first column of all rows.
func (t tx) ids(query string, args ...any) ([]string, error) {
	return list(t, value[string], query, args...)
}

// exists returns ErrNotFound if a table has no such row.
func (t tx) exists(table, what, id string) error {
	n, err := t.count(`SELECT count(*) FROM `+table+` WHERE id = ?`, id)
	if err == nil && n == 0 {
		err = task.Missing(what, id)
	}
	return err
}

func newID() (string, error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return "", fmt.Errorf("making an id: %w", err)
	}
	return id.String(), nil
}

// A moment scans a time, and null as the zero time.
type moment struct{ to *time.Time }

// Scan implements sql.Scanner.
func (m moment) Scan(v any) (err error) {
	switch v := v.(type) {
	case nil:
		*m.to = time.Time{}
	case string:
		*m.to, err = task.ParseTime(v)
	default:
		err = fmt.Errorf("a time is %T, and is to be text", v)
	}
	return err
}

// A perhaps scans a time that may be null.
type perhaps struct{ to **time.Time }

// Scan implements sql.Scanner.
func (p perhaps) Scan(v any) error {
	if v == nil {
		*p.to = nil
		return nil
	}
	*p.to = new(time.Time)
	return moment{*p.to}.Scan(v)
}

// optional writes a time that may be missing.
func optional(t *time.Time) *string {
	if t == nil {
		return nil
	}
	return new(task.FormatTime(*t))
}
