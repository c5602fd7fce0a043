package workflow

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/workflow/machine"
)

// grouped makes a project with a job that begins with a group.
func grouped(t testing.TB) *project { return newProject(t).alpha("[[a, b, c], d]", groupSteps...) }

var groupSteps = []testStep{{id: "a", outputs: oneFile}, {id: "b", outputs: "{b_out: {type: file, description: d, required: true}}"}, {id: "c"}, {id: "d"}}

func TestReq001_4_18_GroupIsDescribedInFull(t *testing.T) {
	p := grouped(t)
	r := p.start(p.open().Connect("local"), "alpha", "main")
	testkit.True(t, r.BeginStep.StepID == "a" && len(r.ConcurrentSteps) == 2 && r.ConcurrentSteps[0].StepID == "b" && r.ConcurrentSteps[0].Instructions == "Do b.\n" && r.ConcurrentSteps[1].StepID == "c", "reply %s", toJSON(t, r))
	own, paragraph, _ := strings.Cut(r.BeginStep.Instructions, "**CONCURRENT STEPS**")
	testkit.Equal(t, own, "Do a.\n\n", "before the paragraph about the group")
	testkit.ContainsAll(t, paragraph, []string{" The text above is for step 'a' alone.", "'a', 'b', 'c'", "Task tool", "concurrent_steps", "concurrent_group"})
	testkit.True(t, !strings.Contains(paragraph, "\n"), "the instructions do not end with one paragraph about the group: %s", paragraph)
	testkit.Contains(t, *r.ConcurrentGroup, r.BeginStep.SessionID)
	s := p.record(r.BeginStep.SessionID)
	for _, id := range []string{"a", "b", "c"} {
		testkit.True(t, s.Progress(id) != nil, "%s was not begun", id)
	}
}

// get_step of a member gives a subagent that step alone, the first one too.
func TestGetStepOfAMemberIsThatStepAlone(t *testing.T) {
	p := grouped(t)
	c := p.open().Connect("local")
	began := p.start(c, "alpha", "main").BeginStep
	p.finish(c, `{"outputs":{"b_out":"r.md"},"step_id":"b"}`)
	for id, notice := range map[string]string{"a": "null", "b": "do not do again: b. Still to do: a, c", "c": "null"} {
		r := testkit.Get(c.Step(ctx, StepArgs{SessionID: &began.SessionID, StepID: &id})).Must(t)
		b := r.BeginStep
		testkit.True(t, b.StepID == id && b.Instructions == "Do "+id+".\n" && r.ConcurrentSteps == nil && r.ConcurrentGroup == nil, "%s: %s", id, toJSON(t, r))
		testkit.True(t, b.SessionID == began.SessionID && b.JobDir == began.JobDir && *b.CommonJobInfo == *began.CommonJobInfo, "%s: %s", id, toJSON(t, r))
		testkit.Contains(t, toJSON(t, r.Notice), notice, id)
		testkit.True(t, len(r.Members) == 3 && strings.Join(r.PendingConcurrentSteps, " ") == "a c", "%s: %s", id, toJSON(t, r))
	}
	err := errOf(c.Step(ctx, StepArgs{StepID: new("d")}))
	refused(t, err, session.StateError, "step_not_current", "'a'", "get_step shows current steps only")
	testkit.True(t, !strings.Contains(err.Error(), "Finish that first"), "get_step answers with the words of finished_step: %v", err)
	refused(t, errOf(c.Step(ctx, StepArgs{StepID: new("nothing")})), session.ToolError, "unknown_step", "nothing")
}

// A member that its group went on without is finished like any other if an edit of the job leaves no
// other to wait for.
func TestAnUnreportedMemberThatIsFinishedIsNotUnreported(t *testing.T) {
	p := grouped(t)
	_, c, id := p.begin()
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	testkit.Must(t, errOf(c.GoTo(ctx, GoToArgs{StepID: "c"})))
	p.alpha("[[a, b], d]", groupSteps...)
	testkit.Equal(t, stepOf(p.finish(c, `{"outputs":{"b_out":"r.md"},"step_id":"b"}`).BeginStep), "d")
	testkit.Same(t, p.record(id).Faults(), nil, "faults of the record")
}

func TestGroupIsJoinedWhenMembersAreReported(t *testing.T) {
	p := grouped(t)
	_, c, _ := p.begin()
	const b = `{"outputs":{"b_out":"r.md"},"step_id":"b"}`
	pending := func(r *machine.FinishReply, want string) {
		t.Helper()
		testkit.True(t, r.Status == machine.NextStep && r.BeginStep == nil && strings.Join(r.PendingConcurrentSteps, " ") == want, "pending is not %s: %s", want, toJSON(t, r))
	}
	r := p.finish(c, b)
	pending(r, "a c")
	testkit.Contains(t, *r.Feedback, "wait")
	testkit.Equal(t, toJSON(t, p.finish(c, b)), toJSON(t, r), "repeated")
	pending(p.finish(c, `{"outputs":{"report":"r.md"}}`), "c") // the primary, without step_id
	pending(p.finish(c, b), "a c")                             // b's reply may still be asked for, though a was finished after it
	refused(t, refusal(t, c, `{"outputs":{"report":"r.md"}}`), session.StateError, "step_id_needed", "'c'")
	step := testkit.Get(c.Step(ctx, StepArgs{})).Must(t)
	testkit.True(t, strings.Join(step.PendingConcurrentSteps, " ") == "c" && step.Members[1].State == "completed" && step.Members[2].State == "started", "get_step %s", toJSON(t, step))
	r = p.finish(c, `{"outputs":{},"step_id":"c"}`)
	testkit.True(t, stepOf(r.BeginStep) == "d" && r.PendingConcurrentSteps == nil, "reply %s", toJSON(t, r))
	r = p.finish(c, `{"outputs":{}}`)
	testkit.True(t, r.Status == machine.WorkflowComplete && toJSON(t, r.AllOutputs) == `{"report":"r.md","b_out":"r.md"}`, "reply %s", toJSON(t, r))
}

// Who waits for a group by repeating its report learns that the group has changed since.
func TestARepeatedReportOfAMemberSaysThatItsGroupHasChanged(t *testing.T) {
	p := newProject(t).alpha("[[a, b, c], d]", testStep{id: "a"}, testStep{id: "b"}, testStep{id: "c"}, testStep{id: "d"})
	_, c, _ := p.begin()
	for i, step := range []string{"b", "b", "c", "b"} {
		r := p.finish(c, `{"outputs":{},"step_id":"`+step+`"}`)
		testkit.True(t, (r.Waiting() != nil) == (i < 3) && strings.Contains(toJSON(t, r.Notice), "get_step") == (i == 3), "report %d, of %s: %s", i, step, toJSON(t, r))
	}
}

// A step that is current in another session of the stack: the error gives the call that finishes it
// there, also for a member of a group.
func TestField25_AStepOfOtherSessionsOfTheStack(t *testing.T) {
	p := grouped(t)
	p.simple("beta")
	_, c, below := p.begin()
	above := p.start(c, "beta", "main").BeginStep.SessionID
	for _, step := range []string{"a", "b"} {
		refused(t, refusal(t, c, `{"outputs":{"out":"r.md"},"step_id":"`+step+`"}`), session.ToolError, "unknown_step", "session '"+below+"' (alpha/main)", "session '"+above+"' (beta/main)",
			`finished_step with {"session_id": "`+below+`", "step_id": "`+step+`", "outputs": {"out":"r.md"}}`)
	}
	testkit.Equal(t, strings.Join(p.finish(c, `{"outputs":{"b_out":"r.md"},"step_id":"b","session_id":"`+below+`"}`).PendingConcurrentSteps, " "), "a c", "the call that the error gives")
	// Finished, so current nowhere.
	refused(t, refusal(t, c, `{"outputs":{"b_out":"other.md"},"step_id":"b"}`), session.ToolError, "unknown_step", "the current step is 'one'")
	// Current in two other sessions: both are named, and neither is chosen for the caller.
	top, twice := p.start(c, "beta", "main").BeginStep.SessionID, p.start(c, "beta", "main").BeginStep.SessionID
	err := refusal(t, c, `{"outputs":{"report":"r.md"},"step_id":"one","session_id":"`+below+`"}`)
	refused(t, err, session.ToolError, "unknown_step", "'"+twice+"' (beta/main) and '"+top+"' (beta/main)", "with the session_id of the one")
	testkit.Equal(t, strings.Contains(err.Error(), "finished_step with"), false, "it chooses one")
	for _, id := range []string{top, twice} {
		testkit.Must(t, errOf(c.Abort(ctx, AbortArgs{Explanation: "tried", SessionID: &id})))
	}
	// The same workflow twice: a step that is ahead in the upper one.
	p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"one"}`)
	p.start(c, "beta", "main")
	err = refusal(t, c, `{"outputs":{"report":"r.md"},"step_id":"two"}`)
	refused(t, err, session.StateError, "step_not_current", `{"session_id": "`+above+`", "step_id": "two"`)
	testkit.True(t, !strings.Contains(err.Error(), "Finish that first"), "%v", err)
}

// An edit takes the last open member out of a group whose finished member has a review.
func TestAReviewedGroupWhoseLastMemberIsEditedAwayCloses(t *testing.T) {
	a, b := testStep{id: "a", outputs: oneFile}, testStep{id: "b", outputs: "{b_out: {type: file, description: d, required: true}}", reviews: reviewedStep}
	p := newProject(t).alpha("[[a, b, x], d]", a, b, testStep{id: "x"}, testStep{id: "d"})
	_, _, c, _ := p.reviewed()
	p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"a"}`)
	p.finish(c, `{"outputs":{"b_out":"r.md"},"step_id":"b"}`)
	p.alpha("[[a, b], d]", a, b, testStep{id: "d"})
	p.write("s.md", "y")
	testkit.Equal(t, stepOf(p.finish(c, `{"outputs":{"b_out":"s.md"},"step_id":"b"}`).BeginStep), "d", "the group does not close")
}

// isolated begins a session as a run does, whose two items have worktrees of their own: the first has its folder.
func isolated(t *testing.T) (p *project, srv *server, c *Conn, id, folder string) {
	t.Helper()
	p = newProject(t).alpha("[list, {for_each: todo, steps: [port], at_once: 2, isolation: worktree}, sum]", testStep{id: "list", outputs: oneList},
		testStep{id: "port", outputs: "{out: {type: file, description: d}}", checks: "[" + newScript(t, "test -f here").yaml(", protect: [tests/**]") + "]",
			reviews: `[{run_each: out, by: human, quality_criteria: {good: "Is it good?"}}]`}, testStep{id: "sum"})
	p.write("tests/t", "t")
	srv = p.open(reviewing(&Reviewing{MaxTries: 3, ReplyWithin: time.Minute}))
	c = srv.Connect("local")
	id = testkit.Get(c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", Isolated: true})).Must(t).BeginStep.SessionID
	p.finish(c, `{"outputs":{"todo":"[\"a\",\"b\"]"}}`)
	folder = testkit.Dir(t)
	testkit.WriteAll(t, folder, map[string]string{"tests/t": "another item has changed it", "out.md": "x", "here": ""})
	testkit.Must(t, srv.IsolateFor(ctx, id, "port[0]", folder))
	return p, srv, c, id, folder
}

// What a step of an item hands in, its checks, what they protect and what a person is shown are in the folder of the
// item, and the item is done when it is merged, which only the leader of the run says.
func TestIsolatedItemIsWorkedOnInItsFolder(t *testing.T) {
	p, srv, c, id, folder := isolated(t)
	testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{SessionID: &id, StepID: new("port[0]")})).Must(t).BeginStep.ProjectRoot, folder)
	refused(t, refusal(t, c, `{"outputs":{"out":"out.md"},"step_id":"port[1]"}`), session.ToolError, codes.FileNotFound, "out.md")
	const call = `{"outputs":{"out":"out.md"},"step_id":"port[0]"}`
	says(t, p.finish(c, call), machine.NeedsWork, "a person must pass")
	digest := p.record(id).Progress("port[0]").Question.Digest
	answer := machine.Answer{Passed: true, Identity: "me"}
	testkit.Write(t, filepath.Join(folder, "out.md"), "y")
	refused(t, srv.ReviewFor(ctx, id, "port[0]", digest, answer), session.StateError, codes.OutputsChanged, "out.md")
	testkit.Write(t, filepath.Join(folder, "out.md"), "x")
	testkit.Must(t, srv.ReviewFor(ctx, id, "port[0]", digest, answer))
	testkit.Write(t, filepath.Join(folder, "tests/t"), "changed")
	says(t, p.finish(c, call), machine.NeedsWork, "tests/t")
	testkit.Write(t, filepath.Join(folder, "tests/t"), "another item has changed it")
	testkit.Equal(t, stepOf(p.finish(c, call).BeginStep), "merge:port[0]", "after the step")
	const merge = `{"outputs":{},"step_id":"merge:port[0]"}`
	refused(t, refusal(t, c, merge), session.StateError, codes.StepNotCurrent, "which the run does")
	args := finishArgs(t, merge)
	args.Merged = true
	r := testkit.Get(c.Finish(ctx, args)).Must(t)
	testkit.Equal(t, len(r.PendingConcurrentSteps), 2) // of the other item
	now := p.record(id)
	testkit.Equal(t, now.RootOf(p.root, "port[0]"), p.root)
	testkit.Must(t, srv.DropFor(ctx, id, "port[1]", machine.Override{Identity: "me", Reason: "obsolete"}))
	r = p.finish(c, `{"outputs":{}}`)
	testkit.Equal(t, fmt.Sprint(r.Status, toJSON(t, r.AllOutputs)), `workflow_complete{"todo":"[\"a\",\"b\"]","out":["out.md",null]}`, "at the end")
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
	refused(t, srv.IsolateFor(ctx, id, "sum", folder), session.StateError, codes.StepNotCurrent)
}

// Outside of runs the items share the folder, and nothing is merged.
func TestIsolationIsForRuns(t *testing.T) {
	p := newProject(t).alpha("[list, {for_each: todo, steps: [port], isolation: worktree}]", testStep{id: "list", outputs: oneList}, testStep{id: "port"})
	_, c, _ := p.begin()
	p.finish(c, `{"outputs":{"todo":"[\"a\"]"}}`)
	testkit.Equal(t, p.finish(c, `{"outputs":{}}`).Status, machine.WorkflowComplete, "after the only step of the only item")
}
