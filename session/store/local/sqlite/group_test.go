package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"modernc.org/sqlite"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/store"
	"deepwork/session/store/sqlstore"
)

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
		testkit.True(t, (err == nil) == (want[i] == "") && strings.Contains(fmt.Sprint(err), want[i]), "member %d: %v, want %q", i, err, want[i])
	}
}

// pages limits the size of a database; 1 is taken for the present size.
func pages(t *testing.T, b board, most int) {
	t.Helper()
	testkit.Must(t, b.writer.conn.QueryRowContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", most)).Scan(new(int)))
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
		if n++; n == fails {
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
			return errors.Join(retitle(tasks[0].ID, "wrong")(q), retitle(tasks[1].ID, "wrong")(q), errors.New("refused"))
		},
		func(q sqlstore.Querier) error { _ = retitle(tasks[3].ID, "wrong")(q); panic("a bug") },
		func(q sqlstore.Querier) error { // sees what members before it have changed
			var title string
			err := q.QueryRowContext(context.Background(), `SELECT title FROM tasks WHERE id = ?`, tasks[0].ID).Scan(&title)
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
			commits(t, b, func() error { n++; return nil })
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
		return second(b.CreateAttempt(t.Context(), task.Attempt{TaskID: tasks[0].ID, Executor: "X", Branch: "b", Workspace: "/w"}, task.Execution{Prompt: strings.Repeat("x", 1<<20)}, task.Request{}))
	}
	err := attempt()
	testkit.FailsWith(t, err, task.ErrFull)
	testkit.True(t, code(err) != 0 && strings.Contains(err.Error(), "free space on the disk that holds "+b.o.Path), "%v", err)
	testkit.Same(t, taskOf(t, b, tasks[0].ID), tasks[0])
	errs := together(b, retitle(tasks[0].ID, "a"), retitle(tasks[1].ID, strings.Repeat("x", 1<<20)), retitle(tasks[2].ID, "c"))
	pages(t, b, 1<<20)
	testkit.True(t, errors.Is(errs[1], task.ErrFull) && errs[2] == nil && (errs[0] == nil || errors.Is(errs[0], task.ErrFull)), "errors %v", errs)
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
	testkit.Must(t, b.Transact(t.Context(), sqlstore.Unsynced, func(_ context.Context, q sqlstore.Querier) error { return look(1)(q) }))
	testkit.FailsWith(t, b.Transact(t.Context(), sqlstore.Reading, func(context.Context, sqlstore.Querier) error { return task.ErrFull }), task.ErrFull)
	testkit.Works(t, errors.Join(together(b, func(sqlstore.Querier) error { return nil }, look(2))...))
	testkit.Must(t, b.Transact(t.Context(), sqlstore.Unsynced, func(_ context.Context, q sqlstore.Querier) error { return look(1)(q) }))
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
		return b.Transact(ctx, sqlstore.Writing, func(_ context.Context, q sqlstore.Querier) error { return retitle(tasks[i].ID, "late")(q) })
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
