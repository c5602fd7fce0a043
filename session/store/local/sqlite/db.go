// Package sqlite keeps a project's sessions, task board and executions in an embedded SQLite database
// (board.db in the state folder) that several servers share. Package sqlstore has its statements.
//
// What a method writes is durable when it returns: a killed process, or a machine that loses power, loses
// nothing that was acknowledged.
package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store/sqlstore"
)

// readers is the number of concurrent reading connections. Readers and the writer never wait for each other.
const readers = 4

// Options configure a DB.
type Options struct {
	Path     string       // absolute path of the database file
	Make     func() error // makes the folder of the file; default: with the usual mode
	ReadOnly bool         // then a missing database counts as empty
	Logger   *slog.Logger
	Now      func() time.Time
}

// A DB is the database. The first call of a method opens it, and creates it if necessary; if that fails, the
// next call tries again. Methods may be called from any goroutine, and by several processes on one file; each
// change is made completely or not at all. While others write, a method blocks until its context ends, or
// fails with store.ErrBusy if another process lets nobody write for ten seconds. A change that has begun is
// finished, so that its outcome is known.
//
// Nothing but SQLite in this process may open the file: on Unix, closing any handle of it drops SQLite's
// locks. A file that was moved or replaced while open is no longer written (task.ErrDamaged). Every method
// may also return task.ErrFull, ErrDamaged, ErrVersion, ErrClosed, or the context's error.
type DB struct {
	*sqlstore.Store
	o       Options
	closing context.Context // ends when Close begins
	halt    context.CancelFunc

	patience time.Duration // how long a call waits for other processes

	mu     sync.RWMutex // read-locked by each call, write-locked to open and close
	writer *writer      // nil if not open, or opened only for reading
	reader *sql.DB      // nil if not open
	// watcher has one connection, which stays open: the database version that it reads changes whenever
	// another connection has changed something.
	watcher *sql.DB
	info    os.FileInfo // of the file that is, or will be, opened for writing
	hadLog  bool        // a file opened only for reading had a write-ahead log before that
	retryAt time.Time   // when to reopen a file that could only be read as it was; else zero
	closed  bool
}

// A dialect is a DB in its role as a sqlstore.Dialect.
type dialect struct{ *DB }

// New returns a database that is not open yet. The caller closes it.
func New(o Options) *DB {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Make == nil {
		o.Make = func() error { return os.MkdirAll(filepath.Dir(o.Path), 0o755) }
	}
	d := &DB{o: o, patience: 10 * time.Second}
	d.Store = sqlstore.New(dialect{d}, sqlstore.Options{Where: o.Path, Logger: o.Logger, Now: o.Now, Feed: feed(d)})
	d.closing, d.halt = context.WithCancel(context.Background())
	return d
}

// Open opens the database if it is not open, and migrates it to the current version if there are migrations
// from its version. Any other version is refused with ErrVersion, and a file that is not a board with
// ErrDamaged; neither is changed. While the disk cannot be written, the database can be read, and changes
// return ErrFull.
func (d *DB) Open(ctx context.Context) error {
	release, err := d.use(ctx)
	if err == nil {
		release()
	}
	return err
}

// Where returns the path of the file.
func (d *DB) Where() string { return d.o.Path }

// Exists reports whether the file exists, so that readers need not create it. If that cannot be determined,
// it reports true, and the next call reports the error. It also reports true for a file that was moved away
// while open.
func (d *DB) Exists() bool {
	d.mu.RLock()
	open := d.writer != nil
	d.mu.RUnlock()
	if open {
		return true
	}

	_, err := os.Stat(d.o.Path)
	return !errors.Is(err, fs.ErrNotExist)
}

// Close closes the database; it waits for calls in progress, and later ones get ErrClosed.
func (d *DB) Close() error {
	d.halt()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return d.disconnect()
}

func (d *DB) disconnect() error {
	var err error
	for _, pool := range []**sql.DB{&d.watcher, &d.reader} {
		if *pool != nil {
			err = errors.Join(err, (*pool).Close())
		}
		*pool = nil
	}
	if d.writer != nil {
		err = errors.Join(err, d.writer.close()) // the last connection may clean up the file
		d.writer, d.info = nil, nil
	}
	d.tidy()
	return wrap("closing the database "+d.o.Path, err)
}

// use opens the database if necessary, and keeps it open until release is called.
func (d *DB) use(ctx context.Context) (release func(), err error) {
	d.mu.RLock()
	if d.due() && !d.closed {
		d.mu.RUnlock()
		d.mu.Lock()
		if d.due() && !d.closed {
			err = d.open(ctx)
		}
		d.mu.Unlock()
		if err != nil {
			return nil, fmt.Errorf("opening the database %s: %w", d.o.Path, err)
		}
		d.mu.RLock()
	}
	if d.closed {
		d.mu.RUnlock()
		return nil, task.ErrClosed
	}
	return d.mu.RUnlock, nil
}

// openAgain is how long a file is read as if nobody changed it, before it is reopened.
const openAgain = time.Second

// due reports whether the database must be opened or reopened.
func (d *DB) due() bool { return d.reader == nil || !d.retryAt.IsZero() && time.Now().After(d.retryAt) }

func (d *DB) open(ctx context.Context) (err error) {
	if d.reader != nil {
		if err := inPlace(d.o.Path, d.info); err != nil {
			return err
		}
		if err := d.disconnect(); err != nil {
			return err
		}
	}

	known := !d.retryAt.IsZero()
	d.retryAt = time.Time{}
	if !filepath.IsAbs(d.o.Path) {
		return fmt.Errorf("%w: its path is to be absolute", task.ErrInvalid)
	}
	there, err := look(d.o.Path)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.disconnect())
		}
	}()
	_, d.hadLog, _ = sizeOf(d.o.Path + "-wal")
	if there {
		if err := d.peek(ctx); err != nil {
			return err
		}
	}

	switch {
	case d.o.ReadOnly && there:
		err = d.openReadOnly(ctx, Source(d.o.Path, "ro"))
	case !d.o.ReadOnly:
		err = d.openFile(ctx)
	}
	if d.o.ReadOnly && (!there || errors.Is(err, errUnmade)) { // it counts as an empty one
		if err := d.disconnect(); err != nil {
			return err
		}
		d.reader = d.connect("file::memory:?", 1, "")
		return d.prepare(ctx, d.reader, d.migrate)
	}
	if !there || !errors.Is(err, task.ErrFull) {
		return err
	}

	// In a read-only folder, or on a full disk, SQLite cannot create an index of its log. Then the file is
	// read for a moment as if nobody changed it, provided that its log is empty.
	if log, _, serr := sizeOf(d.o.Path + "-wal"); serr != nil || log > 0 {
		return err
	}
	why := errors.Join(err, d.disconnect())
	d.info, _ = os.Stat(d.o.Path) // on an error, replacing the file goes unnoticed
	if err := d.openReadOnly(ctx, Source(d.o.Path, "ro")+"&immutable=1"); err != nil {
		return errors.Join(why, err)
	}
	d.retryAt = time.Now().Add(openAgain)
	if !known {
		d.o.Logger.Warn("the database can only be read now", "path", d.o.Path, "error", why)
	}
	return nil
}

// errUnmade reports a file in which no transaction was ever committed: the disk was full, or the process was
// killed.
var errUnmade = errors.New("the database is not made yet")

// openReadOnly opens a database, which must have the current version, for reading.
func (d *DB) openReadOnly(ctx context.Context, dsn string) error {
	d.reader, d.watcher = d.connect(dsn, readers, readOnly), d.connect(dsn, 1, readOnly)
	return d.prepare(ctx, d.reader, func(ctx context.Context, c *sql.Conn) error {
		v, err := ours(ctx, c)
		if err == nil && v == 0 {
			err = errUnmade
		} else if err == nil && v < latest() {
			err = fmt.Errorf("%w: it has version %d, and must be migrated to version %d before it can be read: run a "+
				"command that writes it, such as deepwork serve; if it is a backup, restore it with the deepwork "+
				"that wrote it, and use this one then", task.ErrVersion, v, latest())
		}
		return err
	})
}

// openFile opens a database for reading and writing, and creates it if it is missing.
func (d *DB) openFile(ctx context.Context) error {
	if err := d.o.Make(); err != nil {
		if session.CodeOf(err) != "" {
			return err
		}
		return fmt.Errorf("%w: %w", task.ErrFull, err)
	}

	// Prompts are private. If this fails, SQLite fails, too, with an error that has the remedy.
	if f, err := os.OpenFile(d.o.Path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
		f.Close()
	}
	d.writer = newWriter(d, d.connect(Source(d.o.Path, "rwc"), 1, "&_txlock=immediate"))
	err := d.prepare(ctx, d.writer.pool, func(ctx context.Context, c *sql.Conn) (err error) {
		if d.info, err = os.Stat(d.o.Path); err != nil {
			return err
		}

		// Then readers and the writer work concurrently. On a file system without shared memory, the database
		// is slower but just as safe.
		var mode string
		if err := c.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
			return err
		}
		if mode != "wal" {
			d.o.Logger.Warn("the file system of the database has no write-ahead log", "journal_mode", mode)
		}
		return d.migrate(ctx, c)
	})
	if err != nil {
		return err
	}
	d.reader, d.watcher = d.connect(Source(d.o.Path, "rw"), readers, readOnly),
		d.connect(Source(d.o.Path, "rw"), 1, readOnly)
	return d.writer.start(ctx)
}

// prepare runs f on a connection, outside a transaction, and retries while another process has the
// database locked.
func (d *DB) prepare(ctx context.Context, pool *sql.DB, f func(context.Context, *sql.Conn) error) error {
	return d.retry(ctx, func() error {
		c, err := pool.Conn(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		return f(ctx, c)
	})
}

func wrap(doing string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// applicationID marks the file as a board, in SQLite's header.
const applicationID = 0x6477646b // dwdk

// unreleasedID marks boards from before the first release, whose versions were numbered differently.
const unreleasedID = 0x64776264 // dwbd

//go:embed migrations/*.sql
var files embed.FS

// migrations are the steps from an empty file to the current schema, each a script. The version of a board is
// SQLite's user_version.
var migrations = sqlstore.Scripts(files)

// setAside says how to set a database aside.
const setAside = "with `deepwork check --set-aside`"

// latest is the version that this program writes.
func latest() int { return sqlstore.Latest(migrations) }

// ours returns the version of a database. It refuses databases of other programs with task.ErrDamaged, and
// those that cannot be migrated to the current version with task.ErrVersion.
func ours(ctx context.Context, c interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) (v int, err error) {
	var id, tables int
	// One statement sees one state: another server may be migrating the database.
	err = c.QueryRowContext(ctx, `SELECT (SELECT user_version FROM pragma_user_version),
		(SELECT application_id FROM pragma_application_id), (SELECT count(*) FROM sqlite_schema)`).Scan(&v,
		&id, &tables)
	switch {
	case err != nil:
		return 0, err
	case id == unreleasedID:
		return 0, sqlstore.OtherVersion(fmt.Sprintf("%d of before the first release", v), latest(), setAside)
	case id == applicationID:
		err = sqlstore.CheckVersion(migrations, v, setAside)
	case id != 0 || v != 0 || tables > 0:
		return 0,
			fmt.Errorf("%w: it is the database of another program, and was left as it is: set it aside with "+
				"`deepwork check --set-aside` to begin an empty one", task.ErrDamaged)
	}

	return v, err
}

// migrate brings a database to the current version, step by step. If another process does the same, the
// second one finds it done.
func (d *DB) migrate(ctx context.Context, c *sql.Conn) error {
	ctx = context.WithoutCancel(ctx)
	for {
		v, err := ours(ctx, c)
		if err != nil || v == latest() {
			return err
		}

		t, err := c.BeginTx(ctx, nil)
		if err != nil {
			return err
		}

		v, err = ours(ctx, t)
		if err == nil && v < latest() {
			script, next := sqlstore.NextScript(migrations, v)
			if _, err = t.ExecContext(ctx, script); err != nil {
				err = fmt.Errorf("migrating it from version %d to %d: %w", v, next, err)
			} else {
				_, err = t.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d",
					applicationID, next))
			}
		}
		if err == nil {
			err = t.Commit()
		}
		if err != nil {
			t.Rollback()
			return err
		}

		if v > 0 {
			d.o.Logger.Info("migrated the task board", "path", d.o.Path, "version", v+1)
		}
	}
}
