package postgres

import (
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/store/postgres/pgtest"
)

func (h *hints) closed() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

// hears reports whether hints arrive, and all of them have been passed on.
func (h *hints) hears() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.heard.Load() && !h.soon
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
		testkit.Until(t, "the listening begins with a hint of its own", func() bool { return other.hints.hears() && third.hints.hears() })
		before, foreign := other.hints.closed(), third.hints.closed()
		makeChange(t, s, "x")
		testkit.Until(t, "a hint arrives", func() bool { return other.hints.closed() > before })
		if third.hints.closed() != foreign {
			t.Error("another project had it too")
		}
	}
	heard()
	must(t, server.Kill())
	testkit.Until(t, "the connections end", func() bool { return !other.hints.heard.Load() && !third.hints.heard.Load() })
	must(t, server.Start())
	testkit.Until(t, "the database is back", func() bool {
		_, err := other.Database().Changes().Since(t.Context(), "")
		return err == nil
	})
	heard()
}

// Through PgBouncer in transaction mode no hint arrives: the process looks for changes itself, and no
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
	if all, _ := since(t, other, at); len(all) != 1 {
		t.Errorf("the changes are %v", all)
	}
	testkit.Until(t, "it looks", func() bool { return other.hints.closed() > 0 })
	before := other.hints.closed()
	makeChange(t, s, "y")
	testkit.Until(t, "it finds a change", func() bool { return other.hints.closed() > before })
	listening := 0
	if _, err := s.first(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE query ILIKE 'listen%'`, nil, &listening); err != nil || listening != 0 {
		t.Errorf("%d connections listen, %v", listening, err)
	}
}
