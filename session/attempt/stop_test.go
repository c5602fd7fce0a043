package attempt

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
	"deepwork/session/state"
)

// stop_attempt ends the whole group, drops what is queued, keeps the worktree, and a follow-up goes on.
func TestStop(t *testing.T) {
	p, s := opened(t)
	v := s.newTask("! stubborn", "! write work.txt precious", "! fork", "! touch "+p.up, "! sleep 1h")
	r := s.begin(v)
	appears(t, p.up)
	s.reaches(r.AttemptID, task.Running)
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionQueue, Prompt: new("! say never")})
	r = s.stopAttempt(r.AttemptID)
	testkit.True(t, containsAll(deref(r.Notice), "was dropped", "! say never", "follow_up"), "of what was queued it says %q", deref(r.Notice))
	testkit.True(t, r.State == "stopped" && r.EndedAt != nil && r.QueuedFollowUp == nil && strings.Join(r.Repos[0].ChangedFiles, " ") == "work.txt", "%+v", r)
	now := s.task(v.TaskID)
	testkit.True(t, now.Status == "inprogress" && !now.LastAttemptFailed && !now.HasInProgressAttempt, "%+v", now)
	groupEnds(t, p.up)
	again := s.stopAttempt(r.AttemptID)
	testkit.True(t, again.State == "stopped" && strings.Contains(deref(again.Notice), "already"), "stopped again: %+v", again)
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("! say on")})
	r = s.ends(r.AttemptID)
	out := s.output(r.AttemptID)
	testkit.True(t, r.State == "completed" && strings.Contains(out, "agent resumed\non\n") && !strings.Contains(out, "never"), "%s:\n%s", r.State, out)
}

// A link in the place of an attempt's records is not followed, and logged once. Other attempts go
// on; stop_attempt says what hinders it, and the attempt is stopped when its records are back.
func TestRecordsBehindALink(t *testing.T) {
	p, log := newProject(t), new(testkit.Log)
	s := p.open(func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	r := s.runs("! await " + p.hold)
	records, away := s.runOf(r.AttemptID), filepath.Join(p.Root, "..", "away")
	must(t, os.Rename(records, away))
	link(t, away, records)
	testkit.Until(t, "it is logged", func() bool { return strings.Contains(log.String(), "cannot tell whether an agent runs") })
	other := s.ran("! say on")
	testkit.Equal(t, other.State, "completed", "the other attempt")
	refused(t, testkit.Get(s.StopAttempt(ctx, me, AttemptArgs{the(r.AttemptID)})).Err(), session.StateError, "not_stoppable", records+" is a symbolic link")
	must(t, errors.Join(os.Remove(records), os.Rename(away, records)))
	testkit.Equal(t, s.ends(r.AttemptID).State, "stopped")
	x, last := &execution{engine: s.Engine}, lastLogged("")
	for _, why := range []string{"a", "a", "b", "a"} {
		last.log(x, "doubtful", errors.New(why))
	}
	testkit.Equal(t, strings.Count(log.String(), "doubtful"), 3, "logged … times: %s", log)
	// One whose worktree and journal are links by now is stopped, and what they lead to stays; so it is with a log.
	r = s.runs("! await " + p.hold)
	home, untouched := newVictim(t)
	tree := r.Repos[0].WorktreePath
	journal := filepath.Join(s.State().Worktrees(), ".journal", worktree.NameOf(tree)+".json")
	for path, to := range map[string]string{tree: home, journal: filepath.Join(home, "profile"), filepath.Join(s.records(other.AttemptID), "log"): home} {
		must(t, os.Rename(path, path+".away"))
		link(t, to, path)
	}
	testkit.Equal(t, s.stopAttempt(r.AttemptID).State, "stopped")
	testkit.Fails(t, testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: r.TaskID})).Err(), "link")
	testkit.Fails(t, testkit.Get(s.TailAttempt(ctx, me, TailArgs{Target: the(other.AttemptID)})).Err(), "not a folder that deepwork made")
	s.follow(FollowUpArgs{Target: the(other.AttemptID), Action: ActionSend, Prompt: new("! say again")})
	now := s.ends(other.AttemptID)
	testkit.True(t, now.State == "failed" && strings.Contains(deref(now.Error), "not a folder that deepwork made"), "%+v: %s", now, deref(now.Error))
	untouched()
}

// One that waits is stopped and never runs; a follow-up of another too, with what was queued behind it.
func TestStopWaiting(t *testing.T) {
	p := newProject(t)
	p.Configure(func(c *config.Config) { c.Attempts.MaxConcurrent = 1 })
	s := p.open()
	ran, first := s.ran("! say ran"), s.runs("! await "+p.hold)
	second := s.begin(s.newTask("! say never"))
	refused(t, testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: second.TaskID})).Err(), session.StateError, "attempt_running")
	r := s.stopAttempt(second.AttemptID)
	testkit.True(t, r.State == "stopped" && !r.Repos[0].Exists && r.StartedAt == nil, "%+v", r)
	s.follow(FollowUpArgs{Target: the(ran.AttemptID), Action: ActionSend, Prompt: new("! say never")})
	s.follow(FollowUpArgs{Target: the(ran.AttemptID), Action: ActionQueue, Prompt: new("! say never ever")})
	r = s.stopAttempt(ran.AttemptID)
	testkit.True(t, r.State == "stopped" && r.QueuedFollowUp == nil, "%+v", r)
	must(t, os.WriteFile(p.hold, nil, 0o644))
	s.ends(first.AttemptID)
	s.ends(s.begin(s.newTask("! say last")).AttemptID) // whatever waited before it had its turn
	testkit.True(t, s.get(second.AttemptID).State == "stopped" && s.get(ran.AttemptID).State == "stopped" && !strings.Contains(s.output(ran.AttemptID), "never") && s.output(second.AttemptID) == "", "what was stopped ran")
}

// One whose workspace is being made is stopped, or fails and says why; what was made is undone.
func TestEndsWhileStarting(t *testing.T) {
	for how, orders := range map[string]string{"stopped": "! sleep 1h", "stopped elsewhere": "! sleep 1h", "failed": "! say no compiler here\n! exit 4"} {
		t.Run(how, func(t *testing.T) {
			p := newProject(t)
			p.Configure(setup("! touch " + p.up + "\n" + orders))
			s := p.open()
			v := s.newTask("! say never")
			r := s.begin(v)
			appears(t, p.up)
			if stopper := s; how != "failed" {
				if how != "stopped" {
					stopper = p.open(passive)
				}
				r := stopper.stopAttempt(r.AttemptID)
				testkit.True(t, r.State == "stopped" && !r.Repos[0].Exists && r.StartedAt == nil, "the reply: %+v", r)
			}
			r = s.ends(r.AttemptID)
			testkit.True(t, r.State == board.State(strings.Fields(how)[0]) && !r.Repos[0].Exists && r.StartedAt == nil && r.LatestSessionID == nil, "%+v, %s", r, deref(r.Error))
			testkit.True(t, how != "failed" || strings.Contains(deref(r.Error), "no compiler here"), "%s", deref(r.Error))
			now := s.task(v.TaskID)
			testkit.True(t, now.Status == "inprogress" && now.LastAttemptFailed == (how == "failed"), "%+v", now)
			testkit.True(t, !strings.Contains(p.Git(p.Root, "worktree", "list"), "\n") && p.Git(p.Root, "branch", "--list", "deepwork/*") == "", "worktrees or branches are left")
		})
	}
}

// An agent that another server sees to is stopped too.
func TestStopElsewhere(t *testing.T) {
	p, s := opened(t)
	r, other := s.runs("! sleep 1h"), p.open(passive)
	eve := session.Caller{Identity: "eve", Group: "team", Rights: session.RightAgents, Channel: session.ChannelHTTP}
	for _, who := range []session.Caller{eve, {}} {
		refused(t, testkit.Get(other.StopAttempt(ctx, who, AttemptArgs{the(r.AttemptID)})).Err(), session.ToolError, "unknown_attempt")
	}
	x := s.latest(r.AttemptID)
	testkit.True(t, x.StopAsked == nil && x.State == task.Running, "a call that was refused has asked for its end: %+v", x)
	began := time.Now()
	testkit.True(t, other.stopAttempt(r.AttemptID).State == "stopped" && time.Since(began) < 8*time.Second, "it took %v", time.Since(began)) // usually half a second
	testkit.Until(t, "counted by its own server", func() bool { return s.Stats().Ended[task.Stopped] == 1 && s.Stats().Started == 1 })
}

// suspended makes a server look at the board once, as one that is suspended later.
func suspended(o *Options) { o.Poll = time.Hour }

// givenUp asks to stop an attempt, and gives up waiting for that.
func (s *server) givenUp(attempt string) {
	s.t.Helper()
	bounded, leave := context.WithCancel(ctx)
	asked := make(chan error, 1)
	go func() { asked <- testkit.Get(s.StopAttempt(bounded, me, AttemptArgs{the(attempt)})).Err() }()
	testkit.Until(s.t, "asked to stop", func() bool { return s.latest(attempt).StopAsked != nil })
	leave()
	testkit.FailsWith(s.t, <-asked, context.Canceled, "a stop that nobody carries out")
	testkit.Equal(s.t, s.latest(attempt).State, task.Running)
}

// While a task is deleted nothing of it is started, by whatever server; a deletion that is refused leaves a task that can be
// worked on, and one that was cut short is finished by the same call again.
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
	// As a server leaves it that is killed between the worktrees and the rows.
	testkit.Get(s.store().BeginDelete(ctx, v.TaskID)).Must(t)
	_, _, err := s.Worktrees(testkit.Get(s.store().Attempt(ctx, r.AttemptID)).Must(t)).Remove(ctx, r.AttemptID, false, func() bool { return false })
	must(t, err)
	s.stop()
	again, ref := testkit.Get(p.open().DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Must(t), "refs/deepwork/rescue/"+r.AttemptID
	kept := Rescue{AttemptID: r.AttemptID, RepoPath: p.Root, Worktree: r.Repos[0].WorktreePath, Ref: ref, Commit: p.Git(p.Root, "rev-parse", ref)}
	testkit.True(t, slices.Contains(again.Rescued, kept) && p.Git(p.Root, "show", ref+":loose.txt") == "loose", "%+v", again)
}

// A follow-up whose reply was lost is carried out once, whatever has become of it when the call is repeated.
func TestRepeatedFollowUp(t *testing.T) {
	p, s := opened(t)
	on := the(s.ran("! say first").AttemptID)
	calls := []FollowUpArgs{{Action: ActionSend, Prompt: new("! await " + p.hold)}, {Action: ActionQueue, Prompt: new("! say more")}, {Action: ActionCancel}, {Action: ActionQueue, Prompt: new("! say other")}}
	for _, repeated := range []bool{false, true, true} { // the last time when all has ended
		for i, c := range calls {
			c.Target, c.RequestID = on, new("0123"[i:i+1])
			f := testkit.Get(s.FollowUp(ctx, me, c)).Must(t)
			testkit.Same(t, []any{f.Status + deref(f.DroppedPrompt), strings.Contains(deref(f.Notice), "earlier call")}, []any{[]string{"started", "queued", "cancelled! say more", "queued"}[i], repeated}, "follow_up")
		}
		if repeated {
			must(t, os.WriteFile(p.hold, nil, 0o644))
			testkit.Until(t, "what was queued has run", func() bool { x := s.executions(*on.AttemptID); return len(x) == 3 && x[0].EndedAt != nil })
		}
	}
	other := FollowUpArgs{Target: on, Action: ActionSend, Prompt: new("! say x"), RequestID: new("0")}
	refused(t, testkit.Get(s.FollowUp(ctx, me, other)).Err(), session.ToolError, "request_id_reused")
}

// A request_id is good for one thing, also if that could not be made again: when that is deleted it says so, and makes no second one.
func TestRequestsAfterDeletion(t *testing.T) {
	p, s := opened(t)
	project, _ := s.rootProject()
	create := board.CreateTaskArgs{ProjectID: project, Title: "One", RequestID: new("call-1")}
	v := testkit.Get(s.CreateTask(ctx, me, create)).Must(t)
	start := s.starting(v)
	start.RequestID = new("call-2")
	r := testkit.Get(s.StartTaskAttempt(ctx, me, start)).Must(t)
	s.ends(r.AttemptID)
	p.Git(p.Root, "branch", "-m", "main", "trunk")
	testkit.Equal(t, testkit.Get(s.StartTaskAttempt(ctx, me, start)).Must(t).AttemptID, r.AttemptID, "a repeated call made a second attempt")
	testkit.Equal(t, testkit.Get(s.ListTaskAttempts(ctx, me, board.ListTaskAttemptsArgs{TaskID: v.TaskID})).Must(t).Total, 1)
	testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Must(t)
	refused(t, testkit.Get(s.CreateTask(ctx, me, create)).Err(), session.ToolError, "deleted_since", "request_id")
	refused(t, testkit.Get(s.StartTaskAttempt(ctx, me, start)).Err(), session.ToolError, "deleted_since", "request_id")
	refused(t, testkit.Get(s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: nobody, Title: "One", RequestID: new("call-3")})).Err(), session.ToolError, "unknown_project", nobody)
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
	lock, done := s.lockTrees(r), make(chan error, 1)
	go func() { _, err := s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID}); done <- err }()
	testkit.Until(t, "being removed", func() bool { return len(testkit.Get(s.store().Deleting(ctx)).Must(t)) > 0 })
	refused(t, testkit.Get(other.StartTaskAttempt(ctx, me, other.starting(v))).Err(), session.StateError, "being_deleted", "delete_task")
	must(t, errors.Join(lock.Unlock(), <-done))
}

// delete_task removes rows and worktrees, and no work: what is not committed is
// under a ref, and branches with commits stay.
func TestDeleteTask(t *testing.T) {
	p, s := opened(t)
	v := s.newTask("! write done.txt committed", "! commit half of it", "! write loose.txt loose", "! write README changed")
	first := s.ends(s.begin(v).AttemptID)
	second := s.ends(s.begin(v, func(a *StartArgs) { a.Executor, a.Prompt = "TEST", new("! say only") }).AttemptID)
	third := s.ran("! say another task")
	servers := testkit.Get(state.Find(first.Repos[0].WorktreePath)).Must(t) // in the workspace
	must(t, servers.Make())
	testkit.Need(t, servers.Dir != s.State().Dir && Exists(servers.Dir), "%v", servers.Dir)
	nested := filepath.Join(first.Repos[0].WorktreePath, "nested")
	p.Git(p.Root, "init", "-q", nested)
	p.Git(nested, "-c", "user.name=Una", "-c", "user.email=una@example.com", "commit", "-q", "--allow-empty", "-m", "nowhere else")
	refused(t, testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Err(), session.StateError, "work_not_kept", first.AttemptID, "refs/deepwork/rescue/"+second.AttemptID)
	must(t, os.RemoveAll(nested))
	r := testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Must(t)
	testkit.Need(t, r.TaskID == v.TaskID && r.Deleted && len(r.Rescued) == 2, "%+v", r)
	for _, kept := range r.Rescued {
		testkit.True(t, (kept.AttemptID == first.AttemptID || kept.AttemptID == second.AttemptID) && kept.RepoPath == p.Root && strings.HasPrefix(kept.Ref, "refs/deepwork/rescue/"+kept.AttemptID) && p.Git(p.Root, "rev-parse", kept.Ref) == kept.Commit, "%+v", kept)
		for name, want := range map[string]string{"loose.txt": "loose", "README": "changed", "done.txt": "committed"} {
			testkit.Equal(t, p.Git(p.Root, "show", kept.Ref+":"+name), want, "%s of %s", name, kept.Ref)
		}
	}
	testkit.Equal(t, p.Git(p.Root, "log", "-1", "--format=%s", first.WorkspaceBranch), "half of it", "the branch")
	refused(t, testkit.Get(s.GetTask(ctx, me, board.TaskArgs{TaskID: v.TaskID})).Err(), session.ToolError, "unknown_task")
	refused(t, testkit.Get(s.GetAttempt(ctx, me, AttemptArgs{the(first.AttemptID)})).Err(), session.ToolError, "unknown_attempt")
	testkit.True(t, !Exists(first.Repos[0].WorktreePath) && !Exists(s.records(first.AttemptID)) && !Exists(servers.Dir), "folders of the attempt, or the state of its servers, are left")
	testkit.True(t, Exists(third.Repos[0].WorktreePath) && s.get(third.AttemptID).State == "completed" && Exists(s.State().Dir) && strings.Count(p.Git(p.Root, "worktree", "list"), "\n") == 1, "more is gone, or left")
}

// A follow-up that begins while its worktree is being removed waits for the end of
// the removal, and does not run in what is left.
func TestStartGivesWayToRemoval(t *testing.T) {
	s := newProject(t).open()
	r := s.ran("! say x")
	lock := s.lockTrees(r)
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("! say never")})
	s.reaches(r.AttemptID, task.Starting)
	must(t, errors.Join(os.RemoveAll(r.Repos[0].WorktreePath), lock.Unlock()))
	r = s.ends(r.AttemptID)
	testkit.True(t, r.State == "failed" && strings.Contains(deref(r.Error), "is gone") && !strings.Contains(s.output(r.AttemptID), "never"), "%+v: %s", r, deref(r.Error))
}
