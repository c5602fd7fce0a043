package workflow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// A session lost (file unreadable), restored, taken up again, ended.
func TestASessionThatWasLostAndCameBackLeavesTheStackWhenItEnds(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	srv := p.open()
	c := srv.Connect("local")
	parent := p.start(c, "alpha", "main").BeginStep.SessionID
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	testkit.Must(t, srv.sessions.Passivate(ctx, id))
	path := filepath.Join(p.state().Tmp(), "session_"+id+".json")
	testkit.Must(t, os.Rename(path, path+".x"))
	_, err := c.Step(ctx, StepArgs{SessionID: &id})
	refused(t, err, session.StateError, "unknown_session")
	testkit.Must(t, os.Rename(path+".x", path))
	for _, args := range []StepArgs{{}, {SessionID: &id}} { // the first drops it from the stack, the second takes it up
		testkit.Must(t, errOf(c.Step(ctx, args)))
	}
	if _, err = c.Abort(ctx, AbortArgs{Explanation: "e", SessionID: &id}); err != nil {
		t.Fatal(err)
	}
	s, err := c.Step(ctx, StepArgs{})
	if err != nil || s.BeginStep.SessionID != parent {
		t.Errorf("the parent must go on: %v", err)
	}
}

// The same, an unrelated session ends while the restored one is active.
func TestARestoredSessionStaysWhenAnotherEnds(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	srv := p.open()
	c := srv.Connect("local")
	p.start(c, "alpha", "main")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	srv.sessions.Passivate(ctx, id)
	path := filepath.Join(p.state().Tmp(), "session_"+id+".json")
	os.Rename(path, path+".x")
	c.Step(ctx, StepArgs{SessionID: &id})
	os.Rename(path+".x", path)
	c.Step(ctx, StepArgs{})
	c.Step(ctx, StepArgs{SessionID: &id})
	third := p.start(c, "alpha", "main").BeginStep.SessionID
	testkit.Must(t, errOf(c.Abort(ctx, AbortArgs{Explanation: "e", SessionID: &third})))
	s, err := c.Step(ctx, StepArgs{})
	if err != nil || s.BeginStep.SessionID != id {
		t.Errorf("the restored session is the top, not %v %v", s.BeginStep.SessionID, err)
	}
}

// An edit takes the last open member out of a group whose finished member has a review.
func TestAReviewedGroupWhoseLastMemberIsEditedAwayCloses(t *testing.T) {
	p := newProject(t)
	rev := `[{run_each: step, quality_criteria: {Good: "Is it good?"}}]`
	a := testStep{id: "a", outputs: oneFile}
	b := testStep{id: "b", outputs: "{b_out: {type: file, description: d, required: true}}", reviews: rev}
	p.job("alpha", []testStep{a, b, {id: "x"}, {id: "d"}}, map[string]string{"main": "[[a, b, x], d]"})
	p.write("r.md", "x")
	srv, _ := p.reviewed()
	c := srv.Connect("local")
	p.start(c, "alpha", "main")
	p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"a"}`)
	p.finish(c, `{"outputs":{"b_out":"r.md"},"step_id":"b"}`)
	p.job("alpha", []testStep{a, b, {id: "d"}}, map[string]string{"main": "[[a, b], d]"})
	p.write("s.md", "y")
	r, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"b_out":"s.md"},"step_id":"b"}`))
	if err != nil || r.BeginStep == nil || r.BeginStep.StepID != "d" {
		t.Errorf("the group does not close: %s, %v", toJSON(t, r), err)
	}
}

// slowly is a disk whose write the caller does not wait for.
type slowly struct {
	records
	during atomic.Pointer[func()]
}

func (f *slowly) Save(s *machine.State) error {
	err := f.records.Save(s)
	if g := f.during.Load(); g != nil {
		(*g)()
	}
	return err
}

func TestACallerThatLeavesDuringTheLastStepGetsItsReplyLater(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	srv := p.open()
	disk := &slowly{records: srv.records}
	srv.records = disk
	c := srv.Connect("local")
	p.start(c, "alpha", "main")
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	gone, leave := context.WithCancel(ctx)
	left := make(chan struct{})
	g := func() { leave(); <-left }
	disk.during.Store(&g)
	if _, err := c.Finish(gone, finishArgs(t, `{"outputs":{"report":"r.md"},"step_id":"two"}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that left got %v", err)
	}
	disk.during.Store(nil)
	close(left)
	for len(c.Stack()) > 0 { // until the write is done
		time.Sleep(time.Millisecond)
	}
	r, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"},"step_id":"two"}`))
	if err != nil || r.Status != machine.WorkflowComplete {
		t.Errorf("the repetition: %v", err)
	}
}

func TestRepetitionsWithFreshRequestIDsDoNotGrowTheRecord(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	c := p.open().Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	for i := range 30 {
		p.finish(c, fmt.Sprintf(`{"outputs":{"report":"r.md"},"step_id":"one","session_id":"%s","request_id":"q%d"}`, id, i))
	}
	if n := len(p.record(id).Replies); n > machine.KeptRequests+2 {
		t.Errorf("%d replies are kept", n)
	}
}

func TestAPassingReadErrorDoesNotSendTheCallToTheParent(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	srv := p.open()
	c := srv.Connect("local")
	parent := p.start(c, "alpha", "main").BeginStep.SessionID
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	srv.sessions.Passivate(ctx, id)
	f := &unread{records: srv.records}
	f.n.Store(1)
	srv.records = f
	_, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"}}`))
	refused(t, err, session.StateError, "session_unreadable")
	r, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"}}`))
	if err != nil || r.BeginStep.SessionID == parent {
		t.Errorf("the same call again finished the parent's step: %v", err)
	}
}

type unread struct {
	records
	n atomic.Int32
}

func (u *unread) Load(id string) (*machine.State, error) {
	if u.n.Add(-1) == 0 {
		return nil, u.records.(*storedRecords).unreadable(id, fmt.Errorf("opening: %w", syscall.EMFILE))
	}
	return u.records.Load(id)
}
