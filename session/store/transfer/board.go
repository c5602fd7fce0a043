package transfer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"deepwork/catalog/task"
	"deepwork/session/store"
	"deepwork/session/store/sqlstore"
)

// A table has rows of the board; order is the column with their order, if that matters.
type table struct{ name, order string }

// tables are copied in this order: rows come after those to which they refer. The database maintains the
// tables that are missing here (task_counts).
var tables = []table{
	{"projects", ""}, {"repos", ""}, {"tasks", ""}, {"task_dependencies", ""}, {"attempts", ""}, {"attempt_repos", ""},
	{"sessions", ""}, {"executions", "seq"}, {"attempt_reports", ""}, {"attempt_comments", ""}, {"usages", "seq"},
	{"requests", "rowid"}, {"workflow_executions", ""}, {"schedules", ""}, {"due_times", ""}, {"work", ""},
	{"long_calls", ""}, {"definitions", ""}, {"workflow_sessions", ""}, {"session_parts", ""}, {"session_requests", ""},
}

// own are the columns that each database fills itself.
var own = []string{"scope", "seq", "rowid"}

// BoardRows calls f with the rows of a board.
func BoardRows(ctx context.Context, q sqlstore.Querier, f func(Row) error) error {
	for _, t := range tables {
		query := "SELECT * FROM " + t.name
		if t.name == "work" { // other kinds are about what a store of its own place has
			query += " WHERE kind IN ('" + store.RemoteWork + "', '" + store.ScheduleWork + "')"
		}
		if t.order != "" {
			query += " ORDER BY " + t.order
		}
		if err := rows(ctx, q, t.name, query, f); err != nil {
			return err
		}
	}
	return nil
}

func rows(ctx context.Context, q sqlstore.Querier, name, query string, f func(Row) error) error {
	failed := func(err error) error {
		if err != nil {
			return fmt.Errorf("reading the %s of the board: %w", name, err)
		}
		return nil
	}

	found, err := q.QueryContext(ctx, query)
	if err != nil {
		return failed(err)
	}
	defer found.Close()
	columns, err := found.Columns()
	if err != nil {
		return failed(err)
	}
	values, to := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		to[i] = &values[i]
	}

	for found.Next() {
		if err := found.Scan(to...); err != nil {
			return failed(err)
		}

		r := Row{name, make(map[string]any, len(columns))}
		for i, v := range values {
			if slices.Contains(own, columns[i]) {
				continue
			}

			switch v := v.(type) {
			case bool: // an integer in SQLite
				r.Values[columns[i]] = int64(0)
				if v {
					r.Values[columns[i]] = int64(1)
				}
			case []byte:
				r.Values[columns[i]] = string(v)
			default:
				r.Values[columns[i]] = v
			}
		}

		if err := f(r); err != nil {
			return err
		}
	}

	return failed(found.Err())
}

// ClearBoard deletes all rows of a board.
func ClearBoard(ctx context.Context, q sqlstore.Querier) error {
	for _, t := range slices.Backward(tables) {
		if _, err := q.ExecContext(ctx, "DELETE FROM "+t.name); err != nil {
			return fmt.Errorf("clearing the %s of the board: %w", t.name, err)
		}
	}
	return nil
}

// A Board inserts rows into a board.
type Board struct {
	Querier  sqlstore.Querier
	inserts  map[string]string          // by table
	columns  map[string][]string        // of the inserts
	booleans map[string]map[string]bool // by table and column
}

// Put inserts a row of the board.
func (b *Board) Put(ctx context.Context, r Row) error {
	if b.inserts[r.Table] == "" {
		if err := b.prepare(ctx, r); err != nil {
			return fmt.Errorf("preparing the %s of the board: %w", r.Table, err)
		}
	}
	columns := b.columns[r.Table]
	values := make([]any, len(columns))
	for i, c := range columns {
		values[i] = r.Values[c]
		if v, ok := values[i].(int64); ok && b.booleans[r.Table][c] {
			values[i] = v != 0
		}
	}
	if _, err := b.Querier.ExecContext(ctx, b.inserts[r.Table], values...); err != nil {
		return fmt.Errorf("writing a row of the %s of the board (%v): %w", r.Table, r.Values["id"], err)
	}

	return nil
}

// prepare makes the statement for a table from its first row. Names become parts of paths and statements, so
// only tables of the program are allowed.
func (b *Board) prepare(ctx context.Context, r Row) error {
	if !slices.ContainsFunc(tables, func(t table) bool { return t.name == r.Table }) {
		return fmt.Errorf("%w: there is no such table", task.ErrInvalid)
	}

	if b.inserts == nil {
		b.inserts = map[string]string{}
		b.columns = map[string][]string{}
		b.booleans = map[string]map[string]bool{}
	}
	found, err := b.Querier.QueryContext(ctx, "SELECT * FROM "+r.Table+" LIMIT 0")
	if err != nil {
		return err
	}
	defer found.Close()
	types, err := found.ColumnTypes()
	if err != nil {
		return err
	}

	columns := slices.Sorted(maps.Keys(r.Values))
	missing := slices.Clone(columns)
	b.booleans[r.Table] = map[string]bool{}
	for _, t := range types {
		b.booleans[r.Table][t.Name()] = t.DatabaseTypeName() == "BOOL"
		missing = slices.DeleteFunc(missing, func(c string) bool { return c == t.Name() })
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: it has no column %s: update the deepwork that uses it", task.ErrVersion,
			strings.Join(missing, ", "))
	}
	b.columns[r.Table] = columns
	b.inserts[r.Table] = fmt.Sprintf("INSERT INTO %s (%s) VALUES (?%s)", r.Table, strings.Join(columns, ", "),
		strings.Repeat(", ?", len(columns)-1))
	return found.Err()
}
