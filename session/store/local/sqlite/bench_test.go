package sqlite

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
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
func bare(b *testing.B, db *sql.DB, summary, project string) (rows int) {
	r := testkit.Get(db.Query(summary+`WHERE t.project_id = ? ORDER BY t.created_at DESC, t.id LIMIT 50`, project)).Must(b)
	defer r.Close()
	to := make([]any, len(testkit.Get(r.Columns()).Must(b)))
	for i := range to {
		to[i] = new(*string)
	}
	for ; r.Next(); rows++ {
		testkit.Must(b, r.Scan(to...))
	}
	return rows
}

// BenchmarkListTasks measures list_tasks over 10,000 tasks with 30,000 attempts, and the bare query beside it.
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
		testkit.Need(b, err == nil && len(list) == 50 && total == 10_000 && next != "", "%v %v %v %v", len(list), total, next, err)
		spent += time.Since(begun)
		begun = time.Now()
		testkit.Equal(b, bare(b, db, summary, p.ID), 50)
		spentBare += time.Since(begun)
	}
	b.ReportMetric(float64(spent.Microseconds())/float64(b.N), "µs/list")
	b.ReportMetric(float64(spentBare.Microseconds())/float64(b.N), "µs/bare")
	b.ReportMetric(float64(spent)/float64(spentBare), "ratio")
}
