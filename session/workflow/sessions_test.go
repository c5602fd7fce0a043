package workflow_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/actor/xslices"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/definition"
	"deepwork/session/export"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/replies"
	"deepwork/session/store"
	. "deepwork/session/workflow"
)

func TestASessionIsResumedAfterACrashWithItsAncestors(t *testing.T) {
	p, srv, c, outer := begun(t)
	p.simple("beta")
	inner := p.start(c, "beta", "main").BeginStep.SessionID
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	srv.stop()
	c = p.open().Connect("local")
	refused(t, refusal(t, c, `{"outputs":{"report":"r.md"}}`), session.StateError, "no_active_session",
		"No active workflow session", inner, outer, "beta/main", "at step 'two'")
	step := testkit.Get(c.Step(ctx, StepArgs{SessionID: &inner})).Must(t)
	testkit.Equal(t, step.BeginStep.StepID, "two", "get_step %s", toJSON(t, step))
	testkit.Equal(t, step.Goal, "a goal", "get_step %s", toJSON(t, step))
	testkit.Need(t, len(step.Stack) == 2, "get_step %s", toJSON(t, step))
	testkit.Equal(t, step.Stack[0].SessionID, outer, "get_step %s", toJSON(t, step))
	testkit.Equal(t, toJSON(t, step.CompletedSteps), `[{"step_id":"one","outputs":{"report":"r.md"}}]`)

	r := p.finish(c, `{"outputs":{"report":"r.md"}}`)
	testkit.Equal(t, r.Status, replies.WorkflowComplete, "reply %s", toJSON(t, r))
	testkit.Equal(t, *r.ResumedWorkflow, "alpha/main", "reply %s", toJSON(t, r))
	testkit.Equal(t, len(r.Stack), 1, "reply %s", toJSON(t, r))
}

// Any connection, of any server of the project, serves any session at any time; one that somebody works on is
// not recommended.
func TestAnyServerServesAnySession(t *testing.T) {
	p := simpleProject(t)
	first := p.open()
	for name, second := range map[string]*server{"the same server": first, "another server": p.open()} {
		c1, c2 := first.Connect("local"), second.Connect("local")
		id := p.start(c1, "alpha", "main").BeginStep.SessionID
		testkit.Equal(t, len(stackOf(t, c2)), 0, "%s: stack", name)

		err := refusal(t, c2, `{"outputs":{"report":"r.md"}}`)
		refused(t, err, session.StateError, "no_active_session")
		testkit.True(t, second == first || !strings.Contains(err.Error(), id),
			"a session in use at another server is listed: %v", err)

		before := toJSON(t, testkit.Get(first.List(ctx)).Must(t))
		testkit.Equal(t, testkit.Get(c2.Step(ctx, StepArgs{SessionID: &id})).Must(t).BeginStep.StepID, "one", name)
		testkit.Equal(t, toJSON(t, testkit.Get(first.List(ctx)).Must(t)), before,
			"%s: it is taken up, which writes nothing", name)

		p.finish(c1, `{"outputs":{"report":"r.md"}}`)
		testkit.Equal(t, stackOf(t, c2)[0].Step, "two", "%s: stack", name)
		says(t, p.finish(c2, `{"outputs":{"report":"r.md"}}`), replies.WorkflowComplete)
		testkit.Equal(t, len(stackOf(t, c1)), 0, "%s: stack", name)
		refused(t, refusal(t, c1, `{"outputs":{"report":"r.md"}}`), session.StateError, "no_active_session")
	}
}

// Calls through several servers take effect one after the other.
func TestServersRaceForOneSession(t *testing.T) {
	var list []testStep
	var ids []string
	for i := range 40 {
		ids = append(ids, fmt.Sprintf("s%d", i))
		list = append(list, testStep{id: ids[i]})
	}
	p := newProject(t).alpha("["+strings.Join(ids, ", ")+"]", list...)
	_, _, id := p.begin()
	var wg sync.WaitGroup
	var finished atomic.Int64
	for range 4 {
		c := p.open().Connect("local")
		wg.Go(func() {
			for _, step := range ids {
				r, err := c.Finish(ctx, FinishArgs{Outputs: []byte(`{}`), SessionID: &id, StepID: &step})
				if err == nil && r.Status == replies.WorkflowComplete {
					finished.Add(1)
				}
				testkit.True(t, err == nil || session.CodeOf(err) == "step_finished" ||
					session.CodeOf(err) == "session_ended", "step %s: %v", step, err)
			}
		})
	}
	wg.Wait()
	s := p.record(id)
	testkit.Equal(t, s.Status, machine.Completed, "it is %s at revision %d, want completed at %d; %d replies say so",
		s.Status, s.Revision, len(ids), finished.Load())
	testkit.Equal(t, s.Revision, int64(len(ids)), "it is %s at revision %d, want completed at %d; %d replies say so",
		s.Status, s.Revision, len(ids), finished.Load())
	testkit.True(t, finished.Load() > 0, "it is %s at revision %d, want completed at %d; %d replies say so", s.Status,
		s.Revision, len(ids), finished.Load())
}

func TestBranchesSideBySideNeedASessionID(t *testing.T) {
	p, _, c, root := begun(t)
	child := StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", ParentSessionID: &root}
	one := testkit.Get(c.Start(ctx, child)).Must(t).BeginStep.SessionID
	two := testkit.Get(c.Start(ctx, child)).Must(t).BeginStep.SessionID
	refused(t, refusal(t, c, `{"outputs":{"report":"r.md"}}`), session.StateError, "session_id_needed", one, two)
	testkit.Equal(t, *testkit.Get(c.Abort(ctx, AbortArgs{Explanation: "x", SessionID: &one})).Must(t).ResumedWorkflow,
		"alpha/main")
	testkit.Equal(t, p.finish(c, `{"outputs":{"report":"r.md"}}`).BeginStep.SessionID, two, "reply")

	child.ParentSessionID = &one
	refused(t, errOf(c.Start(ctx, child)), session.StateError, "session_ended", one)
}

func TestWhatIsDoneToAnExportChangesNothing(t *testing.T) {
	p, srv, _, id := begun(t)
	path := p.export(id)
	before, remove := string(testkit.Get(os.ReadFile(path)).Must(t)), func() { testkit.Must(t, os.Remove(path)) }
	for name, spoil := range map[string]func(){
		"cut off": func() { testkit.Write(t, path, before[:len(before)/2]) },
		"edited":  func() { testkit.Write(t, path, strings.ReplaceAll(before, `"one"`, `"two"`)) },
		"of a revision that never was": func() {
			testkit.Write(t, path, strings.Replace(before, `"revision": 0`, `"revision": 1000`, 1))
		},
		"removed": remove,
		"a link": func() {
			remove()
			testkit.Must(t, os.Symlink(filepath.Join(t.TempDir(), "elsewhere"), path))
		},
	} {
		spoil()
		srv.stop()
		srv = p.open()
		testkit.Equal(t, testkit.Get(srv.Connect("local").Step(ctx, StepArgs{SessionID: &id})).Must(t).BeginStep.StepID,
			"one", "%s", name)
		now := string(testkit.Get(os.ReadFile(path)).Must(t))
		testkit.True(t, name == "edited" || name == "cut off" || now == before, "%s: the export is %q", name, now)
	}
	p.finish(srv.Connect("local"), `{"outputs":{"report":"r.md"},"session_id":"`+id+`"}`)
	s := p.record(id)
	testkit.True(t, s.CurrentStepID == "two" && s.Revision == 1, "record %s", toJSON(t, s))
	testkit.Equal(t, testkit.Get(os.Stat(path)).Must(t).Mode().Perm(), 0o600)
}

// get_workflows lists the caller's own sessions that it can resume, and start_workflow names those of the
// same workflow.
func TestResumableSessions(t *testing.T) {
	p := simpleProject(t)
	p.simple("beta")
	srv := p.open()
	before, goal := srv.Connect("local"), strings.Repeat("long ", 100)
	r := testkit.Get(before.Start(ctx, StartArgs{Goal: goal, JobName: "alpha", WorkflowName: "main"})).Must(t)
	testkit.True(t, r.Notice == nil, "notice %s", toJSON(t, r.Notice))

	alpha := r.BeginStep.SessionID
	p.finish(before, `{"outputs":{"report":"r.md"}}`)
	beta := p.start(before, "beta", "main").BeginStep.SessionID
	testkit.Contains(t, toJSON(t, p.start(before, "beta", "main").Notice),
		"beta/main is already in progress in session '"+beta+"' (on the stack, at step 'one')")

	testkit.Must(t, errOf(before.Abort(ctx, AbortArgs{Explanation: "x"})))
	list := func(c *Conn) []replies.ResumableSession {
		return testkit.Get(c.GetWorkflows(ctx)).Must(t).Resumable
	}
	testkit.Equal(t, len(list(before)), 0, "those on the stack")
	testkit.Equal(t, len(list(srv.Connect("local"))), 0, "those that another connection works on")
	before.Close()
	for range 2 { // the second server reads it all again
		testkit.Equal(t, len(list(srv.Connect("other"))), 0, "another's")
		got := list(srv.Connect("local"))
		testkit.Need(t, len(got) == 2, "resumable: %s", toJSON(t, got))
		testkit.Equal(t, got[0].SessionID, beta, "resumable: %s", toJSON(t, got))
		testkit.Equal(t, got[1].SessionID, alpha, "resumable: %s", toJSON(t, got))
		testkit.Equal(t, got[1].Workflow, "alpha/main", "resumable: %s", toJSON(t, got))
		testkit.Equal(t, got[1].Step, "two", "resumable: %s", toJSON(t, got))
		testkit.Need(t, len([]rune(got[1].Goal)) <= 200, "resumable: %s", toJSON(t, got))
		testkit.True(t, strings.HasPrefix(goal, got[1].Goal[:150]), "resumable: %s", toJSON(t, got))
		testkit.True(t, strings.HasSuffix(got[1].Age, "s"), "resumable: %s", toJSON(t, got))

		srv.stop()
		srv = p.open()
	}
	testkit.Contains(t, toJSON(t, p.start(srv.Connect("local"), "alpha", "main").Notice),
		"alpha/main is already in progress in session '"+alpha+"' (at step 'two', last moved ")
	testkit.Equal(t, toJSON(t, p.start(srv.Connect("other"), "alpha", "main").Notice), "null", "another caller is told")
}

// An execution is told of to its own identity, on whatever server, also after the end; nothing is taken up by that.
func TestProgress(t *testing.T) {
	p := simpleProject(t)
	srv, other := p.open(), p.open()
	c := srv.Connect("ann")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	look := func(s *server, done int, status machine.SessionStatus) *Progress {
		t.Helper()
		x := testkit.Get(s.Progress(ctx, "ann", id)).Must(t)
		testkit.Equal(t, x.SessionID, id, "got %s", toJSON(t, x))
		testkit.Equal(t, x.JobName, "alpha", "got %s", toJSON(t, x))
		testkit.Equal(t, x.WorkflowName, "main", "got %s", toJSON(t, x))
		testkit.Equal(t, x.Status, status, "got %s", toJSON(t, x))
		testkit.Equal(t, x.Done, done, "got %s", toJSON(t, x))
		testkit.Equal(t, x.Total, 2, "got %s", toJSON(t, x))
		return x
	}
	look(srv, 0, machine.Active)
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	testkit.Equal(t, look(srv, 1, machine.Active).StepID+look(other, 1, machine.Active).StepID, "twotwo")
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	testkit.Equal(t, toJSON(t, look(other, 2, machine.Completed).Outputs), `{"report":"r.md"}`, "outputs")

	// What was done is known when the job, and what was kept of it, are gone.
	testkit.Must(t, os.RemoveAll(filepath.Join(p.root, ".deepwork", "jobs", "alpha")))
	testkit.Equal(t, toJSON(t, look(p.open(), 2, machine.Completed).Outputs), `{"report":"r.md"}`, "outputs")

	refused(t, errOf(srv.Progress(ctx, "mallory", id)), session.StateError, "unknown_session")
	refused(t, errOf(srv.Progress(ctx, "ann", "00000000")), session.StateError, "unknown_session")
	refused(t, errOf(srv.Progress(ctx, "ann", "../../etc")), session.ToolError, "bad_session_id")
}

// A root session is nobody's child, and what is below it on the stack stays its own.
func TestARootSessionIsNobodysChild(t *testing.T) {
	p, _, c, first := begun(t)
	root := testkit.Get(c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", Root: true})).Must(t).
		BeginStep.SessionID
	testkit.True(t, p.record(root).ParentSessionID == nil, "it has a parent")
	// It waits for others: a call that names no session is about the first one.
	testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{})).Must(t).BeginStep.SessionID, first, "got")

	found := testkit.Get(c.GetWorkflows(ctx)).Must(t).Resumable
	testkit.Need(t, len(found) == 1, "resumable: %v", found)
	testkit.Equal(t, found[0].SessionID, root, "resumable")

	reply := testkit.Get(c.Abort(ctx, AbortArgs{Explanation: "e", SessionID: &root})).Must(t)
	testkit.True(t, reply.ResumedWorkflow == nil && len(reply.Stack) == 1, "got %s", toJSON(t, reply))
}

func TestAStackAThousandDeep(t *testing.T) {
	deep := 100
	if os.Getenv("DEEPWORK_FIGURES") == "1" {
		deep = 1000
	}
	p := simpleProject(t)
	srv := p.open()
	c := srv.Connect("local")
	var ids []string
	for range deep {
		ids = append(ids, p.start(c, "alpha", "main").BeginStep.SessionID)
	}
	for _, i := range []int{0, deep / 2, deep - 1} {
		r := p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+ids[i]+`"}`)
		testkit.True(t, r.Stack[i].Step == "two" && len(r.Stack) == deep, "at %d: step %s, depth %d", i,
			r.Stack[i].Step, len(r.Stack))
	}
	r := testkit.Get(c.Abort(ctx, AbortArgs{Explanation: "x", SessionID: &ids[deep/2]})).Must(t)
	testkit.True(t, len(r.Stack) == deep-1 && *r.ResumedStep == "one", "abort in the middle: depth %d", len(r.Stack))

	srv.stop()
	c = p.open().Connect("local")
	stack := testkit.Get(c.Step(ctx, StepArgs{SessionID: &ids[deep-1]})).Must(t).Stack
	testkit.Need(t, len(stack) == deep-1, "resumed: depth %d", len(stack))
	testkit.Need(t, stack[0].SessionID == ids[0], "resumed: depth %d", len(stack))
	testkit.Need(t, stack[deep-2].SessionID == ids[deep-1], "resumed: depth %d", len(stack))

	// They are given up from the top; each of these calls reads all that are below, so not all of them are.
	for range 20 {
		testkit.Must(t, errOf(c.Abort(ctx, AbortArgs{Explanation: "x"})))
	}
	testkit.Equal(t, len(stackOf(t, c)), deep-21, "depth")
}

// The figures of transitions and lists, each beside a reference of the same run. Run them with
//
//	go test -run xxx -bench . ./session/workflow

// BenchmarkResumable is get_workflows in a project with 20,000 sessions, active ones, and ended ones that are
// newer than the active ones. Wanted: under 10 ms.
func BenchmarkResumable(b *testing.B) {
	for _, ended := range []bool{false, true} {
		b.Run(fmt.Sprintf("ended=%v", ended), func(b *testing.B) {
			p, srv, c, id := begun(b)
			c.Close()
			s := p.record(id)
			for n := range 20_000 {
				next := *s
				next.SessionID = fmt.Sprintf("%08x", n)
				if ended && n >= keptListed {
					next.Status, next.CompletedAt = machine.Completed, &s.StartedAt
				}
				testkit.Must(b, testkit.Get(
					srv.Records().Write(ctx, nil, store.Session{Root: p.root}, &next, &store.SessionWrite{})).Err())
			}
			c = srv.Connect("local")
			for b.Loop() {
				testkit.Equal(b, len(testkit.Get(c.GetWorkflows(ctx)).Must(b).Resumable), keptListed)
			}
		})
	}
}

// keptListed is how many sessions are listed for a caller.
const keptListed = 20

// calls are those of a connection about a session, or about none that is named.
func calls(c *Conn, id *string) []error {
	return []error{
		errOf(c.Step(ctx, StepArgs{SessionID: id})),
		errOf(c.Abort(ctx, AbortArgs{Explanation: "x", SessionID: id})),
		errOf(c.GoTo(ctx, GoToArgs{StepID: "one", SessionID: id})),
		errOf(c.Finish(ctx, FinishArgs{Outputs: outputsOf("report", "r.md"), SessionID: id})),
	}
}

func TestAStatelessCallNeedsASessionIDWhereThereAreSeveral(t *testing.T) {
	p := simpleProject(t)
	c := p.open().ConnectStateless("alice")
	refused(t, errOf(c.Step(ctx, StepArgs{})), session.StateError, "no_active_session", "No active workflow session")
	first := p.start(c, "alpha", "main")
	id := first.BeginStep.SessionID
	testkit.True(t, len(first.Stack) == 1 && first.Stack[0].SessionID == id, "stack %v", first.Stack)

	r := p.finish(c, `{"outputs":{"report":"r.md"}}`)
	testkit.True(t, r.BeginStep.StepID == "two" && len(r.Stack) == 1, "with one session: %s", toJSON(t, r))
	testkit.Same(t, testkit.Get(c.GetWorkflows(ctx)).Must(t).Stack,
		[]replies.StackEntry{{Workflow: "alpha/main", Step: "two", SessionID: id}}, "get_workflows")

	// A second root: it is not nested in the other agent's.
	second := p.start(c, "alpha", "main")
	testkit.True(t, len(second.Stack) == 1 && p.record(second.BeginStep.SessionID).ParentSessionID == nil,
		"the second session is nested: %v", second.Stack)
	for _, err := range calls(c, nil) {
		refused(t, err, session.StateError, "session_id_needed", id, second.BeginStep.SessionID, "Pass session_id",
			"alpha/main")
	}
	testkit.Equal(t, len(testkit.Get(c.GetWorkflows(ctx)).Must(t).Stack), 0, "get_workflows")
	r = p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+id+`"}`)
	testkit.Equal(t, r.Status, replies.WorkflowComplete, "reply %s", toJSON(t, r))
	testkit.Need(t, len(r.Stack) == 0, "reply %s", toJSON(t, r))
	testkit.True(t, r.ResumedWorkflow == nil, "reply %s", toJSON(t, r))

	aborted := testkit.Get(c.Abort(ctx, AbortArgs{Explanation: "x"})).Must(t)
	testkit.True(t, aborted.AbortedStep == "one" && len(aborted.Stack) == 0, "with one session left: %s",
		toJSON(t, aborted))
}

func TestAStatelessCallCountsTheSessionsOfOtherConnectionsAndOfTheDisk(t *testing.T) {
	p, gone, _, id := begun(t)
	srv, other := p.open(), p.open()
	c := srv.ConnectStateless("local")
	found := func(of string) {
		t.Helper()
		testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{})).Must(t).BeginStep.SessionID, id, of)
	}
	refused(t, errOf(c.Step(ctx, StepArgs{})), session.StateError, "no_active_session") // a living server owns it
	gone.stop()
	found("the one on disk")
	p.start(other.Connect("local"), "alpha", "main") // another living server's
	p.start(srv.Connect("bob"), "alpha", "main")     // another identity's
	found("still the only one")
	beside := srv.Connect("local")
	second := p.start(beside, "alpha", "main").BeginStep.SessionID // this server's, on a connection
	found("beside one on a connection")
	beside.Close()
	refused(t, errOf(c.Step(ctx, StepArgs{})), session.StateError, "session_id_needed", id, second)
}

func TestAtMostTwentySessionsAreListed(t *testing.T) {
	p := simpleProject(t)
	srv := p.open()
	c := srv.ConnectStateless("local")
	for range keptListed + 3 {
		p.start(c, "alpha", "main")
	}

	err := errOf(c.Step(ctx, StepArgs{}))
	refused(t, err, session.StateError, "session_id_needed", "Older ones are not listed")
	testkit.True(t, strings.Count(err.Error(), "\n- ") == keptListed && len(err.Error()) <= 8000,
		"the message has %d bytes: %v", len(err.Error()), err)

	// They are no burden for the calls of others.
	refused(t, errOf(srv.ConnectStateless("alice").Step(ctx, StepArgs{})), session.StateError, "no_active_session")
	id := p.start(srv.Connect("alice"), "alpha", "main").BeginStep.SessionID
	testkit.Equal(t, testkit.Get(p.open().ConnectStateless("alice").Step(ctx, StepArgs{SessionID: &id})).Must(t).
		BeginStep.SessionID, id, "alice's own")
}

func TestAStatelessStackIsTheChainOfTheSessionConcerned(t *testing.T) {
	p := simpleProject(t)
	p.simple("beta")
	srv := p.open()
	c, nested := srv.ConnectStateless("local"), StartArgs{Goal: "g", JobName: "beta", WorkflowName: "main"}
	nest := func(parent string) string {
		t.Helper()
		nested.ParentSessionID = &parent
		return testkit.Get(c.Start(ctx, nested)).Must(t).BeginStep.SessionID
	}
	chain := func(of string, stack []replies.StackEntry, want ...string) {
		t.Helper()
		testkit.Same(t, xslices.Map(stack, func(e replies.StackEntry) string { return e.SessionID }), want, of)
	}
	root := p.start(c, "alpha", "main").BeginStep.SessionID
	p.start(c, "alpha", "main") // another agent's
	mid := nest(root)
	leaf, sibling := nest(mid), nest(mid)
	chain("get_step", testkit.Get(c.Step(ctx, StepArgs{SessionID: &leaf})).Must(t).Stack, root, mid, leaf)
	chain("StackOf", c.StackOf(ctx, &mid), root, mid)
	testkit.True(t, len(c.Stack()) == 0 && len(c.StackOf(ctx, nil)) == 0,
		"a stateless connection has no stack of its own")

	a := testkit.Get(c.Abort(ctx, AbortArgs{Explanation: "x", SessionID: &mid})).Must(t)
	chain("abort in the middle", a.Stack, root)
	testkit.Equal(t, *a.ResumedWorkflow, "alpha/main")
	chain("below what was aborted", testkit.Get(c.Step(ctx, StepArgs{SessionID: &sibling})).Must(t).Stack,
		root, sibling)
	p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+leaf+`"}`)
	r := p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+leaf+`"}`)
	chain("completion", r.Stack, root)
	testkit.Equal(t, r.Status, replies.WorkflowComplete, "completion: %s", toJSON(t, r))
	testkit.Equal(t, *r.ResumedWorkflow, "alpha/main", "completion: %s", toJSON(t, r))
	testkit.Equal(t, *r.ResumedStep, "one", "completion: %s", toJSON(t, r))

	nested.ParentSessionID = &leaf
	refused(t, errOf(c.Start(ctx, nested)), session.StateError, "session_ended", leaf)

	// After a restart a nested session comes with its ancestors.
	srv.stop()
	chain("after a restart", testkit.Get(p.open().ConnectStateless("local").Step(ctx, StepArgs{SessionID: &sibling})).
		Must(t).Stack, root, sibling)
}

func TestStatelessRetries(t *testing.T) {
	p := simpleProject(t)
	c := p.open().ConnectStateless("local")
	startedAtOnce(t, c, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", RequestID: new("q")})
	p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"one"}`)
	last := p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"two"}`)
	testkit.Equal(t, toJSON(t, p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"two"}`)), toJSON(t, last),
		"the reply differs")

	// A call that names its session is not repeated by one that names none: that is another agent's.
	one, two := p.start(c, "alpha", "main").BeginStep.SessionID, p.start(c, "alpha", "main").BeginStep.SessionID
	p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+one+`","step_id":"one"}`)
	p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+one+`","step_id":"two"}`)
	p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+two+`","step_id":"one"}`)
	r := p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"two"}`)
	testkit.Equal(t, r.Status, replies.WorkflowComplete, "the call got %s", toJSON(t, r))
	testkit.Need(t, r.Notice == nil, "the call got %s", toJSON(t, r))
	testkit.Equal(t, p.record(two).Status, machine.Completed, "the call got %s", toJSON(t, r))
}

func TestAnotherIdentityDoesNotLearnThatASessionExists(t *testing.T) {
	p := simpleProject(t)
	srv, other := p.open(), p.open()
	c := srv.Connect("alice")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	said := func(mallory *Conn, id string) string {
		t.Helper()
		var all []string
		_, nested := mallory.Start(ctx,
			StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", ParentSessionID: &id})
		for _, err := range append(calls(mallory, &id), nested) {
			refused(t, err, session.StateError, "unknown_session")
			e, _ := errors.AsType[*session.Error](err)
			all = append(all, strings.ReplaceAll(err.Error()+toJSON(t, e.Details), id, "ID"))
		}
		return strings.Join(all, "\n")
	}
	for _, connect := range []func(*server, string) *Conn{(*server).Connect, (*server).ConnectStateless} {
		nothing := said(connect(srv, "mallory"), "00000000")
		testkit.Equal(t, said(connect(srv, "mallory"), id), nothing)
		testkit.Equal(t, said(connect(other, "mallory"), id), nothing, "of a session of another server")
	}

	c.Close()
	testkit.Equal(t, said(srv.Connect("mallory"), id), said(srv.Connect("mallory"), "00000000"),
		"of a session that nobody holds")

	s := p.record(id)
	testkit.Equal(t, s.Revision, 0, "the refused calls touched the session: %s", toJSON(t, s))
	testkit.Equal(t, s.CurrentStepID, "one", "the refused calls touched the session: %s", toJSON(t, s))
	testkit.Equal(t, s.Status, machine.Active, "the refused calls touched the session: %s", toJSON(t, s))
}

// Options.Moved is called after each transition that others see, of this process or another one.
func TestMovedIsToldOfEachTransition(t *testing.T) {
	p, moved := simpleProject(t), make(chan struct{}, 100)
	told := func(of string) {
		t.Helper()
		testkit.Until(t, "it is told of "+of, func() bool { return len(moved) > 0 })
		<-moved
	}
	_, c, id := p.begin(func(o *Options) { o.Moved = func() { moved <- struct{}{} } })
	told("a start")
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	told("a step")
	for len(moved) > 0 {
		<-moved
	}
	testkit.Must(t, errOf(p.open().Connect("local").Abort(ctx, AbortArgs{Explanation: "e", SessionID: &id})))
	told("an abort at another server")
}

// What an export says that reviewers and people decided is kept for people to read. A step that is not
// finished is reviewed again, by both.
func TestImportedDecisionsPassNothing(t *testing.T) {
	from, srv, rev, c, id := underJudgement(t, bothStep)
	waits(t, from.finish(c, good))
	testkit.Must(t, srv.ReviewFor(ctx, id, "one", from.question(id, "one").Content,
		machine.Answer{Passed: true, Identity: "ann", Channel: session.ChannelTerminal}))
	child := from.start(c, "alpha", "main").BeginStep.SessionID
	srv.stop()
	p := newProject(t).reviewedJob(bothStep)
	srv = p.reopen(rev)
	all := p.importFrom(from, srv, id, child)
	testkit.Need(t, all[0].Err == nil, "examined %+v, %+v", all[0], all[1])
	testkit.Need(t, all[1].Err == nil, "examined %+v, %+v", all[0], all[1])
	testkit.True(t, all[0].AsNow, "examined %+v, %+v", all[0], all[1])

	i := slices.IndexFunc(all, func(i *export.Import) bool { return i.State.SessionID == id })
	testkit.Equal(t, export.ClaimOf(all[i].State), export.Claim{Reviews: 1, Decisions: 1})
	now, calls := p.record(id), rev.calls()
	one := now.Progress("one")
	testkit.Need(t, now.ImportedAt != nil, "imported as %s", toJSON(t, now))
	testkit.Need(t, one.Asked() == nil, "imported as %s", toJSON(t, now))
	testkit.True(t, one.Newest().Imported, "imported as %s", toJSON(t, now))
	testkit.Equal(t, one.Newest().State, machine.TryPassed, "imported as %s", toJSON(t, now))
	testkit.Equal(t, toJSON(t, p.record(child).ParentSessionID), `"`+id+`"`,
		"the parent of the session that was nested in it")
	waits(t, p.finish(srv.Connect("local"), `{"session_id":"`+id+`","outputs":{"report":"good.md"}}`))
	testkit.Equal(t, rev.calls()-calls, 1, "calls of the reviewer")
	testkit.Same(t, testkit.Get(srv.Inspect(ctx)).Must(t).Findings, nil, "findings")

	again := testkit.Get(srv.Importer().Examine(ctx, testkit.Get(srv.Importer().All()).Must(t))).Must(t)
	testkit.Fails(t, again[0].Err, "in the project already", "examined again")
}

// A session that was removed and is imported again is not taken for what a server still has in memory.
func TestAnImportIsNotTakenForWhatWasRemoved(t *testing.T) {
	p, old := simpleProject(t), newProject(t)
	_, c, id := p.begin()
	old.write(p.export(id)[len(p.root)+1:], string(testkit.Get(os.ReadFile(p.export(id))).Must(t)))
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	other := p.open()
	testkit.Must(t, other.AbortFor(ctx, id, "no"))
	_, _, err := other.Prune(ctx, time.Now().Add(time.Hour), false)
	testkit.Must(t, err)
	p.importFrom(old, other, id)
	testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{SessionID: &id})).Must(t).BeginStep.StepID, "one",
		"the step at the server that had the session")
}

// get_step says where the review of a step stands, and an agent goes on from that alone.
func TestField16_GetStepSaysWhereTheReviewStands(t *testing.T) {
	how := Reviewing{External: true, MaxTries: 3, ReplyWithin: time.Minute, Override: config.OverrideAgent}
	p, _, rev, c, _ := underReview(t, how)
	standing := func() *replies.Standing {
		return testkit.Get(c.Step(ctx, StepArgs{})).Must(t).Members[0].Review
	}
	testkit.Equal(t, standing(), nil, "before the first")
	r, now := p.finish(c, bad), standing()
	testkit.Need(t, now != nil, "after a failed one: %s", toJSON(t, now))
	testkit.Equal(t, now.State, "failed", "after a failed one: %s", toJSON(t, now))
	testkit.Contains(t, *r.Feedback, now.Feedback, "after a failed one: %s", toJSON(t, now))
	testkit.Equal(t, now.TriesLeft, 2, "after a failed one: %s", toJSON(t, now))
	testkit.Equal(t, toJSON(t, now.Outputs), `{"report":"bad.md"}`, "after a failed one: %s", toJSON(t, now))

	how.ReplyWithin = 20 * time.Millisecond
	rev.how.Store(&how)
	rev.set("wait", "")
	p.finish(c, good)
	testkit.Equal(t, toJSON(t, standing()), `{"verdict":"running","outputs":{"report":"good.md"},"tries_left":2}`,
		"while one is running")

	rev.unset("wait")
	p, _, _, c, id := underJudgement(t, humanStep)
	waits(t, p.finish(c, good))
	now = testkit.Get(c.Step(ctx, StepArgs{})).Must(t).Members[0].Review
	testkit.Need(t, now != nil, "while a person is awaited: %s", toJSON(t, now))
	testkit.Equal(t, now.State, "waiting_for_you", "while a person is awaited: %s", toJSON(t, now))
	testkit.True(t, strings.HasPrefix(now.Command, "deepwork sessions review "+id+" one"),
		"while a person is awaited: %s", toJSON(t, now))
	testkit.Equal(t, toJSON(t, now.Outputs), `{"report":"good.md"}`, "while a person is awaited: %s", toJSON(t, now))
}

// A server that serves the last good version of a job that no longer loads says so, with the file and its first fault.
func TestField18_TheLastGoodVersionIsSaid(t *testing.T) {
	p := simpleProject(t)
	c := p.open().Connect("local")
	notice := func() string {
		t.Helper()
		return toJSON(t, p.start(c, "alpha", "main").Notice)
	}
	testkit.Equal(t, notice(), "null", "of a good job")

	file := filepath.Join(p.root, ".deepwork", "jobs", "alpha", "job.yml")
	good := string(testkit.Get(os.ReadFile(file)).Must(t))
	testkit.Write(t, file, strings.Replace(good, "steps:", "stepz:", 1))
	testkit.Contains(t, notice(),
		"job 'alpha' in "+filepath.Dir(file)+
			" does not load any more, so its last good version, 1.0.0, is used until that is corrected or the server "+
			"ends. The first error: job.yml:5:1: stepz: unknown key")
	testkit.Write(t, file, good)
	testkit.Equal(t, strings.Contains(notice(), "last good"), false, "once it is corrected")
}

// What an agent can do at the limit depends on who may override a review.
func TestField18_AdviceAtTheLimit(t *testing.T) {
	for mode, want := range map[config.Override]string{
		config.OverrideAgent: "or ask the user whether to pass quality_review_override_reason.",
		config.OverrideHuman: "or ask the user whether to run `deepwork sessions override ",
		config.OverrideNever: "Change the outputs and call again, or go back with go_to_step.",
	} {
		_, _, _, c, _ := underReview(t,
			Reviewing{External: true, MaxTries: 1, ReplyWithin: time.Minute, Override: mode})
		for range 2 { // the second time without a review
			refused(t, refusal(t, c, bad), session.ToolError, "quality_gate_failed", want)
		}
	}
}

// An agent is told which try failed, for which files and by which criteria; what the step is called, what it does and
// where it is in the workflow; what its branch is; and that another workflow began than the one that it named.
func TestField19_RepliesSayWhatTheyAreAbout(t *testing.T) {
	p, _, _, c, _ := underReview(t)
	r := p.start(c, "alpha", "mian")
	testkit.Contains(t, toJSON(t, r.Notice), "Job 'alpha' has no workflow 'mian': its only one, 'main', was started.")
	testkit.Equal(t, r.BeginStep.BranchStatus, "suggested, and not in git")

	at := func(info *replies.StepInfo, want ...string) {
		t.Helper()
		testkit.Same(t, []string{info.Name, info.Description, info.Position}, want, "of the step")
	}
	at(r.BeginStep, "Step one", "Does one", "1 of 2")
	for i, file := range []string{"bad.md", "worse.md"} {
		r := p.finish(c, `{"outputs":{"report":"`+file+`"}}`)
		testkit.Equal(t, *r.Feedback,
			fmt.Sprintf("Try %d of 3. %s: %s was read\n- Not met: Is it good?\nCorrect that, then call finished_step "+
				"again.", i+1, file, file))
	}
	at(testkit.Get(c.Step(ctx, StepArgs{})).Must(t).BeginStep, "Step one", "Does one", "1 of 2")
	at(p.finish(c, good).BeginStep, "Step two", "Does two", "2 of 2")
}

// third is a third of the instructions that a reply can have, and a little more.
var third = strings.Repeat("Read this.\n", definition.MaxEntryBytes/3/11)

// A group whose instructions are more than a reply can have does not begin; when the files are shorter the
// same call goes on. One that began and has too much text by now is read as it began, and get_step says why.
func TestAGroupWithTooMuchText(t *testing.T) {
	p := newProject(t).alpha("[first, [a, b, c]]", testStep{id: "first"}, testStep{id: "a"}, testStep{id: "b"},
		testStep{id: "c"})
	for _, id := range []string{"a", "b", "c"} {
		p.write(".deepwork/jobs/alpha/steps/"+id+".md", third)
	}
	_, c, _ := p.begin()
	refused(t, refusal(t, c, `{"outputs":{}}`), session.ToolError, "instructions_too_large", "a, b, c",
		"nothing has moved", fmt.Sprint(definition.MaxEntryBytes))
	testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{})).Must(t).BeginStep.StepID, "first", "the step")
	p.write(".deepwork/jobs/alpha/steps/c.md", "Little.")
	began := p.finish(c, `{"outputs":{}}`)
	testkit.True(t, len(began.ConcurrentSteps) == 2 &&
		strings.HasPrefix(began.BeginStep.Instructions, third[:len(third)-1]), "the group did not begin")
	p.write(".deepwork/jobs/alpha/steps/c.md", third)
	r := testkit.Get(c.Step(ctx, StepArgs{})).Must(t)
	testkit.Equal(t, r.ConcurrentSteps[1].Instructions, "Little.")
	testkit.ContainsAll(t, toJSON(t, r.Notice),
		[]string{"those the step began with", fmt.Sprint(definition.MaxEntryBytes)})
	testkit.True(t, !strings.Contains(*r.Notice, "nil"), "the notice is %s", *r.Notice)
}

// A person sees what was handed in, what has changed since they failed it, and nothing that was not handed in.
func TestWhatAPersonJudges(t *testing.T) {
	p := newProject(t).alpha("[one, two]", testStep{
		id:      "one",
		outputs: "{report: {type: files, description: R, required: true}}",
		reviews: humanStep,
	}, testStep{id: "two"})
	srv, c, id := p.begin()
	shown := func() *HandIn {
		t.Helper()
		return testkit.Get(srv.HandIn(ctx, id, "one")).Must(t)
	}
	handIn := func(names string) map[string]HandedFile {
		t.Helper()
		waits(t, p.finish(c, `{"outputs":{"report":["`+strings.ReplaceAll(names, " ", `","`)+`"]}}`))
		all := map[string]HandedFile{}
		for _, f := range shown().Files {
			testkit.Equal(t, f.Full, filepath.Join(p.root, f.Path), "its path")
			all[f.Path] = f
		}
		return all
	}
	answer := func(passed bool) {
		t.Helper()
		testkit.Must(t, p.atTerminal(id, "one", p.question(id, "one").Content, passed, "Again"))
	}
	testkit.WriteAll(t, p.root, map[string]string{
		"a.md":      "one\ntwo\n",
		"same.json": "{}",
		"b.png":     "\x89PNG\x0d\x0a\x1a\x0a0000",
		"c.bin":     "\x00",
		"d.html":    "<script>x</script>",
		"big.txt":   strings.Repeat("x", MaxHandedText+1),
	})

	testkit.Must(t, os.Truncate(filepath.Join(p.root, "big.txt"), 100<<20))
	first := handIn("a.md same.json b.png c.bin d.html big.txt")
	for path, want := range map[string]struct {
		kind FileKind
		note string
	}{
		"a.md": {MarkdownFile, ""}, "same.json": {JSONFile, ""}, "b.png": {ImageFile, ""}, "d.html": {CodeFile, ""},
		"c.bin": {BinaryFile, "not text"}, "big.txt": {BinaryFile, "too large"},
	} {
		f := first[path]
		testkit.Equal(t, f.Kind, want.kind, "%s: %s, %q, %d bytes of text, want %s %q", path, f.Kind, f.Note,
			len(f.Text), want.kind, want.note)
		testkit.Equal(t, (f.Note == ""), (want.note == ""), "%s: %s, %q, %d bytes of text, want %s %q", path, f.Kind,
			f.Note, len(f.Text), want.kind, want.note)
		testkit.Contains(t, f.Note, want.note, "%s: %s, %q, %d bytes of text, want %s %q", path, f.Kind, f.Note,
			len(f.Text), want.kind, want.note)
		testkit.Equal(t, (f.Text != ""), (want.note == "" && f.Kind != ImageFile),
			"%s: %s, %q, %d bytes of text, want %s %q", path, f.Kind, f.Note, len(f.Text), want.kind, want.note)
		testkit.Equal(t, f.Diff, "", "%s: %s, %q, %d bytes of text, want %s %q", path, f.Kind, f.Note, len(f.Text),
			want.kind, want.note)
	}
	hidden := func(note string) {
		t.Helper()
		f := shown().Files[1]
		testkit.True(t, f.Text == "" && strings.Contains(f.Note, note), "%+v, want %s", f, note)
	}
	same := filepath.Join(p.root, "same.json")
	p.write("same.json", "[]")
	hidden("changed after it was handed in")
	testkit.Must(t, os.Remove(same))
	testkit.Must(t, os.Symlink("/etc/passwd", same))
	hidden("outside the project")
	testkit.Must(t, os.Remove(same))
	p.write("same.json", "{}")
	answer(false)
	n := len(testkit.Get(srv.Records().Judged(ctx, id, "one")).Must(t))
	testkit.True(t, n != 0 && n <= 3000, "%d bytes are kept", n)
	testkit.WriteAll(t, p.root, map[string]string{"a.md": "one\nthree\n", "c.bin": "text now", "new.md": "new"})

	second := handIn("a.md same.json c.bin new.md")
	testkit.Equal(t, second["a.md"].Diff, "--- last review\n+++ now\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n", "the diff")
	for path, want := range map[string]string{"same.json": "as it was", "c.bin": "not known", "new.md": "is new"} {
		f := second[path]
		testkit.True(t, f.Diff == "" && strings.Contains(f.Note, want), "%s: %q, %q", path, f.Note, f.Diff)
	}
	testkit.Equal(t, strings.Join(shown().Gone, " "), "b.png d.html big.txt", "what is gone")

	brief := shown().Brief()
	testkit.True(t, strings.Contains(brief, "| -two\n    | +three\n") && !strings.Contains(brief, " one\nthree"),
		"in short: %s", brief)

	answer(true)
	says(t, p.finish(c, `{"outputs":{"report":["a.md","same.json","c.bin","new.md"]}}`), replies.NextStep)
}

// The changes are shown against the last hand-in that a person failed. If no person failed one, they are
// shown against the last hand-in, beside the whole content. What is kept for that is dropped when the session
// ends.
func TestWhatAHandInIsComparedWith(t *testing.T) {
	p, srv, _, c, id := underJudgement(t, bothStep, Reviewing{External: true, MaxTries: 9, ReplyWithin: time.Minute})
	handIn := func(text string) *replies.Finish {
		t.Helper()
		p.write("r.md", text+"\n")
		return p.finish(c, `{"outputs":{"report":"r.md"}}`)
	}
	shows := func(of, was, text string) {
		t.Helper()
		waits(t, handIn(text))
		h := testkit.Get(srv.HandIn(ctx, id, "one")).Must(t)
		testkit.Equal(t, h.Since(), "last "+of, text)
		testkit.Equal(t, h.Files[0].Diff,
			fmt.Sprintf("--- last %s\n+++ now\n@@ -1,1 +1,1 @@\n-%s\n+%s\n", of, was, text), text)
		testkit.Equal(t, strings.Contains(h.Brief(), "| "+text), !h.Judged, "the content, in short")
	}
	answer := func(passed bool) {
		t.Helper()
		testkit.Must(t, p.atTerminal(id, "one", p.question(id, "one").Content, passed, "Again"))
	}
	handIn("CONTENT OF bad.md")
	shows("hand-in", "CONTENT OF bad.md", "second")
	shows("hand-in", "second", "third")
	answer(false)
	handIn("third")
	handIn("CONTENT OF worse.md")
	shows("review", "third", "fifth")
	answer(true)
	says(t, handIn("fifth"), replies.NextStep)
	testkit.Must(t, errOf(c.GoTo(ctx, GoToArgs{StepID: "one"})))
	shows("hand-in", "fifth", "sixth")
	testkit.Must(t, srv.AbortFor(ctx, id, "enough"))
	testkit.Equal(t, testkit.Get(srv.Records().Judged(ctx, id, "one")).Must(t), "",
		"what is kept of a session that has ended")
}

func TestAHandInInShortIsBounded(t *testing.T) {
	h := &HandIn{Files: slices.Repeat([]HandedFile{{
		FileHash: judging.FileHash{Path: strings.Repeat("p", 200)},
		Text:     strings.Repeat(strings.Repeat("x", 3000)+"\n", 50),
	}}, 1000)}
	n := len(h.Brief())
	testkit.True(t, n <= 2*MaxBrief+10, "%d bytes", n)

	whole := (&HandIn{Files: []HandedFile{{Text: strings.Repeat("x\n", MaxBriefLines)}}}).Brief()
	testkit.True(t, strings.Count(whole, "| x\n") == MaxBriefLines && !strings.Contains(whole, "…"),
		"a file that is shown whole: %s", whole)
}

// The criteria are those of the job as it was when the outputs were handed in, though the session began with others.
func TestAPersonSeesTheCriteriaOfTheQuestion(t *testing.T) {
	p, _, _, c, id := underJudgement(t, humanStep)
	p.reviewedJob(strings.Replace(humanStep, "Would you sign it?", "Would you publish it?", 1))
	waits(t, p.finish(c, good))
	testkit.Contains(t, testkit.Get(p.command(Reviewing{}).HandIn(ctx, id, "one")).Must(t).Brief(),
		"Would you publish it?")
}

// A person who edits what was handed in judges it as it is then, unless more than a person judges it.
func TestAPersonHandsInWhatTheyEdited(t *testing.T) {
	for name, reviews := range map[string]string{"a person alone": humanStep, "a reviewer, too": bothStep} {
		t.Run(name, func(t *testing.T) {
			p, _, rev, c, id := underJudgement(t, reviews)
			waits(t, p.finish(c, good))
			before := p.question(id, "one").Content
			p.write("good.md", "good, and edited")
			terminal := p.command(Reviewing{Override: config.OverrideHuman})
			err := terminal.HandInAgain(ctx, id, "one")
			if reviews == bothStep {
				testkit.Equal(t, session.CodeOf(err), codes.OutputsChanged,
					"for a person, a sentence that names a tool is left out: %v", err)
				testkit.Equal(t, rev.calls(), 1, "for a person, a sentence that names a tool is left out: %v", err)
				testkit.True(t, !strings.Contains(err.Error(), "finished_step"),
					"for a person, a sentence that names a tool is left out: %v", err)
				return
			}

			testkit.Must(t, err)
			h := testkit.Get(terminal.HandIn(ctx, id, "one")).Must(t)
			testkit.True(t, h.Digest != before && h.Files[0].Text == "good, and edited", "%+v", h)
			testkit.Equal(t, len(testkit.Get(terminal.ToReview(ctx)).Must(t)), 1, "what waits")
			testkit.Must(t, terminal.ReviewFor(ctx, id, "one", h.Digest,
				machine.Answer{Passed: true, Identity: "local", Channel: session.ChannelTerminal}))
			says(t, p.finish(c, good), replies.NextStep)
		})
	}
}
