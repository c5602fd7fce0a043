package workflow

import (
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// grouped writes a job that begins with a group.
func (p *project) grouped() {
	p.job("alpha", []testStep{{id: "a", outputs: oneFile}, {id: "b", outputs: "{b_out: {type: file, description: d, required: true}}"}, {id: "c"}, {id: "d"}},
		map[string]string{"main": "[[a, b, c], d]"})
	p.write("r.md", "x")
}

func TestReq001_4_18_GroupIsDescribedInFull(t *testing.T) {
	p := newProject(t)
	p.grouped()
	c := p.open().Connect("local")
	r := p.start(c, "alpha", "main")
	testkit.True(t, r.BeginStep.StepID == "a" && len(r.ConcurrentSteps) == 2 && r.ConcurrentSteps[0].StepID == "b" && r.ConcurrentSteps[0].Instructions == "Do b.\n" && r.ConcurrentSteps[1].StepID == "c", "reply %s", toJSON(t, r))
	text := r.BeginStep.Instructions
	for _, w := range []string{"Do a.", "**CONCURRENT STEPS**", "'a', 'b', 'c'", "Task tool"} {
		testkit.Contains(t, text, w)
	}
	testkit.True(t, strings.Index(text, "Do a.") <= strings.Index(text, "**CONCURRENT STEPS**"), "the message does not end the instructions")
	paragraph := text[strings.Index(text, "**CONCURRENT"):]
	if !strings.HasPrefix(text, "Do a.\n\n**CONCURRENT STEPS** The text above is for step 'a' alone.") || strings.Contains(paragraph, "\n") ||
		!strings.Contains(paragraph, "concurrent_steps") || !strings.Contains(paragraph, "concurrent_group") {
		t.Errorf("the instructions do not end with one paragraph about the group: %s", text)
	}
	testkit.True(t, r.ConcurrentGroup != nil && strings.Contains(*r.ConcurrentGroup, r.BeginStep.SessionID), "concurrent_group is %v", r.ConcurrentGroup)
	s := p.record(r.BeginStep.SessionID)
	for _, id := range []string{"a", "b", "c"} {
		testkit.True(t, s.Progress(id) != nil, "%s was not begun", id)
	}
}

// get_step of a member gives a subagent that step alone, the first one too.
func TestGetStepOfAMemberIsThatStepAlone(t *testing.T) {
	p := newProject(t)
	p.grouped()
	c := p.open().Connect("local")
	began := p.start(c, "alpha", "main")
	p.finish(c, `{"outputs":{"b_out":"r.md"},"step_id":"b"}`)
	for _, id := range []string{"a", "b", "c"} {
		r := testkit.Get(c.Step(ctx, StepArgs{SessionID: &began.BeginStep.SessionID, StepID: &id})).Must(t)
		if b := r.BeginStep; b.StepID != id || b.Instructions != "Do "+id+".\n" || r.ConcurrentSteps != nil || r.ConcurrentGroup != nil ||
			b.SessionID != began.BeginStep.SessionID || b.JobDir != began.BeginStep.JobDir || *b.CommonJobInfo != *began.BeginStep.CommonJobInfo {
			t.Errorf("%s: %s", id, toJSON(t, r))
		}
		testkit.True(t, (r.Notice != nil) == (id == "b") && (r.Notice == nil || strings.Contains(*r.Notice, "do not do again: b. Still to do: a, c")), "%s: notice %s", id, toJSON(t, r.Notice))
		testkit.True(t, len(r.Members) == 3 && strings.Join(r.PendingConcurrentSteps, " ") == "a c", "%s: %s", id, toJSON(t, r))
	}
	_, err := c.Step(ctx, StepArgs{StepID: new("d")})
	refused(t, err, session.StateError, "step_not_current", "'a'", "get_step shows current steps only")
	testkit.True(t, !strings.Contains(err.Error(), "Finish that first"), "get_step answers with the words of finished_step: %v", err)
	refused(t, testkit.Get(c.Step(ctx, StepArgs{StepID: new("nothing")})).Err(), session.ToolError, "unknown_step", "nothing")
}

// A member that its group went on without is finished like any other if an edit of the job leaves no
// other to wait for.
func TestAnUnreportedMemberThatIsFinishedIsNotUnreported(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.grouped()
	c := p.open().Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	testkit.Must(t, errOf(c.GoTo(ctx, GoToArgs{StepID: "c"})))
	p.job("alpha", []testStep{{id: "a", outputs: oneFile}, {id: "b", outputs: "{b_out: {type: file, description: d, required: true}}"}, {id: "c"}, {id: "d"}},
		map[string]string{"main": "[[a, b], d]"})
	r := p.finish(c, `{"outputs":{"b_out":"r.md"},"step_id":"b"}`)
	testkit.Need(t, r.Status == machine.NextStep && r.BeginStep.StepID == "d", "reply %s", toJSON(t, r))
	faults := p.record(id).Faults()
	testkit.True(t, len(faults) == 0, "the record has faults: %q", faults)
}

func TestGroupIsJoinedWhenMembersAreReported(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.grouped()
	c := p.open().Connect("local")
	p.start(c, "alpha", "main")
	r := p.finish(c, `{"outputs":{"b_out":"r.md"},"step_id":"b"}`)
	testkit.Need(t, r.Status == machine.NextStep && r.BeginStep == nil && strings.Join(r.PendingConcurrentSteps, " ") == "a c" && strings.Contains(*r.Feedback, "wait"), "reply %s", toJSON(t, r))
	testkit.Equal(t, toJSON(t, p.finish(c, `{"outputs":{"b_out":"r.md"},"step_id":"b"}`)), toJSON(t, r), "repeated")
	r = p.finish(c, `{"outputs":{"report":"r.md"}}`) // the primary, without step_id
	testkit.Need(t, r.BeginStep == nil && strings.Join(r.PendingConcurrentSteps, " ") == "c", "reply %s", toJSON(t, r))
	// b's reply may still be asked for, though a was finished after it.
	testkit.Equal(t, strings.Join(p.finish(c, `{"outputs":{"b_out":"r.md"},"step_id":"b"}`).PendingConcurrentSteps, " "), "a c", "repeated")
	refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"}}`))).Err(), session.StateError, "step_id_needed", "'c'")
	step, err := c.Step(ctx, StepArgs{})
	testkit.True(t, err == nil && strings.Join(step.PendingConcurrentSteps, " ") == "c" && step.Members[1].State == "completed" && step.Members[2].State == "started", "get_step %s, %v", toJSON(t, step), err)
	r = p.finish(c, `{"outputs":{},"step_id":"c"}`)
	testkit.Need(t, r.BeginStep != nil && r.BeginStep.StepID == "d" && r.PendingConcurrentSteps == nil, "reply %s", toJSON(t, r))
	r = p.finish(c, `{"outputs":{}}`)
	testkit.True(t, r.Status == machine.WorkflowComplete && toJSON(t, r.AllOutputs) == `{"report":"r.md","b_out":"r.md"}`, "reply %s", toJSON(t, r))
}

// A step that is current in another session of the stack: the error gives the call that finishes it
// there, also for a member of a group.
func TestField25_AStepOfOtherSessionsOfTheStack(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.grouped()
	p.simple("beta")
	c := p.open().Connect("local")
	below := p.start(c, "alpha", "main").BeginStep.SessionID
	above := p.start(c, "beta", "main").BeginStep.SessionID
	for _, step := range []string{"a", "b"} {
		refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{"out":"r.md"},"step_id":"`+step+`"}`))).Err(), session.ToolError, "unknown_step", "session '"+below+"' (alpha/main)", "session '"+above+"' (beta/main)",
			`finished_step with {"session_id": "`+below+`", "step_id": "`+step+`", "outputs": {"out":"r.md"}}`)
	}
	testkit.Equal(t, strings.Join(p.finish(c, `{"outputs":{"b_out":"r.md"},"step_id":"b","session_id":"`+below+`"}`).PendingConcurrentSteps, " "), "a c", "the call that the error gives")
	_, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"b_out":"other.md"},"step_id":"b"}`)) // finished, so current nowhere
	refused(t, err, session.ToolError, "unknown_step", "the current step is 'one'")
	// Current in two other sessions: both are named, and neither is chosen for the caller.
	top, twice := p.start(c, "beta", "main").BeginStep.SessionID, p.start(c, "beta", "main").BeginStep.SessionID
	_, err = c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"},"step_id":"one","session_id":"`+below+`"}`))
	refused(t, err, session.ToolError, "unknown_step", "'"+twice+"' (beta/main) and '"+top+"' (beta/main)", "with the session_id of the one")
	testkit.Equal(t, strings.Contains(err.Error(), "finished_step with"), false, "it chooses one")
	for _, id := range []string{top, twice} {
		testkit.Get(c.Abort(ctx, AbortArgs{Explanation: "tried", SessionID: &id})).Must(t)
	}
	// The same workflow twice: a step that is ahead in the upper one.
	p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"one"}`)
	p.start(c, "beta", "main")
	_, err = c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"r.md"},"step_id":"two"}`))
	refused(t, err, session.StateError, "step_not_current", `{"session_id": "`+above+`", "step_id": "two"`)
	testkit.True(t, !strings.Contains(err.Error(), "Finish that first"), "%v", err)
}
