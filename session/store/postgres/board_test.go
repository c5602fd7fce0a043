package postgres

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/store"
	"deepwork/session/store/postgres/pgtest"
	"deepwork/session/store/sqlstore"
)

func boardOf(t testing.TB, url, project string) (*Store, store.Board) {
	t.Helper()
	s := openAs(t, url, project, "/srv/shop")
	return s, s.Database().Board()
}

func spec(name, path string, root bool) task.ProjectSpec {
	return task.ProjectSpec{Name: name, Root: root, Repos: []task.RepoSpec{{Name: "shop", Path: path}}}
}

func synced(t testing.TB, b store.Board, all ...task.ProjectSpec) {
	t.Helper()
	must(t, b.SyncProjects(t.Context(), all, true))
}

// shopOf returns the board of another process and project, and the id of its only project of a config.
func shopOf(t testing.TB, url, project string) (*Store, store.Board, string) {
	t.Helper()
	s, b := boardOf(t, url, project)
	synced(t, b, spec("shop", "/srv/shop", true))
	return s, b, listed(t, b)["shop"].ID
}

func addTask(t testing.TB, b store.Board, project, title string, dependsOn ...string) *task.Summary {
	t.Helper()
	return testkit.Get(b.CreateTask(t.Context(), task.NewTask{ProjectID: project, Title: title, DependsOn: dependsOn},
		task.Request{})).Must(t)
}

func try(t testing.TB, b store.Board, s *task.Summary) *task.Attempt {
	t.Helper()
	return testkit.Get(b.CreateAttempt(t.Context(), task.Attempt{TaskID: s.ID, Executor: "X", Branch: "b"},
		task.Execution{Prompt: "do it"}, task.Request{})).Must(t)
}

func listed(t testing.TB, b store.Board) map[string]task.Project {
	t.Helper()
	all, _, _, err := b.Projects(t.Context(), task.Page{Limit: 100})
	must(t, err)
	byName := make(map[string]task.Project)
	for _, p := range all {
		byName[p.Name] = p
	}
	return byName
}

func change(t testing.TB, s *Store, statements ...string) {
	t.Helper()
	for _, text := range statements {
		must(t, second(s.exec(t.Context(), text)))
	}
}

func second[T any](_ T, err error) error { return err }

func TestProjectsOfASchemaAreSeparate(t *testing.T) {
	url := newURL(t)
	_, one, first := shopOf(t, url, "one")
	other, two, next := shopOf(t, url, "two")
	request := task.Request{Identity: "me", Tool: "create_task", RequestID: "r"}
	made := []*task.Summary{
		testkit.Get(one.CreateTask(t.Context(), task.NewTask{ProjectID: first, Title: "A task"}, request)).Must(t),
		testkit.Get(two.CreateTask(t.Context(), task.NewTask{ProjectID: next, Title: "A task"}, request)).Must(t),
	}
	testkit.True(t, made[0].ID != made[1].ID, "the request of one project gave the result of the other")
	testkit.FailsWith(t, testkit.Get(two.Task(t.Context(), made[0].ID)).Err(), task.ErrNotFound,
		"the task of another project")
	testkit.FailsWith(t, testkit.Get(two.BeginDelete(t.Context(), made[0].ID)).Err(), task.ErrNotFound,
		"deleting the task of another project")
	testkit.Fails(t, other.Transact(t.Context(), sqlstore.Writing, func(ctx context.Context, q sqlstore.Querier) error {
		return second(q.ExecContext(ctx, `UPDATE tasks SET scope = scope - 1`))
	}), "check option", "moving a row to another project")

	change(t, other, `UPDATE @tasks_all SET id = 'same'`)
	for _, b := range []store.Board{one, two} {
		testkit.Works(t, testkit.Get(b.UpdateTask(t.Context(), "same", task.TaskChange{Status: new(task.Done)})).Err())
	}
	must(t, one.DeleteTask(t.Context(), "same"))
	testkit.Equal(t, testkit.Get(two.Task(t.Context(), "same")).Must(t).Title, "A task")

	for b, tasks := range map[store.Board]int{one: 0, two: 1} {
		found, s, err := b.Inspect(t.Context())
		testkit.Need(t, len(found) == 0, "%v, %+v, %v", found, s, err)
		testkit.Equal(t, s.Tasks, tasks)
		testkit.True(t, err == nil, "%v, %+v, %v", found, s, err)
	}
}

// The board has the projects of all machines. Each machine has its own folders, and its own name for that of the root.
func TestMachinesWithDifferentProjects(t *testing.T) {
	url := newURL(t)
	_, red := boardOf(t, url, "shop")
	_, blue := boardOf(t, url, "shop")
	synced(t, red, spec("shop", "/red/shop", true), spec("site", "/red/site", false))
	synced(t, blue, spec("shop-2", "/blue/shop-2", true), spec("tool", "/blue/tool", false))
	before := listed(t, red)
	synced(t, red, spec("shop", "/red/shop", true), spec("site", "/red/site", false))
	for name, want := range map[string][2]string{
		"shop": {"/red/shop", "/blue/shop-2"},
		"site": {"/red/site", ""},
		"tool": {"", "/blue/tool"},
	} {
		for i, b := range []store.Board{red, blue} {
			testkit.Equal(t, listed(t, b)[name], before[name])
			repo := onlyRepo(t, b, before[name].ID)
			testkit.Equal(t, repo.Path, want[i], "%s of %d", name, i)
			testkit.Equal(t, *testkit.Get(b.Repo(t.Context(), repo.ID)).Must(t), repo)
		}
	}
	testkit.Equal(t, fmt.Sprint(testkit.Get(blue.RepoPaths(t.Context(), task.Place{})).Must(t)),
		"[/blue/shop-2 /blue/tool]")

	_, third := boardOf(t, url, "shop") // without a config
	testkit.Equal(t, onlyRepo(t, third, before["site"].ID).Path, "")
}

func onlyRepo(t testing.TB, b store.Board, project string) task.Repo {
	t.Helper()
	all, _, _, err := b.Repos(t.Context(), project, task.Page{Limit: 5})
	testkit.Need(t, err == nil && len(all) == 1, "%+v, %v", all, err)
	return all[0]
}

// Each inspection finds what this program never writes.
func TestInspectionsOfDamagedRows(t *testing.T) {
	s, b, p := shopOf(t, newURL(t), "shop")
	made := addTask(t, b, p, "A task")
	a := try(t, b, made)
	executions := s.Database().RemoteRuns()

	x := &store.RemoteRun{
		ID:              "x",
		Identity:        "me",
		State:           store.RemoteWaiting,
		StatusSupported: true,
	}
	row := store.WorkRow{Kind: store.RemoteWork, Key: "x"}
	must(t, executions.Add(t.Context(), x, row))
	finds := func(want, damage, repair string) {
		t.Helper()
		change(t, s, damage)
		found, _, err := b.Inspect(t.Context())
		testkit.Need(t, err == nil && len(found) == 1, "%s: found %+v, %v", damage, found, err)
		testkit.Contains(t, found[0].What, want, "%s", damage)
		testkit.Equal(t, found[0].Where, s.Where())
		change(t, s, repair)
	}
	finds("attempt "+a.ID+" is running, and its newest execution", `UPDATE @attempts_all SET state = 'running'`,
		`UPDATE @attempts_all SET state = 'waiting'`)
	finds("waits and has an owner", `UPDATE @executions_all SET owner = 'me'`,
		`UPDATE @executions_all SET owner = NULL`)
	finds("project "+p+" has 1 tasks that are inprogress, and counts 3",
		`UPDATE @task_counts_all SET tasks = 3 WHERE tasks = 1`,
		`UPDATE @task_counts_all SET tasks = 1 WHERE tasks = 3`)
	finds("is being deleted", `UPDATE @tasks_all SET deleting_at = '1'`, `UPDATE @tasks_all SET deleting_at = NULL`)
	synced(t, b, spec("shop", "/srv/shop", true), spec("front", "/srv/front", false))
	other, next := addTask(t, b, listed(t, b)["front"].ID, "In front"), addTask(t, b, p, "Next", made.ID)
	for want, damage := range map[string][2]string{
		" depends on itself through others":                                     {made.ID, next.ID},
		"task " + next.ID + " depends on " + other.ID + ", which is of another": {next.ID, other.ID},
	} {
		finds(want, `INSERT INTO @task_dependencies_all SELECT scope, '`+damage[0]+`', '`+damage[1]+
			`' FROM @tasks_all WHERE id = '`+made.ID+`'`,
			`DELETE FROM @task_dependencies_all WHERE task_id = '`+damage[0]+`' AND depends_on = '`+damage[1]+`'`)
	}

	for column, want := range map[string]string{
		"result = '{'":        "is not JSON",
		"progress = ''":       "is not JSON",
		"started_at = 'noon'": "the times of execution x",
		"id = 'y'":            "no server will follow it",
	} {
		change(t, s, `UPDATE @workflow_executions_all SET `+column)
		found, n, open, err := executions.Inspect(t.Context())
		testkit.Need(t, err == nil, "%s: found %+v of %d, %d open; %v", column, found, n, open, err)
		testkit.Equal(t, n, 1, "%s: found %+v of %d, %d open; %v", column, found, n, open, err)
		testkit.Equal(t, open, 1, "%s: found %+v of %d, %d open; %v", column, found, n, open, err)
		testkit.Need(t, len(found) != 0, "%s: found %+v of %d, %d open; %v", column, found, n, open, err)
		testkit.Contains(t, found[0].What, want, "%s: found %+v of %d, %d open; %v", column, found, n, open, err)

		change(t, s, `DELETE FROM @workflow_executions_all`)
		must(t, executions.Add(t.Context(), x, row))
	}
	found, _, err := b.Inspect(t.Context())
	testkit.True(t, len(found) == 0 && err == nil, "%v, %v", found, err)
}

// A spy has see called with each statement of a database, after it.
type spy struct {
	database
	see func(query string, args []any)
}

func (s spy) Transact(ctx context.Context, mode sqlstore.Mode, f func(context.Context, sqlstore.Querier) error) error {
	return s.database.Transact(ctx, mode, func(ctx context.Context, q sqlstore.Querier) error {
		return f(ctx, seen{q, s.see})
	})
}

type seen struct {
	sqlstore.Querier
	see func(query string, args []any)
}

func (s seen) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	defer s.see(query, args)
	return s.Querier.ExecContext(ctx, query, args...)
}

func (s seen) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	defer s.see(query, args)
	return s.Querier.QueryContext(ctx, query, args...)
}

func (s seen) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	defer s.see(query, args)
	return s.Querier.QueryRowContext(ctx, query, args...)
}

// The cost of what is called often must not grow with the board: the index of each list gives its rows in their order.
func TestListsUseIndexes(t *testing.T) {
	s, b, p := shopOf(t, newURL(t), "shop")
	slow := regexp.MustCompile("Seq Scan on (tasks|attempts|executions)_all|Sort")
	queries := make(map[string][]any)
	spied := sqlstore.New(spy{database{Store: s}, func(query string, args []any) {
		if strings.Contains(query, "SELECT") {
			queries[query] = args
		}
	}}, sqlstore.Options{Shared: true}).Board()
	made := addTask(t, b, p, "A task")
	a := try(t, b, made)

	change(t, s,
		`INSERT INTO @tasks_all (scope, id, project_id, title, status, created_at, updated_at, identity, caller_group)
			SELECT scope, md5(n::text), project_id, title, (ARRAY['todo', 'done'])[n % 2 + 1], '2026-01-01T' || `+
			`to_char(interval '1 s' * n, 'HH24:MI:SS') || '.000000Z', updated_at, identity, caller_group FROM `+
			`@tasks_all, generate_series(1, 2000) n`,
		`INSERT INTO @attempts_all (scope, id, task_id, executor, branch, workspace, state, created_at, `+
			`updated_at, identity, caller_group)
			SELECT scope, md5(id || n), id, 'X', md5(id || n), '', 'completed', created_at, created_at, '', '' `+
			`FROM @tasks_all, generate_series(1, 3) n`,
		`INSERT INTO @sessions_all (scope, id, attempt_id, executor, created_at, updated_at) SELECT scope, id, id, `+
			`'X', created_at, created_at FROM @attempts_all`,
		`INSERT INTO @executions_all (scope, id, attempt_id, log_id, follow_up, prompt, executor, state, `+
			`created_at, ended_at)
			SELECT scope, id, id, id, FALSE, '', 'X', 'completed', created_at, created_at FROM @attempts_all WHERE `+
			`state = 'completed'`,
		`ANALYZE @tasks_all, @attempts_all, @sessions_all, @executions_all`)

	page := task.Page{Limit: 50}
	for _, f := range []task.Filter{{}, {Status: task.Done}} {
		_, _, _, err := spied.Tasks(t.Context(), p, f, page)
		must(t, err)
	}
	must(t, second(spied.TaskAttempts(t.Context(), made.ID, page)))
	must(t, second(spied.AttemptDetails(t.Context(), a.ID)))
	must(t, second(spied.BranchTaken(t.Context(), "b")))
	must(t, second(spied.ClaimNext(t.Context(), "me", 5, nil, task.Limits{})))
	testkit.True(t, len(queries) >= 12, "only %d queries", len(queries))

	must(t, s.Transact(t.Context(), sqlstore.Reading, func(ctx context.Context, q sqlstore.Querier) error {
		for query, args := range queries {
			rows := testkit.Get(q.QueryContext(ctx, "EXPLAIN "+query, args...)).Must(t)
			plan := ""
			for rows.Next() {
				var line string
				must(t, rows.Scan(&line))
				plan += line + "\n"
			}
			must(t, rows.Close())
			testkit.True(t, !slow.MatchString(plan), "%s\n%s", query, plan)
		}

		return nil
	}))
}

const benchTime = time.Second / 2

func perSecond(b *testing.B, callers int, f func(caller, n int) error) float64 {
	b.Helper()
	var all sync.WaitGroup
	var count atomic.Int64
	began := time.Now()
	for c := range callers {
		all.Go(func() {
			for n := 0; time.Since(began) < benchTime; n++ {
				testkit.Must(b, f(c, n))
				count.Add(1)
			}
		})
	}
	all.Wait()
	return float64(count.Load()) / time.Since(began).Seconds()
}

func text(size int) (all string) {
	for len(all) < size {
		all += fmt.Sprintf("step wrote output_%x.md; ", rand.Uint64())
	}
	return all[:size]
}

// moving returns a function that makes transitions of a session of each caller, as workflows of 25 steps do:
// each ends a step, begins the next one, stores its reply, with a request id, and drops the reply before the
// last one.
func moving(b *testing.B, s *Store, callers int) func(caller, n int) error {
	sessions := sessionsOf(s)
	frame := text(1024)
	step := text(300)
	reply := text(1200)
	count := make([]int64, callers) // of transitions
	return func(caller, _ int) error {
		n := count[caller]
		count[caller]++
		at := n % 25
		w := transition(fmt.Sprintf("01%02x%04x", caller, n/25), at+1)
		w.Goal = "A goal of a few words"
		w.Frame = frame
		w.UpdatedAt = time.Now()
		w.Put = []store.SessionPart{{Kind: "step", Key: fmt.Sprint(at), Position: at, Body: step},
			{Kind: "step", Key: fmt.Sprint(at + 1), Position: at + 1, Body: step[:100]},
			{Kind: "reply", Key: fmt.Sprint(at), Position: at, Body: reply}}
		if at > 1 {
			w.Gone = []store.SessionPart{{Kind: "reply", Key: fmt.Sprint(at - 2)}}
		}
		w.Request = &store.Key{1, byte(caller)}
		binary.BigEndian.PutUint64(w.Request[2:], uint64(n))
		written, err := sessions.WriteSession(b.Context(), w)
		if err == nil && !written {
			err = fmt.Errorf("transition %d of %s was not made", n, w.ID)
		}
		return err
	}
}

// BenchmarkTransitions compares the transitions per second of 64 callers with bare updates of rows by as
// many: rows as large as a whole session, which a transition would replace if a session was one row, and as
// large as what a transition writes.
func BenchmarkTransitions(b *testing.B) {
	const callers = 64
	server := pgtest.New(b, "max_connections=200")
	s := openAt(b, server.URL())
	config := testkit.Get(pgx.ParseConfig(server.At(""))).Must(b)
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.StatementCacheCapacity = 0
	config.DescriptionCacheCapacity = 0
	bare := make([]*pgx.Conn, callers)
	for i := range bare {
		bare[i] = testkit.Get(pgx.ConnectConfig(b.Context(), config)).Must(b)
		defer bare[i].Close(context.Background())
	}
	testkit.Get(bare[0].Exec(b.Context(),
		`CREATE TABLE bare (id bigint PRIMARY KEY, version bigint NOT NULL, body text NOT NULL) WITH (fillfactor = `+
			`60)`)).Must(b)
	testkit.Get(bare[0].Exec(b.Context(), `INSERT INTO bare SELECT n, 0, '' FROM generate_series(0, $1) n`, callers-1)).
		Must(b)
	updating := func(size int) func(caller, n int) error {
		bodies := []string{text(size), text(size)}
		return func(caller, n int) error {
			return second(bare[caller].Exec(b.Context(),
				`UPDATE bare SET body = $2, version = version + 1 WHERE id = $1`, caller, bodies[n%2]))
		}
	}
	kinds := map[string]func(caller, n int) error{
		"whole":       updating(7000),
		"bare":        updating(2600),
		"transitions": moving(b, s, callers),
	}
	rate := map[string]float64{}
	for _, f := range kinds { // they connect
		perSecond(b, callers, f)
	}
	for b.Loop() {
		for kind, f := range kinds {
			rate[kind] += perSecond(b, callers, f)
		}
	}
	b.ReportMetric(rate["transitions"]/float64(b.N), "transitions/s")
	b.ReportMetric(rate["bare"]/float64(b.N), "bare/s")
	b.ReportMetric(rate["transitions"]/rate["bare"], "of-bare")
	b.ReportMetric(rate["transitions"]/rate["whole"], "of-whole")
}
