package sqlstore_test

import (
	"context"
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
)

// most is how many executions the servers of these tests run at once.
const most = 3

// A worker is a server that makes tasks, attempts at them, claims what waits and ends it. It says what was acknowledged.
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
		s := need(w.b.CreateTask(ctx, task.NewTask{ProjectID: project, Title: fmt.Sprintf("%s %d", w.name, i)}, task.Request{}))
		w.say("task %s", s.ID)
		a := need(w.b.CreateAttempt(ctx, task.Attempt{TaskID: s.ID, Executor: "X", Branch: "b", Workspace: "/w"}, task.Execution{Prompt: "do it"},
			task.Request{Identity: w.name, Tool: "start_task_attempt", RequestID: strconv.Itoa(i)}))
		w.say("attempt %s", a.ID)
		e := need(w.b.ClaimNext(ctx, w.name, most, nil, task.Limits{}))
		if e == nil {
			continue
		}
		w.say("claim %s", e.ID)
		session := need(w.b.StartExecution(ctx, e.ID, "X", time.Time{}))
		w.say("session %s", session.ID)
		if i%3 == 0 {
			_, idle, err := w.b.Queue(ctx, session.ID, &task.Queued{Prompt: "more"})
			need(idle, err)
		}
		next, ended, err := w.b.EndExecution(ctx, e.ID, task.Ending{State: task.Completed, Task: task.InReview})
		if need(ended, err); !ended || (next != nil) != (i%3 == 0) {
			return fmt.Errorf("round %d: ended %v, and followed by %v", i, ended, next)
		}
		w.say("end %s", e.ID)
	}
	return nil
}

// need returns the value of a call that must succeed.
func need[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func workSome(ctx context.Context) int    { return work(ctx, 20) }
func workForever(ctx context.Context) int { return work(ctx, 1<<30) }

// work is another server.
func work(ctx context.Context, rounds int) int {
	d := backends[backend](os.Getenv("BOARD_PATH"), nil)
	w := worker{os.Getenv("BOARD_NAME"), board{d.Board(), d}, func(format string, args ...any) { fmt.Printf(format+"\n", args...) }}
	err := w.work(ctx, os.Getenv("BOARD_PROJECT"), rounds)
	if err == nil {
		err = d.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func server(t *testing.T, path, role, name, project string) *testkit.Child {
	return testkit.Start(t, roleVariable+"="+role, "BOARD_PATH="+path, "BOARD_NAME="+name, "BOARD_PROJECT="+project)
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
			w := worker{fmt.Sprint("here", i), b, func(format string, args ...any) { j.add(fmt.Sprintf(format+"\n", args...)) }}
			testkit.Must(t, w.work(t.Context(), project, rounds))
		})
	}
	for i := range 2 {
		child := server(t, path, "some rounds", fmt.Sprint("there", i), project)
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
	for kind, read := range map[string]func(id string) error{
		"task":    func(id string) error { return second(b.Task(t.Context(), id)) },
		"attempt": func(id string) error { return second(b.Attempt(t.Context(), id)) },
		"session": func(id string) error { return second(b.Session(t.Context(), id)) },
		"claim": func(id string) error {
			e, err := b.Execution(t.Context(), id)
			testkit.True(t, err != nil || e.State != task.Waiting, "execution %s waits again", id)
			return err
		},
		"end": func(id string) error {
			e, err := b.Execution(t.Context(), id)
			testkit.True(t, err != nil || e.State == task.Completed, "execution %s has not ended", id)
			return err
		},
	} {
		equal(t, "nothing acknowledged as", len(j.all[kind]) == 0, false)
		for _, id := range j.all[kind] {
			testkit.Must(t, read(id))
		}
	}
}

// Two boards of this process and two other processes share a file. Nothing that they do is missing in the feed of changes or comes
// twice, for any of several followers.
func TestSeveralServersShareABoard(t *testing.T) {
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
		return slices.SortedFunc(slices.Values(c), func(x, y store.Change) int { return strings.Compare(x.Kind+x.ID, y.Kind+y.ID) })
	}
	for i, changes := range read { // equally often; those of transactions that overlap may be read in different orders
		equal(t, i, sorted(changes), sorted(all))
	}
}

// Servers are killed at random moments; what they acknowledged is there, and another takes their executions up.
func TestKilledServerLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	b := openAt(t, path, time.Now)
	p := rootOf(t, b)
	j := journal{all: make(map[string][]string)}
	adopted := 0
	for round := range 12 {
		name := fmt.Sprint("doomed", round)
		alone := round%2 == 0 // nobody else has the file open, to fix it on the way
		if alone {
			testkit.Must(t, b.Close())
		}
		child := server(t, path, "for ever", name, p.ID)
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
			adopted++
		}
	}
	t.Logf("%d adopted of %d claimed", adopted, len(j.all["claim"]))
	j.judge(t, b)
}
