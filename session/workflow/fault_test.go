package workflow

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

func TestAFullDiskRefusesAndMovesNothing(t *testing.T) {
	t.Parallel()
	p := simpleProject(t)
	p.git("init", "-q")
	p.git("commit", "-qm", "first", "--allow-empty")
	p.write(".deepwork/config.yml", "version: \"1.0\"\ngit: {branch: checkout}\n")
	srv := p.open()
	disk := srv.makeFaulty()
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	on := p.git("symbolic-ref", "--short", "HEAD")

	disk.full.Store(true)
	refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"}}`))).Err(), session.StateError, "not_saved", "no space left", "nothing has moved")
	refused(t, testkit.Get(c.Abort(ctx, AbortArgs{Explanation: "x"})).Err(), session.StateError, "not_saved")
	refused(t, testkit.Get(c.GoTo(ctx, GoToArgs{StepID: "one"})).Err(), session.StateError, "not_saved")
	refused(t, testkit.Get(c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", InstanceID: new("full")})).Err(), session.StateError, "not_saved")
	testkit.Equal(t, p.git("symbolic-ref", "--short", "HEAD"), on, "the branch after the failed start")
	testkit.Equal(t, p.git("branch", "--list", "deepwork/*full*"), "", "branches that the failed start left")
	s := c.stackOf(ctx, "")
	testkit.True(t, len(s) == 1 && s[0].Step == "one", "stack %v", s)
	disk.full.Store(false)
	testkit.Equal(t, p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+id+`"}`).BeginStep.StepID, "two", "reply")
}

func TestAVanishedFolderIsMadeAgain(t *testing.T) {
	t.Parallel()
	p, _, c, id := begun(t)
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	testkit.Must(t, os.RemoveAll(p.state().Tmp()))
	testkit.Equal(t, p.finish(c, `{"outputs":{"report":"r.md"}}`).Status, machine.WorkflowComplete, "reply")
	s := p.record(id)
	testkit.True(t, s.Status == machine.Completed && len(s.StepProgress) == 2, "record %s", toJSON(t, s))
}

func TestAProjectThatVanishesIsNamed(t *testing.T) {
	p := newProject(t)
	p.root = filepath.Join(p.root, "inner")
	p.simple("alpha")
	p.write("r.md", "x")
	c := p.open().Connect("local")
	p.start(c, "alpha", "main")
	testkit.Must(t, os.RemoveAll(p.root))
	refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"}}`))).Err(), session.StateError, "project_gone", p.root)
}

// A call without a session_id says that the database was moved away, and goes on once it is put back.
func TestADatabaseThatIsMovedAwayWhileItIsOpen(t *testing.T) {
	t.Parallel()
	p := simpleProject(t)
	srv := p.open()
	c := srv.Connect("local")
	p.start(c, "alpha", "main")
	path := srv.State.Database()
	if err := os.Rename(path, path+".away"); err != nil {
		t.Skip("it is no file, or an open one cannot be moved:", err)
	}
	const call = `{"outputs":{"report":"r.md"}}`
	refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, call))).Err(), session.StateError, "store_damaged", "moved, removed or replaced while it was open: put it back")
	testkit.Must(t, os.Rename(path+".away", path))
	testkit.Equal(t, p.finish(c, call).Status, machine.NextStep, "reply")
}

// A commit whose fate is unknown: the same call is applied again to the session as it is, and finds its own
// reply or makes its transition once.
func TestACommitWhoseFateIsUnknown(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]bool{"made": true, "not made": false} {
		t.Run(name, func(t *testing.T) {
			p := simpleProject(t)
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
			r := testkit.Get(c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", RequestID: new("r")})).Must(t)
			id := r.BeginStep.SessionID
			if all, err := srv.List(ctx); err != nil || len(all) != 1 || all[0].ID != id {
				t.Errorf("sessions %s, %v, want %s", toJSON(t, all), err, id)
			}
			lose()
			testkit.Equal(t, stepOf(p.finish(c, `{"outputs":{"report":"r.md"}}`).BeginStep), "two", "finished_step")
			lose()
			testkit.Equal(t, testkit.Get(c.GoTo(ctx, GoToArgs{StepID: "one"})).Must(t).BeginStep.StepID, "one", "go_to_step")
			lose()
			testkit.Must(t, errOf(c.Abort(ctx, AbortArgs{Explanation: "x"})))
			s := p.record(id)
			testkit.True(t, s.Status == machine.Aborted && len(s.History) == 1 && len(s.History[0].Progress) == 2 && s.Revision == 3, "record %s", toJSON(t, s))
		})
	}
}

// Nor is it applied again to a step that others have led the session to since, whose moves have its reply forgotten.
func TestACommitWhoseFateNobodyKnowsAnyMore(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]bool{"made": true, "not made": false} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			p.job("alpha", []testStep{{id: "one"}, {id: "two"}, {id: "three"}, {id: "four"}}, map[string]string{"main": "[one, two, three, four]"})
			srv := p.open()
			disk := srv.makeFaulty()
			c, other := srv.Connect("local"), p.open().Connect("local")
			id := p.start(c, "alpha", "main").BeginStep.SessionID
			call := `{"outputs":{},"session_id":"` + id + `"}`
			map[bool]*atomic.Int32{true: &disk.lose, false: &disk.drop}[made].Store(1)
			var others func()
			moved := map[bool]int{true: 1, false: 2}[made]
			others = func() {
				disk.reading.Store(nil)
				for range moved {
					p.finish(other, call)
				}
			}
			disk.reading.Store(&others)
			_, err := c.Finish(ctx, finishArgs(t, call))
			refused(t, err, session.StateError, codeUncertain, "Call get_step")
			testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{SessionID: &id})).Must(t).Members[0].StepID, "three", "the step")
		})
	}
}

// The same for what is done together with a transition: a workflow that is a step is begun and ended, and a person drops
// an item.
func TestForms_ACommitWhoseFateIsUnknown(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]bool{"made": true, "not made": false} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			p.job("beta", []testStep{{id: "plan"}}, map[string]string{"main": "[plan]"})
			p.job("alpha", []testStep{{id: "list", outputs: "{todo: {type: string, description: d}}"}, {id: "port"}},
				map[string]string{"main": "[{workflow: beta/main}, list, {for_each: todo, steps: [port], at_once: 2}]"})
			srv := p.open()
			disk := srv.makeFaulty()
			lose := map[bool]*atomic.Int32{true: &disk.lose, false: &disk.drop}[made]
			c := srv.Connect("local")
			lose.Store(1)
			r := testkit.Get(c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main"})).Must(t)
			lose.Store(1)
			again := testkit.Get(c.GoTo(ctx, GoToArgs{StepID: "workflow:beta/main", SessionID: &r.Stack[0].SessionID})).Must(t)
			testkit.Until(t, "ended, since its step was begun again", func() bool { return p.record(r.BeginStep.SessionID).Status == machine.Aborted })
			p.finish(c, `{"outputs":{},"session_id":"`+again.BeginStep.SessionID+`"}`)
			p.finish(c, `{"outputs":{"todo":"[\"a\",\"b\"]"}}`)
			lose.Store(1)
			testkit.Must(t, srv.DropFor(ctx, r.Stack[0].SessionID, "port[0]", machine.Override{Identity: "me", Channel: session.ChannelTerminal, Reason: "obsolete"}))
		})
	}
}

// A new session whose commit arrives late, when its server has given it up, is not begun by a call that was
// told that nothing has moved.
func TestACommitOfANewSessionThatArrivesLate(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	p := simpleProject(t)
	srv := p.open()
	disk := srv.makeFaulty()
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	testkit.Must(t, errOf(c.Step(ctx, StepArgs{})))
	disk.lose.Store(1)
	disk.unread.Store(1)
	call := `{"outputs":{"report":"r.md"},"session_id":"` + id + `","step_id":"one"}`
	refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, call))).Err(), session.StateError, codeUncertain)
	r := p.finish(c, call)
	testkit.True(t, r.BeginStep != nil && r.BeginStep.StepID == "two" && p.record(id).Revision == 1, "the repetition: %s", toJSON(t, r))
}

// A faulty store fails, hangs or loses replies on demand.
type faulty struct {
	store.Sessions
	twice     atomic.Bool                              // each first write of a transition is overtaken
	overtaken atomic.Int64                             // counts those, and the second ones
	full      atomic.Bool                              // writes fail, and change nothing
	lose      atomic.Int32                             // so many replies to writes are lost, after they were made
	drop      atomic.Int32                             // so many writes are not made, and their replies are lost
	unread    atomic.Int32                             // so many reads fail
	during    atomic.Pointer[func()]                   // is called after a write, before its reply
	before    atomic.Pointer[func()]                   // is called before a write
	reading   atomic.Pointer[func()]                   // is called before a read
	delay     atomic.Pointer[chan *store.SessionWrite] // receives the next write instead of the store, which does not confirm it
}

var errNoSpace = errors.New("no space left on device")

// makeFaulty puts a faulty store between a server and its stores.
func (s *server) makeFaulty() *faulty {
	f := &faulty{Sessions: s.records.Sessions}
	s.records.Sessions = f
	return f
}

func (f *faulty) WriteSession(ctx context.Context, w *store.SessionWrite) (bool, error) {
	if f.full.Load() {
		return false, errNoSpace
	}
	parts := slices.Clone(w.Put)
	slices.SortFunc(parts, func(a, b store.SessionPart) int { return cmp.Compare(a.Kind+" "+a.Key, b.Kind+" "+b.Key) })
	if len(slices.CompactFunc(parts, func(a, b store.SessionPart) bool { return a.Kind == b.Kind && a.Key == b.Key })) < len(w.Put) {
		return false, errors.New("a statement writes a part twice, which PostgreSQL refuses")
	}
	if f.drop.Load() > 0 {
		f.drop.Add(-1)
		return false, store.ErrPending
	}
	if to := f.delay.Swap(nil); to != nil {
		late := *w
		*to <- &late
		return false, store.ErrPending
	}
	if f.twice.Load() && w.Before >= 0 && f.overtaken.Add(1)%2 == 1 {
		return false, nil
	}
	if g := f.before.Load(); g != nil {
		(*g)()
	}
	written, err := f.Sessions.WriteSession(ctx, w)
	if g := f.during.Load(); g != nil {
		(*g)()
	}
	if f.lose.Load() > 0 && err == nil {
		f.lose.Add(-1)
		return false, store.ErrPending
	}
	return written, err
}

func (f *faulty) ReadSession(ctx context.Context, id string, known int64) (*store.SessionRecord, error) {
	if g := f.reading.Load(); g != nil && f.lose.Load()+f.drop.Load() == 0 {
		(*g)()
	}
	if f.unread.Load() > 0 {
		f.unread.Add(-1)
		return nil, errNoSpace
	}
	return f.Sessions.ReadSession(ctx, id, known)
}

// A command that is applied twice, since its first write was overtaken, has the effect of one.
func TestACommandAppliedTwiceHasOneEffect(t *testing.T) {
	t.Parallel()
	p, srv, rev := underReview(t)
	disk := srv.makeFaulty()
	disk.twice.Store(true)
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	testkit.Equal(t, p.finish(c, `{"outputs":{"report":"bad.md"}}`).Status, machine.NeedsWork, "reply")
	testkit.Equal(t, p.finish(c, `{"outputs":{"report":"good.md"}}`).Status, machine.NextStep, "reply")
	testkit.Works(t, testkit.Get(c.GoTo(ctx, GoToArgs{StepID: "one"})).Err())
	testkit.Works(t, testkit.Get(c.Abort(ctx, AbortArgs{Explanation: "x"})).Err())
	s := p.record(id)
	if rev.calls() != 2 || len(s.History) != 1 || s.Status != machine.Aborted || disk.overtaken.Load() < 8 {
		t.Errorf("%d reviews, %d writes, record %s", rev.calls(), disk.overtaken.Load(), toJSON(t, s))
	}
}

// A call that names no step is about the step that is current when it arrives, also at a server that last saw
// the session at an earlier one, whose outputs have reviews, too.
func TestACallIsAboutTheStepThatIsCurrentAsItArrives(t *testing.T) {
	p := newProject(t)
	p.reviewedJob()
	p.write("better.md", "CONTENT OF better.md")
	p.job("alpha", []testStep{{id: "one", outputs: oneFile, reviews: reviewedStep}, {id: "two", outputs: oneFile, reviews: reviewedStep}},
		map[string]string{"main": "[one, two]"})
	first, rev := p.reviewed()
	second := p.reopen(rev).Connect("local")
	c := first.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	call := `{"outputs":{"report":"good.md"},"session_id":"` + id + `"}`
	look := func() {
		t.Helper()
		testkit.Must(t, testkit.Get(second.Step(ctx, StepArgs{SessionID: &id})).Err())
	}
	look()
	p.finish(c, call)
	testkit.Equal(t, p.finish(second, `{"outputs":{"report":"better.md"},"session_id":"`+id+`"}`).Status, machine.WorkflowComplete, "reply")
	if _, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"better.md"},"session_id":"`+id+`"}`)); session.CodeOf(err) != "session_ended" {
		t.Errorf("a call after the end got %v", err)
	}
}
