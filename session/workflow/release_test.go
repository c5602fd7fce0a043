package workflow

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

func TestAClosedConnectionsSessionsGoToAnotherServerAtOnce(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	first, second := p.open(), p.open()
	c1, c2 := first.Connect("local"), second.Connect("local")
	outer := p.start(c1, "alpha", "main").BeginStep.SessionID
	inner := p.start(c1, "alpha", "main").BeginStep.SessionID
	p.finish(c1, `{"outputs":{"report":"r.md"}}`)
	testkit.Must(t, first.sessions.Passivate(ctx, outer)) // one that is asleep is given up as well
	before := p.record(inner)
	c1.Close()
	for _, id := range []string{outer, inner} {
		if s := p.record(id); s.Owner != "" {
			t.Errorf("session %s still belongs to %q", id, s.Owner)
		}
	}
	if now := p.record(inner); now.CurrentStepID != "two" || !now.UpdatedAt.Equal(before.UpdatedAt) {
		t.Errorf("giving it up moved the session: %s", toJSON(t, now))
	}
	if s := first.Stats(); s.Active != 0 || s.Awake != 0 {
		t.Errorf("the first server still knows %+v", s)
	}
	r := p.finish(c2, `{"outputs":{"report":"r.md"},"session_id":"`+inner+`"}`)
	if r.Status != machine.WorkflowComplete || *r.ResumedWorkflow != "alpha/main" || len(r.Stack) != 1 || r.Stack[0].SessionID != outer {
		t.Errorf("reply %s", toJSON(t, r))
	}
	if s := p.record(outer); s.Owner != second.records.Server() {
		t.Errorf("the parent belongs to %q", s.Owner)
	}
	_, err := first.Connect("local").Step(ctx, StepArgs{SessionID: &outer})
	refused(t, err, session.StateError, "session_owned", outer)
}

func TestASessionOnAnotherStackStaysWithItsServer(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	first, second := p.open(), p.open()
	c1, c2, c3 := first.Connect("local"), first.Connect("local"), second.Connect("local")
	id := p.start(c1, "alpha", "main").BeginStep.SessionID
	for range 2 { // a second look does not count twice
		testkit.Must(t, errOf(c2.Step(ctx, StepArgs{SessionID: &id})))
	}
	c1.Close()
	if s := p.record(id); s.Owner != first.records.Server() {
		t.Errorf("the session that another connection holds was given up: owner %q", s.Owner)
	}
	_, err := c3.Step(ctx, StepArgs{SessionID: &id})
	refused(t, err, session.StateError, "session_owned")
	p.finish(c2, `{"outputs":{"report":"r.md"}}`)
	c2.Close()
	if r := p.finish(c3, `{"outputs":{"report":"r.md"},"session_id":"`+id+`"}`); r.Status != machine.WorkflowComplete {
		t.Errorf("reply %s", toJSON(t, r))
	}
}

func TestAClosedConnectionRefusesCalls(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	srv := p.open()
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	c.Close()
	c.Close()
	_, err := c.Step(ctx, StepArgs{SessionID: &id})
	refused(t, err, session.StateError, "shutting_down")
	_, err = c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main"})
	refused(t, err, session.StateError, "shutting_down")
	if s := p.record(id); s.Owner != "" {
		t.Errorf("a refused call took the session up: owner %q", s.Owner)
	}
	if _, err := srv.Connect("local").Step(ctx, StepArgs{SessionID: &id}); err != nil {
		t.Errorf("the session is not resumable: %v", err)
	}
}

// holding is a disk whose next write waits.
type holding struct {
	records
	armed   atomic.Bool
	arrived chan struct{} // closed when the write is there
	let     chan struct{} // closed to let it go on
}

func (h *holding) Save(s *machine.State) error {
	if h.armed.CompareAndSwap(true, false) {
		close(h.arrived)
		<-h.let
	}
	return h.records.Save(s)
}

func TestCloseWaitsForTheCallsInFlight(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	srv := p.open()
	disk := &holding{records: srv.records, arrived: make(chan struct{}), let: make(chan struct{})}
	srv.records = disk
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	disk.armed.Store(true)
	got := beside(t, ctx, c, `{"outputs":{"report":"r.md"}}`)
	<-disk.arrived
	closed := make(chan struct{})
	go func() { c.Close(); close(closed) }()
	for { // until Close has come so far that calls are refused
		if _, err := c.GetWorkflows(ctx); session.CodeOf(err) == "shutting_down" {
			break
		}
	}
	select {
	case <-closed:
		t.Error("Close did not wait for the call in flight")
	default:
	}
	close(disk.let)
	if x := await(t, got); x.err != nil || x.r.BeginStep.StepID != "two" {
		t.Errorf("the call in flight got %s, %v", toJSON(t, x.r), x.err)
	}
	<-closed
	if s := p.record(id); s.Owner != "" || s.CurrentStepID != "two" {
		t.Errorf("record: owner %q, step %s", s.Owner, s.CurrentStepID)
	}
}

func TestASessionThatCannotBeGivenUpStays(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	srv, other := p.open(), p.open()
	disk := &failing{records: srv.records}
	srv.records = disk
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	disk.fail.Store(true)
	c.Close()
	disk.fail.Store(false)
	if s := p.record(id); s.Owner != srv.records.Server() {
		t.Errorf("owner %q", s.Owner)
	}
	if s := srv.Stats(); s.Active != 1 || s.Awake != 0 {
		t.Errorf("stats %+v", s)
	}
	_, err := other.Connect("local").Step(ctx, StepArgs{SessionID: &id})
	refused(t, err, session.StateError, "session_owned")
	c = srv.Connect("local")
	if r := p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+id+`"}`); r.BeginStep.StepID != "two" {
		t.Errorf("reply %s", toJSON(t, r))
	}
	c.Close()
	if s := p.record(id); s.Owner != "" {
		t.Errorf("owner %q", s.Owner)
	}
}

// unconfirmed is a disk that does not confirm what was written.
type unconfirmed struct{ records }

func (u unconfirmed) Release(s *machine.State) error {
	if err := u.records.Release(s); err != nil {
		return err
	}
	return errors.Join(store.ErrUnsynced)
}

func TestASessionThatMayHaveBeenGivenUpIsClaimedAnew(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	srv, other := p.open(), p.open()
	srv.records = unconfirmed{srv.records}
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	c.Close()
	testkit.Must(t, errOf(other.Connect("local").Step(ctx, StepArgs{SessionID: &id})))
	_, err := srv.Connect("local").Step(ctx, StepArgs{SessionID: &id})
	refused(t, err, session.StateError, "session_owned")
	_, err = srv.Connect("mallory").Step(ctx, StepArgs{SessionID: &id})
	refused(t, err, session.StateError, "unknown_session")
}

func TestAServerThatStopsWritesNothing(t *testing.T) {
	for _, how := range []string{"closes its connections first", "closes the engine first"} {
		t.Run(how, func(t *testing.T) {
			p := newProject(t)
			p.simple("alpha")
			srv := p.open()
			var conns []*Conn
			var ids []string
			for range 5 {
				c := srv.Connect("local")
				conns = append(conns, c)
				ids = append(ids, p.start(c, "alpha", "main").BeginStep.SessionID)
			}
			stateless := srv.ConnectStateless("local")
			testkit.Must(t, errOf(stateless.Step(ctx, StepArgs{SessionID: &ids[0]})))
			server := srv.records.Server()
			if how == "closes the engine first" {
				srv.stop()
			}
			srv.Stopping()
			for _, c := range conns {
				c.Close()
			}
			srv.stop()
			for _, id := range ids {
				if s := p.record(id); s.Owner != server {
					t.Errorf("session %s was written at the end: owner %q", id, s.Owner)
				}
			}
			if _, err := p.open().Connect("local").Step(ctx, StepArgs{SessionID: &ids[0]}); err != nil {
				t.Errorf("the session is not resumable: %v", err)
			}
		})
	}
}

func TestAReviewOutlivesItsConnectionAndThenTheSessionIsFree(t *testing.T) {
	p := newProject(t)
	p.reviewedJob()
	first, rev := p.reviewed()
	second := p.reopen(rev)
	c1, c2 := first.Connect("local"), second.Connect("local")
	id := p.start(c1, "alpha", "main").BeginStep.SessionID
	rev.set("wait", "")
	leaves, leave := context.WithCancel(ctx)
	got := beside(t, leaves, c1, `{"outputs":{"report":"good.md"}}`)
	rev.runs(1)
	leave()
	if x := await(t, got); !errors.Is(x.err, context.Canceled) {
		t.Errorf("the caller that left got %v", x.err)
	}
	c1.Close()
	_, err := c2.Step(ctx, StepArgs{SessionID: &id})
	refused(t, err, session.StateError, "session_owned")
	rev.unset("wait")
	testkit.Until(t, "given up after its review", func() bool { return p.record(id).Owner == "" })
	r := p.finish(c2, `{"outputs":{"report":"good.md"},"session_id":"`+id+`"}`)
	if r.Status != machine.NextStep || rev.calls() != 1 {
		t.Errorf("the verdict was not collected: %s after %d reviews", toJSON(t, r), rev.calls())
	}
}

func TestAnUnheldSessionIsGivenUpWhenItsActorIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		def := loop(t, 3)
		e, err := Open(ctx, Options{Root: t.TempDir(), records: newMemory(), definitions: newFixed(def), IdleAfter: time.Minute})
		testkit.Must(t, err)
		defer e.Close(ctx)
		_, ids := beginMany(t, e, def, 2)
		// A caller that asked for the session and left before it was on a stack.
		e.handles.Get(ids[0]).Unpin()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for i, want := range []string{"", "this"} {
			s, err := e.records.Load(ids[i])
			if err != nil || s.Owner != want {
				t.Errorf("session %d: owner %q, %v", i, s.Owner, err)
			}
		}
		if s := e.Stats(); s.Active != 1 || s.Awake != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestADeepStackIsGivenUpAsAWhole(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	first, second := p.open(), p.open()
	c, beside := first.Connect("local"), first.Connect("local")
	p.start(beside, "alpha", "main")
	var ids []string
	for range deep {
		ids = append(ids, p.start(c, "alpha", "main").BeginStep.SessionID)
	}
	c.Close()
	<-c.released // a slow disk takes longer than Close waits
	if s := first.Stats(); s.Active != 1 {
		t.Errorf("stats %+v", s)
	}
	step, err := second.Connect("local").Step(ctx, StepArgs{SessionID: &ids[deep-1]})
	if err != nil || len(step.Stack) != deep {
		t.Fatalf("taken up: depth %d, %v", len(step.Stack), err)
	}
	p.finish(beside, `{"outputs":{"report":"r.md"}}`)
}

// What one server's records hold is asked of the disk before each write.
type watched struct {
	records
	t testing.TB
}

func (w watched) look(s *machine.State) {
	now, err := w.records.Peek(s.SessionID)
	switch {
	case err != nil:
		w.t.Errorf("before a write of session %s: %v", s.SessionID, err)
	case now.Owner != w.records.Server():
		w.t.Errorf("server %s writes session %s, which belongs to %q", w.records.Server(), s.SessionID, now.Owner)
	case now.UpdatedAt.After(s.UpdatedAt), len(now.StepProgress) > len(s.StepProgress):
		w.t.Errorf("a write of session %s would undo what is there", s.SessionID)
	}
}

func (w watched) Save(s *machine.State) error    { w.look(s); return w.records.Save(s) }
func (w watched) Release(s *machine.State) error { w.look(s); return w.records.Release(s) }

// setAside are the records that a store moved out of the way of its own: a sign
// that two have written at once.
func (p *project) setAside() []string {
	entries, err := os.ReadDir(p.state().Tmp())
	if err != nil && p.url == "" {
		p.t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if name := e.Name(); strings.HasPrefix(name, "replaced_") || strings.HasPrefix(name, "damaged_") {
			out = append(out, filepath.Base(name))
		}
	}
	slices.Sort(out)
	return out
}

// A stack that cannot be taken up as a whole now is not taken up: without its parent a
// session would go on beside it.
func TestAStackIsTakenUpAsAWholeOrNotAtAll(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	srv := p.open()
	c := srv.Connect("local")
	parent := p.start(c, "alpha", "main").BeginStep.SessionID
	child := p.start(c, "alpha", "main").BeginStep.SessionID
	srv.stop()
	srv = p.open()
	busy := &busyRecords{records: srv.records, id: parent}
	busy.left.Store(1)
	srv.records = busy
	c = srv.Connect("local")
	_, err := c.Step(ctx, StepArgs{SessionID: &child})
	refused(t, err, session.StateError, "not_saved", parent)
	if step, err := c.Step(ctx, StepArgs{SessionID: &child}); err != nil || len(step.Stack) != 2 {
		t.Errorf("taken up: %v, %v", step, err)
	}
}

// busyRecords fail to update one record some times, as if another server had the lock.
type busyRecords struct {
	records
	id   string
	left atomic.Int32
}

func (b *busyRecords) Update(id string, change func(*machine.State) (*machine.State, error)) (*machine.State, error) {
	if id == b.id && b.left.Add(-1) >= 0 {
		return nil, notSaved(id, errors.New("another server has the lock"))
	}
	return b.records.Update(id, change)
}

func TestASessionThatAPersonMovesIsFreeForItsAgentAfterIt(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	agents, pages := p.open(), p.open()
	c := agents.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	c.Close()
	testkit.Must(t, pages.GoToFor(ctx, id, "one"))
	if s := p.record(id); s.Owner != "" || s.CurrentStepID != "one" {
		t.Errorf("after the move it is at step %s and belongs to %q", s.CurrentStepID, s.Owner)
	}
	p.finish(agents.Connect("local"), `{"outputs":{"report":"r.md"},"session_id":"`+id+`"}`)
}
