package attempt

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/presence"
	"deepwork/actor/testkit"
	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/attempttest"
	"deepwork/session/attempt/executors"
	"deepwork/session/board"
	"deepwork/session/store"
)

// The test binary is also the server that crash tests kill.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "server" {
		serverMain(os.Args[2:])
	}
	_ = flag.Set("test.parallel", "6") // they wait more than they compute
	attempttest.Main(m, onPostgres)
}

var must, refused, asJSON = testkit.Must, attempttest.Refused, attempttest.JSON

// me is the user, who makes the calls of tests that are not about callers.
var me = session.LocalCaller(session.ChannelStdio)

// A project is a project folder with a git repository, and its config.
type project struct {
	*attempttest.Project
	hold, up string // what an agent awaits and what it makes to say that it is up
}

// newProject makes the project of a test, which runs in parallel with others that have one.
func newProject(t *testing.T) *project {
	if _, ok := parallel.LoadOrStore(t, true); !ok {
		t.Parallel()
	}
	return alone(t)
}

// alone makes the project of a test that changes the environment, and so does not run in parallel.
func alone(t testing.TB) *project {
	p := attempttest.New(t)
	return &project{p, filepath.Join(p.Root, "..", "hold"), filepath.Join(p.Root, "..", "up")}
}

var parallel sync.Map // the tests that run in parallel

// setup has new worktrees be set up by these orders.
func setup(orders string) func(*config.Config) {
	return func(c *config.Config) { c.Attempts.Setup = []string{os.Args[0], "agent", "setup", orders} }
}

// opened makes the project of a test and opens it.
func opened(t *testing.T, change ...func(*Options)) (*project, *server) {
	t.Helper()
	p := newProject(t)
	return p, p.open(change...)
}

// boards wraps the boards of a server.
func (p *project) boards(wrap func(store.Board) store.Board) func(*Options) {
	return func(o *Options) {
		o.Stores = p.StoresWith(func(d store.Database) store.Database { return wrapped{d, wrap} })
	}
}

type wrapped struct {
	store.Database
	board func(store.Board) store.Board
}

func (d wrapped) Board() store.Board { return d.board(d.Database.Board()) }

// endsRuns has each run end well, at once.
var endsRuns = ending(board.RunEnd{State: board.Completed})

// A passive server starts nothing by itself, as that of a command.
func passive(o *Options) { o.Passive = true }

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
		Options: board.Options{
			Root:   p.Root,
			Config: func(context.Context) (*config.Config, error) { return p.Config.Load(), nil },
		},
		Poll: 20 * time.Millisecond, Grace: 300 * time.Millisecond,
	}
}

func (p *project) open(change ...func(*Options)) *server {
	p.T.Helper()
	o := p.options()
	o.Logger = slog.New(slog.NewTextHandler(p.T.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	for _, f := range change {
		f(&o)
	}
	s := &server{t: p.T, p: p}
	if o.Stores == nil {
		s.stores = p.Stores()
		o.Stores = s.stores
	}
	s.Engine = testkit.Get(Open(ctx, o)).Must(p.T)
	p.T.Cleanup(s.stop)
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
	stuck := s.Close(bounded)
	testkit.True(s.t, stuck == nil, "did not end: %v", stuck)
	if s.stores != nil {
		must(s.t, s.stores.Close(bounded))
	}
}

// die ends a server as a kill does, as far as others can see: it does nothing more, and its lock is free.
func (s *server) die() {
	s.done = true
	s.halt()
	s.cancel()
	_ = wait.Group(ctx, &s.background)
	if s.stores != nil {
		must(s.t, s.stores.Close(ctx)) // as the last process of its place
		return
	}

	s.Database.Close()
	s.Members.(*presence.Member).Fall()
}

// rootProject is the id of the project root and of its repository.
func (s *server) rootProject() (projectID, repoID string) {
	s.t.Helper()
	projectID, repos := s.project(filepath.Base(s.p.Root))
	for _, id := range repos {
		repoID = id
	}
	return projectID, repoID
}

// newTask makes a task whose description tells the agent what to do.
func (s *server) newTask(lines ...string) *board.Task {
	s.t.Helper()
	id, _ := s.rootProject()
	return testkit.Get(s.CreateTask(ctx, me, board.CreateTaskArgs{
		ProjectID:   id,
		Title:       "Add a basket",
		Description: board.OrNull(strings.Join(lines, "\n")),
	})).Must(s.t)
}

// project returns the id of a project and those of its repositories by their names.
func (s *server) project(name string) (id string, repos map[string]string) {
	s.t.Helper()
	all := testkit.Get(s.ListProjects(ctx, me, board.ListProjectsArgs{})).Must(s.t).Projects
	id = all[slices.IndexFunc(all, func(p board.Project) bool { return p.Name == name })].ProjectID
	repos = map[string]string{}
	for _, r := range testkit.Get(s.ListRepos(ctx, me, board.ListReposArgs{ProjectID: id})).Must(s.t).Repos {
		repos[r.Name] = r.RepoID
	}
	return id, repos
}

// starting are the arguments by which an attempt of a task is started.
func (s *server) starting(t *board.Task) StartArgs {
	s.t.Helper()
	_, repo := s.rootProject()
	return StartArgs{TaskID: t.TaskID, Executor: "TEST", Repos: []RepoArgs{{repo, "main"}}}
}

// begin starts an attempt of a task.
func (s *server) begin(t *board.Task, change ...func(*StartArgs)) *AttemptReply {
	s.t.Helper()
	a := s.starting(t)
	for _, f := range change {
		f(&a)
	}
	return testkit.Get(s.StartTaskAttempt(ctx, me, a)).Must(s.t)
}

// runs starts an attempt of a new task, and waits until its agent runs; ran until it has ended.
func (s *server) runs(lines ...string) *AttemptReply {
	s.t.Helper()
	return s.reaches(s.begin(s.newTask(lines...)).AttemptID, task.Running)
}

func (s *server) ran(lines ...string) *AttemptReply {
	s.t.Helper()
	return s.ends(s.begin(s.newTask(lines...)).AttemptID)
}

// claimed claims the next execution for a server that does not serve, and returns it with its attempt,
// whose paths are known.
func (s *server) claimed() (*task.Execution, *task.Attempt) {
	s.t.Helper()
	b := s.store()
	must(s.t, s.Members.Enter(ctx))
	cfg := s.p.Config.Load()
	x := testkit.Get(b.ClaimNext(ctx, s.Members.ID(), 4, s.claim(ctx, b, cfg), task.Limits{})).Must(s.t)
	a := testkit.Get(b.Attempt(ctx, x.AttemptID)).Must(s.t)
	if a.Workspace == "" {
		must(s.t, s.choosePaths(ctx, b, cfg, a))
	}
	return x, a
}

func the(id string) board.Target { return board.Target{AttemptID: &id} }

// get returns an attempt as it is now.
func (s *server) get(id string) *AttemptReply {
	s.t.Helper()
	return &testkit.Get(s.GetAttempt(ctx, me, AttemptArgs{the(id)})).Must(s.t).AttemptReply
}

func (s *server) store() store.Board {
	s.t.Helper()
	return testkit.Get(s.Store(ctx)).Must(s.t)
}

// executions returns the runs of an attempt's agent, newest first.
func (s *server) executions(id string) []Execution {
	s.t.Helper()
	return testkit.Get(s.GetAttempt(ctx, me, AttemptArgs{the(id)})).Must(s.t).Executions
}

// reaches waits until an attempt is in one of the states.
func (s *server) reaches(id string, states ...task.AttemptState) *AttemptReply {
	s.t.Helper()
	var r *AttemptReply
	eventually(s.t, func() string {
		a := testkit.Get(s.store().Attempt(ctx, id)).Must(s.t)
		if slices.Contains(states, a.State) {
			if r = s.get(id); r.State == board.ExecutionState(a.State) {
				return ""
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

func (s *server) task(id string) *board.TaskReply {
	s.t.Helper()
	return testkit.Get(s.GetTask(ctx, me, board.TaskArgs{TaskID: id})).Must(s.t)
}

// output is what an attempt's agents wrote, a line each.
func (s *server) output(id string) string {
	s.t.Helper()
	r := testkit.Get(s.TailAttempt(ctx, me,
		TailArgs{Target: the(id), AfterIndex: new(int64(-1)), Limit: new(MaxTail), Raw: new(true)})).Must(s.t)
	var lines []string
	for _, e := range r.Entries {
		if e.Stream != "system" {
			lines = append(lines, e.Text)
		}
	}
	return strings.Join(lines, "\n")
}

// prints waits until the agents of an attempt have written texts.
func (s *server) prints(id string, texts ...string) {
	s.t.Helper()
	eventually(s.t, func() string {
		if out := s.output(id); !containsAll(out, texts...) {
			return "they wrote " + out
		}
		return ""
	})
}

var eventually = testkit.Eventually

// link makes a symbolic link, or skips the test.
func link(t *testing.T, to, at string) {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Skip("no symlinks here:", err)
	}
}

// appears waits until a file or folder is there.
func appears(t testing.TB, path string) {
	t.Helper()
	testkit.Until(t, path+" to be there", func() bool { return Exists(path) })
}

// vanishes waits until a file or folder is gone.
func vanishes(t testing.TB, path string) {
	t.Helper()
	testkit.Until(t, path+" to be gone", func() bool { return !Exists(path) })
}

// groupEnds waits until nothing runs of the group whose first process has written its number to a file: what was killed
// is gone when the system comes to it.
func groupEnds(t testing.TB, file string) {
	t.Helper()
	pid := testkit.Get(strconv.Atoi(string(testkit.Get(os.ReadFile(file)).Must(t)))).Must(t)
	testkit.Until(t, "gone with its group", func() bool { return !groupAlive(pid) })
}

// deref returns a value, or its zero value if it is missing.
func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func containsAll(s string, all ...string) bool {
	return !slices.ContainsFunc(all, func(part string) bool { return !strings.Contains(s, part) })
}

// records is the folder of what is kept of an attempt outside the board.
func (s *server) records(attempt string) string {
	return executors.Local{Logs: s.State().Logs()}.Records(attempt)
}

// runOf is the folder of the run of an attempt's agent.
func (s *server) runOf(attempt string) string {
	s.t.Helper()
	runs := testkit.Get(filepath.Glob(filepath.Join(s.records(attempt), "runs", "*"))).Must(s.t)
	testkit.Need(s.t, len(runs) == 1, "runs: %v", runs)
	return runs[0]
}

func (s *server) stopAttempt(id string) *AttemptReply {
	s.t.Helper()
	return testkit.Get(s.StopAttempt(ctx, me, AttemptArgs{the(id)})).Must(s.t)
}

// latest returns an attempt's newest execution.
func (s *server) latest(attempt string) *task.Execution {
	s.t.Helper()
	return testkit.Get(s.store().LatestExecution(ctx, attempt)).Must(s.t)
}

// onPostgres are the tests that run with PostgreSQL, too: those about servers that share a project. The
// others are about git, agents, their records or arguments, and what they store is tested with the stores.
const onPostgres = `
	TestABoardThatOthersChange TestACopyBringsItsWorktrees TestAMachineStopsWhenItIsBack TestAMachineTakesOnlyWhatItHas
	TestAMachineThatIsGone TestAgentOutlivesServer TestAnAttemptOnAnotherMachine TestAttemptRuns ` +
	`TestDeleteKeepsStartsOut
	TestDeletingWhatIsOnAMachineThatIsGone TestInspectOnMachines TestNothingIsStartedOfWhatIsDeleted
	TestStopElsewhere TestTheStoreIsAwaySinceAChange TestWorktreesThatAreNotRecorded`
