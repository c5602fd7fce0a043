package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/store"
	"deepwork/session/store/postgres/pgtest"
	"deepwork/session/store/sqlstore"
)

// makeChange makes a change in the project.
func makeChange(t testing.TB, s *Store, id string) {
	t.Helper()
	must(t, s.Database().Executions().Save(t.Context(), &store.Execution{ID: id, Owner: "0011223344556677", Identity: "me", State: store.ExecutionWaiting}, time.Hour))
}

// pruneAll removes all changes.
func pruneAll(t testing.TB, s *Store) {
	t.Helper()
	must(t, s.Transact(t.Context(), sqlstore.Writing, func(ctx context.Context, q sqlstore.Querier) error {
		return second(q.ExecContext(ctx, feed.Prune, "9999", 0))
	}))
}

// since returns the ids of the changes after a position, "reset" for all others, and the next position.
func since(t testing.TB, s *Store, position string) (ids []string, next string) {
	t.Helper()
	news := testkit.Get(s.Database().Changes().Since(t.Context(), position)).Must(t)
	if news.Reset {
		ids = append(ids, "reset")
	}
	for _, c := range news.Changes {
		ids = append(ids, c.ID)
	}
	return ids, news.Next
}

// An openTx is a transaction in the project that is not finished.
type openTx struct {
	t testing.TB
	c *sql.Conn
}

func begin(t testing.TB, s *Store) openTx {
	t.Helper()
	c := testkit.Get(s.pool.Conn(t.Context())).Must(t)
	x := openTx{t, c}
	t.Cleanup(func() { c.Close() })
	x.exec("BEGIN")
	x.exec(fmt.Sprintf("SET LOCAL search_path = %s", s.schema))
	x.exec(fmt.Sprintf("SET LOCAL deepwork.scope = '%d'", s.scope.Load()))
	return x
}

func (x openTx) exec(query string) {
	x.t.Helper()
	testkit.Get(x.c.ExecContext(context.Background(), query)).Must(x.t)
}

func (x openTx) change(id string) {
	x.t.Helper()
	x.exec(fmt.Sprintf(`INSERT INTO changes (kind, id, at) VALUES ('task', '%s', '9')`, id))
}

// A change that is committed after others with higher transaction ids and positions is read then, and the
// others are not held up by it.
func TestALateCommitIsNotPassedOver(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t).URL() // alone: other tests are transactions, too
	s := openAt(t, url)
	other := openAt(t, url)
	makeChange(t, s, "zero")
	want := func(position string, want ...string) (next string) {
		t.Helper()
		got, next := since(t, other, position)
		testkit.Same(t, got, want, "followed")
		testkit.True(t, len(want) != 0 || next == position, "the position %s became %s", position, next)
		return next
	}
	at := want("", "reset")
	early, middle, late := begin(t, s), begin(t, s), begin(t, s)
	early.exec("SELECT pg_current_xact_id()") // the lowest id, and the highest position
	middle.change("middle")
	late.change("late")
	want(at)
	late.exec("COMMIT")
	behind := at
	at = want(at, "late")
	want(at)
	middle.exec("COMMIT")
	at = want(at, "middle")
	early.change("early")
	makeChange(t, s, "one")
	at = want(at, "one")
	before := at
	early.exec("COMMIT")
	at = want(at, "early")
	want(at)
	want(behind, "early", "middle", "late", "one")

	// What was removed meanwhile is missed by those who had not read it, whatever its id.
	gone := begin(t, s)
	gone.change("gone")
	makeChange(t, s, "two")
	at = want(at, "two")
	during := at
	gone.exec("COMMIT")
	at = want(at, "gone")
	pruneAll(t, s)
	want(at)
	want(during, "reset")
	want(before, "reset")
}

// A transaction of another application that lasts long delays nothing, and nobody is told to read all again
// for it until it ends: only then is it known that it has changed nothing.
func TestAForeignTransactionDelaysNothing(t *testing.T) {
	t.Parallel()
	s := openAt(t, pgtest.New(t).URL()) // alone: other tests are transactions, too
	makeChange(t, s, "zero")
	foreign := begin(t, s)
	foreign.exec("SELECT pg_current_xact_id()")
	_, at := since(t, s, "")
	for n := range 3 {
		makeChange(t, s, fmt.Sprint(n))
		ids, next := since(t, s, at)
		testkit.Same(t, ids, []string{fmt.Sprint(n)}, "followed")
		pruneAll(t, s)
		if ids, _ := since(t, s, next); len(ids) > 0 {
			t.Errorf("after the pruning: %v", ids)
		}
		if ids, _ := since(t, s, at); !slices.Equal(ids, []string{"reset"}) {
			t.Errorf("one that had not read what was pruned: %v", ids)
		}
		at = next
	}
	foreign.exec("ROLLBACK")
	_, at = since(t, s, at)
	if ids, _ := since(t, s, at); len(ids) > 0 {
		t.Errorf("after its end: %v", ids)
	}
}

// A position in another server, or in this one before it was started again, is unknown: transaction ids
// may have other meanings there. Rows of another server, from a dump, disturb nobody.
func TestPositionsOfAnotherServer(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	s := openAt(t, server.URL())
	makeChange(t, s, "zero")
	_, at := since(t, s, "")
	started, snapshot, _ := strings.Cut(at, "/")
	for what, position := range map[string]string{
		"another start":          "1" + started + "/" + snapshot,
		"later than now":         started + "/900000:900000:",
		"not a snapshot":         started + "/9:8:7",
		"the start and no more":  started,
		"an impossible snapshot": at + "9",
	} {
		if ids, _ := since(t, s, position); !slices.Equal(ids, []string{"reset"}) {
			t.Errorf("%s: %v", what, ids)
		}
	}
	change(t, s, `INSERT INTO @changes_all (scope, xid, kind, id, at) SELECT id, '900000', 'task', 'of another', '' FROM @scopes`, `UPDATE @scopes SET pruned = '800000'`)
	for _, id := range []string{"one", "two"} {
		makeChange(t, s, id)
		ids, next := since(t, s, at)
		testkit.Same(t, ids, []string{id}, "followed")
		pruneAll(t, s)
		if ids, _ := since(t, s, at); !slices.Equal(ids, []string{"reset"}) {
			t.Errorf("one that had not read what was pruned: %v", ids)
		}
		at = next
	}
	must(t, server.Kill())
	must(t, server.Start())
	testkit.Until(t, "the database is back", func() bool {
		_, err := s.Database().Changes().Since(t.Context(), at)
		return err == nil
	})
	if ids, _ := since(t, s, at); !slices.Equal(ids, []string{"reset"}) {
		t.Errorf("after a restart: %v", ids)
	}
}

// Who inserts into the feed waits for nobody, also if another one prunes it.
func TestTheFeedLetsTransactionsGoOn(t *testing.T) {
	t.Parallel()
	s, _ := openNew(t)
	makeChange(t, s, "zero")
	one, two := begin(t, s), begin(t, s)
	prune := strings.NewReplacer("?1", "'9999'", "?2", "10000").Replace(feed.Prune)
	one.exec(prune)
	one.change("one")
	two.exec("SET LOCAL lock_timeout = 1000")
	two.exec(prune)
	two.change("two")
	two.exec("COMMIT")
	one.exec("COMMIT")
}
