package workflow_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/actor/xslices"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/connection"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/outputs"
	"deepwork/session/record"
	"deepwork/session/replies"
	. "deepwork/session/workflow"
)

// obsolete is why a person drops an item.
var obsolete = judging.Override{Identity: "me", Channel: session.ChannelTerminal, Reason: "obsolete"}

// Items are done as members of a group, as many at once as the form says, each in the order of its steps.
// Others are not known.
func TestForms_ForEach(t *testing.T) {
	p := newProject(t).alpha("[list, {for_each: todo, steps: [port, verify], at_once: 2, max_items: 3}, sum]",
		testStep{id: "list", outputs: "{todo: {type: file, description: d}}"},
		testStep{id: "port", outputs: "{out: {type: file, description: d}}"}, testStep{id: "verify"},
		testStep{id: "sum"})
	_, c, id := p.begin()
	r := p.finish(c, `{"outputs":{"todo":"`+p.write("list.json", `["a", {"b": 1}, "c"]`)+`"}}`)
	testkit.Equal(t, r.BeginStep.StepID, "port[0]", "begin_step %s", toJSON(t, r.BeginStep))
	testkit.Equal(t, string(r.BeginStep.Item.Value), `"a"`, "begin_step %s", toJSON(t, r.BeginStep))
	testkit.Equal(t, r.BeginStep.Item.Count, 3, "begin_step %s", toJSON(t, r.BeginStep))
	testkit.Equal(t, r.BeginStep.Instructions, "Do port.\n", "begin_step %s", toJSON(t, r.BeginStep))
	testkit.Need(t, len(r.ConcurrentSteps) == 1, "concurrent_steps %s", toJSON(t, r.ConcurrentSteps))
	testkit.Equal(t, r.ConcurrentSteps[0].StepID, "port[1]", "concurrent_steps %s", toJSON(t, r.ConcurrentSteps))
	testkit.Equal(t, string(r.ConcurrentSteps[0].Item.Value), `{"b": 1}`, "concurrent_steps %s",
		toJSON(t, r.ConcurrentSteps))

	refused(t, refusal(t, c, `{"outputs":{"out":"r.md"}}`), session.StateError, codes.StepIDNeeded, "port[0]",
		"port[1]")
	for _, early := range []string{"verify[0]", "port[2]"} {
		refused(t, refusal(t, c, `{"outputs":{},"step_id":"`+early+`"}`), session.StateError, codes.StepNotCurrent,
			early, "port[1]")
	}

	refused(t, refusal(t, c, `{"outputs":{},"step_id":"port[3]"}`), session.ToolError, codes.UnknownStep,
		"each of 3 items, counted from 0, as 'port[0]'")
	refused(t, errOf(c.Step(ctx, StepArgs{StepID: new("list[0]")})), session.ToolError, codes.UnknownStep,
		"is done once")
	p.write("list.json", `["changed"]`) // after its step was finished
	for _, step := range [][2]string{{"port[1]", "verify[1]"}, {"verify[1]", "port[2]"}, {"port[0]", "verify[0]"},
		{"port[2]", "verify[2]"}, {"verify[2]", ""}} {
		out := map[bool]string{true: `{"out":"r.md"}`, false: "{}"}[strings.HasPrefix(step[0], "port")]
		r = p.finish(c, `{"outputs":`+out+`,"step_id":"`+step[0]+`"}`)
		testkit.True(t, stepOf(r.BeginStep) == step[1] && len(r.ConcurrentSteps) == 0, "after %s: %s", step[0],
			toJSON(t, r))
	}
	testkit.Equal(t, fmt.Sprint(r.PendingConcurrentSteps), "[verify[0]]", "before the last")
	step := testkit.Get(c.Step(ctx, StepArgs{SessionID: &id})).Must(t)
	testkit.True(t, step.BeginStep.StepID == "verify[0]" && len(step.ConcurrentSteps) == 0, "get_step: %s",
		toJSON(t, step))
	testkit.Equal(t, toJSON(t, step.CompletedSteps),
		`[{"step_id":"list","outputs":{"todo":"list.json"}},{"step_id":"port","items":"3 of 3","outputs":{}},`+
			`{"step_id":"verify","items":"2 of 3","outputs":{}}]`)
	testkit.Equal(t, stepOf(p.finish(c, `{"outputs":{}}`).BeginStep), "sum", "after the last item")
	testkit.Equal(t, toJSON(t, p.finish(c, `{"outputs":{}}`).AllOutputs),
		`{"todo":"list.json","out":["r.md","r.md","r.md"]}`, "at the end")
}

// What is not a list is refused, null too, of which no item would be made; an empty list is one, however it
// is handed in.
func TestForms_NoList(t *testing.T) {
	p := newProject(t).alpha("[list, {for_each: todo, steps: [port]}, {for_each: more, steps: [read]}, end]",
		testStep{
			id: "list",
			outputs: "{todo: {type: string, description: d, required: false}, more: {type: files, description: d, " +
				"required: false}}",
		}, testStep{id: "port"}, testStep{id: "read"}, testStep{id: "end"})
	_, c, _ := p.begin()
	for _, list := range []string{"null", "", `{"a":1}`, "[1]", `["a"] b`,
		"[" + strings.Repeat(`{"a":`, 3000) + "1" + strings.Repeat("}", 3000) + "]"} {
		refused(t, refusal(t, c, `{"outputs":{"todo":`+toJSON(t, list)+`}}`), session.ToolError, codes.BadList, "todo")
	}
	testkit.Equal(t, p.finish(c, `{"outputs":{"todo":" []","more":[]}}`).BeginStep.StepID, "end", "after empty lists")
}

// Many items are shown in pages, and their replies do not grow with their number.
func TestForms_PagesOfItems(t *testing.T) {
	p := newProject(t).alpha("[list, {for_each: todo, steps: [port], at_once: 50}]",
		testStep{id: "list", outputs: "{todo: {type: files, description: d}}"}, testStep{id: "port"})
	var paths []string
	for i := range 70 {
		paths = append(paths, p.write(fmt.Sprintf("f%d", i), "x"))
	}
	_, c, _ := p.begin()
	r := p.finish(c, `{"outputs":{"todo":`+toJSON(t, paths)+`}}`)
	testkit.Equal(t, len(r.ConcurrentSteps), machine.ShownItems-1, "others shown")

	var seen []string
	for cursor, more := (*string)(nil), true; more; {
		step := testkit.Get(c.Step(ctx, StepArgs{Cursor: cursor})).Must(t)
		for _, o := range append([]replies.StepInfo{*step.BeginStep}, step.ConcurrentSteps...) {
			seen = append(seen, o.StepID)
		}
		cursor, more = step.NextCursor, step.NextCursor != nil
	}
	testkit.True(t, len(seen) == 50 && seen[49] == "port[49]", "get_step shows %v", seen)

	refused(t, errOf(c.Step(ctx, StepArgs{Cursor: new("99")})), session.ToolError, codes.BadCursor)
	for i := range 70 {
		call := fmt.Sprintf(`{"outputs":{},"step_id":"port[%d]"}`, i)
		r = p.finish(c, call)
		testkit.Equal(t, toJSON(t, p.finish(c, call)), toJSON(t, r), "the same call")
	}
	testkit.Equal(t, r.Status, replies.WorkflowComplete, "at the end: %s", toJSON(t, r))
}

// Steps are repeated until the condition holds; after the last round a person says how the workflow goes on.
func TestForms_Repeat(t *testing.T) {
	p := newProject(t).alpha(`[{repeat: {steps: [look, fix], until: {output: said, is: done}, at_most: 2}}, end]`,
		testStep{id: "look"}, testStep{id: "fix", outputs: oneText}, testStep{id: "end"})
	srv := p.open()
	c := srv.Connect("local")
	began := p.start(c, "alpha", "main").BeginStep
	testkit.Same(t, began.Round, &replies.Round{Number: 1, AtMost: 2, Until: `output said is "done"`},
		"the first round")

	const broken = `{"outputs":{"said":"broken"}}`
	p.finish(c, `{"outputs":{}}`)
	r := p.finish(c, broken)
	testkit.Equal(t, stepOf(r.BeginStep), "look", "the second round: %s", toJSON(t, r))
	testkit.Equal(t, r.BeginStep.Round.Number, 2, "the second round: %s", toJSON(t, r))
	testkit.Contains(t, r.BeginStep.Round.Failed, `"broken"`, "the second round: %s", toJSON(t, r))
	says(t, r, replies.NextStep, "Round 2 of 2")
	testkit.Same(t, p.record(began.SessionID).Faults(), nil, "what deepwork check would find")
	p.finish(c, `{"outputs":{}}`)
	testkit.Equal(t, testkit.Get(c.GoTo(ctx, GoToArgs{StepID: "look"})).Must(t).BeginStep.Round.Number, 2,
		"back in the round")
	p.finish(c, `{"outputs":{}}`)
	id := began.SessionID
	asks := func(round string) {
		t.Helper()
		for range 2 { // a repeated call is a try no more than the first one
			r := p.finish(c, broken)
			says(t, r, replies.NeedsWork, "Waiting: a person must say how to go on after step 'fix'",
				round+" is over, and it does not hold that", "`deepwork sessions review "+id+" fix`")
			testkit.Equal(t, r.Waiting().Code, codes.PersonAwaited)
		}
		p.awaiting(srv, Reviewing{}, id+" fix")
	}
	answer := func(passed bool, words string) error {
		return p.atTerminal(id, "fix", p.question(id, "fix").Content, passed, words)
	}

	asks("round 2 of 2")
	refused(t, answer(true, ""), session.ToolError, codes.ReasonNeeded, "although round 2 of 2")
	testkit.Must(t, answer(false, "Look closer"))
	refused(t, answer(true, "Enough"), session.StateError, codes.PersonAnswered, "one more round")
	p.awaiting(srv, Reviewing{})
	r = p.finish(c, broken)
	says(t, r, replies.NextStep, "Round 3 of 3")
	testkit.Equal(t, stepOf(r.BeginStep), "look", "one more round: %s", toJSON(t, r))
	testkit.Equal(t, r.BeginStep.Round.Failed,
		`The text was "broken". A person (local, terminal) asks for one more round. Look closer`)
	testkit.Same(t, p.record(id).Faults(), nil, "what deepwork check would find")

	p.finish(c, `{"outputs":{}}`)
	asks("round 3 of 3")
	testkit.Must(t, answer(true, "good enough"))
	r = p.finish(c, broken)
	testkit.Equal(t, stepOf(r.BeginStep), "end", "after a person's word")
	testkit.Contains(t, *r.Notice, "A person (local, terminal) lets it go on after the last round: good enough")
	s := p.record(id)
	testkit.Same(t, s.Faults(), nil, "what deepwork check would find")
	fix := s.Progress("fix")
	testkit.Equal(t, len(s.History), 3, "withdrawals")
	testkit.Need(t, len(fix.Overrides) == 1, "overrides: %s", toJSON(t, fix.Overrides))
	testkit.Equal(t, fix.Overrides[0].Reason+" of "+fix.Overrides[0].Identity, "good enough of local")
	testkit.Equal(t, fix.FinishedWith().Why()[0].Kind, judging.OnRounds)
	testkit.Equal(t, fix.QualityTries, 0, "tries")

	p.finish(c, `{"outputs":{}}`)
	p.start(c, "alpha", "main")
	p.finish(c, `{"outputs":{}}`)
	testkit.Equal(t, stepOf(p.finish(c, `{"outputs":{"said":"done"}}`).BeginStep), "end", "done in the first round")
}

// The client of a call may ask its user how to go on after the last round.
func TestForms_AClientIsAskedAboutRounds(t *testing.T) {
	for words, says := range map[string]string{
		"Good enough": "end",
		"":            "did not count: ToolError: Say why it goes on",
	} {
		p := newProject(t).alpha(`[{repeat: {steps: [fix], until: {output: said, is: done}, at_most: 1}}, end]`,
			testStep{id: "fix", outputs: oneText}, testStep{id: "end"})
		_, c, id := p.begin(reviewing(&Reviewing{MaxTries: 3, ReplyWithin: time.Minute}))
		var asked string
		r := testkit.Get(c.Finish(asking(func(_ context.Context, question string) (*machine.Answer, bool) {
			asked = question
			return &machine.Answer{Passed: true, Feedback: words}, false
		}), finishArgs(t, hello))).Must(t)
		testkit.ContainsAll(t, asked,
			[]string{"round 1 of 1 is over", "Do you let step 'fix' go on as it is", "| hello"})
		testkit.Contains(t, toJSON(t, r), says)
		testkit.Equal(t, len(p.record(id).Progress("fix").Overrides), map[bool]int{true: 1}[words != ""])
	}
}

// A condition is about what the last step that has the output handed in: left out there, it is the empty
// text, whatever an earlier step handed in.
func TestForms_LeftOutIsEmpty(t *testing.T) {
	said, p := "{said: {type: string, description: d, required: false}}", newProject(t)
	p.job("alpha", []testStep{{id: "one", outputs: said}, {id: "two", outputs: said}, {id: "more"}, {id: "end"}},
		map[string]string{
			"chosen": `[one, two, {when: {output: said, is: done}, steps: [more]}, end]`,
			"rounds": `[{repeat: {steps: [one, two], until: {output: said, is: done}, at_most: 2}}, end]`})
	c := p.open().Connect("local")
	for flow, next := range map[string]string{"chosen": "end", "rounds": "one"} {
		p.start(c, "alpha", flow)
		p.finish(c, `{"outputs":{"said":"done"}}`)
		testkit.Equal(t, p.finish(c, `{"outputs":{}}`).BeginStep.StepID, next, flow)
	}
}

func (p *project) beta(outputs, workflow, more string) {
	p.job("beta", []testStep{{id: "write", outputs: outputs}}, map[string]string{workflow: "[write]" + more})
}

// called makes a project whose workflow main has a workflow as its second step, and starts it.
func called(t *testing.T) (*project, *server, *Conn, string) {
	p := newProject(t).alpha("[one, {workflow: beta/publish}, last]", testStep{id: "one", outputs: oneText},
		testStep{id: "last"})
	p.job("beta", []testStep{{id: "write", outputs: "{page: {type: file, description: d}}"}, {id: "check"}},
		map[string]string{"publish": "[write, check]"})
	srv, c, id := p.begin()
	return p, srv, c, id
}

const hello = `{"outputs":{"said":"hello"}}`

// A workflow is a step: its session begins with the transition that reaches it, and its caller goes on with its end.
func TestForms_WorkflowAsStep(t *testing.T) {
	p, srv, c, id := called(t)
	r := p.finish(c, hello)
	testkit.Need(t, stepOf(r.BeginStep) == "write", "the call: %s", toJSON(t, r))
	testkit.Need(t, r.BeginStep.SessionID != id, "the call: %s", toJSON(t, r))
	testkit.Need(t, len(r.Stack) == 2, "the call: %s", toJSON(t, r))
	testkit.Need(t, r.Stack[1].SessionID == r.BeginStep.SessionID, "the call: %s", toJSON(t, r))
	testkit.Need(t, r.Stack[0].Step == "workflow:beta/publish", "the call: %s", toJSON(t, r))

	refused(t, refusal(t, c, `{"outputs":{},"session_id":"`+id+`"}`), session.StateError, codes.StepIsWorkflow,
		r.BeginStep.SessionID, "'write'")
	p.finish(c, `{"outputs":{"page":"r.md"}}`)
	r = p.finish(c, `{"outputs":{}}`)
	testkit.Equal(t, r.Status, replies.WorkflowComplete, "the end of the call: %s", toJSON(t, r))
	testkit.Equal(t, toJSON(t, r.AllOutputs), `{"page":"r.md"}`, "the end of the call: %s", toJSON(t, r))
	testkit.Equal(t, *r.ResumedWorkflow, "alpha/main", "the end of the call: %s", toJSON(t, r))
	testkit.Equal(t, *r.ResumedStep, "last", "the end of the call: %s", toJSON(t, r))
	testkit.Equal(t, stepOf(r.BeginStep), "last", "the end of the call: %s", toJSON(t, r))
	testkit.Equal(t, r.BeginStep.SessionID, id, "the end of the call: %s", toJSON(t, r))
	testkit.Equal(t, len(r.Stack), 1, "the end of the call: %s", toJSON(t, r))
	testkit.Equal(t, toJSON(t, p.finish(c, `{"outputs":{}}`).AllOutputs), `{"said":"hello","page":"r.md"}`, "the end")
	testkit.Equal(t, srv.Stats().Figures, record.Figures{Started: 2, Completed: 2, Steps: 5}, "what is counted")

	for _, c := range []*Conn{srv.Connect("ann"), srv.ConnectStateless("bob")} {
		p.start(c, "alpha", "main")
		testkit.Equal(t, toJSON(t, p.finish(c, hello).BeginStep),
			toJSON(t, p.finish(c, `{"outputs":{"said":"hello"},"step_id":"one"}`).BeginStep),
			"a call whose reply was lost")
	}
}

// The workflow that calls another one follows the edits made meanwhile as in any other call: none drops a
// check, and one that is taken back is.
func TestForms_TheCallerIsEditedMeanwhile(t *testing.T) {
	p := newProject(t)
	p.beta("", "publish", "")
	write := func(rest string) {
		p.alpha("[{workflow: beta/publish}, "+rest+"]", testStep{
			id:     "guard",
			checks: "[" + newScript(t, "exit 1").yaml("") + "]",
		}, testStep{id: "mid"}, testStep{id: "added"}, testStep{id: "last"})
	}
	write("mid, last")
	srv, c, _ := p.begin()
	write("mid, added, last")
	testkit.Equal(t, stepOf(p.finish(c, `{"outputs":{}}`).BeginStep), "mid")
	write("mid, last")
	testkit.Equal(t, stepOf(p.finish(c, `{"outputs":{}}`).BeginStep), "last", "after the edit was taken back")
	write("guard, last")
	c = srv.Connect("local")
	p.start(c, "alpha", "main")
	write("last")
	testkit.Equal(t, stepOf(p.finish(c, `{"outputs":{}}`).BeginStep), "guard", "after an edit that drops a check")
}

// A workflow whose caller was removed before it ended goes on, also to one that is its own step, of whose
// group the reply has all.
func TestForms_TheCallerIsRemoved(t *testing.T) {
	p := newProject(t)
	p.job("alpha", []testStep{{id: "one"}, {id: "last"}},
		map[string]string{"main": "[{workflow: inner}]", "inner": "[one, {workflow: leaf}]", "leaf": "[[one, last]]"})
	srv := p.open()
	r, disk := p.start(srv.Connect("local"), "alpha", "main"), srv.makeFaulty()
	disk.during.Store(new(func() { disk.full.Store(&errNoSpace) }))
	testkit.Must(t, srv.AbortFor(ctx, r.Stack[0].SessionID, "no"))
	srv.stop()
	srv = p.open()
	_, _, err := srv.Prune(ctx, time.Now().Add(time.Hour), false)
	testkit.Must(t, err)
	leaf := p.finish(srv.Connect("local"), `{"outputs":{},"session_id":"`+r.BeginStep.SessionID+`"}`)
	testkit.Equal(t, stepOf(leaf.BeginStep), "one", "its steps: %s", toJSON(t, leaf))
	testkit.Need(t, len(leaf.ConcurrentSteps) == 1, "its steps: %s", toJSON(t, leaf))
	testkit.Equal(t, leaf.ConcurrentSteps[0].StepID, "last", "its steps: %s", toJSON(t, leaf))
	testkit.True(t, leaf.ConcurrentGroup != nil, "its steps: %s", toJSON(t, leaf))
}

// A complete workflow that its caller has yet to take over, here since a person has to let that go on, is not
// removed as old.
func TestForms_AnAwaitedWorkflowIsNotPruned(t *testing.T) {
	p := newProject(t).alpha("[{repeat: {steps: [one, {workflow: beta/publish}], until: {output: said, is: yes}, "+
		"at_most: 1}}, last]", testStep{id: "one", outputs: oneText}, testStep{id: "last"})
	p.beta("{page: {type: file, description: d}}", "publish", "")
	srv, c, _ := p.begin()
	p.finish(c, hello)
	notice := toJSON(t, p.finish(c, `{"outputs":{"page":"r.md"}}`).Notice)
	testkit.Must(t, os.Remove(filepath.Join(p.root, "r.md")))
	testkit.True(t, strings.Contains(notice, "waits for a person") && !strings.Contains(notice, "sessions override"),
		"a command that finds nothing to override yet: %s", notice)

	id := stackOf(t, c)[0].SessionID
	testkit.Contains(t, testkit.Get(c.Step(ctx, StepArgs{})).Must(t).BeginStep.Instructions,
		"is completed, call finished_step with step_id 'workflow:beta/publish'")

	says(t, p.finish(c, `{"outputs":{}}`), replies.NeedsWork, "sessions review "+id+" workflow:beta/publish`")
	old, _, err := srv.Prune(ctx, time.Now().Add(time.Hour), false)
	testkit.True(t, err == nil && old == nil, "removed %v, %v", old, err)
	testkit.Must(t, p.atTerminal(id, "workflow:beta/publish",
		p.question(id, "workflow:beta/publish").Content, false, ""))
	testkit.Equal(t, stepOf(p.finish(c, `{"outputs":{}}`).BeginStep), "one", "one more round")
}

// When the workflow of a step is aborted, the one that calls it stands before that step, and says what can be done.
func TestForms_AbortedWorkflowOfAStep(t *testing.T) {
	p, srv, c, id := called(t)
	child, r := p.finish(c, hello).BeginStep.SessionID, testkit.Get(c.Abort(ctx, AbortArgs{Explanation: "no"})).Must(t)
	testkit.True(t, *r.ResumedStep == "workflow:beta/publish" && strings.Contains(*r.Notice, "session '"+id+"'"),
		"reply %s", toJSON(t, r))
	refused(t, errOf(c.Step(ctx, StepArgs{SessionID: &child})), session.StateError, codes.SessionEnded,
		"step 'workflow:beta/publish' of session '"+id+"'.", "call get_step with session_id: "+id)
	refused(t, refusal(t, c, `{"outputs":{}}`), session.StateError, codes.StepIsWorkflow, "was aborted", "go_to_step")
	goTo := func() *replies.GoTo {
		return testkit.Get(c.GoTo(ctx, GoToArgs{StepID: "workflow:beta/publish", SessionID: &id})).Must(t)
	}
	for range 20 { // each takes the place of the last
		testkit.Equal(t, len(goTo().Stack), 2, "again")
	}

	testkit.Must(t, errOf(c.Abort(ctx, AbortArgs{Explanation: "no"})))
	_, _, err := srv.Prune(ctx, time.Now().Add(time.Hour), false)
	testkit.Must(t, err)
	refused(t, refusal(t, c, `{"outputs":{}}`), session.StateError, codes.StepIsWorkflow, "is gone", "go_to_step")
	testkit.Equal(t, goTo().BeginStep.StepID, "write", "after it was removed")
	testkit.Equal(t, testkit.Get(c.GoTo(ctx, GoToArgs{StepID: "one", SessionID: &id})).Must(t).BeginStep.StepID,
		"one", "back")

	begun := p.finish(c, `{"outputs":{"said":"hello"},"session_id":"`+id+`"}`).BeginStep
	srv.stop()
	c = p.open().Connect("local") // another server goes on
	p.finish(c, `{"outputs":{"page":"r.md"},"session_id":"`+begun.SessionID+`"}`)
	testkit.Equal(t, stepOf(p.finish(c, `{"outputs":{},"session_id":"`+begun.SessionID+`"}`).BeginStep), "last",
		"the end of the call")
	testkit.True(t, len(goTo().Stack) == 2 &&
		len(testkit.Get(c.Abort(ctx, AbortArgs{Explanation: "no", SessionID: &id})).Must(t).Stack) == 0, "its stack")

	for range 20 { // a command that aborts the one that calls it ends after that, too
		c := p.open().Connect("local")
		id, child := p.start(c, "alpha", "main").BeginStep.SessionID, p.finish(c, hello).BeginStep.SessionID
		command := p.command(Reviewing{})
		testkit.Must(t, command.AbortFor(ctx, id, "no"))
		testkit.True(t, command.Close(ctx) == nil && p.record(child).Status == machine.Aborted, "after a command")
	}
}

func TestForms_CallsInACircle(t *testing.T) {
	p := newProject(t).alpha("[a, {workflow: beta/main}]", testStep{id: "a"})
	p.job("beta", []testStep{{id: "b"}}, map[string]string{"main": "[{workflow: alpha/other}]"})
	p.job("alpha", []testStep{{id: "a"}},
		map[string]string{"main": "[a, {workflow: beta/main}]", "other": "[{workflow: beta/main}, a]"})
	_, c, _ := p.begin()
	refused(t, refusal(t, c, `{"outputs":{}}`), session.StateError, codes.TooDeep, "16")
	testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{})).Must(t).BeginStep.StepID, "a", "it has moved")
}

// A person may drop an item: the others go on, and the last one that is dropped ends the entry.
func TestForms_DroppedItem(t *testing.T) {
	p := newProject(t).alpha("[list, {for_each: todo, steps: [port], at_once: 2}, sum]",
		testStep{id: "list", outputs: oneList}, testStep{id: "port", outputs: oneText}, testStep{id: "sum"})
	srv, c, id := p.begin()
	p.finish(c, `{"outputs":{"todo":"[\"a\",\"b\",\"c\"]"}}`)
	refused(t, srv.DropFor(ctx, id, "port[9]", obsolete), session.StateError, codes.StepNotCurrent)
	testkit.Must(t, srv.DropFor(ctx, id, "port[0]", obsolete))
	refused(t, refusal(t, c, `{"outputs":{"said":"x"},"step_id":"port[0]"}`), session.StateError, codes.StepFinished,
		"obsolete")
	testkit.Equal(t, fmt.Sprint(p.finish(c,
		`{"outputs":{"said":"x"},"step_id":"port","item":1}`).PendingConcurrentSteps), "[port[2]]", "after an item")
	p.alpha("[list, {for_each: todo, steps: [port], at_once: 2}, added, sum]", testStep{id: "list", outputs: oneList},
		testStep{id: "port", outputs: oneText}, testStep{id: "added"}, testStep{id: "sum"})
	testkit.Must(t, srv.DropFor(ctx, id, "port[2]", obsolete))
	testkit.Same(t, testkit.Get(srv.Inspect(ctx)).Must(t).Findings, nil,
		"of a session whose step has come with an edit")
	x := testkit.Get(srv.Progress(ctx, "local", id)).Must(t)
	testkit.Equal(t, fmt.Sprint(x.Done, " of ", x.Total), "4 of 6", "steps that are done")
	testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{SessionID: &id})).Must(t).BeginStep.StepID, "added",
		"after the last item")

	p.finish(c, `{"outputs":{}}`)
	r := p.finish(c, `{"outputs":{}}`)
	testkit.ContainsAll(t, toJSON(t, r.AllOutputs)+*r.Summary,
		[]string{`"said":[null,"x",null]`, "dropped: 'port[0]' (obsolete), 'port[2]' (obsolete)"})
}

// Steps with checks that have had their turn, as items or since a condition does not hold, keep no later edit
// away. One that drops a check is kept away, also from a step that came with it, and one that renames the
// step which made the items while they are done.
func TestForms_EditsAfterStepsWithChecks(t *testing.T) {
	guard := testStep{id: "guard", checks: "[" + newScript(t, "exit 0").yaml("") + "]"}
	others := []testStep{{id: "look", outputs: oneText}, {id: "added"}, {id: "last"}}
	how := reviewing(&Reviewing{ReplyWithin: patience})
	for form, said := range map[string]string{
		"{for_each: said, steps: [guard]}":                `["a"]`,
		"{when: {output: said, is: yes}, steps: [guard]}": "no",
	} {
		p := newProject(t).alpha("[look, "+form+", last]", append(others, guard)...)
		_, c, _ := p.begin(how)
		p.alpha("[look, "+form+", added, last]", append(others, guard)...)
		r := p.finish(c, `{"outputs":{"said":`+toJSON(t, said)+`}}`)
		if stepOf(r.BeginStep) == "guard[0]" {
			p.alpha("[seen, "+form+", last]", append(others[1:], guard, testStep{id: "seen", outputs: oneText})...)
			r = p.finish(c, `{"outputs":{}}`)
		}
		testkit.Equal(t, stepOf(r.BeginStep), "added", form)
		testkit.Equal(t, stepOf(p.finish(c, `{"outputs":{}}`).BeginStep), "last", form)
	}
	p := newProject(t).alpha("[guard, last]", append(others, guard)...)
	_, c, _ := p.begin(how)
	p.finish(c, `{"outputs":{}}`)
	p.alpha("[added, guard, last]", append(others, testStep{id: "guard"})...)
	testkit.Must(t, errOf(c.GoTo(ctx, GoToArgs{StepID: "added"})))
	refused(t, errOf(c.Step(ctx, StepArgs{})), session.StateError, codes.DefinitionLost, "restore those")
}

// repeating makes a project whose first steps are repeated until a program passes, and starts it.
func repeating(t *testing.T, s *script, steps ...testStep) (*project, *Conn, *replies.StepInfo) {
	p, ids := newProject(t), xslices.Map(steps, func(st testStep) string { return st.id })
	p.alpha(fmt.Sprintf(`[{repeat: {steps: [%s], until: {run: [sh, %s]}, at_most: 9}}, end]`, strings.Join(ids, ", "),
		s.path), append(steps, testStep{id: "end"})...)
	c := p.open(reviewing(&Reviewing{MaxTries: 3, ReplyWithin: time.Minute})).Connect("local")
	return p, c, p.start(c, "alpha", "main").BeginStep
}

// A program ends the rounds: it runs when the last step of a round is done, and what it says is told to the next one.
func TestForms_RepeatUntilAProgramPasses(t *testing.T) {
	s := newScript(t, "echo three tests fail; exit 3")
	p, c, began := repeating(t, s, testStep{id: "look"}, testStep{id: "fix"})
	testkit.True(t, began.Round != nil && strings.HasSuffix(began.Round.Until, "check.sh passes"),
		"the first round: %s", toJSON(t, began))

	p.finish(c, `{"outputs":{}}`)
	testkit.Equal(t, s.runs(), 0, "it ran before the last step of the round")
	r := p.finish(c, `{"outputs":{}}`)
	testkit.Need(t, stepOf(r.BeginStep) == "look" && r.BeginStep.Round.Number == 2, "the second round: %s",
		toJSON(t, r))
	testkit.ContainsAll(t, r.BeginStep.Round.Failed, []string{"exit code 3", "three tests fail"})
	p.finish(c, `{"outputs":{}}`)
	s.says("exit 0")
	p.write("work", "changed") // else the result of the same content stands
	testkit.Equal(t, stepOf(p.finish(c, `{"outputs":{}}`).BeginStep), "end", "after it has passed")

	fix := p.record(began.SessionID).Progress("fix")
	testkit.True(t, s.runs() >= 2, "%d runs, the record of its last step: %s", s.runs(),
		toJSON(t, fix))
	testkit.Equal(t, fix.FailedChecks, 0, "%d runs, the record of its last step: %s", s.runs(),
		toJSON(t, fix))
	testkit.Need(t, fix.Ended != nil, "%d runs, the record of its last step: %s", s.runs(),
		toJSON(t, fix))
	testkit.True(t, fix.Ended.Passed, "%d runs, the record of its last step: %s", s.runs(),
		toJSON(t, fix))
	testkit.Equal(t, len(fix.FinishedWith().All(judging.ByProgram)), 1, "%d runs, the record of its last step: %s",
		s.runs(), toJSON(t, fix))
}

// A person who lets a workflow go on after the last round does so for the outputs that they were shown.
func TestForms_OverrideAfterTheLastRound(t *testing.T) {
	p := newProject(t).alpha("[{repeat: {steps: [fix], until: {run: [sh, "+newScript(t, "exit 3").path+
		"]}, at_most: 1}}, end]", testStep{id: "fix", outputs: oneFile}, testStep{id: "end"})
	srv, c, id := p.begin(reviewing(&Reviewing{MaxTries: 3, ReplyWithin: time.Minute}))
	const call = `{"outputs":{"report":"r.md"}}`
	says(t, p.finish(c, call), replies.NeedsWork, "round 1 of 1 is over")
	given, _ := GivenFor(p.record(id), "fix")
	testkit.Must(t, srv.OverrideFor(ctx, id, "fix",
		judging.Override{Identity: "me", Channel: session.ChannelTerminal, Reason: "good enough", GivenFor: given}))
	p.write("r.md", "other")
	says(t, p.finish(c, call), replies.NeedsWork, "round 1 of 1 is over")
	p.write("r.md", "x")
	testkit.Equal(t, stepOf(p.finish(c, call).BeginStep), "end")
}

// Of two calls that wait for the program at the end of a round, the second one does not hand in for the next
// round what was made for this one.
func TestForms_TwoCallsEndOneRound(t *testing.T) {
	s := newScript(t, "while [ -e $0.wait ]; do sleep 0.02; done; exit 3")
	testkit.Write(t, s.path+".wait", "")
	p, c, began := repeating(t, s, testStep{id: "fix", outputs: oneText})
	waiting, again := make(chan struct{}, 2), 0
	with := connection.WithProgress(ctx, func(int, int, string) { waiting <- struct{}{} })
	var calls []chan answered
	for range 2 {
		calls = append(calls, beside(t, with, c, `{"outputs":{"said":"x"},"step_id":"fix"}`))
		<-waiting
	}

	testkit.Must(t, os.Remove(s.path+".wait"))
	for _, call := range calls {
		if x := <-call; x.err != nil {
			refused(t, x.err, session.StateError, "step_moved_on")
			again++
		}
	}
	testkit.True(t, again == 1 && s.runs() == 1, "%d calls are refused, and the program has run %d times",
		again, s.runs())
	testkit.Equal(t, len(p.record(began.SessionID).History), 1, "rounds that have ended")
}

// A repeated call leads to the workflow that it has begun, over another connection, too, and the step says which it is.
func TestForms_ARepeatedCallFollowsTheWorkflowOfAStep(t *testing.T) {
	p, srv, c, id := called(t)
	const call = `{"outputs":{"said":"hello"},"request_id":"r1"}`
	child := p.finish(c, call).BeginStep.SessionID
	c = srv.Connect("local")
	r := p.finish(c, call)
	testkit.Equal(t, r.BeginStep.SessionID, child, "the same call: %s", toJSON(t, r))
	testkit.Need(t, len(r.Stack) == 2, "the same call: %s", toJSON(t, r))
	testkit.Equal(t, r.Stack[1].SessionID, child, "the same call: %s", toJSON(t, r))
	testkit.Contains(t, testkit.Get(c.Step(ctx, StepArgs{SessionID: &id})).Must(t).BeginStep.Instructions,
		"get_step with session_id '"+child+"'", "get_step")

	p.finish(c, `{"outputs":{"page":"r.md"}}`)
	last := `{"outputs":{},"request_id":"r2","session_id":"` + child + `"}`
	done := p.finish(c, last)
	r = p.finish(srv.Connect("local"), last)
	testkit.Equal(t, toJSON(t, r.BeginStep), toJSON(t, done.BeginStep), "the last call again: %s", toJSON(t, r))
	testkit.Need(t, len(r.Stack) == 1, "the last call again: %s", toJSON(t, r))
	testkit.Equal(t, r.Stack[0].Step, "last", "the last call again: %s", toJSON(t, r))
}

// Each item may be a workflow, whose first step is shown with both: texts it hands over stay texts, and the
// values of all are outputs of the entry. One whose conditions leave nothing to do is complete at once, so
// that the next call finishes its step.
func TestForms_ItemsThatAreWorkflows(t *testing.T) {
	p := newProject(t).alpha("[list, {for_each: todo, steps: [{workflow: beta/publish, inputs: {what: item}}], "+
		"at_once: 2}, last]", testStep{id: "list", outputs: oneList}, testStep{id: "last"})
	p.job("beta", []testStep{{id: "write", outputs: oneText}},
		map[string]string{"publish": "[{when: {input: what, is_not: c}, steps: [write]}]\n    inputs: [{name: what, " +
			"description: w}]"})
	srv, c, id := p.begin()
	r := p.finish(c, `{"outputs":{"todo":"[\"a\",{\"b\": 1},\"c\"]"}}`)
	testkit.Need(t, len(r.ConcurrentSteps) == 1, "the items: %s", toJSON(t, r))
	testkit.Need(t, r.BeginStep.SessionID != id, "the items: %s", toJSON(t, r))
	testkit.Need(t, r.BeginStep.Item != nil, "the items: %s", toJSON(t, r))
	testkit.Need(t, r.ConcurrentSteps[0].Item != nil, "the items: %s", toJSON(t, r))
	testkit.Need(t, string(r.ConcurrentSteps[0].Item.Value) == `{"b": 1}`, "the items: %s", toJSON(t, r))
	testkit.Contains(t, *r.ConcurrentGroup, "session_id of its own")

	for session, want := range map[string]string{
		r.BeginStep.SessionID:          "a",
		r.ConcurrentSteps[0].SessionID: `{"b":1}`,
	} {
		testkit.Equal(t, toJSON(t, outputs.Plain(p.record(session).Inputs)), `{"what":`+toJSON(t, want)+`}`,
			"what the workflow was given")
	}
	finish := func(session, said string) *replies.Finish {
		return p.finish(c, fmt.Sprintf(`{"outputs":{"said":%q},"session_id":"%s"}`, said, session))
	}
	r = finish(r.BeginStep.SessionID, strings.Repeat("long ", 2000))
	testkit.Need(t, r.Status == replies.WorkflowComplete, "the third: %s", toJSON(t, r))
	testkit.Need(t, r.BeginStep != nil, "the third: %s", toJSON(t, r))
	testkit.Need(t, string(r.BeginStep.Item.Value) == `"c"`, "the third: %s", toJSON(t, r))
	testkit.Contains(t, r.BeginStep.Instructions,
		"nothing to do: call finished_step with session_id '"+id+"', step_id 'workflow:beta/publish[2]'")
	testkit.Same(t, testkit.Get(srv.Inspect(ctx)).Must(t).Findings, nil, "of one with nothing to do")
	srv.stop()
	c = p.open().Connect("local")
	second := testkit.Get(c.GoTo(ctx, GoToArgs{SessionID: &id, StepID: "workflow:beta/publish[1]"})).Must(t).
		BeginStep.SessionID
	testkit.Equal(t, toJSON(t, outputs.Plain(p.record(second).Inputs)), `{"what":"{\"b\":1}"}`,
		"the item after a restart")

	says(t, finish(second, "two"), replies.WorkflowComplete, "still needs 'workflow:beta/publish[2]'")
	testkit.Equal(t, stepOf(finish(r.BeginStep.SessionID, "three").BeginStep), "last", "after the items")
	r = p.finish(c, `{"outputs":{}}`)
	testkit.True(t, strings.Contains(toJSON(t, r.AllOutputs), `"two",null]`) &&
		!strings.Contains(*r.Summary, "no longer there"), "at the end: %s", toJSON(t, r))
}

// A workflow that begins after items, and a step, are given what all of these have made: texts as a JSON list, files as
// a list of their paths, also of no items.
func TestForms_WhatItemsMadeIsGiven(t *testing.T) {
	p := newProject(t).alpha("[list, {for_each: todo, steps: [port]}, {workflow: beta/publish, inputs: {texts: todo, "+
		"pages: page, first: first}}, list_again, {for_each: todo, steps: [last]}]",
		testStep{
			id:      "list",
			outputs: "{todo: {type: string, description: d}, first: {type: string, description: d, required: false}}",
		},
		testStep{
			id: "port",
			outputs: "{todo: {type: string, description: d}, page: {type: file, description: d}, more: {type: files, " +
				"description: d, required: false}}",
		},
		testStep{id: "list_again", outputs: oneList}, testStep{
			id: "last",
			outputs: "{}\n    dependencies: [port]\n    inputs: [{file: todo, from_step: port}, {file: page, " +
				"from_step: port}, {file: any, from_step: port}]",
		})
	p.beta("", "publish", "\n    inputs: [{name: texts, description: d}, {name: pages, type: files, description: d}, "+
		"{name: first, required: false, description: d}]")
	c := p.open().Connect("local")
	for name, want := range map[string]struct{ todo, texts, pages, files string }{
		"two": {`[\"a\",\"b\"]`, `["one","two"]`, `["0.md","1.md"]`, `["0.md","1.md","m.md","1.md"]`},
		"no":  {"[]", "[]", "[]", "[]"},
	} {
		t.Run(name+" items", func(t *testing.T) {
			p.start(c, "alpha", "main")
			r := p.finish(c, `{"outputs":{"todo":"`+want.todo+`"}}`)
			if name == "two" {
				testkit.WriteAll(t, p.root, map[string]string{"0.md": "x", "1.md": "x", "m.md": "x"})
				p.finish(c, `{"outputs":{"todo":"one","page":"0.md"},"step_id":"port[0]"}`)
				r = p.finish(c, `{"outputs":{"todo":"two","page":"1.md","more":["m.md","1.md"]},"step_id":"port[1]"}`)
			}
			testkit.Equal(t, stepOf(r.BeginStep), "write")
			testkit.Equal(t, toJSON(t, outputs.Plain(p.record(r.BeginStep.SessionID).Inputs)),
				`{"texts":`+toJSON(t, want.texts)+`,"pages":`+want.pages+`}`)
			p.finish(c, `{"outputs":{}}`)
			r = p.finish(c, `{"outputs":{"todo":"`+want.todo+`"}}`)
			if name != "two" {
				testkit.Equal(t, r.BeginStep, nil)
				return
			}
			in := r.BeginStep.Inputs
			testkit.Equal(t, fmt.Sprint(r.BeginStep.StepID, *in[0].Value, toJSON(t, in[1].Paths),
				toJSON(t, in[2].Paths)), "last[0]"+want.texts+want.pages+want.files)
		})
	}
}

// A workflow whose required input has no value does not begin, and the refusal says what helps.
func TestForms_AWorkflowWithoutARequiredInput(t *testing.T) {
	p := newProject(t).alpha("[one, {workflow: beta/publish, inputs: {what: said}}]",
		testStep{id: "one", outputs: "{said: {type: string, description: d, required: false}}"})
	p.beta("", "publish", "\n    inputs: [{name: what, description: w}]")
	_, c, _ := p.begin()
	err := refusal(t, c, `{"outputs":{}}`)
	refused(t, err, session.ToolError, codes.BadInputs, "nothing has moved", "what (string)", "go_to_step",
		"required: false")
	testkit.True(t, !strings.Contains(err.Error(), "pass them as inputs"), "%v", err)
	testkit.Equal(t, p.finish(c, hello).BeginStep.StepID, "write")
}

// A workflow that is repeated is given the newest value, also that of the round before.
func TestForms_ARepeatedWorkflowIsGivenTheLastRound(t *testing.T) {
	p := newProject(t).alpha("[first, {repeat: {steps: [{workflow: beta/fix, inputs: {last: said}}, look], until: "+
		"{output: said, is: done}, at_most: 3}}, end]",
		testStep{id: "first", outputs: oneText}, testStep{id: "look", outputs: oneText}, testStep{id: "end"})
	p.beta("", "fix", "\n    inputs: [{name: last, description: d}]")
	_, c, _ := p.begin()
	for _, said := range []string{"one", "two", "three"} {
		child := p.finish(c, fmt.Sprintf(`{"outputs":{"said":%q}}`, said)).BeginStep.SessionID
		testkit.Equal(t, toJSON(t, outputs.Plain(p.record(child).Inputs)), fmt.Sprintf(`{"last":%q}`, said))
		p.finish(c, `{"outputs":{}}`)
	}
}

// The workflow of a step works where the session of the step does, also if a server of another folder begins
// it for a person.
func TestForms_AWorkflowOfAStepWorksInItsFolder(t *testing.T) {
	p, srv, _, _ := called(t)
	worktree := filepath.Join(p.root, "worktree")
	p.write("worktree/r.md", "x")
	_, c, id := p.begin(func(o *Options) {
		o.Root = worktree
		o.Attempt = "attempt-1"
		o.Stores = p.stores()
	})
	p.finish(c, hello)
	const step = "workflow:beta/publish"
	testkit.Must(t, srv.GoToFor(ctx, id, step, 0))
	parent := testkit.Get(srv.Records().Read(ctx, id, nil)).Must(t)
	child := testkit.Get(srv.Records().Read(ctx, parent.State.Progress(step).Child, nil)).Must(t)
	testkit.True(t, child.Row.Root == worktree && child.Row.AttemptID == "attempt-1", "the row %+v", child.Row)
	p.finish(c, `{"outputs":{"page":"r.md"},"session_id":"`+child.Row.ID+`"}`)
	r := p.finish(c, `{"outputs":{},"session_id":"`+child.Row.ID+`"}`)
	testkit.True(t, stepOf(r.BeginStep) == "last" && r.BeginStep.SessionID == id, "the end of the call: %s",
		toJSON(t, r))
}

// A command, which begins no workflows, may drop the item before a step that is one, also if that is a step of the
// workflow that called this one: reading the step begins it.
func TestForms_ACommandDropsTheItemBeforeAWorkflow(t *testing.T) {
	for main, last := range map[string]string{
		"[list, {for_each: todo, steps: [port]}, {workflow: beta/publish}]": "[write]",
		"[{workflow: alpha/last}, {workflow: beta/publish}]":                "[list, {for_each: todo, steps: [port]}]",
	} {
		p := newProject(t)
		p.beta("", "publish", "")
		p.job("alpha", []testStep{{id: "write"}, {id: "list", outputs: oneList}, {id: "port"}},
			map[string]string{"main": main + "\n    post_workflow_instructions: Tell them.", "last": last})
		c := p.open(reviewing(&Reviewing{External: true, Reviewer: `["r"]`})).Connect("local")
		begun := p.start(c, "alpha", "main")
		p.finish(c, `{"outputs":{"todo":"[\"a\"]"}}`)
		testkit.Must(t, p.command(Reviewing{}).DropFor(ctx, begun.BeginStep.SessionID, "port[0]", obsolete))
		id := begun.Stack[0].SessionID
		step := testkit.Get(c.Step(ctx, StepArgs{SessionID: &id})).Must(t).BeginStep
		testkit.Equal(t, step.StepID, "workflow:beta/publish", "get_step")

		child := p.record(id).Progress("workflow:beta/publish").Child
		testkit.Contains(t, step.Instructions, "call get_step with session_id '"+child+"'")
		testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{SessionID: &child})).Must(t).BeginStep.StepID, "write",
			"get_step of the workflow")
		testkit.Equal(t, p.finish(c, `{"outputs":{},"session_id":"`+child+`"}`).Closing, "Tell them.",
			"at the end of both")
		testkit.Same(t, p.record(id).Weakened, nil, "what the command has weakened")
	}
}

// Exports of sessions with items in progress, and of those that are steps, are imported and go on: together,
// also with one that is complete, or alone.
func TestForms_ItemsAndWorkflowsOfStepsAreImported(t *testing.T) {
	project := func(t *testing.T) *project {
		p := newProject(t).alpha("[list, {for_each: todo, steps: [port, {workflow: beta/publish, inputs: {what: "+
			"item}}]}, end]", testStep{id: "list", outputs: oneList}, testStep{id: "port"}, testStep{id: "end"})
		p.job("beta", []testStep{{id: "write", outputs: oneText}},
			map[string]string{"publish": "[{when: {input: what, is_not: b}, steps: [write]}]\n    inputs: [{name: " +
				"what, description: w}]"})
		return p
	}
	from := project(t)
	srv, c, id := from.begin()
	from.finish(c, `{"outputs":{"todo":"[\"a\",\"b\"]"}}`)
	from.finish(c, `{"outputs":{},"step_id":"port[1]"}`)
	child := from.finish(c, `{"outputs":{},"step_id":"port[0]"}`).BeginStep.SessionID
	complete := from.record(id).Progress("workflow:beta/publish[1]").Child
	srv.stop()
	for name, sessions := range map[string][]string{
		"all":                        {id, child, complete},
		"the workflows of the steps": {child, complete},
		"the one that calls it":      {id},
	} {
		t.Run(name, func(t *testing.T) {
			p := project(t)
			srv := p.open()
			p.importFrom(from, srv, sessions...)
			testkit.Same(t, testkit.Get(srv.Inspect(ctx)).Must(t).Findings, nil, "what deepwork check would find")

			c := srv.Connect("local")
			if name == "the one that calls it" {
				refused(t, refusal(t, c, `{"outputs":{},"session_id":"`+id+`","step_id":"workflow:beta/publish[0]"}`),
					session.StateError, codes.StepIsWorkflow, "is gone", "go_to_step")
				return
			}

			r := p.finish(c, `{"outputs":{"said":"x"},"session_id":"`+child+`"}`)
			testkit.True(t, r.Status == replies.WorkflowComplete &&
				(name != "all" || stepOf(p.finish(c, `{"outputs":{},"session_id":"`+id+`"}`).BeginStep) == "end"),
				"at the end: %s", toJSON(t, r))
		})
	}
}

// Behind an item that waits for a person get_step begins the next one: with its workflow, or what its checks
// protect as it is then.
func TestForms_ItemsBeginBehindOneThatWaits(t *testing.T) {
	s, k := newScript(t, "exit 0"), checkedProject(t, true, "", "")
	for next, form := range map[string]string{"gate[1]": "gate", "workflow:inner[1]": "{workflow: inner}, gate"} {
		k.job("alpha", []testStep{{id: "list", outputs: oneList}, {id: "plain"},
			{id: "gate", outputs: oneText, reviews: humanStep, checks: "[" + s.yaml(", protect: [tests/**]") + "]"}},
			map[string]string{
				"main":  "[list, {for_each: todo, steps: [" + form + "], at_once: 1}]",
				"inner": "[plain]",
			})
		k.begin()
		if r := k.finish(k.c, `{"outputs":{"todo":"[\"a\",\"b\"]"}}`); r.BeginStep.StepID == "plain" {
			k.finish(k.c, `{"outputs":{},"session_id":"`+r.BeginStep.SessionID+`"}`)
		}
		waits(t, k.finish(k.c, `{"outputs":{"said":"x"},"step_id":"gate[0]","session_id":"`+k.id+`"}`))
		refused(t, refusal(t, k.c, `{"outputs":{"said":"x"},"step_id":"`+next+`","session_id":"`+k.id+`"}`),
			session.StateError, codes.StepNotCurrent, "call get_step")
		testkit.Works(t, errOf(k.c.Step(ctx, StepArgs{SessionID: &k.id})))
		p := k.record(k.id).Progress(next)
		testkit.Need(t, p != nil, "%s: %s", next, toJSON(t, p))
		testkit.Equal(t, (p.Protected != nil), (form == "gate"))
		testkit.Equal(t, (p.Child != ""), (form != "gate"))
	}
}

func TestForms_TheTextsOfWorkflowsAreBounded(t *testing.T) {
	declared, all := "", ""
	for i := range outputs.MaxTexts / outputs.MaxText {
		declared, all = declared+fmt.Sprintf("o%d: {type: string, description: d}, ", i),
			all+fmt.Sprintf(`"o%d":"%0*d",`, i, outputs.MaxText, i)
	}
	p := newProject(t).alpha("[list, {workflow: beta/publish}]", testStep{id: "list", outputs: "{" + declared + "}"})
	p.beta(oneText, "publish", "")
	_, c, _ := p.begin()
	p.finish(c, `{"outputs":{`+strings.TrimSuffix(all, ",")+`}}`)
	refused(t, refusal(t, c, fmt.Sprintf(`{"outputs":{"said":"%0*d"}}`, outputs.MaxText, 999)), session.ToolError,
		codes.ArgumentTooLarge, "16777216 are the most")
}
