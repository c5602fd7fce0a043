package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/store"
	"deepwork/session/store/postgres/pgtest"
	"deepwork/session/store/sqlstore"
)

// latest returns the position of a follower that begins now.
func latest(t testing.TB, c store.Changes) string {
	news := testkit.Get(c.Since(t.Context(), "")).Must(t)
	equal(t, "a new follower", news.Reset, true, len(news.Changes), 0)
	return news.Next
}

// follow waits for changes after a position until it has n of them.
func follow(t testing.TB, c store.Changes, position string, n int) (all []store.Change) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for len(all) < n {
		testkit.Must(t, c.Wait(ctx, position))
		news := testkit.Get(c.Since(ctx, position)).Must(t)
		testkit.Need(t, !news.Reset, "after %q it is to read all again", position)
		all, position = append(all, news.Changes...), news.Next
	}
	return all
}

func changed(kind string, ids ...string) (all []store.Change) {
	for _, id := range ids {
		all = append(all, store.Change{Kind: kind, ID: id})
	}
	return all
}

// raw runs statements in a transaction of a database.
func raw(t testing.TB, d store.Database, f func(ctx context.Context, q sqlstore.Querier) error) error {
	if c, ok := d.(closing); ok {
		d = c.Database
	}
	return d.(interface {
		Transact(context.Context, sqlstore.Mode, func(context.Context, sqlstore.Querier) error) error
	}).Transact(t.Context(), sqlstore.Writing, f)
}

// fill adds n changes in one transaction.
func fill(t testing.TB, d store.Database, n int, at time.Time) {
	t.Helper()
	testkit.Must(t, raw(t, d, func(ctx context.Context, q sqlstore.Querier) error {
		return second(q.ExecContext(ctx, fmt.Sprintf(`WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < %d)
			INSERT INTO changes (kind, id, at) SELECT 'task', CAST(n AS TEXT), CAST(? AS TEXT) FROM n`, n), task.FormatTime(at)))
	}))
}

// What one process changes, all followers read in order, each change in the transaction that makes it.
func TestChangesAreFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	b := openAt(t, path, time.Now)
	p := rootOf(t, b)
	addTask(t, b, p, "zero") // the feed exists
	feeds := []store.Changes{b.db.Changes(), open(t, path, time.Now).Changes()}
	position := latest(t, feeds[1])
	check := func(what string, want ...store.Change) {
		t.Helper()
		next := ""
		for _, feed := range feeds {
			news := testkit.Get(feed.Since(t.Context(), position)).Must(t)
			equal(t, what, news.Reset, false, news.Changes, want)
			testkit.True(t, len(want) != 0 || news.Next == position, "%s: the next position after %q is %q", what, position, news.Next)
			next = news.Next
		}
		position = next
	}
	check("nothing")
	s := addTask(t, b, p, "one")
	check("a task", changed(store.TaskChanged, s.ID)...)
	testkit.Must(t, second(b.UpdateTask(t.Context(), s.ID, task.TaskChange{Title: new("one")})))
	check("an update that changes nothing")
	testkit.Must(t, second(b.UpdateTask(t.Context(), s.ID, task.TaskChange{Title: new("two")})))
	check("an update", changed(store.TaskChanged, s.ID)...)
	a := try(t, b, s)
	check("an attempt", slices.Concat(changed(store.AttemptChanged, a.ID), changed(store.TaskChanged, s.ID))...)
	e, _ := run(t, b)
	check("a start", changed(store.AttemptChanged, a.ID, a.ID)...)
	testkit.Must(t, second(b.Stop(t.Context(), e.ID)))
	check("a wish to stop it", changed(store.AttemptChanged, a.ID)...)
	end(t, b, e, task.Ending{State: task.Failed, Task: task.InReview})
	check("an end", slices.Concat(changed(store.AttemptChanged, a.ID), changed(store.TaskChanged, s.ID))...)
	testkit.Must(t, b.AskRemoval(t.Context(), a.ID))
	check("a wish to remove it", changed(store.AttemptChanged, a.ID)...)
	testkit.FailsWith(t, b.DeleteTask(t.Context(), "nothing"), task.ErrNotFound)
	check("a failure")
	undone := errors.New("undone")
	testkit.FailsWith(t, raw(t, b.db, func(ctx context.Context, q sqlstore.Querier) error {
		return errors.Join(second(q.ExecContext(ctx, `INSERT INTO changes (kind, id, at) VALUES ('task', 'never', '')`)), undone)
	}), undone)
	check("a transaction that is rolled back")
	x := &store.Execution{ID: "x", Owner: "gone", Identity: "me", State: store.ExecutionWaiting, StatusSupported: true}
	testkit.Must(t, b.db.Executions().Save(t.Context(), x, 0))
	check("an execution", changed(store.ExecutionChanged, "x")...)
	other := *x
	other.Owner = "another"
	testkit.FailsWith(t, b.db.Executions().Save(t.Context(), &other, time.Hour), store.ErrNotOwner)
	check("an execution of another process")
	testkit.Must(t, b.db.Executions().AskCancel(t.Context(), "x"))
	check("a wish to cancel it", changed(store.ExecutionChanged, "x")...)
	testkit.Must(t, second(b.db.Executions().TakeUp(t.Context(), "here", time.Hour, nil))) // it has failed
	check("taking it up", changed(store.ExecutionChanged, "x")...)
	testkit.Must(t, b.db.Executions().AskCancel(t.Context(), "x"))
	check("a wish to cancel what is over")
	x.Owner, x.State, x.EndedAt = "here", store.ExecutionFailed, new(time.Now())
	save(t, b.db.Executions(), x)
	check("an end that is not synced", changed(store.ExecutionChanged, "x")...)
	for _, gone := range []string{"x:0", "x", position + "9", ":-1", "-1", "9/9:9:", strings.TrimRight(position, "0123456789:,")} {
		news := testkit.Get(feeds[0].Since(t.Context(), gone)).Must(t)
		equal(t, gone, news.Reset, true, len(news.Changes), 0, testkit.Get(feeds[0].Since(t.Context(), news.Next)).Must(t).Reset, false)
	}
}

// A wait ends with the first change, by whichever process, or with its context.
func TestAFollowerWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	b := openAt(t, path, time.Now)
	p := rootOf(t, b)
	addTask(t, b, p, "zero")
	mine, theirs := b.db.Changes(), open(t, path, time.Now).Changes()
	position := latest(t, mine)
	ended, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	testkit.FailsWith(t, mine.Wait(ended, position), context.DeadlineExceeded)
	if backend == "sqlite" { // a follower does not create the database, and follows it from its first change
		path := filepath.Join(t.TempDir(), "board.db")
		d := open(t, path, time.Now)
		position := latest(t, d.Changes())
		testkit.FailsWith(t, d.Changes().Wait(ended, position), context.DeadlineExceeded)
		equal(t, "it exists", d.Exists(), false)
		b := openAt(t, path, time.Now)
		s := addTask(t, b, rootOf(t, b), "one")
		equal(t, "followed", follow(t, d.Changes(), position, 1), changed(store.TaskChanged, s.ID))
	}
	for round := range 3 {
		var followers sync.WaitGroup
		began, waited := time.Now(), make([]time.Duration, 2)
		for i, feed := range []store.Changes{mine, theirs} {
			followers.Go(func() {
				follow(t, feed, position, 1)
				waited[i] = time.Since(began)
			})
		}
		time.AfterFunc(100*time.Millisecond, func() { addTask(t, b, p, fmt.Sprint(round)) })
		followers.Wait()
		equal(t, "they waited", slices.Max(waited) > 5*time.Second, false)
		position = testkit.Get(mine.Since(t.Context(), position)).Must(t).Next
	}
}

// The feed has the changes of the last hour, 10,000 at most. Only a follower that may have missed some reads all again.
func TestTheFeedForgets(t *testing.T) {
	if backend != "sqlite" { // a transaction of another test makes it possible that a follower has missed something
		t.Setenv(storeVariable, pgtest.New(t).URL())
	}
	c := newClock()
	b := openAt(t, filepath.Join(t.TempDir(), "board.db"), c.now)
	p := rootOf(t, b)
	feed := b.db.Changes()
	count := func() (n int) {
		t.Helper()
		testkit.Must(t, raw(t, b.db, func(ctx context.Context, q sqlstore.Querier) error {
			return q.QueryRowContext(ctx, `SELECT count(*) FROM changes`).Scan(&n)
		}))
		return n
	}
	addTask(t, b, p, "zero")
	old := latest(t, feed)
	fill(t, b.db, 6000, c.at)
	recent := testkit.Get(feed.Since(t.Context(), old)).Must(t).Next
	fill(t, b.db, 6000, c.at)
	addTask(t, b, p, "it is not time yet")
	equal(t, "changes", count(), 12_002)
	c.forward(time.Minute)
	one := addTask(t, b, p, "one")
	equal(t, "changes are left of 12 003", count(), 10_001)
	news := testkit.Get(feed.Since(t.Context(), old)).Must(t)
	equal(t, "a follower that is 12 002 changes behind reset changes", news.Reset, true, len(news.Changes), 0)
	news = testkit.Get(feed.Since(t.Context(), recent)).Must(t)
	equal(t, "a follower that is 6 002 changes behind reset changes", news.Reset, false, len(news.Changes), 6002, news.Changes[6001].ID, one.ID)
	c.forward(2 * time.Hour)
	two := addTask(t, b, p, "two")
	equal(t, "changes are left after two hours", count() > 2, false)
	equal(t, "a follower that is two hours behind", testkit.Get(feed.Since(t.Context(), recent)).Must(t).Reset, true)
	late := testkit.Get(feed.Since(t.Context(), news.Next)).Must(t)
	equal(t, "a follower that had read all two hours ago", late.Reset, false, late.Changes, changed(store.TaskChanged, two.ID))
}
