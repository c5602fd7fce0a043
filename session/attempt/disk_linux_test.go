package attempt

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/state"
)

// A disk that is full refuses calls, with a remedy, and makes nothing; reading
// works; what ends meanwhile is recorded when there is room.
func TestFullDisk(t *testing.T) {
	p := alone(t)
	home := filepath.Join(p.Root, "..", "state")
	must(t, os.Mkdir(home, 0o755))
	t.Setenv(state.Env, home)
	if err := syscall.Mount("tmpfs", home, "tmpfs", 0, "size=4m,mode=700"); err != nil {
		t.Skipf("a small disk cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(home, syscall.MNT_DETACH) })
	t.Cleanup(p.EndAgents) // before the disk goes
	s := p.open()
	v := s.newTask("! await " + p.hold)
	r := s.begin(v)
	s.reaches(r.AttemptID, task.Running)
	project, repo := s.rootProject()
	ballast := filepath.Join(home, "ballast")
	fillDisk(t, ballast)
	refused(t, testkit.Get(s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: project, Title: "No room"})).Err(),
		session.ToolError, "disk_full", "space")
	refused(t,
		testkit.Get(s.StartTaskAttempt(ctx, me, StartArgs{
			TaskID:   v.TaskID,
			Executor: "TEST",
			Repos:    []RepoArgs{{repo, "main"}},
		})).Err(), session.ToolError, "disk_full")
	refused(t,
		testkit.Get(s.FollowUp(ctx, me, FollowUpArgs{Target: the(r.AttemptID), Action: ActionQueue, Prompt: new("x")})).
			Err(), session.ToolError, "disk_full")
	testkit.Equal(t, testkit.Get(s.ListTasks(ctx, me, board.ListTasksArgs{ProjectID: project})).Must(t).Total, 1)

	dirs := testkit.Get(filepath.Glob(filepath.Join(s.records(r.AttemptID), "runs", "*"))).Must(t)
	// The space reserved for the exit of an agent is more than this one needs: the rest would be room for the board.
	must(t, os.Truncate(filepath.Join(dirs[0], "exit.spare"), 4<<10))
	rest := filepath.Join(home, "rest")
	fillDisk(t, rest)
	must(t, os.WriteFile(p.hold, nil, 0o644))
	testkit.Get(testkit.Get(s.local.Find(ctx, r.AttemptID, filepath.Base(dirs[0]))).Must(t).Wait(ctx)).Must(t)
	now := s.get(r.AttemptID)
	testkit.True(t, now.State == "running" && now.QueuedFollowUp == nil, "%+v", now)

	must(t, errors.Join(os.Remove(ballast), os.Remove(rest)))
	testkit.Equal(t, s.ends(r.AttemptID).State, "completed")
	testkit.Equal(t, testkit.Get(s.ListTaskAttempts(ctx, me, board.ListTaskAttemptsArgs{TaskID: v.TaskID})).Must(t).
		Total, 1, "a refused call made an attempt")
}

// fillDisk writes a file until there is no room for one byte more.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f := testkit.Get(os.Create(path)).Must(t)
	defer f.Close()
	block := make([]byte, 64<<10)
	for len(block) > 0 {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			block = block[:len(block)/2]
		} else {
			must(t, err)
		}
	}
}
