package postgres

import (
	"errors"
	"testing"
	"time"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
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

// The board has the times of the database, so that machines whose clocks differ answer each other.
func TestTheBoardHasTheTimeOfTheDatabase(t *testing.T) {
	clock := session.Clock
	session.Clock = func() time.Time { return clock().Add(-10 * time.Hour) }
	t.Cleanup(func() { session.Clock = clock })
	s, _ := openNew(t)
	_, err := s.Database().Requests().Ask(t.Context(), store.Request{Kind: store.OfAttempt, Target: id})
	if !errors.Is(err, store.ErrNotAnswered) {
		t.Fatalf("Ask = %v", err)
	}
	var asked string
	_, err = s.first(t.Context(), `SELECT asked_at FROM @owner_requests_all`, nil, &asked)
	must(t, err)
	at, err := task.ParseTime(asked)
	must(t, err)
	if old := time.Since(at); old.Abs() > 5*time.Minute {
		t.Errorf("the request is of %s, %v ago", asked, old)
	}
}
