package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/store"
	"deepwork/session/store/sqlstore"
)

// fill makes 10,000 tasks with 30,000 attempts, each of which has a session.
func fill(t testing.TB, b board, p task.Project) {
	t.Helper()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	testkit.Must(t, b.DB.Run(t.Context(), "filling", sqlstore.Writing, func(x sqlstore.Tx) {
		for i := range 10_000 {
			of := id(1, i)
			at = at.Add(time.Second)
			x.Exec(`INSERT INTO tasks (id, project_id, title, description, status, identity, caller_group, created_at, updated_at) VALUES (?, ?, ?, ?, ?, 'local', '', ?, ?)`,
				of, p.ID, fmt.Sprintf("Task number %d", i), "What is to be done, in some words more than the title has.", task.Statuses[i%len(task.Statuses)], task.FormatTime(at), task.FormatTime(at))
			for j := range 3 {
				attempt, when := id(2, 3*i+j), task.FormatTime(at.Add(time.Duration(j)*time.Minute))
				state := []task.AttemptState{task.Completed, task.Failed, task.Stopped, task.Interrupted}[(i+j)%4]
				x.Exec(`INSERT INTO attempts (id, task_id, executor, branch, workspace, state, identity, caller_group, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, 'local', '', ?, ?)`,
					attempt, of, "CODEX", "deepwork/task-0000", "/w", state, when, when)
				x.Exec(`INSERT INTO sessions (id, attempt_id, executor, created_at, updated_at) VALUES (?, ?, ?, ?, ?)`,
					id(3, 3*i+j), attempt, "CODEX", when, when)
				x.Exec(`INSERT INTO executions (id, attempt_id, log_id, executor, session_id, follow_up, prompt, state, owner, created_at, ended_at) VALUES (?, ?, '', 'X', ?, 0, ?, ?, 'x', ?, ?)`,
					id(4, 3*i+j), attempt, id(3, 3*i+j), "do it", state, when, when)
			}
		}
	}))
}

// id is the UUID of a row of the filling; they are in no order.
func id(table, n int) string {
	return fmt.Sprintf("%08x-0000-4000-8000-%04x%08x", uint32(n)*2654435761, table, n)
}

// bare runs the query of list_tasks as a program would that had nothing else.
func bare(db *sql.DB, summary, project string) (rows int, err error) {
	r, err := db.Query(summary+`WHERE t.project_id = ? ORDER BY t.created_at DESC, t.id LIMIT 50`, project)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for r.Next() {
		var (
			id, project, title, status, lead, created, updated         string
			description, job, workflow, latest, branch, sess, executor *string
			open, failed                                               bool
			dependsOn, blockedBy                                       *string
		)
		if err := r.Scan(&id, &project, &title, &description, &status, &job, &workflow, &lead, &created, &updated,
			&latest, &branch, &sess, &executor, &open, &failed, &dependsOn, &blockedBy); err != nil {
			return 0, err
		}
		rows++
	}
	return rows, r.Err()
}

// BenchmarkListTasks measures list_tasks over 10,000 tasks with 30,000 attempts,
// and beside it the bare query; ratio is how many times as long it takes.
func BenchmarkListTasks(b *testing.B) {
	path := filepath.Join(b.TempDir(), "board.db")
	board := openAt(b, path, noon)
	p := rootOf(b, board)
	fill(b, board, p)
	db := testkit.Get(sql.Open("sqlite", Source(path, "ro"))).Must(b)
	defer db.Close()
	var summary string
	testkit.Must(b, second(spied(board, func(query string, _ []any) { summary = strings.TrimSuffix(query, "WHERE t.id = ?") }).Task(b.Context(), id(1, 1))))
	var spent, spentBare time.Duration
	for b.Loop() { // in turns, so that both meet the same machine
		begun := time.Now()
		list, total, next, err := board.Tasks(b.Context(), p.ID, task.Filter{}, task.Page{Limit: 50})
		if err != nil || len(list) != 50 || total != 10_000 || next == "" {
			b.Fatal(len(list), total, next, err)
		}
		spent += time.Since(begun)
		begun = time.Now()
		testkit.Equal(b, testkit.Get(bare(db, summary, p.ID)).Must(b), 50)
		spentBare += time.Since(begun)
	}
	b.ReportMetric(float64(spent.Microseconds())/float64(b.N), "µs/list")
	b.ReportMetric(float64(spentBare.Microseconds())/float64(b.N), "µs/bare")
	b.ReportMetric(float64(spent)/float64(spentBare), "ratio")
}

// create makes n tasks from several goroutines, and returns how long each call took.
func create(b *testing.B, to board, p task.Project, goroutines, n int) (took []time.Duration) {
	b.Helper()
	var all sync.WaitGroup
	var next atomic.Int64
	took = make([]time.Duration, n)
	for range goroutines {
		all.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				begun := time.Now()
				_, err := to.CreateTask(context.Background(), task.NewTask{ProjectID: p.ID, Title: "made"}, task.Request{Identity: "me", Tool: "create_task", RequestID: fmt.Sprint(b.N, i, begun.UnixNano())})
				if err != nil {
					b.Error(err)
					return
				}
				took[i-1] = time.Since(begun)
			}
		})
	}
	all.Wait()
	return took
}

// BenchmarkConcurrentWriters measures the calls of 16 concurrent writers per second, each a
// transaction of several statements, and beside it how often a file of 4 KB is written and synced;
// ratio is how many calls there are for each such write.
func BenchmarkConcurrentWriters(b *testing.B) {
	dir := b.TempDir()
	board := openAt(b, filepath.Join(dir, "board.db"), time.Now)
	p := rootOf(b, board)
	f := testkit.Get(os.Create(filepath.Join(dir, "file"))).Must(b)
	defer f.Close()
	page := make([]byte, 4096)
	var calls, writes int
	var spent, spentOnFile time.Duration
	for b.Loop() { // in turns, so that both meet the same machine
		begun := time.Now()
		create(b, board, p, 16, 320)
		spent, calls = spent+time.Since(begun), calls+320
		begun = time.Now()
		for range 100 {
			testkit.Get(f.WriteAt(page, 0)).Must(b)
			testkit.Must(b, f.Sync())
		}
		spentOnFile, writes = spentOnFile+time.Since(begun), writes+100
	}
	perSecond, files := float64(calls)/spent.Seconds(), float64(writes)/spentOnFile.Seconds()
	b.ReportMetric(perSecond, "calls/s")
	b.ReportMetric(files, "files/s")
	b.ReportMetric(perSecond/files, "ratio")
}

// BenchmarkTwoProcesses measures the calls of 4 callers while a second process with as many writes to
// the same file, and beside it those of one process alone; ratio is p99 by the median.
func BenchmarkTwoProcesses(b *testing.B) {
	for _, others := range []int{0, 1} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "board.db")
			board := openAt(b, path, time.Now)
			p := rootOf(b, board)
			for range others {
				c := another(b, "load", path)
				defer c.In.Close()
			}
			var took []time.Duration
			begun := time.Now()
			for b.Loop() {
				took = append(took, create(b, board, p, callers, 200)...)
			}
			spent := time.Since(begun)
			slices.Sort(took)
			median, p99 := took[len(took)/2], took[len(took)*99/100]
			b.ReportMetric(float64(len(took))/spent.Seconds(), "calls/s")
			b.ReportMetric(float64(median.Microseconds()), "µs/median")
			b.ReportMetric(float64(p99.Microseconds()), "µs/p99")
			b.ReportMetric(float64(p99)/float64(median), "ratio")
		})
	}
}

// BenchmarkOneWriter measures the calls of one caller, each a transaction and a sync of its own.
func BenchmarkOneWriter(b *testing.B) {
	board, p := newBoard(b)
	for b.Loop() {
		create(b, board, p, 1, 1)
	}
}

// transition is the transition of a session of 25 steps to a revision: it ends a step, begins the next one
// and stores its reply.
func transition(id string, revision int64) *store.SessionWrite {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(revision) * time.Second)
	text := strings.Repeat("step wrote output.md; ", 60)
	w := &store.SessionWrite{Before: revision - 1, Frame: text[:1<<10], Session: store.Session{ID: id, Revision: revision, Root: "/srv/shop",
		Job: "alpha", Workflow: "main", Step: "one", Status: "active", Identity: "local", StartedAt: at, UpdatedAt: at}}
	if revision == 1 {
		w.Before = -1
	}
	step := revision % 25
	w.Put = []store.SessionPart{
		{Kind: "step", Key: fmt.Sprint(step), Position: step, Body: text[:300]}, {Kind: "step", Key: fmt.Sprint(step + 1), Position: step + 1, Body: text[:100]},
		{Kind: "reply", Key: fmt.Sprint(revision), Position: revision, Body: text[:1200]},
	}
	w.Gone = []store.SessionPart{{Kind: "reply", Key: fmt.Sprint(revision - 2)}}
	return w
}

// BenchmarkTransition measures one transition after the other, and beside it a write of 4 KB that is synced.
func BenchmarkTransition(b *testing.B) {
	dir := b.TempDir()
	board := openAt(b, filepath.Join(dir, "board.db"), noon)
	sessions := board.Sessions()
	f := testkit.Get(os.Create(filepath.Join(dir, "plain"))).Must(b)
	defer f.Close()
	page := make([]byte, 4<<10)
	var moved, written time.Duration
	for n := int64(1); b.Loop(); n++ { // in turns, so that both meet the same machine
		begun := time.Now()
		if ok, err := sessions.WriteSession(b.Context(), transition("0123abcd", n)); !ok || err != nil {
			b.Fatal(ok, err)
		}
		moved += time.Since(begun)
		begun = time.Now()
		testkit.Get(f.WriteAt(page, n%64*int64(len(page)))).Must(b)
		testkit.Must(b, f.Sync())
		written += time.Since(begun)
	}
	b.ReportMetric(float64(moved.Microseconds())/float64(b.N), "µs/transition")
	b.ReportMetric(float64(written.Microseconds())/float64(b.N), "µs/write")
	b.ReportMetric(float64(moved)/float64(written), "ratio")
}

// BenchmarkReadSession reads a session whose revision is known, and a whole one.
func BenchmarkReadSession(b *testing.B) {
	board := openAt(b, filepath.Join(b.TempDir(), "board.db"), noon)
	sessions := board.Sessions()
	for n := range int64(25) {
		testkit.Must(b, second(sessions.WriteSession(b.Context(), transition("0123abcd", n+1))))
	}
	for name, known := range map[string]int64{"known": 25, "whole": -1} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				r, err := sessions.ReadSession(b.Context(), "0123abcd", known)
				if err != nil || r.Revision != 25 {
					b.Fatal(r, err)
				}
			}
		})
	}
}
