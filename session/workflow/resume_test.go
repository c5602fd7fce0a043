package workflow

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

func TestASessionIsResumedAfterACrashWithItsAncestors(t *testing.T) {
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
	_, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"}}`))
	refused(t, err, session.StateError, "no_active_session", "No active workflow session", inner, outer, "beta/main", "at step 'two'")
	step, err := c.Step(ctx, StepArgs{SessionID: &inner})
	testkit.Must(t, err)
	if step.BeginStep.StepID != "two" || step.Goal != "a goal" || toJSON(t, step.CompletedSteps) != `[{"step_id":"one","outputs":{"report":"r.md"}}]` || len(step.Stack) != 2 || step.Stack[0].SessionID != outer {
		t.Errorf("get_step %s", toJSON(t, step))
	}
	r := p.finish(c, `{"outputs":{"report":"r.md"}}`)
	if r.Status != machine.WorkflowComplete || *r.ResumedWorkflow != "alpha/main" || len(r.Stack) != 1 {
		t.Errorf("reply %s", toJSON(t, r))
	}
}

func TestASessionOfALivingServerIsNotTaken(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	first, second := p.open(), p.open()
	c1, c2 := first.Connect("local"), second.Connect("local")
	id := p.start(c1, "alpha", "main").BeginStep.SessionID
	_, err := c2.Step(ctx, StepArgs{SessionID: &id})
	refused(t, err, session.StateError, "session_owned", "Waiting: Session", id, "pid")
	if e, _ := errors.AsType[*session.Error](err); e.Waiting() == nil || e.Waiting().Code != "session_owned" {
		t.Errorf("session_owned: waiting is %v", e.Waiting())
	}
	_, err = c2.Abort(ctx, AbortArgs{Explanation: "x"})
	refused(t, err, session.StateError, "no_active_session")
	if strings.Contains(err.Error(), id) {
		t.Errorf("a session in use is listed: %v", err)
	}
	a, err := OpenArchive(p.state(), p.stores(), nil)
	testkit.Must(t, err)
	defer a.Close()
	refused(t, a.Abort(ctx, id, "x", silentOwner{}), session.StateError, "session_owned")

	first.stop()
	if _, err := c2.Step(ctx, StepArgs{SessionID: &id}); err != nil {
		t.Errorf("after its server ended: %v", err)
	}
	if s := p.record(id); s.Owner != second.records.Server() {
		t.Errorf("owner %s", s.Owner)
	}
}

func TestTwoServersRaceForAnOrphan(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	srv := p.open()
	id := p.start(srv.Connect("local"), "alpha", "main").BeginStep.SessionID
	srv.stop()
	var wg sync.WaitGroup
	errs := make([]error, 6)
	for i := range errs {
		c := p.open().Connect("local")
		wg.Go(func() { _, errs[i] = c.Step(ctx, StepArgs{SessionID: &id}) })
	}
	wg.Wait()
	got := 0
	for _, err := range errs {
		if err == nil {
			got++
			continue
		}
		refused(t, err, session.StateError, "session_owned")
	}
	if got != 1 {
		t.Errorf("%d servers have the session", got)
	}
}

func TestStackOfOneConnectionIsNotTheOthers(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	srv := p.open()
	c1, c2 := srv.Connect("local"), srv.Connect("local")
	id := p.start(c1, "alpha", "main").BeginStep.SessionID
	if len(c2.Stack()) != 0 {
		t.Errorf("stack %v", c2.Stack())
	}
	_, err := c2.Finish(ctx, FinishArgs{Outputs: outputs("report", "r.md")})
	refused(t, err, session.StateError, "no_active_session", id, "in use on another connection")
	// By its id, with the same identity; what one does the other sees.
	p.finish(c2, `{"outputs":{"report":"r.md"},"session_id":"`+id+`"}`)
	if s := c1.Stack(); s[0].Step != "two" {
		t.Errorf("stack %v", s)
	}
	p.finish(c2, `{"outputs":{"report":"r.md"}}`)
	if s := c1.Stack(); len(s) != 0 {
		t.Errorf("stack %v", s)
	}
	// Another identity does not learn that there is such a session.
	id = p.start(c1, "alpha", "main").BeginStep.SessionID
	_, err = srv.Connect("mallory").Abort(ctx, AbortArgs{Explanation: "x", SessionID: &id})
	refused(t, err, session.StateError, "unknown_session", "not found")
}

func TestBranchesSideBySideNeedASessionID(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	c := p.open().Connect("local")
	root := p.start(c, "alpha", "main").BeginStep.SessionID
	var kids []string
	for range 2 {
		r, err := c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", ParentSessionID: &root})
		testkit.Must(t, err)
		kids = append(kids, r.BeginStep.SessionID)
	}
	_, err := c.Finish(ctx, FinishArgs{Outputs: outputs("report", "r.md")})
	refused(t, err, session.StateError, "session_id_needed", kids[0], kids[1])
	r, err := c.Abort(ctx, AbortArgs{Explanation: "x", SessionID: &kids[0]})
	if err != nil || *r.ResumedWorkflow != "alpha/main" {
		t.Fatalf("%s, %v", toJSON(t, r), err)
	}
	if r := p.finish(c, `{"outputs":{"report":"r.md"}}`); r.BeginStep.SessionID != kids[1] {
		t.Errorf("reply %s", toJSON(t, r))
	}
	_, err = c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", ParentSessionID: &kids[0]})
	refused(t, err, session.StateError, "session_ended", kids[0])
}

func TestAStackAThousandDeep(t *testing.T) {
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
	if err != nil || len(r.Stack) != deep-1 || *r.ResumedStep != "one" {
		t.Fatalf("abort in the middle: depth %d, %v", len(r.Stack), err)
	}
	srv.stop()
	c = p.open().Connect("local")
	step, err := c.Step(ctx, StepArgs{SessionID: &ids[deep-1]})
	if err != nil || len(step.Stack) != deep-1 || step.Stack[0].SessionID != ids[0] || step.Stack[deep-2].SessionID != ids[deep-1] {
		t.Fatalf("resumed: depth %d, %v", len(step.Stack), err)
	}
	for i := deep - 1; i >= 0; i-- {
		if i != deep/2 {
			if _, err := c.Abort(ctx, AbortArgs{Explanation: "x"}); err != nil {
				t.Fatalf("abort of %d: %v", i, err)
			}
		}
	}
	if len(c.Stack()) != 0 {
		t.Errorf("depth %d", len(c.Stack()))
	}
}

func TestADamagedRecordIsSetAsideAndOthersGoOn(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	srv := p.open()
	c := srv.Connect("local")
	bad := p.start(c, "alpha", "main").BeginStep.SessionID
	good := p.start(c, "alpha", "main").BeginStep.SessionID
	srv.stop()
	path := filepath.Join(p.state().Tmp(), "session_"+bad+".json")
	data, err := os.ReadFile(path)
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(path, data[:len(data)/2], 0o600))
	c = p.open().Connect("local")
	_, err = c.Step(ctx, StepArgs{SessionID: &bad})
	refused(t, err, session.StateError, "session_damaged", bad, "damaged_session_"+bad)
	if r := p.finish(c, fmt.Sprintf(`{"outputs":{"report":"r.md"},"session_id":%q}`, good)); r.BeginStep.StepID != "two" {
		t.Errorf("reply %s", toJSON(t, r))
	}
}

func TestANewerFormatIsRefusedAndUntouched(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	srv := p.open()
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	s := p.record(id)
	s.FormatVersion = machine.FormatVersion + 1
	testkit.Must(t, srv.records.Save(s))
	srv.stop()
	path := filepath.Join(p.state().Tmp(), "session_"+id+".json")
	before, _ := os.ReadFile(path)
	_, err := p.open().Connect("local").Step(ctx, StepArgs{SessionID: &id})
	refused(t, err, session.StateError, "session_too_new", "newer")
	if after, _ := os.ReadFile(path); string(after) != string(before) {
		t.Error("the file was changed")
	}
}

// get_workflows lists the caller's own sessions that it can resume, and start_workflow names those of
// the same workflow.
func TestResumableSessions(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.simple("beta")
	p.write("r.md", "x")
	srv := p.open()
	before := srv.Connect("local")
	goal := strings.Repeat("long ", 100)
	r, err := before.Start(ctx, StartArgs{Goal: goal, JobName: "alpha", WorkflowName: "main"})
	if err != nil || r.Notice != nil {
		t.Fatalf("%s, %v", toJSON(t, r), err)
	}
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
		r, err := c.GetWorkflows(ctx)
		testkit.Must(t, err)
		return r.Resumable
	}
	if got := list(before); len(got) != 0 {
		t.Errorf("those on the stack: %s", toJSON(t, got))
	}
	if got := list(srv.Connect("local")); len(got) != 0 {
		t.Errorf("those that another connection works on: %s", toJSON(t, got))
	}
	before.Close()
	for range 2 { // the second server reads it all again
		if got := list(srv.Connect("other")); len(got) != 0 {
			t.Errorf("another's: %s", toJSON(t, got))
		}
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
	// A file that somebody else wrote is nobody's session.
	path := func(id string) string { return filepath.Join(p.state().Tmp(), "session_"+id+".json") }
	data, err := os.ReadFile(path(alpha))
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(path(alpha), bytes.Replace(data, []byte("long long"), []byte("do  evil!"), 1), 0o600))
	if got := list(c); len(got) != 1 || got[0].SessionID != beta {
		t.Errorf("with a file that was changed: %s", toJSON(t, got))
	}
	unknown := "00000bad"
	_, err = c.Step(ctx, StepArgs{SessionID: &unknown})
	refused(t, err, session.StateError, "unknown_session", "get_workflows lists the sessions")
}
