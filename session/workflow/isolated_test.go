package workflow

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/workflow/machine"
)

// isolated begins a session as a run does, whose two items have worktrees of their own: the first has its folder.
func isolated(t *testing.T) (p *project, srv *server, c *Conn, id, folder string) {
	t.Helper()
	s := newScript(t, "test -f here")
	p = newProject(t)
	p.job("alpha", []testStep{{id: "list", outputs: "{todo: {type: string, description: d}}"},
		{id: "port", outputs: "{out: {type: file, description: d}}", checks: "[" + s.yaml(", protect: [tests/**]") + "]",
			reviews: `[{run_each: out, by: human, quality_criteria: {good: "Is it good?"}}]`}, {id: "sum", outputs: "{}"}},
		map[string]string{"main": "[list, {for_each: todo, steps: [port], at_once: 2, isolation: worktree}, sum]"})
	p.write("tests/t", "t")
	srv = p.open(func(o *Options) {
		o.Reviewing = func(context.Context) (Reviewing, error) {
			return Reviewing{MaxTries: 3, ReplyWithin: time.Minute}, nil
		}
	})
	c = srv.Connect("local")
	r := testkit.Get(c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", Isolated: true})).Must(t)
	id = r.BeginStep.SessionID
	p.finish(c, `{"outputs":{"todo":"[\"a\",\"b\"]"}}`)
	folder = testkit.Dir(t)
	for name, text := range map[string]string{"tests/t": "another item has changed it", "out.md": "x", "here": ""} {
		testkit.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o755))
		testkit.Must(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
	}
	testkit.Must(t, srv.IsolateFor(ctx, id, "port[0]", folder))
	return p, srv, c, id, folder
}

// What a step of an item hands in, its checks, what they protect and what a person is shown are in the folder of the
// item, and the item is done when it is merged, which only the leader of the run says.
func TestIsolatedItemIsWorkedOnInItsFolder(t *testing.T) {
	t.Parallel()
	p, srv, c, id, folder := isolated(t)
	step := testkit.Get(c.Step(ctx, StepArgs{SessionID: &id, StepID: new("port[0]")})).Must(t)
	testkit.Equal(t, step.BeginStep.ProjectRoot, folder)
	finish := func(step, outputs string) (*machine.FinishReply, error) {
		return c.Finish(ctx, finishArgs(t, `{"outputs":`+outputs+`,"step_id":"`+step+`"}`))
	}
	refused(t, testkit.Get(finish("port[1]", `{"out":"out.md"}`)).Err(), session.ToolError, codes.FileNotFound, "out.md")
	r := testkit.Get(finish("port[0]", `{"out":"out.md"}`)).Must(t)
	testkit.Contains(t, *r.Feedback, "a person must pass")
	q := p.record(id).Progress("port[0]").Question
	answer := machine.Answer{Passed: true, Identity: "me"}
	testkit.Must(t, os.WriteFile(filepath.Join(folder, "out.md"), []byte("y"), 0o644))
	refused(t, srv.ReviewFor(ctx, id, "port[0]", q.Digest, answer), session.StateError, codes.OutputsChanged, "out.md")
	testkit.Must(t, os.WriteFile(filepath.Join(folder, "out.md"), []byte("x"), 0o644))
	testkit.Must(t, srv.ReviewFor(ctx, id, "port[0]", q.Digest, answer))
	testkit.Must(t, os.WriteFile(filepath.Join(folder, "tests/t"), []byte("changed"), 0o644))
	r = testkit.Get(finish("port[0]", `{"out":"out.md"}`)).Must(t)
	testkit.Contains(t, *r.Feedback, "tests/t")
	testkit.Must(t, os.WriteFile(filepath.Join(folder, "tests/t"), []byte("another item has changed it"), 0o644))
	if r = testkit.Get(finish("port[0]", `{"out":"out.md"}`)).Must(t); r.BeginStep == nil || r.BeginStep.StepID != "merge:port[0]" {
		t.Fatalf("after the step: %s", toJSON(t, r))
	}
	refused(t, testkit.Get(finish("merge:port[0]", "{}")).Err(), session.StateError, codes.StepNotCurrent, "which the run does")
	args := finishArgs(t, `{"outputs":{},"step_id":"merge:port[0]"}`)
	args.Merged = true
	r = testkit.Get(c.Finish(ctx, args)).Must(t)
	testkit.Equal(t, len(r.PendingConcurrentSteps), 2) // of the other item
	now := p.record(id)
	testkit.Equal(t, now.RootOf(p.root, "port[0]"), p.root)
	testkit.Must(t, srv.DropFor(ctx, id, "port[1]", machine.Override{Identity: "me", Reason: "obsolete"}))
	if r = p.finish(c, `{"outputs":{}}`); r.Status != machine.WorkflowComplete || toJSON(t, r.AllOutputs) != `{"todo":"[\"a\",\"b\"]","out":["out.md",null]}` {
		t.Errorf("at the end: %s", toJSON(t, r))
	}
}

// An item goes on in its folder if go_to_step begins it again, and in another one after it was merged.
func TestIsolatedItemThatBeginsAgain(t *testing.T) {
	p, srv, _, id, folder := isolated(t)
	where := func() string { return p.record(id).RootOf(p.root, "port[0]") }
	testkit.Must(t, srv.GoToFor(ctx, id, "port[0]"))
	testkit.Equal(t, where(), folder)
	testkit.Must(t, srv.GoToFor(ctx, id, "port"))
	testkit.Equal(t, where(), p.root)
	testkit.Equal(t, p.record(id).Progress("port[0]").Folder, ".")
	err := srv.IsolateFor(ctx, id, "sum", folder)
	refused(t, err, session.StateError, codes.StepNotCurrent)
}

// Outside of runs the items share the folder, and nothing is merged.
func TestIsolationIsForRuns(t *testing.T) {
	t.Parallel()
	p, c, id := items(t, 3)
	p.job("alpha", []testStep{{id: "list", outputs: "{todo: {type: string, description: d}}"}, {id: "port"}},
		map[string]string{"main": "[list, {for_each: todo, steps: [port], isolation: worktree}]"})
	testkit.Get(c.Abort(ctx, AbortArgs{SessionID: &id, Explanation: "another job"})).Must(t)
	p.start(c, "alpha", "main")
	p.finish(c, `{"outputs":{"todo":"[\"a\"]"}}`)
	testkit.Equal(t, p.finish(c, `{"outputs":{}}`).Status, machine.WorkflowComplete, "after the only step of the only item")
}
