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

// retitle is a change of the title of a task.
func retitle(id, title string) func(sqlstore.Querier) error {
	return func(q sqlstore.Querier) error {
		_, err := q.ExecContext(context.Background(), `UPDATE tasks SET title = ? WHERE id = ?`, title, id)
		return err
	}
}

// titles returns the titles of tasks.
func titles(t *testing.T, b board, tasks []*task.Summary) (all []string) {
	t.Helper()
	for _, s := range tasks {
		all = append(all, taskOf(t, b, s.ID).Title)
	}
	return all
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
	c.RegisterCommitHook(func() int32 {
		if hook() != nil {
			return 1
		}
		return 0
	})
	t.Cleanup(func() { c.RegisterCommitHook(nil) })
}

func TestChangesThatWaitShareOneCommit(t *testing.T) {
	b, p := newBoard(t)
	tasks := someTasks(t, b, p, 16)
	n := 0
	commits(t, b, func() error { n++; return nil })
	var changes []func(sqlstore.Querier) error
	var want []string
	for i, s := range tasks {
		want = append(want, fmt.Sprint("title ", i))
		changes = append(changes, retitle(s.ID, want[i]))
	}
	testkit.Works(t, errors.Join(together(b, changes...)...))
	if n != 2 { // the other one is that of the change that they waited for
		t.Errorf("%d commits, want 2", n)
	}
	testkit.Same(t, titles(t, b, tasks), want, "titles")
}

func TestAMemberThatFailsIsUndoneAlone(t *testing.T) {
	b, p := newBoard(t)
	tasks := someTasks(t, b, p, 3)
	refused := errors.New("refused")
	errs := together(b,
		retitle(tasks[0].ID, "first"),
		func(q sqlstore.Querier) error {
			return errors.Join(retitle(tasks[0].ID, "wrong")(q), retitle(tasks[1].ID, "wrong")(q), refused)
		},
		func(q sqlstore.Querier) error { // sees what members before it have changed
			var title string
			err := q.QueryRowContext(context.Background(), `SELECT title FROM tasks WHERE id = ?`, tasks[0].ID).Scan(&title)
			return errors.Join(err, retitle(tasks[2].ID, "after "+title)(q))
		})
	testkit.True(t, errs[0] == nil && errors.Is(errs[1], refused) && errs[2] == nil, "errors %v", errs)
	if got, want := titles(t, b, tasks), []string{"first", "task 1", "after first"}; !slices.Equal(got, want) {
		t.Errorf("titles %q, want %q", got, want)
	}
}

func TestAMemberThatPanicsIsUndoneAlone(t *testing.T) {
	b, p := newBoard(t)
	tasks := someTasks(t, b, p, 2)
	errs := together(b,
		func(q sqlstore.Querier) error { _ = retitle(tasks[0].ID, "wrong")(q); panic("a bug") },
		retitle(tasks[1].ID, "second"))
	testkit.True(t, errs[0] != nil && strings.Contains(errs[0].Error(), "panic: a bug") && errs[1] == nil, "errors %v", errs)
	if got, want := titles(t, b, tasks), []string{"task 0", "second"}; !slices.Equal(got, want) {
		t.Errorf("titles %q, want %q", got, want)
	}
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
			testkit.True(t, errs[0] != nil && strings.Contains(errs[0].Error(), "nothing was changed") && errs[1] != nil && errs[2] == nil, "errors %v", errs)
			if got, want := titles(t, b, tasks), []string{"task 0", "task 1", "third"}; !slices.Equal(got, want) {
				t.Errorf("titles %q, want %q", got, want)
			}
			testkit.Equal(t, n, 2, "commits")
		})
	}
}

// A full disk ends the transaction only if the statement cannot be undone alone. Either way, those who
// are told of success have it.
func TestAFullDiskFailsNoMemberThatWasAnsweredWell(t *testing.T) {
	b, p := newBoard(t)
	tasks := someTasks(t, b, p, 3)
	limit := func(pages int) {
		testkit.Must(t, b.writer.conn.QueryRowContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages)).Scan(new(int)))
	}
	limit(1) // taken for the present size
	errs := together(b, retitle(tasks[0].ID, "a"), retitle(tasks[1].ID, strings.Repeat("x", 1<<20)), retitle(tasks[2].ID, "c"))
	limit(1 << 20)
	testkit.True(t, errors.Is(errs[1], task.ErrFull) && errs[2] == nil && (errs[0] == nil || errors.Is(errs[0], task.ErrFull)), "errors %v", errs)
	want := []string{"a", "task 1", "c"}
	if errs[0] != nil {
		want[0] = "task 0"
	}
	testkit.Same(t, titles(t, b, tasks), want, "titles")
}

func TestACommitThatFailsFailsAllMembers(t *testing.T) {
	b, p := newBoard(t)
	tasks := someTasks(t, b, p, 2)
	n := 0
	commits(t, b, func() error {
		if n++; n == 2 {
			return errors.New("no")
		}
		return nil
	})
	errs := together(b, retitle(tasks[0].ID, "first"), retitle(tasks[1].ID, "second"))
	testkit.True(t, errs[0] != nil && errs[1] != nil, "errors %v", errs)
	if got, want := titles(t, b, tasks), []string{"task 0", "task 1"}; !slices.Equal(got, want) {
		t.Errorf("titles %q, want %q", got, want)
	}
	addTask(t, b, p, "afterwards")
}

// A group is synced if one of its members has to be.
func TestAGroupIsSyncedForTheMemberThatNeedsIt(t *testing.T) {
	b, _ := newBoard(t)
	var synced int
	look := func(q sqlstore.Querier) error {
		return q.QueryRowContext(context.Background(), "PRAGMA synchronous").Scan(&synced)
	}
	unsynced := func() {
		t.Helper()
		testkit.Must(t, b.Transact(t.Context(), sqlstore.Unsynced, func(_ context.Context, q sqlstore.Querier) error { return look(q) }))
		testkit.Equal(t, synced, 1, "an unsynced change alone: synchronous")
	}
	unsynced()
	errs := together(b, func(sqlstore.Querier) error { return nil }, look)
	testkit.True(t, synced == 2 && errors.Join(errs...) == nil, "a group: synchronous is %d, want 2; %v", synced, errs)
	unsynced()
}

// Rows of a statement stay what they are while the same statement runs again.
func TestAStatementRunsWhileItsRowsAreRead(t *testing.T) {
	b, p := newBoard(t)
	someTasks(t, b, p, 3)
	const query = `SELECT title FROM tasks ORDER BY title`
	for range 2 { // compiled, and then again
		err := b.Transact(t.Context(), sqlstore.Writing, func(ctx context.Context, q sqlstore.Querier) error {
			rows, err := q.QueryContext(ctx, query)
			if err != nil {
				return err
			}
			defer rows.Close()
			for i := 0; rows.Next(); i++ {
				var outer, inner string
				if err := errors.Join(rows.Scan(&outer), q.QueryRowContext(ctx, query).Scan(&inner)); err != nil {
					return err
				}
				testkit.Equal(t, outer, fmt.Sprint("task ", i), "row")
				testkit.Equal(t, inner, "task 0", "row")
			}
			return rows.Err()
		})
		testkit.Works(t, err)
	}
}

// A call that waits behind another of this process gives up with its context, or when it has waited
// long enough, and is not carried out later.
func TestACallGivesUpItsPlace(t *testing.T) {
	b, p := newBoard(t)
	tasks := someTasks(t, b, p, 2)
	inside, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- b.Transact(context.Background(), sqlstore.Writing, func(context.Context, sqlstore.Querier) error {
			close(inside)
			<-goOn
			return nil
		})
	}()
	<-inside
	change := func(ctx context.Context, i int) error {
		return b.Transact(ctx, sqlstore.Writing, func(_ context.Context, q sqlstore.Querier) error { return retitle(tasks[i].ID, "late")(q) })
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	testkit.FailsWith(t, change(ctx, 0), context.DeadlineExceeded, "a call whose context ends")
	b.patience = 20 * time.Millisecond
	if err := change(t.Context(), 1); !errors.Is(err, store.ErrBusy) || !strings.Contains(err.Error(), b.Where()) {
		t.Errorf("a call that waits too long: %v", err)
	}
	close(goOn)
	testkit.Must(t, <-done)
	if got, want := titles(t, b, tasks), []string{"task 0", "task 1"}; !slices.Equal(got, want) {
		t.Errorf("titles %q, want %q", got, want)
	}
}

// Of two processes that write without a pause, each gets at least a fifth.
func TestNoProcessStarves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	rootOf(t, openAt(t, path, time.Now))
	both := []*testkit.Child{another(t, "some", path), another(t, "some", path)}
	for _, c := range both {
		testkit.Get(io.WriteString(c.In, "go\n")).Must(t)
	}
	var made []int
	sum := 0
	for _, c := range both {
		n, err := strconv.Atoi(c.Line())
		testkit.Need(t, err == nil, "%v %v", err, c.Err.String())
		made, sum = append(made, n), sum+n
	}
	t.Log("tasks made:", made)
	for _, n := range made {
		testkit.True(t, 5*n >= sum, "tasks made by each process: %v", made)
	}
}

// What a killed process has acknowledged is there, and the locks that it held are free.
func TestWhatAKilledProcessAcknowledgedIsThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	b := openAt(t, path, time.Now)
	p := rootOf(t, b)
	for range 3 {
		c := another(t, "say", path)
		var ids []string
		for range 50 {
			ids = append(ids, c.Line())
		}
		testkit.Must(t, c.Process.Kill())
		rest, _ := io.ReadAll(c.Out)
		for line := range strings.Lines(string(rest)) {
			if strings.HasSuffix(line, "\n") {
				ids = append(ids, strings.TrimSpace(line))
			}
		}
		for _, id := range ids {
			taskOf(t, b, id)
		}
		addTask(t, b, p, "afterwards")
	}
}

// A group is made whole or not at all.
func TestAKillInMidGroupLeavesNothingOfIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	b := openAt(t, path, time.Now)
	s := addTask(t, b, rootOf(t, b), "before")
	c := another(t, "die", path)
	testkit.Need(t, c.Wait() != nil, "the child has ended well")
	testkit.Equal(t, taskOf(t, b, s.ID).Title, "before", "title")
	addTask(t, b, rootOf(t, b), "afterwards")
}

// A process that is stopped while it has the turn, but is in no transaction, is passed over.
func TestAProcessThatIsStoppedBetweenTransactions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	b := openAt(t, path, time.Now)
	p := rootOf(t, b)
	end, err := b.writer.turn(new(time.Time)) // its goroutine waits
	testkit.Must(t, err)
	defer end()
	other := openAt(t, path, time.Now)
	other.patience = 400 * time.Millisecond
	addTask(t, other, p, "passes it over")
}
