package sqlite

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
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
	b := testkit.Get(openBoard(t.Context(), Options{Path: path, Now: now})).Must(t)
	t.Cleanup(func() {
		verify(t, b)
		testkit.Works(t, b.Close())
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
	testkit.Need(t, err == nil && total == 1, "%v %v %v", list, total, err)
	return list[0]
}

func addTask(t testing.TB, b board, p task.Project, title string) *task.Summary {
	t.Helper()
	s := testkit.Get(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: title}, task.Request{})).Must(t)
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
	testkit.Need(t, err == nil && e != nil, "nothing to claim %v", err)
	s := testkit.Get(b.StartExecution(t.Context(), e.ID, "SCRIPTED", time.Time{})).Must(t)
	return e, s
}

// taskOf reads a task again.
func taskOf(t testing.TB, b board, id string) *task.Summary {
	t.Helper()
	s := testkit.Get(b.Task(t.Context(), id)).Must(t)
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
	testkit.True(t, err == nil && len(found) == 0, "the board's inspection: %v, %v", found, err)
}

// The environment of another process of a test.
const roleVariable, pathVariable = "SQLITE_ROLE", "SQLITE_PATH"

// callers is how many goroutines of a process call at the same time.
const callers = 4

// another starts another process on a database, and waits until it has begun.
func another(t testing.TB, role, path string) *testkit.Child {
	t.Helper()
	c := testkit.Start(t, roleVariable+"="+role, pathVariable+"="+path)
	line := c.Line()
	testkit.Need(t, line == "begun", "%s says %q; %s", role, line, c.Err.String())
	return c
}

// play is the main function of another process. It prints what a test has to know, one line each.
func play(role string) int {
	b, err := openBoard(context.Background(), Options{Path: os.Getenv(pathVariable)})
	if err == nil {
		err = roles[role](b)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		return 1
	}
	return 0
}

var roles = map[string]func(board) error{
	// some makes tasks for two seconds once it gets a line, and prints the number.
	"some": func(b board) error {
		fmt.Println("begun")
		if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
			return err
		}
		stop, end := context.WithTimeout(context.Background(), 2*time.Second)
		defer end()
		fmt.Println(load(stop, b, func(string) {}))
		return nil
	},
	// say makes tasks until it is killed, and prints their ids.
	"say": func(b board) error {
		fmt.Println("begun")
		load(context.Background(), b, func(id string) { fmt.Println(id) })
		return nil
	},
	// hold changes tasks, prints "inside" within the transaction, and commits when it gets a line.
	"hold": func(b board) error {
		fmt.Println("begun")
		err := b.Transact(context.Background(), sqlstore.Writing, func(ctx context.Context, q sqlstore.Querier) error {
			if _, err := q.ExecContext(ctx, `UPDATE tasks SET title = 'held'`); err != nil {
				return err
			}
			fmt.Println("inside")
			_, err := bufio.NewReader(os.Stdin).ReadString('\n')
			return err
		})
		if err == nil {
			fmt.Println("committed")
		}
		return err
	},
	// die kills itself in the third member of a group.
	"die": func(b board) error {
		fmt.Println("begun")
		rename := func(q sqlstore.Querier, to string) error {
			_, err := q.ExecContext(context.Background(), `UPDATE tasks SET title = ?`, to)
			return err
		}
		together(b,
			func(q sqlstore.Querier) error { return rename(q, "first") },
			func(q sqlstore.Querier) error { return rename(q, "second") },
			func(q sqlstore.Querier) error {
				p, err := os.FindProcess(os.Getpid())
				if err == nil {
					err = p.Kill()
				}
				if err == nil {
					testkit.Forever()
				}
				return err
			})
		return nil
	},
}

// load makes tasks from several goroutines until ctx ends, and returns how many. It passes the id of
// each to made, once that is durable.
func load(ctx context.Context, b board, made func(id string)) int {
	list, _, _, err := b.Projects(context.Background(), task.Page{Limit: 1})
	if err != nil || len(list) == 0 {
		panic(fmt.Sprint("there is no project: ", err))
	}
	var n atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				s, err := b.CreateTask(context.Background(), task.NewTask{ProjectID: list[0].ID, Title: "loaded"}, task.Request{})
				if err != nil {
					panic(err)
				}
				made(s.ID)
				n.Add(1)
			}
		})
	}
	all.Wait()
	return int(n.Load())
}

// together makes changes in one transaction, in this order, and returns their errors; a panic is one.
func together(b board, changes ...func(sqlstore.Querier) error) []error {
	inside, goOn := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		err := b.Transact(context.Background(), sqlstore.Writing, func(context.Context, sqlstore.Querier) error {
			close(inside)
			<-goOn
			return nil
		})
		if err != nil {
			panic(err)
		}
	})
	<-inside
	errs := make([]error, len(changes))
	for i, change := range changes {
		all.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					errs[i] = fmt.Errorf("panic: %v", p)
				}
			}()
			errs[i] = b.Transact(context.Background(), sqlstore.Writing, func(_ context.Context, q sqlstore.Querier) error { return change(q) })
		})
		for b.queued() <= i {
			time.Sleep(time.Millisecond)
		}
	}
	close(goOn)
	all.Wait()
	return errs
}

// queued returns how many members wait.
func (b board) queued() int {
	b.writer.mu.Lock()
	defer b.writer.mu.Unlock()
	return len(b.writer.waiting)
}
