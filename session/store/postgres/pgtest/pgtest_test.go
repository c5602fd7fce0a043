package pgtest

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if how := os.Getenv("PGTEST_CHILD"); how != "" {
		start := Shared
		if how == "alone" {
			start = func() (*Server, error) { return Start() }
		}
		s, err := start()
		if err != nil {
			panic(err)
		}

		fmt.Println(s.base)
		os.Stdout.Close()
		select {} // until it is killed
	}

	_ = flag.Set("test.parallel", "4") // they wait for processes
	goleak.VerifyTestMain(m)
}

func connect(t *testing.T, url string) (*pgconn.PgConn, error) {
	t.Helper()
	config := testkit.Get(pgconn.ParseConfig(url)).Must(t)
	delete(config.RuntimeParams, "schema")
	c, err := pgconn.ConnectConfig(t.Context(), config)
	if err == nil {
		t.Cleanup(func() { c.Conn().Close() })
	}
	return c, err
}

// do returns the values and the commands that were completed.
func do(t *testing.T, c *pgconn.PgConn, sql string) (said string, err error) {
	all, err := c.Exec(t.Context(), sql).ReadAll()
	for _, r := range all {
		for _, row := range r.Rows {
			said += fmt.Sprintf("%q;", row[0])
		}
		said += r.CommandTag.String() + ";"
	}
	return said, err
}

func query(t *testing.T, url, sql string) (string, error) {
	t.Helper()
	c, err := connect(t, url)
	if err != nil {
		return "", err
	}
	defer c.Conn().Close()
	return do(t, c, sql)
}

func refused(t *testing.T, url, sql, what string) {
	t.Helper()
	testkit.Fails(t, testkit.Get(query(t, url, sql)).Err(), "", what)
}

func until(t *testing.T, url, sql, want string) {
	t.Helper()
	testkit.Until(t, want, func() bool {
		said, _ := query(t, url, sql)
		return said == want
	})
}

func wants(t *testing.T, url, sql, want string) {
	t.Helper()
	testkit.Equal(t, testkit.Get(query(t, url, sql)).Must(t), want, "%s", sql)
}

func TestServerKeepsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	s := New(t, "max_connections=10")
	url := s.At("")
	wants(t, url, "SHOW fsync", `"on";SHOW;`)
	wants(t, url, "CREATE TABLE t(n int); INSERT INTO t VALUES (1)", "CREATE TABLE;INSERT 0 1;")
	testkit.Must(t, s.Kill())
	refused(t, url, "SELECT 1", "a killed server answers")
	testkit.Must(t, s.Start())
	wants(t, url, "SELECT n FROM t", `"1";SELECT 1;`)
	testkit.Must(t, s.Stop())
	testkit.Must(t, s.Start())
	release := testkit.Get(Exhaust(s.URL())).Must(t)
	refused(t, url, "SELECT 1", "there is another connection")
	release()
	until(t, url, "SELECT n FROM t", `"1";SELECT 1;`) // the server notices
}

func TestProxyCuts(t *testing.T) {
	t.Parallel()
	url := URL(t)
	pooled := Bouncer(t, url)
	wants(t, pooled, "SELECT 1", `"1";SELECT 1;`)
	testkit.Contains(t, pooled, "schema=test_")
	wants(t, url, "CREATE TABLE IF NOT EXISTS cuts(n int); TRUNCATE cuts", "CREATE TABLE;TRUNCATE TABLE;")
	p := NewProxy(t, url)
	insert := "BEGIN; INSERT INTO cuts VALUES (1); COMMIT"
	wants(t, p.URL, insert, "BEGIN;INSERT 0 1;COMMIT;")
	cut := p.CutAt(func(m Message) bool { return m.Commits })
	refused(t, p.URL, "INSERT INTO cuts VALUES (2)", "the reply of the commit arrived")
	<-cut
	wants(t, p.URL, "SELECT n FROM cuts WHERE n = 2", `"2";SELECT 1;`)
	cut = p.CutAt(func(m Message) bool { return !m.FromServer && m.Type == 'Q' })
	refused(t, p.URL, "INSERT INTO cuts VALUES (3)", "there is a reply to what was not forwarded")
	<-cut
	wants(t, p.URL, "SELECT n FROM cuts WHERE n = 3", `SELECT 0;`)
	c := testkit.Get(connect(t, p.URL)).Must(t)
	held := p.HoldAt(func(m Message) bool { return m.Type == 'Q' }, 100*time.Millisecond)
	c.Exec(t.Context(), "INSERT INTO cuts VALUES (4)")
	<-held
	c.Conn().Close()
	wants(t, p.URL, "SELECT n FROM cuts WHERE n = 4", `SELECT 0;`)
	until(t, p.URL, "SELECT n FROM cuts WHERE n = 4", `"4";SELECT 1;`) // it arrives
	c = testkit.Get(connect(t, p.URL)).Must(t)
	p.CutAfter(8)
	testkit.Fails(t, testkit.Get(do(t, c, "SELECT 1")).Err(), "", "cut off, and it answers")
	wants(t, p.URL, "SELECT 1", `"1";SELECT 1;`)
	p.Refuse(true)
	refused(t, p.URL, "SELECT 1", "it refuses, and there is an answer")
	p.Refuse(false)
	p.DelayCommits(20 * time.Millisecond)
	began := time.Now()
	wants(t, p.URL, insert, "BEGIN;INSERT 0 1;COMMIT;")
	testkit.True(t, time.Since(began) >= 20*time.Millisecond, "the commit was confirmed after %v", time.Since(began))
	p.Freeze(true)
	said := make(chan string)
	go func() {
		s, _ := query(t, p.URL, "SELECT 1")
		said <- s
	}()
	select {
	case s := <-said:
		t.Error("frozen, and it answers", s)
	case <-time.After(50 * time.Millisecond):
	}
	p.Freeze(false)
	testkit.Equal(t, <-said, `"1";SELECT 1;`, "after the freeze")
}

// startChild starts another test binary, and returns it with the URL of its server.
func startChild(t *testing.T, env ...string) (*testkit.Child, string) {
	t.Helper()
	c := testkit.Start(t, append(env, urlVariable+"=")...)
	url := c.Line()
	wants(t, url, "SELECT 1", `"1";SELECT 1;`)
	return c, url
}

func gone(t *testing.T, url string) {
	t.Helper()
	_, socket := address(url)
	testkit.Until(t, "the folder of the server is gone", func() bool {
		_, err := os.Stat(strings.TrimSuffix(socket, "/.s.PGSQL.5432"))
		return os.IsNotExist(err)
	})
}

// A test binary may be killed: its server must end, and its folder go.
func TestServerEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	URL(t) // is there PostgreSQL?
	c, url := startChild(t, "PGTEST_CHILD=alone")
	c.Crash()
	gone(t, url)
}

// A server that test binaries share ends with the last of them, and the next one starts another.
func TestASharedServerEndsWithTheLastProcess(t *testing.T) {
	t.Parallel()
	URL(t) // is there PostgreSQL?
	dir := testkit.Get(os.MkdirTemp("", "shared")).Must(t)
	t.Cleanup(func() { testkit.Must(t, os.RemoveAll(dir)) })
	testkit.Must(t, os.Chmod(dir, 0o777)) // the server's user enters it, and removes its folder
	env := []string{"PGTEST_CHILD=shared", "TMPDIR=" + dir}
	one, first := startChild(t, env...)
	two, second := startChild(t, env...)
	testkit.Equal(t, first, second, "they have the servers")
	one.Crash()
	wants(t, second, "SELECT 1", `"1";SELECT 1;`)
	two.Crash()
	three, again := startChild(t, env...)
	three.Crash()
	gone(t, again)
}

func TestUnknownNamesOfTests(t *testing.T) {
	t.Parallel()
	missing, err := unknown("TestProxyCuts TestRenamed\n\tTestUnknownNamesOfTests TestProxy")
	testkit.Must(t, err)
	testkit.Equal(t, strings.Join(missing, " "), "TestRenamed TestProxy")
}
