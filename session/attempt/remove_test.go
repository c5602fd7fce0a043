package attempt

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/durable"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/board"
)

// delete_task removes rows and worktrees, and no work: what is not committed is
// under a ref, and branches with commits stay.
func TestDeleteTask(t *testing.T) {
	p := newProject(t)
	s := p.open()
	v := s.newTask("! write done.txt committed", "! commit half of it", "! write loose.txt loose", "! write README changed")
	first := s.ends(s.begin(v).AttemptID)
	second := s.ends(s.begin(v, func(a *StartArgs) { a.Executor, a.Prompt = "TEST", new("! say only") }).AttemptID)
	third := s.begin(s.newTask("! say another task"))
	third = s.ends(third.AttemptID)
	r, err := s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})
	must(t, err)
	if r.TaskID != v.TaskID || !r.Deleted || len(r.Rescued) != 2 {
		t.Fatalf("%+v", r)
	}
	for _, kept := range r.Rescued {
		if kept.AttemptID != first.AttemptID && kept.AttemptID != second.AttemptID || kept.RepoPath != p.Root || !strings.HasPrefix(kept.Ref, "refs/deepwork/rescue/"+kept.AttemptID) {
			t.Errorf("%+v", kept)
		}
		if at := p.Git(p.Root, "rev-parse", kept.Ref); at != kept.Commit {
			t.Errorf("%s is at %s, and said to be at %s", kept.Ref, at, kept.Commit)
		}
		for name, want := range map[string]string{"loose.txt": "loose", "README": "changed", "done.txt": "committed"} {
			if text := p.Git(p.Root, "show", kept.Ref+":"+name); text != want {
				t.Errorf("%s of %s is %q", name, kept.Ref, text)
			}
		}
	}
	if subject := p.Git(p.Root, "log", "-1", "--format=%s", first.WorkspaceBranch); subject != "half of it" {
		t.Errorf("the branch has %q", subject)
	}
	_, err = s.GetTask(ctx, me, board.TaskArgs{TaskID: v.TaskID})
	refused(t, err, session.ToolError, "unknown_task")
	_, err = s.GetAttempt(ctx, me, AttemptArgs{the(first.AttemptID)})
	refused(t, err, session.ToolError, "unknown_attempt")
	if Exists(first.Repos[0].WorktreePath) || Exists(s.records(first.AttemptID)) {
		t.Error("folders of the attempt are left")
	}
	if !Exists(third.Repos[0].WorktreePath) || s.get(third.AttemptID).State != "completed" {
		t.Error("another task's attempt is gone")
	}
	if list := p.Git(p.Root, "worktree", "list"); strings.Count(list, "\n") != 1 {
		t.Errorf("worktrees:\n%s", list)
	}
}

// A task whose agent waits or runs is not deleted, and nothing of it is touched.
func TestDeleteRunningTask(t *testing.T) {
	p := newProject(t)
	hold := filepath.Join(p.Root, "..", "hold")
	s := p.open()
	v := s.newTask("! await " + hold)
	r := s.begin(v)
	_, err := s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})
	refused(t, err, session.StateError, "attempt_running", v.TaskID, "stop_attempt")
	s.reaches(r.AttemptID, task.Running)
	_, err = s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})
	refused(t, err, session.StateError, "attempt_running")
	if r := s.get(r.AttemptID); r.State != "running" || !r.Repos[0].Exists {
		t.Errorf("%+v", r)
	}
	must(t, os.WriteFile(hold, nil, 0o644))
	s.ends(r.AttemptID)
	_, err = s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})
	must(t, err)
}

// A removal that was cut short keeps follow-ups out, and the same call again
// finishes it.
func TestDeleteIsFinishedByRepetition(t *testing.T) {
	p := newProject(t)
	s := p.open()
	v := s.newTask("! write loose.txt loose")
	r := s.ends(s.begin(v).AttemptID)
	// As a server leaves it that is killed between the worktrees and the rows.
	b, err := s.Store(ctx)
	must(t, err)
	_, err = b.BeginDelete(ctx, v.TaskID)
	must(t, err)
	at, err := b.Attempt(ctx, r.AttemptID)
	must(t, err)
	_, err = s.FollowUp(ctx, me, FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("x")})
	refused(t, err, session.StateError, "being_deleted", "delete_task")
	k := s.Worktrees(at)
	_, _, err = k.Remove(ctx, r.AttemptID, false, func() bool { return false })
	must(t, err)
	s.stop()
	next := p.open()
	again, err := next.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})
	must(t, err)
	if len(again.Rescued) != 1 || again.Rescued[0].Ref != "refs/deepwork/rescue/"+r.AttemptID || again.Rescued[0].RepoPath != p.Root ||
		again.Rescued[0].Worktree != r.Repos[0].WorktreePath || again.Rescued[0].Commit != p.Git(p.Root, "rev-parse", again.Rescued[0].Ref) {
		t.Errorf("what was kept before is not told: %+v", again.Rescued)
	}
	if text := p.Git(p.Root, "show", "refs/deepwork/rescue/"+r.AttemptID+":loose.txt"); text != "loose" {
		t.Errorf("kept is %q", text)
	}
}

// A follow-up that begins while its worktree is being removed waits for the end of
// the removal, and does not run in what is left.
func TestStartGivesWayToRemoval(t *testing.T) {
	p := newProject(t)
	s := p.open()
	r := s.ends(s.begin(s.newTask("! say x")).AttemptID)
	lock, err := durable.TryLock(filepath.Join(s.State().Worktrees(), ".journal", "locks", "attempt-"+r.AttemptID+".lock"))
	if err != nil || lock == nil {
		t.Fatal(lock, err)
	}
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("! say never")})
	s.reaches(r.AttemptID, task.Starting)
	must(t, os.RemoveAll(r.Repos[0].WorktreePath))
	must(t, lock.Unlock())
	if r := s.ends(r.AttemptID); r.State != "failed" || !strings.Contains(deref(r.Error), "is gone") || strings.Contains(s.output(r.AttemptID), "never") {
		t.Errorf("%+v: %s", r, deref(r.Error))
	}
}
