package attempt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/board"
)

// Seed 004, "MCP task tool set" and "Attempt terminology and identifiers".
func TestReq004_ProjectsAndRepos(t *testing.T) {
	p := newProject(t)
	p.Repo(filepath.Join(p.Root, "..", "web"))
	p.Configure(func(c *config.Config) {
		c.Projects = []config.Project{{Name: "shop front", Repos: []config.Repo{{Name: "web", Path: "../web"}, {Path: filepath.Join(p.Root, "nothing")}}}}
	})
	s := p.open()
	r, err := s.ListProjects(ctx, me, board.ListProjectsArgs{})
	must(t, err)
	if r.Count != 2 || r.Total != 2 || r.NextCursor != nil || r.Filters.Limit != board.DefaultLimit {
		t.Fatalf("%+v", r)
	}
	byName := map[string]board.Project{}
	for _, v := range r.Projects {
		byName[v.Name] = v
		checkTimes(t, v.CreatedAt, v.UpdatedAt)
	}
	if !byName["shop"].IsRoot || byName["shop front"].IsRoot {
		t.Errorf("%+v", r.Projects)
	}
	repos, err := s.ListRepos(ctx, me, board.ListReposArgs{ProjectID: byName["shop front"].ProjectID})
	must(t, err)
	paths := map[string]string{}
	for _, v := range repos.Repos {
		paths[v.Name] = v.Path
	}
	if want := map[string]string{"web": filepath.Join(p.Root, "..", "web"), "nothing": filepath.Join(p.Root, "nothing")}; !reflect.DeepEqual(paths, want) {
		t.Errorf("the repositories are %v; expected %v", paths, want)
	}
	root, err := s.ListRepos(ctx, me, board.ListReposArgs{ProjectID: byName["shop"].ProjectID})
	must(t, err)
	if len(root.Repos) != 1 || root.Repos[0].Path != p.Root || root.Repos[0].Name != "shop" {
		t.Errorf("the root's: %+v", root.Repos)
	}
	// Ids outlive a restart and an edit of the config; a page is a part of the list.
	s.stop()
	again := p.open()
	first, err := again.ListProjects(ctx, me, board.ListProjectsArgs{Limit: new(1)})
	must(t, err)
	if first.Count != 1 || first.Total != 2 || first.NextCursor == nil {
		t.Fatalf("the first page: %+v", first)
	}
	second, err := again.ListProjects(ctx, me, board.ListProjectsArgs{Limit: new(1), Cursor: first.NextCursor})
	must(t, err)
	if got := append(first.Projects, second.Projects...); !reflect.DeepEqual(got, r.Projects) {
		t.Errorf("pages give %+v, the list %+v", got, r.Projects)
	}
	p.Configure(func(*config.Config) {})
	if r, err := again.ListProjects(ctx, me, board.ListProjectsArgs{}); err != nil || r.Total != 1 && again.Shared == nil { // else another machine may have it
		t.Errorf("after the project left the config: %+v, %v", r, err)
	}
}

func checkTimes(t *testing.T, times ...string) {
	t.Helper()
	for _, s := range times {
		if at, err := time.Parse(time.RFC3339Nano, s); err != nil || !strings.HasSuffix(s, "Z") || time.Since(at) > time.Hour {
			t.Errorf("%q is not the present in RFC 3339 and UTC", s)
		}
	}
}

// A project that becomes a repository later has one from then on.
func TestRootBecomesARepository(t *testing.T) {
	p := newProject(t)
	must(t, os.RemoveAll(filepath.Join(p.Root, ".git")))
	s := p.open()
	if _, repo := s.rootProject(); repo != "" {
		t.Fatalf("a repository %s where there is none", repo)
	}
	p.Git(p.Root, "init", "-q", "-b", "main")
	if _, repo := s.rootProject(); repo == "" {
		t.Error("git init was not noticed")
	}
}

// Seed 004, "list_tasks provides attempt summary".
func TestReq004_Tasks(t *testing.T) {
	p := newProject(t)
	s := p.open()
	project, _ := s.rootProject()
	var ids []string
	for i := range 3 {
		v, err := s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: project, Title: fmt.Sprintf("  Task %d ", i), Description: new("More.")})
		must(t, err)
		if v.Title != fmt.Sprintf("Task %d", i) || v.Status != "todo" || deref(v.Description) != "More." || v.LatestAttemptID != nil ||
			v.HasInProgressAttempt || v.LastAttemptFailed || v.ProjectID != project {
			t.Errorf("made: %+v", v)
		}
		checkTimes(t, v.CreatedAt, v.UpdatedAt)
		ids = append([]string{v.TaskID}, ids...)
	}
	list, err := s.ListTasks(ctx, me, board.ListTasksArgs{ProjectID: project})
	must(t, err)
	var got []string
	for _, v := range list.Tasks {
		got = append(got, v.TaskID)
	}
	if !slices.Equal(got, ids) || list.Total != 3 || list.Count != 3 || list.Filters.Limit != 50 || list.Filters.Status != nil {
		t.Errorf("newest first they are %v, and listed as %+v", ids, list)
	}
	v, err := s.UpdateTask(ctx, me, board.UpdateTaskArgs{TaskID: ids[0], Title: new("Other"), Description: new(""), Status: new("done")})
	must(t, err)
	if v.Title != "Other" || v.Description != nil || v.Status != "done" {
		t.Errorf("changed: %+v", v)
	}
	if v := s.task(ids[1]); v.Title != "Task 1" || v.Status != "todo" {
		t.Errorf("another was changed: %+v", v)
	}
	done, err := s.ListTasks(ctx, me, board.ListTasksArgs{ProjectID: project, Status: new("done"), Limit: new(7)})
	must(t, err)
	if done.Count != 1 || done.Total != 1 || done.Tasks[0].TaskID != ids[0] || deref(done.Filters.Status) != "done" || done.Filters.Limit != 7 {
		t.Errorf("done are %+v", done)
	}
	one, err := s.ListTasks(ctx, me, board.ListTasksArgs{ProjectID: project, Limit: new(2)})
	must(t, err)
	two, err := s.ListTasks(ctx, me, board.ListTasksArgs{ProjectID: project, Limit: new(2), Cursor: one.NextCursor})
	must(t, err)
	if one.Count != 2 || two.Count != 1 || two.Tasks[0].TaskID != ids[2] || two.NextCursor != nil {
		t.Errorf("pages: %+v and %+v", one, two)
	}
}

func TestCreateTaskOnce(t *testing.T) {
	p := newProject(t)
	s := p.open()
	project, _ := s.rootProject()
	a := board.CreateTaskArgs{ProjectID: project, Title: "One", RequestID: new("call-1")}
	first, err := s.CreateTask(ctx, me, a)
	must(t, err)
	second, err := s.CreateTask(ctx, me, a)
	must(t, err)
	if first.TaskID != second.TaskID {
		t.Error("a repeated call made a second task")
	}
	other, err := s.CreateTask(ctx, session.Caller{Identity: "you"}, a)
	must(t, err)
	if other.TaskID == first.TaskID {
		t.Error("another caller's request_id counted")
	}
	a.Title = "Two"
	_, err = s.CreateTask(ctx, me, a)
	refused(t, err, session.ToolError, "request_id_reused")
}

// A workflow is named as a whole, or not at all, and exists.
func TestTaskWithWorkflow(t *testing.T) {
	p := newProject(t)
	s := p.open(func(o *Options) {
		o.CheckWorkflow = func(_ context.Context, job, workflow string) error {
			if job == "release" && workflow == "write" {
				return nil
			}
			return session.Wrong("unknown_workflow", "Workflow '%s' not found", workflow)
		}
	})
	project, _ := s.rootProject()
	create := func(job, workflow *string) (*board.Task, error) {
		return s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: project, Title: "T", JobName: job, WorkflowName: workflow})
	}
	_, err := create(new("release"), nil)
	refused(t, err, session.ToolError, "half_a_workflow")
	_, err = create(new("release"), new("other"))
	refused(t, err, session.ToolError, "unknown_workflow", "other")
	v, err := create(new(" release "), new("write"))
	must(t, err)
	if deref(v.JobName) != "release" || deref(v.WorkflowName) != "write" {
		t.Errorf("%+v", v)
	}
	_, err = s.UpdateTask(ctx, me, board.UpdateTaskArgs{TaskID: v.TaskID, JobName: new("")})
	refused(t, err, session.ToolError, "half_a_workflow")
	v, err = s.UpdateTask(ctx, me, board.UpdateTaskArgs{TaskID: v.TaskID, JobName: new(""), WorkflowName: new("")})
	must(t, err)
	if v.JobName != nil || v.WorkflowName != nil {
		t.Errorf("not cleared: %+v", v)
	}
}

// Every list is a list in JSON, however empty, and every field is there (seed
// 004, "Schema field documentation").
func TestReq004_EveryFieldIsDescribed(t *testing.T) {
	replies := []any{board.ProjectsReply{}, board.ReposReply{}, board.TasksReply{}, board.AttemptsReply{}, board.Task{}, DeleteReply{}, AttemptReply{}, FollowUpReply{}, TailReply{}, ExecutorsReply{}, board.ContextReply{}}
	var check func(v reflect.Type, path string)
	check = func(v reflect.Type, path string) {
		for v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct || v == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			f := v.Field(i)
			at := path + "." + f.Name
			name, tag := f.Tag.Get("json"), f.Tag.Get("jsonschema")
			if name == "-" {
				continue // it is for people, and no agent sees it
			}
			if at == "DeleteReply.Notice" {
				name = strings.TrimSuffix(name, ",omitempty") // only stores that several machines share have it
			}
			if name == "" || strings.Contains(name, ",") {
				t.Errorf("%s has the JSON name %q", at, name)
			}
			if len(tag) < 10 {
				t.Errorf("%s is not described: %q", at, tag)
			}
			if strings.HasSuffix(name, "_id") && !strings.Contains(tag, "UUID") && !strings.Contains(tag, "hexadecimal") {
				t.Errorf("%s does not say what its id looks like: %q", at, tag)
			}
			if strings.HasSuffix(name, "_at") && !strings.Contains(tag, "RFC 3339") {
				t.Errorf("%s does not say how its time is written: %q", at, tag)
			}
			if strings.Contains(name, "workspace_id") {
				t.Errorf("%s is exposed", at)
			}
			check(f.Type, at)
		}
	}
	for _, r := range replies {
		check(reflect.TypeOf(r), reflect.TypeOf(r).Name())
	}
}

func TestEmptyListsAreLists(t *testing.T) {
	p := newProject(t)
	s := p.open()
	project, _ := s.rootProject()
	tasks, err := s.ListTasks(ctx, me, board.ListTasksArgs{ProjectID: project})
	must(t, err)
	v := s.newTask("")
	attempts, err := s.ListTaskAttempts(ctx, me, board.ListTaskAttemptsArgs{TaskID: v.TaskID})
	must(t, err)
	for _, r := range []any{tasks, attempts} {
		text, err := json.Marshal(r)
		must(t, err)
		if !strings.Contains(string(text), `:[]`) {
			t.Errorf("%s", text)
		}
	}
}

// A task whose dependencies are not done does not start, and says what blocks it.
func TestBlockedTask(t *testing.T) {
	p := newProject(t)
	s := p.open()
	project, repo := s.rootProject()
	first := s.newTask("! say hello")
	second, err := s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: project, Title: "Second", DependsOn: []string{strings.ToUpper(first.TaskID)}})
	must(t, err)
	if want := []string{first.TaskID}; !slices.Equal(second.DependsOn, want) || !slices.Equal(second.BlockedBy, want) {
		t.Errorf("%+v", second)
	}
	if first.DependsOn == nil || first.BlockedBy == nil {
		t.Errorf("null instead of an empty list: %+v", first)
	}
	start := func() error {
		_, err := s.StartTaskAttempt(ctx, me, StartArgs{TaskID: second.TaskID, Executor: "TEST", Repos: []RepoArgs{{repo, "main"}}, RequestID: new("once")})
		return err
	}
	err = start()
	refused(t, err, session.StateError, "blocked", first.TaskID, "Add a basket", "todo", "update_task")
	if e, _ := errors.AsType[*session.Error](err); fmt.Sprint(e.Details["blocked_by"]) != fmt.Sprint([]string{first.TaskID}) {
		t.Errorf("%+v", e.Details)
	}
	if now := s.task(second.TaskID); now.Status != "todo" || now.LatestAttemptID != nil {
		t.Errorf("%+v", now)
	}
	update := func(id string, on []string) error {
		_, err := s.UpdateTask(ctx, me, board.UpdateTaskArgs{TaskID: id, DependsOn: on})
		return err
	}
	const nobody = "3b241101-e2bb-4255-8caf-4136c566a962"
	refused(t, update(first.TaskID, []string{second.TaskID}), session.ToolError, "dependency_cycle", first.TaskID+" depends on "+second.TaskID+" depends on "+first.TaskID)
	refused(t, update(first.TaskID, []string{nobody}), session.ToolError, "bad_dependency", nobody)
	refused(t, update(first.TaskID, []string{"web"}), session.ToolError, "malformed_id", "depends_on[0]")
	refused(t, update(first.TaskID, make([]string, task.MaxDependencies+1)), session.ToolError, "too_many_dependencies", "51", "50")
	_, err = s.UpdateTask(ctx, me, board.UpdateTaskArgs{TaskID: first.TaskID, Status: new("done")})
	must(t, err)
	if now := s.task(second.TaskID); len(now.BlockedBy) != 0 || len(now.DependsOn) != 1 {
		t.Errorf("%+v", now)
	}
	must(t, start())
	must(t, update(second.TaskID, nil))
	if now := s.task(second.TaskID); len(now.DependsOn) != 1 {
		t.Errorf("an omitted list cleared it: %+v", now)
	}
	must(t, update(second.TaskID, []string{}))
	if now := s.task(second.TaskID); len(now.DependsOn) != 0 {
		t.Errorf("%+v", now)
	}
	s.ends(*s.task(second.TaskID).LatestAttemptID)
}

// A page ends early if its tasks have many dependencies.
func TestDependenciesCountForTheBoundOfAList(t *testing.T) {
	many := task.Summary{Task: task.Task{DependsOn: make([]string, task.MaxDependencies)}, BlockedBy: make([]string, task.MaxDependencies)}
	all := slices.Repeat([]task.Summary{many}, board.MaxLimit)
	n := board.Fitting(all)
	id, err := json.Marshal("3b241101-e2bb-4255-8caf-4136c566a962")
	must(t, err)
	if size := n * 2 * task.MaxDependencies * (len(id) + 1); n < 100 || size > board.ListBytes {
		t.Errorf("%d tasks with %d bytes", n, size)
	}
}
