package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store/sqlstore"
)

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
			d.o.Logger.Warn("the task board is locked by another process", "path", d.o.Path, session.MS("waited_ms", waited))
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

// Transact implements sqlstore.Database.
func (d *DB) Transact(ctx context.Context, mode sqlstore.Mode, f func(context.Context, sqlstore.Querier) error) error {
	release, err := d.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	if mode == sqlstore.Looking {
		return d.retry(ctx, func() error { return f(ctx, d.looks()) })
	}
	pool, within := d.reader, ctx
	if mode != sqlstore.Reading {
		within = context.WithoutCancel(ctx)
		if pool = d.writer; pool == nil {
			return fmt.Errorf("%w: %s was opened for reading only; if that was not asked for, make it and its folder writable and start the server again", task.ErrFull, d.o.Path)
		}
	}
	once := func() error {
		if mode != sqlstore.Reading {
			if err := d.inPlace(); err != nil {
				return err
			}
			if err := d.setSync(within, mode != sqlstore.Unsynced); err != nil {
				return err
			}
		}
		if mode == sqlstore.Single || mode == sqlstore.Unsynced {
			return f(within, compiled{pool, d.statements})
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
		if err := f(within, began); err != nil {
			return err
		}
		return began.Commit()
	}
	return d.retry(ctx, func() error {
		if mode == sqlstore.Reading {
			return once()
		}
		return d.inTurn(ctx, once)
	})
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

// Version returns a number that changes whenever any other connection commits, in any process. It is
// 0 if there is no file.
func (d *DB) Version(ctx context.Context) (v int64, err error) {
	if !d.Exists() {
		return 0, nil
	}
	release, err := d.use(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	err = d.retry(ctx, func() error { return d.watcher.QueryRowContext(ctx, "PRAGMA data_version").Scan(&v) })
	return v, err
}
