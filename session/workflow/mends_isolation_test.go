package workflow

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// peeked receives each record that is looked at.
type peeked struct {
	records
	see func(id string)
}

func (p peeked) Peek(id string) (*machine.State, error) {
	p.see(id)
	return p.records.Peek(id)
}

// A caller that leaves while its session is taken up does not leave it on the
// stack without what it is nested in.
func TestASessionIsTakenUpWithItsAncestorsOrNotAtAll(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	first := p.open().Connect("local")
	outer := p.start(first, "alpha", "main").BeginStep.SessionID
	inner := p.start(first, "alpha", "main").BeginStep.SessionID
	first.Close()

	srv := p.open()
	leaves, leave := context.WithCancel(ctx)
	srv.records = peeked{srv.records, func(id string) {
		if id == outer {
			leave()
		}
	}}
	c := srv.Connect("local")
	if _, err := c.Step(leaves, StepArgs{SessionID: &inner}); err == nil {
		t.Error("a caller that left got an answer")
	}
	r, err := c.Step(ctx, StepArgs{SessionID: &inner})
	if err != nil || len(r.Stack) != 2 || r.Stack[0].SessionID != outer || r.Stack[1].SessionID != inner {
		t.Errorf("taken up again: %s, %v", toJSON(t, r), err)
	}
	c.Close()
	for _, id := range []string{outer, inner} {
		if s := p.record(id); s.Owner != "" {
			t.Errorf("session %s was not given up: owner %q", id, s.Owner)
		}
	}
}

// slowRelease is a disk that takes a second to give a session up, and may be full.
type slowRelease struct {
	*memory
	full atomic.Bool
	mu   sync.Mutex
	log  []string
}

func (d *slowRelease) note(what, id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, what+" "+id)
}

func (d *slowRelease) Release(s *machine.State) error {
	d.note("begin", s.SessionID)
	time.Sleep(time.Second)
	if d.full.Load() {
		return errNoSpace
	}
	defer d.note("end", s.SessionID)
	return d.memory.Release(s)
}

// nested begins sessions, each nested in the one before, on a connection.
func nested(t *testing.T, e *Engine, c *Conn, def *machine.Definition, n int) (ids []string) {
	t.Helper()
	var parent *string
	for range n {
		s, _, err := e.create(def, machine.NewSession{Goal: "g", Identity: "local", Parent: parent, Owner: "this", At: e.now(), Call: machine.Call{Tool: machine.ToolStart}, Texts: machine.Instructions{}})
		testkit.Must(t, err)
		testkit.Must(t, errOf(c.Step(ctx, StepArgs{SessionID: &s.SessionID})))
		parent = &s.SessionID
		ids = append(ids, s.SessionID)
	}
	return ids
}

// A caller that takes up a session that was just given up finds its ancestors free.
func TestAStackIsGivenUpFromTheBottom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		def := loop(t, 2)
		disk := &slowRelease{memory: newMemory()}
		e, err := Open(ctx, Options{Root: t.TempDir(), records: disk, definitions: newFixed(def)})
		testkit.Must(t, err)
		defer e.Close(ctx)
		c := e.Connect("local")
		ids := nested(t, e, c, def, 4)
		c.Close()
		<-c.released
		var want []string
		for _, id := range ids {
			want = append(want, "begin "+id, "end "+id)
		}
		if !slices.Equal(disk.log, want) {
			t.Errorf("given up in this order: %v, not %v", disk.log, want)
		}
	})
}

// A disk that was full for a while does not keep a session from other servers
// for as long as this one runs.
func TestASessionThatCouldNotBeGivenUpIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		def := loop(t, 2)
		disk := &slowRelease{memory: newMemory()}
		e, err := Open(ctx, Options{Root: t.TempDir(), records: disk, definitions: newFixed(def)})
		testkit.Must(t, err)
		defer e.Close(ctx)
		c := e.Connect("local")
		ids := nested(t, e, c, def, 3)
		disk.full.Store(true)
		c.Close()
		<-c.released
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if s := e.Stats(); s.Active != 3 || s.Awake != 0 {
			t.Errorf("while the disk is full: %+v", s)
		}
		if n := len(disk.log); n > 3+15 {
			t.Errorf("%d tries in five minutes", n)
		}
		disk.full.Store(false)
		// One that is taken up meanwhile is its connection's.
		held := e.Connect("local")
		testkit.Must(t, errOf(held.Step(ctx, StepArgs{SessionID: &ids[0]})))
		time.Sleep(time.Minute)
		synctest.Wait()
		for i, want := range []string{"this", "", ""} {
			if s, err := disk.Load(ids[i]); err != nil || s.Owner != want {
				t.Errorf("session %d: owner %q, %v", i, s.Owner, err)
			}
		}
		if s := e.Stats(); s.Active != 1 {
			t.Errorf("when the disk has room: %+v", s)
		}
	})
}

// What other identities have is no burden for a call that names no session, and
// does not become one for the next.
func TestTheSessionsOfOthersAreReadOnce(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	theirs := p.open().Connect("bob")
	for range 20 {
		p.start(theirs, "alpha", "main")
	}
	theirs.Close()
	var reads atomic.Int64
	srv := p.open()
	srv.records = peeked{srv.records, func(string) { reads.Add(1) }}
	c := srv.ConnectStateless("alice")
	for i, want := range []int64{20, 0, 0} {
		reads.Store(0)
		_, err := c.Step(ctx, StepArgs{})
		refused(t, err, session.StateError, "no_active_session")
		// The list of those that can be resumed is a second look.
		if n := reads.Load(); n > want {
			t.Errorf("call %d read %d files", i, n)
		}
	}
	// They are bob's all the same, and alice's own are found.
	_, err := srv.ConnectStateless("bob").Step(ctx, StepArgs{})
	refused(t, err, session.StateError, "session_id_needed")
	id := p.start(srv.Connect("alice"), "alpha", "main").BeginStep.SessionID
	if r, err := c.Step(ctx, StepArgs{}); err != nil || r.BeginStep.SessionID != id {
		t.Errorf("alice's own: %s, %v", toJSON(t, r), err)
	}
}
