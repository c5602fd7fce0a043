package task

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// applicationID marks the file as a board of ours, in SQLite's header.
const applicationID = 0x64776264 // dwbd

//go:embed migrations/*.sql
var files embed.FS

// migrations are the steps from an empty file to the present schema, each a
// script; the version of a board is how many it has had.
var migrations = load(files)

// load reads the scripts, whose names begin with their numbers, 0001 and so on,
// without a gap.
func load(from fs.FS) []string {
	names, err := fs.Glob(from, "migrations/*.sql")
	if err != nil {
		panic(err)
	}
	scripts := make([]string, len(names))
	for i, name := range names { // sorted
		if !strings.HasPrefix(path.Base(name), fmt.Sprintf("%04d_", i+1)) {
			panic(fmt.Sprintf("%s is not migration number %d", name, i+1))
		}
		script, err := fs.ReadFile(from, name)
		if err != nil {
			panic(err)
		}
		scripts[i] = string(script)
	}
	return scripts
}

// latest is the version that this program writes.
func latest() int { return len(migrations) }

func version(ctx context.Context, l *link) (v int, err error) {
	err = l.conn.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v)
	return v, err
}

// ours refuses a database of another program.
func (l *link) ours(ctx context.Context, v int) error {
	var id, tables int
	err := l.conn.QueryRowContext(ctx, "PRAGMA application_id").Scan(&id)
	if err == nil {
		err = l.conn.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables)
	}
	if err != nil {
		return err
	}
	if id != applicationID && (id != 0 || v != 0 || tables > 0) {
		return fmt.Errorf("%w: it is the database of another program, and was left as it is: move it away to begin an empty board", ErrDamaged)
	}
	return nil
}

// migrate brings a board to the present version, step by step. Another process
// may do the same: who comes second finds it done.
func migrate(ctx context.Context, l *link, f *file) error {
	ctx = context.WithoutCancel(ctx)
	for {
		v, err := version(ctx, l)
		if err != nil || v >= latest() {
			return err
		}
		err = l.transact(ctx, "BEGIN IMMEDIATE", func(t tx) error {
			v, err = version(ctx, l)
			if err != nil || v >= latest() {
				return err
			}
			if err := l.ours(ctx, v); err != nil {
				return err
			}
			if _, err := l.conn.ExecContext(ctx, migrations[v]); err != nil {
				return fmt.Errorf("migrating it from version %d to %d: %w", v, v+1, err)
			}
			_, err = l.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, v+1))
			return err
		})
		if err != nil {
			return err
		}
		if v > 0 {
			f.logger.Info("migrated the task board", "path", f.path, "version", v+1)
		}
	}
}
