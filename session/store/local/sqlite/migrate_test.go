package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
)

// with makes the scripts the last migrations until the test ends.
func with(t *testing.T, scripts ...string) {
	was := migrations
	migrations = append(was[:len(was):len(was)], scripts...)
	t.Cleanup(func() { migrations = was })
}

// Servers that open a file at once migrate it one after the other, whether it is empty or has a version
// already.
func TestMigrationByManyServers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	openByMany := func(want int) {
		t.Helper()
		var boards sync.WaitGroup
		for range 4 {
			boards.Go(func() {
				b, err := openBoard(t.Context(), Options{Path: path})
				if err != nil {
					t.Error(err)
					return
				}
				testkit.Works(t, b.Close())
			})
		}
		boards.Wait()
		got := schemaOf(t, path)
		testkit.True(t, got["version"] == fmt.Sprint(want) && got["application"] == fmt.Sprint(applicationID), "the file has version %s and application %s, want %d and %d", got["version"], got["application"], want, applicationID)
	}
	openByMany(latest())
	b := openAt(t, path, noon)
	s := addTask(t, b, rootOf(t, b), "kept")
	testkit.Must(t, b.Close())
	with(t, "CREATE TABLE second (x)", "ALTER TABLE second ADD COLUMN y")
	openByMany(latest())
	testkit.Equal(t, schemaOf(t, path)["table second"], "CREATE TABLE second (x, y)", "the later scripts made")
	testkit.Same(t, taskOf(t, openAt(t, path, noon), s.ID), s, "the task")
}

// A migration that fails leaves the board at its version, and nothing of itself.
func TestFailedMigrationIsUndone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	testkit.Must(t, openAt(t, path, time.Now).Close())
	version := latest()
	with(t, "CREATE TABLE half (x); INSERT INTO nowhere VALUES (1);")
	before := schemaOf(t, path)
	testkit.Fails(t, testkit.Get(openBoard(t.Context(), Options{Path: path})).Err(), fmt.Sprintf("migrating it from version %d to %d", version, version+1))
	testkit.Same(t, schemaOf(t, path), before, "left behind")
}

// A reader does not migrate.
func TestReadingNeedsTheCurrentVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	testkit.Must(t, openAt(t, path, time.Now).Close())
	with(t, "CREATE TABLE second (x)")
	before := schemaOf(t, path)
	if _, err := openBoard(t.Context(), Options{Path: path, ReadOnly: true}); !errors.Is(err, task.ErrVersion) || !strings.Contains(err.Error(), "must be migrated") {
		t.Error(err)
	}
	testkit.Same(t, schemaOf(t, path), before, "reading has changed it")
}

// schemaOf returns the statements of what is in a database by its type and name, its version and its
// application.
func schemaOf(t *testing.T, path string) map[string]string {
	t.Helper()
	db := raw(t, path)
	defer db.Close()
	rows, err := db.Query(`SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_schema
		UNION ALL SELECT 'version', user_version FROM pragma_user_version
		UNION ALL SELECT 'application', application_id FROM pragma_application_id`)
	testkit.Must(t, err)
	defer rows.Close()
	all := make(map[string]string)
	for rows.Next() {
		var name string
		var statement sql.NullString
		testkit.Must(t, rows.Scan(&name, &statement))
		all[name] = statement.String
	}
	testkit.Must(t, rows.Err())
	return all
}
