package sqlite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store/sqlstore"
)

// retry calls f repeatedly while the database is locked, until ctx ends or the call has waited long enough.
// SQLite itself waits only briefly, since that wait cannot be canceled.
func (d *DB) retry(ctx context.Context, f func() error) error {
	err := ctx.Err()
	if err == nil {
		err = f()
	}

	if !busy(err) {
		return d.explain(err)
	}

	ctx, cancel := d.bounded(ctx)
	defer cancel()
	for since := time.Now(); busy(err); {
		if err := d.pause(ctx, &since, time.Duration(1+rand.IntN(5))*time.Millisecond); err != nil {
			return err
		}
		err = f()
	}

	return d.explain(err)
}

// pause waits before looking again at what another process has locked, and logs that now and then. since is
// when the waiting began, or was last logged.
func (d *DB) pause(ctx context.Context, since *time.Time, pace time.Duration) error {
	if waited := time.Since(*since); waited > d.patience/2 {
		d.o.Logger.Warn("the task board is locked by another process", "path", d.o.Path,
			session.MS("waited_ms", waited))
		*since = time.Now()
	}

	err := wait.For(ctx, pace)
	if d.closing.Err() != nil {
		return task.ErrClosed
	}
	if err != nil {
		return fmt.Errorf("another process has the board locked: %w", ended(ctx))
	}
	return nil
}

// Transact implements sqlstore.Dialect.
func (d *DB) Transact(ctx context.Context, mode sqlstore.Mode, f func(context.Context, sqlstore.Querier) error) error {
	if mode == sqlstore.Reading || mode == sqlstore.Looking {
		return d.read(ctx, mode == sqlstore.Looking, f)
	}

	within := context.WithoutCancel(ctx)
	return d.write(ctx, member{
		synced: mode != sqlstore.Unsynced,
		change: func(q sqlstore.Querier) error { return f(within, q) },
	})
}

// read runs f on one state of the database or, if looking is set, its one statement.
func (d *DB) read(ctx context.Context, looking bool, f func(context.Context, sqlstore.Querier) error) error {
	release, err := d.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	if looking {
		return d.retry(ctx, func() error { return f(ctx, d.reader) })
	}
	return d.retry(ctx, func() error {
		c, err := d.reader.Conn(ctx)
		if err != nil {
			return err
		}
		defer c.Close()

		began, err := c.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer began.Rollback() // does nothing after the commit
		if err := f(ctx, began); err != nil {
			return err
		}
		return began.Commit()
	})
}

// Version returns a number that changes whenever another connection, in any process, commits; the writer is
// another connection. It is 0 if there is no file.
func (d *DB) Version(ctx context.Context) (v int64, err error) {
	if !d.Exists() {
		return 0, nil
	}

	release, err := d.use(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	if d.watcher == nil { // there was no file when the database was opened for reading
		return 0, nil
	}

	err = d.retry(ctx, func() error {
		c, err := d.watcher.Conn(ctx)
		if err != nil {
			return err
		}
		defer c.Close()

		if err := c.QueryRowContext(ctx, "PRAGMA data_version").Scan(&v); err != nil {
			return err
		}

		// Each connection counts on its own. The driver makes another one after a call that was given up.
		return c.Raw(func(of any) error {
			v += of.(*compiled).number << 32
			return nil
		})
	})
	return v, err
}

// feed has the statements for the feed of changes. Writers take turns, and positions have no gaps, so
// positions are in the order of the commits.
func feed(d *DB) sqlstore.Feed {
	return sqlstore.Feed{
		State: `SELECT CAST(last AS TEXT),
				?1 = CAST(CAST(?1 AS INTEGER) AS TEXT) AND CAST(?1 AS INTEGER) BETWEEN first - 1 AND last,
				CAST(?1 AS INTEGER) < last
			FROM (SELECT coalesce((SELECT min(position) FROM changes), 1) AS first, coalesce((SELECT max(position) ` +
			`FROM changes), 0) AS last)`,
		After: `SELECT kind, id FROM changes WHERE position > CAST(?1 AS INTEGER) ORDER BY position`,
		// The newest row stays, since it holds the last position. Rows older than a removed one are removed,
		// too, whatever their time: the clock may have been set.
		Prune: `DELETE FROM changes WHERE position < (SELECT max(position) FROM changes)
			AND position <= (SELECT max(coalesce((SELECT max(position) FROM changes WHERE at < ?1), 0), (SELECT ` +
			`max(position) FROM changes) - ?2))`,
		Version: d.Version,
	}
}
