package transport

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/attempt/executors"
	"deepwork/session/board"
	"deepwork/session/machine"
	"deepwork/session/replies"
	"deepwork/session/run"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/local"
	"deepwork/session/workflow"
)

func inBoard(t *testing.T, root string, f func(b store.Board)) {
	t.Helper()
	stores := local.Stores(state.Of(root), false, nil)
	defer func() { testkit.Works(t, stores.Close(context.Background())) }()
	f(stores.Database.Board())
}

// attemptIn adds an attempt to the board of a project, whose workspace is made below a folder, "" for the
// usual one, as one of the worktrees there.
func attemptIn(t *testing.T, root, trees string) (id, workspace string) {
	t.Helper()
	repository(t, root)
	engine := testkit.Get(attempt.Open(t.Context(),
		attempt.Options{Options: board.Options{Root: root}, Passive: true})).Must(t)
	me := session.LocalCaller("")
	projects := testkit.Get(engine.ListProjects(t.Context(), me, board.ListProjectsArgs{})).Must(t)
	repos := testkit.Get(engine.ListRepos(t.Context(), me,
		board.ListReposArgs{ProjectID: projects.Projects[0].ProjectID})).Must(t)
	made := testkit.Get(engine.CreateTask(t.Context(), me,
		board.CreateTaskArgs{ProjectID: projects.Projects[0].ProjectID, Title: "Trip"})).Must(t)
	testkit.Same(t, engine.Close(context.Background()), nil, "not stopped")

	if trees == "" {
		trees = state.Of(root).Worktrees()
	}
	id = uuid.NewString()
	workspace = filepath.Join(trees, id, "shop")
	must(t, os.MkdirAll(workspace, 0o755))
	write(t, trees, map[string]string{".journal/" + id + ".json": `{"version": 2, "attempt": "` + id +
		`", "branch": "b", "phase": "made", "trees": []}`})
	write(t, workspace, map[string]string{
		".deepwork/jobs/trip/job.yml": tripJob,
		".deepwork/jobs/trip/idea.md": "Think.",
		"idea.txt":                    "sea",
		"h1.txt":                      "x",
	})

	inBoard(t, root, func(b store.Board) {
		_, err := b.For(me).CreateAttempt(t.Context(), task.Attempt{
			ID: id, TaskID: made.TaskID, Executor: "X", Branch: "b", Workspace: workspace,
			Repos: []task.AttemptRepo{{
				RepoID:       repos.Repos[0].RepoID,
				RepoName:     "shop",
				TargetBranch: "main",
				Worktree:     workspace,
			}},
		}, task.Execution{}, task.Request{})
		must(t, err)
	})
	return id, workspace
}

func quietProject(t *testing.T) (cs *mcp.ClientSession, root string) {
	t.Helper()
	s, root := project(t, func(o *Options) { o.Toolsets = []string{"workflows"} })
	return client(t, s), root
}

func insideOf(t *testing.T, workspace string) *mcp.ClientSession {
	t.Helper()
	return client(t, made(t, Options{ProjectRoot: workspace, StandardJobs: fstest.MapFS{}, AdditionalJobs: []string{}}))
}

const planTrip = `{"goal":"g","job_name":"trip","workflow_name":"plan"}`

func refusedAs(t *testing.T, cs *mcp.ClientSession, name, args, code string) string {
	t.Helper()
	res := callTool(t, cs, name, args)
	testkit.True(t, res.IsError && errorMetaOf(t, res)["code"] == code, "%s(%s): want %s, got %s", name, args, code,
		text(res))
	return text(res)
}

// In a workspace there is get_context, the board is that of the project around, and the folder of sessions
// hides itself from git.
func TestReq004_GetContextOnlyInAWorkspace(t *testing.T) {
	_, root := quietProject(t)
	id, workspace := attemptIn(t, root, "")
	inside := insideOf(t, workspace)
	testkit.True(t, listed(t, inside)["get_context"] != nil, "get_context is not offered")
	for _, name := range []string{"merge_attempt", "rebase_attempt", "push_attempt", "abort_merge", "change_target"} {
		testkit.True(t, listed(t, inside)[name] == nil, "%s is offered in a workspace", name)
	}
	got := into[board.ContextReply](t, inside, "get_context", `{}`)
	testkit.Equal(t, got.AttemptID+got.TaskTitle, id+"Trip", "the attempt")
	testkit.Equal(t, into[board.ProjectsReply](t, inside, "list_projects", `{}`).Projects[0].Name, filepath.Base(root),
		"the board")
	testkit.FailsWith(t, testkit.Get(os.Stat(state.Of(workspace).Database())).Err(), os.ErrNotExist,
		"a database of the workspace")
	testkit.Works(t, testkit.Get(os.Stat(filepath.Join(workspace, ".deepwork", "tmp", ".gitignore"))).Err())
}

// A server serves agents the sessions of its own root only: of the project, or of the attempt in whose
// workspace it is. All are in one database, which has the position of the attempt's workflow, too.
func TestSessionsOfAnotherRoot(t *testing.T) {
	outside, root := quietProject(t)
	id, workspace := attemptIn(t, root, "")
	inside := insideOf(t, workspace)
	theirs := into[replies.Start](t, inside, "start_workflow", planTrip).BeginStep.SessionID
	own := into[replies.Start](t, outside, "start_workflow", planTrip).BeginStep.SessionID
	for _, c := range []struct {
		cs      *mcp.ClientSession
		session string
		root    string
	}{{outside, theirs, workspace}, {inside, own, root}} {
		for tool, args := range map[string]string{
			"get_step":       ``,
			"finished_step":  `,"outputs":{"idea":"idea.txt"}`,
			"abort_workflow": `,"explanation":"e"`,
			"go_to_step":     `,"step_id":"idea"`,
		} {
			testkit.ContainsAll(t, refusedAs(t, c.cs, tool, `{"session_id":"`+c.session+`"`+args+`}`, "other_root"),
				[]string{"StateError: ", c.root}, tool)
		}
		refusedAs(t, c.cs, "start_workflow",
			`{"goal":"g","job_name":"trip","workflow_name":"plan","parent_session_id":"`+c.session+`"}`, "other_root")
		got := into[replies.Workflows](t, c.cs, "get_workflows", `{}`)
		testkit.Need(t, len(got.Resumable) == 0, "%+v %+v", got.Resumable, got.Stack)
		testkit.Need(t, len(got.Stack) == 1, "%+v %+v", got.Resumable, got.Stack)
		testkit.True(t, got.Stack[0].SessionID != c.session, "%+v %+v", got.Resumable, got.Stack)
	}
	into[replies.Finish](t, inside, "finished_step", `{"outputs":{"idea":"idea.txt"}}`)
	inBoard(t, root, func(b store.Board) {
		a := testkit.Get(b.Attempt(t.Context(), id)).Must(t)
		testkit.Equal(t, board.OrEmpty(a.WorkflowSessionID)+" "+board.OrEmpty(a.WorkflowStatus)+" "+
			board.OrEmpty(a.WorkflowStep), theirs+" active hotel", "the attempt is at")
	})
	testkit.Works(t, testkit.Get(os.Stat(filepath.Join(workspace, ".deepwork", "tmp", "session_"+theirs+".json"))).
		Err(), "the export is not in the session's root")

	// They are aborted when the attempt is deleted, and kept. Its workspace, which is not a git worktree, is
	// removed first.
	must(t, errors.Join(os.RemoveAll(filepath.Dir(workspace)),
		os.Remove(filepath.Join(state.Of(root).Worktrees(), ".journal", id+".json"))))
	inBoard(t, root, func(b store.Board) {
		_, _, err := b.EndExecution(t.Context(), testkit.Get(b.LatestExecution(t.Context(), id)).Must(t).ID,
			task.Ending{State: task.Stopped})
		must(t, err)
		engine := testkit.Get(attempt.Open(t.Context(),
			attempt.Options{Options: board.Options{Root: root}, Passive: true})).Must(t)
		db := testkit.Get(sql.Open("sqlite", "file:"+state.Of(root).Database())).Must(t)
		of := testkit.Get(b.Attempt(t.Context(), id)).Must(t).TaskID
		for _, during := range []string{`CREATE TRIGGER cut BEFORE DELETE ON tasks BEGIN SELECT RAISE(ABORT, 'cut ` +
			`short'); END`, `DROP TRIGGER cut`} {
			testkit.Get(db.Exec(during)).Must(t)
			testkit.Equal(t, testkit.Get(engine.DeleteTask(t.Context(), session.LocalCaller(""),
				attempt.DeleteArgs{TaskID: of})).Err() == nil, during == `DROP TRIGGER cut`, during)
			for _, row := range testkit.Get(engine.Database.Sessions().ListSessions(t.Context(),
				store.SessionQuery{IDs: []string{theirs, own}})).Must(t) {
				testkit.Equal(t, row.Status == string(machine.Aborted), row.ID == theirs, "%s: %s", during, row.Status)
			}
		}
		must(t, db.Close())
		testkit.Same(t, engine.Close(context.Background()), nil, "not stopped")
	})
}

// Where worktrees are elsewhere, the environment of an agent names the attempt and the database confirms it.
// The name of a folder counts for nothing.
func TestWorkspacesElsewhere(t *testing.T) {
	_, root := quietProject(t)
	trees := t.TempDir()
	id, workspace := attemptIn(t, root, trees)
	alike := filepath.Join(t.TempDir(), id, "shop")
	write(t, alike, map[string]string{".deepwork/jobs/trip/job.yml": tripJob, ".deepwork/jobs/trip/idea.md": "Think."})
	testkit.True(t, listed(t, insideOf(t, workspace))["get_context"] == nil,
		"without the environment a folder is taken for a workspace")

	t.Setenv(config.AttemptEnv, id)
	t.Setenv(config.BoardEnv, state.Of(root).Database())
	below := filepath.Join(workspace, "sub")
	must(t, os.MkdirAll(below, 0o755))
	for dir, want := range map[string]bool{workspace: true, below: true, alike: false, root: false, trees: false} {
		cs := insideOf(t, dir)
		testkit.Equal(t, listed(t, cs)["get_context"] != nil, want, "%s is in the workspace", dir)
		if want {
			testkit.Equal(t, into[board.ContextReply](t, cs, "get_context", `{}`).AttemptID, id, "%s", dir)
		} else {
			callTool(t, cs, "get_workflows", `{}`)
		}
	}
	own := into[replies.Start](t, insideOf(t, alike), "start_workflow", planTrip).BeginStep.SessionID
	refusedAs(t, insideOf(t, workspace), "get_step", `{"session_id":"`+own+`"}`, "unknown_session")
}

// Where the database of an attempt cannot be used, calls are refused with what is missing. There is no other
// place for sessions. No config applies but the user's, and what a branch says never does.
func TestAWorkspaceWithoutItsDatabase(t *testing.T) {
	none := filepath.Join(t.TempDir(), "board.db")
	for what, c := range map[string]struct {
		trees bool // they are elsewhere
		env   map[string]string
		lose  string // in the project's state folder
		names []string
	}{
		"a container with the worktree alone": {lose: "project.json", names: []string{"project.json", "state folder"}},
		"a database that is gone": {
			lose:  "board.db",
			names: []string{"board.db does not exist", config.StoreEnv},
		},
		"a store without its URL": {
			lose:  "board.db",
			env:   map[string]string{config.ProjectEnv: "shop"},
			names: []string{config.StoreEnv + ", or store in the user's own config"},
		},
		"a container with the environment": {
			trees: true,
			env:   map[string]string{config.BoardEnv: none},
			names: []string{filepath.Dir(none), config.BoardEnv, "without " + config.AttemptEnv},
		},
		"another database": {
			trees: true,
			env:   map[string]string{config.AttemptEnv: uuid.NewString()},
			names: []string{"does not have this attempt"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			_, root := quietProject(t)
			trees := ""
			if c.trees {
				trees = t.TempDir()
			}
			id, workspace := attemptIn(t, root, trees)
			if c.trees {
				t.Setenv(config.AttemptEnv, id)
				t.Setenv(config.BoardEnv, state.Of(root).Database())
			}
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			if c.lose != "" {
				must(t, os.Remove(filepath.Join(state.Of(root).Dir, c.lose)))
			}
			mark := filepath.Join(workspace, "mark")
			write(t, workspace, map[string]string{".deepwork/config.yml": "workflow_tools: {sources: [{name: evil, " +
				"command: [sh, -c, 'touch " + mark + "']}]}\n"})
			cs := insideOf(t, workspace)
			for tool, args := range map[string]string{
				"start_workflow":         planTrip,
				"get_workflows":          `{}`,
				"get_step":               `{}`,
				"list_projects":          `{}`,
				"refresh_workflow_tools": `{}`,
			} {
				testkit.ContainsAll(t, refusedAs(t, cs, tool, args, "no_database"), c.names, "%s", tool)
			}
			testkit.Same(t, testkit.Get(filepath.Glob(filepath.Join(workspace, ".deepwork", "tmp", "session_*"))).
				Must(t), nil, "sessions")

			for _, path := range []string{mark, state.Of(workspace).Database()} {
				testkit.Fails(t, testkit.Get(os.Stat(path)).Err(), "", "there is %s", path)
			}
		})
	}
}

// In a workspace the config of the project applies, and never the branch's own file.
func TestAWorkspaceHasTheConfigOfItsProject(t *testing.T) {
	_, root := quietProject(t)
	write(t, root, map[string]string{".deepwork/config.yml": "executors: {MINE: {command: [sh, -c, 'true']}}\n"})
	_, workspace := attemptIn(t, root, "")
	mark := filepath.Join(workspace, "mark")
	write(t, workspace, map[string]string{".deepwork/config.yml": "executors: {THEIRS: {command: [sh]}}\n" +
		"workflow_tools: {sources: [{name: evil, command: [sh, -c, 'touch " + mark + "']}]}\n"})
	cs := insideOf(t, workspace)
	callTool(t, cs, "refresh_workflow_tools", `{}`)
	var names []string
	for _, x := range into[attempt.ExecutorsReply](t, cs, "list_executors", `{}`).Executors {
		names = append(names, x.Name)
	}
	testkit.True(t, !slices.Contains(names, "THEIRS") && slices.Contains(names, "MINE"), "the executors are %v", names)
	testkit.Fails(t, testkit.Get(os.Stat(mark)).Err(), "", "a source of the branch ran")
}

// A request that is let in before its token is withdrawn does nothing: it could start a workflow that no run knows.
func TestCallsAfterTheTokenIsWithdrawn(t *testing.T) {
	t.Parallel()
	c, empty := &stepCaller{grant: new(grant)}, "" // without a caller to which anything could get
	for _, err := range []error{
		testkit.Get(c.Start(t.Context(),
			workflow.StartArgs{Goal: "g", JobName: "j", WorkflowName: "w", ParentSessionID: &empty})).Err(),
		testkit.Get(c.Step(t.Context(), workflow.StepArgs{SessionID: &empty, StepID: &empty})).Err(),
		testkit.Get(c.Finish(t.Context(), workflow.FinishArgs{})).Err(),
	} {
		testkit.Equal(t, session.CodeOf(err), "other_session")
		testkit.Fails(t, err, "withdrawn")
	}
	testkit.Equal(t, *c.request(" "), " ", "a blank request_id, which the sessions refuse")

	// A workflow that could not be recorded for its run is aborted, although the call that has started it was given up.
	ctx, giveUp := context.WithCancel(t.Context())
	c.WorkflowCaller, c.grant.Session = &fakeAgent{}, "0a1b2c3d"
	c.grant.Child = func(ctx context.Context, _, _ string) error {
		giveUp()
		return ctx.Err()
	}
	testkit.Equal(t, testkit.Get(c.Start(ctx, workflow.StartArgs{})).Err().Error(), "context canceled", "and the abort")
}

// An agent of a run may work on its step for longer than other clients may be silent: its connection ends when it does.
func TestAgentsOfRunsMayBeSilent(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, textJob("", "text"))
	write(t, root, map[string]string{".deepwork/config.yml": "http: {idle_timeout: 20ms}\n"})
	w := &workplace{
		grants:  map[string]*grant{},
		dir:     filepath.Join(t.TempDir(), "mcp"),
		root:    root,
		attempt: &task.Attempt{},
		logger:  slog.New(slog.DiscardHandler),
		who:     session.LocalCaller(""),
	}
	defer func() { testkit.Works(t, w.opened.close(context.Background())) }()
	testkit.Works(t, w.open(t.Context(), Options{
		ProjectRoot:    root,
		Toolsets:       []string{"workflows"},
		StandardJobs:   fstest.MapFS{},
		AdditionalJobs: []string{},
	}))

	agent, end, err := w.Admit(run.Grant{Execution: "e", Session: "0a1b2c3d", Step: "text"})
	testkit.Works(t, err)
	_, token, _ := strings.Cut(strings.Join(agent.Env, "\n"), executors.TokenEnv+"=")
	token, _, _ = strings.Cut(token, "\n")
	c := httpClient(t, token)
	header := open(t, c, w.web)
	time.Sleep(300 * time.Millisecond)
	r := send(t, c, "POST", w.web.URL(), `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, header)
	testkit.Contains(t, r.body, "finished_step", "%d", r.status)

	end()
	send(t, c, "POST", w.web.URL(), `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`, header).is(t, 401)
}

// Seed 004, "Tools are discoverable". A project that never uses the board has none.
func TestReq004_ToolsAreDiscoverable(t *testing.T) {
	t.Parallel()
	s, root := project(t, nil)
	cs, file := client(t, s), state.Of(root).Database()
	tools := listed(t, cs)
	for _, name := range []string{"list_projects", "list_repos", "list_tasks", "list_task_attempts", "get_task",
		"create_task", "update_task", "delete_task",
		"start_task_attempt", "follow_up"} {
		testkit.True(t, tools[name] != nil, "%s is not listed", name)
	}
	testkit.True(t, tools["get_context"] == nil, "get_context is listed outside of a workspace")
	callTool(t, cs, "get_workflows", `{}`)
	testkit.FailsWith(t, testkit.Get(os.Stat(file)).Err(), os.ErrNotExist, "a board")
	callTool(t, cs, "list_projects", `{}`)
	testkit.Works(t, testkit.Get(os.Stat(file)).Err())
}

// Seed 004, "No workspace_id alias in MCP schemas".
func TestReq004_NoWorkspaceIDInSchemas(t *testing.T) {
	t.Parallel()
	for _, tool := range listTools(t) {
		text := testkit.Get(json.Marshal(tool)).Must(t)
		testkit.True(t, !strings.Contains(string(text), "workspace_id"), "%s: %s", tool.Name, text)
	}
}

// Seed 004, "Field docs are present"; TestField24_EveryFieldSaysItsFormat asks it of all tools.
func TestReq004_FieldDocsOfListTaskAttempts(t *testing.T) {
	t.Parallel()
	s, _ := fakeServer(t, nil)
	entry := schemaFrom(t, listed(t, client(t, s))["list_task_attempts"].OutputSchema).Properties["attempts"].Items
	for field, format := range map[string]string{
		"attempt_id":              "UUID",
		"workspace_branch":        "",
		"created_at":              "RFC 3339",
		"updated_at":              "RFC 3339",
		"latest_session_id":       "UUID",
		"latest_session_executor": "",
	} {
		testkit.Contains(t, entry.Properties[field].Description, format, "%s does not tell its format", field)
	}
	for _, state := range board.States {
		testkit.Contains(t, entry.Properties["state"].Description, string(state), "state's values")
	}
}

func repository(t *testing.T, root string) {
	t.Helper()
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "idea.txt"},
		{"commit", "-q", "-m", "first"}} {
		testkit.Git(t, root, args...)
	}
}

// Without a place for the state a server starts and serves what needs none; calls that
// write are refused, say what to set, and leave nothing behind.
func TestWithoutAPlaceForTheState(t *testing.T) {
	s, root := project(t, func(o *Options) { t.Setenv(state.Env, filepath.Join(o.ProjectRoot, "state")) })
	cs := client(t, s)
	accepted(t, cs, "get_workflows", `{}`)
	for tool, args := range map[string]string{
		"start_workflow": `{"goal":"g","job_name":"trip","workflow_name":"plan","request_id":"r"}`,
		"list_projects":  `{}`,
	} {
		res := callTool(t, cs, tool, args)
		testkit.Equal(t, errorMetaOf(t, res)["code"], "no_state_folder", "%s", tool)
		testkit.Contains(t, text(res), state.Env, "%s", tool)
	}

	for _, name := range []string{".deepwork/tmp", "state"} {
		testkit.FailsWith(t, testkit.Get(os.Stat(filepath.Join(root, name))).Err(), os.ErrNotExist, name)
	}
}

// Sessions that ended longer ago than sessions.keep_ended are removed beside a server that runs; younger and
// active ones stay.
func TestEndedSessionsAreRemoved(t *testing.T) {
	t.Parallel()
	s, root := project(t, nil)
	cs := client(t, s)
	into[replies.Start](t, cs, "start_workflow", `{"goal":"ended","job_name":"trip","workflow_name":"dream"}`)
	into[replies.Abort](t, cs, "abort_workflow", `{"explanation":"enough"}`)
	active := into[replies.Start](t, cs, "start_workflow",
		`{"goal":"active","job_name":"trip","workflow_name":"dream"}`).BeginStep.SessionID

	folder := testkit.Get(state.Find(root)).Must(t)
	stores := local.Stores(folder, false, slog.New(slog.DiscardHandler))
	engine := testkit.Get(workflow.Open(t.Context(), workflow.Options{Root: root, State: folder, Stores: stores})).
		Must(t)
	defer func() {
		testkit.Works(t, errors.Join(notStopped(engine.Close(context.Background())),
			stores.Close(context.Background())))
	}()
	p := &pruner{engine, config.Open(root).Current, slog.New(slog.DiscardHandler)}
	for _, tt := range []struct {
		config string
		after  time.Duration
		left   int
	}{{"", 9999 * time.Hour, 2}, {"sessions: {keep_ended: 2h}\n", time.Hour, 2},
		{"sessions: {keep_ended: 2h}\n", 3 * time.Hour, 1}} {
		write(t, root, map[string]string{".deepwork/config.yml": "version: \"1.0\"\n" + tt.config})
		p.prune(t.Context(), time.Now().Add(tt.after))
		left, err := engine.List(t.Context())
		testkit.Need(t, err == nil, "%q after %v: %d sessions are left, %v", tt.config, tt.after, len(left), err)
		testkit.Need(t, len(left) == tt.left, "%q after %v: %d sessions are left, %v", tt.config, tt.after,
			len(left), err)
		testkit.Equal(t, left[0].ID, active, "%q after %v: %d sessions are left, %v", tt.config, tt.after,
			len(left), err)
	}

	into[replies.Abort](t, cs, "abort_workflow", `{"explanation":"its definition is still there"}`)
}
