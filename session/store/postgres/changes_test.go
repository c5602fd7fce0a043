package postgres

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"deepwork/session/store"
	"deepwork/session/store/postgres/pgtest"
)

// follow reads the feed after a position until it has n changes.
func follow(t *testing.T, s *Store, position string, n int) (all []store.Change, reset bool) {
	t.Helper()
	for len(all) < n && !reset {
		must(t, s.Wait(t.Context(), position))
		news, err := s.Since(t.Context(), position)
		must(t, err)
		all, position, reset = append(all, news.Changes...), news.Next, news.Reset
	}
	return all, reset
}

// Many changes at once are appended in few statements and in order, and a process whose changes come
// one at a time is not slowed down to the rate of these.
func TestManyChanges(t *testing.T) {
	s, url := openNew(t)
	other := openAt(t, url)
	s.Append(store.Change{Kind: store.TaskChanged, ID: "first"})
	news, err := other.Since(t.Context(), "")
	must(t, err)
	began := time.Now()
	var want []store.Change
	for n := range 2500 {
		want = append(want, store.Change{Kind: store.TaskChanged, ID: fmt.Sprint(n)})
		s.Append(want[n])
	}
	if took := time.Since(began); took > 20*time.Second { // each alone would wait for a 20th of a second
		t.Errorf("they took %v", took)
	}
	got, reset := follow(t, other, news.Next, len(want))
	if reset || !slices.Equal(got, want) {
		t.Errorf("%d changes were followed, reset %v", len(got), reset)
	}
	var statements int
	_, err = s.first(t.Context(), `SELECT count(DISTINCT xmin::text) FROM @changes`, nil, &statements)
	if most := 2*feedRate + int(time.Since(began).Seconds()*feedRate); err != nil || statements > most {
		t.Errorf("%d statements, want %d at most, %v", statements, most, err)
	}
}

// The changes that a process did not append before it died reset those who follow, and rows that nobody
// needs are removed.
func TestTheFeedOfAProcessThatDied(t *testing.T) {
	s, url := openNew(t)
	dead := openAt(t, url)
	must(t, dead.Enter(t.Context()))
	s.Append(store.Change{Kind: store.TaskChanged, ID: "first"})
	news, err := s.Since(t.Context(), "")
	must(t, err)
	_, err = s.exec(t.Context(), `UPDATE @members SET expires = clock_timestamp() - interval '1 s', term = term + 9 WHERE id = $1`, dead.ID())
	must(t, err)
	if _, reset := follow(t, s, news.Next, 1); !reset {
		t.Error("nobody was told")
	}
	_, err = s.exec(t.Context(), `UPDATE @changes SET at = at - interval '2 hours'`)
	must(t, err)
	_, err = s.exec(t.Context(), pruneText, s.scope.Load())
	must(t, err)
	if late, err := s.Since(t.Context(), news.Next); err != nil || !late.Reset {
		t.Errorf("a follower at a removed row: %+v, %v", late, err)
	}
}

// Sessions that sleep cost the database nothing: its work does not depend on how many there are.
func TestSleepingSessionsCostNothing(t *testing.T) {
	server := pgtest.New(t, "autovacuum=off")
	s := openAt(t, server.URL())
	must(t, s.Enter(t.Context()))
	// work returns how many transactions are committed while nobody calls, and how often the sessions
	// are read or written.
	work := func() (commits, touched int) {
		read := func() (commits, touched int) {
			_, err := s.first(t.Context(), `SELECT (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()),
				(SELECT seq_scan + idx_scan + n_tup_upd FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = 'workflow_sessions_all')`, []any{s.schema}, &commits, &touched)
			must(t, err)
			return commits, touched
		}
		time.Sleep(2 * time.Second) // the server counts what was done before
		c, n := read()
		time.Sleep(3 * renewTime)
		commits, touched = read()
		return commits - c, touched - n
	}
	fill := func(from, to int) {
		_, err := s.exec(t.Context(), `INSERT INTO @workflow_sessions_all
			SELECT $1, lpad(to_hex(n), 8, '0'), 1, '/srv/shop', '', 'alpha', 'main', 'one', 'active', '', 'me', $2, '', '', '', '', '', '', '', '', '', '{}' FROM generate_series($3::int, $4::int) n`, s.scope.Load(), s.ID(), from, to)
		must(t, err)
	}
	fill(1, 10)
	few, _ := work()
	fill(11, 100_000)
	many, touched := work()
	if many > few+10 || few > 20 || touched != 0 {
		t.Errorf("%d transactions with 10 sessions and %d with 100,000, which were touched %d times", few, many, touched)
	}
}
