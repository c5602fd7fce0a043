package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"

	"deepwork/catalog/task"
	"deepwork/session/store/sqlstore"
)

// applicationID marks the file as a board, in SQLite's header.
const applicationID = 0x6477646b // dwdk

// unreleasedID marks boards of before the first release, whose versions were numbered otherwise.
const unreleasedID = 0x64776264 // dwbd

//go:embed migrations/*.sql
var files embed.FS

// migrations are the steps from an empty file to the current schema, each a script; the version of
// a board, SQLite's user_version, is the number of steps applied.
var migrations = sqlstore.Scripts(files)

// setAside says how a database is set aside.
const setAside = "with deepwork check --set-aside"

// latest is the version that this program writes.
func latest() int { return len(migrations) }

// ours returns the version of a database. It refuses those of other programs with task.ErrDamaged, and
// those that cannot be migrated to the current version with task.ErrVersion.
func ours(ctx context.Context, c interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) (v int, err error) {
	var id, tables int
	// One statement, so one state: another server may be migrating it.
	err = c.QueryRowContext(ctx, `SELECT (SELECT user_version FROM pragma_user_version),
		(SELECT application_id FROM pragma_application_id), (SELECT count(*) FROM sqlite_schema)`).Scan(&v, &id, &tables)
	switch {
	case err != nil:
		return 0, err
	case id == unreleasedID:
		return 0, sqlstore.OtherVersion(fmt.Sprintf("%d of before the first release", v), latest(), setAside)
	case id == applicationID && v > latest():
		return 0, sqlstore.OtherVersion(fmt.Sprint(v), latest(), setAside)
	case id != applicationID && (id != 0 || v != 0 || tables > 0):
		return 0, fmt.Errorf("%w: it is the database of another program, and was left as it is: set it aside with `deepwork check --set-aside` to begin an empty one", task.ErrDamaged)
	}
	return v, nil
}

// migrate brings a database to the current version, step by step. If another process does the same,
// the second one finds it done.
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
		if v, err = ours(ctx, t); err == nil && v < latest() {
			if _, err = t.ExecContext(ctx, migrations[v]); err != nil {
				err = fmt.Errorf("migrating it from version %d to %d: %w", v, v+1, err)
			} else {
				_, err = t.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, v+1))
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
