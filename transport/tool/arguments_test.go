package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor/telemetry"
	"deepwork/actor/testkit"
	"deepwork/session/board"
	"deepwork/session/workflow/machine"
)

// An argument that is given twice has two meanings.
func TestArgumentGivenTwice(t *testing.T) {
	var args struct {
		SessionID *string `json:"session_id" arg:"A session"`
	}
	check := newArguments("get_step", reflect.TypeOf(args))
	if _, err := check.decode(json.RawMessage(`{"session_id":"a","session_id":"b"}`), &args); err == nil || !strings.Contains(err.Message, "twice") {
		t.Errorf("got %v", err)
	}
}

// A tool takes the arguments of its schema, and those that it does not list.
func TestUnlistedArguments(t *testing.T) {
	type listed struct {
		A *string `json:"a" arg:"A." max:"10"`
	}
	type all struct {
		listed
		B *string `json:"b" arg:"B." unlisted:"true"`
	}
	b := newArguments("t", reflect.TypeFor[all]())
	testkit.True(t, b.input.Properties["b"] == nil, "b is listed")
	var got all
	if _, fault := b.decode(json.RawMessage(`{"b":"x"}`), &got); fault != nil || got.B == nil || *got.B != "x" {
		t.Errorf("%v, %+v", fault, got)
	}
	if _, fault := newArguments("t", reflect.TypeFor[listed]()).decode(json.RawMessage(`{"b":"x"}`), &got); fault == nil {
		t.Error("an argument of another tool was taken")
	}
}

// An argument that is a map takes texts and lists of texts, and null for none.
func TestMapOfTextsAndLists(t *testing.T) {
	type all struct {
		Inputs board.Inputs `json:"inputs" arg:"Values"`
	}
	check := newArguments("t", reflect.TypeFor[all]())
	if listed := listedInput(check.input).Properties["inputs"]; listed.AdditionalProperties != nil || listed.Type != "object" { // agents see less
		t.Errorf("listed as %s", MustJSON(listed))
	}
	for raw, want := range map[string]string{
		`{"inputs":{"a":"x","b":["y"],"c":null}}`: "",
		`{"inputs":{"a":5}}`:                      `Argument "inputs.a": 5 is an integer; expected a string or an array`,
		`{"inputs":{"a":["y",{}]}}`:               `"inputs.a[1]"`,
		`{"inputs":{"a":{"text":"x"}}}`:           `"inputs.a"`,
		`{"inputs":"a"}`:                          `"inputs"`,
		`{"agent_id":"x"}`:                        `"agent_id": leave it out. A subagent passes the session_id`,
	} {
		var got all
		_, fault := check.decode(json.RawMessage(raw), &got)
		testkit.True(t, (fault == nil) == (want == "") && (fault == nil || strings.Contains(fault.Message, want)), "%s: %v, want %q", raw, fault, want)
		testkit.True(t, want != "" || len(got.Inputs) == 3, "%s: %v", raw, got.Inputs)
	}
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
		{`{` + known + `,"outputs":{},"jobname":"x"}`, "unknown_argument", []string{`"jobname"`, "goal, job_name, outputs", "session_id"}},
		{`{"Goal":"g","job_name":"j","outputs":{}}`, "unknown_argument", []string{`"Goal"`, `Missing required argument "goal"`}},
		{`{"goal":"g"}`, "missing_argument", []string{`"job_name"`, `"outputs"`}},
		{`null`, "missing_argument", []string{`"goal"`}},
		{`{` + known + `,"outputs":null}`, "missing_argument", []string{`"outputs"`}},
		{`{"goal":42,"job_name":"j","outputs":{}}`, "invalid_argument", []string{`"goal"`, "42 is an integer", "a string"}},
		{`{` + known + `,"outputs":{},"session_id":{"a":1}}`, "invalid_argument", []string{`"session_id"`, "an object", "expected a string"}},
		{`{` + known + `,"outputs":true}`, "invalid_argument", []string{`"outputs"`, "a boolean"}},
		{`{"goal":"` + strings.Repeat("é", 11) + `","job_name":"j","outputs":{}}`, "argument_too_large", []string{`"goal"`, "11", "10"}},
		{`{` + known + `,"outputs":{"a":"` + strings.Repeat("x", MaxArgumentBytes) + `"}}`, "argument_too_large", []string{`"outputs"`, "bytes"}},
		{`{` + known + `,"outputs":` + deep + `}`, "argument_too_large", []string{`"outputs"`, "nested 11 levels deep", "10"}},
		{`{` + known + `,"outputs":"` + deep + `"}`, "argument_too_large", []string{`"outputs"`, "nested 11 levels deep", "10"}},
		{`["x"]`, "invalid_arguments", []string{"an array, not an object"}},
		{`{"a":1,"goal":7}`, "unknown_argument", []string{`"a"`, `"goal"`, `"job_name"`, `"outputs"`}},
	} {
		_, fault := newArguments("start", reflect.TypeFor[step]()).decode(json.RawMessage(c.raw), new(step))
		if fault == nil || fault.Code != c.code {
			t.Errorf("%.100s: %v, want %s", c.raw, fault, c.code)
			continue
		}
		testkit.ContainsAll(t, fault.Message, c.says, "%.100s", c.raw)
	}
	var got step
	if _, fault := newArguments("start", reflect.TypeFor[step]()).decode(json.RawMessage(`{`+known+`,"outputs":["a.md"],"session_id":null}`), &got); fault != nil || string(got.Outputs) != `["a.md"]` || got.Session != nil {
		t.Errorf("%v: %+v", fault, got)
	}
	if _, fault := newArguments("none", reflect.TypeFor[NoArgs]()).decode(json.RawMessage(`{"a":1}`), new(NoArgs)); fault == nil || !strings.Contains(fault.Message, "takes no arguments") {
		t.Error(fault)
	}
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
			_, fault := newArguments("t", reflect.TypeFor[limited]()).decode(json.RawMessage(`{"`+c.name+`":`+c.of(n)+`}`), new(limited))
			testkit.Equal(t, fault == nil, want, "%s of %d: %v", c.name, n, fault)
		}
	}
	for n, want := range map[int]string{1000: "unknown", 1001: "more than 1000"} {
		var many []string
		for i := range n {
			many = append(many, fmt.Sprintf(`"a%d":1`, i))
		}
		_, fault := newArguments("t", reflect.TypeFor[limited]()).decode(json.RawMessage(`{`+strings.Join(many, ",")+`}`), new(limited))
		testkit.Contains(t, strings.ToLower(fault.Message), want, "%d arguments", n)
	}
}

func FuzzArguments(f *testing.F) {
	for _, s := range []string{`{"outputs":{"a":"b"}}`, `{"outputs":[],"notes":"\ud800"}`, `{"outputs":1e999}`, `[]`, `null`, `{"a":{"b":[`} {
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
		testkit.True(t, err != nil || len(args.Outputs) != 0 && string(args.Outputs) != "null", "%q was accepted without outputs", raw)
		testkit.True(t, err == nil || err.Code != "" && strings.Contains(err.Message, "t"), "%q: %v", raw, err)
		if err == nil && args.Notes != nil && len([]rune(*args.Notes)) > 10 {
			t.Errorf("%q: notes %q", raw, *args.Notes)
		}
	})
}

// An atStep has one session on its stack.
type atStep struct{ WorkflowCaller }

func (atStep) StackOf(context.Context, *string) []machine.StackEntry {
	return []machine.StackEntry{{Workflow: "notes/write", SessionID: "0a1b2c3d"}}
}

// A call that hangs is in the log while it runs, once; one that ends in time has one line.
func TestSlowCallIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Log
		metrics := newMetrics(telemetry.LocalMetrics())
		call := func(lasts time.Duration) string {
			before := len(log.String())
			l := &CallLog{logger: slog.New(slog.NewTextHandler(&log, nil)), metrics: metrics, Tool: "finished_step", identity: "local", began: time.Now(), outcome: "ok"}
			l.begin(t.Context(), atStep{})
			time.Sleep(lasts)
			synctest.Wait()
			during := log.String()[before:]
			l.end(t.Context(), nil)
			time.Sleep(time.Hour)
			if all := log.String()[before:]; strings.Count(all, "\n") != strings.Count(during, "\n")+1 || !strings.Contains(all, "msg=call ") {
				t.Errorf("%s: %s", lasts, all)
			}
			return during
		}
		testkit.Equal(t, call(slowCall-time.Millisecond), "", "a call that is not slow")
		const want = `msg="call still runs" tool=finished_step caller=local session=0a1b2c3d stack=[notes/write] took_ms=10000`
		if got := call(5 * slowCall); strings.Count(got, "\n") != 1 || !strings.Contains(got, want) {
			t.Errorf("a slow call: %s", got)
		}
	})
}

// A call is counted without allocating.
func TestCountingAllocatesNothing(t *testing.T) {
	m := newMetrics(telemetry.LocalMetrics())
	count := func() {
		m.ended(t.Context(), "finished_step", "ok", time.Millisecond)
		m.errors.Add(t.Context(), 1, m.of("finished_step", "kind", "refused").add...)
	}
	count()
	testkit.Equal(t, testing.AllocsPerRun(100, count), 0)
}
