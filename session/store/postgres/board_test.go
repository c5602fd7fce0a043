package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/store"
	"deepwork/session/store/postgres/pgtest"
	"deepwork/session/store/sqlstore"
)

// boardOf returns the board of another process and project.
func boardOf(t testing.TB, url, project string) (*Store, store.Board) {
	t.Helper()
	o := options(url)
	o.Project = project
	s := testkit.Get(Open(o)).Must(t)
	t.Cleanup(func() { must(t, s.Close(context.Background())) })
	return s, s.Database().Board()
}

// spec is a project of a config, with a repository of the same name.
func spec(name, path string, root bool) task.ProjectSpec {
	return task.ProjectSpec{Name: name, Root: root, Repos: []task.RepoSpec{{Name: "shop", Path: path}}}
}

// listed are the projects of a board by their names.
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

// change runs statements on all projects of the schema.
func change(t testing.TB, s *Store, statements ...string) {
	t.Helper()
	for _, text := range statements {
		must(t, second(s.exec(t.Context(), text)))
	}
}

func second[T any](_ T, err error) error { return err }

// Rows of one project of a schema are invisible to another, also if their ids are the same.
func TestProjectsOfASchemaAreSeparate(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	_, one := boardOf(t, url, "one")
	other, two := boardOf(t, url, "two")
	request := task.Request{Identity: "me", Tool: "create_task", RequestID: "r"}
	var made []*task.Summary
	for _, b := range []store.Board{one, two} {
		must(t, b.SyncProjects(t.Context(), []task.ProjectSpec{spec("shop", "/srv/shop", true)}, true))
		s := testkit.Get(b.CreateTask(t.Context(), task.NewTask{ProjectID: listed(t, b)["shop"].ID, Title: "A task"}, request)).Must(t)
		made = append(made, s)
	}
	testkit.True(t, made[0].ID != made[1].ID, "the request of one project gave the result of the other")
	testkit.FailsWith(t, testkit.Get(two.Task(t.Context(), made[0].ID)).Err(), task.ErrNotFound, "the task of another project")
	testkit.FailsWith(t, testkit.Get(two.BeginDelete(t.Context(), made[0].ID)).Err(), task.ErrNotFound, "deleting the task of another project")
	err := other.Transact(t.Context(), sqlstore.Writing, func(ctx context.Context, q sqlstore.Querier) error {
		_, err := q.ExecContext(ctx, `UPDATE tasks SET scope = scope - 1`)
		return err
	})
	testkit.Fails(t, err, "check option", "moving a row to another project")
	change(t, other, `UPDATE @tasks_all SET id = 'same'`)
	for _, b := range []store.Board{one, two} {
		testkit.Works(t, testkit.Get(b.UpdateTask(t.Context(), "same", task.TaskChange{Status: new(task.Done)})).Err())
	}
	must(t, one.DeleteTask(t.Context(), "same"))
	testkit.Equal(t, testkit.Get(two.Task(t.Context(), "same")).Must(t).Title, "A task")
	for b, tasks := range map[store.Board]int{one: 0, two: 1} {
		if found, s, err := b.Inspect(t.Context()); len(found) > 0 || s.Tasks != tasks || err != nil {
			t.Errorf("%v, %+v, %v", found, s, err)
		}
	}
}

// The board has the projects of all machines. Each machine has its own folders, and its own name for
// the folder of the root.
func TestMachinesWithDifferentProjects(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	_, red := boardOf(t, url, "shop")
	_, blue := boardOf(t, url, "shop")
	must(t, red.SyncProjects(t.Context(), []task.ProjectSpec{spec("shop", "/red/shop", true), spec("site", "/red/site", false)}, true))
	must(t, blue.SyncProjects(t.Context(), []task.ProjectSpec{spec("shop-2", "/blue/shop-2", true), spec("tool", "/blue/tool", false)}, true))
	before := listed(t, red)
	must(t, red.SyncProjects(t.Context(), []task.ProjectSpec{spec("shop", "/red/shop", true), spec("site", "/red/site", false)}, true))
	for name, want := range map[string][2]string{"shop": {"/red/shop", "/blue/shop-2"}, "site": {"/red/site", ""}, "tool": {"", "/blue/tool"}} {
		for i, b := range []store.Board{red, blue} {
			p := listed(t, b)[name]
			testkit.Equal(t, p, before[name])
			repos, _, _, err := b.Repos(t.Context(), p.ID, task.Page{Limit: 5})
			if err != nil || len(repos) != 1 || repos[0].Path != want[i] {
				t.Errorf("%s has %+v, want the path %q; %v", name, repos, want[i], err)
				continue
			}
			testkit.Equal(t, *testkit.Get(b.Repo(t.Context(), repos[0].ID)).Must(t), repos[0])
		}
	}
	testkit.Equal(t, fmt.Sprint(testkit.Get(blue.RepoPaths(t.Context(), task.Place{})).Must(t)), "[/blue/shop-2 /blue/tool]")
	_, third := boardOf(t, url, "shop") // without a config
	if repos, _, _, err := third.Repos(t.Context(), before["site"].ID, task.Page{Limit: 5}); err != nil || len(repos) != 1 || repos[0].Path != "" {
		t.Errorf("%+v, %v", repos, err)
	}
}

// Each inspection finds what this program never writes.
func TestInspectionsOfDamagedRows(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, b := boardOf(t, url, "shop")
	must(t, b.SyncProjects(t.Context(), []task.ProjectSpec{spec("shop", "/srv/shop", true)}, true))
	p := listed(t, b)["shop"]
	made := testkit.Get(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "A task"}, task.Request{})).Must(t)
	a := testkit.Get(b.CreateAttempt(t.Context(), task.Attempt{TaskID: made.ID, Executor: "X", Branch: "b"}, task.Execution{Prompt: "do it"}, task.Request{})).Must(t)
	executions := s.Database().Executions()
	x := &store.Execution{ID: "x", Owner: "0011223344556677", Identity: "me", State: store.ExecutionWaiting, StatusSupported: true}
	must(t, executions.Save(t.Context(), x, time.Hour))
	for _, c := range []struct{ damage, repair, want string }{
		{`UPDATE @attempts_all SET state = 'running'`, `UPDATE @attempts_all SET state = 'waiting'`, "attempt " + a.ID + " is running, and its newest execution"},
		{`UPDATE @executions_all SET owner = 'me'`, `UPDATE @executions_all SET owner = NULL`, "waits and has an owner"},
		{`UPDATE @task_counts_all SET tasks = 3 WHERE tasks = 1`, `UPDATE @task_counts_all SET tasks = 1 WHERE tasks = 3`, "project " + p.ID + " has 1 tasks that are inprogress, and counts 3"},
		{`UPDATE @tasks_all SET deleting_at = '1'`, `UPDATE @tasks_all SET deleting_at = NULL`, "is being deleted"},
	} {
		change(t, s, c.damage)
		if found, _, err := b.Inspect(t.Context()); err != nil || len(found) != 1 || !strings.Contains(found[0].What, c.want) || found[0].Where != s.Where() {
			t.Errorf("%s: found %+v, want %q; %v", c.damage, found, c.want, err)
		}
		change(t, s, c.repair)
	}
	must(t, b.SyncProjects(t.Context(), []task.ProjectSpec{spec("shop", "/srv/shop", true), spec("front", "/srv/front", false)}, true))
	other := testkit.Get(b.CreateTask(t.Context(), task.NewTask{ProjectID: listed(t, b)["front"].ID, Title: "In front"}, task.Request{})).Must(t)
	next := testkit.Get(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "Next", DependsOn: []string{made.ID}}, task.Request{})).Must(t)
	for want, damage := range map[string][2]string{
		" depends on itself through others":                                     {made.ID, next.ID},
		"task " + next.ID + " depends on " + other.ID + ", which is of another": {next.ID, other.ID},
	} {
		change(t, s, `INSERT INTO @task_dependencies_all SELECT scope, '`+damage[0]+`', '`+damage[1]+`' FROM @tasks_all WHERE id = '`+made.ID+`'`)
		if found, _, err := b.Inspect(t.Context()); err != nil || len(found) != 1 || !strings.Contains(found[0].What, want) {
			t.Errorf("found %+v, want %q; %v", found, want, err)
		}
		change(t, s, `DELETE FROM @task_dependencies_all WHERE task_id = '`+damage[0]+`' AND depends_on = '`+damage[1]+`'`)
	}
	for column, want := range map[string]string{"result = '{'": "is not JSON", "progress = ''": "is not JSON", "started_at = 'noon'": "the times of execution x", "owner = ''": "has no owner"} {
		change(t, s, `UPDATE @workflow_executions_all SET `+column)
		found, n, open, err := executions.Inspect(t.Context())
		testkit.True(t, err == nil && n == 1 && open == 1 && len(found) != 0 && strings.Contains(found[0].What, want), "%s: found %+v of %d, %d open; %v", column, found, n, open, err)
		change(t, s, `DELETE FROM @workflow_executions_all`)
		must(t, executions.Save(t.Context(), x, time.Hour))
	}
	if found, _, err := b.Inspect(t.Context()); len(found) > 0 || err != nil {
		t.Error(found, err)
	}
}

// A spy sees the statements of a database.
type spy struct {
	database
	see func(query string, args []any)
}

func (s spy) Transact(ctx context.Context, mode sqlstore.Mode, f func(context.Context, sqlstore.Querier) error) error {
	return s.database.Transact(ctx, mode, func(ctx context.Context, q sqlstore.Querier) error { return f(ctx, seen{q, s.see}) })
}

type seen struct {
	sqlstore.Querier
	see func(query string, args []any)
}

func (s seen) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s.see(query, args)
	return s.Querier.QueryContext(ctx, query, args...)
}

func (s seen) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	s.see(query, args)
	return s.Querier.QueryRowContext(ctx, query, args...)
}

// The cost of what is called often must not grow with the board: the index of each list gives its
// rows in their order.
func TestListsUseIndexes(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, b := boardOf(t, url, "shop")
	must(t, b.SyncProjects(t.Context(), []task.ProjectSpec{spec("shop", "/srv/shop", true)}, true))
	p := listed(t, b)["shop"]
	queries := make(map[string][]any)
	spied := sqlstore.New(spy{database{Store: s}, func(query string, args []any) { queries[query] = args }}, sqlstore.Options{Shared: true}).Board()
	made := testkit.Get(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "A task"}, task.Request{})).Must(t)
	a := testkit.Get(b.CreateAttempt(t.Context(), task.Attempt{TaskID: made.ID, Executor: "X", Branch: "b"}, task.Execution{Prompt: "do it"}, task.Request{})).Must(t)
	change(t, s,
		`INSERT INTO @tasks_all (scope, id, project_id, title, status, created_at, updated_at, identity, caller_group)
			SELECT scope, md5(n::text), project_id, title, (ARRAY['todo', 'done'])[n % 2 + 1], '2026-01-01T' || to_char(interval '1 s' * n, 'HH24:MI:SS') || '.000000Z', updated_at, identity, caller_group FROM @tasks_all, generate_series(1, 2000) n`,
		`INSERT INTO @attempts_all (scope, id, task_id, executor, branch, workspace, state, created_at, updated_at, identity, caller_group)
			SELECT scope, md5(id || n), id, 'X', md5(id || n), '', 'completed', created_at, created_at, '', '' FROM @tasks_all, generate_series(1, 3) n`,
		`INSERT INTO @sessions_all (scope, id, attempt_id, executor, created_at, updated_at) SELECT scope, id, id, 'X', created_at, created_at FROM @attempts_all`,
		`INSERT INTO @executions_all (scope, id, attempt_id, log_id, follow_up, prompt, executor, state, created_at, ended_at)
			SELECT scope, id, id, id, FALSE, '', 'X', 'completed', created_at, created_at FROM @attempts_all WHERE state = 'completed'`,
		`ANALYZE @tasks_all, @attempts_all, @sessions_all, @executions_all`)
	page := task.Page{Limit: 50}
	_, _, _, err := spied.Tasks(t.Context(), p.ID, task.Filter{}, page)
	must(t, err)
	_, _, _, err = spied.Tasks(t.Context(), p.ID, task.Filter{Status: task.Done}, page)
	must(t, err)
	must(t, second(spied.TaskAttempts(t.Context(), made.ID, page)))
	must(t, second(spied.AttemptDetails(t.Context(), a.ID)))
	must(t, second(spied.BranchTaken(t.Context(), "b")))
	must(t, second(spied.ClaimNext(t.Context(), "me", 5, nil, task.Limits{})))
	testkit.True(t, len(queries) >= 12, "only %d queries", len(queries))
	err = s.Transact(t.Context(), sqlstore.Reading, func(ctx context.Context, q sqlstore.Querier) error {
		for query, args := range queries {
			rows, err := q.QueryContext(ctx, "EXPLAIN "+query, args...)
			if err != nil {
				return fmt.Errorf("%s: %w", query, err)
			}
			var plan strings.Builder
			for rows.Next() {
				var line string
				if err := rows.Scan(&line); err != nil {
					return err
				}
				plan.WriteString(line + "\n")
			}
			if err := rows.Close(); err != nil {
				return err
			}
			if strings.Contains(plan.String(), "Seq Scan on tasks_all") || strings.Contains(plan.String(), "Seq Scan on attempts_all") ||
				strings.Contains(plan.String(), "Seq Scan on executions_all") || strings.Contains(plan.String(), "Sort") {
				t.Errorf("%s\n%s", query, &plan)
			}
		}
		return nil
	})
	must(t, err)
}

// Text that PostgreSQL refuses is stored all the same, and does not end a transaction.
func TestTextThatIsNotText(t *testing.T) {
	t.Parallel()
	_, b := boardOf(t, pgtest.URL(t), "shop")
	must(t, b.SyncProjects(t.Context(), []task.ProjectSpec{spec("shop", "/srv/shop", true)}, true))
	s, err := b.CreateTask(t.Context(), task.NewTask{ProjectID: listed(t, b)["shop"].ID, Title: "a\x00b\xffc"}, task.Request{})
	testkit.True(t, err == nil && s.Title == "a\x00b\uFFFDc", "%+v, %v", s, err)
}
