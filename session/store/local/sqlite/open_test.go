package sqlite

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/store/sqlstore"
)

func raw(t testing.TB, path string, statements ...string) *sql.DB {
	t.Helper()
	db := testkit.Get(sql.Open("sqlite", Source(path, "rwc"))).Must(t)
	t.Cleanup(func() { db.Close() })
	for _, s := range statements {
		testkit.Must(t, second(db.Exec(s)))
	}
	return db
}

func TestOpenMakesAPrivateDurableFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("its file names have no ?, and its modes no users")
	}
	path := filepath.Join(t.TempDir(), "a b?#%", ".deepwork", "board.db")
	b := openAt(t, path, time.Now)
	p := rootOf(t, b)
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		testkit.Equal(t, testkit.Get(os.Stat(name)).Must(t).Mode().Perm(), 0o600)
	}

	reader := testkit.Get(b.reader.Conn(t.Context())).Must(t)
	for _, c := range []*sql.Conn{b.writer.conn, reader} {
		for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1"} {
			var got string
			testkit.Must(t, c.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got))
			testkit.Equal(t, got, want, "%s", pragma)
		}
	}
	testkit.Must(t, reader.Close())
	// Taken away under a server, it would swallow what is acknowledged, and no reader begins another one.
	testkit.Must(t, os.Rename(path, path+".away"))
	err := second(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "lost"}, task.Request{}))
	says(t, err, task.ErrDamaged, "moved, removed or replaced")
	for range readers {
		var c *sql.Conn
		if c, err = b.reader.Conn(t.Context()); err == nil {
			defer c.Close()
		}
	}
	testkit.FailsWith(t, err, task.ErrDamaged)
	testkit.FailsWith(t, testkit.Get(os.Stat(path)).Err(), os.ErrNotExist)
	testkit.Must(t, os.Rename(path+".away", path))
	addTask(t, b, p, "kept")
}

func TestFilesThatAreLeftUntouched(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "board.db")
	b := openAt(t, whole, time.Now)
	p := rootOf(t, b)
	for range 200 {
		addTask(t, b, p, strings.Repeat("x", 1000))
	}

	testkit.Must(t, b.Close())
	testkit.FailsWith(t, second(b.Task(t.Context(), "x")), task.ErrClosed)
	testkit.FailsWith(t, b.DeleteTask(t.Context(), "x"), task.ErrClosed)

	good := testkit.Get(os.ReadFile(whole)).Must(t)
	const aside, version = "set it aside with `deepwork check --set-aside` to begin an empty one",
		"it has version %s, and this deepwork uses version %d: use the deepwork that wrote it, or set the " +
			"database aside"
	untouched := func(name string, data []byte, statements string, want error, text string) {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "board.db")
			testkit.Must(t, errors.Join(os.WriteFile(path, data, 0o600), raw(t, path, statements).Close()))
			before := testkit.Get(os.ReadFile(path)).Must(t)
			for _, readOnly := range []bool{false, true} {
				b, err := openBoard(t.Context(), Options{Path: path, ReadOnly: readOnly})
				if err == nil {
					_, _, _, err = b.Projects(t.Context(), task.Page{Limit: 1})
					err = errors.Join(err, b.Close())
				}
				testkit.FailsWith(t, err, want, "read-only %v: %v, want %v with %q", readOnly, err, want, text)
				testkit.Contains(t, fmt.Sprint(err), text, "read-only %v: %v, want %v with %q", readOnly, err,
					want, text)
				testkit.Contains(t, fmt.Sprint(err), path, "read-only %v: %v, want %v with %q", readOnly, err,
					want, text)
			}
			testkit.True(t, bytes.Equal(before, testkit.Get(os.ReadFile(path)).Must(t)), "the file was changed")
		})
	}
	untouched("text", []byte(strings.Repeat("this is no database\n", 100)), "", task.ErrDamaged, aside)
	untouched("truncated", good[:len(good)/2], "", task.ErrDamaged, aside)
	untouched("one byte", good[:1], "", task.ErrDamaged, aside)
	untouched("half page", good[:100], "", task.ErrDamaged, aside)
	untouched("zeros", make([]byte, len(good)), "", task.ErrDamaged, aside)

	// found when they are read
	untouched("pages", append(good[:8192:8192], bytes.Repeat([]byte{0xA5}, len(good)-8192)...), "", task.ErrDamaged,
		"restore it from a copy")
	untouched("another program's", nil, "CREATE TABLE notes (text)", task.ErrDamaged, "the database of another program")
	untouched("its id", nil, "PRAGMA application_id = 7; PRAGMA user_version = 1; CREATE TABLE projects (text)",
		task.ErrDamaged, "the database of another program")
	untouched("newer", good, fmt.Sprintf("PRAGMA user_version = %d", latest()+1), task.ErrVersion,
		fmt.Sprintf(version, fmt.Sprint(latest()+1), latest()))
	untouched("older", good, "PRAGMA user_version = 1", task.ErrVersion, fmt.Sprintf(version, "1", latest()))
	untouched("unreleased", good, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = 8", unreleasedID),
		task.ErrVersion,
		fmt.Sprintf(version, "8 of before the first release", latest()))
	testkit.FailsWith(t, second(openBoard(t.Context(), Options{Path: t.TempDir()})), task.ErrDamaged, "a folder")
	testkit.FailsWith(t, second(openBoard(t.Context(), Options{Path: "board.db"})), task.ErrInvalid, "a relative path")

	for _, empty := range []bool{false, true} { // a log alone
		path := filepath.Join(t.TempDir(), "board.db")
		if empty {
			testkit.Must(t, os.WriteFile(path, nil, 0o600))
		}
		testkit.Must(t, os.WriteFile(path+"-wal", good, 0o600))
		testkit.FailsWith(t, second(openBoard(t.Context(), Options{Path: path})), task.ErrDamaged, "a log alone")
		testkit.True(t, bytes.Equal(testkit.Get(os.ReadFile(path+"-wal")).Must(t), good), "the log was changed")
	}
}

func TestReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "board.db")
	open := func() board {
		b := testkit.Get(openBoard(t.Context(), Options{Path: path, ReadOnly: true})).Must(t)
		t.Cleanup(func() { b.Close() })
		return b
	}
	b := open()
	list, total, next, err := b.Projects(t.Context(), task.Page{Limit: 5})
	testkit.Need(t, len(list) == 0, "%v %d %q %v", list, total, next, err)
	testkit.Equal(t, total, 0)
	testkit.Equal(t, next, "")
	testkit.True(t, err == nil, "%v %d %q %v", list, total, next, err)
	testkit.Equal(t, len(testkit.Get(b.AllAttempts(t.Context())).Must(t)), 0)
	testkit.Works(t, b.SyncProjects(t.Context(), nil, false), "nothing differs")
	testkit.FailsWith(t, b.SyncProjects(t.Context(), []task.ProjectSpec{root}, false), task.ErrFull)
	testkit.FailsWith(t, testkit.Get(os.Stat(filepath.Dir(path))).Err(), fs.ErrNotExist, "reading made a folder")

	version := func(b board) int64 { return testkit.Get(b.Version(t.Context())).Must(t) }
	testkit.Equal(t, version(b), 0, "the version without a file")
	testkit.Must(t, os.Mkdir(filepath.Dir(path), 0o700))
	testkit.Must(t, raw(t, path, "PRAGMA journal_mode = WAL").Close()) // as a full disk or a kill leaves it
	testkit.Equal(t, len(testkit.Get(open().AllAttempts(t.Context())).Must(t)), 0, "before the first transaction")

	w := openAt(t, path, time.Now)
	testkit.Equal(t, version(b), 0, "the version of a database that was made later")
	p := rootOf(t, w)
	s := addTask(t, w, p, "one")
	b = open()
	testkit.Same(t, taskOf(t, b, s.ID), s)
	says(t, b.DeleteTask(t.Context(), s.ID), task.ErrFull, "for reading only")
	before := version(b)
	testkit.Equal(t, version(b), before, "the version without a change")

	for _, idle := range []int{1, 0} { // 0: over another connection, as after a look that was given up
		b.watcher.SetMaxIdleConns(idle)
		before = version(b)
		taskOf(t, b, addTask(t, w, p, "two").ID) // it sees what others write
		testkit.True(t, version(b) != before, "a change by others has the same version")
	}
}

func TestReadOnlyFileAndFolder(t *testing.T) {
	if os.Getuid() <= 0 {
		t.Skip("the user may write any file")
	}
	path := filepath.Join(t.TempDir(), "sub", "board.db")
	b := openAt(t, path, time.Now)
	p := rootOf(t, b)
	s := addTask(t, b, p, "kept")
	testkit.Must(t, b.Close())
	refused := func(readOnly bool) {
		b := testkit.Get(openBoard(t.Context(), Options{Path: path, ReadOnly: readOnly})).Must(t)
		testkit.Same(t, taskOf(t, b, s.ID), s)
		testkit.FailsWith(t,
			second(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "x"}, task.Request{})), task.ErrFull)
		testkit.Works(t, b.Close())
	}
	testkit.Must(t, os.Chmod(path, 0o400))
	refused(false)
	testkit.Must(t, errors.Join(os.Chmod(path, 0o600), os.Chmod(filepath.Dir(path), 0o500)))
	t.Cleanup(func() { testkit.Works(t, os.Chmod(filepath.Dir(path), 0o700)) })
	refused(false)
	refused(true)
	for _, missing := range []string{filepath.Join(filepath.Dir(path), "x", "board.db"),
		filepath.Join(filepath.Dir(path), "new.db")} {
		testkit.FailsWith(t, second(openBoard(t.Context(), Options{Path: missing})), task.ErrFull)
	}
}

// What could not be written when it was opened is read meanwhile, and written as soon as it can be.
func TestAFileThatCannotBeWrittenAtFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	b := openAt(t, path, time.Now)
	s := addTask(t, b, rootOf(t, b), "kept")
	testkit.Must(t, b.Close())
	if err := os.Symlink(filepath.Join(t.TempDir(), "a", "b"), path+"-wal"); err != nil {
		t.Skip(err)
	}
	b = openAt(t, path, time.Now)
	testkit.Same(t, taskOf(t, b, s.ID), s)

	retitle := task.TaskChange{Title: new("written")}
	says(t, second(b.UpdateTask(t.Context(), s.ID, retitle)), task.ErrFull, "call again")
	testkit.Must(t, errors.Join(os.Remove(path+"-wal"), os.Rename(path, path+".away")))
	testkit.Until(t, "no other one is begun", func() bool {
		return errors.Is(second(b.Task(t.Context(), s.ID)), task.ErrDamaged)
	})
	testkit.Must(t, os.Rename(path+".away", path))
	testkit.Until(t, "it is written", func() bool { return second(b.UpdateTask(t.Context(), s.ID, retitle)) == nil })
}

// A reader that holds its transaction while a writer starts an execution goes on to see what was before it.
func TestReq004_AnAttemptIsReadFromOneState(t *testing.T) {
	b, p := newBoard(t)
	a := try(t, b, addTask(t, b, p, "one"))
	statements := 0
	before, err := spied(b, func(string, []any) {
		statements++
		if statements == 2 {
			// in the middle of the reading
			e := testkit.Get(b.ClaimNext(t.Context(), "server", 1, nil, task.Limits{})).Must(t)
			testkit.Must(t, second(b.StartExecution(t.Context(), e.ID, "X", "", time.Time{})))
		}
	}).AttemptDetails(t.Context(), a.ID)
	testkit.Need(t, err == nil && statements >= 3, "%v %v", statements, err)
	testkit.Equal(t, before.Attempt.State, task.Waiting, "two moments: %+v %+v", before.Attempt, before.Execution)
	testkit.Need(t, before.Attempt.LatestSessionID == nil, "two moments: %+v %+v", before.Attempt, before.Execution)
	testkit.Equal(t, before.Execution.State, task.Waiting, "two moments: %+v %+v", before.Attempt, before.Execution)
	testkit.True(t, before.Session == nil, "two moments: %+v %+v", before.Attempt, before.Execution)

	now := testkit.Get(b.AttemptDetails(t.Context(), a.ID)).Must(t)
	testkit.True(t, now.Execution.State == task.Running && now.Session != nil, "%+v", now)
}

// The cost of what is called often must not grow with the board: every access is by an index, and nothing is sorted.
func TestListsUseIndexes(t *testing.T) {
	b, p := newBoard(t)
	s := addTask(t, b, p, "one")
	a := try(t, b, s)
	try(t, b, s)
	seen := make(map[string][]any)
	spy := spied(b, func(query string, args []any) { seen[query] = args })
	page := task.Page{Limit: 50}
	for what, err := range map[string]error{
		"tasks":             last(spy.Tasks(t.Context(), p.ID, task.Filter{}, page)),
		"tasks of a status": last(spy.Tasks(t.Context(), p.ID, task.Filter{Status: task.Done}, page)),
		"attempts":          second(spy.TaskAttempts(t.Context(), s.ID, page)),
		"details":           second(spy.AttemptDetails(t.Context(), a.ID)),
		"open executions":   second(spy.OpenExecutions(t.Context())),
		"a branch":          second(spy.BranchTaken(t.Context(), "b")),
		"a creation": second(spy.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "two"},
			task.Request{Identity: "me", Tool: "t", RequestID: "r"})),
		"a claim": second(spy.ClaimNext(t.Context(), "me", 5, nil, task.Limits{})),
	} {
		testkit.Works(t, err, "%v", what)
	}
	testkit.True(t, len(seen) >= 15, "only %v %v", len(seen), "statements")

	testkit.Must(t, b.DB.Run(t.Context(), "explaining", sqlstore.Reading, func(x sqlstore.Tx) {
		for query, args := range seen {
			if strings.HasPrefix(query, "DELETE FROM changes") {
				continue // once a minute
			}

			for _, s := range sqlstore.List[struct {
				ID, Parent, NotUsed int
				Detail              string
			}](x, "EXPLAIN QUERY PLAN "+query, args...) {
				// Those that run are few: they may be sorted.
				testkit.True(t, !strings.HasPrefix(s.Detail, "SCAN") || s.Detail == "SCAN CONSTANT ROW", "%s\n%s",
					s.Detail, query)
				testkit.True(t, !strings.Contains(s.Detail, "TEMP B-TREE") ||
					strings.Contains(query, "'running') AND step_id IS NULL ORDER BY"), "%s\n%s", s.Detail, query)
			}
		}
	}))
}

func second[T any](_ T, err error) error             { return err }
func last[A, B, C any](_ A, _ B, _ C, e error) error { return e }

func with(t *testing.T, scripts ...string) {
	was := migrations
	migrations = append(was[:len(was):len(was)], scripts...)
	t.Cleanup(func() { migrations = was })
}

// Servers that open a file at once migrate it one after the other, whether it is empty or has a version already.
func TestMigrationByManyServers(t *testing.T) {
	for i, name := range testkit.Get(fs.Glob(files, "migrations/*.sql")).Must(t) { // without a gap
		testkit.True(t, i < latest() && strings.HasPrefix(name, fmt.Sprintf("migrations/%04d_", i+1)),
			"%s is not migration number %d", name, i+1)
	}

	path := filepath.Join(t.TempDir(), "board.db")
	openByMany := func(want int) {
		t.Helper()
		var boards sync.WaitGroup
		for range 4 {
			boards.Go(func() {
				testkit.Works(t, testkit.Get(openBoard(t.Context(), Options{Path: path})).Must(t).Close())
			})
		}
		boards.Wait()
		got := schemaOf(t, path)
		testkit.Equal(t, got["version"]+" "+got["application"], fmt.Sprint(want, " ", applicationID),
			"version and application")
	}
	openByMany(latest())
	b := openAt(t, path, noon)
	s := addTask(t, b, rootOf(t, b), "kept")
	testkit.Must(t, b.Close())
	with(t, "CREATE TABLE second (x)", "ALTER TABLE second ADD COLUMN y")
	openByMany(latest())
	testkit.Equal(t, schemaOf(t, path)["table second"], "CREATE TABLE second (x, y)", "the later scripts made")

	b = openAt(t, path, noon)
	testkit.Same(t, taskOf(t, b, s.ID), s, "the task")

	// by a newer deepwork, beside one that runs
	testkit.Must(t, raw(t, path, fmt.Sprintf("PRAGMA user_version = %d", latest()+1)).Close())
	says(t, b.DeleteTask(t.Context(), s.ID), task.ErrVersion,
		fmt.Sprintf("it has version %d, and this deepwork uses version %d: use", latest()+1, latest()))
}

// A migration that fails leaves the board at its version, and nothing of itself. A reader does not migrate.
func TestFailedMigrationIsUndone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	testkit.Must(t, openAt(t, path, time.Now).Close())
	version := latest()
	with(t, "CREATE TABLE half (x); INSERT INTO nowhere VALUES (1);")
	before := schemaOf(t, path)
	testkit.Fails(t, second(openBoard(t.Context(), Options{Path: path})),
		fmt.Sprintf("migrating it from version %d to %d", version, version+1))
	says(t, second(openBoard(t.Context(), Options{Path: path, ReadOnly: true})), task.ErrVersion,
		"if it is a backup, restore it with the deepwork that wrote it")
	testkit.Same(t, schemaOf(t, path), before, "left behind")
}

func schemaOf(t *testing.T, path string) (all map[string]string) {
	t.Helper()
	db := raw(t, path)
	defer db.Close()
	var text string
	testkit.Must(t,
		db.QueryRow(`SELECT json_group_object(name, sql) FROM (SELECT type || ' ' || name AS name, coalesce(sql, `+
			`'') AS sql FROM sqlite_schema
		UNION ALL SELECT 'version', CAST(user_version AS TEXT) FROM pragma_user_version
		UNION ALL SELECT 'application', CAST(application_id AS TEXT) FROM pragma_application_id)`).Scan(&text))
	testkit.Must(t, json.Unmarshal([]byte(text), &all))
	return all
}

// fill makes 10,000 tasks with 30,000 attempts, each of which has a session.
func fill(t testing.TB, b board, p task.Project) {
	t.Helper()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	testkit.Must(t, b.DB.Run(t.Context(), "filling", sqlstore.Writing, func(x sqlstore.Tx) {
		for i := range 10_000 {
			of := id(1, i)
			at = at.Add(time.Second)
			x.Exec(`INSERT INTO tasks (id, project_id, title, description, status, identity, caller_group, `+
				`created_at, updated_at) VALUES (?, ?, ?, ?, ?, 'local', '', ?, ?)`,
				of, p.ID, fmt.Sprintf("Task number %d", i),
				"What is to be done, in some words more than the title has.", task.Statuses[i%len(task.Statuses)],
				task.FormatTime(at), task.FormatTime(at))
			for j := range 3 {
				attempt, when := id(2, 3*i+j), task.FormatTime(at.Add(time.Duration(j)*time.Minute))
				state := []task.AttemptState{task.Completed, task.Failed, task.Stopped, task.Interrupted}[(i+j)%4]
				x.Exec(`INSERT INTO attempts (id, task_id, executor, branch, workspace, state, identity, `+
					`caller_group, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, 'local', '', ?, ?)`,
					attempt, of, "CODEX", "deepwork/task-0000", "/w", state, when, when)
				x.Exec(`INSERT INTO sessions (id, attempt_id, executor, created_at, updated_at) VALUES (?, ?, ?, ?, ?)`,
					id(3, 3*i+j), attempt, "CODEX", when, when)
				x.Exec(`INSERT INTO executions (id, attempt_id, log_id, executor, session_id, follow_up, prompt, `+
					`state, owner, created_at, ended_at) VALUES (?, ?, '', 'X', ?, 0, ?, ?, 'x', ?, ?)`,
					id(4, 3*i+j), attempt, id(3, 3*i+j), "do it", state, when, when)
			}
		}
	}))
}

func id(table, n int) string {
	return fmt.Sprintf("%08x-0000-4000-8000-%04x%08x", uint32(n)*2654435761, table, n)
}

// bare runs the query of list_tasks as a program would that had nothing else.
func bare(b *testing.B, db *sql.DB, summary, project string) (rows int) {
	r := testkit.Get(db.Query(summary+`WHERE t.project_id = ? ORDER BY t.created_at DESC, t.id LIMIT 50`, project)).
		Must(b)
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
	testkit.Must(b, second(spied(board, func(query string, _ []any) {
		summary = strings.TrimSuffix(query, "WHERE t.id = ?")
	}).Task(b.Context(), id(1, 1))))
	var spent, spentBare time.Duration
	for b.Loop() { // in turns, so that both meet the same machine
		begun := time.Now()
		list, total, next, err := board.Tasks(b.Context(), p.ID, task.Filter{}, task.Page{Limit: 50})
		testkit.Need(b, err == nil, "%v %v %v %v", len(list), total, next, err)
		testkit.Need(b, len(list) == 50, "%v %v %v %v", len(list), total, next, err)
		testkit.Need(b, total == 10_000, "%v %v %v %v", len(list), total, next, err)
		testkit.Need(b, next != "", "%v %v %v %v", len(list), total, next, err)

		spent += time.Since(begun)
		begun = time.Now()
		testkit.Equal(b, bare(b, db, summary, p.ID), 50)
		spentBare += time.Since(begun)
	}
	b.ReportMetric(float64(spent.Microseconds())/float64(b.N), "µs/list")
	b.ReportMetric(float64(spentBare.Microseconds())/float64(b.N), "µs/bare")
	b.ReportMetric(float64(spent)/float64(spentBare), "ratio")
}
