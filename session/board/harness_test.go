package board

import (
	"context"
	"os"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/attempt/attempttest"
)

func TestMain(m *testing.M) {
	attempttest.Main(m, "TestReq004_ProjectsAndRepos TestReq004_Tasks TestCreateTaskOnce")
}

var (
	ctx           = context.Background()
	me            = session.LocalCaller(session.ChannelStdio)
	must, refused = testkit.Must, attempttest.Refused
)

const nobody = "3b241101-e2bb-4255-8caf-4136c566a962"

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

type project struct{ *attempttest.Project }

func newProject(t *testing.T) *project { return &project{attempttest.New(t)} }

// A server is a board as a server process has it.
type server struct {
	*Board
	t    testing.TB
	stop func()
}

func (p *project) open(change ...func(*Options)) *server {
	o := Options{Root: p.Root, Stores: p.Stores(), Config: func(context.Context) (*config.Config, error) { return p.Config.Load(), nil }}
	for _, f := range change {
		f(&o)
	}
	b := New(o)
	closed := false
	s := &server{Board: b, t: p.T, stop: func() {
		if closed {
			return
		}
		closed = true
		must(p.T, b.Close(ctx))
		if o.Stores != nil {
			must(p.T, o.Stores.Close(ctx))
		}
	}}
	p.T.Cleanup(s.stop)
	return s
}

// rootProject is the id of the project root and of its repository, which may be "".
func (s *server) rootProject() (projectID, repoID string) {
	s.t.Helper()
	r := testkit.Get(s.ListProjects(ctx, me, ListProjectsArgs{})).Must(s.t)
	for _, v := range r.Projects {
		if v.IsRoot {
			projectID = v.ProjectID
		}
	}
	repos := testkit.Get(s.ListRepos(ctx, me, ListReposArgs{ProjectID: projectID})).Must(s.t)
	if len(repos.Repos) == 1 {
		repoID = repos.Repos[0].RepoID
	}
	return projectID, repoID
}

func (s *server) newTask(lines ...string) *Task {
	s.t.Helper()
	id, _ := s.rootProject()
	return testkit.Get(s.CreateTask(ctx, me, CreateTaskArgs{ProjectID: id, Title: "Add a basket", Description: OrNull(strings.Join(lines, "\n"))})).Must(s.t)
}
