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

// A new term may take longer than a renewal, as with very many sessions that move to it.
func TestANewTermThatTakesLong(t *testing.T) {
	s, url := openNew(t)
	other := openAt(t, url)
	must(t, s.renew()) // nothing else renews it
	must(t, other.Open(t.Context()))
	r := recordsOf(s)
	must(t, r.Create(t.Context(), id, head{s.ID(), 1, true}.bytes()))
	tx, err := other.pool.BeginTx(t.Context(), nil)
	must(t, err)
	_, err = tx.ExecContext(t.Context(), s.text(`SELECT FROM @session_records FOR UPDATE`))
	must(t, err)
	expire(t, s)
	time.AfterFunc(renewTime+renewTime/4, func() { tx.Rollback() })
	must(t, s.renew())
	must(t, s.renew())
	if term, err := s.Term(); term != 2 || err != nil {
		t.Errorf("term %d, %v", term, err)
	}
	must(t, r.Write(t.Context(), id, head{s.ID(), 2, true}.bytes()))
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

// A statement of an earlier term may arrive after the sessions were moved to the next one, and make this
// process the owner in the earlier one. The session is its own all the same.
func TestATakeoverThatArrivesInTheNextTerm(t *testing.T) {
	a, url := openNew(t)
	b := openAt(t, url)
	must(t, recordsOf(b).Create(t.Context(), id, head{b.ID(), 1, true}.bytes()))
	must(t, b.Close(t.Context()))
	must(t, a.renew())
	expire(t, a)
	must(t, a.renew())
	n, err := a.exec(t.Context(), updateText, a.scope.Load(), id, a.ID(), 1, "late", "", string(head{a.ID(), 2, true}.bytes()), b.ID(), 1, 1)
	if n != 1 || err != nil {
		t.Fatalf("%d rows were changed, %v", n, err)
	}
	r := recordsOf(a)
	must(t, takeOver(t.Context(), a, r, id))
	must(t, r.Write(t.Context(), id, head{a.ID(), 4, true}.bytes()))
}
