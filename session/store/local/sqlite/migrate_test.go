package sqlite

import (
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
)

var update = flag.Bool("update", false, "write the board of the present version into testdata")

// golden is a board of a version as SQL, which a later program is to open.
func golden(version int) string {
	return filepath.Join("testdata", fmt.Sprintf("board_%04d.sql", version))
}

// The board in testdata is one that this program makes; -update writes it, once
// for each version.
func TestGoldenBoardOfThisVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	b := openAt(t, path, noon)
	p := rootOf(t, b)
	s := addTask(t, b, p, "it's one")
	try(t, b, s)
	e, session := run(t, b)
	if _, _, err := b.Queue(t.Context(), session.ID, &task.Queued{Prompt: "more"}); err != nil {
		t.Fatal(err)
	}
	end(t, b, e, task.Ending{State: task.Failed, ExitCode: new(3), Error: new("it broke"), Task: task.InReview})
	_, err := b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "two", Description: new("text"), JobName: new("j"), WorkflowName: new("w"), DependsOn: []string{s.ID}},
		task.Request{Identity: "me", Tool: "create_task", RequestID: "r", ArgsDigest: "d"})
	testkit.Must(t, err)
	if *update {
		testkit.Must(t, os.MkdirAll("testdata", 0o755))
		testkit.Must(t, os.WriteFile(golden(latest()), []byte(dump(t, path)), 0o644))
	}
	text, err := os.ReadFile(golden(latest()))
	if err != nil {
		t.Fatal(err, "(-update writes it)")
	}
	again := restore(t, string(text))
	if got, want := schemaOf(t, again), schemaOf(t, path); !reflect.DeepEqual(got, want) {
		t.Errorf("testdata has the schema\n%v, this program makes\n%v", got, want)
	}
}

// TestMigrationFromEachVersion opens a board of each version there was, the
// empty file included, and sees that its schema is the present one and that its
// rows are there.
func TestMigrationFromEachVersion(t *testing.T) {
	fresh := filepath.Join(t.TempDir(), "board.db")
	rootOf(t, openAt(t, fresh, noon))
	want := schemaOf(t, fresh)
	for v := range latest() + 1 {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			text := []byte("PRAGMA user_version = 0;")
			if v > 0 {
				var err error
				if text, err = os.ReadFile(golden(v)); err != nil {
					t.Fatal(err)
				}
			}
			path := restore(t, string(text))
			if v > 0 {
				readOld(t, path, v)
			}
			var boards sync.WaitGroup
			for range 4 { // servers that start at once
				boards.Go(func() {
					b, err := openBoard(t.Context(), Options{Path: path})
					if err != nil {
						t.Error(err)
						return
					}
					if err := b.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			boards.Wait()
			if got := schemaOf(t, path); !reflect.DeepEqual(got, want) {
				t.Errorf("the schema is\n%s, want\n%s", got, want)
			}
			b := openAt(t, path, noon)
			p := rootOf(t, b)
			if v > 0 {
				list, total, _, err := b.Tasks(t.Context(), p.ID, "", task.Page{Limit: 9})
				if err != nil || total != 2 {
					t.Fatal(list, total, err)
				}
				for _, s := range list {
					if (s.Title == "two") == (s.LatestAttemptID != nil) || (s.Title == "it's one") != s.HasInProgressAttempt {
						t.Errorf("%+v", s)
					}
				}
				for who, want := range map[session.Caller]int{{Identity: "eve", Group: "team"}: 0, {Identity: session.LocalIdentity}: 2} {
					if list, total, _, err := b.For(who).Tasks(t.Context(), p.ID, "", task.Page{Limit: 9}); len(list) != want || total != want || err != nil {
						t.Errorf("%+v sees %d of %d, want %d; %v", who, len(list), total, want, err)
					}
				}
			}
			addTask(t, b, p, "three")
		})
	}
}

// readOld reads a board of a version without migrating it, as commands that change nothing do.
func readOld(t *testing.T, path string, version int) {
	t.Helper()
	b, err := openBoard(t.Context(), Options{Path: path, ReadOnly: true})
	testkit.Must(t, err)
	defer b.Close()
	all, err := b.AllAttempts(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if at, err := b.AttemptContext(t.Context(), all[0].ID); err != nil || at.Task.Title != "it's one" {
		t.Error(at, err)
	}
	if used, err := b.Used(t.Context(), all[0].TaskID); err != nil || len(used) != 1 || used[0].Usage != nil {
		t.Error(used, err)
	}
	if found, s, err := b.Inspect(t.Context()); err != nil || len(found) > 0 || s.Tasks != 2 {
		t.Error(found, s, err)
	}
	if got := schemaOf(t, path); !slices.Contains(got, fmt.Sprintf("version %d", version)) {
		t.Errorf("reading has changed it to %v", got)
	}
}

// A migration that fails leaves the board at its version, and nothing of itself.
func TestFailedMigrationIsUndone(t *testing.T) {
	was := migrations
	defer func() { migrations = was }()
	path := filepath.Join(t.TempDir(), "board.db")
	testkit.Must(t, openAt(t, path, time.Now).Close())
	migrations = append(was[:len(was):len(was)], "CREATE TABLE half (x); INSERT INTO nowhere VALUES (1);")
	before := schemaOf(t, path)
	_, err := openBoard(t.Context(), Options{Path: path})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("migrating it from version %d to %d", len(was), len(was)+1)) {
		t.Error(err)
	}
	if got := schemaOf(t, path); !reflect.DeepEqual(got, before) {
		t.Errorf("left behind: %v", got)
	}
	empty := filepath.Join(t.TempDir(), "board.db")
	raw(t, empty, fmt.Sprintf("PRAGMA application_id = %d; CREATE TABLE x (y)", applicationID)).Close()
	if _, err := openBoard(t.Context(), Options{Path: empty, ReadOnly: true}); err == nil || !strings.Contains(err.Error(), "is to be migrated") {
		t.Error(err)
	}
	migrations = append(was[:len(was):len(was)], "CREATE TABLE whole (x);")
	openAt(t, path, time.Now)
	migrations = was
	if _, err := openBoard(t.Context(), Options{Path: path}); !errors.Is(err, task.ErrNewer) {
		t.Error(err)
	}
}

// schemaOf lists what is in a database, and its version.
func schemaOf(t *testing.T, path string) []string {
	t.Helper()
	db := raw(t, path)
	defer db.Close()
	return texts(t, db, `SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema
		UNION ALL SELECT 'version ' || user_version FROM pragma_user_version
		UNION ALL SELECT 'application ' || application_id FROM pragma_application_id ORDER BY 1`)
}

func texts(t *testing.T, db *sql.DB, query string) (all []string) {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatal(query, err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		testkit.Must(t, rows.Scan(&s))
		all = append(all, s)
	}
	testkit.Must(t, rows.Err())
	return all
}

// dump writes a database as the statements that make it again.
func dump(t *testing.T, path string) string {
	t.Helper()
	db := raw(t, path)
	defer db.Close()
	var b strings.Builder
	b.WriteString("PRAGMA foreign_keys = OFF;\n")
	tables := texts(t, db, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid`)
	for _, s := range texts(t, db, `SELECT sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid`) {
		b.WriteString(s + ";\n")
	}
	for _, table := range tables {
		columns := texts(t, db, fmt.Sprintf(`SELECT name FROM pragma_table_info('%s')`, table))
		row := "'(' || quote(" + strings.Join(columns, ") || ', ' || quote(") + ") || ')'"
		for _, values := range texts(t, db, "SELECT "+row+" FROM "+table+" ORDER BY 1") {
			fmt.Fprintf(&b, "INSERT INTO %s VALUES %s;\n", table, values)
		}
	}
	for _, s := range texts(t, db, `SELECT sql FROM sqlite_schema WHERE type <> 'table' AND sql IS NOT NULL ORDER BY rowid`) {
		b.WriteString(s + ";\n")
	}
	for _, pragma := range []string{"application_id", "user_version"} {
		fmt.Fprintf(&b, "PRAGMA %s = %s;\n", pragma, texts(t, db, "PRAGMA "+pragma)[0])
	}
	return b.String()
}

// restore makes a database file of a dump.
func restore(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "board.db")
	testkit.Must(t, raw(t, path, text).Close())
	return path
}
