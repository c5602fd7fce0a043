package postgres

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/store/postgres/pgtest"
	"deepwork/session/store/sqlstore"
)

// Eight processes that find no schema create it once.
func TestFirstUseByManyProcesses(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	var lines []func() string
	for range 8 {
		c := start(t, "open", url)
		defer func() {
			testkit.Works(t, c.Wait(), "%s", &c.Err)
		}()
		io.WriteString(c.In, "\n")
		lines = append(lines, c.Line)
	}
	for _, line := range lines {
		got := line()
		testkit.True(t, got != "" && got != "0", "the version is %q", got)
	}
	s := openAt(t, url)
	must(t, s.Open(t.Context()))
	var projects, places int
	_, err := s.first(t.Context(), `SELECT (SELECT count(*) FROM @scopes), (SELECT count(*) FROM @places)`, nil, &projects, &places)
	testkit.True(t, err == nil && projects == 1 && places == 1, "%d projects and %d places, %v", projects, places, err)
}

func TestASchemaOfAnotherVersionIsRefused(t *testing.T) {
	t.Parallel()
	s, url := openNew(t)
	must(t, s.Enter(t.Context()))
	testkit.Get(s.exec(t.Context(), `UPDATE @schema_version SET version = version + 1`)).Must(t)
	late := openAt(t, url)
	if err := late.Open(t.Context()); !errors.Is(err, task.ErrVersion) || !strings.Contains(err.Error(), "it has version 2, and this deepwork uses version 1: use the deepwork that wrote it, or set the database aside") {
		t.Errorf("opened with %v", err)
	}
	// One that runs already stops to use it.
	for _, mode := range []sqlstore.Mode{sqlstore.Reading, sqlstore.Writing} {
		testkit.FailsWith(t, s.Transact(t.Context(), mode, nil), task.ErrVersion, "a transaction")
	}
	testkit.FailsWith(t, s.look(), task.ErrVersion, "it looks")
	testkit.FailsWith(t, s.Unavailable(), task.ErrVersion, "it is unavailable")
	testkit.FailsWith(t, second(sessionsOf(s).WriteSession(t.Context(), transition(id, 1))), task.ErrVersion, "a transition")
}

// The first use of a project's name binds it to the repository.
func TestProjectsBelongToARepository(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
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
		if err := open("shop", none); !errors.Is(err, task.ErrInvalid) || !strings.Contains(err.Error(), "belongs to example.com/team/shop, and /srv/shop is in no repository") {
			t.Errorf("%+v under a name that is bound: %v", none, err)
		}
	}
	for _, c := range []struct {
		name string
		r    Repository
		ok   bool
	}{
		{"shop", shop, true}, {"shop", Repository{Remote: "git@example.com:team/shop"}, true}, {"shop", Repository{RootCommit: "aa"}, true},
		{"shop", Repository{Remote: "/elsewhere", RootCommit: "aa"}, true},
		{"shop", Repository{Remote: "https://example.com/team/other", RootCommit: "bb"}, false}, {"other", Repository{RootCommit: "bb"}, true},
	} {
		err := open(c.name, c.r)
		testkit.True(t, c.ok == (err == nil) && (c.ok || strings.Contains(err.Error(), "example.com/team/shop") && strings.Contains(err.Error(), "example.com/team/other")), "%s for %+v: %v", c.name, c.r, err)
		testkit.True(t, err == nil || !strings.Contains(err.Error(), "secret"), "the error has the password")
	}
}

func TestTransactions(t *testing.T) {
	t.Parallel()
	plain, url := openNew(t)
	for name, url := range map[string]string{"direct": url, "PgBouncer": pgtest.Bouncer(t, url)} {
		t.Run(name, func(t *testing.T) {
			s := openAt(t, url)
			ctx := t.Context()
			_ = plain
			refused := errors.New("refused")
			for _, fail := range []error{nil, refused} {
				err := s.Transact(ctx, sqlstore.Writing, func(ctx context.Context, q sqlstore.Querier) error {
					_, err := q.ExecContext(ctx, `INSERT INTO definitions (hash, data, put_at) VALUES (?, 'x', '')`, name+"?")
					return errors.Join(err, fail)
				})
				testkit.FailsWith(t, err, fail)
			}
			// A statement that failed and was ignored does not look like a success.
			err := s.Transact(ctx, sqlstore.Unsynced, func(ctx context.Context, q sqlstore.Querier) error {
				q.ExecContext(ctx, `SELECT 1/0`)
				return nil
			})
			testkit.Fails(t, err, "", "a failed transaction was committed")
			var n int
			must(t, s.Transact(ctx, sqlstore.Reading, func(ctx context.Context, q sqlstore.Querier) error {
				return q.QueryRowContext(ctx, `SELECT count(*) FROM definitions WHERE hash = ?1`, name+"?").Scan(&n)
			}))
			testkit.Equal(t, n, 1, "rows")
			err = s.Transact(ctx, sqlstore.Reading, func(ctx context.Context, q sqlstore.Querier) error {
				return second(q.ExecContext(ctx, `DELETE FROM definitions`))
			})
			testkit.Fails(t, err, "read-only transaction")
			// A commit waits for the disk, unless its change may be lost with the power.
			for mode, want := range map[sqlstore.Mode]string{sqlstore.Writing: "on", sqlstore.Swapping: "on", sqlstore.Unsynced: "off"} {
				var synced string
				must(t, s.Transact(ctx, mode, func(ctx context.Context, q sqlstore.Querier) error {
					return q.QueryRowContext(ctx, `SHOW synchronous_commit`).Scan(&synced)
				}))
				testkit.Equal(t, synced, want, "mode %d", mode)
			}
		})
	}
}

// Whether a change was committed is known although the reply was lost, in both cases.
func TestLostReplyToACommit(t *testing.T) {
	t.Parallel()
	_, url := openNew(t)
	proxy := pgtest.NewProxy(t, url)
	s, direct := openAt(t, proxy.URL), openAt(t, url)
	count := 0
	change := func() error {
		return s.Transact(t.Context(), sqlstore.Writing, func(ctx context.Context, q sqlstore.Querier) error {
			count++
			_, err := q.ExecContext(ctx, `INSERT INTO definitions (hash, data, put_at) VALUES (?, 'x', '')`, strings.Repeat("x", count))
			return err
		})
	}
	must(t, change())
	for name, match := range map[string]func(m pgtest.Message) bool{
		"reply": func(m pgtest.Message) bool { return m.Completes("COMMIT") },
		"request": func(m pgtest.Message) bool {
			return !m.FromServer && m.Type == 'Q' && strings.HasPrefix(string(m.Body), "COMMIT")
		},
	} {
		before := count
		cut := proxy.CutAt(match)
		testkit.Works(t, change(), "%s lost", name)
		select {
		case <-cut:
		default:
			t.Errorf("%s: nothing was cut", name)
		}
		if runs := count - before; (name == "reply") != (runs == 1) {
			t.Errorf("%s lost: the change ran %d times", name, runs)
		}
	}
	must(t, direct.Open(t.Context()))
	var rows int
	_, err := direct.first(t.Context(), `SELECT count(*) FROM @definitions_all`, nil, &rows)
	testkit.True(t, err == nil && rows == 3, "%d rows, %v", rows, err)
}

func TestURLs(t *testing.T) {
	t.Setenv("PGAPPNAME", "x")
	for raw, want := range map[string]string{
		"postgres://u:secret@localhost/db":                                          "the database db at localhost:5432, schema deepwork",
		"postgresql://u@127.0.0.1:99/db?schema=team_1&application_name=x":           "the database db at 127.0.0.1:99, schema team_1",
		"postgres://u@/db?host=/run/pg&schema=x":                                    "the database db at /run/pg, schema x",
		"postgres://u:secret@db.example.com/db?sslmode=verify-full":                 "the database db at db.example.com:5432, schema deepwork",
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
			testkit.True(t, len(config.RuntimeParams) == 0, "%s: parameters for the server: %v", raw, config.RuntimeParams)
		}
		part, refused := strings.CutPrefix(want, "error: ")
		testkit.True(t, refused == (err != nil) && strings.Contains(got, part) && !strings.Contains(got, "secret"), "%s: %s; want %s", raw, got, want)
	}
}

func TestRepositories(t *testing.T) {
	t.Parallel()
	same := []string{"https://me:token@GitHub.com/team/shop.git", "git@github.com:team/shop.git", "ssh://git@github.com:22/team/shop", "github.com:team/shop/"}
	for _, remote := range same {
		testkit.Equal(t, (Repository{Remote: remote}).normalized().Remote, "github.com/team/shop", "%s", remote)
	}
	for remote, want := range map[string]string{"": "", "/srv/git/shop.git": "", "file:///srv/git/shop": "", `C:\git\shop`: "", "../shop": "", "host:a/b": "host/a/b"} {
		testkit.Equal(t, (Repository{Remote: remote}).normalized().Remote, want, "%s", remote)
	}
}

func TestNamesThatAreNoText(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*Options){
		func(o *Options) { o.Project = "sh\xffop" },
		func(o *Options) { o.Project = "shop\x00" },
		func(o *Options) { o.Root = "/srv/\xff" },
	} {
		o := options("postgres://u:secret@localhost/db")
		change(&o)
		if s, err := Open(o); err == nil || !strings.Contains(err.Error(), "UTF-8") {
			t.Errorf("opened %q in %q with %v", o.Project, o.Root, err)
			s.Close(t.Context())
		}
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

func options(url string) Options {
	return Options{URL: url, Project: "shop", Repository: Repository{Remote: "https://example.com/team/shop.git"}, Machine: "0a1b2c3d", Root: "/srv/shop"}
}

// openAt returns another process's store of the schema.
func openAt(t testing.TB, url string) *Store {
	t.Helper()
	s := testkit.Get(Open(options(url))).Must(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		testkit.Must(t, s.Close(ctx))
	})
	return s
}

// openNew returns the store of an empty schema, and its URL.
func openNew(t testing.TB) (*Store, string) {
	url := pgtest.URL(t)
	return openAt(t, url), url
}

// start runs a child.
func start(t testing.TB, role, url string) *testkit.Child {
	t.Helper()
	return testkit.Start(t, roleEnv+"="+role, urlEnv+"="+url)
}

var must = testkit.Must
