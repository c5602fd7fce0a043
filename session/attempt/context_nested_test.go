package attempt

import (
	"path/filepath"
	"testing"

	"deepwork/catalog/task"
	"deepwork/session/board"
	"deepwork/session/store"
)

// Where a task names no workflow, its own is the one that is nested in no other;
// where it names one, that counts wherever it runs.
func TestNewsOfNestedWorkflows(t *testing.T) {
	p := newProject(t)
	s := p.open()
	project, repo := s.rootProject()
	for _, c := range []struct {
		job, workflow *string
		outer, inner  string
		want          string
	}{{nil, nil, "aaaaaaa1", "bbbbbbb1", "aaaaaaa1"}, {new("release"), new("write"), "aaaaaaa2", "bbbbbbb2", "bbbbbbb2"}} {
		v, err := s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: project, Title: "Notes", Description: new("! await " + filepath.Join(p.Root, "never")), JobName: c.job, WorkflowName: c.workflow})
		must(t, err)
		r := s.begin(v, func(a *StartArgs) { a.Repos = []RepoArgs{{repo, "main"}} })
		s.reaches(r.AttemptID, task.Running)
		inside, err := board.OpenContext(r.AttemptID, s.Database)
		must(t, err)
		s.moves(r.AttemptID, store.Session{ID: c.outer, Job: "explore", Workflow: "all", Status: board.WorkflowActive, Step: "look"})
		s.moves(r.AttemptID, store.Session{ID: c.inner, Job: "release", Workflow: "write", Status: board.WorkflowActive, Step: "collect", Parent: c.outer})
		got, err := inside.GetContext(ctx)
		must(t, err)
		if deref(got.WorkflowSessionID) != c.want {
			t.Errorf("%v: %+v", deref(c.job), got)
		}
		_, err = s.StopAttempt(ctx, me, AttemptArgs{Target: the(r.AttemptID)})
		must(t, err)
	}
}
