package workflow

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

func TestASessionIsResumedAfterACrashWithItsAncestors(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.simple("alpha")
	p.simple("beta")
	p.write("r.md", "x")
	srv := p.open()
	c := srv.Connect("local")
	outer := p.start(c, "alpha", "main").BeginStep.SessionID
	inner := p.start(c, "beta", "main").BeginStep.SessionID
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	srv.stop()

	c = p.open().Connect("local")
	refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"}}`))).Err(), session.StateError, "no_active_session", "No active workflow session", inner, outer, "beta/main", "at step 'two'")
	step := testkit.Get(c.Step(ctx, StepArgs{SessionID: &inner})).Must(t)
	if step.BeginStep.StepID != "two" || step.Goal != "a goal" || toJSON(t, step.CompletedSteps) != `[{"step_id":"one","outputs":{"report":"r.md"}}]` || len(step.Stack) != 2 || step.Stack[0].SessionID != outer {
		t.Errorf("get_step %s", toJSON(t, step))
	}
	r := p.finish(c, `{"outputs":{"report":"r.md"}}`)
	testkit.True(t, r.Status == machine.WorkflowComplete && *r.ResumedWorkflow == "alpha/main" && len(r.Stack) == 1, "reply %s", toJSON(t, r))
}

// Any server of the project serves any session at any time; one that somebody works on is not recommended.
func TestAnyServerServesAnySession(t *testing.T) {
	t.Parallel()
	p := simpleProject(t)
	first, second := p.open(), p.open()
	c1, c2 := first.Connect("local"), second.Connect("local")
	id := p.start(c1, "alpha", "main").BeginStep.SessionID
	_, err := c2.Abort(ctx, AbortArgs{Explanation: "x"})
	refused(t, err, session.StateError, "no_active_session")
	testkit.True(t, !strings.Contains(err.Error(), id), "a session in use is listed: %v", err)
	testkit.Equal(t, testkit.Get(c2.Step(ctx, StepArgs{SessionID: &id})).Must(t).BeginStep.StepID, "one", "at the second server")
	p.finish(c1, `{"outputs":{"report":"r.md"}}`)
	testkit.Equal(t, p.finish(c2, `{"outputs":{"report":"r.md"}}`).Status, machine.WorkflowComplete, "at the second server")
	refused(t, testkit.Get(c1.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"}}`))).Err(), session.StateError, "no_active_session")
}

// Calls through several servers take effect one after the other.
func TestServersRaceForOneSession(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	var list []testStep
	var ids []string
	for i := range 40 {
		ids = append(ids, fmt.Sprintf("s%d", i))
		list = append(list, testStep{id: ids[i]})
	}
	p.job("alpha", list, map[string]string{"main": "[" + strings.Join(ids, ", ") + "]"})
	id := p.start(p.open().Connect("local"), "alpha", "main").BeginStep.SessionID
	var wg sync.WaitGroup
	var finished atomic.Int64
	for range 4 {
		c := p.open().Connect("local")
		wg.Go(func() {
			for _, step := range ids {
				r, err := c.Finish(ctx, FinishArgs{Outputs: []byte(`{}`), SessionID: &id, StepID: &step})
				switch {
				case session.CodeOf(err) == "step_finished", session.CodeOf(err) == "session_ended":
				case err != nil:
					t.Errorf("step %s: %v", step, err)
				case r.Status == machine.WorkflowComplete:
					finished.Add(1)
				}
			}
		})
	}
	wg.Wait()
	s := p.record(id)
	if s.Status != machine.Completed || s.Revision != int64(len(ids)) || finished.Load() == 0 {
		t.Errorf("it is %s at revision %d, want completed at %d; %d replies say so", s.Status, s.Revision, len(ids), finished.Load())
	}
}

func TestStackOfOneConnectionIsNotTheOthers(t *testing.T) {
	p := simpleProject(t)
	srv := p.open()
	c1, c2 := srv.Connect("local"), srv.Connect("local")
	id := p.start(c1, "alpha", "main").BeginStep.SessionID
	if len(c2.stackOf(ctx, "")) != 0 {
		t.Errorf("stack %v", c2.stackOf(ctx, ""))
	}
	refused(t, testkit.Get(c2.Finish(ctx, FinishArgs{Outputs: outputs("report", "r.md")})).Err(), session.StateError, "no_active_session")
	// By its id, with the same identity; what one does the other sees.
	p.finish(c2, `{"outputs":{"report":"r.md"},"session_id":"`+id+`"}`)
	testkit.Equal(t, c1.stackOf(ctx, "")[0].Step, "two", "stack")
	p.finish(c2, `{"outputs":{"report":"r.md"}}`)
	testkit.Equal(t, len(c1.stackOf(ctx, "")), 0, "stack")
	// Another identity does not learn that there is such a session.
	id = p.start(c1, "alpha", "main").BeginStep.SessionID
	refused(t, testkit.Get(srv.Connect("mallory").Abort(ctx, AbortArgs{Explanation: "x", SessionID: &id})).Err(), session.StateError, "unknown_session", "not found")
}

func TestBranchesSideBySideNeedASessionID(t *testing.T) {
	t.Parallel()
	p := simpleProject(t)
	c := p.open().Connect("local")
	root := p.start(c, "alpha", "main").BeginStep.SessionID
	var kids []string
	for range 2 {
		r := testkit.Get(c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", ParentSessionID: &root})).Must(t)
		kids = append(kids, r.BeginStep.SessionID)
	}
	refused(t, testkit.Get(c.Finish(ctx, FinishArgs{Outputs: outputs("report", "r.md")})).Err(), session.StateError, "session_id_needed", kids[0], kids[1])
	r, err := c.Abort(ctx, AbortArgs{Explanation: "x", SessionID: &kids[0]})
	testkit.Need(t, err == nil && *r.ResumedWorkflow == "alpha/main", "%s, %v", toJSON(t, r), err)
	testkit.Equal(t, p.finish(c, `{"outputs":{"report":"r.md"}}`).BeginStep.SessionID, kids[1], "reply")
	refused(t, testkit.Get(c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", ParentSessionID: &kids[0]})).Err(), session.StateError, "session_ended", kids[0])
}

// An export is for people: what is done to it changes nothing, and the session's next call writes it again.
func TestWhatIsDoneToAnExportChangesNothing(t *testing.T) {
	p, srv, _, id := begun(t)
	path := filepath.Join(p.state().Tmp(), "session_"+id+".json")
	before := testkit.Get(os.ReadFile(path)).Must(t)
	for name, spoil := range map[string]func(){
		"cut off": func() { testkit.Must(t, os.WriteFile(path, before[:len(before)/2], 0o600)) },
		"edited": func() {
			testkit.Must(t, os.WriteFile(path, bytes.Replace(before, []byte("\"one\""), []byte("\"two\""), -1), 0o600))
		},
		"of a revision that never was": func() {
			testkit.Must(t, os.WriteFile(path, bytes.Replace(before, []byte("\"revision\": 0"), []byte("\"revision\": 1000"), 1), 0o600))
		},
		"removed": func() { testkit.Must(t, os.Remove(path)) },
		"a link": func() {
			testkit.Must(t, os.Remove(path))
			testkit.Must(t, os.Symlink(filepath.Join(t.TempDir(), "elsewhere"), path))
		},
	} {
		spoil()
		srv.stop()
		srv = p.open()
		testkit.Equal(t, testkit.Get(srv.Connect("local").Step(ctx, StepArgs{SessionID: &id})).Must(t).BeginStep.StepID, "one", "%s", name)
		now := testkit.Get(os.ReadFile(path)).Must(t)
		testkit.True(t, name == "edited" || name == "cut off" || bytes.Equal(now, before), "%s: the export is %q", name, now)
	}
	p.finish(srv.Connect("local"), `{"outputs":{"report":"r.md"},"session_id":"`+id+`"}`)
	s := p.record(id)
	testkit.True(t, s.CurrentStepID == "two" && s.Revision == 1, "record %s", toJSON(t, s))
	testkit.Equal(t, testkit.Get(os.Stat(path)).Must(t).Mode().Perm(), 0o600)
}

// get_workflows lists the caller's own sessions that it can resume, and start_workflow names those of
// the same workflow.
func TestResumableSessions(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.simple("alpha")
	p.simple("beta")
	p.write("r.md", "x")
	srv := p.open()
	before := srv.Connect("local")
	goal := strings.Repeat("long ", 100)
	r, err := before.Start(ctx, StartArgs{Goal: goal, JobName: "alpha", WorkflowName: "main"})
	testkit.Need(t, err == nil && r.Notice == nil, "%s, %v", toJSON(t, r), err)
	alpha := r.BeginStep.SessionID
	p.finish(before, `{"outputs":{"report":"r.md"}}`)
	beta := p.start(before, "beta", "main").BeginStep.SessionID
	ended := p.start(before, "beta", "main")
	if n := ended.Notice; n == nil || !strings.Contains(*n, "beta/main is already in progress in session '"+beta+"' (on the stack, at step 'one')") {
		t.Errorf("a workflow started twice on a stack: %s", toJSON(t, ended))
	}
	testkit.Must(t, errOf(before.Abort(ctx, AbortArgs{Explanation: "x"})))
	list := func(c *Conn) []machine.ResumableSession {
		t.Helper()
		r := testkit.Get(c.GetWorkflows(ctx)).Must(t)
		return r.Resumable
	}
	testkit.Equal(t, len(list(before)), 0, "those on the stack")
	testkit.Equal(t, len(list(srv.Connect("local"))), 0, "those that another connection works on")
	before.Close()
	for range 2 { // the second server reads it all again
		testkit.Equal(t, len(list(srv.Connect("other"))), 0, "another's")
		got := list(srv.Connect("local"))
		if len(got) != 2 || got[0].SessionID != beta || got[1].SessionID != alpha || got[1].Workflow != "alpha/main" || got[1].Step != "two" ||
			len([]rune(got[1].Goal)) > 200 || !strings.HasPrefix(goal, got[1].Goal[:150]) || !strings.HasSuffix(got[1].Age, "s") {
			t.Errorf("resumable: %s", toJSON(t, got))
		}
		srv.stop()
		srv = p.open()
	}
	c := srv.Connect("local")
	again := p.start(c, "alpha", "main")
	if n := again.Notice; n == nil || !strings.Contains(*n, "alpha/main is already in progress in session '"+alpha+"' (at step 'two', last moved ") {
		t.Errorf("a workflow that is resumable: %s", toJSON(t, again))
	}
	if r := p.start(srv.Connect("other"), "alpha", "main"); r.Notice != nil {
		t.Errorf("another caller is told: %s", *r.Notice)
	}
	unknown := "00000bad"
	refused(t, testkit.Get(c.Step(ctx, StepArgs{SessionID: &unknown})).Err(), session.StateError, "unknown_session", "get_workflows lists the sessions")
}

// An execution is told of to its own identity, on whatever server, also after
// the end; nothing is taken up by that.
func TestExecution(t *testing.T) {
	t.Parallel()
	p := simpleProject(t)
	srv, other := p.open(), p.open()
	c := srv.Connect("ann")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	look := func(s *server, done int, status machine.SessionStatus) *Execution {
		t.Helper()
		x := testkit.Get(s.Execution(ctx, "ann", id)).Must(t)
		testkit.True(t, x.SessionID == id && x.JobName == "alpha" && x.WorkflowName == "main" && x.Status == status && x.Done == done && x.Total == 2, "got %s", toJSON(t, x))
		return x
	}
	look(srv, 0, machine.Active)
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	for _, s := range []*server{srv, other} {
		testkit.Equal(t, look(s, 1, machine.Active).StepID, "two")
	}
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	testkit.Equal(t, toJSON(t, look(other, 2, machine.Completed).Outputs), `{"report":"r.md"}`, "outputs")
	// What was done is known when the job, and what was kept of it, are gone.
	testkit.Must(t, os.RemoveAll(filepath.Join(p.root, ".deepwork", "jobs", "alpha")))
	testkit.Equal(t, toJSON(t, look(p.open(), 2, machine.Completed).Outputs), `{"report":"r.md"}`, "outputs")

	refused(t, testkit.Get(srv.Execution(ctx, "mallory", id)).Err(), session.StateError, "unknown_session")
	refused(t, testkit.Get(srv.Execution(ctx, "ann", "00000000")).Err(), session.StateError, "unknown_session")
	refused(t, testkit.Get(srv.Execution(ctx, "ann", "../../etc")).Err(), session.ToolError, "bad_session_id")
}

// A root session is nobody's child, and what is below it on the stack stays its
// own.
func TestARootSessionIsNobodysChild(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.simple("alpha")
	c := p.open().Connect("ann")
	first := p.start(c, "alpha", "main").BeginStep.SessionID
	r := testkit.Get(c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", Root: true})).Must(t)
	s := p.record(r.BeginStep.SessionID)
	testkit.True(t, s.ParentSessionID == nil, "it has a parent")
	// It waits for others: a call that names no session is about the first one.
	testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{})).Must(t).BeginStep.SessionID, first, "got")
	if found, _, err := c.engine.resumable(ctx, "ann", keptListed, false); err != nil || len(found) != 1 || found[0].ID != r.BeginStep.SessionID {
		t.Errorf("resumable: %v %v", found, err)
	}
	reply, err := c.Abort(ctx, AbortArgs{Explanation: "e", SessionID: &r.BeginStep.SessionID})
	testkit.True(t, err == nil && reply.ResumedWorkflow == nil && len(reply.Stack) == 1, "got %s %v", toJSON(t, reply), err)
}

func TestAStackAThousandDeep(t *testing.T) {
	t.Parallel()
	deep := 100
	if os.Getenv("DEEPWORK_FIGURES") == "1" {
		deep = 1000
	}
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	srv := p.open()
	c := srv.Connect("local")
	var ids []string
	for range deep {
		ids = append(ids, p.start(c, "alpha", "main").BeginStep.SessionID)
	}
	for _, i := range []int{0, deep / 2, deep - 1} {
		if r := p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+ids[i]+`"}`); r.Stack[i].Step != "two" || len(r.Stack) != deep {
			t.Errorf("at %d: step %s, depth %d", i, r.Stack[i].Step, len(r.Stack))
		}
	}
	r, err := c.Abort(ctx, AbortArgs{Explanation: "x", SessionID: &ids[deep/2]})
	testkit.Need(t, err == nil && len(r.Stack) == deep-1 && *r.ResumedStep == "one", "abort in the middle: depth %d, %v", len(r.Stack), err)
	srv.stop()
	c = p.open().Connect("local")
	step, err := c.Step(ctx, StepArgs{SessionID: &ids[deep-1]})
	testkit.Need(t, err == nil && len(step.Stack) == deep-1 && step.Stack[0].SessionID == ids[0] && step.Stack[deep-2].SessionID == ids[deep-1], "resumed: depth %d, %v", len(step.Stack), err)
	// They are given up from the top; each of these calls reads all that are below, so not all of them are.
	const given = 20
	for i := range given {
		if _, err := c.Abort(ctx, AbortArgs{Explanation: "x"}); err != nil {
			t.Fatalf("abort %d from the top: %v", i, err)
		}
	}
	testkit.Equal(t, len(c.stackOf(ctx, "")), deep-1-given, "depth")
}

// The figures of transitions and lists, each beside a reference of the same run. Run them with
//
//	go test -run xxx -bench . ./session/workflow

// BenchmarkResumable is get_workflows in a project with 20,000 sessions, active ones, and ended ones that are
// newer than the active ones. Wanted: under 10 ms.
func BenchmarkResumable(b *testing.B) {
	for _, ended := range []bool{false, true} {
		b.Run(fmt.Sprintf("ended=%v", ended), func(b *testing.B) {
			p := newProject(b)
			p.simple("alpha")
			srv := p.open()
			c := srv.Connect("local")
			id := p.start(c, "alpha", "main").BeginStep.SessionID
			c.Close()
			s := p.record(id)
			for n := range 20_000 {
				next := *s
				next.SessionID = fmt.Sprintf("%08x", n)
				if ended && n >= keptListed {
					next.Status, next.CompletedAt = machine.Completed, &s.StartedAt
				}
				testkit.Must(b, testkit.Get(srv.records.Write(ctx, nil, store.Session{Root: p.root}, &next, &store.SessionWrite{})).Err())
			}
			c = srv.Connect("local")
			for b.Loop() {
				if r, err := c.GetWorkflows(ctx); err != nil || len(r.Resumable) != keptListed {
					b.Fatalf("%s, %v", toJSON(b, r), err)
				}
			}
		})
	}
}
