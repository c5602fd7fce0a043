package transcript

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"deepwork/actor/testkit"
)

var update = flag.Bool("update", false, "write the transcripts of the streams into testdata")

// streams are what Claude Code 2.1.197 (claude_resumed: 2.1.332), Codex 0.169.0 and OpenCode 1.18.33 printed
// with scripted models.
func streams(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", "*.jsonl"))
	testkit.Need(t, err == nil && len(paths) != 0, "no streams in testdata %v", err)

	all := map[string][]byte{}
	for _, path := range paths {
		all[strings.TrimSuffix(filepath.Base(path), ".jsonl")] = testkit.Get(os.ReadFile(path)).Must(t)
	}
	return all
}

// read reads a stream whose lines are split.
func read(data []byte, split int) (all []Message, u *Usage) {
	r := Reader{Split: split}
	give := func(m Message) { all = append(all, m) }
	for line := range bytes.Lines(data) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		for split > 0 && len(line) > split {
			r.Line(line[:split], give)
			line = line[split:]
		}
		r.Line(line, give)
	}
	r.End(give)
	return all, r.Usage()
}

func usageOf(t *testing.T, stream string) *Usage {
	t.Helper()
	_, u := read(streams(t)[stream], 0)
	testkit.Need(t, u != nil, "no usage in %v", stream)
	return u
}

func TestStreamsOfRealAgents(t *testing.T) {
	for name, data := range streams(t) {
		all, u := read(data, 0)
		var text strings.Builder
		for _, m := range all {
			part := func(of, format string) string { return map[bool]string{true: fmt.Sprintf(format, of)}[of != ""] }
			failed := map[bool]string{true: " failed"}[m.Failed]
			fmt.Fprintf(&text, "%s%s%s%s%s: %s\n", m.Kind, part(m.Tool, " %s"), part(m.CallID, " (%s)"),
				part(m.Parent, " of %s"), failed, strings.ReplaceAll(m.Text, "\n", "\n    "))
		}
		usage := testkit.Get(json.MarshalIndent(u, "", "  ")).Must(t)
		fmt.Fprintf(&text, "\n%s\n", regexp.MustCompile(`\n *"\w+": 0,`).ReplaceAll(usage, nil))
		testkit.Golden(t, filepath.Join("testdata", name+".txt"), text.String(), *update)
	}
}

// Pieces of lines give the same transcript as whole lines.
func TestLinesInPieces(t *testing.T) {
	for name, data := range streams(t) {
		whole, used := read(data, 0)
		for _, split := range []int{64, 100, 1000} {
			got, u := read(data, split)
			testkit.True(t, reflect.DeepEqual(got, whole) && reflect.DeepEqual(u, used),
				"%s in pieces of %d:\n%+v\n%+v\nwant\n%+v\n%+v", name, split, got, u, whole, used)
		}
	}
}

func TestOtherLines(t *testing.T) {
	said := `{"type":"item.completed","item":{"id":"1","type":"agent_message","text":"Hello"}}`
	long := `{"type":"item.completed","item":{"id":"1","type":"agent_message","text":"` +
		strings.Repeat("é", MaxText) + `"}}`
	for name, c := range map[string]struct {
		line string
		want []Message
	}{
		"blank":           {" \t", nil},
		"plain":           {" building… ", []Message{{Kind: Output, Text: "building…"}}},
		"said":            {said, []Message{{Kind: Said, Text: "Hello"}}},
		"torn":            {said[:40], []Message{{Kind: Output, Text: said[:40]}}},
		"two in one line": {said[:40] + said, []Message{{Kind: Output, Text: said[:40] + said}}},
		"not UTF-8":       {"a\xff\xfeb", []Message{{Kind: Output, Text: "a?b"}}},
		"null":            {"null", []Message{{Kind: Output, Text: "null"}}},
		"unknown":         {`{"type":"item.rejected"}`, []Message{{Kind: Output, Text: `{"type":"item.rejected"}`}}},
		"another agent": {`{"type":"result","status":"success"}`,
			[]Message{{Kind: Output, Text: `{"type":"result","status":"success"}`}}},
		"no message":    {`{"type":"assistant"}`, []Message{{Kind: Output, Text: `{"type":"assistant"}`}}},
		"other shapes":  {`{"type":"assistant","message":{"content":7,"usage":"none"}}`, nil},
		"other numbers": {`{"type":"turn.completed","usage":{"input_tokens":1.5,"output_tokens":-3}}`, nil},
		"new item": {`{"type":"item.started","item":{"id":"1","type":"dance","text":"waltz"}}`,
			[]Message{{Kind: Call, Tool: "dance", CallID: "1", Text: "waltz"}}},
		"long text": {long, []Message{{Kind: Said, Text: strings.Repeat("é", MaxText/2), Cut: true}}},
		"to do": {`{"type":"item.updated","item":{"id":"1","type":"todo_list","items":[{"text":"a",` +
			`"completed":true},{"text":"b"}]}}`,
			[]Message{{Kind: Call, Tool: "todo_list", CallID: "1", Text: "[x] a\n[ ] b"}}},
		"result with an image": {`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"1",` +
			`"content":[{"type":"text","text":"a"},{"type":"image"}]}]}}`,
			[]Message{{Kind: Result, CallID: "1", Text: "a\n[image]"}}},
		"failed tool": {`{"type":"tool_use","sessionID":"s","part":{"tool":"bash","callID":"1",` +
			`"state":{"status":"error","input":{"a":1},"error":"denied"}}}`,
			[]Message{{Kind: Call, Tool: "bash", CallID: "1", Text: `{"a":1}`},
				{Kind: Result, CallID: "1", Text: "denied", Failed: true}}},
		"failed step": {`{"type":"error","sessionID":"s","error":{"name":"APIError","data":{"message":"no ` +
			`credit"}}}`, []Message{{Kind: Failure, Text: "no credit"}}},
		"failed for a reason": {`{"type":"error","sessionID":"s","error":{"name":"APIError"}}`,
			[]Message{{Kind: Failure, Text: "APIError"}}},
		"no part": {`{"type":"text","sessionID":"s"}`,
			[]Message{{Kind: Output, Text: `{"type":"text","sessionID":"s"}`}}},
		"no turns left": {`{"type":"result","subtype":"error_max_turns","is_error":true,"num_turns":3}`,
			[]Message{{Kind: Failure, Text: "error_max_turns"}}},
	} {
		got, _ := read([]byte(c.line), 0)
		testkit.True(t, reflect.DeepEqual(got, c.want), "%s: %.300s, want %.300s", name, fmt.Sprintf("%+v", got),
			fmt.Sprintf("%+v", c.want))
	}
}

// The name of a conversation becomes an argument of a command, so not every one is taken.
func TestNamesOfConversations(t *testing.T) {
	for name, want := range map[string]bool{
		"azAZ09_-":               true,
		"-x":                     false,
		"a b":                    false,
		"a@b":                    false,
		"a[b":                    false,
		strings.Repeat("a", 200): true,
		strings.Repeat("a", 201): false,
	} {
		var r Reader
		r.Line([]byte(`{"type":"thread.started","thread_id":"`+name+`"}`), func(Message) {})
		testkit.Equal(t, r.Conversation() == name, want, "%s is taken", name)
	}
}

// A line that is longer than what is kept is shown by its beginning, whole or in pieces, and the next one is read.
func TestLongLines(t *testing.T) {
	const split = 64 << 10
	said := `{"type":"item.completed","item":{"id":"1","type":"agent_message","text":"Hello"}}`
	for _, long := range []string{`{"type":"assistant","message":"` + strings.Repeat("x", 3*MaxLine) + `"}`,
		strings.Repeat("é", 2*MaxLine+50)} {
		for _, pieces := range []int{0, split} {
			got, _ := read([]byte(long+"\n"+said), pieces)
			testkit.Need(t, len(got) == 2, "in pieces of %d: %.300s", pieces, fmt.Sprintf("%+v", got))
			testkit.Equal(t, got[0].Kind, Output, "in pieces of %d: %.300s", pieces, fmt.Sprintf("%+v", got))
			testkit.True(t, got[0].Cut, "in pieces of %d: %.300s", pieces, fmt.Sprintf("%+v", got))
			testkit.Equal(t, got[0].Text, long[:MaxText], "in pieces of %d: %.300s", pieces, fmt.Sprintf("%+v", got))
			testkit.Equal(t, got[1].Text, "Hello", "in pieces of %d: %.300s", pieces, fmt.Sprintf("%+v", got))
		}
	}

	r := Reader{Split: split}
	for range 1000 {
		r.Line(bytes.Repeat([]byte("x"), split), func(Message) { t.Fatal("a piece is given") })
	}
	testkit.True(t, cap(r.held) <= 2*MaxLine, "%d bytes are kept", cap(r.held))

	// A line that is just as long as a piece is not taken for one.
	got, _ := read([]byte(said+"\n"+said), len(said))
	testkit.Need(t, len(got) == 2, "%+v", got)
	testkit.Equal(t, got[0].Text, "Hello")
	testkit.Equal(t, got[1].Text, "Hello")
}

func FuzzReader(f *testing.F) {
	for _, data := range streams(f) {
		f.Add(data, uint16(0))
		f.Add(data, uint16(90))
		f.Add(data[:len(data)/2], uint16(64))
	}

	f.Fuzz(func(t *testing.T, data []byte, split uint16) {
		if split > 0 {
			split = max(split, 16)
		}
		all, u := read(data, int(split))
		for _, m := range all {
			testkit.Need(t, len(m.Text) <= MaxText, "%+v", m)
			testkit.True(t, utf8.ValidString(m.Text), "%+v", m)
			testkit.True(t, utf8.ValidString(m.Tool+m.CallID+m.Parent), "%+v", m)
			testkit.True(t, m.Kind != "", "%+v", m)
		}
		if u == nil {
			return
		}
		testkit.True(t, len(u.Models) <= maxModels+1, "%d models", len(u.Models))

		text := testkit.Get(json.Marshal(u)).Must(t)
		var again Usage
		err := json.Unmarshal(text, &again)
		testkit.True(t, err == nil && reflect.DeepEqual(&again, u), "%+v is stored as %s, which is %+v: %v", u, text,
			again, err)

		for _, before := range []map[string]Tokens{nil, u.Models} {
			c := CostOf(u, before, map[string]Price{"": {Input: 1, Output: 1}}, "")
			n := c.Tokens
			testkit.True(t, min(n.Input, n.CacheRead, n.CacheWrite, n.Output, c.Turns) >= 0 &&
				(c.USD == nil || (*c.USD >= 0 && *c.USD <= maxUSD)), "%+v costs %+v", u, c)
		}
	})
}

func TestAnswer(t *testing.T) {
	verdict := `{\"passed\": true}`
	long := strings.Repeat("x", 128<<10)
	result := `{"type":"result","subtype":"success","is_error":false,"result":"` + verdict + `"}`
	failed := `{"type":"result","subtype":"error_max_turns","is_error":true}`
	claude := func(s string) string {
		return `{"type":"assistant","message":{"content":[{"type":"text","text":"` + s + `"}]}}` + "\n"
	}
	codex := func(s string) string {
		return `{"type":"item.completed","item":{"type":"agent_message","text":"` + s + `"}}` + "\n"
	}
	gemini := func(s string) string { return `{"type":"message","role":"assistant","content":"` + s + "}\n" }
	for name, c := range map[string]struct{ stdout, want string }{
		"nothing":           {"", ""},
		"plain":             {"I looked.\n{\n \"passed\": false\n}\n", "I looked.\n{\n \"passed\": false\n}\n"},
		"verdict":           {`{"passed": true}`, `{"passed": true}`},
		"claude":            {claude("Hm "+verdict) + result + "\n", result + "\n"},
		"claude failed":     {claude(verdict) + failed, failed},
		"claude, no result": {claude("No") + claude("Last"), "Last"},
		"codex": {codex("First") + codex(long) + "\n" +
			`{"type":"turn.completed","usage":{"input_tokens":1}}`, long},
		"gemini": {"Loaded cached credentials.\n" +
			gemini(`Hm."`) + gemini(`It ","delta":true`) + gemini(`is.","delta":true`) +
			`{"type":"result","status":"success"}`, "It is."},
		"no words": {`{"type":"x"}`, `{"type":"x"}`},
		// The text of a file, which a reviewer quotes, is not its answer.
		"quoted before": {result + "\n{\"passed\": false}", result + "\n{\"passed\": false}"},
		"quoted after":  {"{\"passed\": false}\n" + result, "{\"passed\": false}\n" + result},
	} {
		testkit.Equal(t, string(Answer([]byte(c.stdout))), c.want, "%s", name)
	}
}

// The cost of a run of Claude Code is what it reported, with its subagents; a run that was stopped
// reported none, and its tokens are incomplete.
func TestUsageOfClaudeCode(t *testing.T) {
	u := usageOf(t, "claude_subagent")
	got := CostOf(u, nil, nil, "")
	testkit.Equal(t, *got.USD, 0.011805, "%+v costs %+v", u, got)
	testkit.Equal(t, got.Tokens, (Tokens{36, 6000, 900, 120}), "%+v costs %+v", u, got)
	testkit.Equal(t, got.Turns, 2, "%+v costs %+v", u, got)
	u = usageOf(t, "claude_two_prompts")
	testkit.Equal(t, *u.USD, 0.00787)
	testkit.Equal(t, u.Turns, 2)
	testkit.True(t, reflect.DeepEqual(u.Models, map[string]Tokens{"claude-opus-4-8[1m]": {24, 4000, 600, 80}}), "%+v",
		u)
	u = usageOf(t, "claude_resumed")
	testkit.True(t, math.Abs(*u.USD-3e-05) <= 1e-12 && reflect.DeepEqual(u.Models,
		map[string]Tokens{"claude-opus-4-5": {Input: 1, Output: 1}}), "a run that continues a conversation has %+v", u)
	u = usageOf(t, "claude_stopped")
	got = CostOf(u, nil, map[string]Price{"claude-sonnet-4-5-20250929": {Input: 1}}, "")
	testkit.True(t, u.Partial, "%+v costs %+v", u, got)
	testkit.Need(t, got.USD == nil, "%+v costs %+v", u, got)
	testkit.Equal(t, got.Tokens.CacheRead, 2000, "%+v costs %+v", u, got)
	u = usageOf(t, "claude_failed")
	testkit.True(t, !u.Partial && *u.USD == 0.003935, "a failed run has %+v", u)
}

// What Codex reports are the totals of its conversation: those of a follow-up are without what the
// runs before it have used.
func TestUsageOfCodex(t *testing.T) {
	first, second := &Usage{Models: map[string]Tokens{"": {200, 1000, 0, 40}}, Turns: 1}, usageOf(t, "codex_resumed")
	first.Thread = second.Thread
	price := map[string]Price{"CODEX": {Input: 1, CacheRead: 0.1, CacheWrite: 1, Output: 10}}
	got := CostOf(second, first.Models, price, "CODEX")
	testkit.True(t, got.Tokens == (Tokens{200, 1000, 0, 40}) && math.Abs(*got.USD-0.0007) <= 1e-12,
		"the follow-up has used %+v for %v USD", got.Tokens, *got.USD)
	got = CostOf(second, first.Models, price, "OTHER")
	testkit.True(t, got.USD == nil && got.Tokens.Input == 200, "without a price: %+v", got)
	testkit.Equal(t, first.Models[""].Input, 200, "the runs were changed")
	testkit.Equal(t, second.Models[""].Input, 400, "the runs were changed")

	// Totals of a conversation that is not known are not taken for those of a run.
	_, u := read([]byte(`{"type":"turn.completed","usage":{"input_tokens":10,"output_tokens":5}}`), 0)
	testkit.True(t, u.Models == nil && u.Partial, "%+v", u)

	// The cost of a run that was stopped before it reported is not known.
	got = CostOf(usageOf(t, "codex_stopped"), nil, map[string]Price{"": {Input: 1, Output: 1}}, "")
	testkit.True(t, got.USD == nil && got.Turns == 1, "%+v", got)
}

// The cost of a run of OpenCode is that of its steps. It is not known if the model may have been asked for a step that
// is not reported, if a subagent was at work, if the model's provider reports no tokens, or if OpenCode knows no price.
func TestUsageOfOpenCode(t *testing.T) {
	u := usageOf(t, "opencode")
	got := CostOf(u, nil, nil, "")
	testkit.True(t, math.Abs(*got.USD-0.000036) <= 1e-12, "%+v costs %+v", u, got)
	testkit.Equal(t, got.Tokens, (Tokens{Input: 2, Output: 2}), "%+v costs %+v", u, got)
	testkit.Equal(t, got.Turns, 2, "%+v costs %+v", u, got)

	step := func(usd string) string {
		return `{"type":"step_finish","sessionID":"s","part":{"tokens":{"input":1,"output":2,"reasoning":3,` +
			`"cache":{"read":4,"write":5}}` + usd + "}}\n"
	}
	begin := `{"type":"step_start","sessionID":"s","part":{}}` + "\n"
	call := `{"type":"tool_use","sessionID":"s","part":{"tool":"read","callID":"1","state":{"status":"completed"}}}` +
		"\n"
	byProvider := strings.Replace(call, `"tool":`, `"metadata":{"providerExecuted":true},"tool":`, 1)
	subagent := `{"type":"tool_use","sessionID":"s","part":{"tool":"task","callID":"1",` +
		`"state":{"status":"completed"}}}` + "\n"
	for name, stream := range map[string]string{
		"stopped":                           string(streams(t)["opencode_stopped"]),
		"without a price":                   step(`,"cost":1`) + step(`,"cost":0`),
		"without a cost":                    step(""),
		"a negative cost":                   step(`,"cost":-1`),
		"with a subagent":                   subagent + step(`,"cost":1`),
		"stopped while the model was asked": step(`,"cost":1,"reason":"tool-calls"`),
		"asked again":                       begin + begin + step(`,"cost":1,"reason":"stop"`),
		"stopped after a call":              call + step(`,"cost":1,"reason":"stop"`),
		"without tokens": step(`,"cost":1`) +
			`{"type":"step_finish","sessionID":"s","part":{"cost":0,"tokens":{}}}`,
	} {
		_, u := read([]byte(stream), 0)
		got := CostOf(u, nil, nil, "")
		testkit.True(t, got.USD == nil && got.Turns != 0, "%s: %+v costs %+v", name, u, got)
	}
	_, u = read([]byte(step(`,"cost":0`)), 0)
	got = CostOf(u, nil, map[string]Price{"OPENCODE": {Input: 1e6, CacheRead: 1e6, CacheWrite: 1e6, Output: 1e6}},
		"OPENCODE")
	testkit.Equal(t, *got.USD, 15, "by a price of the config: %+v", got)
	testkit.Equal(t, got.Tokens, (Tokens{1, 4, 5, 5}), "by a price of the config: %+v", got)
	testkit.Equal(t, got.Turns, 1, "by a price of the config: %+v", got)

	_, u = read([]byte(begin+call+step(`,"cost":1,"reason":"tool-calls"`)+begin+byProvider+
		step(`,"cost":2,"reason":"stop"`)), 0)
	testkit.True(t, !u.Partial && *u.USD == 3, "two steps: %+v", u)
}

// However many models and messages an agent names, and whatever numbers, what is kept is bounded.
func TestUsageIsBounded(t *testing.T) {
	var lines strings.Builder
	for i := range 1000 {
		for range 2 { // an event per block
			fmt.Fprintf(&lines,
				`{"type":"assistant","message":{"id":"m%d","model":"model%d","usage":{"input_tokens":1}}}`+"\n", i, i)
		}
	}
	_, u := read([]byte(lines.String()), 0)
	var sum Tokens
	for _, n := range u.Models {
		sum = sum.plus(n)
	}
	testkit.True(t, len(u.Models) == maxModels+1 && sum.Input == 1000, "%d models have %+v", len(u.Models), sum)
	_, u = read(
		[]byte(`{"type":"result","subtype":"success","total_cost_usd":1e300,"num_turns":-1,`+
			`"usage":{"input_tokens":9223372036854775807,"output_tokens":-9}}`), 0)
	testkit.Need(t, u.USD == nil, "%+v", u)
	testkit.Equal(t, u.Turns, 0)
	testkit.Equal(t, u.Models[""], (Tokens{Input: maxCount}))
}

// The last error that a program reports counts, unless its agent went on.
func TestField01_FailuresOfPrograms(t *testing.T) {
	said := `{"type":"item.completed","item":{"id":"1","type":"agent_message","text":"The test says 429 Too Many ` +
		`Requests"}}`
	rejected := `{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1767265200}}`
	limited := `{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"You've hit ` +
		`your limit"}`
	openCode := `{"type":"error","sessionID":"ses_1","error":{"name":"APIError","data":{"message":"slow down",` +
		`"responseHeaders":{"retry-after":"9"}}}}`
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"none":        {[]string{"Too many requests", said}, ""},
		"Claude Code": {[]string{limited}, "You've hit your limit"},
		"its limits":  {[]string{rejected, limited}, "You've hit your limit\n" + rejected},
		"over": {[]string{rejected, strings.ReplaceAll(rejected, "rejected", "allowed"), limited},
			"You've hit your limit"},
		"only limits": {[]string{rejected, said}, ""},
		"Codex": {[]string{`{"type":"error","message":"slow down"}`,
			`{"type":"turn.failed","error":{"message":"slow down"}}`}, "slow down"},
		"went on": {[]string{`{"type":"error","message":"Reconnecting 1/5"}`, said}, ""},
		"the last": {[]string{`{"type":"error","message":"Reconnecting 1/5"}`,
			`{"type":"turn.failed","error":{"message":"no"}}`}, "no"},
		"Gemini": {[]string{`{"type":"result","status":"error","error":{"type":"TerminalQuotaError",` +
			`"message":"You have exhausted your quota"}}`}, "You have exhausted your quota"},
		"OpenCode": {[]string{openCode}, openCode},
	} {
		var r Reader
		for _, line := range c.lines {
			r.Line([]byte(line), func(Message) {})
		}
		testkit.Equal(t, r.Failure(), c.want, "%s", name)
	}
}
