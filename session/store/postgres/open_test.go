package postgres

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/store/postgres/pgtest"
	"deepwork/session/store/sqlstore"

	"go.uber.org/goleak"
)

func TestFirstUseByManyProcesses(t *testing.T) {
	url := newURL(t)
	var lines []func() string
	for range 8 {
		c := start(t, "open", url)
		defer func() { testkit.Works(t, c.Wait(), "%s", &c.Err) }()
		io.WriteString(c.In, "\n")
		lines = append(lines, c.Line)
	}
	for _, line := range lines {
		testkit.Equal(t, line(), "3", "the version")
	}
	s := openAt(t, url)
	must(t, s.Open(t.Context()))
	var projects, places int
	_, err := s.first(t.Context(), `SELECT (SELECT count(*) FROM @scopes), (SELECT count(*) FROM @places)`, nil,
		&projects, &places)
	testkit.Need(t, err == nil, "%d projects and %d places, %v", projects, places, err)
	testkit.Equal(t, projects, 1, "%d projects and %d places, %v", projects, places, err)
	testkit.Equal(t, places, 1, "%d projects and %d places, %v", projects, places, err)
}

func TestASchemaOfAnotherVersionIsRefused(t *testing.T) {
	s, url := newStore(t)
	must(t, s.Enter(t.Context()))
	testkit.Get(s.exec(t.Context(), `UPDATE @schema_version SET version = version + 1`)).Must(t)
	late := openAt(t, url)
	says(t, late.Open(t.Context()), task.ErrVersion,
		"it has version 4, and this deepwork uses version 3: use the deepwork that wrote it, or set the database aside")

	// One that runs already stops to use it.
	for _, mode := range []sqlstore.Mode{sqlstore.Reading, sqlstore.Writing} {
		testkit.FailsWith(t, s.Transact(t.Context(), mode, nil), task.ErrVersion, "a transaction")
	}
	testkit.FailsWith(t, s.probe(), task.ErrVersion, "it looks")

	// One of before the first release is not migrated.
	testkit.Get(s.exec(t.Context(), `UPDATE @schema_version SET version = 1`)).Must(t)
	says(t, openAt(t, url).Open(t.Context()), task.ErrVersion,
		"it has version 1, and this deepwork uses version 3: use")
	testkit.FailsWith(t, s.Unavailable(), task.ErrVersion, "it is unavailable")
	testkit.FailsWith(t, second(sessionsOf(s).WriteSession(t.Context(), transition(id, 1))), task.ErrVersion,
		"a transition")

	change(t, s, `DROP SCHEMA `+s.schema+` CASCADE`)
	testkit.Fails(t, s.probe(), "its schema was removed")
	other := openAs(t, url, "other", "/srv/other") // in a schema that is made again, it has the id that the project had
	must(t, other.Open(t.Context()))
	testkit.Fails(t, s.probe(), "start the server again")
	testkit.Fails(t, second(sessionsOf(s).WriteSession(t.Context(), transition(id, 1))), "start the server again",
		"a transition")
}

func TestProjectsBelongToARepository(t *testing.T) {
	url := newURL(t)
	open := func(name string, r Repository) error {
		o := options(url)
		o.Project, o.Repository = name, r
		s := testkit.Get(Open(o)).Must(t)
		defer s.Close(context.Background())
		return s.Open(t.Context())
	}

	shop := Repository{Remote: "https://me:secret@example.com/team/shop.git", RootCommit: "aa"}
	testkit.FailsWith(t, open("shop", Repository{}), task.ErrNotFound, "a name that nobody has bound")
	must(t, open("shop", shop))
	for _, none := range []Repository{{}, {Remote: "/elsewhere"}} {
		says(t, open("shop", none), task.ErrInvalid,
			"belongs to example.com/team/shop, and /srv/shop is in no repository")
	}

	for name, all := range map[string][]Repository{"other": {{RootCommit: "bb"}},
		"shop": {shop, {Remote: "git@example.com:team/shop"}, {RootCommit: "aa"},
			{Remote: "/elsewhere", RootCommit: "aa"}}} {
		for _, r := range all {
			testkit.Works(t, open(name, r), "%s for %+v", name, r)
		}
	}
	err := open("shop", Repository{Remote: "https://example.com/team/other", RootCommit: "bb"})
	testkit.ContainsAll(t, fmt.Sprint(err), []string{"example.com/team/shop", "example.com/team/other"})
	testkit.True(t, !strings.Contains(err.Error(), "secret"), "the error has the password")
}

func TestTransactions(t *testing.T) {
	_, url := newStore(t)
	for name, url := range map[string]string{"direct": url, "PgBouncer": pgtest.Bouncer(t, url)} {
		t.Run(name, func(t *testing.T) {
			s := openAt(t, url)
			ctx := t.Context()
			for _, fail := range []error{nil, errors.New("refused")} {
				testkit.FailsWith(t, s.Transact(ctx, sqlstore.Writing,
					func(ctx context.Context, q sqlstore.Querier) error {
						return errors.Join(second(q.ExecContext(ctx,
							`INSERT INTO definitions (hash, data, put_at) VALUES (?, 'x', '')`, name+"?")), fail)
					}), fail)
			}

			// A statement that failed and was ignored does not look like a success.
			testkit.Fails(t, s.Transact(ctx, sqlstore.Unsynced, func(ctx context.Context, q sqlstore.Querier) error {
				q.ExecContext(ctx, `SELECT 1/0`)
				return nil
			}), "", "a failed transaction was committed")

			var n int
			must(t, s.Transact(ctx, sqlstore.Reading, func(ctx context.Context, q sqlstore.Querier) error {
				return q.QueryRowContext(ctx, `SELECT count(*) FROM definitions WHERE hash = ?1`, name+"?").Scan(&n)
			}))
			testkit.Equal(t, n, 1, "rows")
			testkit.Fails(t, s.Transact(ctx, sqlstore.Reading, func(ctx context.Context, q sqlstore.Querier) error {
				return second(q.ExecContext(ctx, `DELETE FROM definitions`))
			}), "read-only transaction")

			// A commit waits for the disk, unless its change may be lost with the power. A change of the
			// board has the project's lock.
			for mode, want := range map[sqlstore.Mode]string{
				sqlstore.Writing:  "on 1",
				sqlstore.Swapping: "on 0",
				sqlstore.Unsynced: "off 1",
			} {
				var synced string
				must(t, s.Transact(ctx, mode, func(ctx context.Context, q sqlstore.Querier) error {
					return q.QueryRowContext(ctx,
						`SELECT current_setting('synchronous_commit') || ' ' || count(*) FROM pg_locks WHERE `+
							`locktype = 'advisory' AND pid = pg_backend_pid()`).Scan(&synced)
				}))
				testkit.Equal(t, synced, want, "mode %d", mode)
			}
		})
	}
}

func TestLostReplyToACommit(t *testing.T) {
	_, url := newStore(t)
	proxy := pgtest.NewProxy(t, url)
	s, direct := openAt(t, proxy.URL), openAt(t, url)
	count := 0
	change := func() error {
		return s.Transact(t.Context(), sqlstore.Writing, func(ctx context.Context, q sqlstore.Querier) error {
			count++
			return second(q.ExecContext(ctx, `INSERT INTO definitions (hash, data, put_at) VALUES (?, 'x', '')`,
				strings.Repeat("x", count)))
		})
	}
	must(t, change())
	for name, match := range map[string]func(m pgtest.Message) bool{
		"reply":   func(m pgtest.Message) bool { return m.Completes("COMMIT") },
		"request": commits,
	} {
		before := count
		cut := proxy.CutAt(match)
		testkit.Works(t, change(), "%s lost", name)
		testkit.True(t, caught(cut), "%s: nothing was cut", name)
		testkit.Equal(t, count-before == 1, name == "reply", "%s lost: the change ran once", name)
	}
	must(t, direct.Open(t.Context()))
	var rows int
	_, err := direct.first(t.Context(), `SELECT count(*) FROM @definitions_all`, nil, &rows)
	testkit.True(t, err == nil && rows == 3, "%d rows, %v", rows, err)
}

func commits(m pgtest.Message) bool {
	return !m.FromServer && m.Type == 'Q' && strings.HasPrefix(string(m.Body), "COMMIT")
}

// caught reports whether a proxy has come to the message that it was to look for.
func caught(at <-chan struct{}) bool {
	select {
	case <-at:
		return true
	default:
		return false
	}
}

func TestURLs(t *testing.T) {
	t.Setenv("PGAPPNAME", "x")
	for raw, want := range map[string]string{
		"postgres://u:secret@localhost/db": "the database db at localhost:5432, schema " +
			"deepwork",
		"postgresql://u@127.0.0.1:99/db?schema=team_1&application_name=x": "the database db at 127.0.0.1:99, schema " +
			"team_1",
		"postgres://u@/db?host=/run/pg&schema=x": "the database db at /run/pg, " +
			"schema x",
		"postgres://u:secret@db.example.com/db?sslmode=verify-full": "the database db at db.example.com:5432, schema " +
			"deepwork",
		"postgres://u:secret@db.example.com/db":                                     "error: sslmode=verify-full",
		"postgres://u:secret@db.example.com/db?sslmode=verify-ca":                   "error: sslmode=verify-full",
		"postgres://u:secret@db.example.com/db?sslmode=require":                     "error: sslmode=verify-full",
		"postgres://u:secret@localhost,db.example.com/db?sslmode=prefer":            "error: sslmode=verify-full",
		"postgres://u:secret@localhost/db?schema=Team":                              "error: lower-case",
		"postgres://u:secret@localhost/db?schema=x;drop":                            "error: ",
		"postgres://u:secret@localhost/db?schema=":                                  "error: lower-case",
		"postgres://u:secret@localhost/db?schema=pg_catalog":                        "error: lower-case",
		"mysql://u:secret@localhost/db":                                             "error: expected postgres://",
		"postgres://u:secret%zz@localhost/db":                                       "error: percent-encoded",
		"postgres://u:secret@localhost:port/db":                                     "error: not valid",
		"host=localhost password=secret":                                            "error: expected postgres://",
		"postgres://u:secret@localhost/db?sslmode=nothing&schema=x&password=secret": "error: not valid",
	} {
		config, schema, err := parse(raw)
		got := ""
		if err != nil {
			got = "error: " + err.Error()
		} else {
			got = location(config, schema)
			testkit.True(t, len(config.RuntimeParams) == 0, "%s: parameters for the server: %v", raw,
				config.RuntimeParams)
		}

		part, refused := strings.CutPrefix(want, "error: ")
		testkit.Equal(t, refused, (err != nil), "%s: %s; want %s", raw, got, want)
		testkit.Contains(t, got, part, "%s: %s; want %s", raw, got, want)
		testkit.True(t, !strings.Contains(got, "secret"), "%s: %s; want %s", raw, got, want)
	}
}

func TestRepositoriesAndNamesThatAreNoText(t *testing.T) {
	t.Parallel()
	same := []string{"https://me:token@GitHub.com/team/shop.git", "git@github.com:team/shop.git",
		"ssh://git@github.com:22/team/shop", "github.com:team/shop/"}
	for _, remote := range same {
		testkit.Equal(t, (Repository{Remote: remote}).normalized().Remote, "github.com/team/shop", "%s", remote)
	}

	for remote, want := range map[string]string{
		"":                     "",
		"/srv/git/shop.git":    "",
		"file:///srv/git/shop": "",
		`C:\git\shop`:          "",
		"../shop":              "",
		"host:a/b":             "host/a/b",
	} {
		testkit.Equal(t, (Repository{Remote: remote}).normalized().Remote, want, "%s", remote)
	}

	for _, names := range [][2]string{{"sh\xffop", "/srv/shop"}, {"shop\x00", "/srv/shop"}, {"shop", "/srv/\xff"}} {
		o := options("postgres://u:secret@localhost/db")
		o.Project, o.Root = names[0], names[1]
		testkit.Fails(t, testkit.Get(Open(o)).Err(), "UTF-8", "%q in %q", o.Project, o.Root)
	}
}

const roleEnv, urlEnv = "POSTGRES_CHILD", "POSTGRES_URL"

// roles are what a child process does. It writes lines to stdout, and reads from stdin when to go on.
var roles = map[string]func(s *Store, in *bufio.Scanner) error{
	// open opens the schema, and reports its version.
	"open": func(s *Store, in *bufio.Scanner) error {
		in.Scan()
		if err := s.Enter(context.Background()); err != nil {
			return err
		}
		is, _, err := s.SchemaVersion(context.Background())
		fmt.Println(is)
		return err
	},
}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		s, err := Open(options(os.Getenv(urlEnv)))
		if err == nil {
			err = roles[role](s, bufio.NewScanner(os.Stdin))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, role+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}

	os.Setenv("GORACE", "atexit_sleep_ms=0")
	_ = flag.Set("test.parallel", "6") // they wait more than they compute
	goleak.VerifyTestMain(m)
}

func says(t testing.TB, err, want error, text string) {
	t.Helper()
	testkit.FailsWith(t, err, want)
	testkit.Fails(t, err, text)
}

func options(url string) Options {
	return Options{
		URL:        url,
		Project:    "shop",
		Repository: Repository{Remote: "https://example.com/team/shop.git"},
		Machine:    "0a1b2c3d",
		Root:       "/srv/shop",
	}
}

func openAt(t testing.TB, url string) *Store { return openAs(t, url, "shop", "/srv/shop") }

func openAs(t testing.TB, url, project, root string) *Store {
	t.Helper()
	o := options(url)
	o.Project, o.Root = project, root
	s := testkit.Get(Open(o)).Must(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		must(t, s.Close(ctx))
	})
	return s
}

func openNew(t testing.TB) (*Store, string) {
	url := pgtest.URL(t)
	return openAt(t, url), url
}

// newURL is that of an empty schema, newServer a server and newStore a store, of a test that runs beside others.
func newURL(t *testing.T) string {
	t.Parallel()
	return pgtest.URL(t)
}

func newServer(t *testing.T, settings ...string) *pgtest.Server {
	t.Parallel()
	return pgtest.New(t, settings...)
}

func newStore(t *testing.T) (*Store, string) {
	t.Parallel()
	return openNew(t)
}

func start(t testing.TB, role, url string) *testkit.Child {
	return testkit.Start(t, roleEnv+"="+role, urlEnv+"="+url)
}

var must = testkit.Must

func locks(t *testing.T, url, statement string) *sql.Tx {
	t.Helper()
	s := openAt(t, url)
	must(t, s.Open(t.Context()))
	tx := testkit.Get(s.pool.BeginTx(t.Context(), nil)).Must(t)
	t.Cleanup(func() { tx.Rollback() })
	testkit.Get(tx.ExecContext(t.Context(), s.text(statement))).Must(t)
	return tx
}

func touched(t *testing.T, s *Store, root string) (version string) {
	t.Helper()
	found := testkit.Get(s.first(t.Context(), `SELECT xmin::text FROM @places WHERE root = $1`, []any{root}, &version)).
		Must(t)
	testkit.Need(t, found, "the place %s has no row", root)
	return version
}

// Of several processes of a place one touches its row, whichever comes first after nine seconds.
func TestAPlaceIsTouchedOnce(t *testing.T) {
	one, url := newStore(t)
	two := openAt(t, url)
	for _, s := range []*Store{one, two, openAs(t, url, "shop", "/home/shop")} {
		must(t, s.Enter(t.Context()))
	}
	before, elsewhere := touched(t, one, "/srv/shop"), touched(t, one, "/home/shop")
	must(t, errors.Join(one.probe(), two.probe()))
	testkit.Equal(t, touched(t, one, "/srv/shop"), before, "it was touched again at once")

	for _, next := range []*Store{one, two} {
		change(t, one, `UPDATE @places SET until = until - interval '10 s' WHERE root = '/srv/shop'`)
		before := touched(t, one, "/srv/shop")
		must(t, next.probe())
		after := touched(t, one, "/srv/shop")
		testkit.True(t, after != before, "it was not touched after ten seconds")
		must(t, errors.Join(one.probe(), two.probe()))
		testkit.Equal(t, touched(t, one, "/srv/shop"), after, "both have touched it")
	}
	testkit.Equal(t, touched(t, one, "/home/shop"), elsewhere, "another place was touched with it")

	// Those that were left over 30 days ago are forgotten.
	for root, left := range map[string]string{"/old": "31 days", "/recent": "29 days", "/used": "-1 minute"} {
		testkit.Get(one.exec(t.Context(),
			`INSERT INTO @places (scope, machine, root, host, until) VALUES ($1, 'm', $2, 'h', clock_timestamp() - `+
				`$3::interval)`, one.scope.Load(), root, left)).Must(t)
	}
	change(t, one, `UPDATE @places SET until = until - interval '10 s' WHERE root = '/srv/shop'`)
	must(t, one.probe())
	for root, want := range map[string]bool{"/old": false, "/recent": true, "/used": true, "/srv/shop": true} {
		testkit.Equal(t, testkit.Get(one.first(t.Context(), `SELECT FROM @places WHERE root = $1`, []any{root})).
			Must(t), want, "%s is known", root)
	}
}

// A place is gone since its row was not touched in time, or since the last of its processes has closed its store.
func TestPlacesThatAreGone(t *testing.T) {
	url := newURL(t)
	alone := true
	o := options(url)
	o.Alone = func() bool { return alone }
	asker := openAt(t, url)
	gone := func(p task.Place) time.Duration { return testkit.Get(asker.GoneFor(t.Context(), p)).Must(t) }
	far := openAs(t, url, "shop", "/far")
	elsewhere := func() bool { return testkit.Get(far.Elsewhere(t.Context())).Must(t) }
	here := task.Place{MachineID: o.Machine, Root: o.Root}
	testkit.Equal(t, gone(here), unknownFor, "a place that nobody knows is gone for")
	testkit.True(t, !elsewhere(), "another place uses the project")

	enter := func() *Store {
		s := testkit.Get(Open(o)).Must(t)
		must(t, s.Enter(t.Context()))
		testkit.Equal(t, gone(here), 0, "a place with a process is gone for")
		return s
	}
	s := enter()
	testkit.True(t, elsewhere(), "another place does not use the project")
	testkit.True(t, !testkit.Get(s.Elsewhere(t.Context())).Must(t), "its own place is another one")

	alone = false
	must(t, s.Close(t.Context()))
	testkit.Equal(t, gone(here), 0, "a place with another process is gone for")

	s = enter()
	alone = true
	must(t, errors.Join(asker.probe(), s.Close(t.Context())))
	got := gone(here)
	testkit.True(t, got > 0 && got <= time.Minute, "a place that was left is gone for %v", got)
	testkit.True(t, !elsewhere(), "another place uses the project")

	s = enter()
	change(t, asker, `UPDATE @places SET until = clock_timestamp() - interval '1 hour'`)
	got = gone(here)
	testkit.True(t, got >= time.Hour && got <= 2*time.Hour, "a place whose processes were killed is gone for %v", got)

	for _, since := range []func(){func() { asker.contact.read = time.Now().Add(-time.Hour) }, func() {
		asker.contact.clock = asker.contact.clock.Add(-time.Hour)
	}} {
		since()
		must(t, asker.probe())
		testkit.Equal(t, gone(here), 0, "the database was away, or its clock was set forward, and a place is gone for")
		asker.contact.settled = time.Time{}
	}
	must(t, s.probe()) // they were not: they were cut off
	testkit.Equal(t, gone(here), 0, "a place that is back is gone for")
	must(t, s.Close(t.Context()))
}

func TestALateTouchDoesNotRevive(t *testing.T) {
	s, url := newStore(t)
	asker := openAt(t, url)
	place := task.Place{MachineID: s.o.Machine, Root: s.o.Root}
	left := func() bool { return testkit.Get(asker.GoneFor(t.Context(), place)).Must(t) > 0 }
	must(t, s.Enter(t.Context()))
	testkit.True(t, !left(), "it is not entered")

	lock := locks(t, url, `LOCK TABLE @schema_version`)
	waits := func() (n int) {
		testkit.Get(asker.first(t.Context(),
			`SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = to_regclass($1)`,
			[]any{asker.text("@schema_version")}, &n)).Must(t)
		return n
	}

	s.contact.probe.Wake()
	testkit.Until(t, "touching", func() bool { return waits() == 1 })

	closed := make(chan error, 1)
	go func() { closed <- s.Close(context.Background()) }()

	// it must not be
	for until := time.Now().Add(200 * time.Millisecond); time.Now().Before(until) &&
		!left(); time.Sleep(10 * time.Millisecond) {
	}
	must(t, errors.Join(lock.Rollback(), <-closed))
	testkit.Until(t, "touched", func() bool { return waits() == 0 })
	testkit.True(t, left(), "the place was touched after it was left")
}

func TestTheBoardHasTheTimeOfTheDatabase(t *testing.T) {
	clock := session.Clock
	session.Clock = func() time.Time { return clock().Add(-10 * time.Hour) }
	t.Cleanup(func() { session.Clock = clock })
	s, _ := openNew(t)
	b := s.Database().Board()
	synced(t, b, spec("shop", "/srv/shop", true))
	old := time.Since(listed(t, b)["shop"].CreatedAt)
	testkit.True(t, old.Abs() <= 5*time.Minute, "the project was made %v ago", old)
}

func TestOutcomes(t *testing.T) {
	s, _ := newStore(t)
	scope := testkit.Get(s.connect(t.Context())).Must(t)
	refused, lost := errors.New("refused"), errors.New("lost")
	run := func(end error, within func(id commit)) (id commit) {
		t.Helper()
		err := s.inTransaction(t.Context(), kind{scope: scope, alone: true},
			func(ctx context.Context, q sqlstore.Querier) error {
				must(t, q.QueryRowContext(ctx,
					`SELECT pg_current_xact_id()::text, extract(epoch FROM pg_postmaster_start_time())::text`).
					Scan(&id.id, &id.start))
				within(id)
				return end
			})
		testkit.Need(t, err == end, "%v", err)
		return id
	}
	made, undone := run(nil, func(commit) {}), run(refused, func(commit) {})
	later := func(c commit) commit { return commit{c.id, "1"} } // as if the server had been started again
	for id, want := range map[commit]error{
		made: nil, undone: lost, // and not pending
		later(made):   store.ErrPending,               // or it was another one
		later(undone): lost, {"999999999", "1"}: lost, // it had not begun
	} {
		err := s.outcome(id, lost)
		testkit.FailsWith(t, err, want, "%+v", id)
		testkit.True(t, want != lost || !errors.Is(err, store.ErrPending), "%+v: %v", id, err)
	}

	outcome := make(chan error, 1)
	run(nil, func(id commit) {
		go func() { outcome <- s.outcome(id, lost) }()
		time.Sleep(100 * time.Millisecond) // it asks
	})
	testkit.Works(t, <-outcome, "one that is committed later")
}
