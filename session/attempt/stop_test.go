package attempt

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/worktree"
)

// stop_attempt ends the whole group, drops what is queued, keeps the worktree, and a follow-up goes on.
func TestStop(t *testing.T) {
	p, s := opened(t)
	up := filepath.Join(p.Root, "..", "up")
	v := s.newTask("! stubborn", "! write work.txt precious", "! fork", "! touch "+up, "! sleep 1h")
	r := s.begin(v)
	appears(t, up)
	s.reaches(r.AttemptID, task.Running)
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionQueue, Prompt: new("! say never")})
	r = s.stopAttempt(r.AttemptID)
	testkit.True(t, containsAll(deref(r.Notice), "was dropped", "! say never", "follow_up"), "of what was queued it says %q", deref(r.Notice))
	testkit.True(t, r.State == "stopped" && r.EndedAt != nil && r.QueuedFollowUp == nil && strings.Join(r.Repos[0].ChangedFiles, " ") == "work.txt", "%+v", r)
	now := s.task(v.TaskID)
	testkit.True(t, now.Status == "inprogress" && !now.LastAttemptFailed && !now.HasInProgressAttempt, "%+v", now)
	groupEnds(t, up)
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
	p := newProject(t)
	hold := filepath.Join(p.Root, "..", "hold")
	log := new(testkit.Log)
	s := p.open(func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	r := s.begin(s.newTask("! await " + hold))
	s.reaches(r.AttemptID, task.Running)
	records, away := s.runOf(r.AttemptID), filepath.Join(p.Root, "..", "away")
	must(t, os.Rename(records, away))
	if err := os.Symlink(away, records); err != nil {
		t.Skip("no symlinks here:", err)
	}
	testkit.Until(t, "it is logged", func() bool { return strings.Contains(log.String(), "cannot tell whether an agent runs") })
	testkit.Equal(t, s.ends(s.begin(s.newTask("! say on")).AttemptID).State, "completed", "the other attempt")
	refused(t, testkit.Get(s.StopAttempt(ctx, me, AttemptArgs{the(r.AttemptID)})).Err(), session.StateError, "not_stoppable", records+" is a symbolic link")
	must(t, os.Remove(records))
	must(t, os.Rename(away, records))
	testkit.Equal(t, s.ends(r.AttemptID).State, "stopped")
	x, last := &execution{engine: s.Engine}, lastLogged("")
	for _, why := range []string{"a", "a", "b", "a"} {
		last.log(x, "doubtful", errors.New(why))
	}
	testkit.Equal(t, strings.Count(log.String(), "doubtful"), 3, "logged … times: %s", log)
}

// One whose worktree and journal are links by now is stopped, and what they lead to stays.
func TestStopBehindLinks(t *testing.T) {
	p, s := opened(t)
	v := s.newTask("! await " + filepath.Join(p.Root, "..", "hold"))
	r := s.reaches(s.begin(v).AttemptID, task.Running)
	theirs := filepath.Join(p.Root, "..", "theirs")
	must(t, os.MkdirAll(theirs, 0o700))
	must(t, os.WriteFile(filepath.Join(theirs, "work.txt"), []byte("unsaved"), 0o600))
	tree := r.Repos[0].WorktreePath
	journals, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(tree)), ".journal", worktree.NameOf(tree)+".json"))
	testkit.Need(t, err == nil && len(journals) == 1, "%v %v", journals, err)
	for path, to := range map[string]string{tree: theirs, journals[0]: filepath.Join(theirs, "work.txt")} {
		must(t, os.Rename(path, path+".away"))
		if err := os.Symlink(to, path); err != nil {
			t.Skip("no symlinks here:", err)
		}
	}
	testkit.Equal(t, s.stopAttempt(r.AttemptID).State, "stopped")
	testkit.Fails(t, testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Err(), "link", "delete_task")
	testkit.Equal(t, string(testkit.Get(os.ReadFile(filepath.Join(theirs, "work.txt"))).Must(t)), "unsaved")
}

// One that waits is stopped and never runs; a follow-up of another too, with what was queued behind it.
func TestStopWaiting(t *testing.T) {
	p := newProject(t)
	hold := filepath.Join(p.Root, "..", "hold")
	p.Configure(func(c *config.Config) { c.Attempts.MaxConcurrent = 1 })
	s := p.open()
	ran := s.ends(s.begin(s.newTask("! say ran")).AttemptID)
	first := s.begin(s.newTask("! await " + hold))
	s.reaches(first.AttemptID, task.Running)
	second := s.begin(s.newTask("! say never"))
	r := s.stopAttempt(second.AttemptID)
	testkit.True(t, r.State == "stopped" && !r.Repos[0].Exists && r.StartedAt == nil, "%+v", r)
	s.follow(FollowUpArgs{Target: the(ran.AttemptID), Action: ActionSend, Prompt: new("! say never")})
	s.follow(FollowUpArgs{Target: the(ran.AttemptID), Action: ActionQueue, Prompt: new("! say never ever")})
	r = s.stopAttempt(ran.AttemptID)
	testkit.True(t, r.State == "stopped" && r.QueuedFollowUp == nil, "%+v", r)
	must(t, os.WriteFile(hold, nil, 0o644))
	s.ends(first.AttemptID)
	third := s.begin(s.newTask("! say last"))
	s.ends(third.AttemptID) // whatever waited before it had its turn
	testkit.True(t, s.get(second.AttemptID).State == "stopped" && s.get(ran.AttemptID).State == "stopped" && !strings.Contains(s.output(ran.AttemptID), "never") && s.output(second.AttemptID) == "", "what was stopped ran")
}

// One whose workspace is being made is stopped, and what was made is undone.
func TestStopWhileStarting(t *testing.T) {
	for _, where := range []string{"here", "elsewhere"} {
		t.Run(where, func(t *testing.T) {
			p := newProject(t)
			up := filepath.Join(p.Root, "..", "up")
			p.Configure(func(c *config.Config) {
				c.Attempts.Setup = []string{os.Args[0], "agent", "setup", "! touch " + up + "\n! sleep 1h"}
			})
			s := p.open()
			r := s.begin(s.newTask("! say never"))
			appears(t, up)
			stopper := s
			if where == "elsewhere" {
				stopper = p.open(passive)
			}
			r = stopper.stopAttempt(r.AttemptID)
			testkit.True(t, r.State == "stopped" && !r.Repos[0].Exists && r.StartedAt == nil, "%+v, %s", r, deref(r.Error))
			testkit.Equal(t, strings.Count(p.Git(p.Root, "worktree", "list"), "\n"), 0, "worktrees are left")
		})
	}
}

// An agent that another server sees to is stopped too.
func TestStopElsewhere(t *testing.T) {
	p, s := opened(t)
	r := s.begin(s.newTask("! sleep 1h"))
	s.reaches(r.AttemptID, task.Running)
	other := p.open(passive)
	eve := session.Caller{Identity: "eve", Group: "team", Rights: session.RightAgents, Channel: session.ChannelHTTP}
	for _, who := range []session.Caller{eve, {}} {
		refused(t, testkit.Get(other.StopAttempt(ctx, who, AttemptArgs{the(r.AttemptID)})).Err(), session.ToolError, "unknown_attempt")
	}
	x := s.latest(r.AttemptID)
	testkit.True(t, x.StopAsked == nil && x.State == task.Running, "a call that was refused has asked for its end: %+v", x)
	began := time.Now()
	testkit.Equal(t, other.stopAttempt(r.AttemptID).State, "stopped")
	if took := time.Since(began); took > 4*time.Second { // usually half a second
		t.Errorf("it took %v", took)
	}
	testkit.Until(t, "counted by its own server", func() bool { return s.Stats().Ended[task.Stopped] == 1 && s.Stats().Started == 1 })
}

// suspended makes a server look at the board once, as one that is suspended later.
func suspended(o *Options) { o.Poll = time.Hour }

// givenUp asks to stop an attempt, and gives up waiting for that.
func (s *server) givenUp(attempt string) {
	s.t.Helper()
	bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	testkit.FailsWith(s.t, testkit.Get(s.StopAttempt(bounded, me, AttemptArgs{the(attempt)})).Err(), context.DeadlineExceeded, "a stop that nobody carries out")
	x := s.latest(attempt)
	testkit.True(s.t, x.State == task.Running && x.StopAsked != nil, "it is %s, asked to stop at %v", x.State, x.StopAsked)
}

// A stop that the server of the agent did not carry out, since it was suspended and then killed, is carried
// out by the next one, also if who asked has left; what was queued does not run.
func TestStopByTheNextServer(t *testing.T) {
	p, s := opened(t, suspended)
	r := s.begin(s.newTask("! sleep 1h"))
	s.reaches(r.AttemptID, task.Running)
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionQueue, Prompt: new("! say never")})
	other := p.open(passive)
	other.givenUp(r.AttemptID)
	s.die()
	next := p.open()
	r = next.ends(r.AttemptID)
	testkit.True(t, r.State == "stopped" && r.QueuedFollowUp == nil, "%+v", r)
	testkit.Equal(t, len(next.executions(r.AttemptID)), 1, "what was queued has run")
}
