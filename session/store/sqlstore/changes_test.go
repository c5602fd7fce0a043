package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

func raw(t testing.TB, d store.Database, f func(ctx context.Context, q sqlstore.Querier) error) error {
	if c, ok := d.(closing); ok {
		d = c.Database
	}
	return d.(interface {
		Transact(context.Context, sqlstore.Mode, func(context.Context, sqlstore.Querier) error) error
	}).Transact(t.Context(), sqlstore.Writing, f)
}

func fill(t testing.TB, d store.Database, n int, at time.Time) {
	t.Helper()
	testkit.Must(t, raw(t, d, func(ctx context.Context, q sqlstore.Querier) error {
		return second(q.ExecContext(ctx,
			fmt.Sprintf(`WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < %d)
			INSERT INTO changes (kind, id, at) SELECT 'task', CAST(n AS TEXT), CAST(? AS TEXT) FROM n`, n),
			task.FormatTime(at)))
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
			testkit.True(t, len(want) != 0 || news.Next == position, "%s: the next position after %q is %q", what,
				position, news.Next)
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
	check("a wish to remove what is not being deleted")
	testkit.FailsWith(t, b.DeleteTask(t.Context(), "nothing"), task.ErrNotFound)
	check("a failure")
	undone := errors.New("undone")
	testkit.FailsWith(t, raw(t, b.db, func(ctx context.Context, q sqlstore.Querier) error {
		return errors.Join(second(q.ExecContext(ctx,
			`INSERT INTO changes (kind, id, at) VALUES ('task', 'never', '')`)), undone)
	}), undone)

	check("a transaction that is rolled back")
	x := &store.RemoteRun{ID: "x", Identity: "me", State: store.RemoteWaiting, StatusSupported: true}
	add(t, b.db.RemoteRuns(), x)
	check("an execution", append(changed(store.WorkChanged, "remote/x"), changed(store.RemoteRunChanged, "x")...)...)
	other := *x
	other.State = store.RemoteStarting
	testkit.FailsWith(t, b.db.RemoteRuns().Save(t.Context(), &other, store.RemoteStarting), store.ErrWorkTaken)
	check("an execution in another state")
	x.State = store.RemoteFailed
	x.EndedAt = new(time.Now())
	testkit.Must(t, b.db.RemoteRuns().Save(t.Context(), x, store.RemoteWaiting))
	check("an end that is not synced",
		append(changed(store.WorkChanged, "remote/x"), changed(store.RemoteRunChanged, "x")...)...)
	of := led(t, b, p, "run")
	run(t, b)
	position = latest(t, feeds[0])
	addStep(t, b, of, "s1")
	check("a step of a run", changed(store.AttemptChanged, of.ID)...)
	for _, gone := range []string{"x:0", "x", position + "9", ":-1", "-1", "9/9:9:",
		strings.TrimRight(position, "0123456789:,")} {
		news := testkit.Get(feeds[0].Since(t.Context(), gone)).Must(t)
		equal(t, gone, news.Reset, true, len(news.Changes), 0,
			testkit.Get(feeds[0].Since(t.Context(), news.Next)).Must(t).Reset, false)
	}
}

func TestAFollowerWaits(t *testing.T) {
	t.Parallel()
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
	equal(t, "a follower that is 6 002 changes behind reset changes", news.Reset, false, len(news.Changes), 6002,
		news.Changes[6001].ID, one.ID)
	c.forward(2 * time.Hour)
	two := addTask(t, b, p, "two")
	equal(t, "changes are left after two hours", count() > 2, false,
		testkit.Get(feed.Since(t.Context(), recent)).Must(t).Reset, true)
	late := testkit.Get(feed.Since(t.Context(), news.Next)).Must(t)
	equal(t, "a follower that had read all two hours ago", late.Reset, false, late.Changes,
		changed(store.TaskChanged, two.ID))
}

// most is how many executions the servers of these tests run at once.
const most = 3

// A worker is a server that makes tasks, attempts at them, claims what waits and ends it. It says what was
// acknowledged.
type worker struct {
	name string
	b    board
	say  func(format string, args ...any)
}

func (w worker) work(ctx context.Context, project string, rounds int) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: %v", w.name, p)
		}
	}()
	for i := range rounds {
		s := need(w.b.CreateTask(ctx, task.NewTask{ProjectID: project, Title: fmt.Sprintf("%s %d", w.name, i)},
			task.Request{}))
		w.say("task %s", s.ID)
		a := need(w.b.CreateAttempt(ctx, task.Attempt{TaskID: s.ID, Executor: "X", Branch: "b", Workspace: "/w"},
			task.Execution{Prompt: "do it"},
			task.Request{Identity: w.name, Tool: "start_task_attempt", RequestID: strconv.Itoa(i)}))
		w.say("attempt %s", a.ID)
		e := need(w.b.ClaimNext(ctx, w.name, most, nil, task.Limits{}))
		if e == nil {
			continue
		}
		w.say("claim %s", e.ID)
		session := need(w.b.StartExecution(ctx, e.ID, "X", "", time.Time{}))
		w.say("session %s", session.ID)
		if i%3 == 0 {
			_, idle, err := w.b.Queue(ctx, session.ID, &task.Queued{Prompt: "more"}, task.Request{})
			need(idle, err)
		}
		next, ended, err := w.b.EndExecution(ctx, e.ID, task.Ending{State: task.Completed, Task: task.InReview})
		need(ended, err)
		if !ended || (next != nil) != (i%3 == 0) {
			return fmt.Errorf("round %d: ended %v, and followed by %v", i, ended, next)
		}
		w.say("end %s", e.ID)
	}

	return nil
}

func need[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// work is another server, until it has made so many rounds.
func work(ctx context.Context) int {
	d := backends[backend](os.Getenv("BOARD_PATH"), nil)
	w := worker{os.Getenv("BOARD_NAME"), board{d.Board(), d}, func(format string, args ...any) {
		fmt.Printf(format+"\n", args...)
	}}
	rounds, err := strconv.Atoi(os.Getenv("BOARD_ROUNDS"))
	if err = errors.Join(err, w.work(ctx, os.Getenv("BOARD_PROJECT"), rounds), d.Close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func server(t *testing.T, path string, rounds int, name, project string) *testkit.Child {
	return testkit.Start(t, "BOARD_PATH="+path, "BOARD_NAME="+name, "BOARD_PROJECT="+project,
		fmt.Sprint("BOARD_ROUNDS=", rounds))
}

// A journal gathers what servers were acknowledged.
type journal struct {
	mu  sync.Mutex
	all map[string][]string // kind -> ids
}

func (j *journal) add(line string) {
	kind, id, whole := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	if !whole || !strings.HasSuffix(line, "\n") {
		return // cut off with its server
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all[kind] = append(j.all[kind], id)
}

// keep has workers on boards of this process and two other processes work on a project, until servers is done.
func (j *journal) keep(t *testing.T, servers *sync.WaitGroup, path, project string, rounds int, boards ...board) {
	t.Helper()
	for i, b := range boards {
		servers.Go(func() {
			w := worker{fmt.Sprint("here", i), b, func(format string, args ...any) {
				j.add(fmt.Sprintf(format+"\n", args...))
			}}
			testkit.Must(t, w.work(t.Context(), project, rounds))
		})
	}

	for i := range 2 {
		child := server(t, path, 20, fmt.Sprint("there", i), project)
		servers.Go(func() {
			for line := child.Line(); line != ""; line = child.Line() {
				j.add(line + "\n")
			}
			testkit.Must(t, child.Wait())
		})
	}
}

// judge sees that what was acknowledged is there, and nothing was given twice.
func (j *journal) judge(t *testing.T, b board) {
	t.Helper()
	given := make(map[string]bool)
	for _, id := range j.all["claim"] {
		testkit.True(t, !given[id], "execution %s was given twice", id)
		given[id] = true
	}
	is := func(id string, right func(task.AttemptState) bool) error {
		e := testkit.Get(b.Execution(t.Context(), id)).Must(t)
		testkit.True(t, right(e.State), "execution %s is %s", id, e.State)
		return nil
	}
	for kind, read := range map[string]func(id string) error{
		"task":    func(id string) error { return second(b.Task(t.Context(), id)) },
		"attempt": func(id string) error { return second(b.Attempt(t.Context(), id)) },
		"session": func(id string) error { return second(b.Session(t.Context(), id)) },
		"claim":   func(id string) error { return is(id, func(e task.AttemptState) bool { return e != task.Waiting }) },
		"end": func(id string) error {
			return is(id, func(e task.AttemptState) bool { return e == task.Completed })
		},
	} {
		equal(t, "nothing acknowledged as", len(j.all[kind]) == 0, false)
		for _, id := range j.all[kind] {
			testkit.Must(t, read(id))
		}
	}
}

// Boards of several processes share a file. For each follower of the feed, nothing that they do is missing or
// comes twice.
func TestSeveralServersShareABoard(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "board.db")
	one, two := openAt(t, path, time.Now), openAt(t, path, time.Now)
	p := rootOf(t, one)
	addTask(t, one, p, "zero") // the feed exists
	position := latest(t, one.db.Changes())
	j := journal{all: make(map[string][]string)}
	done, finished := context.WithCancel(t.Context())
	var seen [4]int // executions that were open at once
	var read [4][]store.Change
	var followers, servers sync.WaitGroup
	for i := range read {
		b := []board{one, two}[i%2]
		followers.Go(func() {
			for at, last := position, false; !last; {
				last = done.Err() != nil // and then once more
				seen[i] = max(seen[i], len(testkit.Get(b.OpenExecutions(t.Context())).Must(t)))
				_ = b.db.Changes().Wait(done, at)
				news := testkit.Get(b.db.Changes().Since(t.Context(), at)).Must(t)
				testkit.True(t, !news.Reset, "a follower is told to read all again")
				at, read[i] = news.Next, append(read[i], news.Changes...)
			}
		})
	}
	j.keep(t, &servers, path, p.ID, 20, one, two, one)
	servers.Wait()
	finished()
	followers.Wait()
	testkit.True(t, slices.Max(seen[:]) > 0 && slices.Max(seen[:]) <= most, "%d executions were open at once", seen)

	_, total, _ := two.tasks(t, p.ID, task.Filter{}, task.Page{Limit: 1})
	equal(t, len(j.all["task"]), 5*20, total, 5*20+1)
	j.judge(t, two)
	all := testkit.Get(one.db.Changes().Since(t.Context(), position)).Must(t).Changes
	for _, kind := range []string{store.TaskChanged, store.AttemptChanged} {
		for _, id := range j.all[kind] {
			equal(t, "is in the feed", slices.Contains(all, store.Change{Kind: kind, ID: id}), true)
		}
	}
	sorted := func(c []store.Change) []store.Change {
		return slices.SortedFunc(slices.Values(c), func(x, y store.Change) int {
			return strings.Compare(x.Kind+x.ID, y.Kind+y.ID)
		})
	}
	for i, changes := range read { // equally often; those of transactions that overlap may be read in different orders
		equal(t, i, sorted(changes), sorted(all))
	}
}

func TestKilledServerLosesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "board.db")
	b := openAt(t, path, time.Now)
	p := rootOf(t, b)
	j := journal{all: make(map[string][]string)}
	for round := range 12 {
		name := fmt.Sprint("doomed", round)
		alone := round%2 == 0 // nobody else has the file open, to fix it on the way
		if alone {
			testkit.Must(t, b.Close())
		}
		child := server(t, path, 1<<30, name, p.ID)
		for range 1 + rand.IntN(40) {
			j.add(testkit.Get(child.Out.ReadString('\n')).Must(t))
		}
		testkit.Must(t, child.Process.Kill())
		rest := testkit.Get(io.ReadAll(child.Out)).Must(t)
		for line := range strings.Lines(string(rest)) {
			j.add(line)
		}
		equal(t, name, child.Wait() == nil, false)
		if alone {
			b = openAt(t, path, time.Now)
			verify(t, b)
		}

		open := testkit.Get(b.OpenExecutions(t.Context())).Must(t)
		equal(t, len(open) > most, false)
		for _, e := range open {
			is(t, false)(b.Adopt(t.Context(), e.ID, "somebody else", "here"))
			is(t, true)(b.Adopt(t.Context(), e.ID, name, "here"))
			equal(t, "what queued runs after an interruption", end(t, b, &e, task.Ending{State: task.Interrupted}), nil)
		}
	}
	j.judge(t, b)
}
