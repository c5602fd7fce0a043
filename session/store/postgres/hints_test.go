package postgres

import (
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/store/postgres/pgtest"
)

func (h *hints) heard() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

// A change is hinted at to the other processes of the project, also after their connections were lost.
func TestAHintArrives(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	url := server.URL()
	s, other := openAt(t, url), openAt(t, url)
	unrelated := options(url)
	unrelated.Project = "another"
	third, err := Open(unrelated)
	must(t, err)
	defer third.Close(t.Context())
	other.hinted()
	third.hinted()
	heard := func() {
		t.Helper()
		testkit.Until(t, "the listening begins with a hint of its own", func() bool { return other.hints.heard() > 0 && third.hints.heard() > 0 })
		before, foreign := other.hints.heard(), third.hints.heard()
		makeChange(t, s, "x")
		testkit.Until(t, "a hint arrives", func() bool { return other.hints.heard() > before })
		if third.hints.heard() != foreign {
			t.Error("another project had it too")
		}
	}
	heard()
	must(t, server.Kill())
	must(t, server.Start())
	for _, s := range []*Store{other, third} {
		s.hints.mu.Lock()
		s.hints.count = 0
		s.hints.mu.Unlock()
	}
	testkit.Until(t, "the database is back", func() bool {
		_, err := other.Database().Changes().Since(t.Context(), "")
		return err == nil
	})
	heard()
}

// Through PgBouncer in transaction mode no hint arrives: changes are found all the same, and no
// connection of the server is left listening.
func TestNoHintsThroughPgBouncer(t *testing.T) {
	t.Parallel()
	url := pgtest.Bouncer(t, pgtest.New(t).URL())
	s, other := openAt(t, url), openAt(t, url)
	makeChange(t, s, "first")
	_, at := since(t, other, "")
	if err := other.hear(); err != errUnheard {
		t.Errorf("listening: %v", err)
	}
	time.AfterFunc(100*time.Millisecond, func() { makeChange(t, s, "x") })
	must(t, other.Database().Changes().Wait(t.Context(), at))
	all, _ := since(t, other, at)
	if len(all) != 1 || other.hints.heard() != 0 {
		t.Errorf("%v, after %d hints", all, other.hints.heard())
	}
	listening := 0
	if _, err := s.first(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE query ILIKE 'listen%'`, nil, &listening); err != nil || listening != 0 {
		t.Errorf("%d connections listen, %v", listening, err)
	}
}
