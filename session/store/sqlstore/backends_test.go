// The tests are the conformance suites of the stores: what callers under session rely on. All run on every
// one of backends.
package sqlstore_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/store/local/sqlite"
	"deepwork/session/store/postgres"
	"deepwork/session/store/postgres/pgtest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
)

// backends are the implementations of store.Database: each opens the one at path, with a clock.
var backends = map[string]func(path string, now func() time.Time) store.Database{
	"sqlite": func(path string, now func() time.Time) store.Database {
		return sqlite.New(sqlite.Options{Path: path, Now: now})
	},
	"postgres":  openPostgres,
	"pgbouncer": openPostgres, // in transaction mode
}

// openPostgres opens the project of the store that belongs to a path, for another process.
func openPostgres(path string, now func() time.Time) store.Database {
	name := sha256.Sum256([]byte(path))
	s, err := postgres.Open(postgres.Options{URL: os.Getenv(storeVariable), Project: hex.EncodeToString(name[:]),
		Repository: postgres.Repository{RootCommit: "aa"}, Machine: "0a1b2c3d", Root: filepath.Dir(path), Now: now})
	if err == nil {
		err = s.Enter(context.Background())
	}
	if err != nil {
		panic(err)
	}
	return closing{s.Database(), s}
}

type closing struct {
	store.Database
	s *postgres.Store
}

func (c closing) Close() error { return c.s.Close(context.Background()) }

func (b board) tasks(
	t testing.TB, project string, f task.Filter, p task.Page,
) (list []task.Summary, total int, next string) {
	t.Helper()
	list, total, next, err := b.Tasks(t.Context(), project, f, p)
	testkit.Must(t, err)
	return list, total, next
}

func (b board) projects(t testing.TB) []task.Project {
	t.Helper()
	list, total, _, err := b.Projects(t.Context(), task.Page{Limit: 100})
	testkit.Must(t, err)
	equal(t, total, len(list))
	return list
}

func attention(t testing.TB, v store.View) (all []task.Attention, more bool) {
	t.Helper()
	all, more, err := v.Attention(t.Context())
	testkit.Must(t, err)
	return all, more
}

func (b board) set(t testing.TB, s *task.Summary, status task.Status) {
	t.Helper()
	testkit.Must(t, second(b.UpdateTask(t.Context(), s.ID, task.TaskChange{Status: &status})))
}

// backend is the name of the one that is tested now, also in the environment of child processes.
var backend string

const backendVariable, storeVariable = "DEEPWORK_TEST_BACKEND", "DEEPWORK_TEST_STORE"

// TestMain runs all tests for each backend. With a path in its environment the test binary is another process
// on that database.
func TestMain(m *testing.M) {
	if os.Getenv("BOARD_PATH") != "" {
		backend = os.Getenv(backendVariable)
		os.Exit(work(context.Background()))
	}

	os.Setenv("GORACE", "atexit_sleep_ms=0") // a program built with -race sleeps at its end
	flag.Parse()
	_ = flag.Set("test.parallel", "6") // they wait more than they compute
	run, failed := flag.Lookup("test.run").Value.String(), 0

	// the coverage of the first, which runs all tests, is reported
	for _, backend = range slices.Backward(slices.Sorted(maps.Keys(backends))) {
		tests := run
		if backend == "pgbouncer" && run == "" {
			tests = throughBouncer
		}
		url, end, err := urlOf(backend)
		if errors.Is(err, pgtest.ErrMissing) && os.Getenv("DEEPWORK_TEST_POSTGRES_REQUIRED") != "1" {
			fmt.Printf("the backend %s is skipped: %v\n", backend, err)
			continue
		}
		os.Setenv(backendVariable, backend)
		os.Setenv(storeVariable, url)
		code := 1
		if err == nil {
			_ = flag.Set("test.run", tests)
			code = m.Run()
			end()
		}
		if code != 0 {
			fmt.Println("FAIL: the backend", backend, err)
			failed = code
		}
	}
	if err := goleak.Find(); err != nil && failed == 0 {
		fmt.Println("FAIL:", err)
		failed = 1
	}
	os.Exit(failed)
}

// throughBouncer are the tests that are run through PgBouncer, too: those of several connections that wait
// for each other. What a statement answers does not depend on it.
const throughBouncer = "Request|Change|Follower|Feed|Writers|Server|Process"

func urlOf(backend string) (url string, end func(), err error) {
	if backend == "sqlite" {
		return "", func() {}, nil
	}

	server, err := pgtest.Shared()
	if err != nil {
		return "", nil, err
	}
	if backend == "postgres" {
		return server.URL(), func() {}, nil
	}
	pooler, err := pgtest.StartBouncer(server.URL())
	if err != nil {
		return "", nil, err
	}
	return pooler.URL, pooler.Close, nil
}

func open(t testing.TB, path string, now func() time.Time) store.Database {
	d := backends[backend](path, now)
	t.Cleanup(func() { testkit.Must(t, d.Close()) })
	return d
}

type board struct {
	store.Board
	db store.Database
}

func (b board) Close() error { return b.db.Close() }

func openAt(t testing.TB, path string, now func() time.Time) board {
	t.Helper()
	d := open(t, path, now)
	b := board{d.Board(), d}
	t.Cleanup(func() { verify(t, b) })
	return b
}

func verify(t testing.TB, b board) {
	t.Helper()
	found, _, err := b.Inspect(context.Background())
	testkit.True(t, len(found) == 0 && (err == nil || errors.Is(err, task.ErrClosed)), "the board's inspection: %v, %v",
		found, err)
}

type clock struct{ at time.Time }

func newClock() *clock {
	return &clock{time.Date(2026, 3, 1, 12, 0, 0, 123_456_789, time.FixedZone("east", 3600))}
}

func (c *clock) now() time.Time { return c.at }

func (c *clock) forward(d time.Duration) { c.at = c.at.Add(d) }

// newPath is that of a database, with a clock. The test runs beside others: most of the time it waits for the disk.
func newPath(t *testing.T) (string, *clock) {
	t.Parallel()
	return filepath.Join(t.TempDir(), "board.db"), newClock()
}

func newBoard(t *testing.T) (board, *clock, task.Project) {
	t.Helper()
	path, c := newPath(t)
	b := openAt(t, path, c.now)
	return b, c, rootOf(t, b)
}

var root = task.ProjectSpec{Name: "shop", Root: true, Repos: []task.RepoSpec{{Name: "shop", Path: abs("shop")}}}

func abs(name string) string { return filepath.Join(os.TempDir(), name) }

func rootOf(t testing.TB, b board) task.Project {
	t.Helper()
	testkit.Must(t, b.SyncProjects(t.Context(), []task.ProjectSpec{root}, false))
	list := b.projects(t)
	equal(t, len(list), 1)
	return list[0]
}

func addTask(t testing.TB, b board, p task.Project, title string) *task.Summary {
	t.Helper()
	return addAs(t, b, p, owner, title)
}

func addAs(t testing.TB, b board, p task.Project, who session.Caller, title string) *task.Summary {
	t.Helper()
	return testkit.Get(b.For(who).CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: title}, task.Request{})).
		Must(t)
}

func try(t testing.TB, b board, s *task.Summary) *task.Attempt { return tryAs(t, b, owner, s) }

func tryAs(t testing.TB, b board, who session.Caller, s *task.Summary) *task.Attempt {
	t.Helper()
	return testkit.Get(b.For(who).CreateAttempt(t.Context(), task.Attempt{
		TaskID:    s.ID,
		Executor:  "SCRIPTED",
		Branch:    "deepwork/x-0000",
		Workspace: abs("w"),
		Repos: []task.AttemptRepo{{
			RepoID:       "r1",
			RepoName:     "web",
			RepoPath:     abs("web"),
			TargetBranch: "main",
			Worktree:     abs("w/web"),
		}},
	}, task.Execution{Prompt: "do it"}, task.Request{})).Must(t)
}

// claimed claims the oldest waiting execution for a server with that many slots, and returns nil if nothing waits.
func claimed(t testing.TB, b board, slots int) *task.Execution {
	t.Helper()
	return testkit.Get(b.ClaimNext(t.Context(), "server", slots, nil, task.Limits{})).Must(t)
}

func run(t testing.TB, b board) (*task.Execution, *task.Session) {
	t.Helper()
	e := claimed(t, b, 1000)
	testkit.Need(t, e != nil, "nothing to claim")
	return e, testkit.Get(b.StartExecution(t.Context(), e.ID, "SCRIPTED", "", time.Time{})).Must(t)
}

func end(t testing.TB, b board, e *task.Execution, how task.Ending) *task.Execution {
	t.Helper()
	next, ended, err := b.EndExecution(t.Context(), e.ID, how)
	testkit.Must(t, err)
	equal(t, "it does not end", ended, true)
	return next
}

func taskOf(t testing.TB, b board, id string) *task.Summary {
	t.Helper()
	return testkit.Get(b.Task(t.Context(), id)).Must(t)
}

// queue queues a follow-up of an execution that has not ended.
func queue(t testing.TB, b board, s *task.Session, q *task.Queued) {
	t.Helper()
	_, idle, err := b.Queue(t.Context(), s.ID, q, task.Request{})
	testkit.Need(t, !idle && err == nil, "it is not queued: %v, %v", idle, err)
}

// is checks what a call returns that must succeed.
func is[T any](t testing.TB, want T, what ...any) func(T, error) {
	return func(got T, err error) {
		t.Helper()
		testkit.Must(t, err)
		equal(t, append(what, got, want)...)
	}
}

func second[T any](_ T, err error) error { return err }

// atOnce calls f n times at once, and returns the results in the order of their numbers.
func atOnce[T any](n int, f func(i int) T) []T {
	results := make([]T, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { results[i] = f(i) })
	}
	all.Wait()
	return results
}

func won(all []bool) (n int) {
	for _, yes := range all {
		n += map[bool]int{true: 1}[yes]
	}
	return n
}

func says(t testing.TB, err, want error, text string, what ...any) {
	t.Helper()
	testkit.FailsWith(t, err, want, what...)
	testkit.Contains(t, fmt.Sprint(err), text, what...)
}

// equal reports how values differ, field by field, from those that are wanted: each pair is one that the test got and
// the one that it wants. What they are about may precede them.
func equal(t testing.TB, pairs ...any) {
	t.Helper()
	what := ""
	if len(pairs)%2 == 1 {
		what, pairs = fmt.Sprint(pairs[0])+": ", pairs[1:]
	}
	for i := 0; i < len(pairs); i += 2 {
		got, want := pairs[i], pairs[i+1]
		testkit.Equal(t, difference(got, want), "", "%svalue %d of %d (-want +got)", what, i/2+1, len(pairs)/2)
	}
}

// difference compares a value with one that is wanted: a pointer with a value or nil, too, and any type with
// a constant.
func difference(got, want any) string {
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	if g.Kind() == reflect.Pointer && !g.IsNil() && w.IsValid() && w.Kind() != reflect.Pointer {
		g = g.Elem()
		got = g.Interface()
	}
	switch {
	case !w.IsValid() && g.IsValid() && (g.Kind() == reflect.Pointer || g.Kind() == reflect.Slice) && g.IsNil():
		return ""
	case g.IsValid() && w.IsValid() && g.Type() != w.Type() && w.CanConvert(g.Type()) && g.Kind() != reflect.Pointer:
		want = w.Convert(g.Type()).Interface()
	}
	return cmp.Diff(want, got, cmpopts.EquateEmpty(), cmp.Exporter(func(reflect.Type) bool { return true }))
}
