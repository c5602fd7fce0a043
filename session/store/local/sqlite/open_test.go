package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/store/sqlstore"
)

func dbPath(t testing.TB) string {
	return filepath.Join(t.TempDir(), "a b?#%", ".deepwork", "board.db")
}

// raw opens the file without the board.
func raw(t testing.TB, path string, statements ...string) *sql.DB {
	t.Helper()
	db := testkit.Get(sql.Open("sqlite", Source(path, "rwc"))).Must(t)
	t.Cleanup(func() { db.Close() })
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatal(s, err)
		}
	}
	return db
}

func TestOpenMakesAPrivateDurableFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("its file names have no ?, and its modes no users")
	}
	path := dbPath(t)
	b := openAt(t, path, time.Now)
	rootOf(t, b)
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		testkit.Equal(t, testkit.Get(os.Stat(name)).Must(t).Mode().Perm(), 0o600)
	}
	reader := testkit.Get(b.reader.Conn(t.Context())).Must(t)
	defer reader.Close()
	for _, c := range []*sql.Conn{b.writer.conn, reader} {
		for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1"} {
			var got string
			if err := c.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
				t.Errorf("%s is %q, want %q; %v", pragma, got, want, err)
			}
		}
	}
}

func TestOpenRefusesARelativePath(t *testing.T) {
	testkit.FailsWith(t, testkit.Get(openBoard(t.Context(), Options{Path: "board.db"})).Err(), task.ErrInvalid)
}

func TestWhatWasWrittenIsThereAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	b := openAt(t, path, noon)
	p := rootOf(t, b)
	s := addTask(t, b, p, "one")
	testkit.Must(t, b.Close())
	testkit.FailsWith(t, testkit.Get(b.Task(t.Context(), s.ID)).Err(), task.ErrClosed)
	testkit.FailsWith(t, b.DeleteTask(t.Context(), s.ID), task.ErrClosed)
	again := openAt(t, path, noon)
	testkit.Same(t, taskOf(t, again, s.ID), s)
	testkit.Equal(t, rootOf(t, again), p)
}

func TestOtherVersionsAreLeftUntouched(t *testing.T) {
	for name, c := range map[string]struct{ pragmas, want string }{
		"newer":      {fmt.Sprintf("PRAGMA user_version = %d", latest()+1), fmt.Sprint(latest() + 1)},
		"unreleased": {fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = 8", unreleasedID), "8 of before the first release"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "board.db")
			b := openAt(t, path, time.Now)
			rootOf(t, b)
			testkit.Must(t, b.Close())
			testkit.Must(t, raw(t, path, c.pragmas).Close())
			unchanged(t, path, task.ErrVersion, fmt.Sprintf("it has version %s, and this deepwork uses version %d: use the deepwork that wrote it, or set the database aside", c.want, latest()))
		})
	}
}

// unchanged opens a file, and sees that it is refused and left as it is.
func unchanged(t *testing.T, path string, want error, text string) {
	t.Helper()
	before := testkit.Get(os.ReadFile(path)).Must(t)
	for _, readOnly := range []bool{false, true} {
		b, err := openBoard(t.Context(), Options{Path: path, ReadOnly: readOnly})
		if err == nil {
			_, _, _, err = b.Projects(t.Context(), task.Page{Limit: 1})
			err = errors.Join(err, b.Close())
		}
		testkit.True(t, errors.Is(err, want) && strings.Contains(fmt.Sprint(err), text) && strings.Contains(fmt.Sprint(err), path), "read-only %v: %v, want %v with %q", readOnly, err, want, text)
	}
	after, err := os.ReadFile(path)
	testkit.True(t, err == nil && bytes.Equal(before, after), "the file was changed; %v", err)
}

func TestDamagedFilesAreLeftUntouched(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "board.db")
	b := openAt(t, whole, time.Now)
	p := rootOf(t, b)
	for range 200 {
		addTask(t, b, p, strings.Repeat("x", 1000))
	}
	testkit.Must(t, b.Close())
	good := testkit.Get(os.ReadFile(whole)).Must(t)
	for name, bad := range map[string][]byte{
		"text":      []byte(strings.Repeat("this is no database\n", 100)),
		"truncated": good[:len(good)/2],
		"one byte":  good[:1],
		"half page": good[:100],
		"zeros":     make([]byte, len(good)),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "board.db")
			testkit.Must(t, os.WriteFile(path, bad, 0o600))
			unchanged(t, path, task.ErrDamaged, "set it aside with `deepwork check --set-aside` to begin an empty one")
		})
	}
	t.Run("pages", func(t *testing.T) { // which are found when they are read
		path := filepath.Join(t.TempDir(), "board.db")
		bad := bytes.Clone(good)
		for i := 8192; i < len(bad); i++ {
			bad[i] = 0xA5
		}
		testkit.Must(t, os.WriteFile(path, bad, 0o600))
		unchanged(t, path, task.ErrDamaged, "restore it from a copy")
	})
	t.Run("another program's", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "board.db")
		raw(t, path, "CREATE TABLE notes (text)").Close()
		unchanged(t, path, task.ErrDamaged, "the database of another program")
	})
	t.Run("another program's id", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "board.db")
		raw(t, path, "PRAGMA application_id = 7; PRAGMA user_version = 1", "CREATE TABLE projects (text)").Close()
		unchanged(t, path, task.ErrDamaged, "the database of another program")
	})
	t.Run("a folder", func(t *testing.T) {
		testkit.FailsWith(t, testkit.Get(openBoard(t.Context(), Options{Path: t.TempDir()})).Err(), task.ErrDamaged)
	})
	for _, empty := range []bool{false, true} {
		t.Run(fmt.Sprintf("log alone, file empty %v", empty), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "board.db")
			if empty {
				testkit.Must(t, os.WriteFile(path, nil, 0o600))
			}
			testkit.Must(t, os.WriteFile(path+"-wal", good, 0o600))
			testkit.FailsWith(t, testkit.Get(openBoard(t.Context(), Options{Path: path})).Err(), task.ErrDamaged)
			if kept, err := os.ReadFile(path + "-wal"); err != nil || !bytes.Equal(kept, good) {
				t.Error("the log was changed", err)
			}
		})
	}
}

// A file that is taken away under a server would swallow what is acknowledged, and no reader begins another one.
func TestMovedFileRefusesChanges(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be moved there")
	}
	path := filepath.Join(t.TempDir(), "board.db")
	b := openAt(t, path, time.Now)
	p := rootOf(t, b)
	testkit.Must(t, os.Rename(path, path+".away"))
	_, err := b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "lost"}, task.Request{})
	testkit.True(t, errors.Is(err, task.ErrDamaged) && strings.Contains(err.Error(), "moved, removed or replaced"), "%v", err)
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

func TestFullDiskIsSaidAndNothingHalfMadeStays(t *testing.T) {
	b, p := newBoard(t)
	s := addTask(t, b, p, "before")
	limit := func(pages int) {
		testkit.Must(t, b.writer.conn.QueryRowContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages)).Scan(new(int)))
	}
	limit(1) // taken for the present size
	huge := strings.Repeat("x", 1<<20)
	_, err := b.CreateAttempt(t.Context(), task.Attempt{TaskID: s.ID, Executor: "X", Branch: "b", Workspace: "/w"}, task.Execution{Prompt: huge}, task.Request{})
	testkit.True(t, errors.Is(err, task.ErrFull) && code(err) != 0 && strings.Contains(err.Error(), "free space on the disk that holds "+b.o.Path), "%v", err)
	testkit.Same(t, taskOf(t, b, s.ID), s)
	limit(1 << 20)
	testkit.Works(t, testkit.Get(b.CreateAttempt(t.Context(), task.Attempt{TaskID: s.ID, Executor: "X", Branch: "b", Workspace: "/w"}, task.Execution{Prompt: huge}, task.Request{})).Err())
}

func TestReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "board.db")
	open := func() board {
		b := testkit.Get(openBoard(t.Context(), Options{Path: path, ReadOnly: true})).Must(t)
		t.Cleanup(func() { b.Close() })
		return b
	}
	b := open()
	if list, total, next, err := b.Projects(t.Context(), task.Page{Limit: 5}); len(list) != 0 || total != 0 || next != "" || err != nil {
		t.Error(list, total, next, err)
	}
	testkit.Equal(t, len(testkit.Get(b.AllAttempts(t.Context())).Must(t)), 0)
	testkit.Works(t, b.SyncProjects(t.Context(), nil, false), "nothing differs")
	testkit.FailsWith(t, b.SyncProjects(t.Context(), []task.ProjectSpec{root}, false), task.ErrFull)
	testkit.FailsWith(t, testkit.Get(os.Stat(filepath.Dir(path))).Err(), fs.ErrNotExist, "reading made a folder")
	version := func(b board) int64 { return testkit.Get(b.Version(t.Context())).Must(t) }
	testkit.Equal(t, version(b), 0, "the version without a file")
	w := openAt(t, path, time.Now)
	testkit.Equal(t, version(b), 0, "the version of a database that was made later")
	p := rootOf(t, w)
	s := addTask(t, w, p, "one")
	b = open()
	testkit.Same(t, taskOf(t, b, s.ID), s)
	if err := b.DeleteTask(t.Context(), s.ID); !errors.Is(err, task.ErrFull) || !strings.Contains(err.Error(), "for reading only") {
		t.Error(err)
	}
	before := version(b)
	testkit.Equal(t, version(b), before, "the version without a change")
	later := addTask(t, w, p, "two")
	taskOf(t, b, later.ID) // it sees what others write
	testkit.True(t, version(b) != before, "a change by others has the same version")
}

func TestReadOnlyFile(t *testing.T) {
	if os.Getuid() <= 0 {
		t.Skip("the user may write any file")
	}
	path := filepath.Join(t.TempDir(), "board.db")
	b := openAt(t, path, time.Now)
	rootOf(t, b)
	testkit.Must(t, b.Close())
	testkit.Must(t, os.Chmod(path, 0o400))
	b, err := openBoard(t.Context(), Options{Path: path})
	if err == nil {
		defer b.Close()
		err = b.SyncProjects(t.Context(), nil, false)
	}
	testkit.FailsWith(t, err, task.ErrFull)
}

// On a disk that is not writable a board can be read.
func TestReadOnlyFolder(t *testing.T) {
	if os.Getuid() <= 0 {
		t.Skip("the user may write any folder")
	}
	path := filepath.Join(t.TempDir(), "sub", "board.db")
	b := openAt(t, path, time.Now)
	p := rootOf(t, b)
	s := addTask(t, b, p, "kept")
	testkit.Must(t, b.Close())
	testkit.Must(t, os.Chmod(filepath.Dir(path), 0o500))
	t.Cleanup(func() {
		testkit.Works(t, os.Chmod(filepath.Dir(path), 0o700))
	})
	for _, readOnly := range []bool{false, true} {
		b := testkit.Get(openBoard(t.Context(), Options{Path: path, ReadOnly: readOnly})).Must(t)
		testkit.Same(t, taskOf(t, b, s.ID), s)
		testkit.FailsWith(t, testkit.Get(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "x"}, task.Request{})).Err(), task.ErrFull)
		testkit.Works(t, b.Close())
	}
	testkit.FailsWith(t, testkit.Get(openBoard(t.Context(), Options{Path: filepath.Join(filepath.Dir(path), "x", "board.db")})).Err(), task.ErrFull)
	testkit.FailsWith(t, testkit.Get(openBoard(t.Context(), Options{Path: filepath.Join(filepath.Dir(path), "new.db")})).Err(), task.ErrFull)
}

// The writer of another process is waited for, as long as the caller's context
// lives, and no longer.
func TestLockedBoardIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	b := openAt(t, path, time.Now)
	p := rootOf(t, b)
	db := raw(t, path)
	other := testkit.Get(db.Conn(t.Context())).Must(t)
	defer other.Close()
	testkit.Must(t, second(other.ExecContext(t.Context(), "BEGIN IMMEDIATE")))
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	testkit.FailsWith(t, testkit.Get(b.CreateTask(ctx, task.NewTask{ProjectID: p.ID, Title: "x"}, task.Request{})).Err(), context.DeadlineExceeded)
	if _, total, _, err := b.Tasks(t.Context(), p.ID, task.Filter{}, task.Page{Limit: 1}); err != nil || total != 0 {
		t.Error("a reader waits for a writer:", total, err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "x"}, task.Request{})
		done <- err
	}()
	testkit.Must(t, second(other.ExecContext(t.Context(), "COMMIT")))
	testkit.Works(t, <-done)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.FailsWith(t, testkit.Get(b.CreateTask(ended, task.NewTask{ProjectID: p.ID, Title: "x"}, task.Request{})).Err(), context.Canceled)
	testkit.FailsWith(t, testkit.Get(b.AllAttempts(ended)).Err(), context.Canceled)
}

// A bug in a change undoes it, and leaves the board usable.
func TestPanicUndoesAChange(t *testing.T) {
	b, p := newBoard(t)
	func() {
		defer func() { _ = recover() }()
		_ = b.Transact(t.Context(), sqlstore.Writing, func(ctx context.Context, q sqlstore.Querier) error {
			testkit.Works(t, testkit.Get(q.ExecContext(ctx, `DELETE FROM projects`)).Err())
			panic("a bug")
		})
	}()
	testkit.Works(t, testkit.Get(b.Project(t.Context(), p.ID)).Err())
	addTask(t, b, p, "afterwards")
}

// The names of the scripts begin with their numbers, without a gap.
func TestMigrationsAreNumbered(t *testing.T) {
	names, err := fs.Glob(files, "migrations/*.sql")
	testkit.Need(t, err == nil && len(names) == latest(), "%v %v", names, err)
	for i, name := range names {
		testkit.True(t, strings.HasPrefix(name, fmt.Sprintf("migrations/%04d_", i+1)), "%s is not migration number %d", name, i+1)
	}
}

// A reader that holds its transaction while a writer starts an execution goes on to
// see what was before it: without that, what is read second is of another moment.
func TestReq004_AnAttemptIsReadFromOneState(t *testing.T) {
	b, p := newBoard(t)
	a := try(t, b, addTask(t, b, p, "one"))
	statements := 0
	before, err := spied(b, func(string, []any) {
		if statements++; statements == 2 {
			run(t, b) // in the middle of the reading
		}
	}).AttemptDetails(t.Context(), a.ID)
	testkit.Need(t, err == nil && statements >= 3, "%v %v", statements, err)
	testkit.True(t, before.Attempt.State == task.Waiting && before.Attempt.LatestSessionID == nil && before.Execution.State == task.Waiting && before.Session == nil, "two moments: %+v %+v", before.Attempt, before.Execution)
	now := testkit.Get(b.AttemptDetails(t.Context(), a.ID)).Must(t)
	testkit.True(t, now.Execution.State == task.Running && now.Session != nil, "%+v", now)
}

// The cost of what is called often must not grow with the board: every access is by an index, and
// nothing is sorted.
func TestListsUseIndexes(t *testing.T) {
	b, p := newBoard(t)
	s := addTask(t, b, p, "one")
	a := try(t, b, s)
	testkit.Must(t, second(b.CreateAttempt(t.Context(), task.Attempt{TaskID: s.ID, Executor: "X", Branch: "b", Workspace: "/w"}, task.Execution{Prompt: "do it"}, task.Request{})))
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
		"a creation":        second(spy.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "two"}, task.Request{Identity: "me", Tool: "t", RequestID: "r"})),
		"a claim":           second(spy.ClaimNext(t.Context(), "me", 5, nil, task.Limits{})),
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
				if strings.HasPrefix(s.Detail, "SCAN") && s.Detail != "SCAN CONSTANT ROW" || strings.Contains(s.Detail, "TEMP B-TREE") && !strings.Contains(query, "'running') AND step_id IS NULL ORDER BY") {
					t.Errorf("%s\n%s", s.Detail, query)
				}
			}
		}
	}))
}

func second[T any](_ T, err error) error             { return err }
func last[A, B, C any](_ A, _ B, _ C, e error) error { return e }
