package attempt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/presence"
	"go.uber.org/goleak"

	"deepwork/actor/testkit"
	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/runner"
	"deepwork/session/state"
	"deepwork/session/state/statetest"
	"deepwork/session/store"
	"deepwork/session/store/postgres/pgtest"
)

// The test binary is, by its first argument, also the agent that attempts run,
// and the server that crash tests kill.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "agent":
			os.Exit(agentMain(os.Args[2:]))
		case "server":
			os.Exit(serverMain(os.Args[2:]))
		}
	}
	// A program built with -race sleeps for a second at its end, each child too.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(pgtest.Twice(onlyFiles, func() int { return statetest.Main(m, goleak.Find) }))
}

var must = testkit.Must

// me is the user, who makes the calls of tests that are not about callers.
var me = session.LocalCaller(session.ChannelStdio)

// A project is a project folder with a git repository, and its config.
type project struct {
	t    testing.TB
	root string
	cfg  atomic.Pointer[config.Config]
}

func newProject(t testing.TB) *project {
	t.Helper()
	root := testkit.Dir(t)
	home := filepath.Join(root, "home")
	root = filepath.Join(root, "shop")
	must(t, os.MkdirAll(home, 0o755))
	must(t, os.MkdirAll(root, 0o755))
	if t, is := t.(*testing.T); is {
		t.Setenv("HOME", home)
		t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
		t.Setenv(config.JobsFoldersEnv, "")
	}
	p := &project{t: t, root: root}
	p.repo(root)
	p.configure(func(*config.Config) {})
	t.Cleanup(p.endAgents)
	return p
}

// configure replaces the config by the tests' usual one with a change.
func (p *project) configure(change func(*config.Config)) {
	c := config.Default()
	agent := []string{os.Args[0], "agent"}
	c.Executors = []config.Executor{{
		Name: "TEST", Command: append(agent, "first"), Resume: append(agent, "resumed"), Env: map[string]string{"MODE": "quick"},
		Variants: []config.Variant{
			{Name: "OTHER", Command: append(agent, "other"), Env: map[string]string{"MODE": "slow"}},
			{Name: "SAME", Env: map[string]string{"MODE": "same"}},
		},
	}, {
		Name: "ARGUMENT", Command: append(agent, "first"), Prompt: config.PromptArgument,
	}, {
		Name: "MISSING", Command: []string{"./no-such-agent"},
	}}
	change(c)
	p.cfg.Store(c)
}

// git runs git in a folder and returns what it prints.
func (p *project) git(dir string, args ...string) string {
	p.t.Helper()
	return testkit.Git(p.t, dir, args...)
}

// repo makes a git repository with one commit on main.
func (p *project) repo(dir string) {
	p.t.Helper()
	must(p.t, os.MkdirAll(dir, 0o755))
	p.git(dir, "init", "-q", "-b", "main")
	must(p.t, os.WriteFile(filepath.Join(dir, "README"), []byte("hello\n"), 0o644))
	p.git(dir, "add", ".")
	p.git(dir, "commit", "-q", "-m", "first")
}

// A server is an engine as a server process has it.
type server struct {
	*Engine
	t    testing.TB
	p    *project
	done bool

	stores *store.Stores // of a database; closed with the server
}

var ctx = context.Background()

func (p *project) options() Options {
	return Options{
		Root: p.root, Config: func(context.Context) (*config.Config, error) { return p.cfg.Load(), nil },
		Poll: 20 * time.Millisecond, Grace: 300 * time.Millisecond,
	}
}

func (p *project) open(change ...func(*Options)) *server {
	p.t.Helper()
	o := p.options()
	o.Logger = slog.New(slog.NewTextHandler(testWriter{p.t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	for _, f := range change {
		f(&o)
	}
	s := &server{t: p.t, p: p}
	if o.Stores == nil {
		s.stores = p.stores()
		o.Stores = s.stores
	}
	e, err := Open(ctx, o)
	must(p.t, err)
	s.Engine = e
	p.t.Cleanup(s.stop)
	return s
}

// stop ends a server in order; its agents go on.
func (s *server) stop() {
	if s.done {
		return
	}
	s.done = true
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if stuck := s.Close(bounded); stuck != nil {
		s.t.Errorf("did not end: %v", stuck)
	}
	if s.stores != nil {
		must(s.t, s.stores.Close(bounded))
	}
}

// die ends a server as a kill does, as far as others can see: it does nothing
// more, and its lock is free.
func (s *server) die() {
	s.done = true
	s.halt()
	s.cancel()
	_ = wait.Group(ctx, &s.beside)
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	if s.stores != nil {
		must(s.t, s.stores.Close(ctx)) // as the last process of its place
		return
	}
	s.db.Close()
	s.member.(*presence.Member).Fall()
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// endAgents ends whatever agents a test has left.
func (p *project) endAgents() {
	runs, _ := filepath.Glob(filepath.Join(state.Of(p.root).Logs(), "attempts", "*", "runs", "*"))
	r := runner.Runner{Shim: []string{os.Args[0], runner.ShimCommand}}
	for _, dir := range runs {
		bounded, cancel := context.WithTimeout(ctx, time.Minute)
		if proc, err := r.Find(bounded, dir); err == nil {
			if _, err := proc.Stop(bounded, 0); err != nil {
				p.t.Errorf("an agent goes on: %v", err)
			}
		}
		cancel()
	}
}

// rootProject is the id of the project root and of its repository.
func (s *server) rootProject() (projectID, repoID string) {
	s.t.Helper()
	r, err := s.ListProjects(ctx, me, ListProjectsArgs{})
	must(s.t, err)
	for _, v := range r.Projects {
		if !v.IsRoot {
			continue
		}
		repos, err := s.ListRepos(ctx, me, ListReposArgs{ProjectID: v.ProjectID})
		must(s.t, err)
		if len(repos.Repos) == 1 {
			return v.ProjectID, repos.Repos[0].RepoID
		}
		return v.ProjectID, ""
	}
	s.t.Fatalf("no root project in %+v", r)
	return "", ""
}

// newTask makes a task whose description tells the agent what to do.
func (s *server) newTask(lines ...string) *Task {
	s.t.Helper()
	id, _ := s.rootProject()
	t, err := s.CreateTask(ctx, me, CreateTaskArgs{ProjectID: id, Title: "Add a basket", Description: orNull(strings.Join(lines, "\n"))})
	must(s.t, err)
	return t
}

// begin starts an attempt of a task.
func (s *server) begin(t *Task, change ...func(*StartArgs)) *AttemptReply {
	s.t.Helper()
	_, repo := s.rootProject()
	a := StartArgs{TaskID: t.TaskID, Executor: "TEST", Repos: []RepoArgs{{repo, "main"}}}
	for _, f := range change {
		f(&a)
	}
	r, err := s.StartTaskAttempt(ctx, me, a)
	must(s.t, err)
	return r
}

// claimed claims the next execution for a server that does not serve, and returns it with its attempt,
// whose paths are known.
func (s *server) claimed() (*task.Execution, *task.Attempt) {
	s.t.Helper()
	b, err := s.board(ctx)
	must(s.t, err)
	must(s.t, s.member.Enter(ctx))
	cfg := s.p.cfg.Load()
	x, err := b.ClaimNext(ctx, s.member.ID(), 4, s.claim(ctx, b, cfg), task.Limits{})
	must(s.t, err)
	a, err := b.Attempt(ctx, x.AttemptID)
	must(s.t, err)
	if a.Workspace == "" {
		must(s.t, s.place(ctx, b, cfg, a))
	}
	return x, a
}

func the(id string) Target { return Target{AttemptID: &id} }

// get returns an attempt as it is now.
func (s *server) get(id string) *AttemptReply {
	s.t.Helper()
	r, err := s.GetAttempt(ctx, me, AttemptArgs{the(id)})
	must(s.t, err)
	return &r.AttemptReply
}

// executions returns the runs of an attempt's agent, newest first.
func (s *server) executions(id string) []Execution {
	s.t.Helper()
	r, err := s.GetAttempt(ctx, me, AttemptArgs{the(id)})
	must(s.t, err)
	return r.Executions
}

// reaches waits until an attempt is in one of the states.
func (s *server) reaches(id string, states ...task.AttemptState) *AttemptReply {
	s.t.Helper()
	var r *AttemptReply
	eventually(s.t, func() string {
		b, err := s.board(ctx)
		must(s.t, err)
		a, err := b.Attempt(ctx, id)
		must(s.t, err)
		for _, state := range states {
			if a.State == state {
				r = s.get(id)
				if r.State == string(state) {
					return ""
				}
			}
		}
		return fmt.Sprintf("the attempt is %s (%s); expected %v", a.State, deref(a.Error), states)
	})
	return r
}

func (s *server) ends(id string) *AttemptReply {
	s.t.Helper()
	return s.reaches(id, task.Completed, task.Failed, task.Stopped, task.Interrupted)
}

func (s *server) task(id string) *TaskReply {
	s.t.Helper()
	r, err := s.GetTask(ctx, me, TaskArgs{id})
	must(s.t, err)
	return r
}

// output is what an attempt's agents wrote, a line each.
func (s *server) output(id string) string {
	s.t.Helper()
	r, err := s.TailAttempt(ctx, me, TailArgs{Target: the(id), AfterIndex: new(int64(-1)), Limit: new(MaxTail), Raw: new(true)})
	must(s.t, err)
	var lines []string
	for _, e := range r.Entries {
		if e.Stream != "system" {
			lines = append(lines, e.Text)
		}
	}
	return strings.Join(lines, "\n")
}

var eventually = testkit.Eventually

// groupEnds waits until nothing of a process group runs: what was killed is gone
// when the system comes to it.
func groupEnds(t testing.TB, pid int) {
	t.Helper()
	eventually(t, func() string {
		if groupAlive(pid) {
			return "something of its group is alive"
		}
		return ""
	})
}

// deref returns a value, or its zero value if it is missing.
func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// refused checks that an error is one for agents, of a code, and names a value.
func refused(t testing.TB, err error, kind session.Kind, code string, mentions ...string) {
	t.Helper()
	e, is := errors.AsType[*session.Error](err)
	if !is {
		t.Errorf("not refused with %s, but: %v", code, err)
		return
	}
	if e.Kind != kind || e.Code != code {
		t.Errorf("refused as %s %s; expected %s %s: %v", e.Kind, e.Code, kind, code, err)
	}
	for _, m := range mentions {
		if !strings.Contains(e.Message, m) {
			t.Errorf("%s does not mention %q: %s", code, m, e.Message)
		}
	}
}

func containsAll(s string, all ...string) bool {
	for _, part := range all {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}

// records is the folder of what is kept of an attempt outside the board.
func (s *server) records(attempt string) string {
	return local{logs: s.o.State.Logs()}.records(attempt)
}
