package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"deepwork/actor/testkit"
	"deepwork/catalog/jsontext"
)

const (
	paper = `{"report":"a.md"}`
	other = `{"report":"b.md","papers":["c.md"]}`
)

// The model knows what a session may do, and takes nothing else.
func TestSessionModel(t *testing.T) {
	one := func(at int64, in input, out string) porcupine.Operation {
		return porcupine.Operation{Input: in, Call: 2 * at, Output: out, Return: 2*at + 1}
	}
	look := input{Tool: "get_step"}
	file := input{Tool: "file"}
	abort := input{Tool: "abort_workflow", Text: "enough"}
	finish := func(step string) input { return input{Tool: "finished_step", Step: step, Outputs: paper, Text: "n"} }
	differ := func(step string) input { return input{Tool: "finished_step", Step: step, Outputs: other} }
	back := func(step string) input { return input{Tool: "go_to_step", Step: step} }
	const at1, done0 = "at s1,s2,s3 done s0", `s0={"report":"a.md"} "n"`
	begun := []porcupine.Operation{one(1, input{Tool: "start_workflow", Workflow: "groups"}, "begin s0"),
		one(2, finish("s0"), "begin s1,s2,s3")}
	for name, c := range map[string]struct {
		ops []porcupine.Operation
		ok  bool
	}{
		"an acknowledged step lost": {[]porcupine.Operation{one(3, look, "at s0 done ")}, false},
		"a step repeated": {[]porcupine.Operation{one(3, finish("s0"), "begin s1,s2,s3"),
			one(4, look, at1)}, true},
		"a step done twice":              {[]porcupine.Operation{one(3, finish("s0"), "!step_finished")}, false},
		"a step with other outputs":      {[]porcupine.Operation{one(3, differ("s0"), "!step_finished")}, true},
		"a step that two calls finished": {[]porcupine.Operation{one(3, differ("s0"), "begin s1,s2,s3")}, false},
		"members in any order": {[]porcupine.Operation{one(3, finish("s3"), "pending s1,s2"),
			one(4, finish("s1"), "pending s2"), one(5, finish("s2"), "begin s4")}, true},
		"a member forgotten": {[]porcupine.Operation{one(3, finish("s3"), "pending s1,s2"),
			one(4, finish("s1"), "pending s2,s3")}, false},
		"a group that does not advance": {[]porcupine.Operation{one(3, finish("s3"), "pending s1,s2"),
			one(4, finish("s1"), "pending s2"), one(5, finish("s2"), "pending ")}, false},
		"the primary alone": {[]porcupine.Operation{one(3, finish(""), "begin s4"),
			one(4, finish("s2"), "!group_moved_on")}, true},
		"a lost step that was done": {[]porcupine.Operation{one(3, finish(""), lostReply),
			one(4, look, "at s4 done s0,s1")}, true},
		"a lost step that was, and not": {[]porcupine.Operation{one(3, finish(""), lostReply),
			one(4, look, "at s4 done s0,s1"), one(5, look, at1)}, false},
		"ahead":       {[]porcupine.Operation{one(3, back("s4"), "!step_ahead")}, true},
		"out of turn": {[]porcupine.Operation{one(3, finish("s4"), "begin s5,s6")}, false},
		"aborted, and again": {[]porcupine.Operation{one(3, abort, "aborted s1: enough"),
			one(4, abort, "aborted s1: enough"), one(5, look, "!session_ended aborted")}, true},
		"aborted, and it goes on": {[]porcupine.Operation{one(3, abort, "aborted s1: enough"),
			one(4, look, at1)}, false},
		"late at a reviewed step": {[]porcupine.Operation{one(3, finish(""), "begin s4"),
			one(4, finish("s4"), "begin s5,s6"), one(5, finish("s5"), "pending s6"), one(6, finish(""), "pending s6")},
			true},
		"late, with other outputs": {[]porcupine.Operation{one(3, finish(""), "begin s4"),
			one(4, finish("s4"), "begin s5,s6"), one(5, finish("s5"), "pending s6"), one(6, differ(""), "pending s6")},
			false},
		"answered and forgotten": {[]porcupine.Operation{one(3, finish(""), forgotten), one(4, look, at1)},
			false},
		"the file": {[]porcupine.Operation{one(3, file,
			`active at s1: `+done0+` s1=open s2=open s3=open; ""`)}, true},
		"the file of before": {[]porcupine.Operation{one(3, file, `active at s0: s0=open; ""`)}, false},
		"a file with other notes": {[]porcupine.Operation{one(3, file,
			`active at s1: s0={"report":"a.md"} "m" s1=open s2=open s3=open; ""`)}, false},
		"a file with other outputs": {[]porcupine.Operation{one(3, file,
			`active at s1: s0={"report":"b.md"} "n" s1=open s2=open s3=open; ""`)}, false},
		"a file with an unreported " +
			"member": {[]porcupine.Operation{one(3, finish(""), "begin s4"),
			one(4, file, `active at s4: `+done0+` s1={"report":"a.md"} "n" s2=unreported s3=unreported s4=open; ""`)},
			true},
		"a file that went back": {[]porcupine.Operation{one(3, back("s0"), "back to s0 clears s0,s1,s2,s3"),
			one(4, file, `active at s0: s0=open; ""; from s1 to s0: `+done0+` s1=open s2=open s3=open`)}, true},
		"a member again": {[]porcupine.Operation{one(3, finish(""), "begin s4"),
			one(4, back("s1"), "back to s1 clears s1,s4"),
			one(5, file, `active at s1: `+done0+
				` s1=open s2=unreported s3=unreported; ""; from s4 to s1: s1={"report":"a.md"} "n" s4=open`),
			one(6, finish(""), "begin s4")}, true},
		"a member again, out of order": {[]porcupine.Operation{one(3, finish(""), "begin s4"),
			one(4, back("s1"), "back to s1 clears s1,s4"),
			one(5, file, `active at s1: `+done0+
				` s2=unreported s3=unreported s1=open; ""; from s4 to s1: s1={"report":"a.md"} "n" s4=open`)}, false},
		"a file that went back by " +
			"itself": {[]porcupine.Operation{one(3, file,
			`active at s0: s0=open; ""; from s1 to s0: `+done0+` s1=open s2=open s3=open`)}, false},
	} {
		testkit.Equal(t, porcupine.CheckOperations(sessionModel, append(begun[:2:2], c.ops...)), c.ok, "%s", name)
	}

	s := state{}.apply(input{Tool: "start_workflow", Workflow: "fork"})[0].state
	for _, step := range []string{"s1", "s0", "s2"} {
		s = s.finish(differ(step))[0].state
	}
	testkit.Equal(t, s.finish(finish("s3"))[0].reply, `complete {"report":"a.md","papers":["c.md"]}`, "all outputs")
}

// The model knows forms: items in progress and in order, one join, rounds, conditions, and workflows that are steps.
func TestFormsModel(t *testing.T) {
	const list, yes, done, no = `{"report":"a.md","said":"[\"a\",\"b\",\"c\"]"}`, `{"report":"a.md","said":"yes"}`,
		`{"report":"a.md","said":"done"}`, paper
	type call struct{ tool, step, outputs, reply string }
	fin := func(step, outputs, reply string) call { return call{"finished_step", step, outputs, reply} }
	at := func(reply string) call { return call{tool: "get_step", reply: reply} }
	begun := []call{{"start_workflow", "items", "", "begin s0"}, fin("s0", list, "begin s1[0],s1[1]")}
	waits := append(slices.Clip(begun), fin("s1[0]", no, "begin s8[0]"), fin("s8[0]", no, personAwaited))
	passed := call{"person", "s8[0]", "", decided}
	last := slices.Concat(waits,
		[]call{passed, fin("s8[0]", no, "begin s1[2]"), fin("s1[1]", no, "begin s8[1]"),
			fin("s1[2]", other, "begin s8[2]"), fin("s8[2]", no, personAwaited),
			{"person", "s8[2]", "", decided}, fin("s8[2]", no, "pending s8[1]"), fin("s8[1]", no, personAwaited),
			{"person", "s8[1]", "", decided}})
	rounds := func(said string) []call {
		return []call{{"start_workflow", "rounds", "", "begin s0"},
			fin("s0", said, map[string]string{yes: "begin s1", no: "begin s2"}[said])}
	}
	second := append(rounds(no), fin("s2", done, "begin s3"), fin("s3", no, "begin s2"), fin("s2", no, "begin s3"))
	called := []call{{"start_workflow", "calls", "", "begin s0"}, fin("s0", no, "begin s0"),
		{"child", "", other, "begin s1"}}
	for name, c := range map[string]struct {
		before []call
		last   call
		ok     bool
	}{
		"more items than at once":             {begun, at("at s1[0],s1[1],s1[2] done s0"), false},
		"an item that waits holds up none":    {waits, at("at s8[0],s1[1],s1[2] done s0,s1 1 of 3"), true},
		"an item that waits holds up another": {waits, at("at s8[0],s1[1] done s0,s1 1 of 3"), false},
		"an import asks the person again": {append(slices.Clip(waits), call{"import", "", "", "imported"}),
			at("at s8[0],s1[1] done s0,s1 1 of 3"), true},
		"an import decides nothing": {append(slices.Clip(waits), passed, call{"import", "", "", "imported"}),
			fin("s8[0]", no, "begin s1[2]"), false},
		"an item goes on without the person": {waits, fin("s8[0]", no, "begin s1[2]"), false},
		"an item done twice":                 {waits, fin("s1[0]", other, "begin s8[0]"), false},
		"the join":                           {last, fin("s8[1]", no, "begin s2"), true},
		"no join":                            {last, fin("s8[1]", no, "pending "), false},
		"a join before the last item":        {last, at("at s2 done s0,s1 3 of 3,s8 2 of 3"), false},
		"back to an item": {last,
			call{"go_to_step", "s1[2]", "", "back to s1[2] clears s1[2],s8[2]"}, true},
		"back to an item and others": {last,
			call{"go_to_step", "s1[2]", "", "back to s1[2] clears s1[2],s8[1],s8[2]"}, false},
		"back to an item that has not begun": {begun, call{"go_to_step", "s1[2]", "", "!step_ahead"}, true},
		"a condition that holds":             {rounds(yes), fin("s1", no, "begin s2"), true},
		"a condition that does not hold":     {rounds(no), call{"go_to_step", "s1", "", "!step_not_current"}, true},
		"no round":                           {second[:3], fin("s3", no, "begin s4"), false},
		"the rounds end":                     {second, fin("s3", done, "begin s4"), true},
		"a round too many":                   {second, fin("s3", no, "begin s2"), false},
		"after the last round":               {second, fin("s3", no, personAwaited), true},
		"the number of the round": {second,
			call{"file", "", "",
				`active at s3: s0={"report":"a.md"} "" s2#2={"report":"a.md"} "" s3=open; ""; from s3 to s2: s2=` +
					done + ` "" s3={"report":"a.md"} ""`}, true},
		"a workflow goes on once":  {called, call{"child", "", other, "begin s1"}, true},
		"a workflow goes on twice": {called, call{"child", "", no, "begin s1"}, false},
		"its outputs": {called,
			fin("s1", no, "complete {\"report\":\"a.md\",\"papers\":[\"c.md\"]}"), true},
		"outputs of items": {append(last, fin("s8[1]", no, "begin s2")),
			fin("s2", no, `complete {"report":"a.md","said":["x"]}`), false},
	} {
		var ops []porcupine.Operation
		for i, o := range append(slices.Clip(c.before), c.last) {
			in := input{
				Tool:    o.tool,
				Step:    o.step,
				Outputs: o.outputs,
				Text:    map[bool]string{true: pass}[o.tool == "person"],
			}
			if o.tool == "start_workflow" {
				in.Step, in.Workflow = "", o.step
			}
			ops = append(ops, porcupine.Operation{
				Input:  in,
				Call:   int64(2 * i),
				Output: o.reply,
				Return: int64(2*i + 1),
			})
		}
		testkit.Equal(t, porcupine.CheckOperations(sessionModel, ops), c.ok, "%s", name)
	}

	s := state{}
	for _, o := range append(last, fin("s8[1]", no, "begin s2")) {
		in := input{Tool: o.tool, Step: o.step, Outputs: o.outputs, Text: pass, Workflow: "items"}
		all := s.apply(in)
		s = all[len(all)-1].state
	}
	testkit.Equal(t, s.allOutputs(),
		`{"report":["a.md","a.md","a.md"],"said":[null,null,null],"papers":[null,null,null]}`, "all outputs")
}

// The model knows what may become of a task, and takes nothing else.
func TestTaskModel(t *testing.T) {
	create := taskInput{Tool: "create_task", Title: "a", Request: "r"}
	get := taskInput{Tool: "get_task"}
	remove := taskInput{Tool: "delete_task"}
	update := func(title string) taskInput { return taskInput{Tool: "update_task", Title: title} }
	op := func(at int64, in taskInput, out string) porcupine.Operation {
		return porcupine.Operation{Input: in, Call: 2 * at, Output: out, Return: 2*at + 1}
	}
	open := func(at int64, in taskInput) porcupine.Operation { // lost, and its server lives
		return porcupine.Operation{Input: in, Call: 2 * at, Output: lostReply, Return: 1000}
	}
	type ops = []porcupine.Operation
	for name, c := range map[string]struct {
		ops ops
		ok  bool
	}{
		"a change lost": {ops{op(2, update("b"), "is b"), op(3, get, "is a")}, false},
		"made again": {ops{op(2, update("b"), "is b"), op(3, create, "is b"), op(4, get, "is b")},
			true},
		"made anew": {ops{op(2, update("b"), "is b"), op(3, create, "is a"), op(4, get, "is a")},
			false},
		"deleted": {ops{op(2, remove, taskDeleted), op(3, get, taskGone),
			op(4, create, taskGone)}, true},
		"deleted twice":              {ops{op(2, remove, taskDeleted), op(3, remove, taskDeleted)}, false},
		"deleted, and there":         {ops{op(2, remove, taskDeleted), op(3, get, "is a")}, false},
		"gone by itself":             {ops{op(2, get, taskGone)}, false},
		"a lost change that was not": {ops{op(2, update("b"), lostReply), op(3, get, "is a")}, true},
		"a lost change that comes late": {ops{open(2, update("b")), op(3, update("c"), "is c"), op(4, get, "is b")},
			true},
		"a lost change of a dead " +
			"server": {ops{op(2, update("b"), lostReply), op(3, update("c"), "is c"), op(4, get, "is b")}, false},
		"a change that comes twice": {ops{op(2, update("b"), "is b"), op(3, update("c"), "is c"),
			op(4, get, "is b")}, false},
		"a lost deletion that comes late": {ops{open(2, remove), op(3, get, "is a"), op(4, update("c"), taskGone)},
			true},
	} {
		testkit.Equal(t, porcupine.CheckOperations(taskModel, append(ops{op(1, create, "is a")}, c.ops...)), c.ok,
			"%s", name)
	}
}

// A report of deepwork check is taken for clean with what may be there, and with nothing else.
func TestFinds(t *testing.T) {
	const (
		half    = "/p/.deepwork/board.db: task 1 is half deleted\n    remove it again: deepwork board rm 1\n"
		note    = "note: /p: the clock was set back\n    nothing has to be done\n"
		torn    = "/p/session_1.json: its checksum is wrong\n    look at it\n"
		verdict = "9 sessions (3 active), 1 task: 1 problem\n"
	)

	for report, want := range map[string]bool{
		half + note + verdict:                  false,
		half + torn + verdict:                  true,
		torn + verdict:                         true,
		"Error: checking /p: no such folder\n": true,
	} {
		testkit.Equal(t, finds(report, underWay), want, "%s", report)
	}
}

// An order is found in the prompt that an agent gets, and nowhere else; so is what a reviewer is to do.
func TestTokenIn(t *testing.T) {
	o := newOrder("s3-7", rand.New(rand.NewPCG(1, 1)).IntN)
	a := assignment{token: "r1-2-x", verdict: fail, takes: 1250 * time.Millisecond}
	for prompt, want := range map[string]string{
		o.String(): "s3-7",
		"# A title\n\nc3-1\n\n" + o.String() + "\n": "s3-7",
		"# sim-order s3-7 is a title\n":             "",
		"sim-order":                                 "",
	} {
		testkit.Equal(t, tokenIn(prompt), want, "%q", prompt)
	}
	testkit.Equal(t, testkit.Get(assignmentIn([]byte("Review this:\n==== a\n"+a.String()+"====\n"))).Must(t), a)

	for _, task := range []string{"Review this:\n", a.String() + a.String(), "proof-review r1-2-x perhaps 3\n"} {
		testkit.Fails(t, testkit.Get(assignmentIn([]byte(task))).Err(), "", "%q", task)
	}
}

// What agents and the source have told is read whole or refused.
func TestLogs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	put := func(text string) {
		t.Helper()
		testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	testkit.Works(t, testkit.Get(readJournal(path)).Err(), "no file")
	put("start s1-1 7\nwrote s1-1 7\nstart s1-1 8\nend s1-1 8\n")
	testkit.Equal(t, fmt.Sprint(testkit.Get(readJournal(path)).Must(t)),
		"map[asked:map[] begin:map[] beside:map[] commit:map[] end:map[s1-1:[8]] finished:map[] odd:map[] ran:map[] "+
			"start:map[s1-1:[7 8]] wrote:map[s1-1:[7]]]")

	put("start s1-1\n")
	testkit.Fails(t, testkit.Get(readJournal(path)).Err(), "", "half a line is taken")
}

// Lost calls that tell nothing do not keep the checker from its end, and what cannot have come about is found
// among them.
func TestLostCallsThatTellNothing(t *testing.T) {
	for after, faults := range map[string]int{"at s1 done s0": 0, "at s2 done s0,s1": 1, "!session_ended aborted": 0} {
		h := newHistory()
		h.sessions["a"] = &session{}
		add := func(at int64, in input, out string, until int64) { h.add(1, "a", in, at, out, until) }
		add(1, input{Tool: "start_workflow", Workflow: "chain"}, "begin s0", 2)
		for i := range int64(40) {
			add(3+i, input{Tool: "get_step"}, lostReply, never)
			add(3+i, input{Tool: "abort_workflow", Text: fmt.Sprint("because ", i%2)}, lostReply, never)
		}
		add(100, input{Tool: "finished_step", Step: "s0", Outputs: paper}, "begin s1", 101)
		add(102, input{Tool: "get_step"}, after, 103)
		h.check()
		testkit.Equal(t, fmt.Sprint(h.tangled, len(h.faults)), fmt.Sprint(0, faults),
			"%s: tangled, and kinds of faults", after)
	}
}

// Each effect is found to be there once if it was acknowledged, and not if it was refused.
func TestOnce(t *testing.T) {
	for what, c := range map[string]struct {
		e     *effect
		there []string
		want  string
	}{
		"acknowledged":     {&effect{id: "1"}, []string{"1"}, ""},
		"lost":             {&effect{id: "1"}, nil, "a lost update"},
		"done twice":       {&effect{id: "1"}, []string{"1", "2"}, "something that was done more than once"},
		"another":          {&effect{id: "1"}, []string{"2"}, "something else than was told"},
		"refused":          {&effect{refused: true}, nil, ""},
		"refused and done": {&effect{refused: true}, []string{"1"}, "something that was refused and done"},
		"never answered":   {&effect{}, nil, ""},
		"unanswered, done": {&effect{}, []string{"1"}, ""},
		"not even asked":   {nil, []string{"1"}, "something that nobody asked for"},
	} {
		h := newHistory()
		if c.e != nil {
			h.ask(aTask, "x", c.e)
		}
		there := map[string][]string{}
		if c.there != nil {
			there["x"] = c.there
		}
		h.once(aTask, there, func(_ string, e *effect) bool { return e.id != "" })
		found := ""
		for kind := range h.faults {
			found += kind
		}
		testkit.Equal(t, found, c.want, "%s", what)
	}
}

// The model knows what reviewers and people may do with a step, and takes nothing else.
func TestReviewModel(t *testing.T) {
	at := int64(0)
	op := func(in input, out string) porcupine.Operation {
		at += 2
		return porcupine.Operation{Input: in, Call: at, Output: out, Return: at + 1}
	}
	finish := func(step, path string) input {
		return input{Tool: "finished_step", Step: step, Outputs: outputs{Report: path}.String(), Judged: true}
	}
	good, bad := finish(judgedStep, judgedPath("t", pass)), finish(judgedStep, judgedPath("t", fail))
	first, second := finish(personStep, "a.md"), finish(personStep, "b.md")
	yes, no := input{Tool: "person", Step: personStep, Text: pass}, input{Tool: "person", Step: personStep, Text: fail}
	abort, back := input{Tool: "abort_workflow", Text: "enough"}, input{Tool: "go_to_step", Step: personStep}
	judged, lost := op(good, "begin s8"), second
	lost.Tool = handIn
	for name, c := range map[string]struct {
		ops []porcupine.Operation
		ok  bool
	}{
		"passed after a while": {[]porcupine.Operation{op(good, reviewRuns), op(good, reviewRuns),
			op(good, "begin s8"), op(good, "begin s8")}, true},
		"running after it passed": {[]porcupine.Operation{op(good, "begin s8"), op(good, reviewRuns)},
			false},
		"failed, then passed": {[]porcupine.Operation{op(bad, reviewRuns), op(bad, reviewFailed),
			op(good, "begin s8")}, true},
		"passed what was rejected":     {[]porcupine.Operation{op(bad, "begin s8")}, false},
		"failed what was not rejected": {[]porcupine.Operation{op(good, reviewFailed)}, false},
		"aborted while it runs": {[]porcupine.Operation{op(bad, reviewRuns),
			op(abort, "aborted s7: enough"), op(bad, "!session_ended aborted")}, true},
		"aborted, and it runs": {[]porcupine.Operation{op(abort, "aborted s7: enough"),
			op(bad, reviewRuns)}, false},
		"a person passes": {[]porcupine.Operation{judged, op(first, personAwaited),
			op(yes, decided), op(first, `complete {"report":"a.md"}`)}, true},
		"a person is not asked": {[]porcupine.Operation{judged, op(yes, decided)}, false},
		"nobody has passed it": {[]porcupine.Operation{judged, op(first, personAwaited),
			op(first, `complete {"report":"a.md"}`)}, false},
		"a person fails": {[]porcupine.Operation{judged, op(first, personAwaited),
			op(no, decided), op(first, reviewFailed), op(first, reviewFailed), op(second, personAwaited),
			op(yes, decided), op(second, `complete {"report":"b.md"}`)}, true},
		"a person fails, and it goes on": {[]porcupine.Operation{judged, op(first, personAwaited),
			op(no, decided), op(first, `complete {"report":"a.md"}`)}, false},
		"a decision that is lost": {[]porcupine.Operation{judged, op(first, personAwaited),
			op(yes, decided), op(first, personAwaited)}, false},
		"two decisions": {[]porcupine.Operation{judged, op(first, personAwaited),
			op(yes, decided), op(no, decided)}, false},
		"other outputs than those " +
			"decided about": {[]porcupine.Operation{judged, op(first, personAwaited), op(yes, decided),
			op(second, `complete {"report":"b.md"}`)}, false},
		"others that a lost call " +
			"handed in": {[]porcupine.Operation{judged, op(first, personAwaited), op(lost, lostReply), op(yes, decided),
			op(second, `complete {"report":"b.md"}`)}, true},
		"others that a lost call handed in " +
			"in between": {[]porcupine.Operation{judged, op(first, personAwaited), op(yes, decided),
			op(lost, lostReply), op(first, personAwaited), op(second, personAwaited), op(yes, decided),
			op(second, `complete {"report":"b.md"}`)}, true},
		"other outputs withdraw a " +
			"decision": {[]porcupine.Operation{judged, op(first, personAwaited), op(yes, decided),
			op(second, personAwaited), op(first, personAwaited)}, true},
		"going back withdraws a decision": {[]porcupine.Operation{judged, op(first, personAwaited), op(yes, decided),
			op(back, "back to s8 clears s8"), op(first, personAwaited)}, true},
	} {
		begun := []porcupine.Operation{{
			Input:  input{Tool: "start_workflow", Workflow: "review"},
			Call:   -4,
			Output: "begin s0",
			Return: -3,
		},
			{Input: finish("s0", "a.md"), Call: -2, Output: "begin s7", Return: -1}}
		testkit.Equal(t, porcupine.CheckOperations(sessionModel, append(begun, c.ops...)), c.ok, "%s", name)
	}
}

// judged judges a load again, as if the store had these sessions, and returns what kinds of faults it finds.
func judged(l *load, all []kept) (kinds []string) {
	h := newHistory()
	h.begun, h.effects = l.history.begun, l.history.effects
	for id, s := range l.history.sessions {
		again := *s
		again.ops = slices.DeleteFunc(slices.Clone(s.ops), func(o porcupine.Operation) bool { return o.ClientId == -1 })
		h.sessions[id] = &again
	}
	w := newWorld(l.root, l.dir, l.seed)
	w.history, w.saves = h, l.saves
	w.judgeKept(all, w.agrees)
	return slices.Collect(maps.Keys(h.faults))
}

// The judge finds nothing wrong with what a server has stored, and whatever was falsified afterwards.
func TestJudgeFindsWhatIsFalsified(t *testing.T) {
	t.Parallel()
	var l *load
	var all []kept
	at := -1
	for d := time.Second; at < 0; d *= 4 { // a loaded machine may not complete a session within the first
		l = newLoad(io.Discard)
		testkit.Must(t,
			errors.Join(l.flags().Parse([]string{"-connections", "3", "-depth", "3", "-duration", d.String(), "-seed",
				"7", "-edit", "-lose", "0.05"}), l.valid()))
		l.dir = t.TempDir()
		testkit.Must(t, l.run(t.Context()))
		all = testkit.Get(l.kept(t.Context())).Must(t)
		testkit.Same(t, judged(l, all), nil, "nothing was falsified")
		at = slices.IndexFunc(all, func(k kept) bool {
			return l.history.sessions[k.id] != nil && k.record.Status == "completed" && len(k.record.History) == 0 &&
				k.record.Parent != ""
		})
	}
	was := all[at]
	const impossible = "a history that cannot have come about"
	type object = map[string]any
	step := func(s object, id string) object { return s["step_progress"].(object)[id].(object) }
	unfinish := func(p object) {
		p["completed_at"] = nil
		p["outputs"] = object{}
		p["notes"] = nil
	}
	for what, c := range map[string]struct {
		falsify func(s object)
		want    string
	}{
		"a last update that is lost": {func(s object) {
			s["status"] = "active"
			unfinish(step(s, "s5"))
		}, impossible},
		"outputs of another call": {func(s object) {
			step(s, "s0")["outputs"] = object{"report": "load_outputs/other.md"}
		}, impossible},
		"notes of another call":          {func(s object) { step(s, "s2")["notes"] = "other" }, impossible},
		"a step that was never finished": {func(s object) { unfinish(step(s, "s1")) }, impossible},
		"a session that ended otherwise": {func(s object) {
			s["status"], s["abort_reason"] = "aborted", "why not"
		}, impossible},
		"a step back that nobody took": {func(s object) {
			s["history"] = []object{{"from_step": "s5", "to_step": "s0", "step_progress": object{}}}
		}, impossible},
		"a definition that was never written": {func(s object) {
			s["definition"].(object)["source"] = strings.Repeat("0", 64)
		}, wrongDefinition},
		"another goal": {func(s object) {
			s["goal"] = "another"
		}, "a session that is another than was started"},
		"a review that nobody overrode": {func(s object) {
			step(s, "s5")["finished_with"] = 0
		}, "a step with reviews that rests on something else"},
		"another parent": {func(s object) {
			s["parent_session_id"] = "0badcafe"
		}, "a session that is another than was started"},
	} {
		var s object
		testkit.Must(t, json.Unmarshal(was.body, &s))
		for m := range jsontext.Members(was.record.Progress) { // an object sorts them, which is a fault of its own
			var p struct{ Outputs json.RawMessage }
			testkit.Must(t, json.Unmarshal(m.Value, &p))
			step(s, m.Name)["outputs"] = p.Outputs
		}
		c.falsify(s)
		all[at].record = record{}
		testkit.Must(t, json.Unmarshal(testkit.Get(json.Marshal(s)).Must(t), &all[at].record))
		testkit.Same(t, judged(l, all), []string{c.want}, what)
	}
	all[at] = was
	damaged, twice := slices.Clone(all), was
	damaged[at].err = io.ErrUnexpectedEOF
	twice.id, twice.err = "0badcafe", io.ErrUnexpectedEOF
	for want, all := range map[string][]kept{
		"a lost update":                          slices.Delete(slices.Clone(all), at, at+1),
		"something that was done more than once": append(slices.Clone(all), twice),
		"a session that cannot be read":          damaged,
	} {
		testkit.Contains(t, strings.Join(judged(l, all), ", "), want)
	}
	l.history.sessions[was.id].save += 1000
	testkit.Contains(t, strings.Join(judged(l, all), ", "), wrongDefinition,
		"an older definition than a step began with")
	l.history.sessions[was.id].save -= 1000
	testkit.Must(t, os.WriteFile(exported(l.root, was.id), was.body[:len(was.body)-1], 0o600))
	testkit.Same(t, judged(l, all), []string{"an export that differs from its session"}, "an edited export")

	// A row that contradicts its state, deepwork check finds.
	db := testkit.Get(sql.Open("sqlite", l.boardFile())).Must(t)
	_, err := db.Exec("UPDATE workflow_sessions SET step = 's1' WHERE id = ?", was.id)
	testkit.Must(t, errors.Join(err, db.Close()))
	l.verify(t.Context(), "after a row was edited")
	testkit.True(t, len(l.history.faults) > 0, "deepwork check does not find a row that was edited")
}

// The report has every figure, of a load and of what it is compared with.
func TestReport(t *testing.T) {
	var out bytes.Buffer
	l := newLoad(&out)
	l.took, l.checked = time.Minute, 41
	for s := range 61 {
		l.memory = append(l.memory, float64(40+s/8))
	}
	for i := range 200 {
		l.history.took["finished_step"] = append(l.history.took["finished_step"],
			time.Duration(1+i/150*29)*time.Millisecond)
	}
	l.history.fault("a kind", "an %s", "example")
	l.report(20)
	n := numbers{}
	n.read(out.String())
	for unit, want := range map[string]float64{
		"checked":     41,
		"wrong":       1,
		"transitions": 200,
		"settled-MB":  42,
		"end-MB":      47,
		"p99/p50":     30,
		"of-ceiling":  0.17,
	} {
		testkit.Same(t, n[unit], []float64{want}, "%s in\n%s", unit, out.String())
	}
	testkit.Contains(t, out.String(), "WRONG: a kind, 1 times; for example:\n  an example\n")
}
