package postgres

import (
	"errors"
	"testing"
	"time"

	"deepwork/catalog/task"
	"deepwork/session"
)

// expire ends the lease of a process, as if it had been suspended.
func expire(t *testing.T, s *Store) {
	t.Helper()
	_, err := s.exec(t.Context(), `UPDATE @members SET expires = clock_timestamp() - interval '1 s' WHERE id = $1`, s.ID())
	must(t, err)
}

// A process whose lease has ended takes no new term in a schema that is newer than it.
func TestANewTermInANewerSchema(t *testing.T) {
	s, _ := openNew(t)
	must(t, s.renew())
	_, err := s.exec(t.Context(), `UPDATE @schema_version SET version = 99`)
	must(t, err)
	expire(t, s)
	if err := s.renew(); !errors.Is(err, task.ErrVersion) {
		t.Errorf("renew = %v", err)
	}
	if _, err := s.Term(); !errors.Is(err, task.ErrVersion) {
		t.Errorf("Term = %v", err)
	}
}

// The board has the times of the database, so that machines whose clocks differ agree on them.
func TestTheBoardHasTheTimeOfTheDatabase(t *testing.T) {
	clock := session.Clock
	session.Clock = func() time.Time { return clock().Add(-10 * time.Hour) }
	t.Cleanup(func() { session.Clock = clock })
	s, _ := openNew(t)
	b := s.Database().Board()
	must(t, b.SyncProjects(t.Context(), []task.ProjectSpec{spec("shop", "/srv/shop", true)}, true))
	made := listed(t, b)["shop"].CreatedAt
	if old := time.Since(made); old.Abs() > 5*time.Minute {
		t.Errorf("the project was made at %v, %v ago", made, old)
	}
}
