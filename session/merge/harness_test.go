package merge

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/attempt/attempttest"
	"deepwork/session/board"
)

func TestMain(m *testing.M) {
	attempttest.Main(m, "TestFromBranchToMerged TestCommentsBecomeOneFollowUp")
}

var (
	ctx           = context.Background()
	me            = session.LocalCaller(session.ChannelStdio)
	must, refused = testkit.Must, attempttest.Refused
	eventually    = testkit.Eventually
	deref, asJSON = board.OrEmpty, attempttest.JSON
)

const nobody = "3b241101-e2bb-4255-8caf-4136c566a962"

func the(id string) board.Target { return board.Target{AttemptID: &id} }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

type project struct{ *attempttest.Project }

// newProject is a project whose user may commit.
func newProject(t *testing.T) *project {
	t.Parallel()
	p := &project{attempttest.New(t)}
	p.asUna(p.Root)
	return p
}

func (p *project) asUna(dir string) {
	p.Git(dir, "config", "user.name", "Una User")
	p.Git(dir, "config", "user.email", "una@example.com")
}

// commit commits all of a checkout or worktree after a file was written.
func (p *project) commit(dir, name, text string) {
	p.T.Helper()
	testkit.Write(p.T, filepath.Join(dir, name), text)
	p.Git(dir, "add", "-A")
	p.Git(dir, "commit", "-q", "-m", name)
}

// A server is an engine as a server process has it.
type server struct {
	*attempt.Engine
	t    testing.TB
	stop func()
}

func (p *project) open(change ...func(*attempt.Options)) *server {
	p.T.Helper()
	o := attempt.Options{Poll: 20 * time.Millisecond, Grace: 300 * time.Millisecond,
		Options: board.Options{Root: p.Root, Stores: p.Stores(), Config: func(context.Context) (*config.Config, error) { return p.Config.Load(), nil }}}
	for _, f := range change {
		f(&o)
	}
	e := testkit.Get(attempt.Open(ctx, o)).Must(p.T)
	s := &server{Engine: e, t: p.T, stop: sync.OnceFunc(func() {
		testkit.Same(p.T, e.Close(ctx), nil, "did not end")
		if o.Stores != nil {
			must(p.T, o.Stores.Close(ctx))
		}
	})}
	p.T.Cleanup(s.stop)
	return s
}

// newTask makes a task of the root project whose description tells the agent what to do.
func (s *server) newTask(lines ...string) *board.Task {
	s.t.Helper()
	projects := testkit.Get(s.ListProjects(ctx, me, board.ListProjectsArgs{})).Must(s.t)
	root := projects.Projects[slices.IndexFunc(projects.Projects, func(p board.Project) bool { return p.IsRoot })]
	return testkit.Get(s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: root.ProjectID, Title: "Add a basket", Description: new(strings.Join(lines, "\n"))})).Must(s.t)
}

// begin starts an attempt of a task in all repositories of its project.
func (s *server) begin(t *board.Task) *attempt.AttemptReply {
	s.t.Helper()
	repos := testkit.Get(s.ListRepos(ctx, me, board.ListReposArgs{ProjectID: t.ProjectID})).Must(s.t)
	a := attempt.StartArgs{TaskID: t.TaskID, Executor: "TEST"}
	for _, repo := range repos.Repos {
		a.Repos = append(a.Repos, attempt.RepoArgs{RepoID: repo.RepoID, TargetBranch: "main"})
	}
	return testkit.Get(s.StartTaskAttempt(ctx, me, a)).Must(s.t)
}

// done is an attempt of a new task that has ended.
func (s *server) done(lines ...string) *attempt.FullAttemptReply {
	s.t.Helper()
	return s.ends(s.begin(s.newTask(lines...)).AttemptID)
}

// get returns an attempt as it is now.
func (s *server) get(id string) *attempt.FullAttemptReply {
	s.t.Helper()
	return testkit.Get(s.GetAttempt(ctx, me, attempt.AttemptArgs{Target: the(id)})).Must(s.t)
}

// merge merges an attempt in the usual way, which must succeed.
func (s *server) merge(a MergeArgs) *Reply {
	s.t.Helper()
	return testkit.Get(Merge(ctx, s.Engine, me, a)).Must(s.t)
}

// notMerged checks why an attempt is not merged.
func (s *server) notMerged(a MergeArgs, kind session.Kind, code string, mentions ...string) {
	s.t.Helper()
	refused(s.t, testkit.Get(Merge(ctx, s.Engine, me, a)).Err(), kind, code, mentions...)
}

// calls are all that change an attempt's branches.
func (s *server) calls(id string) map[string]error {
	get := func(_ any, err error) error { return err }
	return map[string]error{
		"merge":  get(Merge(ctx, s.Engine, me, MergeArgs{Target: the(id)})),
		"rebase": get(Rebase(ctx, s.Engine, me, BranchArgs{Target: the(id)})),
		"abort":  get(Abort(ctx, s.Engine, me, BranchArgs{Target: the(id)})),
		"push":   get(Push(ctx, s.Engine, me, PushArgs{Target: the(id)})),
		"target": get(ChangeTarget(ctx, s.Engine, me, TargetArgs{Target: the(id), TargetBranch: "main"})),
	}
}

// reaches waits until an attempt is in one of the states.
func (s *server) reaches(id string, states ...task.AttemptState) (r *attempt.FullAttemptReply) {
	s.t.Helper()
	eventually(s.t, func() string {
		if r = s.get(id); slices.Contains(states, task.AttemptState(r.State)) {
			return ""
		}
		return fmt.Sprintf("the attempt is %s (%s); expected %v", r.State, deref(r.Error), states)
	})
	return r
}

func (s *server) ends(id string) *attempt.FullAttemptReply {
	s.t.Helper()
	return s.reaches(id, task.Completed, task.Failed, task.Stopped, task.Interrupted)
}

func (s *server) stopAttempt(id string) {
	s.t.Helper()
	testkit.Get(s.StopAttempt(ctx, me, attempt.AttemptArgs{Target: the(id)})).Must(s.t)
}
