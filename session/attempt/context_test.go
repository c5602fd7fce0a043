package attempt

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/store"
)

// moves writes a transition of a session of an attempt's workspace.
func (s *server) moves(attempt string, to store.Session) {
	s.t.Helper()
	sessions := s.Database.Sessions()
	w := &store.SessionWrite{Session: to, Before: -1, Frame: "{}"}
	if all, err := sessions.ListSessions(ctx, store.SessionQuery{IDs: []string{to.ID}}); err != nil || len(all) > 0 {
		must(s.t, err)
		w.Before = all[0].Revision
	}
	w.Revision, w.AttemptID, w.StartedAt, w.UpdatedAt = w.Before+1, attempt, time.Now(), time.Now()
	if written, err := sessions.WriteSession(ctx, w); err != nil || !written {
		s.t.Fatalf("session %s was not written: %v", to.ID, err)
	}
}

// Seed 004, "Workspace context data".
func TestReq004_GetContext(t *testing.T) {
	p := newProject(t)
	hold := filepath.Join(p.Root, "..", "hold")
	s := p.open()
	project, repo := s.rootProject()
	v := s.newTask("! await " + hold)
	r := s.begin(v)
	r = s.reaches(r.AttemptID, task.Running)
	env := map[string]string{config.AttemptEnv: r.AttemptID, config.BoardEnv: s.boardPath()}
	getenv := func(k string) string { return env[k] }
	w := board.FindWorkspace(r.Repos[0].WorktreePath, func(string) string { return "" })
	if w == nil || w.Attempt != r.AttemptID || !w.ByPath {
		t.Fatalf("the folder of a workspace was not recognized: %+v", w)
	}
	if is, err := w.Confirm(ctx, s.Database); !is || err != nil {
		t.Errorf("the database does not confirm the workspace: %v", err)
	}
	for _, root := range []string{p.Root, filepath.Dir(filepath.Dir(r.Repos[0].WorktreePath)), "/"} {
		if w := board.FindWorkspace(root, func(string) string { return "" }); w != nil {
			t.Errorf("%s is taken for the workspace of %s", root, w.Attempt)
		}
		if is, err := board.FindWorkspace(root, getenv).Confirm(ctx, s.Database); is || err != nil {
			t.Errorf("%s is taken for the workspace: %v %v", root, is, err)
		}
	}
	c, err := board.OpenContext(r.AttemptID, s.Database)
	must(t, err)
	got, err := c.GetContext(ctx)
	must(t, err)
	if got.ProjectID != project || got.ProjectName != "shop" || got.TaskID != v.TaskID || got.TaskTitle != v.Title || got.TaskStatus != "inprogress" ||
		got.AttemptID != r.AttemptID || got.WorkspaceBranch != r.WorkspaceBranch || got.WorkflowSessionID != nil || len(got.WorkspaceRepos) != 1 {
		t.Errorf("%+v", got)
	}
	if w := got.WorkspaceRepos[0]; w.RepoID != repo || w.RepoName != "shop" || w.TargetBranch != "main" || w.WorktreePath != r.Repos[0].WorktreePath {
		t.Errorf("%+v", w)
	}
	must(t, os.WriteFile(hold, nil, 0o644))
	s.ends(r.AttemptID)
	_, err = s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})
	must(t, err)
	_, err = c.GetContext(ctx)
	refused(t, err, session.ToolError, "unknown_attempt", r.AttemptID)
}

// A task with a workflow is to be reviewed only when that is complete.
func TestTaskWaitsForItsWorkflow(t *testing.T) {
	p := newProject(t)
	s := p.open()
	project, repo := s.rootProject()
	hold := filepath.Join(p.Root, "..", "hold")
	v, err := s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: project, Title: "Notes", Description: new("! prompt\n! await " + hold), JobName: new("release"), WorkflowName: new("write")})
	must(t, err)
	r := s.begin(v, func(a *StartArgs) { a.Repos = []RepoArgs{{repo, "main"}} })
	s.reaches(r.AttemptID, task.Running)
	c, err := board.OpenContext(r.AttemptID, s.Database)
	must(t, err)
	s.moves(r.AttemptID, store.Session{ID: "0123abcd", Job: "release", Workflow: "write", Status: board.WorkflowActive, Step: "collect"})
	s.moves(r.AttemptID, store.Session{ID: "0123abce", Job: "other", Workflow: "write", Status: board.WorkflowCompleted, Step: "nested"}) // is not the task's
	got, err := c.GetContext(ctx)
	must(t, err)
	if deref(got.WorkflowSessionID) != "0123abcd" || deref(got.WorkflowStep) != "collect" || deref(got.WorkflowStatus) != "active" || deref(got.JobName) != "release" {
		t.Errorf("%+v", got)
	}
	must(t, os.WriteFile(hold, nil, 0o644))
	r = s.ends(r.AttemptID)
	if now := s.task(v.TaskID); r.State != "completed" || now.Status != "inprogress" || now.LastAttemptFailed || deref(r.WorkflowStep) != "collect" {
		t.Errorf("%+v %+v", r, now)
	}
	if out := s.output(r.AttemptID); !containsAll(out, "release/write", "start_workflow", "get_context", "workflow_complete") {
		t.Errorf("the prompt:\n%s", out)
	}
	must(t, os.Remove(hold))
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("! await " + hold)})
	s.moves(r.AttemptID, store.Session{ID: "99999999", Job: "release", Workflow: "write", Status: board.WorkflowActive, Step: "collect"})
	s.moves(r.AttemptID, store.Session{ID: "0123abcd", Job: "release", Workflow: "write", Status: board.WorkflowCompleted, Step: "draft"})
	// The end of one that was begun before, by mistake say, undoes nothing.
	s.moves(r.AttemptID, store.Session{ID: "99999999", Job: "release", Workflow: "write", Status: board.WorkflowAborted, Step: "collect"})
	must(t, os.WriteFile(hold, nil, 0o644))
	s.ends(r.AttemptID)
	if now := s.task(v.TaskID); now.Status != "inreview" {
		t.Errorf("%+v", now)
	}
}
