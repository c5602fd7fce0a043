package attempt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"deepwork/actor/durable"
	"deepwork/session"
	"deepwork/session/board"
)

// While a task is deleted nothing of it is started, by whatever server; a
// deletion that is refused leaves a task that can be worked on.
func TestNothingIsStartedOfWhatIsDeleted(t *testing.T) {
	p := newProject(t)
	s := p.open()
	v := s.newTask("! write loose.txt loose")
	r := s.ends(s.begin(v).AttemptID)
	b, err := s.Store(ctx)
	must(t, err)
	_, err = b.BeginDelete(ctx, v.TaskID) // as another server does
	must(t, err)
	_, repo := s.rootProject()
	_, err = s.StartTaskAttempt(ctx, me, StartArgs{TaskID: v.TaskID, Executor: "TEST", Repos: []RepoArgs{{repo, "main"}}})
	refused(t, err, session.StateError, "being_deleted", "delete_task")
	for _, action := range []string{ActionSend, ActionQueue} {
		_, err = s.FollowUp(ctx, me, FollowUpArgs{Target: the(r.AttemptID), Action: action, Prompt: new("x")})
		refused(t, err, session.StateError, "being_deleted", "delete_task")
	}
	// The first server was killed; the next call is refused, and nothing is gone.
	p.Git(p.Root, "worktree", "lock", "--reason", "I work here", r.Repos[0].WorktreePath)
	_, err = s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})
	refused(t, err, session.StateError, "worktree_in_use", "I work here")
	if again := s.ends(s.begin(v).AttemptID); again.State != "completed" {
		t.Errorf("%+v", again)
	}
	p.Git(p.Root, "worktree", "unlock", r.Repos[0].WorktreePath)
	_, err = s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})
	must(t, err)
}

// A request_id is good for one thing: when that is deleted it says so, and makes
// no second one.
func TestRequestsAfterDeletion(t *testing.T) {
	p := newProject(t)
	s := p.open()
	project, repo := s.rootProject()
	create := board.CreateTaskArgs{ProjectID: project, Title: "One", RequestID: new("call-1")}
	v, err := s.CreateTask(ctx, me, create)
	must(t, err)
	start := StartArgs{TaskID: v.TaskID, Executor: "TEST", Repos: []RepoArgs{{repo, "main"}}, RequestID: new("call-2")}
	r, err := s.StartTaskAttempt(ctx, me, start)
	must(t, err)
	s.ends(r.AttemptID)
	again, err := s.StartTaskAttempt(ctx, me, start)
	must(t, err)
	if again.AttemptID != r.AttemptID {
		t.Error("a repeated call made a second attempt")
	}
	_, err = s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})
	must(t, err)
	_, err = s.CreateTask(ctx, me, create)
	refused(t, err, session.ToolError, "deleted_since", "request_id")
	_, err = s.StartTaskAttempt(ctx, me, start)
	refused(t, err, session.ToolError, "deleted_since", "request_id")
	_, err = s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: nobody, Title: "One", RequestID: new("call-3")})
	refused(t, err, session.ToolError, "unknown_project", nobody)
}

// Without git nothing is made, and the refusal says what is missing.
func TestWithoutGit(t *testing.T) {
	p := newProject(t)
	s := p.open()
	v := s.newTask("! say x")
	_, repo := s.rootProject()
	path := os.Getenv("PATH")
	t.Setenv("PATH", filepath.Join(p.Root, "nothing"))
	_, err := s.StartTaskAttempt(ctx, me, StartArgs{TaskID: v.TaskID, Executor: "TEST", Repos: []RepoArgs{{repo, "main"}}})
	refused(t, err, session.StateError, "git_failed", "not in PATH", "install git")
	t.Setenv("PATH", path)
	if now := s.task(v.TaskID); now.LatestAttemptID != nil || now.Status != "todo" {
		t.Errorf("%+v", now)
	}
}

// A board that another process has locked for long is no fault of the program's.
func TestLockedBoardIsToldAsOne(t *testing.T) {
	err := board.Fault("following up", fmt.Errorf("another process has the board locked: %w", context.DeadlineExceeded))
	refused(t, err, session.StateError, "board_busy", "Waiting: The task board", "locked")
	if w := err.(*session.Error).Waiting(); w == nil || w.Code != "board_busy" {
		t.Errorf("board_busy: waiting is %v", w)
	}
	if err := board.Fault("following up", context.Canceled); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// An attempt that is started while the worktrees of others go would be deleted
// with the task and its worktree left: it is refused from the first moment on.
func TestDeleteKeepsStartsOut(t *testing.T) {
	p := newProject(t)
	s, other := p.open(), p.open()
	v := s.newTask("! say x")
	r := s.ends(s.begin(v).AttemptID)
	lock, err := durable.TryLock(filepath.Join(s.State().Worktrees(), ".journal", "locks", "attempt-"+r.AttemptID+".lock"))
	if err != nil || lock == nil {
		t.Fatal(lock, err)
	}
	done := make(chan error, 1)
	go func() { _, err := s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID}); done <- err }()
	eventually(t, func() string {
		b, err := s.Store(ctx)
		must(t, err)
		if marked, err := b.Deleting(ctx); err != nil || len(marked) == 0 {
			return "the removal has not begun"
		}
		return ""
	})
	_, repo := other.rootProject()
	_, err = other.StartTaskAttempt(ctx, me, StartArgs{TaskID: v.TaskID, Executor: "TEST", Repos: []RepoArgs{{repo, "main"}}})
	refused(t, err, session.StateError, "being_deleted", "delete_task")
	must(t, lock.Unlock())
	must(t, <-done)
}
