package postgres

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/store/postgres/pgtest"

	"go.uber.org/goleak"
)

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
	s, err := Open(options(url))
	testkit.Must(t, err)
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
