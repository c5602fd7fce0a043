package workflow

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// failing is a store whose disk is full while fail is set.
type failing struct {
	records
	fail atomic.Bool
}

var errNoSpace = errors.New("no space left on device")

func (f *failing) Save(s *machine.State) error {
	if f.fail.Load() {
		return notSaved(s.SessionID, errNoSpace)
	}
	return f.records.Save(s)
}

func (f *failing) Release(s *machine.State) error {
	if f.fail.Load() {
		return errNoSpace
	}
	return f.records.Release(s)
}

func (f *failing) Create(s *machine.State) error {
	if f.fail.Load() {
		return notSaved(s.SessionID, errNoSpace)
	}
	return f.records.Create(s)
}

func TestAFullDiskRefusesAndMovesNothing(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	p.git("init", "-q")
	p.git("commit", "-qm", "first", "--allow-empty")
	p.write(".deepwork/config.yml", "version: \"1.0\"\ngit: {branch: checkout}\n")
	srv := p.open()
	disk := &failing{records: srv.records}
	srv.records = disk
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	on := p.git("symbolic-ref", "--short", "HEAD")

	disk.fail.Store(true)
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
	if s := c.Stack(); len(s) != 1 || s[0].Step != "one" {
		t.Errorf("stack %v", s)
	}
	disk.fail.Store(false)
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

// A disk that does not answer fails calls in time. Until it has answered the session
// refuses them, and then what is on disk counts.
func TestADiskThatHangsHoldsNoSession(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	srv := p.open()
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	srv.records.(*storedRecords).timeout = 50 * time.Millisecond
	answer := make(chan struct{})
	durable.Intercept = func(op durable.Op, do func() error) error {
		if op.Do == durable.OpSyncDir { // the record is in place, and not known to stay
			<-answer
		}
		return do()
	}
	defer func() {
		srv.stop() // it waits for what the disk has not answered, which reads Intercept
		durable.Intercept = nil
	}()
	args := `{"outputs":{"report":"r.md"},"session_id":"` + id + `"}`
	_, err := c.Finish(ctx, finishArgs(t, args))
	refused(t, err, session.StateError, codeUncertain, "has not answered in time")
	for range 2 {
		_, err = c.Step(ctx, StepArgs{SessionID: &id})
		refused(t, err, session.StateError, "session_unreadable", "has not answered in time")
	}
	close(answer)
	if r, err := c.Step(ctx, StepArgs{SessionID: &id}); err != nil || r.BeginStep.StepID != "two" {
		t.Errorf("after the disk has answered: %s, %v", toJSON(t, r), err)
	}
}

// The caller of a start whose outcome is unknown is told so, and its repetition has one session.
func TestAStartOnADiskThatHangs(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	srv := p.open()
	c := srv.Connect("local")
	p.start(c, "alpha", "main")
	srv.records.(*storedRecords).timeout = 50 * time.Millisecond
	answer := make(chan struct{})
	durable.Intercept = func(op durable.Op, do func() error) error {
		if op.Do == durable.OpSync && filepath.Dir(op.Path) == p.state().Tmp() {
			<-answer
		}
		return do()
	}
	defer func() {
		srv.stop() // it waits for what the disk has not answered, which reads Intercept
		durable.Intercept = nil
	}()
	args := StartArgs{Goal: "again", JobName: "alpha", WorkflowName: "main", RequestID: new("r")}
	_, err := c.Start(ctx, args)
	refused(t, err, session.StateError, codeUncertain, "may have been started or not", "request_id")
	close(answer)
	r, err := c.Start(ctx, args)
	testkit.Must(t, err)
	if s := p.record(r.BeginStep.SessionID); s.Goal != args.Goal {
		t.Errorf("record %s", toJSON(t, s))
	}
}
