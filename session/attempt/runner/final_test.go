package runner

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFinal(t *testing.T) {
	lines := func(stream string, texts ...string) (es []Entry) {
		for _, text := range texts {
			es = append(es, Entry{Stream: stream, Text: text})
		}
		return es
	}
	final := func(entries []Entry) string {
		s, e := newSummary(), Exit{}
		for _, entry := range entries {
			s.line(entry.Stream, []byte(entry.Text))
		}
		s.put(&e)
		return e.FinalMessage
	}
	long := strings.Repeat("é", MaxFinal+5)
	big := `{"type":"result","subtype":"success","result":"` + strings.Repeat("x", 3*MaxLine) + `"}`
	for name, c := range map[string]struct {
		entries []Entry
		want    string
	}{
		"nothing":  {nil, ""},
		"plain":    {append(lines(Stdout, "one", " two ", "", "  "), lines(Stderr, "oops")...), "two"},
		"stderr":   {append(lines(Stdout, " "), lines(Stderr, "oops", "")...), "oops"},
		"system":   {lines(System, "started"), ""},
		"too long": {lines(Stdout, long), strings.Repeat("é", MaxFinal)},
		"binary":   {lines(Stdout, "a\xffb"), "a\ufffdb"},
		"claude": {lines(Stdout,
			`{"type":"system","subtype":"init","session_id":"x"}`,
			`{"type":"assistant","message":{"content":[{"type":"text","text":"Hm"}]}}`,
			`{"type":"result","subtype":"success","is_error":false,"result":"All\ndone.","session_id":"x"}`, "bye"), "All\ndone."},
		"codex": {lines(Stdout,
			`{"type":"thread.started","thread_id":"x"}`,
			`{"type":"item.completed","item":{"id":"0","type":"agent_message","text":"First"}}`,
			`{"type":"item.completed","item":{"id":"1","type":"command_execution","command":"ls","aggregated_output":"x","exit_code":0}}`,
			`{"type":"item.completed","item":{"id":"2","type":"agent_message","text":"Last"}}`,
			`{"type":"turn.completed","usage":{"input_tokens":1}}`), "Last"},
		"gemini stream": {lines(Stdout,
			`{"type":"init","session_id":"x","model":"m"}`,
			`{"type":"message","role":"user","content":"do it"}`,
			`{"type":"message","role":"assistant","content":"I will. ","delta":true}`,
			`{"type":"tool_use","tool_name":"t","tool_id":"1","parameters":{}}`,
			`{"type":"message","role":"assistant","content":"It is ","delta":true}`,
			`{"type":"message","role":"assistant","content":"done.","delta":true}`,
			`{"type":"result","status":"success","stats":{}}`), "It is done."},
		"gemini json":  {lines(Stdout, `{"session_id":"x","response":"Fine","stats":{}}`), "Fine"},
		"opencode":     {lines(Stdout, `{"type":"step_start","part":{"type":"step-start"}}`, `{"type":"text","sessionID":"s","part":{"type":"text","text":"Ready"}}`, `{"type":"step_finish","part":{"type":"step-finish"}}`), "Ready"},
		"split":        {lines(Stdout, big[:MaxLine], big[MaxLine:2*MaxLine], big[2*MaxLine:3*MaxLine], big[3*MaxLine:]), strings.Repeat("x", MaxFinal)},
		"no words":     {lines(Stdout, `{"type":"result","subtype":"error_during_execution","is_error":true}`), `{"type":"result","subtype":"error_during_execution","is_error":true}`},
		"other json":   {lines(Stdout, `{"result":[1]}`), `{"result":[1]}`},
		"broken json":  {lines(Stdout, `{"type":"result","result":`), `{"type":"result","result":`},
		"other shapes": {lines(Stdout, `{"type":"item.completed","item":"text"}`, "end"), "end"},
	} {
		if got := final(c.entries); got != c.want {
			t.Errorf("%s: %.200q, want %.200q", name, got, c.want)
		}
	}
	if got := final(lines(Stdout, long)); utf8.RuneCountInString(got) != MaxFinal {
		t.Errorf("%d characters", utf8.RuneCountInString(got))
	}
}
