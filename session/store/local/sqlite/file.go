package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store/sqlstore"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// pragmas are set for each connection. SQLite itself waits only briefly for a lock, and a commit is on disk
// when it returns. The log restarts from its beginning after a megabyte: syncing a growing file takes nearly
// twice as long. Each connection caches half a megabyte of pages, not two, since the system caches the file
// anyway.
const pragmas = "&_pragma=busy_timeout(50)&_pragma=foreign_keys(1)&_pragma=synchronous(2)" +
	"&_pragma=journal_size_limit(16777216)&_pragma=wal_autocheckpoint(250)" +
	"&_pragma=cache_size(-512)"

const readOnly = "&_pragma=query_only(1)"

// Source returns the data source name of a file in a mode of SQLite: ro, rw or rwc.
func Source(path, mode string) string {
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // C:/x
	}
	u := url.URL{Scheme: "file", Path: slashed, RawQuery: "mode=" + mode}
	return u.String()
}

// smallest is the size of the smallest database file, in bytes.
const smallest = 512

// look reports whether there is a database file. A write-ahead log without its database is what is left of a
// board, and SQLite would delete it, so it is refused.
func look(path string) (bool, error) {
	size, there, err := sizeOf(path)
	if err != nil {
		return false, err
	}
	switch {
	case size >= smallest:
		return true, nil
	case size > 0: // SQLite would treat it as an empty database
		return true, damaged(path, fmt.Errorf("it is cut off after %d bytes", size))
	}

	if wal, _, err := sizeOf(path + "-wal"); err != nil {
		return false, err
	} else if wal > 0 {
		state := "is not there"
		if there {
			state = "is empty"
		}
		return false,
			fmt.Errorf("%w: it %s, but its write-ahead log %s-wal has data: put the file back that belongs to it, or "+
				"set the log aside with `deepwork check --set-aside` to begin an empty database", task.ErrDamaged,
				state, path)
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
		return 0, true, fmt.Errorf("%w: %s is not a regular file", task.ErrDamaged, path)
	}
	return info.Size(), true, nil
}

// peek refuses a file that this program must not migrate, before anything is written: even closing a database
// that is open for writing changes its file.
func (d *DB) peek(ctx context.Context) error {
	pool := d.connect(Source(d.o.Path, "ro"), 1, readOnly)
	err := d.prepare(ctx, pool, func(ctx context.Context, c *sql.Conn) error {
		_, err := ours(ctx, c)
		return err
	})
	if err = errors.Join(err, pool.Close()); errors.Is(err, task.ErrFull) {
		return nil // it must be recovered from a crash, which takes a writer, or is read as it is
	}
	return err
}

// tidy removes the empty log and index that SQLite creates for reading and leaves behind. It has SQLite do
// that, which keeps them if another process has the database open.
func (d *DB) tidy() {
	size, log, err := sizeOf(d.o.Path + "-wal")
	if !d.o.ReadOnly || d.hadLog || !log || size > 0 || err != nil {
		return
	}
	pool := d.connect(Source(d.o.Path, "rw"), 1, readOnly)
	pool.QueryRow("PRAGMA user_version").Scan(new(int))
	pool.Close() // on failure, empty files are left
}

// inPlace checks that a path still names the opened file, if one was opened. Writes to a deleted or replaced
// file would be acknowledged and lost.
func inPlace(path string, opened os.FileInfo) error {
	if opened == nil {
		return nil
	}
	if now, err := os.Stat(path); err == nil && os.SameFile(opened, now) {
		return nil
	}
	return fmt.Errorf("%w: %s was moved, removed or replaced while it was open: put it back, or start the server "+
		"again for the file that is there now", task.ErrDamaged, path)
}

// explain converts an error of SQLite to one that callers know, with a remedy. If another database has
// already explained the error, it is about that one: a change may copy what it reads there.
func (d *DB) explain(err error) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok || errors.Is(err, task.ErrDamaged) || errors.Is(err, task.ErrFull) {
		return err
	}

	path := d.o.Path
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w: free space on the disk that holds %s and call again: %w", task.ErrFull, path, err)
	case sqlite3.SQLITE_CANTOPEN:
		return fmt.Errorf("%w: see that %s and its folder can be written, that their disk has room, and that not too "+
			"many files are open (ulimit -n), and call again: %w", task.ErrFull, path, err)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		return fmt.Errorf("%w: make %s and its folder writable and call again: %w", task.ErrFull, path, err)
	case sqlite3.SQLITE_IOERR:
		switch e.Code() {
		case sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC,
			sqlite3.SQLITE_IOERR_TRUNCATE, sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE,
			sqlite3.SQLITE_IOERR_SHMMAP:
			return fmt.Errorf("%w: see that the disk that holds %s has space and can be written, and call again: %w",
				task.ErrFull, path, err)
		}
		return fmt.Errorf("reading %s: see that its disk works: %w", path, err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return damaged(path, err)
	}

	return err
}

// damaged returns the error for an unreadable file, with a remedy. Nothing is done automatically: there may
// be a copy, or something to save.
func damaged(path string, why error) error {
	return fmt.Errorf("%w: %s was left as it is; restore it from a copy (with its -wal file, if it has one), save "+
		"what can be read with `sqlite3 %s .recover`, or set it aside with `deepwork check --set-aside` to begin an "+
		"empty one: %w",
		task.ErrDamaged, path, filepath.Base(path), why)
}

// code returns the primary result code of SQLite in an error, or 0.
func code(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

// busy reports whether another connection is in the way.
func busy(err error) bool {
	c := code(err)
	return c == sqlite3.SQLITE_BUSY || c == sqlite3.SQLITE_PROTOCOL
}

const doBoard = "stop the servers and restore the database from a copy, save what can be read with `sqlite3 board.db " +
	".recover`, or set it aside with `deepwork check --set-aside`"

// Damage returns what SQLite finds wrong with the file or, if nothing, the references to missing rows.
func (d dialect) Damage(t sqlstore.Tx) (found []session.Finding) {
	for _, what := range sqlstore.List[string](t, `PRAGMA integrity_check`) {
		if what != "ok" {
			found = append(found, session.Finding{Where: d.o.Path, What: "SQLite finds: " + what, Do: doBoard})
		}
	}
	if found != nil {
		return found
	}
	for _, what := range sqlstore.List[string](t,
		`SELECT coalesce(rowid, 0) || ' of ' || "table" || ' names a row of ' || parent FROM `+
			`pragma_foreign_key_check`) {
		found = append(found, session.Finding{Where: d.o.Path, What: "row " + what + " that is not there", Do: doBoard})
	}
	return found
}

// Relocate replaces each path of a repository, worktree, workspace or session by the result of to.
func (d *DB) Relocate(ctx context.Context, to func(path string) string) error {
	return d.Run(ctx, "correcting the paths on the task board", sqlstore.Writing, func(t sqlstore.Tx) {
		for _, at := range [][2]string{{"repos", "path"}, {"attempt_repos", "repo_path"}, {"attempt_repos", "worktree"},
			{"attempts", "workspace"}, {"workflow_sessions", "root"}} {
			table, column := at[0], at[1]
			for _, path := range sqlstore.List[string](t, fmt.Sprintf(`SELECT DISTINCT %s FROM %s`, column, table)) {
				if now := to(path); now != path {
					t.Exec(fmt.Sprintf(`UPDATE %s SET %s = ?1 WHERE %[2]s = ?2`, table, column), now, path)
				}
			}
		}
	})
}
