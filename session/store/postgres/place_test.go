package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/store/postgres/pgtest"
	"deepwork/session/store/sqlstore"
)

// touched returns which version of the row of a place the database has.
func touched(t *testing.T, s *Store, root string) (version string) {
	t.Helper()
	found := testkit.Get(s.first(t.Context(), `SELECT xmin::text FROM @places WHERE root = $1`, []any{root}, &version)).Must(t)
	testkit.Need(t, found, "the place %s has no row", root)
	return version
}

// Of several processes of a place one touches its row, whichever comes first after nine seconds.
func TestAPlaceIsTouchedOnce(t *testing.T) {
	t.Parallel()
	one, url := openNew(t)
	two := openAt(t, url)
	o := options(url)
	o.Root = "/home/shop"
	other := testkit.Get(Open(o)).Must(t)
	t.Cleanup(func() { must(t, other.Close(context.Background())) })
	for _, s := range []*Store{one, two, other} {
		must(t, s.Enter(t.Context()))
	}
	before, elsewhere := touched(t, one, "/srv/shop"), touched(t, one, "/home/shop")
	must(t, errors.Join(one.look(), two.look()))
	testkit.Equal(t, touched(t, one, "/srv/shop"), before, "it was touched again at once")
	for _, next := range []*Store{one, two} {
		change(t, one, `UPDATE @places SET until = until - interval '10 s' WHERE root = '/srv/shop'`)
		before := touched(t, one, "/srv/shop")
		must(t, next.look())
		after := touched(t, one, "/srv/shop")
		testkit.True(t, after != before, "it was not touched after ten seconds")
		must(t, errors.Join(one.look(), two.look()))
		testkit.Equal(t, touched(t, one, "/srv/shop"), after, "both have touched it")
	}
	testkit.Equal(t, touched(t, one, "/home/shop"), elsewhere, "another place was touched with it")
}

// A place is gone since its row was not touched in time, or since the last of its processes has closed its store.
func TestPlacesThatAreGone(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	alone := true
	o := options(url)
	o.Alone = func() bool { return alone }
	asker := openAt(t, url)
	gone := func(p task.Place) time.Duration {
		t.Helper()
		d := testkit.Get(asker.GoneFor(t.Context(), p)).Must(t)
		return d
	}
	elsewhere := func(want bool) {
		t.Helper()
		far := options(url)
		far.Root = "/far"
		s := testkit.Get(Open(far)).Must(t)
		defer s.Close(t.Context())
		testkit.Equal(t, testkit.Get(s.Elsewhere(t.Context())).Must(t), want, "another place uses the project")
	}
	here := task.Place{MachineID: o.Machine, Root: o.Root}
	testkit.Equal(t, gone(here), unknownFor, "a place that nobody knows is gone for")
	elsewhere(false)
	enter := func() *Store {
		s := testkit.Get(Open(o)).Must(t)
		must(t, s.Enter(t.Context()))
		testkit.Equal(t, gone(here), 0, "a place with a process is gone for")
		return s
	}
	s := enter()
	elsewhere(true)
	used := testkit.Get(s.Elsewhere(t.Context())).Must(t)
	testkit.True(t, !used, "its own place is another one: %v", used)
	alone = false
	must(t, s.Close(t.Context()))
	testkit.Equal(t, gone(here), 0, "a place with another process is gone for")
	s = enter()
	alone = true
	must(t, s.Close(t.Context()))
	got := gone(here)
	testkit.True(t, got > 0 && got <= time.Minute, "a place that was left is gone for %v", got)
	elsewhere(false)
	s = enter()
	change(t, asker, `UPDATE @places SET until = clock_timestamp() - interval '1 hour'`)
	got = gone(here)
	testkit.True(t, got >= time.Hour && got <= 2*time.Hour, "a place whose processes were killed is gone for %v", got)
	must(t, s.look()) // they were not: they were cut off
	testkit.Equal(t, gone(here), 0, "a place that is back is gone for")
	must(t, s.Close(t.Context()))
}

// A place is touched for the last time before it is left, however slow the database is.
func TestALateTouchDoesNotRevive(t *testing.T) {
	t.Parallel()
	s, url := openNew(t)
	asker := openAt(t, url)
	left := func() bool {
		return testkit.Get(asker.GoneFor(t.Context(), task.Place{MachineID: s.o.Machine, Root: s.o.Root})).Must(t) > 0
	}
	must(t, s.Enter(t.Context()))
	testkit.True(t, !left(), "it is not entered")
	lock := testkit.Get(asker.pool.BeginTx(t.Context(), nil)).Must(t)
	testkit.Get(lock.ExecContext(t.Context(), asker.text(`LOCK TABLE @schema_version`))).Must(t)
	waits := func() (n int) {
		testkit.Get(asker.first(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = to_regclass($1)`, []any{asker.text("@schema_version")}, &n)).Must(t)
		return n
	}
	s.contact.probe.Wake()
	testkit.Until(t, "touching", func() bool { return waits() == 1 })
	closed := make(chan error, 1)
	go func() { closed <- s.Close(context.Background()) }()
	for until := time.Now().Add(200 * time.Millisecond); time.Now().Before(until) && !left(); { // it must not be
		time.Sleep(10 * time.Millisecond)
	}
	must(t, lock.Rollback())
	must(t, <-closed)
	testkit.Until(t, "touched", func() bool { return waits() == 0 })
	testkit.True(t, left(), "the place was touched after it was left")
}

// Places that were left over 30 days ago are forgotten.
func TestPlacesThatAreForgotten(t *testing.T) {
	t.Parallel()
	s, _ := openNew(t)
	must(t, s.Enter(t.Context()))
	for root, left := range map[string]string{"/old": "31 days", "/recent": "29 days", "/used": "-1 minute"} {
		testkit.Get(s.exec(t.Context(), `INSERT INTO @places (scope, machine, root, host, until) VALUES ($1, 'm', $2, 'h', clock_timestamp() - $3::interval)`, s.scope.Load(), root, left)).Must(t)
	}
	must(t, s.look())
	for root, want := range map[string]bool{"/old": false, "/recent": true, "/used": true, "/srv/shop": true} {
		testkit.Equal(t, testkit.Get(s.first(t.Context(), `SELECT FROM @places WHERE root = $1`, []any{root})).Must(t), want, "%s is known", root)
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
	old := time.Since(made)
	testkit.True(t, old.Abs() <= 5*time.Minute, "the project was made at %v, %v ago", made, old)
}

// What is known of a transaction whose reply was lost.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	s, _ := openNew(t)
	scope := testkit.Get(s.connect(t.Context())).Must(t)
	refused, lost := errors.New("refused"), errors.New("lost")
	run := func(end error, within func(id commit)) (id commit) {
		t.Helper()
		err := s.once(t.Context(), kind{scope: scope, alone: true}, func(ctx context.Context, q sqlstore.Querier) error {
			must(t, q.QueryRowContext(ctx, `SELECT pg_current_xact_id()::text, extract(epoch FROM pg_postmaster_start_time())::text`).Scan(&id.id, &id.start))
			within(id)
			return end
		})
		testkit.Need(t, err == end, "%v", err)
		return id
	}
	nothing := func(commit) {}
	made, undone := run(nil, nothing), run(refused, nothing)
	later := func(c commit) commit { return commit{c.id, "1"} } // as if the server had been started again
	for what, c := range map[string]struct {
		id   commit
		want error // nil, lost or store.ErrPending
	}{
		"committed": {made, nil}, "rolled back": {undone, lost},
		"committed, perhaps by another one": {later(made), store.ErrPending}, "rolled back before": {later(undone), lost},
		"not begun since the restart": {commit{"999999999", "1"}, lost},
	} {
		if err := s.outcome(c.id, lost); !errors.Is(err, c.want) || c.want == lost && errors.Is(err, store.ErrPending) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	outcome := make(chan error, 1)
	run(nil, func(id commit) {
		go func() { outcome <- s.outcome(id, lost) }()
		time.Sleep(100 * time.Millisecond) // it asks
	})
	testkit.Works(t, <-outcome, "one that is committed later")
}
