package workflow

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/state"
	"deepwork/session/workflow/machine"
)

const oneText = "{said: {type: string, description: d}}"

// items makes a project whose workflow ports and verifies each item of a list, two at once, and then ends.
func items(t *testing.T, most int) (*project, *Conn, string) {
	p := newProject(t)
	p.job("alpha", []testStep{{id: "list", outputs: "{todo: {type: file, description: d}}"}, {id: "port", outputs: "{out: {type: file, description: d}}"}, {id: "verify"}, {id: "sum"}},
		map[string]string{"main": fmt.Sprintf("[list, {for_each: todo, steps: [port, verify], at_once: 2, max_items: %d}, sum]", most)})
	p.write("r.md", "x")
	c := p.open().Connect("local")
	return p, c, p.start(c, "alpha", "main").BeginStep.SessionID
}

// Items are done as members of a group, as many at once as the form says, each in the order of its steps.
func TestForms_ForEach(t *testing.T) {
	t.Parallel()
	p, c, id := items(t, 3)
	p.write("list.json", `["a", {"b": 1}, "c"]`)
	r := p.finish(c, `{"outputs":{"todo":"list.json"}}`)
	testkit.True(t, r.BeginStep.StepID == "port[0]" && string(r.BeginStep.Item.Value) == `"a"` && r.BeginStep.Item.Count == 3 && r.BeginStep.Instructions == "Do port.\n", "begin_step %s", toJSON(t, r.BeginStep))
	testkit.True(t, len(r.ConcurrentSteps) == 1 && r.ConcurrentSteps[0].StepID == "port[1]" && string(r.ConcurrentSteps[0].Item.Value) == `{"b": 1}`, "concurrent_steps %s", toJSON(t, r.ConcurrentSteps))
	refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{"out":"r.md"}}`))).Err(), session.StateError, codes.StepIDNeeded, "port[0]", "port[1]")
	for _, early := range []string{"verify[0]", "port[2]"} {
		refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{},"step_id":"`+early+`"}`))).Err(), session.StateError, codes.StepNotCurrent, early, "port[1]")
	}
	p.write("list.json", `["changed"]`) // after its step was finished
	if r = p.finish(c, `{"outputs":{"out":"r.md"},"step_id":"port[1]"}`); r.BeginStep == nil || r.BeginStep.StepID != "verify[1]" || len(r.ConcurrentSteps) != 0 {
		t.Errorf("after port[1]: %s", toJSON(t, r))
	}
	if r = p.finish(c, `{"outputs":{},"step_id":"verify[1]"}`); r.BeginStep == nil || r.BeginStep.StepID != "port[2]" {
		t.Errorf("after verify[1]: %s", toJSON(t, r))
	}
	for _, step := range []string{"port[0]", "port[2]", "verify[2]"} {
		out := `{}`
		if strings.HasPrefix(step, "port") {
			out = `{"out":"r.md"}`
		}
		r = p.finish(c, `{"outputs":`+out+`,"step_id":"`+step+`"}`)
	}
	testkit.True(t, r.BeginStep == nil && fmt.Sprint(r.PendingConcurrentSteps) == "[verify[0]]", "before the last: %s", toJSON(t, r))
	step, err := c.Step(ctx, StepArgs{SessionID: &id})
	testkit.True(t, err == nil && step.BeginStep.StepID == "verify[0]" && len(step.ConcurrentSteps) == 0, "get_step: %s, %v", toJSON(t, step), err)
	testkit.Equal(t, toJSON(t, step.CompletedSteps), `[{"step_id":"list","outputs":{"todo":"list.json"}},{"step_id":"port","items":"3 of 3","outputs":{}},{"step_id":"verify","items":"2 of 3","outputs":{}}]`)
	if r = p.finish(c, `{"outputs":{}}`); r.BeginStep == nil || r.BeginStep.StepID != "sum" {
		t.Errorf("after the last item: %s", toJSON(t, r))
	}
	if r = p.finish(c, `{"outputs":{}}`); r.Status != machine.WorkflowComplete || toJSON(t, r.AllOutputs) != `{"todo":"list.json","out":["r.md","r.md","r.md"]}` {
		t.Errorf("at the end: %s", toJSON(t, r))
	}
}

// What is no list is refused, null too, of which no item would be made; an empty list is one, however it is handed in.
func TestForms_NoList(t *testing.T) {
	p := newProject(t)
	p.job("alpha", []testStep{{id: "list", outputs: "{todo: {type: string, description: d, required: false}, more: {type: files, description: d, required: false}}"}, {id: "port"}, {id: "read"}, {id: "end"}},
		map[string]string{"main": "[list, {for_each: todo, steps: [port]}, {for_each: more, steps: [read]}, end]"})
	c := p.open().Connect("local")
	p.start(c, "alpha", "main")
	for _, list := range []string{"null", "", `{"a":1}`, "[1]", `["a"] b`} {
		refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{"todo":`+toJSON(t, list)+`}}`))).Err(), session.ToolError, codes.BadList, "todo")
	}
	testkit.Equal(t, p.finish(c, `{"outputs":{"todo":" []","more":[]}}`).BeginStep.StepID, "end", "after empty lists")
}

// Many items are shown in pages, and their replies do not grow with their number.
func TestForms_PagesOfItems(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.job("alpha", []testStep{{id: "list", outputs: "{todo: {type: files, description: d}}"}, {id: "port"}},
		map[string]string{"main": "[list, {for_each: todo, steps: [port], at_once: 50}]"})
	var paths []string
	for i := range 70 {
		paths = append(paths, p.write(fmt.Sprintf("f%d", i), "x"))
	}
	c := p.open().Connect("local")
	p.start(c, "alpha", "main")
	r := p.finish(c, `{"outputs":{"todo":`+toJSON(t, paths)+`}}`)
	testkit.Equal(t, len(r.ConcurrentSteps), machine.ShownItems-1, "others shown")
	var seen []string
	var cursor *string
	for {
		step := testkit.Get(c.Step(ctx, StepArgs{Cursor: cursor})).Must(t)
		seen = append(seen, step.BeginStep.StepID)
		for _, o := range step.ConcurrentSteps {
			seen = append(seen, o.StepID)
		}
		if cursor = step.NextCursor; cursor == nil {
			break
		}
	}
	testkit.True(t, len(seen) == 50 && seen[49] == "port[49]", "get_step shows %v", seen)
	refused(t, testkit.Get(c.Step(ctx, StepArgs{Cursor: new("99")})).Err(), session.ToolError, codes.BadCursor)
	for i := range 70 {
		r = p.finish(c, fmt.Sprintf(`{"outputs":{},"step_id":"port[%d]"}`, i))
	}
	testkit.Equal(t, r.Status, machine.WorkflowComplete, "at the end: %s", toJSON(t, r))
}

// Steps are repeated until the condition holds; after the last round a person lets the workflow go on.
func TestForms_Repeat(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.job("alpha", []testStep{{id: "look"}, {id: "fix", outputs: oneText}, {id: "end"}},
		map[string]string{"main": `[{repeat: {steps: [look, fix], until: {output: said, is: done}, at_most: 2}}, end]`})
	srv := p.open()
	c := srv.Connect("local")
	began := p.start(c, "alpha", "main").BeginStep
	testkit.True(t, began.Round != nil && began.Round.Number == 1 && began.Round.AtMost == 2 && began.Round.Until == `output said is "done"`, "the first round: %s", toJSON(t, began))
	p.finish(c, `{"outputs":{}}`)
	r := p.finish(c, `{"outputs":{"said":"broken"}}`)
	if r.BeginStep == nil || r.BeginStep.StepID != "look" || r.BeginStep.Round.Number != 2 || !strings.Contains(r.BeginStep.Round.Failed, `"broken"`) || !strings.Contains(*r.Feedback, "Round 2 of 2") {
		t.Errorf("the second round: %s", toJSON(t, r))
	}
	faults := p.record(began.SessionID).Faults()
	testkit.True(t, faults == nil, "deepwork check would find %v", faults)
	p.finish(c, `{"outputs":{}}`)
	testkit.Equal(t, testkit.Get(c.GoTo(ctx, GoToArgs{StepID: "look"})).Must(t).BeginStep.Round.Number, 2, "back in the round")
	p.finish(c, `{"outputs":{}}`)
	r = p.finish(c, `{"outputs":{"said":"broken"}}`)
	if r.Status != machine.NeedsWork || !strings.Contains(*r.Feedback, "round 2 of 2 is over") || !strings.Contains(*r.Feedback, "deepwork sessions override "+began.SessionID+" fix") {
		t.Errorf("after the last round: %s", toJSON(t, r))
	}
	testkit.Must(t, srv.OverrideFor(ctx, began.SessionID, "fix", machine.Override{Identity: "me", Channel: session.ChannelTerminal, Reason: "good enough"}))
	if r = p.finish(c, `{"outputs":{"said":"broken"}}`); r.BeginStep == nil || r.BeginStep.StepID != "end" {
		t.Errorf("after a person's word: %s", toJSON(t, r))
	}
	if s := p.record(began.SessionID); len(s.History) != 2 || len(s.Progress("fix").Overrides) != 1 {
		t.Errorf("the record has %d withdrawals and %d overrides", len(s.History), len(s.Progress("fix").Overrides))
	}
	p.finish(c, `{"outputs":{}}`)
	p.start(c, "alpha", "main")
	p.finish(c, `{"outputs":{}}`)
	if r = p.finish(c, `{"outputs":{"said":"done"}}`); r.BeginStep == nil || r.BeginStep.StepID != "end" {
		t.Errorf("done in the first round: %s", toJSON(t, r))
	}
}

// A condition is about what the last step that has the output handed in: left out there, it is the empty text, whatever an
// earlier step handed in.
func TestForms_LeftOutIsEmpty(t *testing.T) {
	t.Parallel()
	said := "{said: {type: string, description: d, required: false}}"
	p := newProject(t)
	p.job("alpha", []testStep{{id: "one", outputs: said}, {id: "two", outputs: said}, {id: "more"}, {id: "end"}}, map[string]string{
		"chosen": `[one, two, {when: {output: said, is: done}, steps: [more]}, end]`,
		"rounds": `[{repeat: {steps: [one, two], until: {output: said, is: done}, at_most: 2}}, end]`})
	c := p.open().Connect("local")
	for flow, next := range map[string]string{"chosen": "end", "rounds": "one"} {
		p.start(c, "alpha", flow)
		p.finish(c, `{"outputs":{"said":"done"}}`)
		testkit.Equal(t, p.finish(c, `{"outputs":{}}`).BeginStep.StepID, next, flow)
	}
}

// called makes a project whose workflow main has a workflow as its second step, and starts it.
func called(t *testing.T) (*project, *server, *Conn, *machine.StartReply) {
	p := newProject(t)
	p.job("beta", []testStep{{id: "write", outputs: "{page: {type: file, description: d}}"}, {id: "check"}}, map[string]string{"publish": "[write, check]"})
	p.job("alpha", []testStep{{id: "one", outputs: oneText}, {id: "last"}}, map[string]string{"main": "[one, {workflow: beta/publish}, last]"})
	p.write("r.md", "x")
	srv := p.open()
	c := srv.Connect("local")
	return p, srv, c, p.start(c, "alpha", "main")
}

// A workflow is a step: its session begins with the transition that reaches it, and the one that calls it goes on with
// the transition that completes it.
func TestForms_WorkflowAsStep(t *testing.T) {
	p, _, c, began := called(t)
	r := p.finish(c, `{"outputs":{"said":"hello"}}`)
	child := r.BeginStep.SessionID
	if r.Status != machine.NextStep || r.BeginStep.StepID != "write" || child == began.BeginStep.SessionID || len(r.Stack) != 2 || r.Stack[1].SessionID != child || r.Stack[0].Step != "workflow:beta/publish" {
		t.Fatalf("the call: %s", toJSON(t, r))
	}
	refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{},"session_id":"`+began.BeginStep.SessionID+`"}`))).Err(), session.StateError, codes.StepIsWorkflow, child, "'write'")
	p.finish(c, `{"outputs":{"page":"r.md"}}`)
	r = p.finish(c, `{"outputs":{}}`)
	if r.Status != machine.WorkflowComplete || toJSON(t, r.AllOutputs) != `{"page":"r.md"}` || r.ResumedWorkflow == nil || *r.ResumedWorkflow != "alpha/main" || *r.ResumedStep != "last" ||
		r.BeginStep == nil || r.BeginStep.StepID != "last" || r.BeginStep.SessionID != began.BeginStep.SessionID || len(r.Stack) != 1 {
		t.Errorf("the end of the call: %s", toJSON(t, r))
	}
	r = p.finish(c, `{"outputs":{}}`)
	testkit.True(t, r.Status == machine.WorkflowComplete && (toJSON(t, r.AllOutputs) == `{"said":{"text":"hello"},"page":"r.md"}` || toJSON(t, r.AllOutputs) == `{"said":"hello","page":"r.md"}`), "the end: %s", toJSON(t, r))
}

// When the workflow of a step is aborted, the one that calls it stands before that step, and says what can be done.
func TestForms_AbortedWorkflowOfAStep(t *testing.T) {
	t.Parallel()
	p, srv, c, began := called(t)
	p.finish(c, `{"outputs":{"said":"hello"}}`)
	if r, err := c.Abort(ctx, AbortArgs{Explanation: "no"}); err != nil || *r.ResumedStep != "workflow:beta/publish" || r.Notice == nil || !strings.Contains(*r.Notice, "session '"+began.BeginStep.SessionID+"'") {
		t.Fatalf("%s, %v", toJSON(t, r), err)
	}
	refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{}}`))).Err(), session.StateError, codes.StepIsWorkflow, "was aborted", "go_to_step")
	r, err := c.GoTo(ctx, GoToArgs{StepID: "workflow:beta/publish"})
	testkit.Need(t, err == nil && r.BeginStep.StepID == "write" && len(r.Stack) == 2, "again: %s, %v", toJSON(t, r), err)
	if r, err = c.GoTo(ctx, GoToArgs{StepID: "one", SessionID: &began.BeginStep.SessionID}); err != nil || r.BeginStep.StepID != "one" {
		t.Fatalf("back: %s, %v", toJSON(t, r), err)
	}
	again := p.finish(c, `{"outputs":{"said":"hello"},"session_id":"`+began.BeginStep.SessionID+`"}`)
	testkit.Equal(t, again.BeginStep.StepID, "write", "after going back: %s", toJSON(t, again))
	srv.stop()
	c = p.open().Connect("local") // another server goes on
	p.finish(c, `{"outputs":{"page":"r.md"},"session_id":"`+again.BeginStep.SessionID+`"}`)
	testkit.Equal(t, stepOf(p.finish(c, `{"outputs":{},"session_id":"`+again.BeginStep.SessionID+`"}`).BeginStep), "last", "the end of the call")
}

// Workflows that call each other in a circle over several jobs are refused where they become too deep, and nothing moves.
func TestForms_CallsInACircle(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.job("alpha", []testStep{{id: "a"}}, map[string]string{"main": "[a, {workflow: beta/main}]"})
	p.job("beta", []testStep{{id: "b"}}, map[string]string{"main": "[{workflow: alpha/other}]"})
	p.job("alpha", []testStep{{id: "a"}}, map[string]string{"main": "[a, {workflow: beta/main}]", "other": "[{workflow: beta/main}, a]"})
	c := p.open().Connect("local")
	p.start(c, "alpha", "main")
	refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{}}`))).Err(), session.StateError, codes.TooDeep, "16")
	testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{})).Must(t).BeginStep.StepID, "a", "it has moved")
}

// A person may drop an item: the others go on, and the last one that is dropped ends the entry.
func TestForms_DroppedItem(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.job("alpha", []testStep{{id: "list", outputs: "{todo: {type: string, description: d}}"}, {id: "port", outputs: oneText}, {id: "sum"}},
		map[string]string{"main": "[list, {for_each: todo, steps: [port], at_once: 2}, sum]"})
	srv := p.open()
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	p.finish(c, `{"outputs":{"todo":"[\"a\",\"b\",\"c\"]"}}`)
	drop := func(step string) error {
		return srv.DropFor(ctx, id, step, machine.Override{Identity: "me", Channel: session.ChannelTerminal, Reason: "obsolete"})
	}
	refused(t, drop("port[9]"), session.StateError, codes.StepNotCurrent)
	testkit.Must(t, drop("port[0]"))
	refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{"said":"x"},"step_id":"port[0]"}`))).Err(), session.StateError, codes.StepFinished, "obsolete")
	testkit.Equal(t, fmt.Sprint(p.finish(c, `{"outputs":{"said":"x"},"step_id":"port","item":1}`).PendingConcurrentSteps), "[port[2]]", "after an item")
	testkit.Must(t, drop("port[2]"))
	x := testkit.Get(srv.Execution(ctx, "local", id)).Must(t)
	testkit.True(t, x.Done == 4 && x.Total == 5, "%d of %d steps are done, want 4 of 5:", x.Done, x.Total)
	step, err := c.Step(ctx, StepArgs{SessionID: &id})
	testkit.True(t, err == nil && step.BeginStep.StepID == "sum", "after the last item: %s, %v", toJSON(t, step), err)
	r := p.finish(c, `{"outputs":{}}`)
	testkit.True(t, strings.Contains(toJSON(t, r.AllOutputs), `"said":[null,"x",null]`) && strings.Contains(*r.Summary, "dropped: 'port[0]' (obsolete), 'port[2]' (obsolete)"), "at the end: %s", toJSON(t, r))
}

// A program ends the rounds: it runs when the last step of a round is done, and what it says is told to the next one.
func TestForms_RepeatUntilAProgramPasses(t *testing.T) {
	t.Parallel()
	s := newScript(t, "echo three tests fail; exit 3")
	p := newProject(t)
	p.job("alpha", []testStep{{id: "look"}, {id: "fix"}, {id: "end"}},
		map[string]string{"main": fmt.Sprintf(`[{repeat: {steps: [look, fix], until: {run: [sh, %s]}, at_most: 3}}, end]`, s.path)})
	c := p.open(func(o *Options) {
		o.Reviewing = func(context.Context) (Reviewing, error) {
			return Reviewing{MaxTries: 3, ReplyWithin: time.Minute}, nil
		}
	}).Connect("local")
	began := p.start(c, "alpha", "main").BeginStep
	testkit.True(t, began.Round != nil && strings.HasSuffix(began.Round.Until, "check.sh passes"), "the first round: %s", toJSON(t, began))
	p.finish(c, `{"outputs":{}}`)
	testkit.Equal(t, s.runs(), 0, "it ran before the last step of the round")
	r := p.finish(c, `{"outputs":{}}`)
	if r.BeginStep == nil || r.BeginStep.StepID != "look" || r.BeginStep.Round.Number != 2 || !strings.Contains(r.BeginStep.Round.Failed, "exit code 3") || !strings.Contains(r.BeginStep.Round.Failed, "three tests fail") {
		t.Fatalf("the second round: %s", toJSON(t, r))
	}
	p.finish(c, `{"outputs":{}}`)
	s.says("exit 0")
	p.write("work", "changed") // else the result of the same content stands
	if r = p.finish(c, `{"outputs":{}}`); s.runs() < 2 || r.BeginStep == nil || r.BeginStep.StepID != "end" {
		t.Errorf("after it has passed, %d runs: %s", s.runs(), toJSON(t, r))
	}
	fix := p.record(began.SessionID).Progress("fix")
	testkit.True(t, fix.FailedChecks == 0 && fix.Ended != nil && fix.Ended.Passed && len(fix.Evidence.Checks) == 1, "the record of its last step: %s", toJSON(t, fix))
}

// Two calls that wait for the program at the end of a round end that round alone: the second one does not hand in for
// the next round what was made for this one.
func TestForms_TwoCallsEndOneRound(t *testing.T) {
	t.Parallel()
	s := newScript(t, "while [ -e $0.wait ]; do sleep 0.02; done; exit 3")
	testkit.Write(t, s.path+".wait", "")
	p := newProject(t)
	p.job("alpha", []testStep{{id: "fix", outputs: oneText}, {id: "end"}},
		map[string]string{"main": fmt.Sprintf(`[{repeat: {steps: [fix], until: {run: [sh, %s]}, at_most: 9}}, end]`, s.path)})
	c := p.open(func(o *Options) {
		o.Reviewing = func(context.Context) (Reviewing, error) { return Reviewing{ReplyWithin: time.Minute}, nil }
	}).Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	waiting, again := make(chan struct{}, 2), 0
	with := WithProgress(ctx, func(int, int, string) { waiting <- struct{}{} })
	var calls []chan answered
	for range 2 {
		calls = append(calls, beside(t, with, c, `{"outputs":{"said":"x"},"step_id":"fix"}`))
		<-waiting
	}
	testkit.Must(t, os.Remove(s.path+".wait"))
	for _, call := range calls {
		if x := await(t, call); x.err != nil {
			refused(t, x.err, session.StateError, "step_moved_on")
			again++
		}
	}
	testkit.True(t, again == 1 && s.runs() == 1, "%d calls are refused, and the program has run %d times", again, s.runs())
	testkit.Equal(t, len(p.record(id).History), 1, "rounds that have ended")
}

// A repeated call leads to the workflow that it has begun, over another connection, too, and the step says which it is.
func TestForms_ARepeatedCallFollowsTheWorkflowOfAStep(t *testing.T) {
	t.Parallel()
	p, srv, c, began := called(t)
	const call = `{"outputs":{"said":"hello"},"request_id":"r1"}`
	child := p.finish(c, call).BeginStep.SessionID
	c = srv.Connect("local")
	r := p.finish(c, call)
	testkit.True(t, r.BeginStep.SessionID == child && len(r.Stack) == 2 && r.Stack[1].SessionID == child, "the same call: %s", toJSON(t, r))
	testkit.Contains(t, testkit.Get(c.Step(ctx, StepArgs{SessionID: &began.BeginStep.SessionID})).Must(t).BeginStep.Instructions, "get_step with session_id '"+child+"'", "get_step")
	p.finish(c, `{"outputs":{"page":"r.md"}}`)
	const last = `{"outputs":{},"request_id":"r2","session_id":"%s"}`
	done := p.finish(c, fmt.Sprintf(last, child))
	r = p.finish(srv.Connect("local"), fmt.Sprintf(last, child))
	testkit.True(t, toJSON(t, r.BeginStep) == toJSON(t, done.BeginStep) && len(r.Stack) == 1 && r.Stack[0].Step == "last", "the last call again: %s", toJSON(t, r))
}

// When the session of a step that is a workflow was removed, go_to_step starts it again.
func TestForms_TheWorkflowOfAStepIsGone(t *testing.T) {
	p, srv, c, _ := called(t)
	p.finish(c, `{"outputs":{"said":"hello"}}`)
	testkit.Must(t, testkit.Get(c.Abort(ctx, AbortArgs{Explanation: "no"})).Err())
	_, _, err := srv.Prune(ctx, time.Now().Add(time.Hour), false)
	testkit.Must(t, err)
	refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{}}`))).Err(), session.StateError, codes.StepIsWorkflow, "is gone", "go_to_step")
	testkit.Equal(t, testkit.Get(c.GoTo(ctx, GoToArgs{StepID: "workflow:beta/publish"})).Must(t).BeginStep.StepID, "write", "again")
}

// Each item may be a workflow: its first step is shown with the item and with its own session, texts that it hands over
// stay texts, and the values of all are outputs of the entry.
func TestForms_ItemsThatAreWorkflows(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.job("beta", []testStep{{id: "write", outputs: oneText}}, map[string]string{"publish": "[write]\n    inputs: [{name: what, description: w}]"})
	p.job("alpha", []testStep{{id: "list", outputs: "{todo: {type: string, description: d}}"}, {id: "last"}},
		map[string]string{"main": "[list, {for_each: todo, steps: [{workflow: beta/publish, inputs: {what: item}}], at_once: 2}, last]"})
	srv := p.open()
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	r := p.finish(c, `{"outputs":{"todo":"[\"a\",{\"b\": 1},\"c\"]"}}`)
	if len(r.ConcurrentSteps) != 1 || r.BeginStep.SessionID == id || r.BeginStep.Item == nil || r.ConcurrentSteps[0].Item == nil || string(r.ConcurrentSteps[0].Item.Value) != `{"b": 1}` || !strings.Contains(*r.ConcurrentGroup, "session_id of its own") {
		t.Fatalf("the items: %s", toJSON(t, r))
	}
	for session, want := range map[string]string{r.BeginStep.SessionID: "a", r.ConcurrentSteps[0].SessionID: `{"b": 1}`} {
		if v, _ := p.record(session).Inputs.Get("what"); v.Text == nil || *v.Text != want {
			t.Errorf("the workflow was given %+v, want the item %s", v, want)
		}
	}
	long := strings.Repeat("long ", 2000)
	finish := func(session, said string) *machine.FinishReply {
		return p.finish(c, fmt.Sprintf(`{"outputs":{"said":%q},"session_id":"%s"}`, said, session))
	}
	second := r.ConcurrentSteps[0].SessionID
	r = finish(r.BeginStep.SessionID, long)
	testkit.Need(t, r.Status == machine.WorkflowComplete && r.BeginStep != nil && string(r.BeginStep.Item.Value) == `"c"`, "the third: %s", toJSON(t, r))
	finish(second, "two")
	srv.stop()
	c = p.open().Connect("local")
	if r = finish(r.BeginStep.SessionID, "three"); r.BeginStep == nil || r.BeginStep.StepID != "last" {
		t.Fatalf("after the items: %s", toJSON(t, r))
	}
	r = p.finish(c, `{"outputs":{}}`)
	testkit.True(t, strings.Contains(toJSON(t, r.AllOutputs), `"two","three"]`) && !strings.Contains(*r.Summary, "no longer there"), "at the end: %s", toJSON(t, r))
}

// A workflow that begins after items, and a step, are given what all of these have made: texts as a JSON list, files as
// a list of their paths, also of no items.
func TestForms_WhatItemsMadeIsGiven(t *testing.T) {
	p := newProject(t)
	p.job("beta", []testStep{{id: "write"}}, map[string]string{"publish": "[write]\n    inputs: [{name: texts, description: d}, {name: pages, type: files, description: d}, {name: first, required: false, description: d}]"})
	p.job("alpha", []testStep{{id: "list", outputs: "{todo: {type: string, description: d}, first: {type: string, description: d, required: false}}"},
		{id: "port", outputs: "{todo: {type: string, description: d}, page: {type: file, description: d}, more: {type: files, description: d, required: false}}"}, {id: "list_again", outputs: "{todo: {type: string, description: d}}"}, {id: "last"}},
		map[string]string{"main": "[list, {for_each: todo, steps: [port]}, {workflow: beta/publish, inputs: {texts: todo, pages: page, first: first}}, list_again, {for_each: todo, steps: [last]}]"})
	p.write(".deepwork/jobs/alpha/job.yml", strings.Replace(string(testkit.Get(os.ReadFile(filepath.Join(p.root, ".deepwork/jobs/alpha/job.yml"))).Must(t)), "Does last\n", "Does last\n    dependencies: [port]\n    inputs: [{file: todo, from_step: port}, {file: page, from_step: port}, {file: any, from_step: port}]\n", 1))
	c := p.open().Connect("local")
	for name, want := range map[string]struct{ todo, texts, pages, files string }{
		"two": {`[\"a\",\"b\"]`, `["one","two"]`, `["0.md","1.md"]`, `["0.md","1.md","m.md","1.md"]`},
		"no":  {"[]", "[]", "[]", "[]"},
	} {
		t.Run(name+" items", func(t *testing.T) {
			p.start(c, "alpha", "main")
			r := p.finish(c, `{"outputs":{"todo":"`+want.todo+`"}}`)
			if name == "two" {
				for i, text := range []string{"one", "two"} {
					page, more := p.write(fmt.Sprintf("%d.md", i), "x"), ""
					if i == 1 {
						more = `,"more":["` + p.write("m.md", "x") + `","1.md"]`
					}
					r = p.finish(c, fmt.Sprintf(`{"outputs":{"todo":%q,"page":%q%s},"step_id":"port[%d]"}`, text, page, more, i))
				}
			}
			testkit.Equal(t, stepOf(r.BeginStep), "write")
			given := p.record(r.BeginStep.SessionID).Inputs
			testkit.Equal(t, toJSON(t, machine.Plain(given)), `{"texts":`+toJSON(t, want.texts)+`,"pages":`+want.pages+`}`)
			p.finish(c, `{"outputs":{}}`)
			r = p.finish(c, `{"outputs":{"todo":"`+want.todo+`"}}`)
			if name != "two" {
				testkit.Equal(t, r.BeginStep, nil)
				return
			}
			in := r.BeginStep.Inputs
			testkit.Equal(t, fmt.Sprint(r.BeginStep.StepID, *in[0].Value, toJSON(t, in[1].Paths), toJSON(t, in[2].Paths)), "last[0]"+want.texts+want.pages+want.files)
		})
	}
}

// A workflow whose required input has no value does not begin, and the refusal says what helps.
func TestForms_AWorkflowWithoutARequiredInput(t *testing.T) {
	p := newProject(t)
	p.job("beta", []testStep{{id: "write"}}, map[string]string{"publish": "[write]\n    inputs: [{name: what, description: w}]"})
	p.job("alpha", []testStep{{id: "one", outputs: "{said: {type: string, description: d, required: false}}"}}, map[string]string{"main": "[one, {workflow: beta/publish, inputs: {what: said}}]"})
	c := p.open().Connect("local")
	p.start(c, "alpha", "main")
	err := testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{}}`))).Err()
	refused(t, err, session.ToolError, codes.BadInputs, "nothing has moved", "what (string)", "go_to_step", "required: false")
	testkit.True(t, !strings.Contains(err.Error(), "pass them as inputs"), "%v", err)
	testkit.Equal(t, p.finish(c, `{"outputs":{"said":"x"}}`).BeginStep.StepID, "write")
}

// A workflow that is repeated is given the newest value, also that of the round before.
func TestForms_ARepeatedWorkflowIsGivenTheLastRound(t *testing.T) {
	p := newProject(t)
	p.job("beta", []testStep{{id: "do"}}, map[string]string{"fix": "[do]\n    inputs: [{name: last, description: d}]"})
	p.job("alpha", []testStep{{id: "first", outputs: oneText}, {id: "look", outputs: oneText}, {id: "end"}},
		map[string]string{"main": "[first, {repeat: {steps: [{workflow: beta/fix, inputs: {last: said}}, look], until: {output: said, is: done}, at_most: 3}}, end]"})
	c := p.open().Connect("local")
	p.start(c, "alpha", "main")
	for _, said := range []string{"one", "two", "three"} {
		child := p.finish(c, fmt.Sprintf(`{"outputs":{"said":%q}}`, said)).BeginStep.SessionID
		testkit.Equal(t, toJSON(t, machine.Plain(p.record(child).Inputs)), fmt.Sprintf(`{"last":%q}`, said))
		p.finish(c, `{"outputs":{}}`)
	}
}

// The workflow of a step works where the session of the step does, also if a server of another folder begins it for a
// person.
func TestForms_AWorkflowOfAStepWorksInItsFolder(t *testing.T) {
	p, srv, _, _ := called(t)
	worktree := filepath.Join(p.root, "worktree")
	p.write("worktree/r.md", "x")
	there := p.open(func(o *Options) { o.Root, o.Attempt, o.Stores = worktree, "attempt-1", p.stores() })
	c := there.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	p.finish(c, `{"outputs":{"said":"hello"}}`)
	const step = "workflow:beta/publish"
	testkit.Must(t, srv.GoToFor(ctx, id, step))
	parent := testkit.Get(srv.records.Read(ctx, id, nil)).Must(t)
	child, err := srv.records.Read(ctx, parent.State.Progress(step).Child, nil)
	testkit.Need(t, err == nil && child.Row.Root == worktree && child.Row.AttemptID == "attempt-1", "the row %+v, %v", child.Row, err)
	p.finish(c, `{"outputs":{"page":"r.md"},"session_id":"`+child.Row.ID+`"}`)
	r := p.finish(c, `{"outputs":{},"session_id":"`+child.Row.ID+`"}`)
	testkit.True(t, r.BeginStep != nil && r.BeginStep.StepID == "last" && r.BeginStep.SessionID == id, "the end of the call: %s", toJSON(t, r))
}

// A command, which begins no workflows, may drop the item before a step that is one, also if that is a step of the
// workflow that called this one: reading the step begins it.
func TestForms_ACommandDropsTheItemBeforeAWorkflow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ main, last string }{
		{"[list, {for_each: todo, steps: [port]}, {workflow: beta/publish}]", "[write]"},
		{"[{workflow: alpha/last}, {workflow: beta/publish}]", "[list, {for_each: todo, steps: [port]}]"},
	} {
		p := newProject(t)
		p.job("beta", []testStep{{id: "write"}}, map[string]string{"publish": "[write]"})
		p.job("alpha", []testStep{{id: "write"}, {id: "list", outputs: "{todo: {type: string, description: d}}"}, {id: "port"}}, map[string]string{"main": c.main, "last": c.last})
		srv := p.open()
		c := srv.Connect("local")
		begun := p.start(c, "alpha", "main")
		p.finish(c, `{"outputs":{"todo":"[\"a\"]"}}`)
		testkit.Must(t, p.command(Reviewing{}).DropFor(ctx, begun.BeginStep.SessionID, "port[0]", machine.Override{Identity: "me", Reason: "obsolete"}))
		id := begun.Stack[0].SessionID
		step, err := c.Step(ctx, StepArgs{SessionID: &id})
		testkit.Need(t, err == nil && step.BeginStep.StepID == "workflow:beta/publish", "get_step: %s, %v", toJSON(t, step), err)
		child := p.record(id).Progress("workflow:beta/publish").Child
		testkit.Contains(t, step.BeginStep.Instructions, "call get_step with session_id '"+child+"'")
		if step, err = c.Step(ctx, StepArgs{SessionID: &child}); err != nil || step.BeginStep.StepID != "write" {
			t.Errorf("get_step of the workflow: %s, %v", toJSON(t, step), err)
		}
	}
}

// Exports of sessions with items in progress, and of those that are steps, are imported and go on: together, or alone.
func TestForms_ItemsAndWorkflowsOfStepsAreImported(t *testing.T) {
	t.Parallel()
	project := func() *project {
		p := newProject(t)
		p.job("beta", []testStep{{id: "write", outputs: oneText}}, map[string]string{"publish": "[write]"})
		p.job("alpha", []testStep{{id: "list", outputs: "{todo: {type: string, description: d}}"}, {id: "port"}, {id: "end"}},
			map[string]string{"main": "[list, {for_each: todo, steps: [port, {workflow: beta/publish}], at_once: 1}, end]"})
		return p
	}
	from := project()
	srv := from.open()
	c := srv.Connect("local")
	id := from.start(c, "alpha", "main").BeginStep.SessionID
	from.finish(c, `{"outputs":{"todo":"[\"a\"]"}}`)
	child := from.finish(c, `{"outputs":{}}`).BeginStep.SessionID
	srv.stop()
	for name, sessions := range map[string][]string{"both": {id, child}, "the workflow of the step": {child}, "the one that calls it": {id}} {
		t.Run(name, func(t *testing.T) {
			p := project()
			for _, of := range sessions {
				text := testkit.Get(os.ReadFile(filepath.Join(from.state().Tmp(), state.ExportName(of)))).Must(t)
				p.write(filepath.Join(".deepwork", "tmp", state.ExportName(of)), string(text))
			}
			srv := p.open()
			paths := testkit.Get(srv.Importer().All()).Must(t)
			all := testkit.Get(srv.Importer().Examine(ctx, paths)).Must(t)
			if n, err := srv.Importer().Import(ctx, all); n != len(sessions) || err != nil {
				t.Fatalf("imported %d: %v, %v", n, err, all[0].Err)
			}
			c := srv.Connect("local")
			if len(sessions) == 1 && sessions[0] == id {
				refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{},"session_id":"`+id+`"}`))).Err(), session.StateError, codes.StepIsWorkflow, "is gone", "go_to_step")
				return
			}
			r := p.finish(c, `{"outputs":{"said":"x"},"session_id":"`+child+`"}`)
			testkit.True(t, r.Status == machine.WorkflowComplete && (len(sessions) != 2 || r.BeginStep != nil && r.BeginStep.StepID == "end"), "at the end: %s", toJSON(t, r))
		})
	}
}
