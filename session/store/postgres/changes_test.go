package postgres

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/store"
	"deepwork/session/store/postgres/pgtest"
	"deepwork/session/store/sqlstore"
)

func makeChange(t testing.TB, s *Store, id string) {
	t.Helper()
	runs, x := s.Database().RemoteRuns(), &store.RemoteRun{ID: id, Identity: "me", State: store.RemoteWaiting}
	err := runs.Save(t.Context(), x, x.State) // again
	if errors.Is(err, store.ErrWorkTaken) {
		err = runs.Add(t.Context(), x, store.WorkRow{})
	}
	must(t, err)
}

func pruneAll(t testing.TB, s *Store) {
	t.Helper()
	must(t, s.Transact(t.Context(), sqlstore.Writing, func(ctx context.Context, q sqlstore.Querier) error {
		return second(q.ExecContext(ctx, feed.Prune, "9999", 0))
	}))
}

// follows checks which ids of changes are after a position, "reset" for all others, and returns the next position.
func follows(t testing.TB, s *Store, position string, want ...string) (next string) {
	t.Helper()
	news := testkit.Get(s.Database().Changes().Since(t.Context(), position)).Must(t)
	var got []string
	if news.Reset {
		got = append(got, "reset")
	}
	for _, c := range news.Changes {
		got = append(got, c.ID)
	}
	testkit.Same(t, got, want, "after %s", position)
	testkit.True(t, len(want) != 0 || news.Next == position, "the position %s became %s", position, news.Next)
	return news.Next
}

type openTx struct {
	t testing.TB
	c *sql.Conn
}

func begin(t testing.TB, s *Store) openTx {
	t.Helper()
	x := openTx{t, testkit.Get(s.pool.Conn(t.Context())).Must(t)}
	t.Cleanup(func() { x.c.Close() })
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

// A change that is committed after others with higher transaction ids and positions is read then; it holds up none.
func TestALateCommitIsNotPassedOver(t *testing.T) {
	url := newServer(t).URL() // alone: other tests are transactions, too
	s := openAt(t, url)
	other := openAt(t, url)
	makeChange(t, s, "zero")
	at := follows(t, other, "", "reset")
	early := begin(t, s)
	middle := begin(t, s)
	late := begin(t, s)
	early.exec("SELECT pg_current_xact_id()") // the lowest id, and the highest position
	middle.change("middle")
	late.change("late")
	follows(t, other, at)
	late.exec("COMMIT")
	behind := at
	at = follows(t, other, at, "late")
	follows(t, other, at)
	middle.exec("COMMIT")
	at = follows(t, other, at, "middle")
	early.change("early")
	makeChange(t, s, "one")
	at = follows(t, other, at, "one")
	before := at
	early.exec("COMMIT")
	at = follows(t, other, at, "early")
	follows(t, other, at)
	follows(t, other, behind, "early", "middle", "late", "one")

	// What was removed meanwhile is missed by those who had not read it, whatever its id.
	gone := begin(t, s)
	gone.change("gone")
	makeChange(t, s, "two")
	at = follows(t, other, at, "two")
	during := at
	gone.exec("COMMIT")
	at = follows(t, other, at, "gone")
	pruneAll(t, s)
	follows(t, other, at)
	follows(t, other, during, "reset")
	follows(t, other, before, "reset")
}

// A transaction of another application that lasts long delays nothing, and nobody is told to read all again for it.
func TestAForeignTransactionDelaysNothing(t *testing.T) {
	s := openAt(t, newServer(t).URL()) // alone: other tests are transactions, too
	makeChange(t, s, "zero")
	foreign := begin(t, s)
	foreign.exec("SELECT pg_current_xact_id()")
	at := follows(t, s, "", "reset")
	for n := range 3 {
		makeChange(t, s, fmt.Sprint(n))
		next := follows(t, s, at, fmt.Sprint(n))
		pruneAll(t, s)
		follows(t, s, next)
		follows(t, s, at, "reset") // it had not read what was pruned
		at = next
	}
	foreign.exec("ROLLBACK")
	follows(t, s, testkit.Get(s.Database().Changes().Since(t.Context(), at)).Must(t).Next)
}

// A position in another server, or in this one before its restart, is unknown. Rows of another server disturb nobody.
func TestPositionsOfAnotherServer(t *testing.T) {
	server := newServer(t)
	s := openAt(t, server.URL())
	makeChange(t, s, "zero")
	at := follows(t, s, "", "reset")
	started, snapshot, _ := strings.Cut(at, "/")
	for _, position := range []string{
		"1" + started + "/" + snapshot,                                     // of another start
		started + "/900000:900000:", started + "/9:8:7", started, at + "9", // later than now, and no snapshots
	} {
		follows(t, s, position, "reset")
	}

	change(t, s,
		`INSERT INTO @changes_all (scope, xid, kind, id, at) SELECT id, '900000', 'task', 'of another', '' FROM `+
			`@scopes`, `UPDATE @scopes SET pruned = '800000'`)
	for _, id := range []string{"one", "two"} {
		makeChange(t, s, id)
		next := follows(t, s, at, id)
		pruneAll(t, s)
		follows(t, s, at, "reset") // it had not read what was pruned
		at = next
	}

	must(t, errors.Join(server.Kill(), server.Start()))
	testkit.Until(t, "the database is back", func() bool {
		return second(s.Database().Changes().Since(t.Context(), at)) == nil
	})
	follows(t, s, at, "reset")
}

// Who inserts into the feed waits for nobody, also if another one prunes it.
func TestTheFeedLetsTransactionsGoOn(t *testing.T) {
	s, _ := newStore(t)
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

func within(t testing.TB, most time.Duration, f func()) {
	t.Helper()
	began := time.Now()
	f()
	testkit.True(t, time.Since(began) <= most, "it took %v", time.Since(began))
}

func ready(s *Store) bool { return s.Unavailable() == nil }

// Once a process knows that the database is away, its calls fail at once, and they succeed as soon as it answers again.
func TestCallsWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	stopped := func(t *testing.T) (url string, leave, come func()) {
		server := pgtest.New(t)
		return server.URL(), func() { must(t, server.Stop()) }, func() { must(t, server.Start()) }
	}
	for name, begin := range map[string]func(t *testing.T) (url string, leave, come func()){
		"stopped": stopped,
		"stopped behind PgBouncer": func(t *testing.T) (string, func(), func()) {
			url, leave, come := stopped(t)
			return pgtest.Bouncer(t, url), leave, come
		},
		"silent": func(t *testing.T) (string, func(), func()) {
			proxy := pgtest.NewProxy(t, pgtest.URL(t))
			return proxy.URL, func() { proxy.Freeze(true) }, func() { proxy.Freeze(false) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, leave, come := begin(t)
			s := openAt(t, url)
			r, b := sessionsOf(s), s.Database()
			must(t, errors.Join(s.Enter(t.Context()), second(r.WriteSession(t.Context(), transition(id, 1)))))
			calls := map[string]func(ctx context.Context) error{
				"read":  func(ctx context.Context) error { return second(r.ReadSession(ctx, id, 1)) },
				"write": func(ctx context.Context) error { return second(r.WriteSession(ctx, transition(id, 2))) },
				"renewal": func(ctx context.Context) error {
					return second(b.Work().Renew(ctx, 0, []store.WorkRow{{Runner: "r"}}))
				},
				"definition": func(ctx context.Context) error { return second(r.Definition(ctx, "0")) },
				"changes":    func(ctx context.Context) error { return second(b.Changes().Since(ctx, "0")) },
				"board":      func(ctx context.Context) error { return second(b.Board().Task(ctx, "x")) },
				"change of the board": func(ctx context.Context) error {
					return s.Transact(ctx, sqlstore.Writing, func(context.Context, sqlstore.Querier) error {
						return nil
					})
				},
				"gone": func(ctx context.Context) error { return second(s.GoneFor(ctx, task.Place{})) },
			}

			leave()
			soon, cancel := context.WithTimeout(t.Context(), time.Second/5)
			testkit.FailsWith(t, calls["read"](soon), store.ErrUnavailable, "before it knows")
			cancel()
			s.contact.probe.Wake()
			testkit.Until(t, "it knows", func() bool { return !ready(s) })

			for what, call := range calls {
				within(t, time.Second, func() { testkit.FailsWith(t, call(t.Context()), store.ErrUnavailable, what) })
			}

			come()
			within(t, 2*touchTime, func() {
				testkit.Until(t, "calls succeed", func() bool {
					return second(r.ReadSession(t.Context(), id, 1)) == nil
				})
			})
			for what, call := range calls {
				err := call(t.Context())
				testkit.True(t, err == nil || errors.Is(err, task.ErrNotFound) || errors.Is(err, store.ErrNotFound),
					"%s, when it is back: %v", what, err)
			}
			must(t, s.Close(t.Context()))
			testkit.FailsWith(t, calls["board"](t.Context()), task.ErrClosed)
		})
	}
}

func TestStartingWhileTheDatabaseIsAway(t *testing.T) {
	server := newServer(t)
	must(t, server.Stop())
	s := openAt(t, server.URL())
	says(t, s.Open(t.Context()), store.ErrUnavailable, "see that the server runs")
	within(t, time.Second, func() {
		for range 10 {
			testkit.FailsWith(t, second(s.Database().Changes().Since(t.Context(), "")), store.ErrUnavailable)
		}
	})
	testkit.True(t, !ready(s), "it is ready")

	must(t, server.Start())
	testkit.Until(t, "it is ready", func() bool { return ready(s) })
	must(t, second(s.Database().Changes().Since(t.Context(), "")))

	// The errors of settings that are wrong say what can be done.
	url := pgtest.URL(t)
	for was, wrong := range map[string]string{"/postgres?": "/nothere?", "postgres@": "nobody@"} {
		s := openAt(t, strings.Replace(url, was, wrong, 1))
		err := s.Open(t.Context())
		testkit.FailsWith(t, err, store.ErrUnavailable, wrong)
		testkit.True(t, strings.Contains(err.Error(), "correct ") && strings.Count(err.Error(), s.Where()) == 1,
			"%s: %v", wrong, err)
	}
}

// A call that is given up sends no request to cancel its statement, which can end PgBouncer.
func TestNoRequestToCancel(t *testing.T) {
	proxy := pgtest.NewProxy(t, newURL(t))
	s := openAt(t, proxy.URL)
	must(t, s.Open(t.Context()))
	cancels := proxy.CutAt(func(m pgtest.Message) bool {
		return !m.FromServer && m.Type == 0 && bytes.HasPrefix(m.Body, []byte{4, 210, 22, 46})
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second/5)
	defer cancel()
	testkit.FailsWith(t, s.Transact(ctx, sqlstore.Reading, func(ctx context.Context, q sqlstore.Querier) error {
		return q.QueryRowContext(ctx, `SELECT pg_sleep(20)::text`).Scan(new(string))
	}), context.DeadlineExceeded)

	select {
	case <-cancels:
		t.Error("it was sent")
	case <-time.After(time.Second / 2):
	}
}

func (h *hints) closed() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

// hears reports whether hints arrive, and all of them have been passed on.
func (h *hints) hears() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.arriving.Load() && !h.scheduled
}

// A change is hinted at to the other processes of the project, also after their connections were lost.
func TestAHintArrives(t *testing.T) {
	server := newServer(t)
	url := server.URL()
	s, other := openAt(t, url), openAt(t, url)
	third := openAs(t, url, "another", "/srv/shop")
	other.hinted()
	third.hinted()
	heard := func() {
		t.Helper()
		testkit.Until(t, "the listening begins with a hint of its own", func() bool {
			return other.hints.hears() && third.hints.hears()
		})

		// again if that one listens anew just then
		testkit.Until(t, "another project does not have it, too", func() bool {
			before, foreign := other.hints.closed(), third.hints.closed()
			makeChange(t, s, "x")
			testkit.Until(t, "a hint arrives", func() bool { return other.hints.closed() > before })
			return third.hints.closed() == foreign
		})
	}
	heard()
	must(t, server.Kill())
	testkit.Until(t, "the connections end", func() bool {
		return !other.hints.arriving.Load() && !third.hints.arriving.Load()
	})

	must(t, server.Start())
	testkit.Until(t, "the database is back", func() bool {
		return second(other.Database().Changes().Since(t.Context(), "")) == nil
	})

	heard()
}

// Through PgBouncer in transaction mode no hint arrives: the process looks for changes itself, and no
// connection listens.
func TestNoHintsThroughPgBouncer(t *testing.T) {
	url := pgtest.Bouncer(t, newServer(t).URL())
	s, other := openAt(t, url), openAt(t, url)
	makeChange(t, s, "first")
	at := follows(t, other, "", "reset")
	testkit.Equal(t, other.hear(), errUnheard, "listening")

	time.AfterFunc(100*time.Millisecond, func() { makeChange(t, s, "x") })
	must(t, other.Database().Changes().Wait(t.Context(), at))
	follows(t, other, at, "x")
	testkit.Until(t, "it looks", func() bool { return other.hints.closed() > 0 })

	before := other.hints.closed()
	makeChange(t, s, "y")
	testkit.Until(t, "it finds a change", func() bool { return other.hints.closed() > before })

	listening := 0
	must(t, second(s.first(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE query ILIKE 'listen%'`, nil,
		&listening)))
	testkit.Equal(t, listening, 0, "connections that listen")
}
