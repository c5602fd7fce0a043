// Package storetest holds the conformance suites of the stores: what callers under
// session rely on. Each suite runs on every implementation in backends.
package storetest_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"deepwork/session/store"
	"deepwork/session/store/local/sqlite"

	"go.uber.org/goleak"
)

// stores are the stores of one project, as one process has them.
type stores struct {
	board    store.Board
	requests store.Requests
	close    func() error
}

// backends are the implementations: each opens the stores of the project in dir.
// now may be nil.
var backends = map[string]func(dir string, now func() time.Time) stores{
	"sqlite": func(dir string, now func() time.Time) stores {
		d := sqlite.New(sqlite.Options{Path: filepath.Join(dir, "board.db"), Now: now})
		return stores{d.Board(), d.Requests(), d.Close}
	},
}

// each runs a test on every implementation; open opens the same project each time.
func each(t *testing.T, test func(t *testing.T, backend string, open func(now func() time.Time) stores)) {
	for name, open := range backends {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			test(t, name+":"+dir, func(now func() time.Time) stores {
				s := open(dir, now)
				t.Cleanup(func() {
					if err := s.close(); err != nil {
						t.Error(err)
					}
				})
				return s
			})
		})
	}
}

// TestMain makes the test binary another process too: with a role in its environment
// it works on stores that are not its own.
func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		os.Exit(child(context.Background()))
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // a program built with -race sleeps at its end
	goleak.VerifyTestMain(m)
}
