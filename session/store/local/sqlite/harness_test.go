package sqlite

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"modernc.org/sqlite"

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
	return testkit.Get(b.CreateAttempt(t.Context(), task.Attempt{
		TaskID:    s.ID,
		Executor:  "X",
		Branch:    "b",
		Workspace: "/w",
	}, task.Execution{Prompt: "do it"}, task.Request{})).Must(t)
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
	return s.dialect.Transact(ctx, mode, func(ctx context.Context, q sqlstore.Querier) error {
		return f(ctx, seen{q, s.see})
	})
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

var roles = map[string]func(board) error{"some": playSome, "hold": playHold, "die": playDie}

// playSome makes tasks for two seconds once it gets a line, and prints the number.
func playSome(b board) error {
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	stop, end := context.WithTimeout(context.Background(), 2*time.Second)
	defer end()
	fmt.Println(load(stop, b))
	return nil
}

// playHold changes tasks, prints "inside" within the transaction, and commits when it gets a line.
func playHold(b board) error {
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
}

// playDie kills itself in the third member of a group.
func playDie(b board) error {
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
				_, err := b.CreateTask(context.Background(), task.NewTask{ProjectID: list[0].ID, Title: "loaded"},
					task.Request{})
				if err != nil {
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
	inside := make(chan struct{})
	end := make(chan struct{})
	done := make(chan error)
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
			errs[i] = b.Transact(context.Background(), sqlstore.Writing,
				func(_ context.Context, q sqlstore.Querier) error { return change(q) })
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

func retitle(id, title string) func(sqlstore.Querier) error {
	return func(q sqlstore.Querier) error {
		return second(q.ExecContext(context.Background(), `UPDATE tasks SET title = ? WHERE id = ?`, title, id))
	}
}

func titled(t *testing.T, b board, tasks []*task.Summary, want ...string) {
	t.Helper()
	for i, s := range tasks {
		testkit.Equal(t, taskOf(t, b, s.ID).Title, want[i], "title %d", i)
	}
}

// outcomes checks the error of each member of a group: it contains the text, or is nil where the text is "".
func outcomes(t *testing.T, errs []error, want ...string) {
	t.Helper()
	for i, err := range errs {
		testkit.True(t, (err == nil) == (want[i] == "") && strings.Contains(fmt.Sprint(err), want[i]),
			"member %d: %v, want %q", i, err, want[i])
	}
}

// pages limits the size of a database; 1 is taken for the present size.
func pages(t *testing.T, b board, most int) {
	t.Helper()
	testkit.Must(t, b.writer.conn.QueryRowContext(t.Context(),
		fmt.Sprintf("PRAGMA max_page_count = %d", most)).Scan(new(int)))
}

func someTasks(t *testing.T, b board, p task.Project, n int) (all []*task.Summary) {
	t.Helper()
	for i := range n {
		all = append(all, addTask(t, b, p, fmt.Sprint("task ", i)))
	}
	return all
}

// commits has hook called before each commit, which it rolls back if hook returns an error.
func commits(t *testing.T, b board, hook func() error) {
	t.Helper()
	c := b.writer.compiled.driverConn.(interface {
		RegisterCommitHook(sqlite.CommitHookFn)
	})
	c.RegisterCommitHook(func() int32 { return map[bool]int32{true: 1}[hook() != nil] })
	t.Cleanup(func() { c.RegisterCommitHook(nil) })
}

func TestChangesThatWaitShareOneCommit(t *testing.T) {
	b, p := newBoard(t)
	tasks := someTasks(t, b, p, 16)
	n, fails := 0, 0
	commits(t, b, func() error {
		n++
		if n == fails {
			return errors.New("no")
		}
		return nil
	})

	change := func(to string) (errs []error, titles []string) {
		var changes []func(sqlstore.Querier) error
		for i, s := range tasks {
			titles = append(titles, fmt.Sprint(to, i))
			changes = append(changes, retitle(s.ID, titles[i]))
		}
		return together(b, changes...), titles
	}
	errs, want := change("title ")
	testkit.Works(t, errors.Join(errs...))
	testkit.Equal(t, n, 2, "commits") // the other one is that of the change that they waited for
	titled(t, b, tasks, want...)
	n, fails = 0, 2 // it fails all members
	errs, _ = change("lost ")
	testkit.True(t, !slices.Contains(errs, nil), "errors %v", errs)

	titled(t, b, tasks, want...)
	addTask(t, b, p, "afterwards")
}

func TestAMemberThatFailsOrPanicsIsUndoneAlone(t *testing.T) {
	b, p := newBoard(t)
	tasks := someTasks(t, b, p, 4)
	outcomes(t, together(b,
		retitle(tasks[0].ID, "first"),
		func(q sqlstore.Querier) error {
			return errors.Join(retitle(tasks[0].ID, "wrong")(q), retitle(tasks[1].ID, "wrong")(q),
				errors.New("refused"))
		},
		func(q sqlstore.Querier) error {
			_ = retitle(tasks[3].ID, "wrong")(q)
			panic("a bug")
		},
		func(q sqlstore.Querier) error { // sees what members before it have changed
			var title string
			err := q.QueryRowContext(context.Background(), `SELECT title FROM tasks WHERE id = ?`,
				tasks[0].ID).Scan(&title)
			return errors.Join(err, retitle(tasks[2].ID, "after "+title)(q))
		}), "", "refused", "panic: a bug", "")
	titled(t, b, tasks, "first", "task 1", "after first", "task 3")
}

// Some errors end the transaction. The member that overlooks one must not go on outside of it.
func TestAnErrorThatEndsTheTransactionIsSharedByThoseBefore(t *testing.T) {
	for _, overlooked := range []bool{false, true} {
		t.Run(fmt.Sprint("overlooked ", overlooked), func(t *testing.T) {
			b, p := newBoard(t)
			tasks := someTasks(t, b, p, 3)
			n := 0
			commits(t, b, func() error {
				n++
				return nil
			})
			errs := together(b,
				retitle(tasks[0].ID, "first"),
				func(q sqlstore.Querier) error {
					_, err := q.ExecContext(t.Context(), `INSERT OR ROLLBACK INTO projects SELECT * FROM projects`)
					testkit.True(t, code(err) != 0, "a duplicate: %v", err)
					testkit.FailsWith(t, retitle(tasks[1].ID, "wrong")(q), errLost, "after the end of the transaction")
					if overlooked {
						return nil
					}
					return err
				},
				retitle(tasks[2].ID, "third"))
			testkit.True(t, errs[1] != nil, "the member that ended it succeeds")
			outcomes(t, slices.Delete(errs, 1, 2), "nothing was changed", "")
			titled(t, b, tasks, "task 0", "task 1", "third")
			testkit.Equal(t, n, 2, "commits")
		})
	}
}

// A full disk is said, nothing half made stays, and those who are told of success have it.
func TestAFullDiskFailsNoMemberThatWasAnsweredWell(t *testing.T) {
	b, p := newBoard(t)
	tasks := someTasks(t, b, p, 3)
	pages(t, b, 1)
	attempt := func() error {
		return second(b.CreateAttempt(t.Context(), task.Attempt{
			TaskID:    tasks[0].ID,
			Executor:  "X",
			Branch:    "b",
			Workspace: "/w",
		}, task.Execution{Prompt: strings.Repeat("x", 1<<20)}, task.Request{}))
	}
	err := attempt()
	testkit.FailsWith(t, err, task.ErrFull)
	testkit.True(t, code(err) != 0 && strings.Contains(err.Error(), "free space on the disk that holds "+b.o.Path),
		"%v", err)
	testkit.Same(t, taskOf(t, b, tasks[0].ID), tasks[0])

	errs := together(b, retitle(tasks[0].ID, "a"), retitle(tasks[1].ID, strings.Repeat("x", 1<<20)),
		retitle(tasks[2].ID, "c"))
	pages(t, b, 1<<20)
	testkit.FailsWith(t, errs[1], task.ErrFull, "errors %v", errs)
	testkit.Need(t, errs[2] == nil, "errors %v", errs)
	testkit.True(t, (errs[0] == nil || errors.Is(errs[0], task.ErrFull)), "errors %v", errs)
	titled(t, b, tasks, map[bool]string{true: "a", false: "task 0"}[errs[0] == nil], "task 1", "c")
	testkit.Works(t, attempt())
}

func TestAGroupIsSyncedForTheMemberThatNeedsIt(t *testing.T) {
	b, _ := newBoard(t)
	look := func(want int) func(q sqlstore.Querier) error {
		return func(q sqlstore.Querier) error {
			var synced int
			err := q.QueryRowContext(context.Background(), "PRAGMA synchronous").Scan(&synced)
			testkit.Equal(t, synced, want, "synchronous")
			return err
		}
	}
	testkit.Must(t, b.Transact(t.Context(), sqlstore.Unsynced, func(_ context.Context, q sqlstore.Querier) error {
		return look(1)(q)
	}))
	testkit.FailsWith(t, b.Transact(t.Context(), sqlstore.Reading, func(context.Context, sqlstore.Querier) error {
		return task.ErrFull
	}), task.ErrFull)
	testkit.Works(t, errors.Join(together(b, func(sqlstore.Querier) error { return nil }, look(2))...))
	testkit.Must(t, b.Transact(t.Context(), sqlstore.Unsynced, func(_ context.Context, q sqlstore.Querier) error {
		return look(1)(q)
	}))
}

func TestAStatementRunsWhileItsRowsAreRead(t *testing.T) {
	b, p := newBoard(t)
	someTasks(t, b, p, 3)
	const query = `SELECT title FROM tasks ORDER BY title`
	for range 2 { // compiled, and then again
		testkit.Works(t, b.Transact(t.Context(), sqlstore.Writing, func(ctx context.Context, q sqlstore.Querier) error {
			rows := testkit.Get(q.QueryContext(ctx, query)).Must(t)
			defer rows.Close()
			for i := 0; rows.Next(); i++ {
				var outer, inner string
				testkit.Must(t, errors.Join(rows.Scan(&outer), q.QueryRowContext(ctx, query).Scan(&inner)))
				testkit.Equal(t, outer+", "+inner, fmt.Sprintf("task %d, task 0", i), "rows")
			}
			return rows.Err()
		}))
	}
}

// A call that waits behind another of this process gives up with its context, or in time, and is not carried out later.
func TestACallGivesUpItsPlace(t *testing.T) {
	b, p := newBoard(t)
	tasks := someTasks(t, b, p, 2)
	goOn := occupy(b)
	change := func(ctx context.Context, i int) error {
		return b.Transact(ctx, sqlstore.Writing, func(_ context.Context, q sqlstore.Querier) error {
			return retitle(tasks[i].ID, "late")(q)
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	testkit.FailsWith(t, change(ctx, 0), context.DeadlineExceeded, "a call whose context ends")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.FailsWith(t, change(ended, 0), context.Canceled)
	testkit.FailsWith(t, second(b.AllAttempts(ended)), context.Canceled)

	b.patience = 20 * time.Millisecond
	says(t, change(t.Context(), 1), store.ErrBusy, b.Where())
	goOn()
	titled(t, b, tasks, "task 0", "task 1")
}

// Of two processes that write without a pause, each gets at least a fifth.
func TestNoProcessStarves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	rootOf(t, openAt(t, path, time.Now))
	both := []*testkit.Child{another(t, "some", path), another(t, "some", path)}
	for _, c := range both {
		testkit.Get(io.WriteString(c.In, "go\n")).Must(t)
	}
	one, two := testkit.Get(strconv.Atoi(both[0].Line())).Must(t), testkit.Get(strconv.Atoi(both[1].Line())).Must(t)
	testkit.True(t, 5*min(one, two) >= one+two, "tasks made by each process: %d, %d", one, two)
}

func TestAKillInMidGroupLeavesNothingOfIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	b := openAt(t, path, time.Now)
	s := addTask(t, b, rootOf(t, b), "before")
	testkit.Need(t, another(t, "die", path).Wait() != nil, "the child has ended well")
	testkit.Equal(t, taskOf(t, b, s.ID).Title, "before", "title")

	p := rootOf(t, b)
	addTask(t, b, p, "afterwards")

	// A process that is stopped while it has the turn, but is in no transaction, is passed over.
	end := testkit.Get(b.writer.turn(new(time.Time))).Must(t) // its goroutine waits
	defer end()
	other := openAt(t, path, time.Now)
	other.patience = 400 * time.Millisecond
	addTask(t, other, p, "passes it over")
}
