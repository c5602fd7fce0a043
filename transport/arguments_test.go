package transport

import (
	"context"
	"strings"
	"testing"

	"deepwork/catalog/jsontext"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
	"deepwork/transport/tool"
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
		{"number for text", "start_workflow", `{"goal":42,"job_name":"j","workflow_name":"w"}`, "invalid_argument", []string{`"goal"`, "42 is an integer", "a string"}},
		{"object for text", "get_step", `{"session_id":{"a":1}}`, "invalid_argument", []string{`"session_id"`, "an object", "expected a string"}},
		{"deep outputs as text", "finished_step", `{"outputs":"` + deep + `"}`, "argument_too_large", []string{`"outputs"`, "nested 11 levels deep", "10"}},
		{"boolean for outputs", "finished_step", `{"outputs":true}`, "invalid_argument", []string{`"outputs"`, "a boolean"}},
		{"long goal", "start_workflow", `{"goal":"` + strings.Repeat("g", tool.MaxText+1) + `","job_name":"j","workflow_name":"w"}`, "argument_too_large",
			[]string{`"goal"`, "100,001", "100,000"}},
		{"long name", "start_workflow", `{"goal":"g","job_name":"` + strings.Repeat("j", tool.MaxName+1) + `","workflow_name":"w"}`, "argument_too_large", []string{`"job_name"`, "200"}},
		{"long request_id", "abort_workflow", `{"explanation":"e","request_id":"` + strings.Repeat("é", tool.MaxName+1) + `"}`, "argument_too_large", []string{`"request_id"`, "201", "200"}},
		{"large outputs", "finished_step", `{"outputs":{"a":"` + strings.Repeat("x", tool.MaxArgumentBytes) + `"}}`, "argument_too_large", []string{`"outputs"`, "bytes"}},
		{"deep outputs", "finished_step", `{"outputs":` + deep + `}`, "argument_too_large", []string{`"outputs"`, "nested 11 levels deep", "10"}},
		{"a list", "get_step", `["x"]`, "invalid_arguments", []string{"an array, not an object"}},
		{"a text", "get_step", `"x"`, "invalid_arguments", []string{"a string, not an object"}},
		{"several", "start_workflow", `{"a":1,"goal":7}`, "unknown_argument", []string{`"a"`, `"goal"`, `"job_name"`, `"workflow_name"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := callTool(t, cs, c.tool, c.args)
			if !res.IsError || res.StructuredContent != nil {
				t.Fatalf("accepted: %s", jsontext.Clip(text(res), 500))
			}
			got := text(res)
			if !strings.HasPrefix(got, "ToolError: ") || len([]rune(got)) > tool.ErrorChars {
				t.Errorf("text of %d characters: %s", len([]rune(got)), jsontext.Clip(got, 300))
			}
			for _, want := range c.says {
				if !strings.Contains(got, want) {
					t.Errorf("%q is not in: %s", want, jsontext.Clip(got, 1000))
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
		a.finish = func(_ context.Context, args workflow.FinishArgs) (*machine.FinishReply, error) {
			got = args
			return fullFinish(), nil
		}
	})
	cs := client(t, s)
	for _, c := range []struct{ args, outputs string }{
		{`{"outputs":{"b":1,"a":null}}`, `{"b":1,"a":null}`}, // 001.5 judges the values
		{`{"outputs":["a.md"]}`, `["a.md"]`},                 // seed 001
		{`{"outputs":{},"notes":null,"session_id":null,"step_id":null,"request_id":null,"quality_review_override_reason":null}`, `{}`},
		{`{"outputs":{"x":"` + strings.Repeat("é", 1000) + `"},"notes":"` + strings.Repeat("é", tool.MaxText) + `"}`, `{"x":"` + strings.Repeat("é", 1000) + `"}`},
	} {
		if res := callTool(t, cs, "finished_step", c.args); res.IsError {
			t.Errorf("%s: %s", jsontext.Clip(c.args, 200), text(res))
		}
		if string(got.Outputs) != c.outputs || got.SessionID != nil || got.StepID != nil {
			t.Errorf("%s: got %s %v", jsontext.Clip(c.args, 200), jsontext.Clip(string(got.Outputs), 200), got.SessionID)
		}
	}
	if n := len([]rune(*got.Notes)); n != tool.MaxText {
		t.Errorf("notes of %d characters, want %d", n, tool.MaxText)
	}
}
