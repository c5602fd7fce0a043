package board

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/attempttest"
	"deepwork/session/codes"
	"deepwork/session/store"
	"deepwork/session/why"
)

// Seed 004, "MCP task tool set" and "Attempt terminology and identifiers".
func TestReq004_ProjectsAndRepos(t *testing.T) {
	p := newProject(t)
	p.Repo(filepath.Join(p.Root, "..", "web"))
	p.Configure(func(c *config.Config) {
		c.Projects = []config.Project{{
			Name:  "shop front",
			Repos: []config.Repo{{Name: "web", Path: "../web"}, {Path: filepath.Join(p.Root, "nothing")}},
		}}
	})
	s := p.open()
	r := testkit.Get(s.ListProjects(ctx, me, ListProjectsArgs{})).Must(t)
	testkit.Need(t, r.Count == 2, "%+v", r)
	testkit.Need(t, r.Total == 2, "%+v", r)
	testkit.Need(t, r.NextCursor == nil, "%+v", r)
	testkit.Need(t, r.Filters.Limit == DefaultLimit, "%+v", r)

	byName := map[string]Project{}
	for _, v := range r.Projects {
		byName[v.Name] = v
		attempttest.Times(t, v.CreatedAt, v.UpdatedAt)
	}
	testkit.True(t, byName["shop"].IsRoot && !byName["shop front"].IsRoot, "%+v", r.Projects)

	repos := testkit.Get(s.ListRepos(ctx, me, ListReposArgs{ProjectID: byName["shop front"].ProjectID})).Must(t)
	paths := map[string]string{}
	for _, v := range repos.Repos {
		paths[v.Name] = v.Path
	}
	testkit.Same(t, paths, map[string]string{
		"web":     filepath.Join(p.Root, "..", "web"),
		"nothing": filepath.Join(p.Root, "nothing"),
	})

	root := testkit.Get(s.ListRepos(ctx, me, ListReposArgs{ProjectID: byName["shop"].ProjectID})).Must(t)
	testkit.Need(t, len(root.Repos) == 1, "the root's: %+v", root.Repos)
	testkit.Equal(t, root.Repos[0].Path, p.Root, "the root's: %+v", root.Repos)
	testkit.Equal(t, root.Repos[0].Name, "shop", "the root's: %+v", root.Repos)

	// Ids outlive a restart and an edit of the config; a page is a part of the list.
	s.stop()
	testkit.FailsWith(t, testkit.Get(s.ListProjects(ctx, me, ListProjectsArgs{})).Err(), task.ErrClosed)

	again := p.open()
	first := testkit.Get(again.ListProjects(ctx, me, ListProjectsArgs{Limit: new(1)})).Must(t)
	testkit.Need(t, first.Count == 1, "the first page: %+v", first)
	testkit.Need(t, first.Total == 2, "the first page: %+v", first)
	testkit.Need(t, first.NextCursor != nil, "the first page: %+v", first)

	second := testkit.Get(again.ListProjects(ctx, me, ListProjectsArgs{Limit: new(1), Cursor: first.NextCursor})).
		Must(t)
	testkit.Same(t, append(first.Projects, second.Projects...), r.Projects, "the pages and the list")

	p.Configure(func(*config.Config) {})
	r = testkit.Get(again.ListProjects(ctx, me, ListProjectsArgs{})).Must(t)
	// another machine may have it
	testkit.True(t, r.Total == 1 || again.Shared != nil, "after the project left the config: %+v", r)
}

// A project that becomes a repository later has one from then on.
func TestRootBecomesARepository(t *testing.T) {
	p := newProject(t)
	must(t, os.RemoveAll(filepath.Join(p.Root, ".git")))
	s := p.open()
	for _, hasRepo := range []bool{false, true} {
		_, repo := s.rootProject()
		testkit.Equal(t, repo != "", hasRepo, "a repository %s", repo)
		p.Git(p.Root, "init", "-q", "-b", "main")
	}
}

// Seed 004, "list_tasks provides attempt summary".
func TestReq004_Tasks(t *testing.T) {
	s := newProject(t).open()
	project, _ := s.rootProject()
	var ids []string
	list := testkit.Get(s.ListTasks(ctx, me, ListTasksArgs{ProjectID: project})).Must(t)
	testkit.Contains(t, attempttest.JSON(list), `"tasks":[]`, "an empty list is a list")

	for i := range 3 {
		v := testkit.Get(s.CreateTask(ctx, me,
			CreateTaskArgs{ProjectID: project, Title: fmt.Sprintf("  Task %d ", i), Description: new("More.")})).Must(t)
		testkit.Equal(t, fmt.Sprint(v.Title, v.Status, *v.Description, v.LatestAttemptID == nil, v.HasInProgressAttempt,
			v.LastAttemptFailed, v.ProjectID), fmt.Sprint("Task ", i, "todo", "More.", true, false, false, project))
		attempttest.Times(t, v.CreatedAt, v.UpdatedAt)
		ids = append([]string{v.TaskID}, ids...)
	}
	testkit.Contains(t, attempttest.JSON(
		testkit.Get(s.ListTaskAttempts(ctx, me, ListTaskAttemptsArgs{TaskID: ids[0]})).Must(t)), `"attempts":[]`)
	list = testkit.Get(s.ListTasks(ctx, me, ListTasksArgs{ProjectID: project})).Must(t)
	var got []string
	for _, v := range list.Tasks {
		got = append(got, v.TaskID)
	}
	testkit.True(t, slices.Equal(got, ids), "newest first they are %v, and listed as %+v", ids, list)
	testkit.Equal(t, list.Total, 3, "newest first they are %v, and listed as %+v", ids, list)
	testkit.Equal(t, list.Count, 3, "newest first they are %v, and listed as %+v", ids, list)
	testkit.Equal(t, list.Filters.Limit, 50, "newest first they are %v, and listed as %+v", ids, list)
	testkit.True(t, list.Filters.Status == nil, "newest first they are %v, and listed as %+v", ids, list)

	v := testkit.Get(s.UpdateTask(ctx, me,
		UpdateTaskArgs{TaskID: ids[0], Title: new("Other"), Description: new(""), Status: new("done")})).Must(t)
	testkit.Equal(t, v.Title, "Other", "changed: %+v", v)
	testkit.Need(t, v.Description == nil, "changed: %+v", v)
	testkit.Equal(t, v.Status, "done", "changed: %+v", v)

	other := testkit.Get(s.GetTask(ctx, me, TaskArgs{ids[1]})).Must(t)
	testkit.Equal(t, other.Title+" "+other.Status, "Task 1 todo", "another was changed")
	done := testkit.Get(s.ListTasks(ctx, me, ListTasksArgs{ProjectID: project, Status: new("done"), Limit: new(7)})).
		Must(t)
	testkit.Equal(t, done.Count, 1, "done are %+v", done)
	testkit.Equal(t, done.Total, 1, "done are %+v", done)
	testkit.Equal(t, done.Tasks[0].TaskID, ids[0], "done are %+v", done)
	testkit.Equal(t, OrEmpty(done.Filters.Status), "done", "done are %+v", done)
	testkit.Equal(t, done.Filters.Limit, 7, "done are %+v", done)

	one := testkit.Get(s.ListTasks(ctx, me, ListTasksArgs{ProjectID: project, Limit: new(2)})).Must(t)
	two := testkit.Get(s.ListTasks(ctx, me, ListTasksArgs{ProjectID: project, Limit: new(2), Cursor: one.NextCursor})).
		Must(t)
	testkit.Equal(t, one.Count, 2, "pages: %+v and %+v", one, two)
	testkit.Equal(t, two.Count, 1, "pages: %+v and %+v", one, two)
	testkit.Equal(t, two.Tasks[0].TaskID, ids[2], "pages: %+v and %+v", one, two)
	testkit.True(t, two.NextCursor == nil, "pages: %+v and %+v", one, two)
}

func TestLabelsAndPriority(t *testing.T) {
	s := newProject(t).open()
	project, _ := s.rootProject()
	create := func(labels []string, priority *string) (*Task, error) {
		return s.CreateTask(ctx, me, CreateTaskArgs{ProjectID: project, Title: "T", Labels: labels, Priority: priority})
	}
	v := testkit.Get(create([]string{"web", "bug", "web"}, new("high"))).Must(t)
	testkit.Same(t, v.Labels, []string{"bug", "web"})
	v = testkit.Get(s.UpdateTask(ctx, me, UpdateTaskArgs{TaskID: v.TaskID, Title: new("U")})).Must(t)
	testkit.Equal(t, strings.Join(v.Labels, " ")+" "+v.Priority, "bug web high")
	v = testkit.Get(s.UpdateTask(ctx, me, UpdateTaskArgs{TaskID: v.TaskID, Labels: []string{}, Priority: new("low")})).
		Must(t)
	testkit.Equal(t, strings.Join(v.Labels, " ")+v.Priority, "low")

	list := testkit.Get(s.ListTasks(ctx, me, ListTasksArgs{ProjectID: project, Priority: new("low"), Text: "u"})).
		Must(t)
	testkit.True(t, list.Total == 1 && OrEmpty(list.Filters.Priority) == "low", "%+v", list)

	for word, labels := range map[string][]string{
		"Join words with -": {"good first"},
		"one word":          {""},
		"at most 40":        {strings.Repeat("x", 41)},
		"at most 10":        slices.Repeat([]string{"x"}, 11),
	} {
		testkit.Fails(t, testkit.Get(create(labels, nil)).Err(), word, "%v", labels)
	}
	refused(t, testkit.Get(create(nil, new("urgent"))).Err(), session.ToolError, "invalid_argument",
		"low, normal or high")
}

func TestCreateTaskOnce(t *testing.T) {
	s := newProject(t).open()
	project, _ := s.rootProject()
	a := CreateTaskArgs{ProjectID: project, Title: "One", RequestID: new("call-1")}
	first := testkit.Get(s.CreateTask(ctx, me, a)).Must(t)
	second := testkit.Get(s.CreateTask(ctx, me, a)).Must(t)
	testkit.Equal(t, first.TaskID, second.TaskID, "a repeated call made a second task")
	testkit.True(t, testkit.Get(s.CreateTask(ctx, session.Caller{Identity: "you"}, a)).Must(t).TaskID != first.TaskID,
		"another caller's request_id counted")
	a.Title = "Two"
	refused(t, testkit.Get(s.CreateTask(ctx, me, a)).Err(), session.ToolError, "request_id_reused")
}

// A workflow is named as a whole, or not at all, and exists.
func TestTaskWithWorkflow(t *testing.T) {
	s := newProject(t).open(func(o *Options) {
		o.CheckWorkflow = func(_ context.Context, name, workflow string) (*job.Workflow, error) {
			if name == "release" && workflow == "write" {
				return &job.Workflow{Name: workflow}, nil
			}
			return nil, session.Wrong("unknown_workflow", "Workflow '%s' not found", workflow)
		}
	})

	project, _ := s.rootProject()
	create := func(job, workflow *string) (*Task, error) {
		return s.CreateTask(ctx, me,
			CreateTaskArgs{ProjectID: project, Title: "T", JobName: job, WorkflowName: workflow})
	}
	refused(t, testkit.Get(create(new("release"), new("other"))).Err(), session.ToolError, "unknown_workflow", "other")
	v := testkit.Get(create(new(" release "), new("write"))).Must(t)
	testkit.Equal(t, OrEmpty(v.JobName)+"/"+OrEmpty(v.WorkflowName), "release/write")
	refused(t, testkit.Get(s.UpdateTask(ctx, me, UpdateTaskArgs{TaskID: v.TaskID, JobName: new("")})).Err(),
		session.ToolError, "half_a_workflow")
	v = testkit.Get(s.UpdateTask(ctx, me, UpdateTaskArgs{TaskID: v.TaskID, JobName: new(""), WorkflowName: new("")})).
		Must(t)
	testkit.True(t, v.JobName == nil && v.WorkflowName == nil, "not cleared: %+v", v)
}

// A task has the values of its workflow's inputs, as far as they are known.
func TestTaskInputs(t *testing.T) {
	s := newProject(t).open(func(o *Options) {
		o.CheckWorkflow = func(_ context.Context, _, workflow string) (*job.Workflow, error) {
			return &job.Workflow{Name: workflow, Inputs: []job.Parameter{
				{Name: "topic", Description: "What about", Required: true, Type: job.Text},
				{Name: "drafts", Description: "What there is", Type: job.Files},
				{Name: "tone", Description: "How", Required: true, Default: new("plain"), Type: job.Text},
			}}, nil
		}
	})

	project, _ := s.rootProject()
	a := CreateTaskArgs{ProjectID: project, Title: "T", JobName: new("texts"), WorkflowName: new("write")}
	shown := func(got *Task, want string) {
		t.Helper()
		testkit.Equal(t, attempttest.JSON(got.Inputs), want)
	}
	must(t, json.Unmarshal([]byte(`{"topics":"cats"}`), &a.Inputs))
	refused(t, testkit.Get(s.CreateTask(ctx, me, a)).Err(), session.ToolError, "bad_inputs", "topics", "What about")
	must(t, json.Unmarshal([]byte(`{"drafts":["a.md","b.md"],"topic":"cats"}`), &a.Inputs))
	delete(a.Inputs, "topics")
	v := testkit.Get(s.CreateTask(ctx, me, a)).Must(t)
	shown(v, `{"topic":"cats","drafts":["a.md","b.md"]}`)
	shown(&testkit.Get(s.GetTask(ctx, me, TaskArgs{TaskID: v.TaskID})).Must(t).Task,
		`{"topic":"cats","drafts":["a.md","b.md"]}`)
	change := func(c UpdateTaskArgs, want string) {
		t.Helper()
		c.TaskID = v.TaskID
		shown(testkit.Get(s.UpdateTask(ctx, me, c)).Must(t), want)
	}
	change(UpdateTaskArgs{Title: new("Cats"), WorkflowName: new("write")}, `{"topic":"cats","drafts":["a.md","b.md"]}`)
	// the agent asks for the topic
	change(UpdateTaskArgs{Inputs: Inputs{"drafts": {Paths: []string{"c.md"}}}}, `{"drafts":["c.md"]}`)
	change(UpdateTaskArgs{WorkflowName: new("print")}, `{}`)
	refused(t,
		testkit.Get(s.UpdateTask(ctx, me, UpdateTaskArgs{
			TaskID: v.TaskID,
			Inputs: Inputs{"topics": {Paths: []string{"x"}}},
		})).Err(), session.ToolError, "bad_inputs")
	refused(t,
		testkit.Get(s.UpdateTask(ctx, me, UpdateTaskArgs{
			TaskID:       v.TaskID,
			JobName:      new(""),
			WorkflowName: new(""),
			Inputs:       Inputs{"topic": {Paths: []string{"x"}}},
		})).Err(), session.ToolError, "bad_inputs", "no workflow")
}

// A page of tasks with long descriptions ends sooner, and its cursor leads to the rest: no description is
// cut, and no task is left out.
func TestListTasksIsBounded(t *testing.T) {
	s := newProject(t).open()
	id, _ := s.rootProject()
	args := ListTasksArgs{ProjectID: id, Limit: new(MaxLimit)}
	const tasks = listBytes/MaxPrompt + 3
	for range tasks {
		testkit.Get(s.CreateTask(ctx, me,
			CreateTaskArgs{ProjectID: id, Title: "Long", Description: new(strings.Repeat("d", MaxPrompt))})).Must(t)
	}

	seen := map[string]bool{}
	for _, want := range []int{tasks - 3, 3} {
		r := testkit.Get(s.ListTasks(ctx, me, args)).Must(t)
		testkit.Same(t, []int{len(r.Tasks), r.Count, r.Total, r.Filters.Limit}, []int{want, want, tasks, MaxLimit})
		for _, v := range r.Tasks {
			testkit.Equal(t, len(*v.Description), MaxPrompt)
			seen[v.TaskID] = true
		}
		args.Cursor = r.NextCursor
	}
	testkit.True(t, args.Cursor == nil && len(seen) == tasks, "%d of %d tasks were listed", len(seen), tasks)
}

// A config that is not valid refuses every call and says why. So does a board that is not a board, which is
// left as it is.
func TestBadConfigAndBoard(t *testing.T) {
	p := newProject(t)
	s := p.open(func(o *Options) {
		o.Config = func(context.Context) (*config.Config, error) { return nil, os.ErrInvalid }
	})
	refused(t, testkit.Get(s.ListProjects(ctx, me, ListProjectsArgs{})).Err(), session.StateError, "config_invalid",
		".deepwork/config.yml")
	testkit.True(t, !exists(s.State().Database()), "a board was made")

	s.stop()
	s = p.open()
	testkit.Write(t, s.State().Database(), strings.Repeat("no board ", 1000))
	refused(t, testkit.Get(s.ListProjects(ctx, me, ListProjectsArgs{})).Err(), session.StateError, "board_damaged",
		s.State().Database())
	testkit.Equal(t, string(testkit.Get(os.ReadFile(s.State().Database())).Must(t)), strings.Repeat("no board ", 1000))
}

func TestOutsideOfAWorkspace(t *testing.T) {
	for _, env := range []map[string]string{
		{}, {config.AttemptEnv: nobody}, {config.BoardEnv: "/x/board.db"}, {
			config.AttemptEnv: "7",
			config.BoardEnv:   "/x/board.db",
		}, {config.AttemptEnv: nobody, config.BoardEnv: "board.db"},
	} {
		w := FindWorkspace("/x/"+nobody+"/shop", func(k string) string { return env[k] })
		testkit.True(t, w == nil, "%v is taken for a workspace", env)
	}
}

// Each wrong argument is refused with code, value and remedy, and nothing is made.
func TestWrongArguments(t *testing.T) {
	s := newProject(t).open()
	root, _ := s.rootProject()
	rootTask := s.newTask("x")
	creating := func(a CreateTaskArgs) func() error {
		return func() error { return testkit.Get(s.CreateTask(ctx, me, a)).Err() }
	}
	listing := func(a ListTasksArgs) func() error {
		return func() error { return testkit.Get(s.ListTasks(ctx, me, a)).Err() }
	}
	updating := func(a UpdateTaskArgs) func() error {
		return func() error { return testkit.Get(s.UpdateTask(ctx, me, a)).Err() }
	}
	long := strings.Repeat("ä", MaxPrompt+1)
	for name, c := range map[string]struct {
		call     func() error
		code     string
		mentions []string
	}{
		"malformed project": {listing(ListTasksArgs{ProjectID: "7"}), "malformed_id", []string{"project_id", `"7"`}},
		"other form of UUID": {func() error {
			_, err := s.GetTask(ctx, me, TaskArgs{TaskID: "{" + nobody + "}"})
			return err
		}, "malformed_id", nil},
		"unknown project": {listing(ListTasksArgs{ProjectID: nobody}), "unknown_project",
			[]string{nobody, "list_projects"}},
		"repos of nobody": {func() error {
			_, err := s.ListRepos(ctx, me, ListReposArgs{ProjectID: nobody})
			return err
		}, "unknown_project", nil},
		"unknown status": {listing(ListTasksArgs{ProjectID: root, Status: new("open")}), "unknown_status",
			[]string{"open", "inreview"}},
		"limit 0": {listing(ListTasksArgs{ProjectID: root, Limit: new(0)}), "out_of_range",
			[]string{"limit", "0"}},
		"limit too big": {listing(ListTasksArgs{ProjectID: root, Limit: new(MaxLimit + 1)}), "out_of_range", nil},
		"cursor": {func() error {
			_, err := s.ListProjects(ctx, me, ListProjectsArgs{Cursor: new("x")})
			return err
		}, "bad_cursor", nil},
		"unknown task": {func() error {
			_, err := s.GetTask(ctx, me, TaskArgs{TaskID: nobody})
			return err
		}, "unknown_task", []string{nobody, "list_tasks"}},
		"attempts of nobody": {func() error {
			return testkit.Get(s.ListTaskAttempts(ctx, me, ListTaskAttemptsArgs{TaskID: nobody})).Err()
		}, "unknown_task", nil},
		"update nobody": {updating(UpdateTaskArgs{TaskID: nobody, Title: new("x")}), "unknown_task", nil},
		"to no status": {updating(UpdateTaskArgs{TaskID: rootTask.TaskID, Status: new("finished")}),
			"unknown_status", nil},
		"blank title": {creating(CreateTaskArgs{ProjectID: root, Title: " \t"}), "missing_title", nil},
		"long title": {creating(CreateTaskArgs{ProjectID: root, Title: strings.Repeat("x", MaxTitle+1)}),
			"too_long", []string{"title", "201", "200"}},
		"title of two lines": {creating(CreateTaskArgs{ProjectID: root, Title: "a\nb"}), "title_lines", nil},
		"long description": {creating(CreateTaskArgs{ProjectID: root, Title: "x", Description: &long}), "too_long",
			[]string{"description"}},
		"NUL": {creating(CreateTaskArgs{ProjectID: root, Title: "x\x00"}), "not_text", nil},
		"half a workflow": {creating(CreateTaskArgs{ProjectID: root, Title: "x", JobName: new("release")}),
			"half_a_workflow", []string{`job_name is "release"`, "workflow_name is missing"}},
		"its other half": {creating(CreateTaskArgs{ProjectID: root, Title: "x", WorkflowName: new("write")}),
			"half_a_workflow", []string{`workflow_name is "write"`, "job_name is missing"}},
		"no such project": {creating(CreateTaskArgs{ProjectID: nobody, Title: "x"}), "unknown_project", nil},
		"blank request_id": {creating(CreateTaskArgs{ProjectID: root, Title: "x", RequestID: new(" ")}),
			"blank_request_id", nil},
	} {
		t.Run(name, func(t *testing.T) { attempttest.Wrong(t, c.call(), c.code, c.mentions...) })
	}
	now := testkit.Get(s.GetTask(ctx, me, TaskArgs{rootTask.TaskID})).Must(t)
	testkit.True(t, now.Status == "todo" && now.Title == "Add a basket", "a refused call changed the task: %+v", now)
}

// What a task depends on is checked, and kept until another list is given.
func TestDependencies(t *testing.T) {
	s := newProject(t).open()
	project, _ := s.rootProject()
	first := s.newTask("first")
	second := testkit.Get(s.CreateTask(ctx, me, CreateTaskArgs{
		ProjectID: project,
		Title:     "Second",
		DependsOn: []string{strings.ToUpper(first.TaskID)},
	})).Must(t)
	testkit.Same(t, append(second.DependsOn, second.BlockedBy...), []string{first.TaskID, first.TaskID})
	testkit.True(t, first.DependsOn != nil && first.BlockedBy != nil, "null instead of an empty list: %+v", first)

	update := func(id string, on []string) error {
		return testkit.Get(s.UpdateTask(ctx, me, UpdateTaskArgs{TaskID: id, DependsOn: on})).Err()
	}
	refused(t, update(first.TaskID, []string{second.TaskID}), session.ToolError, "dependency_cycle",
		first.TaskID+" depends on "+second.TaskID+" depends on "+first.TaskID)
	refused(t, update(first.TaskID, []string{nobody}), session.ToolError, "bad_dependency", nobody)
	refused(t, update(first.TaskID, []string{"web"}), session.ToolError, "malformed_id", "depends_on[0]")
	testkit.Get(s.UpdateTask(ctx, me, UpdateTaskArgs{TaskID: first.TaskID, Status: new("done")})).Must(t)
	for _, c := range []struct {
		on   []string
		want int
	}{{nil, 1}, {[]string{}, 0}} { // an omitted list clears nothing
		must(t, update(second.TaskID, c.on))
		now := testkit.Get(s.GetTask(ctx, me, TaskArgs{TaskID: second.TaskID})).Must(t)
		testkit.True(t, len(now.DependsOn) == c.want && len(now.BlockedBy) == 0, "%+v", now)
	}
}

// spent is a board of which only what was used is read.
type spent struct {
	store.Board
	sum  task.Spent
	used []task.Use
}

func (s spent) Spent(context.Context, string, string) (task.Spent, error) { return s.sum, nil }
func (s spent) Used(context.Context, string) ([]task.Use, error)          { return s.used, nil }

func TestReachedBudgets(t *testing.T) {
	owner, other := session.Caller{Owner: true}, session.Caller{}
	cfg := func(usd, unknown float64) *config.Config {
		c := config.Default()
		if usd >= 0 {
			c.Attempts.MaxCostUSD = &config.Limit{Max: usd, File: "config.yml"}
		}
		if unknown >= 0 {
			c.Attempts.MaxUnknown = &config.Limit{Max: unknown, File: "config.yml"}
		}
		return c
	}
	for _, c := range []struct {
		cfg  *config.Config
		sum  task.Spent
		want []string
	}{
		{cfg(-1, -1), task.Spent{MicroUSD: 1e9, Unknown: 9}, nil},
		{cfg(2.5, 2), task.Spent{MicroUSD: 2_499_999, Unknown: 1}, nil},
		{cfg(2.5, 2), task.Spent{MicroUSD: 2_500_000, Unknown: 1}, []string{
			"the executions that have ended and whose cost is known (that of 1 is not) cost 2.5 USD, and " +
				"attempts.max_cost_usd is 2.5",
			"Budget reached: 2.5 of 2.5 USD and 1 of unknown cost (attempts.max_cost_usd)",
			"attempts.max_cost_usd is 2.5", "Budget reached: attempts.max_cost_usd is 2.5",
			"raise attempts.max_cost_usd in config.yml"}},
		{cfg(0, -1), task.Spent{MicroUSD: 1}, []string{
			"the executions that have ended cost 0.000001 USD, and attempts.max_cost_usd is 0",
			"Budget reached: 0.000001 of 0 USD (attempts.max_cost_usd)",
			"attempts.max_cost_usd is 0", "Budget reached: attempts.max_cost_usd is 0",
			"raise attempts.max_cost_usd in config.yml"}},
		{cfg(-1, 1.5), task.Spent{Unknown: 1}, nil},
		{cfg(-1, 1.5), task.Spent{Unknown: 2}, []string{
			"2 executions have ended with an unknown cost, and attempts.max_unknown is 1.5",
			"Budget reached: 2 of 1.5 executions of unknown cost (attempts.max_unknown)",
			"attempts.max_unknown is 1.5", "Budget reached: attempts.max_unknown is 1.5",
			"raise attempts.max_unknown in config.yml, and give prices of the models in " + config.UserFile() +
				", by which the cost of later ones is known"}},
	} {
		var got []string
		for _, r := range testkit.Get((&Board{}).Reached(t.Context(), spent{sum: c.sum}, c.cfg)).Must(t) {
			got = append(got, r.what(owner), r.title(owner), r.what(other), r.title(other), r.remedy())
		}
		testkit.Same(t, got, c.want, "%+v", c.sum)
	}
}

func TestCostsThatAreNotKnownAreNull(t *testing.T) {
	for _, c := range []struct {
		sum  task.Spent
		want string
	}{
		{task.Spent{}, "null"},
		{task.Spent{
			Executions: 1,
			Unknown:    1,
			Turns:      1,
		},
			`{"usd":null,"executions":1,"unknown":1,"input_tokens":null,"cached_tokens":null,"output_tokens":null,` +
				`"turns":1}`},
		{task.Spent{
			Executions:   2,
			Unknown:      1,
			MicroUSD:     1500,
			OutputTokens: 1,
		},
			`{"usd":0.0015,"executions":2,"unknown":1,"input_tokens":0,"cached_tokens":0,"output_tokens":1,` +
				`"turns":null}`},
	} {
		v := View{View: spent{sum: c.sum}}
		testkit.Equal(t, string(testkit.Get(json.Marshal(testkit.Get(v.Cost(t.Context(), "t", "")).Must(t))).Must(t)),
			c.want)
	}

	used := spent{used: []task.Use{{ExecutionID: "a"}, {ExecutionID: "b", Usage: task.Usage{MicroUSD: new(int64(7))}}}}
	each := testkit.Get(View{View: used}.ExecutionCosts(t.Context(), "a")).Must(t)
	testkit.Need(t, len(each) == 2, "%+v", each)
	testkit.Need(t, each["a"].USD == nil, "%+v", each)
	testkit.Equal(t, *each["b"].USD, 7e-6)
	testkit.Equal(t, MicroUSD(0.0000015), 2)
}

func TestBudgetsOfARun(t *testing.T) {
	for _, c := range []struct {
		run   Run
		cost  *Cost
		flags string
	}{
		{Run{MaxCostUSD: new(0.0), MaxUnknown: new(0)}, nil, " --max-cost 1.00 --max-unknown 10"},
		{Run{MaxCostUSD: new(2.0), MaxUnknown: new(3)}, &Cost{USD: new(2.0), Unknown: 2}, " --max-cost 4.00"},
		{Run{MaxCostUSD: new(2.0), MaxUnknown: new(3)}, &Cost{USD: new(1.9), Unknown: 3}, " --max-unknown 16"},
		{Run{}, &Cost{USD: new(9.0), Unknown: 3}, ""},
	} {
		testkit.Works(t, c.run.CheckBudgets())
		testkit.Equal(t, c.run.LargerBudget(c.cost), c.flags, "%+v", c)
	}
	testkit.Fails(t, (&Run{MaxCostUSD: new(-0.1)}).CheckBudgets(), "max_cost_usd is -0.1")
	testkit.Fails(t, (&Run{MaxUnknown: new(-1)}).CheckBudgets(), "max_unknown is -1")
}

func TestWhatARunWaitsFor(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 8000, time.UTC)
	person := RunWait{Kind: WaitsForPerson, SessionID: "0123abcd", StepID: "draft", Since: at}
	limit := RunWait{Kind: WaitsForLimit, SessionID: "0123abcd", StepID: "fix", Since: at, Until: &at}
	unclear := limit
	unclear.Tries = 3
	run := &Run{Waits: []RunWait{person, limit, unclear}}
	reply := &RunReply{Waits: waitsOf(run, true)}
	testkit.Equal(t, reply.waitsText(), `Step draft waits for a person's review: deepwork sessions review 0123abcd draft
Step fix waits for the limit of its agent's provider, until 2026-03-04T05:06:07Z
Step fix waits for the limit of its agent's provider, which does not say when it ends: after 3 of 10 tries the `+
		`next one is at 2026-03-04T05:06:07Z`)
	testkit.Equal(t, len(waitsOf(run, false)), 1, "a run that has ended waits for people only")

	run.Waits = slices.Repeat([]RunWait{person}, 100)
	reply.Waits = waitsOf(run, true)
	end := RunEnd{Why: slices.Repeat([]why.Why{{Kind: why.Stopped}}, 6)}
	testkit.Equal(t, strings.Count(reply.waitsText(), "Step draft"), 5, "named steps")
	testkit.True(t, strings.HasSuffix(reply.waitsText(), "\nAnd 95 more."), "%s", reply.waitsText())
	testkit.Equal(t, end.Reason(), strings.Repeat("It was stopped.\n", 5)+"And 1 more.")

	later, soon := limit, limit
	later.Until, soon.Until = new(at.Add(1)), new(at.UTC())
	for i, c := range []struct {
		a, b RunWait
		same bool
	}{{person, person, true}, {limit, soon, true}, {limit, later, false}, {limit, unclear, false},
		{person, limit, false}, {RunWait{Until: &at}, RunWait{}, false}} {
		testkit.Equal(t, c.a.Equal(c.b) && c.b.Equal(c.a), c.same, "%d", i)
	}
	ended := RunStep{StartedAt: new(Stamp(at)), EndedAt: new(Stamp(at.Add(time.Minute)))}
	testkit.True(t, ended.Took() == time.Minute && (&RunStep{StartedAt: ended.StartedAt}).Took() == 0, "it took %v",
		ended.Took())
}

// members says which servers are alive.
type members struct {
	store.Members
	alive string
}

func (members) ID() string             { return "me" }
func (m members) Alive(id string) bool { return id == m.alive }

// An attempt or a run has one of the states that the documentation lists, in all that the board knows of it.
func TestField22_StatesOfAttempts(t *testing.T) {
	b := &Board{Members: members{alive: "other"}, Here: task.Place{MachineID: "m", Root: "/p"}}
	run := func(r Run) json.RawMessage { return testkit.Get(json.Marshal(r)).Must(t) }
	waits := func(kinds ...string) json.RawMessage {
		var r Run
		for _, kind := range kinds {
			r.Waits = append(r.Waits, RunWait{Kind: kind})
		}
		return run(r)
	}
	ended := func(s State) json.RawMessage { return run(Run{End: &RunEnd{State: s}}) }
	for want, all := range map[State][]task.Situation{
		Queued: {{State: task.Waiting}, {State: task.Waiting, Landed: task.LandedMerged},
			{State: task.Starting, Leader: "gone"}, {State: task.Starting, Run: run(Run{}), Leader: "me"}},
		Running: {{State: task.Running}, {
			State:  task.Running,
			Run:    waits(WaitsForPerson),
			Busy:   true,
			Leader: "other",
		}, {State: task.Running, Run: run(Run{}), Leader: "me"}},
		WaitingForYou:   {{State: task.Running, Run: waits(WaitsForLimit, WaitsForPerson), Leader: "me"}},
		WaitingForLimit: {{State: task.Running, Run: waits(WaitsForLimit), Leader: "other"}},
		Interrupted:     {{State: task.Interrupted}},
		Paused:          {{State: task.Failed, Run: ended(Paused)}, {State: task.Stopped, Run: ended(Paused)}},
		Stopped:         {{State: task.Stopped, Run: ended(Stopped)}, {State: task.Stopped, Run: run(Run{})}},
		Failed: {{State: task.Failed}, {State: task.Failed, Run: run(Run{})},
			{State: task.Failed, Run: ended(Failed)}},
		Completed:  {{State: task.Completed}, {State: task.Completed, Run: ended(Completed)}},
		Conflicted: {{State: task.Completed, Landed: task.LandedConflicts}},
		Merged:     {{State: task.Completed, Landed: task.LandedMerged, Run: ended(Completed)}},
	} {
		for _, s := range all {
			testkit.Equal(t, b.StateOf(&s), want, "%+v", s)
		}
	}
	for _, s := range States {
		testkit.Equal(t, s.Open(), s == Queued || s == Running || s == WaitingForYou || s == WaitingForLimit,
			"%s is open", s)
	}
	testkit.Equal(t, WaitingForYou.Words()+", "+WaitingForLimit.Words()+", "+Short("0123456789")+Short("ab"),
		"waiting for you, waiting for a limit, 01234567ab")
}

// A run whose leader was killed is interrupted; an attempt of one agent goes on without its server, and so
// may a run that another machine leads.
func TestField15_ARunWithoutItsLeader(t *testing.T) {
	b := &Board{Members: members{alive: "other"}, Here: task.Place{MachineID: "m", Root: "/p"}}
	for _, state := range []task.AttemptState{task.Starting, task.Running} {
		s := task.Situation{
			State:  state,
			Leader: "gone",
			Run:    testkit.Get(json.Marshal(Run{Waits: []RunWait{{Kind: WaitsForLimit}}})).Must(t),
		}
		testkit.Equal(t, b.StateOf(&s), Interrupted)

		s.Place = task.Place{MachineID: "n", Root: "/p"}
		testkit.True(t, b.StateOf(&s) != Interrupted, "elsewhere it is interrupted")
		s.Place, s.Run = task.Place{}, nil
		testkit.Equal(t, b.StateOf(&s), ExecutionState(state), "with one agent")
	}
}

// What goes wrong on the board is told to agents with a code and what to do.
func TestFaults(t *testing.T) {
	own := session.Wrong(codes.BadPath, "own")
	for _, c := range []struct {
		err  error
		code string
		says string
	}{
		{own, codes.BadPath, "own"},
		{task.ErrFull, codes.DiskFull, "nothing was changed"},
		{task.ErrDamaged, codes.BoardDamaged, "cannot be used"},
		{task.ErrVersion, codes.BoardVersion, "cannot be used"},
		{task.ErrClosed, codes.ShuttingDown, "shutting down"},
		{task.ErrDeleting, codes.BeingDeleted, "call delete_task"},
		{&task.BlockedError{TaskID: "t", By: []task.Blocker{{ID: "other"}}}, codes.Blocked, "other"},
		{task.ErrCycle, codes.DependencyCycle, "Leave out one"},
		{task.ErrDependency, codes.BadDependency, "same project"},
		{task.ErrReused, codes.RequestIDReused, "Pass a new one"},
		{task.ErrComments, codes.TooManyComments, "Send those that wait"},
		{task.ErrQueued, codes.FollowUpQueued, "drop it first"},
		{store.ErrPending, codes.BoardBusy, "did not say"},
		{context.DeadlineExceeded, codes.BoardBusy, "did not answer in time"},
		{syscall.EIO, "", "reading: input/output error"},
	} {
		err := Fault("reading", fmt.Errorf("cause: %w", c.err))
		testkit.True(t, session.CodeOf(err) == c.code &&
			strings.Contains(strings.Replace(err.Error(), "cause: ", "", 1), c.says), "%v is told as %s: %v", c.err,
			session.CodeOf(err), err)
	}
	testkit.Equal(t, Fault("reading", nil), nil)

	for err, want := range map[error]bool{
		store.ErrUnavailable: true,
		store.ErrPending:     true,
		task.ErrFull:         true,
		syscall.ENOSPC:       true,
		task.ErrDamaged:      false,
	} {
		testkit.Equal(t, Passing(fmt.Errorf("x: %w", err)), want, "%v passes", err)
	}
	testkit.Equal(t, Midway(task.ErrFull), task.ErrFull)
	testkit.FailsWith(t, Midway(store.ErrUnavailable), store.ErrPending)
	testkit.Equal(t, session.CodeOf(AttemptFault("reading", task.ErrNotFound, "x"))+" "+
		session.CodeOf(RunFault("reading", task.ErrDeleted, "x")), "unknown_attempt "+codes.DeletedSince)
}

// Lists in errors and pages of tasks end where they are bounded, and not before.
func TestBoundsOfLists(t *testing.T) {
	names := strings.Split(strings.Repeat("x ", 20)+"y", " ")
	testkit.Equal(t, Enumerate(nil, "none")+Enumerate(names[20:], "none")+Enumerate(names[:20],
		"")[54:]+Enumerate(names, "")[54:], "noneyx, xx, x and 1 more")
	testkit.Equal(t, bytesOfID, len(testkit.Get(json.Marshal(nobody)).Must(t))+len(","))

	for _, c := range []struct{ first, second, ids, want int }{{0, listBytes, 0, 2}, {1, listBytes, 0, 1},
		{listBytes + 1, 0, 0, 1}, {listBytes, 0, 0, 2}, {listBytes - 2*bytesOfID, 0, 1, 2},
		{listBytes - 2*bytesOfID, 1, 1, 1}} {
		all := []task.Summary{{
			Task:      task.Task{Description: new(strings.Repeat("d", c.first)), DependsOn: make([]string, c.ids)},
			BlockedBy: make([]string, c.ids),
		}, {Task: task.Task{Inputs: make([]byte, c.second)}}}
		testkit.Equal(t, fitting(all), c.want, "%+v", c)
	}
	ids := slices.Repeat([]string{nobody}, task.MaxDependencies)
	testkit.Works(t, testkit.Get(checkDependencies(ids)).Err())

	refused(t, testkit.Get(checkDependencies(append(ids, nobody))).Err(), session.ToolError, codes.TooManyDependencies,
		"51", "50")
	refused(t, testkit.Get(Target{}.ID()).Err(), session.ToolError, codes.MissingArgument, "list_task_attempts")
	b := New(Options{Config: func(context.Context) (*config.Config, error) {
		return &config.Config{Telemetry: config.Telemetry{TraceURL: "https://x/{trace_id}"}}, nil
	}})
	const trace = "0123456789abcdef0123456789abcdef"
	testkit.Equal(t, b.TraceOf(ctx, "00-"+trace+"-0123456789abcdef-01"), Trace{trace, "https://x/" + trace})
	testkit.Equal(t, b.TraceOf(ctx, ""), Trace{})

	dir := testkit.Dir(t)
	testkit.Write(t, filepath.Join(dir, ".git"), "gitdir: elsewhere")
	testkit.Equal(t,
		TopLevel(filepath.Join(dir, "a", "b"))+TopLevel(filepath.VolumeName(dir)+string(filepath.Separator)), dir)
}

// A process is in the workspace of an attempt if the database has it there: in its worktree, or in the folder
// of several.
func TestInAWorkspace(t *testing.T) {
	dir := testkit.Dir(t)
	at := func(path string) string { return filepath.Join(dir, filepath.FromSlash(path)) }
	for _, c := range []struct {
		root, workspace string
		worktrees       []string
		want            bool
	}{
		{"w/shop", "w/shop/sub", []string{"w/shop"}, true}, {"w/shop/sub", "w", []string{"w/shop"}, true},
		{"w", "w", []string{"w/shop"}, false},
		{"w", "w", []string{"w/shop", "w/web"}, true}, {"w/web/sub", "w", []string{"w/shop", "w/web"}, true},
		{"v", "w", []string{"w/shop", "w/web"}, false}, {"w", "w", nil, false},
	} {
		a := &task.Attempt{Workspace: at(c.workspace)}
		for _, path := range c.worktrees {
			a.Repos = append(a.Repos, task.AttemptRepo{Worktree: at(path)})
		}
		testkit.Equal(t, (&Workspace{root: at(c.root)}).in(a), c.want, "%+v", c)
	}

	s := newProject(t).open()
	attempt := s.attempt(s.newTask("plain"), task.Running, nil)
	other := newProject(t).open()
	for _, c := range []struct {
		attempt, board string
		db             store.Database
		byPath         bool
		want           []string
	}{
		{attempt.ID, s.State().Database(), s.Database, false, nil},
		{attempt.ID, s.State().Database(), s.Database, true,
			[]string{"there it is in \"" + attempt.Workspace, "the state folder of the project must be reachable"}},
		{nobody, s.State().Database(), s.Database, false,
			[]string{"does not have this attempt", config.BoardEnv + " must name a file",
				"without " + config.AttemptEnv}},
		{nobody, at("gone/board.db"), s.Database, false, []string{at("gone")}},
		{nobody, s.State().Database(), other.Database, true,
			[]string{"does not exist here", "the state folder of the project must be reachable"}},
	} {
		w := FindWorkspace(dir, func(key string) string {
			return map[string]string{config.AttemptEnv: c.attempt, config.BoardEnv: c.board}[key]
		})
		testkit.True(t, !w.ByPath && w.Attempt == c.attempt, "%+v", w)
		w.ByPath = c.byPath
		is, err := w.Confirm(ctx, c.db)
		if c.want == nil {
			testkit.True(t, !is && err == nil, "another project of the agent: %t, %v", is, err)
			continue
		}
		refused(t, err, session.StateError, codes.NoDatabase, c.want...)
	}
	w := &Workspace{Attempt: attempt.ID, apart: true}
	refused(t, w.missing("x"), session.StateError, codes.NoDatabase,
		config.StoreEnv+", or store in the user's own config")
}

// Why an agent has not completed its work, without what programs print for programs.
func TestWhyAnAgentEnded(t *testing.T) {
	const stderr = "The agent ended with exit code 1. Its last lines on stderr:\n"
	now := time.Now()
	for want, x := range map[string]task.Execution{
		"":                {State: task.Completed, Error: new("x")},
		"It was stopped.": {State: task.Stopped, ExitCode: new(0)},
		"The agent ended with exit code 1: no network.": {State: task.Failed, ExitCode: new(1),
			Error: new(stderr + "no network\ngiving up")},
		"The agent ended with exit code 1: API Error: 401 log in.": {State: task.Failed, ExitCode: new(1),
			Error: new(stderr + `{"cut": `), FinalMessage: new(`API Error: 401 {"error":{"message":"log in"}}`)},
		"The agent ended by a signal.": {State: task.Failed, ExitCode: new(-1), Error: new("It was ended by SIGKILL.")},
		"It was ended by a limit of the step: timeout, 5m.": {State: task.Failed, ExitCode: new(-1), OverLimit: true,
			Error: new("It was ended by a limit of the step: timeout, 5m.")},
		"A limit of the agent's provider ended it: 429.": {State: task.Failed, ExitCode: new(1), LimitedUntil: &now,
			Error: new(stderr + "429")},
		"The machine m2 was gone for more than 1m.": {State: task.Interrupted,
			Error: new("The machine m2 was gone for more than 1m.")},
	} {
		testkit.Equal(t, WhyOf(&x).Sentence(), want)
	}
	testkit.Equal(t, WhyOf(&task.Execution{State: task.Running}).Kind, "")
}
