package postgres

import (
	"context"
	"embed"
	"fmt"
	"strings"

	"deepwork/catalog/task"
	"deepwork/session/store/sqlstore"

	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed migrations/*.sql
var files embed.FS

// migrations are the steps from an empty schema to the current one, each a script. In a script, @ means the
// schema and a dot.
var migrations = sqlstore.Scripts(files)

// SchemaVersion returns the version of the schema, 0 if it does not exist, and the version to which this
// program migrates. It changes nothing.
func (s *Store) SchemaVersion(ctx context.Context) (is, latest int, err error) {
	var exists bool
	_, err = s.first(ctx, `SELECT to_regclass($1) IS NOT NULL`, []any{s.schema + ".schema_version"}, &exists)
	if err == nil && exists {
		_, err = s.first(ctx, `SELECT version FROM @schema_version`, nil, &is)
	}
	return is, sqlstore.Latest(migrations), s.explain(err)
}

// checkVersion returns an error for a schema whose version this program does not know.
func checkVersion(version int) error {
	return sqlstore.CheckVersion(migrations, version, "by another schema, ?schema=NAME in its URL")
}

// Migrate creates the schema or brings it to the current version, and returns the versions before and after.
// For a version that this program does not know it returns task.ErrVersion.
func (s *Store) Migrate(ctx context.Context) (from, to int, err error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	if from, to, err = s.SchemaVersion(ctx); err == nil {
		err = s.explain(s.migrate(ctx))
	}
	return from, to, err
}

// current returns an error unless the schema has the current version.
func (s *Store) current(ctx context.Context) error {
	is, latest, err := s.SchemaVersion(ctx)
	if err == nil {
		err = checkVersion(is)
	}
	if err == nil && is < latest {
		err = fmt.Errorf("%w: its schema has to be created or migrated, from version %d to %d: run 'deepwork store "+
			"migrate', or start a server", task.ErrInvalid, is, latest)
	}
	return err
}

// migrate creates the schema or brings it to the current version, in one transaction. One of several
// processes does it, and the others find it done.
func (s *Store) migrate(ctx context.Context) error {
	is, latest, err := s.SchemaVersion(ctx)
	if err != nil || is == latest {
		return err
	}

	if err := checkVersion(is); err != nil {
		return err
	}
	return s.onConn(ctx, func(c *pgconn.PgConn) (err error) {
		begin := fmt.Sprintf(`BEGIN; SET LOCAL idle_in_transaction_session_timeout = '10s';
			SELECT pg_advisory_xact_lock(hashtextextended('deepwork migrates %[1]s', 0));
			SELECT current_setting('server_encoding'), current_setting('server_version_num')::int >= 130000,
				EXISTS (SELECT FROM pg_namespace WHERE nspname = '%[1]s'), to_regclass('%[1]s.schema_version') IS `+
			`NOT NULL`, s.schema)
		all, err := c.Exec(ctx, begin).ReadAll()
		if err != nil {
			return err
		}
		defer func() {
			if err != nil {
				c.Exec(ctx, "ROLLBACK").ReadAll()
			}
		}()
		row := all[len(all)-1].Rows[0]
		if string(row[0]) != "UTF8" || string(row[1]) != "t" {
			return fmt.Errorf("%w: it needs PostgreSQL 13 or later and a database with the encoding UTF8, and this "+
				"one has %s", task.ErrInvalid, row[0])
		}

		script := "SET LOCAL search_path = " + s.schema + ";"
		if string(row[2]) == "f" {
			script = "CREATE SCHEMA " + s.schema + ";" + script
		}
		if string(row[3]) == "f" {
			script += "CREATE TABLE schema_version (version int NOT NULL); INSERT INTO schema_version VALUES (0);"
		}
		if all, err = c.Exec(ctx, script+"SELECT version FROM schema_version").ReadAll(); err != nil {
			return err
		}
		if _, err = fmt.Sscan(string(all[len(all)-1].Rows[0][0]), &is); err == nil {
			err = checkVersion(is)
		}

		for is < latest && err == nil {
			text, next := sqlstore.NextScript(migrations, is)
			_, err = c.Exec(ctx, weaken(strings.ReplaceAll(text, "@", s.schema+"."))).ReadAll()
			if err != nil {
				return fmt.Errorf("migrating the schema from version %d to %d: %w", is, next, err)
			}
			is = next
		}
		if err == nil {
			_, err = c.Exec(ctx, fmt.Sprintf("UPDATE schema_version SET version = %d; COMMIT", latest)).ReadAll()
		}
		return err
	})
}
