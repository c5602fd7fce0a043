package attempt

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/durable"
	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
)

// While a task is deleted nothing of it is started, by whatever server; a
// deletion that is refused leaves a task that can be worked on.
func TestNothingIsStartedOfWhatIsDeleted(t *testing.T) {
	p, s := opened(t)
	v := s.newTask("! write loose.txt loose")
	r := s.ends(s.begin(v).AttemptID)
	testkit.Get(s.store().BeginDelete(ctx, v.TaskID)).Must(t) // as another server does
	refused(t, testkit.Get(s.StartTaskAttempt(ctx, me, s.starting(v))).Err(), session.StateError, "being_deleted", "delete_task")
	for _, action := range []string{ActionSend, ActionQueue} {
		refused(t, testkit.Get(s.FollowUp(ctx, me, FollowUpArgs{Target: the(r.AttemptID), Action: action, Prompt: new("x")})).Err(), session.StateError, "being_deleted", "delete_task")
	}
	// The first server was killed; the next call is refused, and nothing is gone.
	p.Git(p.Root, "worktree", "lock", "--reason", "I work here", r.Repos[0].WorktreePath)
	refused(t, testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Err(), session.StateError, "worktree_in_use", "I work here")
	testkit.Equal(t, s.ends(s.begin(v).AttemptID).State, "completed")
	p.Git(p.Root, "worktree", "unlock", r.Repos[0].WorktreePath)
	testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Must(t)
}

// A request_id is good for one thing: when that is deleted it says so, and makes no second one.
func TestRequestsAfterDeletion(t *testing.T) {
	s := newProject(t).open()
	project, _ := s.rootProject()
	create := board.CreateTaskArgs{ProjectID: project, Title: "One", RequestID: new("call-1")}
	v := testkit.Get(s.CreateTask(ctx, me, create)).Must(t)
	start := s.starting(v)
	start.RequestID = new("call-2")
	r := testkit.Get(s.StartTaskAttempt(ctx, me, start)).Must(t)
	s.ends(r.AttemptID)
	testkit.Equal(t, testkit.Get(s.StartTaskAttempt(ctx, me, start)).Must(t).AttemptID, r.AttemptID, "a repeated call made a second attempt")
	testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Must(t)
	refused(t, testkit.Get(s.CreateTask(ctx, me, create)).Err(), session.ToolError, "deleted_since", "request_id")
	refused(t, testkit.Get(s.StartTaskAttempt(ctx, me, start)).Err(), session.ToolError, "deleted_since", "request_id")
	refused(t, testkit.Get(s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: nobody, Title: "One", RequestID: new("call-3")})).Err(), session.ToolError, "unknown_project", nobody)
}

// Without git nothing is made, and the refusal says what is missing.
func TestWithoutGit(t *testing.T) {
	p := alone(t)
	s := p.open()
	v := s.newTask("! say x")
	start := s.starting(v)
	path := os.Getenv("PATH")
	t.Setenv("PATH", filepath.Join(p.Root, "nothing"))
	refused(t, testkit.Get(s.StartTaskAttempt(ctx, me, start)).Err(), session.StateError, "git_failed", "not in PATH", "install git")
	t.Setenv("PATH", path)
	now := s.task(v.TaskID)
	testkit.True(t, now.LatestAttemptID == nil && now.Status == "todo", "%+v", now)
}

// lockTrees has the worktrees of an attempt be worked on.
func (s *server) lockTrees(r *AttemptReply) *durable.FileLock {
	s.t.Helper()
	lock, err := durable.TryLock(filepath.Join(s.State().Worktrees(), ".journal", "locks", "attempt-"+worktree.NameOf(r.Repos[0].WorktreePath)+".lock"))
	testkit.Need(s.t, err == nil && lock != nil, "%v %v", lock, err)
	return lock
}

// An attempt that is started while the worktrees of others go would be deleted
// with the task and its worktree left: it is refused from the first moment on.
func TestDeleteKeepsStartsOut(t *testing.T) {
	p := newProject(t)
	s, other := p.open(), p.open()
	v := s.newTask("! say x")
	r := s.ends(s.begin(v).AttemptID)
	lock := s.lockTrees(r)
	done := make(chan error, 1)
	go func() { _, err := s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID}); done <- err }()
	testkit.Until(t, "being removed", func() bool { return len(testkit.Get(s.store().Deleting(ctx)).Must(t)) > 0 })
	refused(t, testkit.Get(other.StartTaskAttempt(ctx, me, other.starting(v))).Err(), session.StateError, "being_deleted", "delete_task")
	must(t, lock.Unlock())
	must(t, <-done)
}

// delete_task removes rows and worktrees, and no work: what is not committed is
// under a ref, and branches with commits stay.
func TestDeleteTask(t *testing.T) {
	p, s := opened(t)
	v := s.newTask("! write done.txt committed", "! commit half of it", "! write loose.txt loose", "! write README changed")
	first := s.ends(s.begin(v).AttemptID)
	second := s.ends(s.begin(v, func(a *StartArgs) { a.Executor, a.Prompt = "TEST", new("! say only") }).AttemptID)
	third := s.ends(s.begin(s.newTask("! say another task")).AttemptID)
	r := testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Must(t)
	testkit.Need(t, r.TaskID == v.TaskID && r.Deleted && len(r.Rescued) == 2, "%+v", r)
	for _, kept := range r.Rescued {
		testkit.True(t, (kept.AttemptID == first.AttemptID || kept.AttemptID == second.AttemptID) && kept.RepoPath == p.Root && strings.HasPrefix(kept.Ref, "refs/deepwork/rescue/"+kept.AttemptID), "%+v", kept)
		testkit.Equal(t, p.Git(p.Root, "rev-parse", kept.Ref), kept.Commit, "%s", kept.Ref)
		for name, want := range map[string]string{"loose.txt": "loose", "README": "changed", "done.txt": "committed"} {
			testkit.Equal(t, p.Git(p.Root, "show", kept.Ref+":"+name), want, "%s of %s", name, kept.Ref)
		}
	}
	testkit.Equal(t, p.Git(p.Root, "log", "-1", "--format=%s", first.WorkspaceBranch), "half of it", "the branch")
	refused(t, testkit.Get(s.GetTask(ctx, me, board.TaskArgs{TaskID: v.TaskID})).Err(), session.ToolError, "unknown_task")
	refused(t, testkit.Get(s.GetAttempt(ctx, me, AttemptArgs{the(first.AttemptID)})).Err(), session.ToolError, "unknown_attempt")
	testkit.True(t, !Exists(first.Repos[0].WorktreePath) && !Exists(s.records(first.AttemptID)), "folders of the attempt are left")
	testkit.True(t, Exists(third.Repos[0].WorktreePath) && s.get(third.AttemptID).State == "completed", "another task's attempt is gone")
	testkit.Equal(t, strings.Count(p.Git(p.Root, "worktree", "list"), "\n"), 1, "worktrees")
}

// A task whose agent waits or runs is not deleted, and nothing of it is touched.
func TestDeleteRunningTask(t *testing.T) {
	p, s := opened(t)
	hold := filepath.Join(p.Root, "..", "hold")
	v := s.newTask("! await " + hold)
	r := s.begin(v)
	refused(t, testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Err(), session.StateError, "attempt_running", v.TaskID, "stop_attempt")
	s.reaches(r.AttemptID, task.Running)
	refused(t, testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Err(), session.StateError, "attempt_running")
	r = s.get(r.AttemptID)
	testkit.True(t, r.State == "running" && r.Repos[0].Exists, "%+v", r)
	must(t, os.WriteFile(hold, nil, 0o644))
	s.ends(r.AttemptID)
	testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Must(t)
}

// A removal that was cut short keeps follow-ups out, and the same call again finishes it.
func TestDeleteIsFinishedByRepetition(t *testing.T) {
	p, s := opened(t)
	v := s.newTask("! write loose.txt loose")
	r := s.ends(s.begin(v).AttemptID)
	// As a server leaves it that is killed between the worktrees and the rows.
	testkit.Get(s.store().BeginDelete(ctx, v.TaskID)).Must(t)
	at := testkit.Get(s.store().Attempt(ctx, r.AttemptID)).Must(t)
	_, _, err := s.Worktrees(at).Remove(ctx, r.AttemptID, false, func() bool { return false })
	must(t, err)
	s.stop()
	next := p.open()
	again := testkit.Get(next.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Must(t)
	ref := "refs/deepwork/rescue/" + r.AttemptID
	testkit.Same(t, again.Rescued, []Rescue{{AttemptID: r.AttemptID, RepoPath: p.Root, Worktree: r.Repos[0].WorktreePath, Ref: ref, Commit: p.Git(p.Root, "rev-parse", ref)}}, "what was kept before")
	testkit.Equal(t, p.Git(p.Root, "show", ref+":loose.txt"), "loose", "kept")
}

// A follow-up that begins while its worktree is being removed waits for the end of
// the removal, and does not run in what is left.
func TestStartGivesWayToRemoval(t *testing.T) {
	s := newProject(t).open()
	r := s.ends(s.begin(s.newTask("! say x")).AttemptID)
	lock := s.lockTrees(r)
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("! say never")})
	s.reaches(r.AttemptID, task.Starting)
	must(t, os.RemoveAll(r.Repos[0].WorktreePath))
	must(t, lock.Unlock())
	r = s.ends(r.AttemptID)
	testkit.True(t, r.State == "failed" && strings.Contains(deref(r.Error), "is gone") && !strings.Contains(s.output(r.AttemptID), "never"), "%+v: %s", r, deref(r.Error))
}
