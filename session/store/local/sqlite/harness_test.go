package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/store"
	"deepwork/session/store/sqlstore"
)

// TestMain runs the tests, or a role of another process that a test has started.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	goleak.VerifyTestMain(m)
}

// noon is a clock that does not move.
func noon() time.Time {
	return time.Date(2026, 3, 1, 12, 0, 0, 123_456_789, time.FixedZone("east", 3600))
}

// A board is a DB as its task board.
type board struct {
	*DB
	store.Board
}

func openBoard(ctx context.Context, o Options) (board, error) {
	d := New(o)
	if err := d.Open(ctx); err != nil {
		return board{}, errors.Join(err, d.Close())
	}
	return board{d, d.Board()}, nil
}

// openAt opens a board that is checked and closed at the end of the test.
func openAt(t testing.TB, path string, now func() time.Time) board {
	t.Helper()
	b, err := openBoard(t.Context(), Options{Path: path, Now: now})
	testkit.Must(t, err)
	t.Cleanup(func() {
		verify(t, b)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// newBoard returns a board of one project.
func newBoard(t testing.TB) (board, task.Project) {
	t.Helper()
	b := openAt(t, filepath.Join(t.TempDir(), "board.db"), noon)
	return b, rootOf(t, b)
}

var root = task.ProjectSpec{Name: "shop", Root: true, Repos: []task.RepoSpec{{Name: "shop", Path: abs("shop")}}}

func abs(name string) string {
	path, err := filepath.Abs(filepath.Join(string(filepath.Separator), "srv", name))
	if err != nil {
		panic(err)
	}
	return path
}

// rootOf makes the root project, and returns it.
func rootOf(t testing.TB, b board) task.Project {
	t.Helper()
	testkit.Must(t, b.SyncProjects(t.Context(), []task.ProjectSpec{root}, false))
	list, total, _, err := b.Projects(t.Context(), task.Page{Limit: 1})
	if err != nil || total != 1 {
		t.Fatal(list, total, err)
	}
	return list[0]
}

func addTask(t testing.TB, b board, p task.Project, title string) *task.Summary {
	t.Helper()
	s, err := b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: title}, task.Request{})
	testkit.Must(t, err)
	return s
}

// try makes an attempt at a task; it waits.
func try(t testing.TB, b board, s *task.Summary) *task.Attempt {
	t.Helper()
	a, err := b.CreateAttempt(t.Context(), task.Attempt{TaskID: s.ID, Executor: "SCRIPTED", Branch: "deepwork/x-0000", Workspace: abs("w"),
		Repos: []task.AttemptRepo{{RepoID: "r1", RepoName: "web", RepoPath: abs("web"), TargetBranch: "main", Worktree: abs("w/web")}},
	}, task.Execution{Prompt: "do it"}, task.Request{})
	testkit.Must(t, err)
	return a
}

// run claims and starts the oldest waiting execution.
func run(t testing.TB, b board) (*task.Execution, *task.Session) {
	t.Helper()
	e, err := b.ClaimNext(t.Context(), "server", 1000, nil, task.Limits{})
	if err != nil || e == nil {
		t.Fatal("nothing to claim", err)
	}
	s, err := b.StartExecution(t.Context(), e.ID, "SCRIPTED", time.Time{})
	testkit.Must(t, err)
	return e, s
}

// taskOf reads a task again.
func taskOf(t testing.TB, b board, id string) *task.Summary {
	t.Helper()
	s, err := b.Task(t.Context(), id)
	testkit.Must(t, err)
	return s
}

// A spy is a database whose statements are seen before they run.
type spy struct {
	dialect
	see func(query string, args []any)
}

func (s spy) Transact(ctx context.Context, mode sqlstore.Mode, f func(context.Context, sqlstore.Querier) error) error {
	return s.dialect.Transact(ctx, mode, func(ctx context.Context, q sqlstore.Querier) error { return f(ctx, seen{q, s.see}) })
}

type seen struct {
	sqlstore.Querier
	see func(query string, args []any)
}

func (s seen) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	s.see(query, args)
	return s.Querier.ExecContext(ctx, query, args...)
}

func (s seen) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s.see(query, args)
	return s.Querier.QueryContext(ctx, query, args...)
}

func (s seen) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	s.see(query, args)
	return s.Querier.QueryRowContext(ctx, query, args...)
}

// spied returns the board of a database whose statements are seen.
func spied(b board, see func(query string, args []any)) board {
	return board{b.DB, sqlstore.New(spy{dialect{b.DB}, see}, sqlstore.Options{Now: noon, Feed: feed(b.DB)}).Board()}
}

// verify checks that the board is consistent.
func verify(t testing.TB, b board) {
	t.Helper()
	if b.closing.Err() != nil {
		return
	}
	found, _, err := b.Inspect(context.Background())
	if err != nil || len(found) > 0 {
		t.Errorf("the board's inspection: %v, %v", found, err)
	}
}
