package attempt

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
)

func (s *server) follow(a FollowUpArgs) *FollowUpReply {
	s.t.Helper()
	r, err := s.FollowUp(ctx, me, a)
	must(s.t, err)
	return r
}

// Seed 004, "Send follow-up by workspace id" and "by session id": it runs in the
// session's conversation and puts the task back to inprogress.
func TestReq004_FollowUpSend(t *testing.T) {
	p := newProject(t)
	hold := filepath.Join(p.Root, "..", "hold")
	s := p.open()
	v := s.newTask("! write first.txt 1")
	r := s.ends(s.begin(v).AttemptID)
	f := s.follow(FollowUpArgs{WorkspaceID: &r.AttemptID, Action: ActionSend, Prompt: new("! prompt\n! env MODE\n! write second.txt 2\n! await " + hold)})
	if f.Status != "started" || f.Action != "send" || f.AttemptID != r.AttemptID || f.SessionID != deref(r.LatestSessionID) || f.QueuedPrompt != nil {
		t.Errorf("%+v", f)
	}
	if now := s.task(v.TaskID); now.Status != "inprogress" || !now.HasInProgressAttempt {
		t.Errorf("%+v", now)
	}
	s.reaches(r.AttemptID, task.Running)
	_, err := s.FollowUp(ctx, me, FollowUpArgs{SessionID: &f.SessionID, Action: ActionSend, Prompt: new("more")})
	refused(t, err, session.StateError, "attempt_running", "queue")
	must(t, os.WriteFile(hold, nil, 0o644))
	r = s.ends(r.AttemptID)
	if r.State != "completed" || strings.Join(r.Repos[0].ChangedFiles, " ") != "first.txt second.txt" || deref(r.LatestSessionID) != f.SessionID {
		t.Errorf("%+v", r)
	}
	if out := s.output(r.AttemptID); !strings.Contains(out, "agent resumed\n! prompt\n") || strings.Count(out, "Add a basket") != 0 {
		t.Errorf("it wrote:\n%s", out)
	}
	if now := s.task(v.TaskID); now.Status != "inreview" {
		t.Errorf("%+v", now)
	}
	// Another variant, for this run; one without a resume of its own has its
	// executor's.
	for _, variant := range []string{"SAME", "OTHER"} {
		f = s.follow(FollowUpArgs{SessionID: &f.SessionID, Action: ActionSend, Prompt: new("! env MODE"), Variant: &variant})
		s.reaches(r.AttemptID, task.Completed)
	}
	eventually(t, func() string {
		if out := s.output(r.AttemptID); !strings.HasSuffix(out, "agent resumed\nMODE=same\ndone\nagent resumed\nMODE=slow\ndone") {
			return out
		}
		return ""
	})
	_, err = s.FollowUp(ctx, me, FollowUpArgs{SessionID: &f.SessionID, Action: ActionSend, Prompt: new("x"), Variant: new("NONE")})
	refused(t, err, session.ToolError, "unknown_variant", "NONE", "OTHER")
}

// Seed 004, "Queue follow-up", "Cancel queued follow-up": at most one is queued.
func TestReq004_FollowUpQueue(t *testing.T) {
	p := newProject(t)
	hold, hold2 := filepath.Join(p.Root, "..", "hold"), filepath.Join(p.Root, "..", "hold2")
	s := p.open()
	v := s.newTask("! await "+hold, "! exit 1")
	r := s.begin(v)
	r = s.reaches(r.AttemptID, task.Running)
	on := the(r.AttemptID)
	if f := s.follow(FollowUpArgs{Target: on, Action: ActionCancel}); f.Status != "empty" || f.Notice == nil {
		t.Errorf("cancelling nothing: %+v", f)
	}
	if f := s.follow(FollowUpArgs{Target: on, Action: ActionQueue, Prompt: new("first")}); f.Status != "queued" || deref(f.QueuedPrompt) != "first" || f.DroppedPrompt != nil {
		t.Errorf("the first: %+v", f)
	}
	if f := s.follow(FollowUpArgs{SessionID: r.LatestSessionID, Action: ActionQueue, Prompt: new("second"), Variant: new("OTHER")}); f.Status != "queued" || deref(f.QueuedPrompt) != "second" ||
		deref(f.DroppedPrompt) != "first" || !strings.Contains(deref(f.Notice), "first") {
		t.Errorf("the second: %+v", f)
	}
	if q := s.get(r.AttemptID).QueuedFollowUp; q == nil || q.Prompt != "second" || deref(q.Variant) != "OTHER" {
		t.Errorf("queued is %+v", q)
	}
	if f := s.follow(FollowUpArgs{Target: on, Action: ActionCancel}); f.Status != "cancelled" || deref(f.DroppedPrompt) != "second" || f.QueuedPrompt != nil {
		t.Errorf("cancelled: %+v", f)
	}
	if q := s.get(r.AttemptID).QueuedFollowUp; q != nil {
		t.Errorf("still queued: %+v", q)
	}
	s.follow(FollowUpArgs{Target: on, Action: ActionQueue, Prompt: new("! say queued one\n! await " + hold2)})
	must(t, os.WriteFile(hold, nil, 0o644)) // the first run fails; the queued one runs all the same
	eventually(t, func() string {
		if out := s.output(r.AttemptID); !strings.Contains(out, "queued one") {
			return out
		}
		return ""
	})
	if now := s.task(v.TaskID); now.Status != "inprogress" || now.LastAttemptFailed {
		t.Errorf("%+v", now)
	}
	must(t, os.WriteFile(hold2, nil, 0o644))
	s.reaches(r.AttemptID, task.Completed)
	// Nothing runs: at once.
	if f := s.follow(FollowUpArgs{Target: on, Action: ActionQueue, Prompt: new("! say at once")}); f.Status != "started" || f.QueuedPrompt != nil || f.Notice == nil {
		t.Errorf("queued where nothing runs: %+v", f)
	}
	s.reaches(r.AttemptID, task.Completed)
	if out := s.output(r.AttemptID); strings.Contains(out, "first") && strings.Contains(out, "second") {
		t.Errorf("what was dropped ran: %s", out)
	}
}

// Seed 004, "Workspace has no sessions": an explicit error.
func TestReq004_FollowUpWithoutSession(t *testing.T) {
	p := newProject(t)
	hold := filepath.Join(p.Root, "..", "hold")
	p.Configure(func(c *config.Config) { c.Attempts.MaxConcurrent = 1 })
	s := p.open()
	first := s.begin(s.newTask("! await " + hold))
	s.reaches(first.AttemptID, task.Running)
	second := s.begin(s.newTask("! say x"))
	for _, action := range []string{ActionSend, ActionQueue, ActionCancel} {
		_, err := s.FollowUp(ctx, me, FollowUpArgs{Target: the(second.AttemptID), Action: action, Prompt: new("x")})
		refused(t, err, session.StateError, "no_session", second.AttemptID, "waiting")
	}
	_, err := s.StopAttempt(ctx, me, AttemptArgs{the(second.AttemptID)})
	must(t, err)
	_, err = s.FollowUp(ctx, me, FollowUpArgs{Target: the(second.AttemptID), Action: ActionSend, Prompt: new("x")})
	refused(t, err, session.StateError, "no_session", "start_task_attempt")
	must(t, os.WriteFile(hold, nil, 0o644))
	s.ends(first.AttemptID)
}

// A follow-up needs the workspace.
func TestFollowUpWithoutWorkspace(t *testing.T) {
	p := newProject(t)
	s := p.open()
	r := s.ends(s.begin(s.newTask("! say x")).AttemptID)
	must(t, os.RemoveAll(r.Repos[0].WorktreePath))
	_, err := s.FollowUp(ctx, me, FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("x")})
	refused(t, err, session.StateError, "workspace_gone", r.Repos[0].WorktreePath, r.WorkspaceBranch)
	if now := s.get(r.AttemptID); now.State != "completed" || now.Repos[0].Exists {
		t.Errorf("%+v", now)
	}
}
