// Package pgtest runs PostgreSQL for tests: one server that test binaries share, PgBouncer in front of it,
// and a proxy that breaks connections. It uses the programs postgres and initdb in PATH, or the newest ones
// where Debian puts them. Without them tests are skipped, unless DEEPWORK_TEST_POSTGRES_REQUIRED is 1.
// DEEPWORK_TEST_POSTGRES is the URL of a running server to use instead; the schemas that tests make there are
// left. If it is "off", tests behave as if nothing were installed.
package pgtest

import (
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
)

const (
	urlVariable      = "DEEPWORK_TEST_POSTGRES"
	requiredVariable = "DEEPWORK_TEST_POSTGRES_REQUIRED"
	off              = "off" // a value of urlVariable
)

// ErrMissing is the error if a program is not installed.
var ErrMissing = errors.New("not installed")

var shared = sync.OnceValues(func() (*Server, error) {
	if base := os.Getenv(urlVariable); base != "" && base != off {
		return &Server{base: base}, nil
	}

	start := share
	if f := flag.Lookup("test.bench"); runtime.GOOS != "linux" || f != nil && f.Value.String() != "" {
		start = func() (*Server, error) { return Start() } // with fsync, which matters here
	}
	s, err := start()
	if err == nil {
		os.Setenv(urlVariable, s.base) // child processes use it, too
	}
	return s, err
})

// Shared returns the server that all test processes share. The first call starts it if none runs; it ends
// with the last process. The error is ErrMissing if PostgreSQL is not installed.
func Shared() (*Server, error) { return shared() }

// URL returns the URL of an empty schema of the process's server. It skips the test if PostgreSQL
// is not installed.
func URL(t testing.TB) string {
	t.Helper()
	s, err := Shared()
	Need(t, err)
	return s.URL()
}

// New starts a server for one test, which may stop and kill it. Options are settings such as
// "max_connections=20". It skips the test if PostgreSQL is not installed.
func New(t testing.TB, options ...string) *Server {
	t.Helper()
	s, err := Start(options...)
	Need(t, err)
	t.Cleanup(s.Close)
	return s
}

// Need fails the test if err is not nil. If err is ErrMissing and PostgreSQL is not required, it skips the
// test.
func Need(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, ErrMissing) && os.Getenv(requiredVariable) != "1":
		t.Skipf("skipped without PostgreSQL: %v; install it (Debian: apt-get install postgresql pgbouncer), or set "+
			"%s to the URL of a server", err, urlVariable)
	default:
		t.Fatalf("PostgreSQL for tests: %v", err)
	}
}

// URL returns the URL of a new schema that nobody else uses.
func (s *Server) URL() string { return s.At("test_" + strings.ToLower(rand.Text()[:12])) }

// At returns the URL of a schema of the server; with "" the URL has no parameter schema, so that pgx
// understands it.
func (s *Server) At(schema string) string {
	return rewrite(s.base, func(q url.Values) {
		if schema != "" {
			q.Set("schema", schema)
		}
	})
}

// rewrite changes the parameters of a URL.
func rewrite(raw string, change func(url.Values)) string {
	u, err := url.Parse(raw)
	if err != nil {
		panic(fmt.Sprintf("%s is not a URL", urlVariable)) // it may contain a password
	}
	q := u.Query()
	change(q)
	u.RawQuery = q.Encode()
	return u.String()
}

// address returns the network and address at which a URL's server listens.
func address(raw string) (network, addr string) {
	u, err := url.Parse(raw)
	if err != nil {
		panic("not a URL of a server")
	}
	port := u.Port()
	if port == "" {
		port = "5432"
	}
	if dir := u.Query().Get("host"); dir != "" {
		return "unix", socketIn(dir)
	}
	return "tcp", u.Hostname() + ":" + port
}

// socketIn returns the socket of a server in a folder.
func socketIn(dir string) string { return dir + "/.s.PGSQL.5432" }

// through returns a URL with another server, whose socket is in a folder.
func through(raw, dir string) string {
	u, err := url.Parse(raw)
	if err != nil {
		panic("not a URL of a server")
	}
	u.Host = ""
	return rewrite(u.String(), func(q url.Values) {
		q.Set("host", dir)
		q.Set("sslmode", "disable")
	})
}
