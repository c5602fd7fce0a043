package sqlite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"deepwork/catalog/task"
)

// TestMain makes the test binary another server too: with a role in its
// environment it works on a board that is not its own.
func TestMain(m *testing.M) {
	if role := os.Getenv("BOARD_ROLE"); role != "" {
		os.Exit(child(role))
	}
	// A program built with -race sleeps for a second at its end, each child too.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	goleak.VerifyTestMain(m)
}

// A clock stands still until it is moved.
type clock struct{ at time.Time }

func newClock() *clock {
	return &clock{time.Date(2026, 3, 1, 12, 0, 0, 123_456_789, time.FixedZone("east", 3600))}
}

func (c *clock) now() time.Time { return c.at }

func (c *clock) forward(d time.Duration) { c.at = c.at.Add(d) }

func openBoard(ctx context.Context, o Options) (board, error) {
	d, err := Open(ctx, o)
	return board{d}, err
}

// openAt opens a board that is checked and closed at the end of the test.
func openAt(t testing.TB, path string, now func() time.Time) board {
	t.Helper()
	b, err := openBoard(t.Context(), Options{Path: path, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		verify(t, b)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// newBoard is a board of one project, whose clock is the caller's.
func newBoard(t testing.TB) (board, *clock, task.Project) {
	t.Helper()
	c := newClock()
	b := openAt(t, filepath.Join(t.TempDir(), "board.db"), c.now)
	return b, c, rootOf(t, b)
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
	if err := b.SyncProjects(t.Context(), []task.ProjectSpec{root}); err != nil {
		t.Fatal(err)
	}
	list, total, _, err := b.Projects(t.Context(), task.Page{Limit: 1})
	if err != nil || total != 1 {
		t.Fatal(list, total, err)
	}
	return list[0]
}

func addTask(t testing.TB, b board, p task.Project, title string) *task.Summary {
	t.Helper()
	s, err := b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: title}, task.Request{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// try makes an attempt at a task; it waits.
func try(t testing.TB, b board, s *task.Summary) *task.Attempt {
	t.Helper()
	a, err := b.CreateAttempt(t.Context(), task.Attempt{TaskID: s.ID, Executor: "SCRIPTED", Branch: "deepwork/x-0000", Workspace: abs("w"),
		Repos: []task.AttemptRepo{{RepoID: "r1", RepoName: "web", RepoPath: abs("web"), TargetBranch: "main", Worktree: abs("w/web")}},
	}, task.Execution{Prompt: "do it"}, task.Request{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// run claims and starts the oldest waiting execution.
func run(t testing.TB, b board) (*task.Execution, *task.Session) {
	t.Helper()
	e, err := b.ClaimNext(t.Context(), "server", 1000)
	if err != nil || e == nil {
		t.Fatal("nothing to claim", err)
	}
	s, err := b.StartExecution(t.Context(), e.ID, "SCRIPTED", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return e, s
}

// end ends an execution and returns the next one.
func end(t testing.TB, b board, e *task.Execution, how task.Ending) *task.Execution {
	t.Helper()
	next, ended, err := b.EndExecution(t.Context(), e.ID, how)
	if err != nil || !ended {
		t.Fatal("it does not end", err)
	}
	return next
}

// taskOf reads a task anew.
func taskOf(t testing.TB, b board, id string) *task.Summary {
	t.Helper()
	s, err := b.Task(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// inspect reads the database itself.
func inspect(ctx context.Context, b board, f func(x tx) error) error {
	_, err := read(ctx, b.DB, "looking", func(x tx) (struct{}, error) { return struct{}{}, f(x) })
	return err
}

// broken are queries that find a row where the board contradicts itself.
var broken = map[string]string{
	"integrity":    `SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'`,
	"foreign keys": `SELECT "table" FROM pragma_foreign_key_check`,
	"task counts": `SELECT project_id || status FROM (
		SELECT project_id, status, tasks FROM task_counts WHERE tasks <> 0
		EXCEPT SELECT project_id, status, count(*) FROM tasks GROUP BY 1, 2)`,
	"tasks not counted": `SELECT project_id || status FROM (
		SELECT project_id, status, count(*) FROM tasks GROUP BY 1, 2
		EXCEPT SELECT project_id, status, tasks FROM task_counts)`,
	"an attempt is not where its newest execution is": `SELECT a.id FROM attempts a WHERE a.state IS NOT
		(SELECT state FROM executions WHERE attempt_id = a.id ORDER BY seq DESC LIMIT 1)`,
	"an execution runs, and nobody owns it":   `SELECT id FROM executions WHERE state IN ('starting', 'running') AND owner IS NULL`,
	"an execution ended without a time":       `SELECT id FROM executions WHERE (ended_at IS NULL) = (state IN ('completed', 'failed', 'stopped', 'interrupted'))`,
	"an execution ended before it began":      `SELECT id FROM executions WHERE ended_at < coalesce(started_at, created_at) OR started_at < created_at`,
	"a running execution without a session":   `SELECT id FROM executions WHERE state = 'running' AND session_id IS NULL`,
	"a follow-up is queued, and nothing runs": `SELECT id FROM sessions s WHERE queued_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM executions WHERE attempt_id = s.attempt_id AND ended_at IS NULL)`,
}

// verify checks that the board is consistent.
func verify(t testing.TB, b board) {
	t.Helper()
	if b.closing.Err() != nil {
		return
	}
	err := inspect(context.Background(), b, func(x tx) error {
		for what, query := range broken {
			found, err := x.ids(query)
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			if len(found) > 0 {
				t.Errorf("%s: %v", what, found)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	found, _, err := b.Inspect(context.Background())
	if err != nil || len(found) > 0 {
		t.Errorf("the board's inspection: %v, %v", found, err)
	}
}
