package workflow_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/replies"
	"deepwork/session/store"
	. "deepwork/session/workflow"
)

func TestAFullDiskRefusesAndMovesNothing(t *testing.T) {
	p := simpleProject(t)
	p.git("init", "-q")
	p.git("commit", "-qm", "first", "--allow-empty")
	p.branching("checkout")
	srv, c, id := p.begin()
	disk, on := srv.makeFaulty(), p.git("symbolic-ref", "--short", "HEAD")
	disk.full.Store(&errNoSpace)
	refused(t, refusal(t, c, `{"outputs":{"report":"r.md"}}`), session.StateError, "not_saved", "no space left",
		"nothing has moved")
	refused(t, errOf(c.Abort(ctx, AbortArgs{Explanation: "x"})), session.StateError, "not_saved")
	refused(t, errOf(c.GoTo(ctx, GoToArgs{StepID: "one"})), session.StateError, "not_saved")
	refused(t,
		errOf(c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", InstanceID: new("full")})),
		session.StateError, "not_saved")
	testkit.Equal(t, p.git("symbolic-ref", "--short", "HEAD"), on, "the branch after the failed start")
	testkit.Equal(t, p.git("branch", "--list", "deepwork/*full*"), "", "branches that the failed start left")
	testkit.Equal(t, fmt.Sprint(stackOf(t, c)), "[{alpha/main one "+id+"}]", "stack")

	disk.full.Store(nil)
	testkit.Equal(t, p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+id+`"}`).BeginStep.StepID,
		"two", "reply")
}

// The folder for files in progress is made again; that the whole project is gone is said, and it is not made again.
func TestAVanishedFolderIsMadeAgain(t *testing.T) {
	p := newProject(t)
	p.root = filepath.Join(p.root, "inner")
	p.simple("alpha")
	p.write("r.md", "x")
	_, c, id := p.begin()
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	testkit.Must(t, os.RemoveAll(p.state().Tmp()))
	says(t, p.finish(c, `{"outputs":{"report":"r.md"}}`), replies.WorkflowComplete)
	testkit.True(t, p.record(id).Status == machine.Completed && len(p.record(id).StepProgress) == 2, "record %s",
		toJSON(t, p.record(id)))

	p.start(c, "alpha", "main")
	testkit.Must(t, os.RemoveAll(p.root))
	refused(t, refusal(t, c, `{"outputs":{"report":"r.md"}}`), session.StateError, "project_gone",
		"The project folder "+p.root)
	testkit.True(t, errOf(c.Abort(ctx, AbortArgs{Explanation: "x"})) == nil && os.IsNotExist(errOf(os.Stat(p.root))),
		"it is made again, empty")
}

// A call without a session_id says that the database was moved away, and goes on once it is put back.
func TestADatabaseThatIsMovedAwayWhileItIsOpen(t *testing.T) {
	p, srv, c, _ := begun(t)
	path := srv.State.Database()
	if err := os.Rename(path, path+".away"); err != nil {
		t.Skip("it is no file, or an open one cannot be moved:", err)
	}
	refused(t, refusal(t, c, `{"outputs":{"report":"r.md"}}`), session.StateError, "store_damaged",
		"moved, removed or replaced while it was open: put it back")
	testkit.Must(t, os.Rename(path+".away", path))
	says(t, p.finish(c, `{"outputs":{"report":"r.md"}}`), replies.NextStep)
}

// fates are those of a commit whose reply is lost: it was made, or not.
var fates = map[string]func(*faulty) *atomic.Int32{
	"made":     func(f *faulty) *atomic.Int32 { return &f.lose },
	"not made": func(f *faulty) *atomic.Int32 { return &f.drop },
}

// onlySession checks that a server has this session, and no other.
func (s *server) onlySession(t *testing.T, id string) {
	t.Helper()
	all := testkit.Get(s.List(ctx)).Must(t)
	testkit.True(t, len(all) == 1 && all[0].ID == id, "sessions %s, want %s", toJSON(t, all), id)
}

// A commit whose fate is unknown: the same call is applied again to the session as it is, and finds its own
// reply or makes its transition once.
func TestACommitWhoseFateIsUnknown(t *testing.T) {
	for name, lost := range fates {
		t.Run(name, func(t *testing.T) {
			p := simpleProject(t)
			srv := p.open()
			lose, c := lost(srv.makeFaulty()), srv.Connect("local")
			lose.Store(1)

			id := testkit.Get(c.Start(ctx, StartArgs{
				Goal:         "g",
				JobName:      "alpha",
				WorkflowName: "main",
				RequestID:    new("r"),
			})).Must(t).BeginStep.SessionID
			srv.onlySession(t, id)
			lose.Store(1)
			testkit.Equal(t, stepOf(p.finish(c, `{"outputs":{"report":"r.md"}}`).BeginStep), "two", "finished_step")
			lose.Store(1)
			testkit.Equal(t, testkit.Get(c.GoTo(ctx, GoToArgs{StepID: "one"})).Must(t).BeginStep.StepID, "one",
				"go_to_step")
			lose.Store(1)
			testkit.Must(t, errOf(c.Abort(ctx, AbortArgs{Explanation: "x"})))
			s := p.record(id)
			testkit.Equal(t, s.Status, machine.Aborted, "record %s", toJSON(t, s))
			testkit.Need(t, len(s.History) == 1, "record %s", toJSON(t, s))
			testkit.Need(t, len(s.History[0].Progress) == 2, "record %s", toJSON(t, s))
			testkit.Equal(t, s.Revision, 3, "record %s", toJSON(t, s))
		})
	}
}

// Nor is it applied again to a step that others have led the session to since, whose moves have its reply forgotten.
func TestACommitWhoseFateNobodyKnowsAnyMore(t *testing.T) {
	for name, lost := range fates {
		t.Run(name, func(t *testing.T) {
			p := newProject(t).alpha("[one, two, three, four]", testStep{id: "one"}, testStep{id: "two"},
				testStep{id: "three"}, testStep{id: "four"})
			srv, c, id := p.begin()
			other, disk := p.open().Connect("local"), srv.makeFaulty()
			call := `{"outputs":{},"session_id":"` + id + `"}`
			others := func() {
				disk.reading.Store(nil)
				for range map[string]int{"made": 1, "not made": 2}[name] {
					p.finish(other, call)
				}
			}
			lost(disk).Store(1)
			disk.reading.Store(&others)
			refused(t, refusal(t, c, call), session.StateError, "session_uncertain", "Call get_step")
			testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{SessionID: &id})).Must(t).Members[0].StepID, "three",
				"the step")
		})
	}
}

// The same for what is done together with a transition: a workflow that is a step is begun and ended, and a
// person drops an item.
func TestForms_ACommitWhoseFateIsUnknown(t *testing.T) {
	for name, lost := range fates {
		t.Run(name, func(t *testing.T) {
			p := newProject(t).alpha("[{workflow: beta/main}, list, {for_each: todo, steps: [port], at_once: 2}]",
				testStep{id: "list", outputs: oneList}, testStep{id: "port"})
			p.job("beta", []testStep{{id: "plan"}}, map[string]string{"main": "[plan]"})
			srv := p.open()
			lose, c := lost(srv.makeFaulty()), srv.Connect("local")
			lose.Store(1)
			r := p.start(c, "alpha", "main")
			lose.Store(1)
			again := testkit.Get(c.GoTo(ctx, GoToArgs{StepID: "workflow:beta/main", SessionID: &r.Stack[0].SessionID})).
				Must(t)
			testkit.Until(t, "ended, since its step was begun again", func() bool {
				return p.record(r.BeginStep.SessionID).Status == machine.Aborted
			})
			p.finish(c, `{"outputs":{},"session_id":"`+again.BeginStep.SessionID+`"}`)
			p.finish(c, `{"outputs":{"todo":"[\"a\",\"b\"]"}}`)
			lose.Store(1)
			testkit.Must(t, srv.DropFor(ctx, r.Stack[0].SessionID, "port[0]",
				judging.Override{Identity: "me", Channel: session.ChannelTerminal, Reason: "obsolete"}))
		})
	}
}

// A new session whose commit arrives late, when its server has given it up, is not begun by a call that was
// told that nothing has moved.
func TestACommitOfANewSessionThatArrivesLate(t *testing.T) {
	p := simpleProject(t)
	srv := p.open()
	disk, late := srv.makeFaulty(), make(chan *store.SessionWrite, 1)
	disk.delay.Store(&late)
	id := p.start(srv.Connect("local"), "alpha", "main").BeginStep.SessionID
	written, err := disk.Sessions.WriteSession(ctx, <-late)
	testkit.True(t, !written && errors.Is(err, store.ErrExists), "the late commit: %v, %v", written, err)
	srv.onlySession(t, id)
}

func TestAStoreThatIsAwayAfterALostReply(t *testing.T) {
	p, srv, c, id := begun(t)
	disk := srv.makeFaulty()
	testkit.Must(t, errOf(c.Step(ctx, StepArgs{})))
	disk.lose.Store(1)
	disk.unread.Store(1)
	call := `{"outputs":{"report":"r.md"},"session_id":"` + id + `","step_id":"one"}`
	refused(t, refusal(t, c, call), session.StateError, "session_uncertain")
	testkit.Equal(t, stepOf(p.finish(c, call).BeginStep), "two", "the repetition")
	testkit.Equal(t, p.record(id).Revision, 1, "revision")

	// A start that finds its own commit, and then the store away, does not say that it has changed nothing.
	disk.lose.Store(1)
	disk.during.Store(new(func() { disk.unread.Store(1) }))
	refused(t, errOf(c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", RequestID: new("q")})),
		session.StateError, "session_uncertain")

	// Nor does a step whose first commit may be made yet, when the store is away before the second.
	disk.drop.Store(1)
	disk.reading.Store(new(func() { disk.full.Store(&store.ErrUnavailable) }))
	refused(t, refusal(t, c, `{"outputs":{"report":"r.md"},"session_id":"`+id+`","step_id":"two"}`), session.StateError,
		"session_uncertain")
}

// A faulty store fails, hangs or loses replies on demand.
type faulty struct {
	store.Sessions
	twice     atomic.Bool            // each first write of a transition is overtaken
	overtaken atomic.Int64           // counts those, and the second ones
	full      atomic.Pointer[error]  // with which writes fail, and change nothing
	lose      atomic.Int32           // so many replies to writes are lost, after they were made
	drop      atomic.Int32           // so many writes are not made, and their replies are lost
	unread    atomic.Int32           // so many reads fail
	undefined atomic.Int32           // the read of a definition with this number fails
	during    atomic.Pointer[func()] // is called after a write, before its reply
	reading   atomic.Pointer[func()] // is called before a read
	writing   atomic.Pointer[func()] // is called before a write
	// receives the next write instead of the store, which does not confirm it
	delay atomic.Pointer[chan *store.SessionWrite]
}

var errNoSpace = errors.New("no space left on device")

// makeFaulty puts a faulty store between a server and its stores.
func (s *server) makeFaulty() *faulty {
	f := &faulty{Sessions: s.Records().Sessions}
	s.Records().Sessions = f
	return f
}

func (f *faulty) WriteSession(ctx context.Context, w *store.SessionWrite) (bool, error) {
	if err := f.full.Load(); err != nil {
		return false, *err
	}
	if g := f.writing.Load(); g != nil {
		(*g)()
	}

	parts := slices.Clone(w.Put)
	slices.SortFunc(parts, func(a, b store.SessionPart) int { return cmp.Compare(a.Kind+" "+a.Key, b.Kind+" "+b.Key) })
	if len(slices.CompactFunc(parts, func(a, b store.SessionPart) bool {
		return a.Kind == b.Kind && a.Key == b.Key
	})) < len(w.Put) {
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

func (f *faulty) Definition(ctx context.Context, hash string) ([]byte, error) {
	if f.undefined.Add(-1) == 0 {
		return nil, store.ErrUnavailable
	}
	return f.Sessions.Definition(ctx, hash)
}

func (f *faulty) FindRequest(ctx context.Context, k store.Key) (string, error) {
	if f.unread.Swap(0) > 0 {
		return "", store.ErrUnavailable
	}
	return f.Sessions.FindRequest(ctx, k)
}

func TestACommandAppliedTwiceHasOneEffect(t *testing.T) {
	p, srv, rev, c, id := underReview(t)
	disk := srv.makeFaulty()
	disk.twice.Store(true)
	says(t, p.finish(c, `{"outputs":{"report":"bad.md"}}`), replies.NeedsWork)
	says(t, p.finish(c, `{"outputs":{"report":"good.md"}}`), replies.NextStep)
	testkit.Works(t, errOf(c.GoTo(ctx, GoToArgs{StepID: "one"})))
	testkit.Works(t, errOf(c.Abort(ctx, AbortArgs{Explanation: "x"})))

	s := p.record(id)
	testkit.Equal(t, rev.calls(), 2, "%d reviews, %d writes, record %s", rev.calls(), disk.overtaken.Load(),
		toJSON(t, s))
	testkit.Need(t, len(s.History) == 1, "%d reviews, %d writes, record %s", rev.calls(), disk.overtaken.Load(),
		toJSON(t, s))
	testkit.Equal(t, s.Status, machine.Aborted, "%d reviews, %d writes, record %s", rev.calls(), disk.overtaken.Load(),
		toJSON(t, s))
	testkit.True(t, disk.overtaken.Load() >= 8, "%d reviews, %d writes, record %s", rev.calls(), disk.overtaken.Load(),
		toJSON(t, s))
}

// A call that names no step is about the step that is current when it arrives, also at a server that last saw
// the session at an earlier one, whose outputs have reviews, too.
func TestACallIsAboutTheStepThatIsCurrentAsItArrives(t *testing.T) {
	p := newProject(t).reviewedJob(reviewedStep)
	p.alpha("[one, two]", testStep{id: "one", outputs: oneFile, reviews: reviewedStep},
		testStep{id: "two", outputs: oneFile, reviews: reviewedStep})
	_, rev, c, id := p.reviewed()
	second := p.reopen(rev).Connect("local")
	testkit.Must(t, errOf(second.Step(ctx, StepArgs{SessionID: &id})))
	p.finish(c, `{"outputs":{"report":"good.md"},"session_id":"`+id+`"}`)
	says(t, p.finish(second, `{"outputs":{"report":"`+p.write("better.md", "CONTENT OF better.md")+`"},"session_id":"`+
		id+`"}`), replies.WorkflowComplete)
	refused(t, refusal(t, c, `{"outputs":{"report":"better.md"},"session_id":"`+id+`"}`), session.StateError,
		"session_ended")
}

func TestRetryOfTheStepFinishedLastGivesTheReplyAgain(t *testing.T) {
	p := newProject(t).alpha("[one, two, three]", testStep{id: "one", outputs: oneFile},
		testStep{id: "two", outputs: oneFile}, testStep{id: "three", outputs: oneFile})
	srv, c, id := p.begin()
	reply := func(step string) string {
		return toJSON(t, p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"`+step+`"}`))
	}
	first := reply("one")
	for i := range 30 { // with fresh request ids they do not grow the record
		testkit.Equal(t,
			toJSON(t, p.finish(c, fmt.Sprintf(`{"outputs":{"report":"r.md"},"step_id":"one","request_id":"q%d"}`, i))),
			first, "the reply differs")
	}
	testkit.True(t, len(p.record(id).Replies) <= machine.KeptRequests+2, "%d replies are kept",
		len(p.record(id).Replies))
	before := toJSON(t, p.record(id))
	testkit.Equal(t, reply("one"), first, "the reply differs")
	testkit.Equal(t, toJSON(t, p.record(id)), before, "the repetition moved the session")

	refused(t, refusal(t, c, `{"outputs":{"report":"`+p.write("s.md", "x")+`"},"step_id":"one"}`), session.StateError,
		"step_finished", "'one' is finished already", "the current step is 'two'")
	refused(t, refusal(t, c, `{"outputs":{"report":"r.md"},"step_id":"three"}`), session.StateError, "step_not_current",
		"the current step is 'two'")
	refused(t, refusal(t, c, `{"outputs":{"report":"r.md"},"step_id":"none"}`), session.ToolError, "unknown_step",
		"'none'", "the current step is 'two'")
	reply("two")
	refused(t, refusal(t, c, `{"outputs":{"report":"r.md"},"step_id":"one"}`), session.StateError, "step_finished",
		"the current step is 'three'")

	// After the last step, also when the session has left the stack, and from another server after a crash.
	last := reply("three")
	testkit.Equal(t, reply("three"), last, "the reply differs")

	srv.stop()
	c = p.open().Connect("local")
	testkit.Equal(t, toJSON(t, p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"three","session_id":"`+id+`"}`)),
		last, "the reply differs")
}

func TestRetryOfANestedSessionsLastStepDoesNotFinishItsParent(t *testing.T) {
	p, _, c, outer := begun(t)
	p.job("beta", []testStep{{id: "one", outputs: oneFile}}, map[string]string{"main": "[one]"})
	p.start(c, "beta", "main")
	first := p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"one"}`)
	testkit.True(t, *first.ResumedWorkflow == "alpha/main" && *first.ResumedStep == "one", "resumed %s",
		toJSON(t, first))

	before := toJSON(t, p.record(outer))
	// The parent's current step has the same id, and takes the same outputs.
	again := p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"one"}`)
	testkit.Equal(t, again.Status, replies.WorkflowComplete, "the repetition got %s", toJSON(t, again))
	testkit.Equal(t, *again.Summary, *first.Summary, "the repetition got %s", toJSON(t, again))
	testkit.Contains(t, *again.Notice, outer, "the repetition got %s", toJSON(t, again))
	testkit.Equal(t, toJSON(t, p.record(outer)), before, "the repetition moved the parent")
	says(t, p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"one","session_id":"`+outer+`"}`), replies.NextStep)
}

// startedAtOnce makes a call several times at once, and returns the session that all of them have started.
func startedAtOnce(t *testing.T, c *Conn, a StartArgs) string {
	replies := make([]*replies.Start, 20)
	var wg sync.WaitGroup
	for i := range replies {
		wg.Go(func() {
			r, err := c.Start(ctx, a)
			testkit.Works(t, err)
			replies[i] = r
		})
	}
	wg.Wait()
	for _, r := range replies {
		testkit.Equal(t, toJSON(t, r.BeginStep), toJSON(t, replies[0].BeginStep), "two replies")
	}

	return replies[0].BeginStep.SessionID
}

func TestRequestIDs(t *testing.T) {
	p := simpleProject(t)
	srv := p.open()
	c, start := srv.Connect("local"), StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", RequestID: new("s1")}
	id := startedAtOnce(t, c, start)
	refused(t,
		errOf(c.Start(ctx, StartArgs{Goal: "another", JobName: "alpha", WorkflowName: "main", RequestID: new("s1")})),
		session.ToolError, "request_id_reused", "s1")

	// all such calls would be one
	refused(t, refusal(t, c, `{"outputs":{},"request_id":" "}`), session.ToolError, "blank_request_id")
	// Scoped to identity and tool.
	testkit.True(t, testkit.Get(srv.Connect("somebody").Start(ctx, start)).Must(t).BeginStep.SessionID != id,
		"another identity got the same session")

	args := `{"outputs":{"report":"s.md"},"request_id":"s1"}`
	refused(t, refusal(t, c, args), session.ToolError, "file_not_found") // and may be made again
	p.write("s.md", "x")
	first := p.finish(c, args)
	testkit.Equal(t, first.BeginStep.StepID, "two")
	testkit.Equal(t, toJSON(t, p.finish(c, args)), toJSON(t, first), "the reply differs")

	back := GoToArgs{StepID: "one", RequestID: new("g1")}
	testkit.Equal(t, toJSON(t, testkit.Get(c.GoTo(ctx, back)).Must(t)),
		toJSON(t, testkit.Get(c.GoTo(ctx, back)).Must(t)), "the reply differs")

	abort := AbortArgs{Explanation: "e", RequestID: new("a1")}
	aborted := testkit.Get(c.Abort(ctx, abort)).Must(t)
	outer := p.start(c, "alpha", "main").BeginStep.SessionID // must survive the repetition of the abort
	srv.stop()
	c = p.open().Connect("local") // to the server after one that died
	testkit.Must(t, errOf(c.Step(ctx, StepArgs{SessionID: &outer})))
	r := testkit.Get(c.Abort(ctx, abort)).Must(t)
	testkit.True(t, r.AbortedWorkflow == aborted.AbortedWorkflow && len(r.Stack) == 1, "the repeated abort got %s",
		toJSON(t, r))

	again := testkit.Get(c.Start(ctx, start)).Must(t)
	testkit.Equal(t, again.BeginStep.SessionID, id, "the repeated start")
	testkit.Contains(t, *again.Notice, "has ended since (aborted)")
}

// A call with a request_id that a review refused is answered as it was when it is repeated, also by another
// server, and spends no further attempt. Only an attempt without a verdict is reviewed again.
func TestARepeatedCallDoesNotSpendAnotherAttempt(t *testing.T) {
	p, srv, rev, c, id := underReview(t, Reviewing{External: true, MaxTries: 2, ReplyWithin: patience})
	call := func(request string) (string, error) {
		r, err := c.Finish(ctx, FinishArgs{Outputs: outputsOf("report", "bad.md"), SessionID: &id, RequestID: &request})
		return toJSON(t, r), err
	}
	rev.set("exit", "")
	p.write("bad.md", "nothing to object to, if there were a verdict")
	testkit.Equal(t, session.CodeOf(errOf(call("void"))), "review_failed", "a reviewer that fails")
	rev.unset("exit")
	p.write("bad.md", "CONTENT OF bad.md")
	void := testkit.Get(call("void")).Must(t)
	testkit.Contains(t, void, string(replies.NeedsWork), "the void attempt, repeated")

	final := errOf(call("final"))
	refused(t, final, session.ToolError, "quality_gate_failed", "Quality gate failed after 2 attempts",
		"bad.md was read")
	for _, when := range []string{"at once", "after a restart"} {
		testkit.Equal(t, testkit.Get(call("void")).Must(t), void, "%s: the repetition", when)
		testkit.Equal(t, fmt.Sprint(errOf(call("final"))), final.Error(), "%s: the repetition", when)
		testkit.Equal(t, p.record(id).Progress("one").QualityTries, 2, "%s: attempts", when)
		testkit.Equal(t, rev.calls(), 3, "%s: calls of the reviewer", when)
		srv.stop()
		srv = p.reopen(rev)
		c = srv.Connect("local")
	}
}

func TestACallWhoseReplyIsForgottenIsNotDoneAgain(t *testing.T) {
	p := simpleProject(t)
	srv := p.open()
	c := srv.Connect("local")
	start := StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", RequestID: new("first")}
	id := testkit.Get(c.Start(ctx, start)).Must(t).BeginStep.SessionID
	goTo := func(i int) error {
		return errOf(c.GoTo(ctx, GoToArgs{StepID: "one", SessionID: &id, RequestID: new(fmt.Sprint("go ", i))}))
	}
	for i := range machine.KeptRequests + 1 {
		testkit.Must(t, goTo(i))
	}
	refused(t, goTo(0), session.StateError, "reply_forgotten", id)
	for range 2 { // also by another server
		refused(t, errOf(c.Start(ctx, start)), session.StateError, "reply_forgotten", id)
		srv.stop()
		srv = p.open()
		c = srv.Connect("local")
	}
}

func TestAPassingReadErrorDoesNotSendTheCallToTheParent(t *testing.T) {
	p, srv, c, _ := begun(t)
	child := p.start(c, "alpha", "main").BeginStep.SessionID
	srv.makeFaulty().unread.Store(1)
	refused(t, refusal(t, c, `{"outputs":{"report":"r.md"}}`), session.StateError, "session_unreadable")
	testkit.Equal(t, p.finish(c, `{"outputs":{"report":"r.md"}}`).BeginStep.SessionID, child, "the same call again")
}

// heldLists holds the first list of sessions until it is released.
type heldLists struct {
	store.Sessions
	made          atomic.Int32
	begun, answer chan struct{}
}

func (h *heldLists) ListSessions(ctx context.Context, q store.SessionQuery) ([]store.Session, error) {
	rows, err := h.Sessions.ListSessions(ctx, q)
	if q.IDs != nil && h.made.Add(1) == 1 {
		close(h.begun)
		<-h.answer
	}
	return rows, err
}

// Calls that wait for the stack share a read, which begins after all of them, and so shows what other processes did.
func TestCallsShareAReadOfTheStackThatBeginsAfterThem(t *testing.T) {
	p, srv, c, id := begun(t)
	lists := &heldLists{Sessions: srv.Records().Sessions, begun: make(chan struct{}), answer: make(chan struct{})}
	srv.Records().Sessions = lists
	stack := func() string { return fmt.Sprint(testkit.Get(c.Step(ctx, StepArgs{SessionID: &id})).Must(t).Stack) }
	early := make(chan string, 1)
	go func() { early <- stack() }()
	<-lists.begun

	p.finish(p.open().Connect("local"), `{"outputs":{"report":"r.md"},"session_id":"`+id+`"}`)
	late := make(chan string, 6)
	for range cap(late) {
		go func() { late <- stack() }()
	}
	testkit.Until(t, "waiting", func() bool {
		all := make([]byte, 1<<20)
		return strings.Count(string(all[:runtime.Stack(all, true)]), ").rows(") == 1+cap(late)
	})
	close(lists.answer)
	testkit.Equal(t, <-early, "[{alpha/main one "+id+"}]")
	for range cap(late) {
		testkit.Equal(t, <-late, "[{alpha/main two "+id+"}]")
	}
	testkit.True(t, lists.made.Load() < 4, "%d reads", lists.made.Load())
}
