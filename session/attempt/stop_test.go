package attempt

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
)

func (s *server) stopAttempt(id string) *AttemptReply {
	s.t.Helper()
	r, err := s.StopAttempt(ctx, "me", AttemptArgs{the(id)})
	must(s.t, err)
	return r
}

// stop_attempt ends the whole group, drops what is queued, keeps the worktree,
// and a follow-up goes on.
func TestStop(t *testing.T) {
	p := newProject(t)
	up := filepath.Join(p.root, "..", "up")
	s := p.open()
	v := s.newTask("! stubborn", "! write work.txt precious", "! fork", "! touch "+up, "! sleep 1h")
	r := s.begin(v)
	eventually(t, func() string {
		if !exists(up) {
			return "the agent is not up: " + s.get(r.AttemptID).State
		}
		return ""
	})
	s.reaches(r.AttemptID, task.Running)
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionQueue, Prompt: new("! say never")})
	r = s.stopAttempt(r.AttemptID)
	if !containsAll(deref(r.Notice), "was dropped", "! say never", "follow_up") {
		t.Errorf("of what was queued it says %q", deref(r.Notice))
	}
	if r.State != "stopped" || r.EndedAt == nil || r.QueuedFollowUp != nil || strings.Join(r.Repos[0].ChangedFiles, " ") != "work.txt" {
		t.Errorf("%+v", r)
	}
	if now := s.task(v.TaskID); now.Status != "inprogress" || now.LastAttemptFailed || now.HasInProgressAttempt {
		t.Errorf("%+v", now)
	}
	pid, err := os.ReadFile(up)
	must(t, err)
	n, err := strconv.Atoi(string(pid))
	must(t, err)
	groupEnds(t, n)
	if again := s.stopAttempt(r.AttemptID); again.State != "stopped" || !strings.Contains(deref(again.Notice), "already") {
		t.Errorf("stopped again: %+v", again)
	}
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("! say on")})
	r = s.ends(r.AttemptID)
	if out := s.output(r.AttemptID); r.State != "completed" || !strings.Contains(out, "agent resumed\non\n") || strings.Contains(out, "never") {
		t.Errorf("%s:\n%s", r.State, out)
	}
}

// One that waits is stopped and never runs; a follow-up of another too, with what
// was queued behind it.
func TestStopWaiting(t *testing.T) {
	p := newProject(t)
	hold := filepath.Join(p.root, "..", "hold")
	p.configure(func(c *config.Config) { c.Attempts.MaxConcurrent = 1 })
	s := p.open()
	ran := s.ends(s.begin(s.newTask("! say ran")).AttemptID)
	first := s.begin(s.newTask("! await " + hold))
	s.reaches(first.AttemptID, task.Running)
	second := s.begin(s.newTask("! say never"))
	if r := s.stopAttempt(second.AttemptID); r.State != "stopped" || r.Repos[0].Exists || r.StartedAt != nil {
		t.Errorf("%+v", r)
	}
	s.follow(FollowUpArgs{Target: the(ran.AttemptID), Action: ActionSend, Prompt: new("! say never")})
	s.follow(FollowUpArgs{Target: the(ran.AttemptID), Action: ActionQueue, Prompt: new("! say never ever")})
	if r := s.stopAttempt(ran.AttemptID); r.State != "stopped" || r.QueuedFollowUp != nil {
		t.Errorf("%+v", r)
	}
	must(t, os.WriteFile(hold, nil, 0o644))
	s.ends(first.AttemptID)
	third := s.begin(s.newTask("! say last"))
	s.ends(third.AttemptID) // whatever waited before it had its turn
	if s.get(second.AttemptID).State != "stopped" || s.get(ran.AttemptID).State != "stopped" || strings.Contains(s.output(ran.AttemptID), "never") || s.output(second.AttemptID) != "" {
		t.Error("what was stopped ran")
	}
}

// One whose workspace is being made is stopped, and what was made is undone.
func TestStopWhileStarting(t *testing.T) {
	for _, where := range []string{"here", "elsewhere"} {
		t.Run(where, func(t *testing.T) {
			p := newProject(t)
			up := filepath.Join(p.root, "..", "up")
			p.configure(func(c *config.Config) {
				c.Attempts.Setup = []string{os.Args[0], "agent", "setup", "! touch " + up + "\n! sleep 1h"}
			})
			s := p.open()
			r := s.begin(s.newTask("! say never"))
			eventually(t, func() string {
				if !exists(up) {
					return "the setup command does not run"
				}
				return ""
			})
			stopper := s
			if where == "elsewhere" {
				stopper = p.open(func(o *Options) { o.Passive = true })
			}
			if r := stopper.stopAttempt(r.AttemptID); r.State != "stopped" || r.Repos[0].Exists || r.StartedAt != nil {
				t.Errorf("%+v, %s", r, deref(r.Error))
			}
			if list := p.git(p.root, "worktree", "list"); strings.Count(list, "\n") != 0 {
				t.Errorf("worktrees are left:\n%s", list)
			}
		})
	}
}

// An agent that another server sees to is stopped too.
func TestStopElsewhere(t *testing.T) {
	p := newProject(t)
	s := p.open()
	r := s.begin(s.newTask("! sleep 1h"))
	s.reaches(r.AttemptID, task.Running)
	other := p.open(func(o *Options) { o.Passive = true })
	if r := other.stopAttempt(r.AttemptID); r.State != "stopped" {
		t.Errorf("%+v", r)
	}
	eventually(t, func() string { // it counts when the board has it
		if got := s.Stats(); got.Ended[task.Stopped] != 1 || got.Started != 1 {
			return fmt.Sprintf("its own server counts %+v", got)
		}
		return ""
	})
}
