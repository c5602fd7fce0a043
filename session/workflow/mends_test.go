package workflow

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"deepwork/session"
	"deepwork/session/workflow/machine"
)

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

func TestACallerThatLeavesDuringTheLastStepGetsItsReplyLater(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	srv := p.open()
	disk := srv.makeFaulty()
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
	for len(c.stackOf(ctx, "")) > 0 { // until the write is done
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
	srv.makeFaulty().unread.Store(1)
	_, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"}}`))
	refused(t, err, session.StateError, "session_unreadable")
	r, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"}}`))
	if err != nil || r.BeginStep.SessionID == parent {
		t.Errorf("the same call again finished the parent's step: %v", err)
	}
}
