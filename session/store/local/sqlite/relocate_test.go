package sqlite

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
)

// Only rows that a board can have are imported, what runs is interrupted, and nothing in the file
// takes effect.
func TestImportOfABoard(t *testing.T) {
	same := func(path string) string { return path }
	for name, c := range map[string]struct {
		sql  string // in the file
		want error
	}{
		"as it was":          {"", nil},
		"with a trigger":     {`CREATE TRIGGER x AFTER INSERT ON tasks BEGIN DELETE FROM attempts; END`, nil},
		"an option as id":    {`PRAGMA foreign_keys = 0; UPDATE sessions SET id = '--dangerous'; UPDATE executions SET session_id = '--dangerous'`, task.ErrDamaged},
		"a path as id":       {`PRAGMA foreign_keys = 0; UPDATE attempts SET id = '../../x'; UPDATE attempt_repos SET attempt_id = '../../x'; UPDATE executions SET attempt_id = '../../x'; UPDATE sessions SET attempt_id = '../../x'`, task.ErrDamaged},
		"an option as base":  {`UPDATE attempt_repos SET base_commit = '--output=x'`, task.ErrDamaged},
		"a row of nothing":   {`PRAGMA foreign_keys = 0; DELETE FROM attempts`, task.ErrDamaged},
		"without executions": {`DELETE FROM executions`, task.ErrDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "earlier.db")
			old := openAt(t, file, noon)
			s := addTask(t, old, rootOf(t, old), "one")
			try(t, old, s)
			run(t, old)
			second := addTask(t, old, rootOf(t, old), "second")
			testkit.Must(t, old.Close())
			db, err := sql.Open("sqlite", file)
			if err == nil {
				_, err = db.ExecContext(t.Context(), c.sql)
				err = errors.Join(err, db.Close())
			}
			testkit.Must(t, err)
			b, _ := newBoard(t)
			for range 2 { // it may be called again
				err := b.Import(t.Context(), file, "why", same)
				if c.want == nil && err != nil || c.want != nil && err == nil {
					t.Fatalf("%v, want %v", err, c.want)
				}
			}
			verify(t, b)
			now, err := b.AllAttempts(t.Context())
			testkit.Must(t, err)
			if c.want != nil {
				if len(now) > 0 {
					t.Errorf("imported: %+v", now)
				}
				return
			}
			if len(now) != 1 || now[0].State != task.Interrupted || *now[0].Error != "why" {
				t.Errorf("imported: %+v", now)
			}
			addTask(t, b, rootOf(t, b), "two")
			if err := errors.Join(b.DeleteTask(t.Context(), second.ID), b.Import(t.Context(), file, "why", same)); err != nil {
				t.Errorf("after a task was deleted: %v", err)
			}
			if _, err := b.Task(t.Context(), second.ID); !errors.Is(err, task.ErrNotFound) {
				t.Errorf("a deleted task: %v", err)
			}
			other := filepath.Join(t.TempDir(), "other.db")
			o := openAt(t, other, noon)
			addTask(t, o, rootOf(t, o), "three")
			testkit.Must(t, o.Close())
			if err := b.Import(t.Context(), other, "why", same); !errors.Is(err, ErrOccupied) {
				t.Errorf("onto another board: %v", err)
			}
		})
	}
}
