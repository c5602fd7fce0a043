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

func openAt(t testing.TB, path string, now func() time.Time) board {
	t.Helper()
	b := testkit.Get(openBoard(t.Context(), Options{Path: path, Now: now})).Must(t)
	t.Cleanup(func() {
		if b.closing.Err() == nil {
			found, _, err := b.Inspect(context.Background())
			testkit.True(t, err == nil && len(found) == 0, "the board's inspection: %v, %v", found, err)
		}
		testkit.Works(t, b.Close())
	})
	return b
}

func newBoard(t testing.TB) (board, task.Project) {
	t.Helper()
	b := openAt(t, filepath.Join(t.TempDir(), "board.db"), noon)
	return b, rootOf(t, b)
}

var root = task.ProjectSpec{Name: "shop", Root: true, Repos: []task.RepoSpec{{Name: "shop", Path: abs("shop")}}}

func abs(name string) string { return filepath.Join(os.TempDir(), name) }

func rootOf(t testing.TB, b board) task.Project {
	t.Helper()
	testkit.Must(t, b.SyncProjects(t.Context(), []task.ProjectSpec{root}, false))
	list, total, _, err := b.Projects(t.Context(), task.Page{Limit: 1})
	testkit.Need(t, err == nil && total == 1, "%v %v %v", list, total, err)
	return list[0]
}

func addTask(t testing.TB, b board, p task.Project, title string) *task.Summary {
	t.Helper()
	return testkit.Get(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: title}, task.Request{})).Must(t)
}

func try(t testing.TB, b board, s *task.Summary) *task.Attempt {
	t.Helper()
	return testkit.Get(b.CreateAttempt(t.Context(), task.Attempt{TaskID: s.ID, Executor: "X", Branch: "b", Workspace: "/w"}, task.Execution{Prompt: "do it"}, task.Request{})).Must(t)
}

func taskOf(t testing.TB, b board, id string) *task.Summary {
	t.Helper()
	return testkit.Get(b.Task(t.Context(), id)).Must(t)
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

func spied(b board, see func(query string, args []any)) board {
	return board{b.DB, sqlstore.New(spy{dialect{b.DB}, see}, sqlstore.Options{Now: noon, Feed: feed(b.DB)}).Board()}
}

// says checks that a call has failed with an error that contains a text.
func says(t testing.TB, err, want error, text string) {
	t.Helper()
	testkit.FailsWith(t, err, want)
	testkit.Fails(t, err, text)
}

// The environment of another process of a test.
const roleVariable, pathVariable = "SQLITE_ROLE", "SQLITE_PATH"

const callers = 4

// another starts another process on a database, and waits until it has begun.
func another(t testing.TB, role, path string) *testkit.Child {
	t.Helper()
	c := testkit.Start(t, roleVariable+"="+role, pathVariable+"="+path)
	testkit.Need(t, c.Line() == "begun", "%s: %s", role, &c.Err)
	return c
}

// play is the main function of another process. It prints what a test has to know, one line each.
func play(role string) int {
	b, err := openBoard(context.Background(), Options{Path: os.Getenv(pathVariable)})
	if err == nil {
		fmt.Println("begun")
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
		if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
			return err
		}
		stop, end := context.WithTimeout(context.Background(), 2*time.Second)
		defer end()
		fmt.Println(load(stop, b))
		return nil
	},
	// hold changes tasks, prints "inside" within the transaction, and commits when it gets a line.
	"hold": func(b board) error {
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
		rename := func(to string) func(q sqlstore.Querier) error {
			return func(q sqlstore.Querier) error {
				return second(q.ExecContext(context.Background(), `UPDATE tasks SET title = ?`, to))
			}
		}
		together(b, rename("first"), rename("second"), func(sqlstore.Querier) error {
			p, err := os.FindProcess(os.Getpid())
			if err == nil && p.Kill() == nil {
				testkit.Forever()
			}
			return err
		})
		return nil
	},
}

func load(ctx context.Context, b board) int {
	list, _, _, err := b.Projects(context.Background(), task.Page{Limit: 1})
	if err != nil || len(list) == 0 {
		panic(fmt.Sprint("there is no project: ", err))
	}
	var n atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for ; ctx.Err() == nil; n.Add(1) {
				if _, err := b.CreateTask(context.Background(), task.NewTask{ProjectID: list[0].ID, Title: "loaded"}, task.Request{}); err != nil {
					panic(err)
				}
			}
		})
	}
	all.Wait()
	return int(n.Load())
}

// occupy holds the transaction of a process until the function that it returns is called.
func occupy(b board) (goOn func()) {
	inside, end, done := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		done <- b.Transact(context.Background(), sqlstore.Writing, func(context.Context, sqlstore.Querier) error {
			close(inside)
			<-end
			return nil
		})
	}()
	<-inside
	return func() {
		close(end)
		if err := <-done; err != nil {
			panic(err)
		}
	}
}

// together makes changes in one transaction, in this order, and returns their errors; a panic is one.
func together(b board, changes ...func(sqlstore.Querier) error) []error {
	goOn := occupy(b)
	var all sync.WaitGroup
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
	goOn()
	all.Wait()
	return errs
}

func (b board) queued() int {
	b.writer.mu.Lock()
	defer b.writer.mu.Unlock()
	return len(b.writer.waiting)
}
