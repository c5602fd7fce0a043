package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/telemetry"
	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/catalog/source"
	"deepwork/session/board"
	"deepwork/session/machine"
	"deepwork/session/remote"
	"deepwork/session/replies"
)

// A tool takes the arguments of its schema, and those that it does not list.
func TestUnlistedArguments(t *testing.T) {
	type listed struct {
		A *string `json:"a" arg:"A." max:"10"`
	}
	type all struct {
		listed
		B *string `json:"b" arg:"B." unlisted:"true"`
	}
	b, got := newArguments("t", reflect.TypeFor[all]()), all{}
	testkit.True(t, b.input.Properties["b"] == nil, "b is listed")

	_, fault := b.decode(json.RawMessage(`{"b":"x"}`), &got)
	testkit.Need(t, fault == nil, "%v, %+v", fault, got)
	testkit.Need(t, got.B != nil, "%v, %+v", fault, got)
	testkit.Equal(t, *got.B, "x")
	_, fault = newArguments("t", reflect.TypeFor[listed]()).decode(json.RawMessage(`{"b":"x"}`), &got)
	testkit.True(t, fault != nil, "an argument of another tool was taken")
}

// An argument that is a map takes texts and lists of texts, and null for none.
func TestMapOfTextsAndLists(t *testing.T) {
	type all struct {
		Inputs board.Inputs `json:"inputs" arg:"Values"`
	}
	check := newArguments("t", reflect.TypeFor[all]())
	listed := listedInput(check.input).Properties["inputs"] // agents see less
	testkit.True(t, listed.AdditionalProperties == nil && listed.Type == "object", "listed as %s", MustJSON(listed))

	for raw, want := range map[string]string{
		`{"inputs":{"a":5}}`:            `Argument "inputs.a": 5 is an integer; expected a string or an array`,
		`{"inputs":{"a":["y",{}]}}`:     `"inputs.a[1]"`,
		`{"inputs":{"a":{"text":"x"}}}`: `"inputs.a"`,
		`{"inputs":"a"}`:                `"inputs"`,
		`{"agent_id":"x"}`:              `"agent_id": leave it out. A subagent passes the session_id`,
	} {
		_, fault := check.decode(json.RawMessage(raw), new(all))
		testkit.True(t, fault != nil && strings.Contains(fault.Error(), want), "%s: %v, want %q", raw, fault, want)
	}

	var got all
	_, fault := check.decode(json.RawMessage(`{"inputs":{"a":"x","b":["y"],"c":null}}`), &got)
	testkit.True(t, fault == nil && len(got.Inputs) == 3, "%v: %v", fault, got.Inputs)
}

// What does not fit is refused with its name, what was given and what was expected.
func TestWrongArguments(t *testing.T) {
	type step struct {
		Goal    string          `json:"goal" arg:"What the user wants" required:"true" max:"10"`
		Job     string          `json:"job_name" arg:"A job" required:"true" max:"10"`
		Outputs json.RawMessage `json:"outputs" arg:"o" required:"true"`
		Session *string         `json:"session_id" arg:"s" max:"3"`
	}

	deep := strings.Repeat("[", 11) + strings.Repeat("]", 11)
	known := `"goal":"g","job_name":"j"`
	for _, c := range []struct {
		raw, code string
		says      []string
	}{
		{`{` + known + `,"outputs":{},"jobname":"x"}`, "unknown_argument",
			[]string{`"jobname"`, "goal, job_name, outputs", "session_id"}},
		{`{"Goal":"g","job_name":"j","outputs":{}}`, "unknown_argument",
			[]string{`"Goal"`, `Missing required argument "goal"`}},
		{`{"goal":"g"}`, "missing_argument", []string{`"job_name"`, `"outputs"`}},
		{`null`, "missing_argument", []string{`"goal"`}},
		{`{` + known + `,"outputs":null}`, "missing_argument", []string{`"outputs"`}},
		{`{"goal":42,"job_name":"j","outputs":{}}`, "invalid_argument",
			[]string{`"goal"`, "42 is an integer", "a string"}},
		{`{` + known + `,"outputs":{},"session_id":{"a":1}}`, "invalid_argument",
			[]string{`"session_id"`, "an object", "expected a string"}},
		{`{` + known + `,"outputs":true}`, "invalid_argument", []string{`"outputs"`, "a boolean"}},
		{`{"goal":"` + strings.Repeat("é", 11) + `","job_name":"j","outputs":{}}`, "argument_too_large",
			[]string{`"goal"`, "11", "10"}},
		{`{` + known + `,"outputs":{"a":"` + strings.Repeat("x", MaxArgumentBytes) + `"}}`, "argument_too_large",
			[]string{`"outputs"`, "bytes"}},
		{`{` + known + `,"outputs":` + deep + `}`, "argument_too_large",
			[]string{`"outputs"`, "nested 11 levels deep", "10"}},
		{`{` + known + `,"outputs":"` + deep + `"}`, "argument_too_large",
			[]string{`"outputs"`, "nested 11 levels deep", "10"}},
		{`["x"]`, "invalid_arguments", []string{"an array, not an object"}},
		{`{"session_id":"a","session_id":"b"}`, "invalid_arguments", []string{"twice"}},
		{`{"a":1,"goal":7}`, "unknown_argument", []string{`"a"`, `"goal"`, `"job_name"`, `"outputs"`}},
	} {
		_, fault := newArguments("start", reflect.TypeFor[step]()).decode(json.RawMessage(c.raw), new(step))
		testkit.Need(t, fault != nil && fault.Code == c.code, "%.100s: %v, want %s", c.raw, fault, c.code)
		testkit.ContainsAll(t, fault.Error(), c.says, "%.100s", c.raw)
	}

	var got step
	_, fault := newArguments("start",
		reflect.TypeFor[step]()).decode(json.RawMessage(`{`+known+`,"outputs":["a.md"],"session_id":null}`), &got)
	testkit.Need(t, fault == nil, "%v: %+v", fault, got)
	testkit.Equal(t, string(got.Outputs), `["a.md"]`)
	testkit.True(t, got.Session == nil, "%v: %+v", fault, got)
	_, fault = newArguments("none", reflect.TypeFor[NoArgs]()).decode(json.RawMessage(`{"a":1}`), new(NoArgs))
	testkit.True(t, fault != nil && strings.Contains(fault.Error(), "takes no arguments"), "%v", fault)
}

// Each limit allows what has exactly its size.
func TestLimitsOfArguments(t *testing.T) {
	type limited struct {
		Name    *string         `json:"name" arg:"N" max:"10"`
		Outputs json.RawMessage `json:"outputs" arg:"o"`
		Free    json.RawMessage `json:"free" arg:"f" free:"true"`
	}
	text := func(n int) string { return `"` + strings.Repeat("é", n) + `"` }
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	bytes := func(n int) string { return `{"a":"` + strings.Repeat("x", n-8) + `"}` }
	for _, c := range []struct {
		name string
		of   func(n int) string
		most int
		more bool // what is beyond is taken, too
	}{
		{"name", text, 10, false},
		{"outputs", bytes, MaxArgumentBytes, false},
		{"outputs", func(n int) string { return `{"a":` + nested(n-1) + `}` }, maxArgumentDepth, false},
		{"free", nested, maxArgumentDepth, true},
		{"free", bytes, MaxArgumentBytes, true},
	} {
		for n, want := range map[int]bool{c.most: true, c.most + 1: c.more} {
			_, fault := newArguments("t",
				reflect.TypeFor[limited]()).decode(json.RawMessage(`{"`+c.name+`":`+c.of(n)+`}`), new(limited))
			testkit.Equal(t, fault == nil, want, "%s of %d: %v", c.name, n, fault)
		}
	}
	for n, want := range map[int]string{1000: "unknown", 1001: "more than 1000"} {
		var many []string
		for i := range n {
			many = append(many, fmt.Sprintf(`"a%d":1`, i))
		}
		_, fault := newArguments("t",
			reflect.TypeFor[limited]()).decode(json.RawMessage(`{`+strings.Join(many, ",")+`}`), new(limited))
		testkit.Contains(t, strings.ToLower(fault.Error()), want, "%d arguments", n)
	}
}

func FuzzArguments(f *testing.F) {
	for _, s := range []string{`{"outputs":{"a":"b"}}`, `{"outputs":[],"notes":"\ud800"}`, `{"outputs":1e999}`, `[]`,
		`null`, `{"a":{"b":[`} {
		f.Add(s)
	}

	type fuzzed struct {
		Outputs json.RawMessage `json:"outputs" arg:"o" required:"true"`
		Notes   *string         `json:"notes" arg:"n" max:"10"`
	}
	check := newArguments("t", reflect.TypeFor[fuzzed]())
	f.Fuzz(func(t *testing.T, raw string) {
		var args fuzzed
		_, err := check.decode(json.RawMessage(raw), &args)
		testkit.True(t, err != nil || len(args.Outputs) != 0 && string(args.Outputs) != "null",
			"%q was accepted without outputs", raw)
		testkit.True(t, err == nil || err.Code != "" && strings.Contains(err.Error(), "t"), "%q: %v", raw, err)
		testkit.True(t, err != nil || args.Notes == nil || len([]rune(*args.Notes)) <= 10, "%q: long notes", raw)
	})
}

// An atStep has one session on its stack.
type atStep struct{ WorkflowCaller }

func (atStep) StackOf(context.Context, *string) []replies.StackEntry {
	return []replies.StackEntry{{Workflow: "notes/write", SessionID: "0a1b2c3d"}}
}

// A call that hangs is in the log while it runs, once; one that ends in time has one line.
func TestSlowCallIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Log
		metrics := newMetrics(telemetry.LocalMetrics())
		call := func(lasts time.Duration) string {
			before := len(log.String())
			l := &CallLog{
				logger:   slog.New(slog.NewTextHandler(&log, nil)),
				metrics:  metrics,
				Tool:     "finished_step",
				identity: "local",
				began:    time.Now(),
				outcome:  "ok",
			}
			l.begin(t.Context(), atStep{})
			time.Sleep(lasts)
			synctest.Wait()
			during := log.String()[before:]
			l.end(t.Context(), nil)
			time.Sleep(time.Hour)
			all := log.String()[before:]
			testkit.True(t, strings.Count(all, "\n") == strings.Count(during, "\n")+1 &&
				strings.Contains(all, "msg=call "), "%s: %s", lasts, all)
			return during
		}
		testkit.Equal(t, call(slowCall-time.Millisecond), "", "a call that is not slow")

		const want = `msg="call still runs" tool=finished_step caller=local session=0a1b2c3d stack=[notes/write] ` +
			`took_ms=10000`
		got := call(5 * slowCall)
		testkit.True(t, strings.Count(got, "\n") == 1 && strings.Contains(got, want), "a slow call: %s", got)
	})
}

// A call is counted without allocating.
func TestCountingAllocatesNothing(t *testing.T) {
	m := newMetrics(telemetry.LocalMetrics())
	count := func() {
		m.ended(t.Context(), "finished_step", "ok", time.Millisecond)
		m.errors.Add(t.Context(), 1, m.series("finished_step", "kind", "refused").add...)
	}
	count()
	testkit.Equal(t, testing.AllocsPerRun(100, count), 0)
}

// What can only mean one thing is taken, however a client writes it; nothing else is, and outputs are never changed.
func TestField10_ValuesInAnotherForm(t *testing.T) {
	type line struct {
		Line int     `json:"line" arg:"l" min:"1"`
		File *string `json:"file" arg:"f"`
	}
	type given struct {
		N       *int            `json:"n" arg:"n" min:"1" max:"500"`
		F       *float64        `json:"f" arg:"f"`
		B       *bool           `json:"b" arg:"b"`
		List    []string        `json:"list" arg:"l"`
		Lines   []line          `json:"lines" arg:"l"`
		Text    *string         `json:"text" arg:"t"`
		Free    json.RawMessage `json:"free" arg:"f" free:"true"`
		Outputs json.RawMessage `json:"outputs" arg:"o"`
	}

	check := newArguments("t", reflect.TypeFor[given]())
	n := 5
	f := 1.5
	b := true
	text := "5"
	file := "a"
	for raw, want := range map[string]given{
		`{"n":5.0}`:                           {N: &n},
		`{"n":0.5e1}`:                         {N: &n},
		`{"n":"5"}`:                           {N: &n},
		`{"n":" 5.0"}`:                        {N: &n},
		`{"f":"1.5"}`:                         {F: &f},
		`{"b":"true"}`:                        {B: &b},
		`{"list":"[\"a\",\"5\"]"}`:            {List: []string{"a", "5"}},
		`{"lines":[{"line":5.0,"file":"a"}]}`: {Lines: []line{{5, &file}}},
		`{"lines":"[{\"line\":\"5\",\"file\":\"a\"}]"}`:    {Lines: []line{{5, &file}}},
		`{"text":"5","free":"{\"a\":5.0}"}`:                {Text: &text, Free: json.RawMessage(`{"a":5.0}`)},
		`{"outputs":{"a":"5.0","b":5.0,"c":"[1]"}}`:        {Outputs: json.RawMessage(`{"a":"5.0","b":5.0,"c":"[1]"}`)},
		`{"n":5.0,"outputs":{"z":"5.0","a":5.0},"b":null}`: {N: &n, Outputs: json.RawMessage(`{"z":"5.0","a":5.0}`)},
		`"{\"n\":\"5\"}"`: {N: &n},
	} {
		var got given
		_, fault := check.decode(json.RawMessage(raw), &got)
		testkit.True(t, fault == nil, "%s: %v", raw, fault)
		testkit.Same(t, got, want, "%s", raw)
	}
	for raw, want := range map[string]string{
		`{"n":5.5}`:                `"n"`,
		`{"n":"five"}`:             `"n"`,
		`{"n":"5,0"}`:              `"n"`,
		`{"n":"5 6"}`:              `"n"`,
		`{"n":""}`:                 `"n"`,
		`{"n":"null"}`:             `"n"`,
		`{"n":true}`:               `"n"`,
		`{"n":1e30}`:               `"n"`,
		`{"n":"0x5"}`:              `"n"`,
		`{"b":"yes"}`:              `"b"`,
		`{"b":1}`:                  `"b"`,
		`{"list":"a"}`:             `"list"`,
		`{"list":"a,b"}`:           `"list"`,
		`{"list":"{}"}`:            `"list"`,
		`{"list":[1]}`:             `"list[0]"`,
		`{"list":""}`:              `"list"`,
		`{"list":"5"}`:             `"list"`,
		`{"list":"[a"}`:            `"list"`,
		`{"lines":"x"}`:            `"lines"`,
		`{"text":5}`:               `"text"`,
		`{"lines":[{"line":"x"}]}`: `"lines[0].line"`,
		`"n"`:                      "a string, not an object",
		`{"f":1e999}`:              `"f"`,
	} {
		_, fault := check.decode(json.RawMessage(raw), new(given))
		testkit.Need(t, fault != nil, "%s: %v", raw, fault)
		testkit.Contains(t, fault.Error(), want)
		testkit.True(t, !strings.Contains(fault.Error(), "Go "), "%s: %v", raw, fault)
	}
}

// Only a form that was sent with a decision is an answer of a client's user, and an answer that nothing took is said.
func TestAnswersOfAClientsUser(t *testing.T) {
	for said, want := range map[[3]string]*machine.Answer{
		{"accept", "pass", ""}:        {Passed: true},
		{"accept", "fail", "more"}:    {Feedback: "more"},
		{"accept", "perhaps", "more"}: nil,
		{"accept", "", ""}:            nil,
		{"decline", "pass", ""}:       nil,
		{"cancel", "fail", "no"}:      nil,
	} {
		form := &mcp.ElicitResult{Action: said[0], Content: map[string]any{"decision": said[1], "feedback": said[2]}}
		testkit.Same(t, AnswerOf(form), want, "%v", said)
		for _, used := range []bool{false, true} {
			req := &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{InputResponses: mcp.InputResponseMap{"k": form}}}
			testkit.Equal(t, len(tooLate(req, map[string]bool{"k": used})) > 0, want != nil && !used, "%v, used %t",
				said, used)
		}
	}
	testkit.Equal(t, AnswerOf(nil), nil)
}

func TestWhatAWaitingCallerIsTold(t *testing.T) {
	for want, p := range map[string]*source.Progress{
		"execution_id e: running":       nil,
		"execution_id e: 1.5":           {Value: new(1.5)},
		"execution_id e: 1 of 2":        {Value: new(1.0), Total: new(2.0)},
		"execution_id e: 1 of 2, half ": {Value: new(1.0), Total: new(2.0), Message: "half \x1b"},
		"execution_id e: half":          {Message: "half"},
	} {
		testkit.Equal(t, ProgressWords(&remote.Run{ExecutionID: "e", State: remote.Running, Progress: p}), want)
	}
	testkit.Equal(t, ProgressWords(&remote.Run{
		ExecutionID: "e",
		State:       remote.Running,
		Progress:    &source.Progress{Total: new(2.0)},
	}), "execution_id e: running")
}

// The inputs of a workflow are arguments of its tool, by names that models can write, and come back as its inputs.
func TestInputsAsArguments(t *testing.T) {
	w := &job.Workflow{Inputs: []job.Parameter{
		{Name: "where to", Description: "A place", Required: true},
		{Name: "goal", Description: "A goal", Required: true, Default: new("rest")},
		{Name: "plan", Description: "A plan", Type: job.FilePath},
		{Name: "pages", Description: "Pages", Type: job.Files, Required: true},
		{Name: "map.svg", Description: "A map", Type: job.FilePath},
	}}
	all := InputArguments(w, "goal")
	args := struct {
		Goal *string `json:"goal" arg:"G"`
	}{}
	for raw, want := range map[string]string{
		`{"goal":"g","where_to":"sea","input_goal":"swim","plan":["a.md"],"pages":["b.md",` +
			`"c.md"]}`: `goal=["swim"] false, pages=["b.md" "c.md"] true, plan=["a.md"] true, where to=["sea"] false`,
		`{"where_to":"sea","plan":"a.md","pages":[],"input_goal":null}`: `pages=[] true, plan=["a.md"] false, ` +
			`where to=["sea"] false`,
		`{"pages":["b.md"]}`:                      `Missing required argument "where_to"`,
		`{"where_to":["sea"],"pages":["b.md"]}`:   `"where_to"`,
		`{"where_to":"sea","pages":"b.md"}`:       `"pages"`,
		`{"where_to":"sea","pages":[],"plan":{}}`: `"plan"`,
		`{"where_to":"sea","pages":[],"map.svg":7}`: `"[\"map.svg\"]": 7 is an integer; expected a string or an ` +
			`array: A map`,
	} {
		given, err := Decode("trip-plan", json.RawMessage(raw), &args, all...)
		if err != nil {
			testkit.Contains(t, err.Error(), want, "%s", raw)
			continue
		}

		var got []string
		for name, v := range InputValues(w, all, given) {
			got = append(got, fmt.Sprintf("%s=%q %t", name, v.Paths, v.List))
			testkit.True(t, v.Text == nil, "%s is a text", name)
		}
		slices.Sort(got)
		testkit.Equal(t, strings.Join(got, ", "), want, "%s", raw)
	}
	testkit.Equal(t, all[1].Name+": "+all[1].Description, "input_goal: A goal. Default: rest")
}

// Output schemas list the values that fields may have, with null where the field may be that.
func TestValuesOfFields(t *testing.T) {
	type reply struct {
		State string   `json:"state"`
		Kind  *string  `json:"kind"`
		Many  []string `json:"many"`
		Maybe *string  `json:"maybe,omitempty"`
	}

	s := OutputSchema[reply](Words{"state": {"a", "b"}, "kind": {"c"}})
	got := map[string]string{"others": string(MustJSON(s.AdditionalProperties))} // a client may store the schema
	for name, p := range s.Properties {
		got[name] = string(MustJSON([]any{p.Type, p.Types, p.Enum}))
	}
	testkit.Same(t, got, map[string]string{
		"others": "null",
		"state":  `["string",null,["a","b"]]`,
		"kind":   `["",["null","string"],["c",null]]`,
		"many":   `["array",null,null]`,
		"maybe":  `["string",null,null]`,
	})

	type choice struct {
		Sure string  `json:"sure" arg:"S" required:"true" enum:"a,b"`
		May  *string `json:"may" arg:"M" enum:"c"`
	}
	in := Input[choice]()
	testkit.Equal(t,
		string(MustJSON([]any{in.Properties["sure"].Enum, in.Properties["may"].Enum,
			listedInput(in).Properties["may"].Enum, in.Required})), `[["a","b"],["c",null],["c"],["sure"]]`)
}

// A call's log names the session that the call began, was given, or is in; a call after its end is not told.
func TestTheSessionOfACall(t *testing.T) {
	in := []replies.StackEntry{{SessionID: "0000000a"}, {SessionID: "0000000b"}}
	for _, c := range []struct {
		log   CallLog
		reply any
		want  string
	}{
		{CallLog{}, nil, ""},
		{CallLog{stack: in}, nil, "0000000b"},
		{CallLog{stack: in, session: new("0000000c")}, &replies.Start{}, "0000000c"},
		{CallLog{stack: in, session: new("0000000c")}, &replies.Start{
			SessionID: "0000000d",
			BeginStep: &replies.StepInfo{SessionID: "0000000e"},
		}, "0000000d"},
	} {
		testkit.Equal(t, c.log.sessionOf(c.reply), c.want)
	}
}
