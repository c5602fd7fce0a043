package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"deepwork/actor/telemetry"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/spans"
	"deepwork/session/store"
)

// A Tx is a transaction. It must not be used once the function that received it has returned.
//
// A statement that fails ends the transaction: its method does not return, and the caller of the transaction gets the
// error. So what runs in a transaction reads like a script; Fail ends it with an error of its own.
type Tx struct {
	Querier
	Now string // its start time, as the database stores it

	ctx     context.Context
	changes *[]store.Change // published in the feed
	where   string          // the location of the database
	nul     string          // Options.NUL
	who     *session.Caller // sees only its tasks and what belongs to them; nil sees everything
}

// A failure is the value with which a Tx panics to end its transaction.
type failure struct{ error }

// Fail ends the transaction with an error. It returns if the error is nil.
func (t Tx) Fail(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// rescue, when deferred, sets the error of a failed transaction.
func rescue(err *error) {
	switch p := recover().(type) {
	case nil:
	case failure:
		*err = p.error
	default:
		panic(p)
	}
}

// changed records a change once.
func (t Tx) changed(kind, id string) {
	if c := (store.Change{Kind: kind, ID: id}); !slices.Contains(*t.changes, c) {
		*t.changes = append(*t.changes, c)
	}
}

// Exec runs a statement and returns the number of changed rows.
func (t Tx) Exec(query string, args ...any) int64 {
	r, err := t.ExecContext(t.ctx, query, args...)
	t.Fail(err)
	n, err := r.RowsAffected()
	t.Fail(err)
	return n
}

// List reads all rows of a query. A row is a value of one column, or a struct whose fields are named for the
// columns: CreatedAt for created_at.
func List[T any](t Tx, query string, args ...any) (all []T) {
	rows, err := t.QueryContext(t.ctx, query, args...)
	t.Fail(err)
	defer rows.Close()
	columns, err := rows.Columns()
	t.Fail(err)
	fields := make([][]int, len(columns)) // nil for a value of one column
	if of := reflect.TypeFor[T](); of.Kind() == reflect.Struct {
		for i, column := range columns {
			name := strings.ReplaceAll(column, "_", "")
			f, ok := of.FieldByNameFunc(func(field string) bool { return strings.EqualFold(field, name) })
			if !ok {
				t.Fail(fmt.Errorf("column %s has no field in %v", column, of))
			}
			fields[i] = f.Index
		}
	}

	to := make([]any, len(columns))
	for rows.Next() {
		all = append(all, *new(T))
		row := reflect.ValueOf(&all[len(all)-1]).Elem()
		for i, index := range fields {
			field := row
			if index != nil {
				field = field.FieldByIndex(index)
			}
			to[i] = target(field.Addr().Interface())
		}

		t.Fail(rows.Scan(to...))
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
	}
	t.Fail(rows.Err())
	return all
}

// target returns what scans a column into a field.
func target(field any) any {
	switch p := field.(type) {
	case *time.Time:
		return scanTime(func(at *time.Time) {
			if at != nil {
				*p = *at
			}
		})
	case **time.Time:
		return scanTime(func(at *time.Time) { *p = at })
	case *json.RawMessage:
		return (*[]byte)(p)
	case *[]string:
		return (*scanIDs)(p)
	}
	return field
}

// text returns a stored text as it was given.
func (t Tx) text(stored string) string {
	if t.nul == "" {
		return stored
	}
	return strings.ReplaceAll(stored, t.nul, "\x00")
}

// firstRow returns the first row of a query, or nil.
func firstRow[T any](t Tx, query string, args ...any) *T {
	if all := List[T](t, query, args...); len(all) > 0 {
		return &all[0]
	}
	return nil
}

// mustFirstRow is firstRow but fails with ErrNotFound, for something of this kind and id, if there is none.
func mustFirstRow[T any](t Tx, what, id, query string, args ...any) *T {
	found := firstRow[T](t, query, args...)
	if found == nil {
		t.Fail(task.Missing(what, id))
	}
	return found
}

// First reads the first row of a query. found is false if the query has no rows.
func (t Tx) First(query string, args []any, to ...any) (found bool) {
	err := t.QueryRowContext(t.ctx, query, args...).Scan(to...)
	if err == sql.ErrNoRows {
		return false
	}
	t.Fail(err)
	return true
}

// has reports whether a query that begins after SELECT 1 has rows.
func (t Tx) has(from string, args ...any) bool { return t.First(`SELECT 1 `+from, args, new(int)) }

// count reads a number.
func (t Tx) count(query string, args ...any) (n int) {
	t.First(query, args, &n)
	return n
}

// mustChange runs a statement that changes one row, and fails with an error if it changes none.
func (t Tx) mustChange(missing error, query string, args ...any) {
	if t.Exec(query, args...) == 0 {
		t.Fail(missing)
	}
}

// Columns returns the columns of the fields of a struct, in order: created_at for CreatedAt. It leaves out
// those in except.
func Columns[T any](except ...string) string {
	var columns []string
	for f := range reflect.TypeFor[T]().Fields() {
		if name := columnOf(f.Name); !slices.Contains(except, name) {
			columns = append(columns, name)
		}
	}
	return strings.Join(columns, ", ")
}

// Values returns the values of Columns for a row.
func Values[T any](row *T, except ...string) (values []any) {
	for f, v := range reflect.ValueOf(row).Elem().Fields() {
		if slices.Contains(except, columnOf(f.Name)) {
			continue
		}

		switch v := v.Interface().(type) {
		case time.Time:
			values = append(values, task.FormatTime(v))
		case *time.Time:
			values = append(values, optional(v))
		case json.RawMessage:
			values = append(values, textOf(v))
		default:
			values = append(values, v)
		}
	}
	return values
}

var boundary = regexp.MustCompile(`([a-z])([A-Z])`)

func columnOf(field string) string {
	return strings.ToLower(boundary.ReplaceAllString(field, "${1}_$2"))
}

// parameters returns n parameters of a statement.
func parameters(n int) string { return `?` + strings.Repeat(`, ?`, n-1) }

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

// A scanIDs scans ids separated by spaces, or nil, and sorts them.
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

// textOf returns a JSON column that may be null.
func textOf(raw json.RawMessage) *string {
	if raw == nil {
		return nil
	}
	return new(string(raw))
}

// A Store makes a Dialect's database the stores of package store.
type Store struct {
	db Dialect
	o  Options
	// paths of the config's repositories, by their ids, once SyncProjects was called
	paths  atomic.Pointer[map[string]string]
	lapsed atomic.Int64              // executions ended since the last cleanup; see forgetEvery
	pruned atomic.Pointer[time.Time] // when this process last pruned the feed of changes; nil before
}

// New returns the stores of a database. The Logger of o defaults to none, Now to session.Clock.
func New(db Dialect, o Options) *Store {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = session.Clock
	}
	if o.Poll == 0 {
		o.Poll = 200 * time.Millisecond
	}
	s := &Store{db: db, o: o}

	s.lapsed.Store(forgetEvery) // since many processes end few executions
	return s
}

// Board returns the task board.
func (s *Store) Board() store.Board { return board{Store: s} }

// RemoteRuns returns the remote runs: workflows at other systems.
func (s *Store) RemoteRuns() store.RemoteRuns { return remoteRuns{s} }

// LongCalls returns the calls of tools that take long.
func (s *Store) LongCalls() store.LongCalls { return calls{s} }

// Work returns what processes of the project are to do.
func (s *Store) Work() store.Work { return work{s} }

// Schedules returns the schedules of the project.
func (s *Store) Schedules() store.Schedules { return schedules{s} }

// Sessions returns the sessions of the project.
func (s *Store) Sessions() store.Sessions { return workflows{s} }

// Changes returns the feed of changes.
func (s *Store) Changes() store.Changes { return changes{s} }

// stamp returns the current time as the database stores it.
func (s *Store) stamp() string { return task.FormatTime(s.o.Now()) }

// A viewer is a Store as a caller sees it; a nil caller sees everything.
type viewer interface {
	view() (*Store, *session.Caller)
}

func (s *Store) view() (*Store, *session.Caller) { return s, nil }

// read runs f in a transaction on one state of the database.
func read[T any](ctx context.Context, v viewer, doing string, f func(t Tx) T) (T, error) {
	return transact(ctx, v, doing, Reading, f)
}

// readOnce runs f, which reads with one statement.
func readOnce[T any](ctx context.Context, v viewer, doing string, f func(t Tx) T) (T, error) {
	return transact(ctx, v, doing, Looking, f)
}

// write runs f in a transaction beside which no other may change the board.
func write[T any](ctx context.Context, v viewer, doing string, f func(t Tx) T) (T, error) {
	return transact(ctx, v, doing, Writing, f)
}

// change is write for a function without a result.
func change(ctx context.Context, v viewer, doing string, f func(t Tx)) error {
	_, err := write(ctx, v, doing, func(t Tx) (none struct{}) {
		f(t)
		return none
	})
	return err
}

// Run runs f in a transaction. If f fails, nothing is changed.
func (s *Store) Run(ctx context.Context, doing string, mode Mode, f func(t Tx)) error {
	_, err := transact(ctx, s, doing, mode, func(t Tx) (none struct{}) {
		f(t)
		return none
	})
	return err
}

// statement runs one changing statement, and returns the number of changed rows.
func statement(ctx context.Context, s *Store, doing string, mode Mode, query string, args ...any) (int64, error) {
	return transact(ctx, s, doing, mode, func(t Tx) int64 { return t.Exec(query, args...) })
}

// transact runs the database's Transact with a result, and inserts the transaction's changes into the feed.
// It returns f's error.
func transact[T any](ctx context.Context, v viewer, doing string, mode Mode, f func(t Tx) T) (result T, err error) {
	s, who := v.view()
	defer func(began time.Time) {
		if time.Since(began) > 100*time.Millisecond { // slow
			telemetry.Within(ctx, spans.Transaction, "", began, spans.Doing.String(doing))
		}
	}(time.Now())
	err = s.db.Transact(ctx, mode, func(ctx context.Context, q Querier) (err error) {
		defer rescue(&err)
		t := Tx{
			Querier: q,
			Now:     s.stamp(),
			ctx:     ctx,
			changes: new([]store.Change),
			where:   s.o.Where,
			nul:     s.o.NUL,
			who:     who,
		}

		result = f(t)
		s.publish(t)
		return nil
	})
	if err != nil {
		var none T
		if mode.reads() && ctx.Err() != nil && !errors.Is(err, store.ErrUnavailable) { // ctx's error says more
			err = ctx.Err()
		}
		return none, wrap(doing, err)
	}
	return result, nil
}

func wrap(doing string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}
