package attempt

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/fieldtag"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/attempttest"
	"deepwork/session/attempt/runner"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/state"
	"deepwork/session/store"
)

// What a run is asked for is within its limits, each of which is allowed, or is refused by its name.
func TestArgumentsOfARun(t *testing.T) {
	for _, c := range []struct {
		a    RunWorkflowArgs
		want string // the argument that is refused, or what the run has
	}{
		{RunWorkflowArgs{}, "0 agents, 0s, resume false"},
		{RunWorkflowArgs{Parallel: new(1), MaxSeconds: new(1.5), Context: new(ContextStep)},
			"1 agents, 1.5s, resume false"},
		{RunWorkflowArgs{
			Parallel:   new(MaxParallel),
			MaxSeconds: new(float64(MaxRunSeconds)),
			Context:    new(ContextResume),
		}, fmt.Sprintf("%d agents, %v, resume true", MaxParallel, MaxRunSeconds*time.Second)},
		{RunWorkflowArgs{MaxCostUSD: new(0.0), MaxUnknown: new(0)}, "0 agents, 0s, resume false"},
		{RunWorkflowArgs{Goal: strings.Repeat("x", board.MaxPrompt)}, "0 agents, 0s, resume false"},
		{RunWorkflowArgs{Goal: " \n"}, "goal"},
		{RunWorkflowArgs{Goal: strings.Repeat("x", board.MaxPrompt+1)}, "goal"},
		{RunWorkflowArgs{Parallel: new(0)}, "parallel"},
		{RunWorkflowArgs{Parallel: new(MaxParallel + 1)}, "parallel"},
		{RunWorkflowArgs{Context: new("other")}, "context"},
		{RunWorkflowArgs{MaxSeconds: new(0.0)}, "max_seconds"},
		{RunWorkflowArgs{MaxSeconds: new(float64(MaxRunSeconds + 1))}, "max_seconds"},
		{RunWorkflowArgs{MaxSeconds: new(math.NaN())}, "max_seconds"},
		{RunWorkflowArgs{MaxCostUSD: new(-0.01)}, "max_cost_usd"},
		{RunWorkflowArgs{MaxCostUSD: new(math.NaN())}, "max_cost_usd"},
		{RunWorkflowArgs{MaxUnknown: new(-1)}, "max_unknown"},
	} {
		if c.a.Goal == "" {
			c.a.Goal = "g"
		}
		c.a.JobName, c.a.WorkflowName = " j ", "w"
		r, err := runOf(&c.a)
		if refused, ok := err.(*session.Error); ok {
			testkit.Equal(t, fmt.Sprint(refused.Details["argument"]), c.want, "%v", err)
			continue
		}

		testkit.Must(t, err)
		testkit.Equal(t, fmt.Sprintf("%d agents, %v, resume %t", r.Parallel, r.MaxTime, r.Resume), c.want)
		testkit.Equal(t, r.JobName+"/"+r.WorkflowName, "j/w")
	}

	for given, want := range map[string]string{
		"CODER":      "CODER and none",
		"CODER:fast": "CODER and fast",
		"CODER:":     "CODER and ",
		"CODER:a:b":  "CODER and a:b",
	} {
		name, variant := nameAndVariant(given)
		testkit.Equal(t, name+" and "+*cmp.Or(variant, new("none")), want)
	}
}

// The root has the files and the setup of attempts, another repository its own.
func TestWhatNewWorktreesGet(t *testing.T) {
	cfg := &config.Config{Projects: []config.Project{{
		Name:  "other",
		Repos: []config.Repo{{Name: "shop", Copy: []string{"wrong"}}},
	}, {
		Name: "p",
		Repos: []config.Repo{{Name: "api", Copy: []string{"api"}},
			{Name: "shop", Copy: []string{"a"}, Setup: []string{"make"}}},
	}}}
	cfg.Attempts.Copy, cfg.Attempts.Setup = []string{"root"}, []string{"setup"}
	for _, c := range []struct {
		p          task.Project
		repo, want string
	}{
		{task.Project{Name: "p", Root: true}, "shop", "[root] [setup]"},
		{task.Project{Name: "p"}, "shop", "[a] [make]"},
		{task.Project{Name: "p"}, "none", "[] []"},
		{task.Project{Name: "none"}, "shop", "[] []"},
	} {
		files, setup := provision(cfg, &c.p, c.repo)
		testkit.Equal(t, fmt.Sprint(files, setup), c.want, "%+v", c)
	}
}

// The part of a log that an execution wrote begins with its start and ends before that of the next.
func TestPartsOfALog(t *testing.T) {
	at := func(s int) *time.Time { return new(time.Unix(int64(s), 0)) }
	for _, c := range []struct {
		part logPart
		want string
	}{
		{logPart{}, "[1 2 3] false"},
		{logPart{began: at(2)}, "[2 3] false"},
		{logPart{until: at(2)}, "[1] false"},
		{logPart{began: at(2), until: at(3)}, "[2] false"},
		{logPart{began: at(4)}, "[] true"},
	} {
		var entries []runner.Entry
		for i := range 3 {
			entries = append(entries, runner.Entry{Index: int64(i + 1), Time: *at(i + 1)})
		}
		cut := c.part.cut(&entries)
		var left []int64
		for _, x := range entries {
			left = append(left, x.Index)
		}
		testkit.Equal(t, fmt.Sprint(left, cut), c.want)
	}
	var none []runner.Entry
	testkit.Equal(t, (&logPart{}).cut(&none), false, "nothing was cut of nothing")
}

// Every list is a list in JSON, however empty, and every field is there (seed 004, "Schema field documentation").
func TestReq004_EveryFieldIsDescribed(t *testing.T) {
	replies := []any{board.ProjectsReply{}, board.ReposReply{}, board.TasksReply{}, board.AttemptsReply{}, board.Task{},
		DeleteReply{}, AttemptReply{}, FollowUpReply{}, TailReply{}, ExecutorsReply{}, board.ContextReply{}}
	var check func(v reflect.Type, path string)
	check = func(v reflect.Type, path string) {
		for v.Kind() == reflect.Pointer ||
			v.Kind() == reflect.Slice && !v.Implements(reflect.TypeFor[json.Marshaler]()) {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct || v == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			f := v.Field(i)
			at := path + "." + f.Name
			name, tag := f.Tag.Get("json"), fieldtag.Of(v, f).Get("jsonschema")
			if name == "-" {
				continue // it is for people, and no agent sees it
			}
			switch at {
			case "DeleteReply.Notice", // only stores that several machines share have it
				"TailReply.Entries.Raw", "TailReply.Entries.More": // as in the log: few lines need them
				name = strings.TrimSuffix(name, ",omitempty")
			}
			testkit.True(t, name != "", "%s has the JSON name %q, or is not described: %q", at, name, tag)
			testkit.True(t, !strings.Contains(name, ","), "%s has the JSON name %q, or is not described: %q", at,
				name, tag)
			testkit.True(t, len(tag) >= 10, "%s has the JSON name %q, or is not described: %q", at, name, tag)
			testkit.True(t, !strings.HasSuffix(name, "_id") || strings.Contains(tag, "UUID") ||
				strings.Contains(tag, "hexadecimal"), "%s does not say what its id looks like: %q", at, tag)
			testkit.True(t, !strings.HasSuffix(name, "_at") || strings.Contains(tag, "RFC 3339"),
				"%s does not say how its time is written: %q", at, tag)
			testkit.True(t, !strings.Contains(name, "workspace_id"), "%s is exposed", at)
			check(f.Type, at)
		}
	}
	for _, r := range replies {
		check(reflect.TypeOf(r), reflect.TypeOf(r).Name())
	}
}

// A task whose dependencies are not done does not start, and says what blocks it.
func TestBlockedTask(t *testing.T) {
	s := newProject(t).open()
	project, _ := s.rootProject()
	first := s.newTask("! say hello")
	second := testkit.Get(s.CreateTask(ctx, me, board.CreateTaskArgs{
		ProjectID: project,
		Title:     "Second",
		DependsOn: []string{strings.ToUpper(first.TaskID)},
	})).Must(t)
	start := s.starting(second)
	start.RequestID = new("once")
	err := testkit.Get(s.StartTaskAttempt(ctx, me, start)).Err()
	refused(t, err, session.StateError, "blocked", first.TaskID, "Add a basket", "todo", "update_task")
	e, _ := errors.AsType[*session.Error](err)
	testkit.True(t, fmt.Sprint(e.Details["blocked_by"]) == fmt.Sprint([]string{first.TaskID}), "%+v", e.Details)

	now := s.task(second.TaskID)
	testkit.True(t, now.Status == "todo" && now.LatestAttemptID == nil, "%+v", now)
	testkit.Get(s.UpdateTask(ctx, me, board.UpdateTaskArgs{TaskID: first.TaskID, Status: new("done")})).Must(t)
	s.ends(testkit.Get(s.StartTaskAttempt(ctx, me, start)).Must(t).AttemptID)
}

// workspace_id is another name for attempt_id, at the top of the arguments.
func TestArgumentsAreFlat(t *testing.T) {
	var a FollowUpArgs
	must(t, json.Unmarshal([]byte(`{"workspace_id": "`+nobody+`", "action": "send", "prompt": "x"}`), &a))
	id := testkit.Get(a.id()).Must(t)
	testkit.True(t, deref(id) == nobody && a.Action == ActionSend, "%+v", a)

	var tail TailArgs
	must(t, json.Unmarshal([]byte(`{"attempt_id": "`+nobody+`", "wait": 1.5, "after_index": 7}`), &tail))
	testkit.Equal(t, testkit.Get(tail.ID()).Must(t), nobody)
	testkit.Equal(t, *tail.Wait, 1.5)
	testkit.Equal(t, *tail.AfterIndex, 7)
}

const nobody = "3b241101-e2bb-4255-8caf-4136c566a962"

// Each wrong argument is told with code, value and remedy, and nothing is made.
func TestWrongArguments(t *testing.T) {
	p := newProject(t)
	p.Repo(filepath.Join(p.Root, "..", "web"))
	must(t, os.MkdirAll(filepath.Join(p.Root, "..", "plain"), 0o755))
	p.Git(filepath.Join(p.Root, "..", "plain"), "init", "-q", "-b", "main") // unborn
	must(t, os.MkdirAll(filepath.Join(p.Root, "..", "bare"), 0o755))
	p.Configure(func(c *config.Config) {
		c.Executors = append(c.Executors, config.Executor{Name: "BARE"},
			config.Executor{Name: "PLAIN", Command: []string{"./README"}})
		c.Projects = []config.Project{{
			Name: "front",
			Repos: []config.Repo{{Name: "web", Path: "../web"}, {Name: "plain", Path: "../plain"},
				{Name: "bare", Path: "../bare"}},
		}}
	})
	s := p.open()
	_, rootRepo := s.rootProject()
	front, repos := s.project("front")
	rootTask := s.newTask("x")
	frontTask := testkit.Get(s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: front, Title: "F"})).Must(t)
	starting := func(change func(*StartArgs)) func() error {
		a := s.starting(rootTask)
		change(&a)
		return func() error { return testkit.Get(s.StartTaskAttempt(ctx, me, a)).Err() }
	}
	onFront := func(repo, branch string) func() error {
		return starting(func(a *StartArgs) { a.TaskID, a.Repos = frontTask.TaskID, []RepoArgs{{repos[repo], branch}} })
	}
	following := func(a FollowUpArgs) func() error {
		return func() error { return testkit.Get(s.FollowUp(ctx, me, a)).Err() }
	}
	tailing := func(a TailArgs) func() error {
		return func() error { return testkit.Get(s.TailAttempt(ctx, me, a)).Err() }
	}
	long := strings.Repeat("ä", board.MaxPrompt+1)
	for name, c := range map[string]struct {
		call     func() error
		code     string
		mentions []string
	}{
		"delete nobody": {func() error {
			_, err := s.DeleteTask(ctx, me, DeleteArgs{TaskID: nobody})
			return err
		}, "unknown_task", nil},
		"start of nobody": {starting(func(a *StartArgs) { a.TaskID = nobody }), "unknown_task", nil},
		"no executor":     {starting(func(a *StartArgs) { a.Executor = "" }), "missing_executor", []string{"TEST"}},
		"unknown executor": {starting(func(a *StartArgs) { a.Executor = "NOBODY" }), "unknown_executor",
			[]string{"NOBODY", "TEST"}},
		"no command": {starting(func(a *StartArgs) { a.Executor = "BARE" }), "executor_without_command",
			[]string{"BARE"}},
		"unknown variant": {starting(func(a *StartArgs) { a.Variant = new("X") }), "unknown_variant",
			[]string{"X", "OTHER"}},
		"no program": {starting(func(a *StartArgs) { a.Executor = "PLAIN" }), "executor_unavailable",
			[]string{"is not executable", "README. Make it so with chmod +x"}},
		"missing program": {starting(func(a *StartArgs) { a.Executor = "MISSING" }), "executor_unavailable",
			[]string{"no-such-agent"}},
		"long prompt": {starting(func(a *StartArgs) { a.Prompt = &long }), "too_long", []string{"prompt", "100001"}},
		"prompt as argument": {starting(func(a *StartArgs) {
			a.Executor = "ARGUMENT"
			a.Prompt = new(long[:2*90_000])
		}), "too_long", []string{"argument"}},
		"repo twice": {starting(func(a *StartArgs) { a.Repos = append(a.Repos, a.Repos[0]) }), "repo_twice",
			[]string{rootRepo}},
		"too many repos": {starting(func(a *StartArgs) { a.Repos = make([]RepoArgs, MaxRepos+1) }),
			"too_many_repos", nil},
		"malformed repo": {starting(func(a *StartArgs) { a.Repos[0].RepoID = "web" }), "malformed_id",
			[]string{"repos[0].repo_id"}},
		"unknown repo": {starting(func(a *StartArgs) { a.Repos[0].RepoID = nobody }), "unknown_repo",
			[]string{nobody}},
		"foreign repo": {starting(func(a *StartArgs) { a.Repos[0].RepoID = repos["web"] }), "foreign_repo",
			[]string{"web", front}},
		"unknown branch": {starting(func(a *StartArgs) { a.Repos[0].TargetBranch = "mian" }), "unknown_branch",
			[]string{"mian", "main"}},
		"no commit":     {onFront("plain", "main"), "unknown_branch", nil},
		"no repository": {onFront("bare", "main"), "not_a_repository", []string{"bare", "git init"}},
		"follow up nobody": {following(FollowUpArgs{Target: the(nobody), Action: "send", Prompt: new("x")}),
			"unknown_attempt", nil},
		"unknown session": {following(FollowUpArgs{SessionID: new(nobody), Action: "send", Prompt: new("x")}),
			"unknown_session", nil},
		"malformed session": {following(FollowUpArgs{SessionID: new("x"), Action: "send", Prompt: new("x")}),
			"malformed_id", []string{"session_id"}},
		"no target": {following(FollowUpArgs{Action: "send", Prompt: new("x")}), "no_target", nil},
		"two targets": {following(FollowUpArgs{Target: the(nobody), SessionID: new(nobody), Action: "cancel"}),
			"two_targets", nil},
		"two names": {following(FollowUpArgs{
			Target:      the(nobody),
			WorkspaceID: new(rootTask.TaskID),
			Action:      "cancel",
		}), "two_targets", nil},
		"workspace_id alone": {following(FollowUpArgs{WorkspaceID: new(nobody), Action: "cancel"}), "unknown_attempt",
			[]string{nobody}},
		"unknown action": {following(FollowUpArgs{Target: the(nobody), Action: "push"}), "unknown_action",
			[]string{"push", "queue"}},
		"blank prompt": {following(FollowUpArgs{Target: the(nobody), Action: "queue", Prompt: new("\n")}),
			"missing_prompt", nil},
		"no prompt": {following(FollowUpArgs{Target: the(nobody), Action: "send"}), "missing_prompt", nil},
		"stop nobody": {func() error {
			_, err := s.StopAttempt(ctx, me, AttemptArgs{the(nobody)})
			return err
		}, "unknown_attempt", nil},
		"get nobody": {func() error {
			_, err := s.GetAttempt(ctx, me, AttemptArgs{the(nobody)})
			return err
		}, "unknown_attempt", nil},
		"await nobody": {func() error {
			_, err := s.Await(ctx, me, nobody)
			return err
		}, "unknown_attempt", nil},
		"get nothing": {func() error {
			_, err := s.GetAttempt(ctx, me, AttemptArgs{})
			return err
		}, "missing_argument", nil},
		"tail nobody": {tailing(TailArgs{Target: the(nobody)}), "unknown_attempt", nil},
		"tail waits":  {tailing(TailArgs{Target: the(nobody), Wait: new(31.0)}), "out_of_range", []string{"31"}},
		"tail before": {tailing(TailArgs{Target: the(nobody), AfterIndex: new(int64(-2))}), "out_of_range", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.HasSuffix(name, " program") && s.Shared != nil {
				t.Skip("another machine may have it")
			}
			attempttest.Wrong(t, c.call(), c.code, c.mentions...)
		})
	}
	withoutBranch := starting(func(a *StartArgs) { a.TaskID, a.Repos = frontTask.TaskID, nil })
	attempttest.Refused(t, withoutBranch(), session.StateError, codes.NoBranch, "bare", "list_repos")
	for _, v := range []*board.Task{rootTask, frontTask} {
		now := s.task(v.TaskID)
		testkit.True(t, now.LatestAttemptID == nil && now.Status == "todo", "%+v", now)
	}
	testkit.True(t, !Exists(state.Of(p.Root).Worktrees()), "a refused call made a worktree")

	must(t, starting(func(a *StartArgs) { a.Repos = nil })())
	started := s.get(*s.task(rootTask.TaskID).LatestAttemptID)
	testkit.Equal(t, started.Repos[0].RepoID+" "+started.Repos[0].TargetBranch, rootRepo+" main", "by default")

	many := config.Project{Name: "many"}
	for i := range MaxRepos + 1 {
		many.Repos = append(many.Repos, config.Repo{Name: fmt.Sprint("r", i), Path: "../web"})
	}
	p.Configure(func(c *config.Config) { c.Projects = []config.Project{many} })
	id, _ := s.project("many")
	rootTask = testkit.Get(s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: id, Title: "M"})).Must(t)
	attempttest.Wrong(t, starting(func(a *StartArgs) {
		a.TaskID = rootTask.TaskID
		a.Repos = nil
	})(), "too_many_repos", "51")
}

// moves writes a transition of a session of an attempt's workspace.
func (s *server) moves(attempt string, to store.Session) {
	s.t.Helper()
	sessions, w := s.Database.Sessions(), &store.SessionWrite{Session: to, Before: -1, Frame: "{}"}
	all := testkit.Get(sessions.ListSessions(ctx, store.SessionQuery{IDs: []string{to.ID}})).Must(s.t)
	if len(all) > 0 {
		w.Before = all[0].Revision
	}
	w.Revision = w.Before + 1
	w.AttemptID = attempt
	w.StartedAt = time.Now()
	w.UpdatedAt = time.Now()
	written, err := sessions.WriteSession(ctx, w)
	testkit.Need(s.t, err == nil && written, "session %s was not written: %v", to.ID, err)
}

// Seed 004, "Workspace context data".
func TestReq004_GetContext(t *testing.T) {
	p, s := opened(t)
	project, repo := s.rootProject()
	v := s.newTask("! await " + p.hold)
	r := s.reaches(s.begin(v).AttemptID, task.Running)
	env := map[string]string{config.AttemptEnv: r.AttemptID, config.BoardEnv: s.boardPath()}
	getenv := func(k string) string { return env[k] }
	w := board.FindWorkspace(r.Repos[0].WorktreePath, func(string) string { return "" })
	testkit.Need(t, w != nil, "the folder of a workspace was not recognized: %+v", w)
	testkit.Need(t, w.Attempt == r.AttemptID, "the folder of a workspace was not recognized: %+v", w)
	testkit.Need(t, w.ByPath, "the folder of a workspace was not recognized: %+v", w)
	testkit.True(t, testkit.Get(w.Confirm(ctx, s.Database)).Must(t), "the database does not confirm the workspace")

	for _, root := range []string{p.Root, filepath.Dir(filepath.Dir(r.Repos[0].WorktreePath)), "/"} {
		testkit.Equal(t, board.FindWorkspace(root, func(string) string { return "" }), nil,
			"%s is taken for a workspace", root)
		testkit.Equal(t, testkit.Get(board.FindWorkspace(root, getenv).Confirm(ctx, s.Database)).Must(t), false,
			"%s is taken for the workspace", root)
	}
	c := testkit.Get(board.OpenContext(r.AttemptID, s.Database)).Must(t)
	got := testkit.Get(c.GetContext(ctx)).Must(t)
	testkit.Equal(t, fmt.Sprint(got.ProjectID, got.ProjectName, got.TaskID, got.TaskTitle, got.TaskStatus,
		got.AttemptID, got.WorkspaceBranch, got.WorkflowSessionID),
		fmt.Sprint(project, "shop", v.TaskID, v.Title, "inprogress", r.AttemptID, r.WorkspaceBranch, (*string)(nil)))
	testkit.Same(t, got.WorkspaceRepos,
		[]board.ContextRepo{{
			RepoID:       repo,
			RepoName:     "shop",
			TargetBranch: "main",
			WorktreePath: r.Repos[0].WorktreePath,
		}})

	must(t, os.WriteFile(p.hold, nil, 0o644))
	s.ends(r.AttemptID)
	testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Must(t)
	refused(t, testkit.Get(c.GetContext(ctx)).Err(), session.ToolError, "unknown_attempt", r.AttemptID)
}

// A task with a workflow is to be reviewed only when that is complete.
func TestTaskWaitsForItsWorkflow(t *testing.T) {
	p, s := opened(t)
	project, _ := s.rootProject()
	v := testkit.Get(s.CreateTask(ctx, me, board.CreateTaskArgs{
		ProjectID:    project,
		Title:        "Notes",
		Description:  new("! prompt\n! await " + p.hold),
		JobName:      new("release"),
		WorkflowName: new("write"),
	})).Must(t)
	r := s.begin(v)
	s.reaches(r.AttemptID, task.Running)
	c := testkit.Get(board.OpenContext(r.AttemptID, s.Database)).Must(t)
	s.moves(r.AttemptID, store.Session{
		ID:       "0123abcd",
		Job:      "release",
		Workflow: "write",
		Status:   board.WorkflowActive,
		Step:     "collect",
	})

	// is not the task's
	s.moves(r.AttemptID, store.Session{
		ID:       "0123abce",
		Job:      "other",
		Workflow: "write",
		Status:   board.WorkflowCompleted,
		Step:     "nested",
	})

	got := testkit.Get(c.GetContext(ctx)).Must(t)
	testkit.Equal(t, deref(got.WorkflowSessionID), "0123abcd")
	testkit.Equal(t, deref(got.WorkflowStep), "collect")
	testkit.Equal(t, deref(got.WorkflowStatus), "active")
	testkit.Equal(t, deref(got.JobName), "release")

	must(t, os.WriteFile(p.hold, nil, 0o644))
	r = s.ends(r.AttemptID)
	now := s.task(v.TaskID)
	testkit.Equal(t, r.State, "completed")
	testkit.Equal(t, now.Status, "inprogress")
	testkit.True(t, !now.LastAttemptFailed, "%+v %+v", r, now)
	testkit.Equal(t, deref(r.WorkflowStep), "collect")

	out := s.output(r.AttemptID)
	testkit.True(t, containsAll(out, "release/write", "start_workflow", "get_context", "workflow_complete"),
		"the prompt:\n%s", out)

	must(t, os.Remove(p.hold))
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("! await " + p.hold)})
	s.moves(r.AttemptID, store.Session{
		ID:       "99999999",
		Job:      "release",
		Workflow: "write",
		Status:   board.WorkflowActive,
		Step:     "collect",
	})

	s.moves(r.AttemptID, store.Session{
		ID:       "0123abcd",
		Job:      "release",
		Workflow: "write",
		Status:   board.WorkflowCompleted,
		Step:     "draft",
	})

	// The end of one that was begun before, by mistake say, undoes nothing.
	s.moves(r.AttemptID, store.Session{
		ID:       "99999999",
		Job:      "release",
		Workflow: "write",
		Status:   board.WorkflowAborted,
		Step:     "collect",
	})

	must(t, os.WriteFile(p.hold, nil, 0o644))
	s.ends(r.AttemptID)
	testkit.Equal(t, s.task(v.TaskID).Status, "inreview")
}

// Starting agents needs the right agents; without it nothing is made, and whether
// what the call names exists is not said.
func TestStartingAgentsNeedsTheRight(t *testing.T) {
	s := newProject(t).open()
	project, repo := s.rootProject()
	ann := session.Caller{Identity: "ann", Rights: session.RightAgents}
	v := testkit.Get(s.CreateTask(ctx, ann, board.CreateTaskArgs{ProjectID: project, Title: "Mine"})).Must(t)
	start := func(who session.Caller, id string) error {
		return testkit.Get(s.StartTaskAttempt(ctx, who,
			StartArgs{TaskID: id, Executor: "TEST", Repos: []RepoArgs{{repo, "main"}}, RequestID: new("r")})).Err()
	}
	follow := func(who session.Caller, id, action string) error {
		return testkit.Get(s.FollowUp(ctx, who, FollowUpArgs{Target: the(id), Action: action, Prompt: new("more")})).
			Err()
	}
	without := ann
	without.Rights = session.RightMerge | session.RightPerson
	for _, id := range []string{v.TaskID, nobody} {
		refused(t, start(without, id), session.StateError, "right_needed", "ann",
			"deepwork token new ann --rights agents")
	}
	testkit.Equal(t, testkit.Get(s.ListTaskAttempts(ctx, ann, board.ListTaskAttemptsArgs{TaskID: v.TaskID})).
		Must(t).Total, 0)
	must(t, start(ann, v.TaskID))
	id := testkit.Get(s.ListTaskAttempts(ctx, ann, board.ListTaskAttemptsArgs{TaskID: v.TaskID})).Must(t).
		Attempts[0].AttemptID
	s.ends(id)
	for _, action := range []string{ActionSend, ActionQueue} {
		for _, id := range []string{id, nobody} {
			refused(t, follow(without, id, action), session.StateError, "right_needed")
		}
	}
	must(t, follow(without, id, ActionCancel))
	got := s.get(id)
	testkit.True(t, got.State == "completed" && got.QueuedFollowUp == nil, "%+v", got)
	must(t, follow(ann, id, ActionSend))
	s.ends(id)
}

// An attempt that waits for those of others does not say how many there are, and
// their branches are no branches to begin at.
func TestNothingIsSaidOfOthersAttempts(t *testing.T) {
	p := newProject(t)
	p.Configure(func(c *config.Config) { c.Attempts.MaxConcurrent = 1 })
	s := p.open()
	project, repo := s.rootProject()
	first, eve := s.runs("! await "+p.hold), session.Caller{Identity: "eve", Group: "team", Rights: session.RightAgents}
	v := testkit.Get(s.CreateTask(ctx, eve, board.CreateTaskArgs{ProjectID: project, Title: "Hers"})).Must(t)
	begin := func(who session.Caller, branch string) (*AttemptReply, error) {
		return s.StartTaskAttempt(ctx, who,
			StartArgs{TaskID: v.TaskID, Executor: "TEST", Repos: []RepoArgs{{repo, branch}}})
	}

	// hidden is refused to her, and the refusal names none of the owner's branches.
	hidden := func(branch, mention string) string {
		t.Helper()
		err := testkit.Get(begin(eve, branch)).Err()
		refused(t, err, session.ToolError, "unknown_branch", mention)
		testkit.Lacks(t, strings.SplitAfter(err.Error(), "Its branches: ")[1], []string{first.WorkspaceBranch})
		return strings.ReplaceAll(err.Error(), branch, "BRANCH")
	}
	testkit.Equal(t, hidden(first.WorkspaceBranch, "main"), hidden("deepwork/none", "main"))
	r := testkit.Get(begin(eve, "main")).Must(t)
	testkit.Equal(t, deref(r.Notice), "It waits for a slot.")
	testkit.Contains(t, deref(s.get(r.AttemptID).Notice), "and 0 wait before it", "the owner is told")

	must(t, os.WriteFile(p.hold, nil, 0o644))
	s.ends(first.AttemptID)
	s.ends(r.AttemptID)
	r = testkit.Get(begin(me, first.WorkspaceBranch)).Must(t) // the owner may begin anywhere
	s.ends(r.AttemptID)
	r = testkit.Get(begin(eve, r.WorkspaceBranch)).Must(t) // of the owner, at her task
	s.ends(r.AttemptID)

	// The second worktree of one git repository has its own branch.
	for _, whose := range []*AttemptReply{first, r} {
		p.Git(p.Root, "branch", whose.WorkspaceBranch+"-2", whose.WorkspaceBranch)
	}
	hidden(first.WorkspaceBranch+"-2", r.WorkspaceBranch+"-2")
	s.ends(testkit.Get(begin(eve, r.WorkspaceBranch+"-2")).Must(t).AttemptID)
	// A branch stays hidden when its task is deleted; with commits it is kept.
	p.Git(p.Root, "branch", "kept", first.WorkspaceBranch)
	testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: first.TaskID})).Must(t)
	p.Git(p.Root, "branch", first.WorkspaceBranch, "kept")
	hidden(first.WorkspaceBranch, "main")
}

// In the workspace of an attempt every call is one of its maker, who may not start agents there.
func TestAnAgentIsItsMaker(t *testing.T) {
	p, s := opened(t)
	project, _ := s.rootProject()
	of := func(who session.Caller, title string) *board.Task {
		return testkit.Get(s.CreateTask(ctx, who, board.CreateTaskArgs{ProjectID: project, Title: title})).Must(t)
	}
	ann := session.Caller{Identity: "ann", Group: "team", Rights: session.RightAgents}
	bob := session.Caller{Identity: "bob", Group: "team", Rights: session.RightAgents}
	his, hers := of(bob, "bob's"), of(ann, "ann's")
	of(me, "the owner's")
	of(session.Caller{Identity: "eve"}, "eve's")
	alone := of(session.Caller{Identity: "bob"}, "bob's alone")
	for _, c := range []struct {
		who  session.Caller
		task *board.Task
		sees string
	}{
		{ann, his, "ann's bob's"},
		{bob, hers, "bob's alone ann's bob's"},
		{me, hers, "ann's bob's"}, // the text of a task leads no agent to what only the owner sees
		{me, alone, "bob's alone bob's"},
	} {
		start := s.starting(c.task)
		r := testkit.Get(s.StartTaskAttempt(ctx, c.who, start)).Must(t)
		s.ends(r.AttemptID)
		inside := p.open(func(o *Options) { o.Passive, o.Attempt = true, r.AttemptID })
		got := testkit.Get(inside.ListTasks(ctx, me, board.ListTasksArgs{ProjectID: project})).Must(t)
		var titles []string
		for _, v := range got.Tasks {
			titles = append(titles, v.Title)
		}
		testkit.True(t, strings.Join(titles, " ") == c.sees && got.Total == len(titles), "an agent sees %q of %d",
			titles, got.Total)

		refused(t, testkit.Get(inside.StartTaskAttempt(ctx, me, start)).Err(), session.StateError, "right_needed",
			"Create a task")
		refused(t, testkit.Get(inside.RunWorkflow(ctx, me, aText())).Err(), session.StateError, "right_needed")
		refused(t,
			testkit.Get(inside.FollowUp(ctx, me, FollowUpArgs{
				Target: the(r.AttemptID),
				Action: ActionQueue,
				Prompt: new("more"),
			})).Err(), session.StateError, "right_needed")
		inside.stop()
	}
	gone := p.open(func(o *Options) { o.Passive, o.Attempt = true, nobody })
	testkit.Equal(t, testkit.Get(gone.ListTasks(ctx, me, board.ListTasksArgs{ProjectID: project})).Must(t).Total, 0)

	// What an agent makes is its maker's.
	r := s.ran()
	inside := p.open(func(o *Options) { o.Passive, o.Attempt = true, r.AttemptID })
	a := board.CreateTaskArgs{ProjectID: project, Title: "More", RequestID: new("one")}
	v := testkit.Get(inside.CreateTask(ctx, session.Caller{}, a)).Must(t)
	testkit.Equal(t, testkit.Get(s.CreateTask(ctx, me, a)).Must(t).TaskID, v.TaskID)
}
