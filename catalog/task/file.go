package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// A file is the database file, and what is known of it.
type file struct {
	path   string
	logger *slog.Logger
	info   atomic.Pointer[os.FileInfo] // as it was opened
}

// source is the data source name of a file in one of SQLite's modes: ro, or rwc.
func source(path, mode string) string {
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // C:/x
	}
	u := url.URL{Scheme: "file", Path: slashed, RawQuery: "mode=" + mode}
	return u.String()
}

// peek refuses a file that is not this program's to migrate, before anything is
// written: even closing a database that is open for writing changes its file.
func (f *file) peek(ctx context.Context) error {
	p := newPool(f, source(f.path, "ro"), 1, true)
	// In one transaction: another server may be migrating it just now.
	err := p.do(ctx, func(t tx) error {
		v, err := version(ctx, t.l)
		if err != nil {
			return err
		}
		if v > latest() {
			return newer(v)
		}
		return t.l.ours(ctx, v)
	})
	err = errors.Join(err, p.close())
	switch code(err) {
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN:
		// It is to be recovered from a crash first, which takes a writer.
		return nil
	}
	return err
}

func newer(v int) error {
	return fmt.Errorf("%w: %d, and this deepwork knows versions up to %d: update deepwork", ErrNewer, v, latest())
}

// opened remembers which file the path now names, and keeps others from reading
// a new one: prompts may hold what is nobody else's business.
func (f *file) opened() error {
	info, err := os.Stat(f.path)
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		// By name, not by a handle: closing one would drop SQLite's locks.
		if err := os.Chmod(f.path, 0o600); err != nil {
			return err
		}
	}
	f.info.Store(&info)
	return nil
}

// inPlace tells whether the path still names the file that was opened. What is
// written into one that was deleted or replaced would be acknowledged and lost.
func (f *file) inPlace() error {
	was := f.info.Load()
	if was == nil {
		return nil
	}
	now, err := os.Stat(f.path)
	if err == nil && os.SameFile(*was, now) {
		return nil
	}
	return fmt.Errorf("%w: %s was moved, removed or replaced while it was open: put it back, or start the server again for the file that is there now", ErrDamaged, f.path)
}

// explain gives an error of SQLite the name that callers know, and a remedy.
func (f *file) explain(err error) error {
	e, is := errors.AsType[*sqlite.Error](err)
	if !is {
		return err
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w: free space on the disk that holds %s and call again: %w", ErrFull, f.path, err)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return fmt.Errorf("%w: make %s and its folder writable and call again: %w", ErrFull, f.path, err)
	case sqlite3.SQLITE_IOERR:
		switch e.Code() {
		case sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC,
			sqlite3.SQLITE_IOERR_TRUNCATE, sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE,
			sqlite3.SQLITE_IOERR_SHMMAP:
			return fmt.Errorf("%w: see that the disk that holds %s has space and can be written, and call again: %w", ErrFull, f.path, err)
		}
		return fmt.Errorf("reading %s: see that its disk works: %w", f.path, err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return damaged(f.path, err)
	}
	return err
}

// damaged says what to do about a file that cannot be read. Nothing is done by
// itself: there may be a copy, or something to save.
func damaged(path string, why error) error {
	return fmt.Errorf("%w: %s was left as it is; restore it from a copy (with its -wal file, if it has one), save what can be read with `sqlite3 %s .recover`, or move it away to begin an empty board: %w",
		ErrDamaged, path, filepath.Base(path), why)
}

// code is the primary result code of SQLite in an error, 0 if there is none.
func code(err error) int {
	if e, is := errors.AsType[*sqlite.Error](err); is {
		return e.Code() & 0xff
	}
	return 0
}

// busy tells that another connection is in the way, for now.
func busy(err error) bool {
	switch code(err) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL:
		return true
	}
	return false
}
