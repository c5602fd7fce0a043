package pgtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"deepwork/actor/testkit"

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
	goleak.VerifyTestMain(m)
}

// A session is a connection of the simple protocol.
type session struct{ net.Conn }

func connect(t *testing.T, raw string) (session, error) {
	t.Helper()
	network, addr := address(raw)
	c, err := net.Dial(network, addr)
	if err != nil {
		return session{}, err
	}
	t.Cleanup(func() { c.Close() })
	s := session{c}
	if _, err := c.Write(startup(raw)); err != nil {
		return s, err
	}
	_, err = s.reply()
	return s, err
}

func (s session) send(kind, body string) error {
	_, err := s.Write(append(binary.BigEndian.AppendUint32([]byte(kind), uint32(4+len(body))), body...))
	return err
}

// reply returns the commands that were completed.
func (s session) reply() (tags string, err error) {
	head := make([]byte, 5)
	for {
		if _, err := io.ReadFull(s, head); err != nil {
			return tags, err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(s, body); err != nil {
			return tags, err
		}
		switch head[0] {
		case 'C':
			tags += strings.TrimRight(string(body), "\x00") + ";"
		case 'D':
			tags += fmt.Sprintf("%q;", body[6:])
		case 'E':
			err = errors.New(string(body))
		case 'Z':
			return tags, err
		}
	}
}

func (s session) do(sql string) (string, error) {
	if err := s.send("Q", sql+"\x00"); err != nil {
		return "", err
	}
	return s.reply()
}

func query(t *testing.T, url, sql string) (string, error) {
	t.Helper()
	s, err := connect(t, url)
	if err != nil {
		return "", err
	}
	defer s.Close()
	return s.do(sql)
}

func wants(t *testing.T, url, sql, want string) {
	t.Helper()
	testkit.Equal(t, testkit.Get(query(t, url, sql)).Must(t), want, "%s", sql)
}

func TestServerKeepsWhatWasCommitted(t *testing.T) {
	s := New(t, "max_connections=10")
	url := s.At("")
	wants(t, url, "SHOW fsync", `"on";SHOW;`)
	wants(t, url, "SHOW max_connections", `"10";SHOW;`)
	wants(t, url, "CREATE TABLE t(n int); INSERT INTO t VALUES (1)", "CREATE TABLE;INSERT 0 1;")
	testkit.Must(t, s.Kill())
	testkit.Fails(t, testkit.Get(query(t, url, "SELECT 1")).Err(), "", "a killed server answers")
	testkit.Must(t, s.Start())
	wants(t, url, "SELECT n FROM t", `"1";SELECT 1;`)
	testkit.Must(t, s.Stop())
	testkit.Must(t, s.Start())
	wants(t, url, "SELECT n FROM t", `"1";SELECT 1;`)
}

func TestExhaust(t *testing.T) {
	s := New(t, "max_connections=5")
	release := testkit.Get(Exhaust(s.URL())).Must(t)
	if said, err := query(t, s.At(""), "SELECT 1"); err == nil {
		t.Error("there is another connection:", said)
	}
	release()
	for said := ""; said != `"1";SELECT 1;`; { // the server notices
		said, _ = query(t, s.At(""), "SELECT 1")
	}
}

func TestPooler(t *testing.T) {
	pooled := Bouncer(t, URL(t))
	wants(t, pooled, "SELECT 1", `"1";SELECT 1;`)
	testkit.Contains(t, pooled, "schema=test_")
}

func TestProxyCuts(t *testing.T) {
	url := URL(t)
	wants(t, url, "CREATE TABLE IF NOT EXISTS cuts(n int); TRUNCATE cuts", "CREATE TABLE;TRUNCATE TABLE;")
	p := NewProxy(t, url)
	insert := "BEGIN; INSERT INTO cuts VALUES (1); COMMIT"
	wants(t, p.URL, insert, "BEGIN;INSERT 0 1;COMMIT;")

	cut := p.CutAt(func(m Message) bool { return m.Commits })
	testkit.Fails(t, testkit.Get(query(t, p.URL, "INSERT INTO cuts VALUES (2)")).Err(), "", "the reply of the commit arrived")
	<-cut
	wants(t, p.URL, "SELECT n FROM cuts WHERE n = 2", `"2";SELECT 1;`)

	cut = p.CutAt(func(m Message) bool { return !m.FromServer && m.Type == 'Q' })
	testkit.Fails(t, testkit.Get(query(t, p.URL, "INSERT INTO cuts VALUES (3)")).Err(), "", "there is a reply to what was not forwarded")
	<-cut
	wants(t, p.URL, "SELECT n FROM cuts WHERE n = 3", `SELECT 0;`)

	c := testkit.Get(connect(t, p.URL)).Must(t)
	held := p.HoldAt(func(m Message) bool { return m.Type == 'Q' }, 100*time.Millisecond)
	testkit.Must(t, c.send("Q", "INSERT INTO cuts VALUES (4)\x00"))
	<-held
	c.Close()
	wants(t, p.URL, "SELECT n FROM cuts WHERE n = 4", `SELECT 0;`)
	for said := ""; said != `"4";SELECT 1;`; { // it arrives
		said = testkit.Get(query(t, p.URL, "SELECT n FROM cuts WHERE n = 4")).Must(t)
	}

	c = testkit.Get(connect(t, p.URL)).Must(t)
	p.CutAfter(8)
	if said, err := c.do("SELECT 1"); err == nil {
		t.Error("cut off, and it answers", said)
	}
	wants(t, p.URL, "SELECT 1", `"1";SELECT 1;`)

	p.Refuse(true)
	testkit.Fails(t, testkit.Get(query(t, p.URL, "SELECT 1")).Err(), "", "it refuses, and there is an answer")
	p.Refuse(false)
	p.DelayCommits(20 * time.Millisecond)
	began := time.Now()
	wants(t, p.URL, insert, "BEGIN;INSERT 0 1;COMMIT;")
	took := time.Since(began)
	testkit.True(t, took >= 20*time.Millisecond, "the commit was confirmed after %v", took)
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
	if s := <-said; s != `"1";SELECT 1;` {
		t.Error("after the freeze:", s)
	}
}

// A child is another test binary, until it is killed, with the URL of its server.
type child struct {
	*exec.Cmd
	url string
}

func startChild(t *testing.T, env ...string) child {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(append(os.Environ(), urlVariable+"="), env...)
	out := testkit.Get(c.StdoutPipe()).Must(t)
	testkit.Must(t, c.Start())
	said := testkit.Get(io.ReadAll(out)).Must(t)
	url := strings.TrimSpace(string(said))
	wants(t, url, "SELECT 1", `"1";SELECT 1;`)
	return child{c, url}
}

func (c child) kill(t *testing.T) {
	t.Helper()
	testkit.Must(t, c.Process.Signal(syscall.SIGKILL))
	_ = c.Wait()
}

// gone waits until a server and its folder are gone.
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
	URL(t) // is there PostgreSQL?
	c := startChild(t, "PGTEST_CHILD=alone")
	c.kill(t)
	gone(t, c.url)
}

// A server that test binaries share ends with the last of them, and the next one starts another.
func TestASharedServerEndsWithTheLastProcess(t *testing.T) {
	URL(t) // is there PostgreSQL?
	dir := testkit.Get(os.MkdirTemp("", "shared")).Must(t)
	t.Cleanup(func() { testkit.Must(t, os.RemoveAll(dir)) })
	testkit.Must(t, os.Chmod(dir, 0o777)) // the server's user enters it, and removes its folder
	env := []string{"PGTEST_CHILD=shared", "TMPDIR=" + dir}
	one, two := startChild(t, env...), startChild(t, env...)
	testkit.Equal(t, one.url, two.url, "they have the servers")
	one.kill(t)
	wants(t, two.url, "SELECT 1", `"1";SELECT 1;`)
	two.kill(t)
	again := startChild(t, env...)
	again.kill(t)
	gone(t, again.url)
}
