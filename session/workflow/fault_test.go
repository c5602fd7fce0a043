package workflow

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

func TestAFullDiskRefusesAndMovesNothing(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	p.git("init", "-q")
	p.git("commit", "-qm", "first", "--allow-empty")
	p.write(".deepwork/config.yml", "version: \"1.0\"\ngit: {branch: checkout}\n")
	srv := p.open()
	disk := srv.makeFaulty()
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	on := p.git("symbolic-ref", "--short", "HEAD")

	disk.full.Store(true)
	_, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"}}`))
	refused(t, err, session.StateError, "not_saved", "no space left", "nothing has moved")
	_, err = c.Abort(ctx, AbortArgs{Explanation: "x"})
	refused(t, err, session.StateError, "not_saved")
	_, err = c.GoTo(ctx, GoToArgs{StepID: "one"})
	refused(t, err, session.StateError, "not_saved")
	_, err = c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", InstanceID: new("full")})
	refused(t, err, session.StateError, "not_saved")
	if now := p.git("symbolic-ref", "--short", "HEAD"); now != on {
		t.Errorf("the failed start left the tree on %s", now)
	}
	if out := p.git("branch", "--list", "deepwork/*full*"); out != "" {
		t.Errorf("the failed start left %s", out)
	}
	if s := c.stackOf(ctx, ""); len(s) != 1 || s[0].Step != "one" {
		t.Errorf("stack %v", s)
	}
	disk.full.Store(false)
	if r := p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+id+`"}`); r.BeginStep.StepID != "two" {
		t.Errorf("reply %s", toJSON(t, r))
	}
}

func TestAVanishedFolderIsMadeAgain(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	c := p.open().Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	testkit.Must(t, os.RemoveAll(p.state().Tmp()))
	if r := p.finish(c, `{"outputs":{"report":"r.md"}}`); r.Status != machine.WorkflowComplete {
		t.Errorf("reply %s", toJSON(t, r))
	}
	if s := p.record(id); s.Status != machine.Completed || len(s.StepProgress) != 2 {
		t.Errorf("record %s", toJSON(t, s))
	}
}

func TestAProjectThatVanishesIsNamed(t *testing.T) {
	p := newProject(t)
	p.root = filepath.Join(p.root, "inner")
	p.simple("alpha")
	p.write("r.md", "x")
	c := p.open().Connect("local")
	p.start(c, "alpha", "main")
	testkit.Must(t, os.RemoveAll(p.root))
	_, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"}}`))
	refused(t, err, session.StateError, "project_gone", p.root)
}

// A commit whose fate is unknown: the same call is applied again to the session as it is, and finds its own
// reply or makes its transition once.
func TestACommitWhoseFateIsUnknown(t *testing.T) {
	for name, made := range map[string]bool{"made": true, "not made": false} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			p.simple("alpha")
			p.write("r.md", "x")
			srv := p.open()
			disk := srv.makeFaulty()
			lose := func() {
				if made {
					disk.lose.Store(1)
				} else {
					disk.drop.Store(1)
				}
			}
			c := srv.Connect("local")
			lose()
			r, err := c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", RequestID: new("r")})
			testkit.Must(t, err)
			id := r.BeginStep.SessionID
			if all, err := srv.List(ctx); err != nil || len(all) != 1 || all[0].ID != id {
				t.Errorf("sessions %s, %v, want %s", toJSON(t, all), err, id)
			}
			lose()
			if f := p.finish(c, `{"outputs":{"report":"r.md"}}`); f.BeginStep == nil || f.BeginStep.StepID != "two" {
				t.Errorf("finished_step: %s", toJSON(t, f))
			}
			lose()
			if g, err := c.GoTo(ctx, GoToArgs{StepID: "one"}); err != nil || g.BeginStep.StepID != "one" {
				t.Errorf("go_to_step: %s, %v", toJSON(t, g), err)
			}
			lose()
			testkit.Must(t, errOf(c.Abort(ctx, AbortArgs{Explanation: "x"})))
			s := p.record(id)
			if s.Status != machine.Aborted || len(s.History) != 1 || len(s.History[0].Progress) != 2 || s.Revision != 3 {
				t.Errorf("record %s", toJSON(t, s))
			}
		})
	}
}

// A new session whose commit arrives late, when its server has given it up, is not begun by a call that was
// told that nothing has moved.
func TestACommitOfANewSessionThatArrivesLate(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	srv := p.open()
	disk := srv.makeFaulty()
	late := make(chan *store.SessionWrite, 1)
	disk.delay.Store(&late)
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	if written, err := disk.Sessions.WriteSession(ctx, <-late); written || !errors.Is(err, store.ErrExists) {
		t.Errorf("the late commit: %v, %v", written, err)
	}
	if all, err := srv.List(ctx); err != nil || len(all) != 1 || all[0].ID != id {
		t.Errorf("sessions %s, %v, want %s", toJSON(t, all), err, id)
	}
}

// Where the store does not answer after a lost reply, the caller is told so, and its repetition finds the
// reply.
func TestAStoreThatIsAwayAfterALostReply(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	srv := p.open()
	disk := srv.makeFaulty()
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	testkit.Must(t, errOf(c.Step(ctx, StepArgs{})))
	disk.lose.Store(1)
	disk.unread.Store(1)
	call := `{"outputs":{"report":"r.md"},"session_id":"` + id + `","step_id":"one"}`
	_, err := c.Finish(ctx, finishArgs(t, call))
	refused(t, err, session.StateError, codeUncertain)
	if r := p.finish(c, call); r.BeginStep == nil || r.BeginStep.StepID != "two" || p.record(id).Revision != 1 {
		t.Errorf("the repetition: %s", toJSON(t, r))
	}
}
