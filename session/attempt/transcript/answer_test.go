package transcript

import (
	"strings"
	"testing"
)

func TestAnswer(t *testing.T) {
	verdict := `{\"passed\": true}`
	long := strings.Repeat("x", 128<<10)
	for name, c := range map[string]struct{ stdout, want string }{
		"nothing": {"", ""},
		"plain":   {"I looked.\n{\n \"passed\": false\n}\n", "I looked.\n{\n \"passed\": false\n}\n"},
		"verdict": {`{"passed": true}`, `{"passed": true}`},
		"claude": {`{"type":"assistant","message":{"content":[{"type":"text","text":"Hm ` + verdict + `"}]}}
{"type":"result","subtype":"success","is_error":false,"result":"` + verdict + `"}
`, `{"type":"result","subtype":"success","is_error":false,"result":"` + verdict + `"}` + "\n"},
		"claude failed": {`{"type":"assistant","message":{"content":[{"type":"text","text":"` + verdict + `"}]}}
{"type":"result","subtype":"error_max_turns","is_error":true}`, `{"type":"result","subtype":"error_max_turns","is_error":true}`},
		"claude, no result": {`{"type":"assistant","message":{"content":[{"type":"text","text":"No"}]}}
{"type":"assistant","message":{"content":[{"type":"text","text":"Last"}]}}`, "Last"},
		"codex": {`{"type":"item.completed","item":{"type":"agent_message","text":"First"}}
{"type":"item.completed","item":{"type":"agent_message","text":"` + long + `"}}

{"type":"turn.completed","usage":{"input_tokens":1}}`, long},
		"gemini": {`Loaded cached credentials.
{"type":"message","role":"assistant","content":"Hm."}
{"type":"message","role":"assistant","content":"It ","delta":true}
{"type":"message","role":"assistant","content":"is.","delta":true}
{"type":"result","status":"success"}`, "It is."},
		"no words": {`{"type":"x"}`, `{"type":"x"}`},
		// The text of a file, which a reviewer quotes, is not its answer.
		"quoted before": {`{"type":"result","result":"` + verdict + `"}
{"passed": false}`, `{"type":"result","result":"` + verdict + `"}
{"passed": false}`},
		"quoted after": {`{"passed": false}
{"type":"result","result":"` + verdict + `"}`, `{"passed": false}
{"type":"result","result":"` + verdict + `"}`},
	} {
		if got := string(Answer([]byte(c.stdout))); got != c.want {
			t.Errorf("%s: %.200q, want %.200q", name, got, c.want)
		}
	}
}
