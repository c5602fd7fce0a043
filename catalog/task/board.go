package task

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// readers is how many connections read at once. Readers never wait for the
// writer, nor it for them.
const readers = 4

// Options configure a Board.
type Options struct {
	Path     string // of the database file, absolute; its folder is made
	ReadOnly bool   // a board that is not there when it is opened is empty then
	Logger   *slog.Logger
	Now      func() time.Time
}

// A Board is the database. Its methods may be called from any goroutine, by
// several processes on one file; each change is one transaction, durable when
// the method returns. A method blocks while another change is made, here or in
// another process, for as long as its context lives; a change that has begun is
// finished even if its context ends meanwhile, so that its outcome is known.
//
// Nothing else in the process may open the file: on Unix, closing any handle of
// it drops SQLite's locks. A file that is moved or replaced while it is open is
// not written to any more (ErrDamaged).
//
// Every method may return, beside its own errors, ErrFull (the disk is full or
// not writable), ErrDamaged (the file is no board any more), ErrClosed, or the
// context's error.
type Board struct {
	file    *file
	writer  *pool // nil: opened for reading only
	reading *pool
	now     func() time.Time
	once    sync.Once
}

// Open opens the board, and migrates one of an earlier version. One of a newer
// version is refused with ErrNewer, a file that is no board with ErrDamaged;
// both are left untouched. One on a disk that is not writable can be read, and
// changes get ErrFull. The caller closes the board.
func Open(ctx context.Context, o Options) (*Board, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	b, err := open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("opening the task board %s: %w", o.Path, err)
	}
	return b, nil
}

func open(ctx context.Context, o Options) (*Board, error) {
	if !filepath.IsAbs(o.Path) {
		return nil, fmt.Errorf("%w: its path is to be absolute", ErrInvalid)
	}
	there, err := look(o.Path)
	if err != nil {
		return nil, err
	}
	b := &Board{file: &file{path: o.Path, logger: o.Logger}, now: o.Now}
	if there {
		if err := b.file.peek(ctx); err != nil {
			return nil, err
		}
	}
	switch {
	case o.ReadOnly && !there:
		err = b.openEmpty(ctx)
	case o.ReadOnly:
		err = b.openReadOnly(ctx, source(o.Path, "ro"))
	default:
		err = b.openFile(ctx)
	}
	if c := code(err); there && (c == sqlite3.SQLITE_CANTOPEN || c == sqlite3.SQLITE_READONLY) {
		return openFrozen(ctx, o, err)
	}
	return b, err
}

// openFrozen reads a board in a folder that cannot be written, where SQLite can
// make no index of its log: it is read as if nobody changed it, which needs that
// there is no log.
func openFrozen(ctx context.Context, o Options, why error) (*Board, error) {
	if _, there, err := sizeOf(o.Path + "-wal"); err != nil || there {
		return nil, why
	}
	b := &Board{file: &file{path: o.Path, logger: o.Logger}, now: o.Now}
	if err := b.openReadOnly(ctx, source(o.Path, "ro")+"&immutable=1"); err != nil {
		return nil, err
	}
	o.Logger.Warn("the task board can only be read, as it is now", "path", o.Path, "error", why)
	return b, nil
}

// openEmpty stands in for a board that is not there.
func (b *Board) openEmpty(ctx context.Context) error {
	// One connection, for each has its own database in memory.
	b.reading = newPool(b.file, "file::memory:", 1, false)
	err := b.reading.prepare(ctx, func(l *link) error { return migrate(ctx, l, b.file) })
	if err != nil {
		return errors.Join(err, b.Close())
	}
	return nil
}

// openReadOnly asks for a board that this program can read as it is: it cannot
// be migrated.
func (b *Board) openReadOnly(ctx context.Context, dsn string) error {
	b.reading = newPool(b.file, dsn, readers, true)
	err := b.reading.prepare(ctx, func(l *link) error {
		v, err := version(ctx, l)
		switch {
		case err != nil:
			return err
		case v > latest():
			return newer(v)
		case v < latest():
			err = fmt.Errorf("it is of version %d, and is to be migrated to %d before it can be read: run a command that writes it, such as deepwork serve", v, latest())
		default:
			err = l.ours(ctx, v)
		}
		return err
	})
	if err != nil {
		return errors.Join(err, b.Close())
	}
	return nil
}

// openFile opens a board for reading and writing, and makes it if it is not
// there.
func (b *Board) openFile(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(b.file.path), 0o755); err != nil {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	b.writer = newPool(b.file, source(b.file.path, "rwc"), 1, false)
	b.reading = newPool(b.file, source(b.file.path, "rwc"), readers, true)
	err := b.writer.prepare(ctx, func(l *link) error {
		if err := b.file.opened(); err != nil {
			return err
		}
		if err := l.walMode(ctx, b.file.logger); err != nil {
			return err
		}
		return migrate(ctx, l, b.file)
	})
	if err != nil {
		return errors.Join(err, b.Close())
	}
	return nil
}

// Close closes the database; it waits for the calls that are under way, and
// later ones get ErrClosed.
func (b *Board) Close() error {
	var err error
	b.once.Do(func() {
		// The writer goes last: it is the one that may tidy up the file.
		err = b.reading.close()
		if b.writer != nil {
			err = errors.Join(err, b.writer.close())
		}
		if err != nil {
			err = fmt.Errorf("closing the task board %s: %w", b.file.path, err)
		}
	})
	return err
}

// read runs f in a transaction that sees one state of the board.
func (b *Board) read(ctx context.Context, doing string, f func(t tx) error) error {
	return wrap(doing, b.reading.do(ctx, f))
}

// write runs f in the one transaction that changes the board now. f may run
// again where another process was in the way.
func (b *Board) write(ctx context.Context, doing string, f func(t tx) error) error {
	if b.writer == nil {
		return wrap(doing, fmt.Errorf("%w: %s was opened for reading only; if that was not asked for, make it and its folder writable and start the server again", ErrFull, b.file.path))
	}
	return wrap(doing, b.writer.do(ctx, f))
}

func wrap(doing string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// stamp is the present as the board writes it.
func (b *Board) stamp() string { return format(b.now()) }

// smallest is the size of the smallest database file, in bytes.
const smallest = 512

// look tells whether there is a database file. A write-ahead log without its
// database is what is left of a board: SQLite would delete it, so it is refused.
func look(path string) (bool, error) {
	size, there, err := sizeOf(path)
	if err != nil {
		return false, err
	}
	switch {
	case size >= smallest:
		return true, nil
	case size > 0: // SQLite would take it for an empty one
		return true, damaged(path, fmt.Errorf("it is cut off after %d bytes", size))
	}
	if wal, _, err := sizeOf(path + "-wal"); err != nil {
		return false, err
	} else if wal > 0 {
		state := "is not there"
		if there {
			state = "is empty"
		}
		return false, fmt.Errorf("%w: it %s, but its write-ahead log %s-wal has data: put the file back that belongs to it, or move the log away to begin an empty board", ErrDamaged, state, path)
	}
	return false, nil
}

func sizeOf(path string) (size int64, there bool, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, false, nil
	case err != nil:
		return 0, false, err
	case !info.Mode().IsRegular():
		return 0, true, fmt.Errorf("%w: %s is not a regular file", ErrDamaged, path)
	}
	return info.Size(), true, nil
}
