package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"

	"github.com/google/uuid"
)

// A tx is a transaction, or a connection for one statement.
type tx struct {
	ctx context.Context
	querier
	changes *[]store.Change // for the feed, once it is committed
	where   string          // the path of the database
	now     string          // its start time, as the database stores it
	who     *session.Caller // sees only its tasks and what belongs to them; nil sees all
}

// A viewer is a DB as somebody sees it; nil sees all of it.
type viewer interface{ view() (*DB, *session.Caller) }

func (d *DB) view() (*DB, *session.Caller) { return d, nil }

// changed records a change, once.
func (t tx) changed(kind, id string) {
	if c := (store.Change{Kind: kind, ID: id}); !slices.Contains(*t.changes, c) {
		*t.changes = append(*t.changes, c)
	}
}

type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// retry calls f repeatedly while it finds the database locked and ctx lives. SQLite itself waits
// only briefly, since that wait cannot be canceled.
func (d *DB) retry(ctx context.Context, f func() error) error {
	for begun := time.Now(); ; {
		err := ctx.Err()
		if err == nil {
			err = f()
		}
		if !busy(err) {
			return d.explain(err)
		}
		if waited := time.Since(begun); waited > 5*time.Second {
			d.o.Logger.Warn("the task board is locked by another process", "path", d.o.Path, "waited", waited.Round(time.Millisecond))
			begun = time.Now()
		}
		if wait.For(ctx, time.Duration(1+rand.IntN(5))*time.Millisecond) != nil {
			return fmt.Errorf("another process has the board locked: %w", ctx.Err())
		}
		if d.closing.Err() != nil {
			return task.ErrClosed
		}
	}
}

// read runs f in a transaction on one state of the database.
func read[T any](ctx context.Context, v viewer, doing string, f func(t tx) (T, error)) (result T, err error) {
	return transact(ctx, ctx, v, doing, reading, f)
}

// write runs f in the one transaction that may change the database now. It is not interrupted, so
// that the caller learns whether the change was made. f may run again if another process was in the
// way.
func write[T any](ctx context.Context, v viewer, doing string, f func(t tx) (T, error)) (result T, err error) {
	return transact(ctx, context.WithoutCancel(ctx), v, doing, writing, f)
}

// change is write for a function without a result.
func change(ctx context.Context, v viewer, doing string, f func(t tx) error) error {
	_, err := write(ctx, v, doing, func(t tx) (struct{}, error) { return struct{}{}, f(t) })
	return err
}

// statement runs one changing statement, and returns the number of changed rows. If it changed
// some, after, which may be nil, then runs on the goroutine that writes, while the caller goes on.
func statement(ctx context.Context, d *DB, doing string, how mode, after func(), query string, args ...any) (int64, error) {
	return transact(ctx, context.WithoutCancel(ctx), d, doing, how, func(t tx) (int64, error) {
		n, err := t.exec(query, args...)
		if err == nil && n > 0 {
			d.after = after
		}
		return n, err
	})
}

// setSync sets whether the writer's changes are on disk when they are made. Otherwise they survive
// the end of this process at once, and a loss of power only after the next one that is. It is for
// the goroutine that writes.
func (d *DB) setSync(ctx context.Context, on bool) error {
	if d.sync == on {
		return nil
	}
	level := "NORMAL"
	if on {
		level = "FULL"
	}
	_, err := d.writer.ExecContext(ctx, "PRAGMA synchronous = "+level)
	if err == nil {
		d.sync = on
	}
	return err
}

// compiled runs statements on the one connection of a pool, and compiles each text once. It is for
// the goroutine that writes.
type compiled struct {
	*sql.DB
	statements map[string]*sql.Stmt
}

func (c compiled) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	s := c.statements[query]
	if s == nil {
		var err error
		if s, err = c.PrepareContext(ctx, query); err != nil {
			return nil, err
		}
		c.statements[query] = s
	}
	return s.ExecContext(ctx, args...)
}

// A mode is one of transact.
type mode int

const (
	reading mode = iota
	writing
	single   // one statement, which is a transaction on its own
	unsynced // the same, and see setSync
)

// transact waits for a connection until ctx ends, and runs f with the other context. It rolls back
// if f fails or panics.
func transact[T any](ctx, within context.Context, v viewer, doing string, how mode, f func(t tx) (T, error)) (result T, err error) {
	d, who := v.view()
	release, err := d.use(ctx)
	if err != nil {
		return result, wrap(doing, err)
	}
	defer release()
	pool := d.reader
	if how != reading {
		if pool = d.writer; pool == nil {
			return result, wrap(doing, fmt.Errorf("%w: %s was opened for reading only; if that was not asked for, make it and its folder writable and start the server again", task.ErrFull, d.o.Path))
		}
	}
	var changes []store.Change
	once := func() error {
		changes = nil
		if how != reading {
			if err := d.inPlace(); err != nil {
				return err
			}
			if err := d.setSync(within, how != unsynced); err != nil {
				return err
			}
		}
		if how >= single {
			result, err = f(tx{within, compiled{pool, d.statements}, &changes, d.o.Path, d.stamp(), who})
			return err
		}
		c, err := pool.Conn(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		began, err := c.BeginTx(within, nil)
		if err != nil {
			return err
		}
		defer began.Rollback() // does nothing once it is committed
		if result, err = f(tx{within, began, &changes, d.o.Path, d.stamp(), who}); err != nil {
			return err
		}
		return began.Commit()
	}
	err = d.retry(ctx, func() error {
		if how == reading {
			return once()
		}
		return d.inTurn(ctx, once)
	})
	if err != nil {
		var none T
		if how == reading && ctx.Err() != nil {
			err = ctx.Err()
		}
		return none, wrap(doing, err)
	}
	for _, c := range changes {
		if d.o.Changes != nil {
			d.o.Changes.Append(c)
		}
	}
	return result, nil
}

// inTurn has the one goroutine that writes run f, and waits for it; ctx ends the wait for its turn.
// That goroutine has the large stack that SQLite needs, which the goroutine of a call would first
// have to grow. A panic in f is one of the caller.
func (d *DB) inTurn(ctx context.Context, f func() error) error {
	var err error
	var panicked any
	done := make(chan struct{})
	select {
	case d.turns <- func() {
		defer func() {
			if after := d.after; after != nil {
				d.after = nil
				runtime.Gosched() // the caller goes first
				after()
			}
		}()
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				panicked = fmt.Sprintf("%v\n%s", p, debug.Stack())
			}
		}()
		err = f()
	}:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-done
	if panicked != nil {
		panic(panicked)
	}
	return err
}

// exec runs a statement and returns the number of changed rows.
func (t tx) exec(query string, args ...any) (int64, error) {
	r, err := t.ExecContext(t.ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// list reads all rows of a query. A row is a value of one column, or a struct whose
// fields the columns are named for: created_at is CreatedAt.
func list[T any](t tx, query string, args ...any) ([]T, error) {
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
			default:
				to[i] = p
			}
		}
		if err := rows.Scan(to...); err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

// only reads the first row of a query, or returns ErrNotFound for something of this kind and id.
func only[T any](t tx, what, id, query string, args ...any) (*T, error) {
	all, err := list[T](t, query, args...)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, task.Missing(what, id)
	}
	return &all[0], nil
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

// optional converts a time that may be nil.
func optional(t *time.Time) *string {
	if t == nil {
		return nil
	}
	return new(task.FormatTime(*t))
}
