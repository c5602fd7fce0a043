package transport

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"deepwork/session/workflow"
)

func TestArgumentErrors(t *testing.T) {
	s, _ := fakeServer(t, nil)
	cs := client(t, s)
	deep := strings.Repeat("[", 11) + strings.Repeat("]", 11)
	for _, c := range []struct {
		name, tool, args, code string
		says                   []string
	}{
		{"unknown", "start_workflow", `{"goal":"g","job_name":"j","workflow_name":"w","jobname":"x"}`, "unknown_argument",
			[]string{`"jobname"`, "goal, job_name, workflow_name", "instance_id"}},
		{"case", "start_workflow", `{"Goal":"g","job_name":"j","workflow_name":"w"}`, "unknown_argument", []string{`"Goal"`, `Missing required argument "goal"`}},
		{"none taken", "get_workflows", `{"a":1}`, "unknown_argument", []string{"takes no arguments"}},
		{"missing", "start_workflow", `{"goal":"g"}`, "missing_argument", []string{`"job_name"`, `"workflow_name"`}},
		{"all missing", "abort_workflow", `null`, "missing_argument", []string{`"explanation"`}},
		{"null required", "finished_step", `{"outputs":null}`, "missing_argument", []string{`"outputs"`}},
		{"number for text", "start_workflow", `{"goal":42,"job_name":"j","workflow_name":"w"}`, "invalid_argument", []string{`"goal"`, "a number (42)", "a string"}},
		{"object for text", "get_step", `{"session_id":{"a":1}}`, "invalid_argument", []string{`"session_id"`, "an object", "must be a string"}},
		{"text for outputs", "finished_step", `{"outputs":"a.md"}`, "invalid_argument", []string{`"outputs"`, `a string ("a.md")`, "it must be an object"}},
		{"boolean for outputs", "finished_step", `{"outputs":true}`, "invalid_argument", []string{`"outputs"`, "a boolean"}},
		{"long goal", "start_workflow", `{"goal":"` + strings.Repeat("g", maxText+1) + `","job_name":"j","workflow_name":"w"}`, "argument_too_large",
			[]string{`"goal"`, "100001 characters", "100000"}},
		{"long name", "start_workflow", `{"goal":"g","job_name":"` + strings.Repeat("j", maxName+1) + `","workflow_name":"w"}`, "argument_too_large", []string{`"job_name"`, "200"}},
		{"long request_id", "abort_workflow", `{"explanation":"e","request_id":"` + strings.Repeat("é", maxName+1) + `"}`, "argument_too_large", []string{`"request_id"`, "201 characters"}},
		{"large outputs", "finished_step", `{"outputs":{"a":"` + strings.Repeat("x", maxOutputsBytes) + `"}}`, "argument_too_large", []string{`"outputs"`, "bytes"}},
		{"deep outputs", "finished_step", `{"outputs":` + deep + `}`, "argument_too_large", []string{`"outputs"`, "nested 11 deep", "10"}},
		{"a list", "get_step", `["x"]`, "invalid_arguments", []string{"an array, not an object"}},
		{"a text", "get_step", `"x"`, "invalid_arguments", []string{"a string, not an object"}},
		{"several", "start_workflow", `{"a":1,"goal":7}`, "unknown_argument", []string{`"a"`, `"goal"`, `"job_name"`, `"workflow_name"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := callTool(t, cs, c.tool, c.args)
			if !res.IsError || res.StructuredContent != nil {
				t.Fatalf("accepted: %s", clip(text(res), 500))
			}
			got := text(res)
			if !strings.HasPrefix(got, "ToolError: ") || len([]rune(got)) > errorChars {
				t.Errorf("text of %d characters: %s", len([]rune(got)), clip(got, 300))
			}
			for _, want := range c.says {
				if !strings.Contains(got, want) {
					t.Errorf("%q is not in: %s", want, clip(got, 1000))
				}
			}
			if meta := errorMetaOf(t, res); meta["code"] != c.code || meta["type"] != "ToolError" {
				t.Errorf("_meta %v, want code %s", meta, c.code)
			}
		})
	}
}

func TestArgumentsAreAccepted(t *testing.T) {
	var got workflow.FinishArgs
	s, _ := fakeServer(t, func(a *fakeAgent) {
		a.finish = func(_ context.Context, args workflow.FinishArgs) (*workflow.FinishReply, error) {
			got = args
			return fullFinish(), nil
		}
	})
	cs := client(t, s)
	for _, c := range []struct{ args, outputs string }{
		{`{"outputs":{"b":1,"a":null}}`, `{"b":1,"a":null}`}, // 001.5 judges the values
		{`{"outputs":["a.md"]}`, `["a.md"]`},                 // seed 001
		{`{"outputs":{},"notes":null,"session_id":null,"step_id":null,"request_id":null,"quality_review_override_reason":null}`, `{}`},
		{`{"outputs":{"x":"` + strings.Repeat("é", 1000) + `"},"notes":"` + strings.Repeat("é", maxText) + `"}`, `{"x":"` + strings.Repeat("é", 1000) + `"}`},
	} {
		if res := callTool(t, cs, "finished_step", c.args); res.IsError {
			t.Errorf("%s: %s", clip(c.args, 200), text(res))
		}
		if string(got.Outputs) != c.outputs || got.SessionID != nil || got.StepID != nil {
			t.Errorf("%s: got %s %v", clip(c.args, 200), clip(string(got.Outputs), 200), got.SessionID)
		}
	}
	if n := len([]rune(*got.Notes)); n != maxText {
		t.Errorf("notes of %d characters, want %d", n, maxText)
	}
}

// An argument that stands twice has two meanings.
func TestArgumentGivenTwice(t *testing.T) {
	check := newArguments("get_step", inputSchema(sessionID()))
	var args workflow.StepArgs
	if err := check.decode(json.RawMessage(`{"session_id":"a","session_id":"b"}`), &args); err == nil || !strings.Contains(err.Message, "twice") {
		t.Errorf("got %v", err)
	}
}

func TestDepth(t *testing.T) {
	for in, want := range map[string]int{`"[{"`: 0, `1`: 0, `[]`: 1, `{"a":["\"[["]}`: 2, `[[],[[]]]`: 3} {
		if got := depth(json.RawMessage(in)); got != want {
			t.Errorf("depth(%s) = %d, want %d", in, got, want)
		}
	}
}

func FuzzArguments(f *testing.F) {
	for _, s := range []string{`{"outputs":{"a":"b"}}`, `{"outputs":[],"notes":"\ud800"}`, `{"outputs":1e999}`, `[]`, `null`, `{"a":{"b":[`} {
		f.Add(s)
	}
	schema := inputSchema(property{"outputs", true, outputsSchema()}, optional("notes", 10, "n"))
	check := newArguments("t", schema)
	f.Fuzz(func(t *testing.T, raw string) {
		var args workflow.FinishArgs
		err := check.decode(json.RawMessage(raw), &args)
		if err == nil && (len(args.Outputs) == 0 || isNull(args.Outputs)) {
			t.Errorf("%q was accepted without outputs", raw)
		}
		if err != nil && (err.Code == "" || !strings.Contains(err.Message, "t")) {
			t.Errorf("%q: %v", raw, err)
		}
		if err == nil && args.Notes != nil && len([]rune(*args.Notes)) > 10 {
			t.Errorf("%q: notes %q", raw, *args.Notes)
		}
	})
}
