package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
)

// A Tx is a transaction. It must not be used once f of Transact has returned.
type Tx struct {
	Querier
	Now string // its start time, as the database stores it

	ctx     context.Context
	changes *[]store.Change // for the feed
	where   string          // the location of the database
	nul     string          // Options.NUL
	claim   string          // Options.Claim, unless this only reads
	who     *session.Caller // sees only its tasks and what belongs to them; nil sees all
}

// changed records a change, once.
func (t Tx) changed(kind, id string) {
	if c := (store.Change{Kind: kind, ID: id}); !slices.Contains(*t.changes, c) {
		*t.changes = append(*t.changes, c)
	}
}

// Exec runs a statement and returns the number of changed rows.
func (t Tx) Exec(query string, args ...any) (int64, error) {
	r, err := t.ExecContext(t.ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// List reads all rows of a query. A row is a value of one column, or a struct whose
// fields the columns are named for: created_at is CreatedAt.
func List[T any](t Tx, query string, args ...any) ([]T, error) {
	rows, err := t.QueryContext(t.ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	fields := make([][]int, len(columns)) // none for a value of one column
	if of := reflect.TypeFor[T](); of.Kind() == reflect.Struct {
		for i, column := range columns {
			name := strings.ReplaceAll(column, "_", "")
			f, ok := of.FieldByNameFunc(func(field string) bool { return strings.EqualFold(field, name) })
			if !ok {
				return nil, fmt.Errorf("column %s has no field in %v", column, of)
			}
			fields[i] = f.Index
		}
	}
	var all []T
	to := make([]any, len(columns))
	for rows.Next() {
		var row T
		for i, index := range fields {
			field := reflect.ValueOf(&row).Elem()
			if index != nil {
				field = field.FieldByIndex(index)
			}
			switch p := field.Addr().Interface().(type) {
			case *time.Time:
				to[i] = scanTime(func(at *time.Time) {
					if at != nil {
						*p = *at
					}
				})
			case **time.Time:
				to[i] = scanTime(func(at *time.Time) { *p = at })
			case *json.RawMessage:
				to[i] = (*[]byte)(p)
			case *[]string:
				to[i] = (*scanIDs)(p)
			default:
				to[i] = p
			}
		}
		if err := rows.Scan(to...); err != nil {
			return nil, err
		}
		for _, p := range to {
			switch p := p.(type) {
			case *string:
				*p = t.text(*p)
			case **string:
				if *p != nil {
					**p = t.text(**p)
				}
			}
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

// text returns a stored text as it was given.
func (t Tx) text(stored string) string {
	if t.nul == "" {
		return stored
	}
	return strings.ReplaceAll(stored, t.nul, "\x00")
}

// only reads the first row of a query, or returns ErrNotFound for something of this kind and id.
func only[T any](t Tx, what, id, query string, args ...any) (*T, error) {
	all, err := List[T](t, query, args...)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, task.Missing(what, id)
	}
	return &all[0], nil
}

// First reads the first row of a query; found is false if the query has no rows.
func (t Tx) First(query string, args []any, to ...any) (found bool, err error) {
	err = t.QueryRowContext(t.ctx, query, args...).Scan(to...)
	if err == sql.ErrNoRows {
		return false, nil
	}
	return err == nil, err
}

// Count reads a number.
func (t Tx) Count(query string, args ...any) (n int, err error) {
	_, err = t.First(query, args, &n)
	return n, err
}

// exists returns ErrNotFound if a table has no such row.
func (t Tx) exists(table, what, id string) error {
	n, err := t.Count(`SELECT count(*) FROM `+table+` WHERE id = ?`, id)
	if err == nil && n == 0 {
		err = task.Missing(what, id)
	}
	return err
}

// A scanTime scans a time, or nil.
type scanTime func(at *time.Time)

// Scan implements sql.Scanner.
func (set scanTime) Scan(v any) error {
	if v == nil {
		set(nil)
		return nil
	}
	at, err := task.ParseTime(fmt.Sprint(v))
	set(&at)
	return err
}

// A scanIDs scans ids that are separated by blanks, or nil, and sorts them.
type scanIDs []string

// Scan implements sql.Scanner.
func (ids *scanIDs) Scan(v any) error {
	if v == nil {
		return nil
	}
	*ids = strings.Fields(fmt.Sprint(v))
	slices.Sort(*ids)
	return nil
}

// optional converts a time that may be nil.
func optional(t *time.Time) *string {
	if t == nil {
		return nil
	}
	return new(task.FormatTime(*t))
}
