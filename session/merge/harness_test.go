package merge

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
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

func containsAll(s string, all ...string) bool {
	return !slices.ContainsFunc(all, func(part string) bool { return !strings.Contains(s, part) })
}

type project struct{ *attempttest.Project }

func newProject(t *testing.T) *project { return &project{attempttest.New(t)} }

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
	closed := false
	s := &server{Engine: e, t: p.T, stop: func() {
		if closed {
			return
		}
		closed = true
		stuck := e.Close(ctx)
		testkit.True(p.T, stuck == nil, "did not end: %v", stuck)
		if o.Stores != nil {
			must(p.T, o.Stores.Close(ctx))
		}
	}}
	p.T.Cleanup(s.stop)
	return s
}

// newTask makes a task of the root project whose description tells the agent what to do.
func (s *server) newTask(lines ...string) *board.Task {
	s.t.Helper()
	projects := testkit.Get(s.ListProjects(ctx, me, board.ListProjectsArgs{})).Must(s.t)
	root := projects.Projects[slices.IndexFunc(projects.Projects, func(p board.Project) bool { return p.IsRoot })]
	t := testkit.Get(s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: root.ProjectID, Title: "Add a basket", Description: new(strings.Join(lines, "\n"))})).Must(s.t)
	return t
}

// begin starts an attempt of a task in all repositories of its project.
func (s *server) begin(t *board.Task) *attempt.AttemptReply {
	s.t.Helper()
	repos := testkit.Get(s.ListRepos(ctx, me, board.ListReposArgs{ProjectID: t.ProjectID})).Must(s.t)
	a := attempt.StartArgs{TaskID: t.TaskID, Executor: "TEST"}
	for _, repo := range repos.Repos {
		a.Repos = append(a.Repos, attempt.RepoArgs{RepoID: repo.RepoID, TargetBranch: "main"})
	}
	r := testkit.Get(s.StartTaskAttempt(ctx, me, a)).Must(s.t)
	return r
}

// get returns an attempt as it is now.
func (s *server) get(id string) *attempt.FullAttemptReply {
	s.t.Helper()
	r := testkit.Get(s.GetAttempt(ctx, me, attempt.AttemptArgs{Target: the(id)})).Must(s.t)
	return r
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
