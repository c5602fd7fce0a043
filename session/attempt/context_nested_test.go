package attempt

import (
	"path/filepath"
	"testing"

	"deepwork/catalog/task"
)

// Where a task names no workflow, its own is the one that is nested in no other;
// where it names one, that counts wherever it runs.
func TestNewsOfNestedWorkflows(t *testing.T) {
	p := newProject(t)
	s := p.open()
	project, repo := s.rootProject()
	for _, c := range []struct {
		job, workflow *string
		want          string
	}{{nil, nil, "aaaaaaaa"}, {new("release"), new("write"), "bbbbbbbb"}} {
		v, err := s.CreateTask(ctx, me, CreateTaskArgs{ProjectID: project, Title: "Notes", Description: new("! await " + filepath.Join(p.root, "never")), JobName: c.job, WorkflowName: c.workflow})
		must(t, err)
		r := s.begin(v, func(a *StartArgs) { a.Repos = []RepoArgs{{repo, "main"}} })
		s.reaches(r.AttemptID, task.Running)
		inside, err := OpenContext(s.boardPath(), r.AttemptID, s.stores, nil)
		must(t, err)
		must(t, inside.Tell(ctx, News{JobName: "explore", WorkflowName: "all", SessionID: "aaaaaaaa", Status: WorkflowActive, Step: "look"}))
		must(t, inside.Tell(ctx, News{JobName: "release", WorkflowName: "write", SessionID: "bbbbbbbb", Status: WorkflowActive, Step: "collect", Nested: true}))
		got, err := inside.GetContext(ctx)
		must(t, err)
		if deref(got.WorkflowSessionID) != c.want {
			t.Errorf("%v: %+v", deref(c.job), got)
		}
		must(t, inside.Close())
		_, err = s.StopAttempt(ctx, me, AttemptArgs{Target: the(r.AttemptID)})
		must(t, err)
	}
}
