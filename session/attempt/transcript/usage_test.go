package transcript

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"deepwork/catalog/config"
)

// The cost of a run of Claude Code is what it reported, with its subagents; a run that was stopped
// reported none, and its tokens are incomplete.
func TestUsageOfClaudeCode(t *testing.T) {
	u := usageOf(t, "claude_subagent")
	if got := CostOf(u, nil, ""); got.USD != 0.011805 || got.Unknown != 0 || got.Tokens != (Tokens{36, 6000, 900, 120}) || got.Turns != 2 {
		t.Errorf("%+v costs %+v", u, got)
	}
	if u = usageOf(t, "claude_two_prompts"); *u.USD != 0.00787 || u.Turns != 2 || !reflect.DeepEqual(u.Models, map[string]Tokens{"claude-opus-4-8[1m]": {24, 4000, 600, 80}}) {
		t.Errorf("%+v", u)
	}
	u = usageOf(t, "claude_stopped")
	if got := CostOf(u, map[string]config.Price{"claude-sonnet-4-5-20250929": {Input: 1}}, ""); !u.Partial || got.Unknown != 1 || got.USD != 0 || got.Tokens.CacheRead != 2000 {
		t.Errorf("%+v costs %+v", u, got)
	}
	if u = usageOf(t, "claude_failed"); u.Partial || *u.USD != 0.003935 {
		t.Errorf("a failed run has %+v", u)
	}
}

// What Codex reports are the totals of its conversation: those of a follow-up are without what the
// runs before it have used.
func TestUsageOfCodex(t *testing.T) {
	first, second := &Usage{Models: map[string]Tokens{"": {200, 1000, 0, 40}}, Turns: 1}, usageOf(t, "codex_resumed")
	first.Thread = second.Thread
	own := Own([]*Usage{first, nil, second})
	if got := own[2].Models[""]; got != (Tokens{200, 1000, 0, 40}) {
		t.Errorf("the follow-up has used %+v", got)
	}
	price := map[string]config.Price{"CODEX": {Input: 1, CacheRead: 0.1, CacheWrite: 1, Output: 10}}
	if got := CostOf(own[2], price, "CODEX"); got.Unknown != 0 || math.Abs(got.USD-0.0007) > 1e-12 {
		t.Errorf("%+v", got)
	}
	if got := CostOf(own[2], price, "OTHER"); got.Unknown != 1 || got.USD != 0 || got.Tokens.Input != 200 {
		t.Errorf("without a price: %+v", got)
	}
	if got := CostOf(nil, price, "CODEX"); got != (Cost{Runs: 1, Unknown: 1}) {
		t.Errorf("of nothing: %+v", got)
	}
	if u := Own([]*Usage{first, second}); first.Models[""].Input != 200 || second.Models[""].Input != 400 || u[0].Models[""].Input != 200 {
		t.Error("the runs were changed")
	}
}

// Totals of a conversation that is not known are not taken for those of a run.
func TestCodexWithoutABeginning(t *testing.T) {
	_, u := read([]byte(`{"type":"turn.completed","usage":{"input_tokens":10,"output_tokens":5}}`), 0)
	if u.Models != nil || !u.Partial {
		t.Errorf("%+v", u)
	}
}

// A run of Codex that was stopped reports nothing. The next one of its conversation does so for it.
func TestStoppedCodexIsReportedByItsFollowUp(t *testing.T) {
	stopped := usageOf(t, "codex_stopped")
	if got := CostOf(Own([]*Usage{stopped})[0], map[string]config.Price{"": {Input: 1, Output: 1}}, ""); got.Unknown != 1 || got.Turns != 1 {
		t.Errorf("%+v", got)
	}
	next := &Usage{Models: map[string]Tokens{"": {Input: 7}}, Turns: 1, Thread: stopped.Thread}
	other := &Usage{Models: map[string]Tokens{"": {Input: 5}}, Turns: 1, Thread: "other"}
	var sum Cost
	for _, u := range Own([]*Usage{stopped, other, next}) {
		sum = sum.Plus(CostOf(u, map[string]config.Price{"": {Input: 1e6}}, ""))
	}
	if sum != (Cost{Runs: 3, Tokens: Tokens{Input: 12}, USD: 12, Turns: 3}) {
		t.Errorf("%+v", sum)
	}
}

// The cost of a run of OpenCode is that of its steps. It is not known if the model may have been asked for
// a step that is not reported, if a subagent was at work, if the model's provider reports no tokens, or if
// OpenCode knows no price.
func TestUsageOfOpenCode(t *testing.T) {
	u := usageOf(t, "opencode")
	if got := CostOf(u, nil, ""); got.Unknown != 0 || math.Abs(got.USD-0.000036) > 1e-12 || got.Tokens != (Tokens{Input: 2, Output: 2}) || got.Turns != 2 {
		t.Errorf("%+v costs %+v", u, got)
	}
	step := func(usd string) string {
		return `{"type":"step_finish","sessionID":"s","part":{"tokens":{"input":1,"output":2,"reasoning":3,"cache":{"read":4,"write":5}}` + usd + "}}\n"
	}
	begin := `{"type":"step_start","sessionID":"s","part":{}}` + "\n"
	call := `{"type":"tool_use","sessionID":"s","part":{"tool":"read","callID":"1","state":{"status":"completed"}}}` + "\n"
	byProvider := strings.Replace(call, `"tool":`, `"metadata":{"providerExecuted":true},"tool":`, 1)
	subagent := `{"type":"tool_use","sessionID":"s","part":{"tool":"task","callID":"1","state":{"status":"completed"}}}` + "\n"
	for name, stream := range map[string]string{
		"stopped": string(streams(t)["opencode_stopped"]), "without a price": step(`,"cost":1`) + step(`,"cost":0`),
		"without a cost": step(""), "a negative cost": step(`,"cost":-1`), "with a subagent": subagent + step(`,"cost":1`),
		"stopped while the model was asked": step(`,"cost":1,"reason":"tool-calls"`), "asked again": begin + begin + step(`,"cost":1,"reason":"stop"`),
		"stopped after a call": call + step(`,"cost":1,"reason":"stop"`),
		"without tokens":       step(`,"cost":1`) + `{"type":"step_finish","sessionID":"s","part":{"cost":0,"tokens":{}}}`,
	} {
		_, u := read([]byte(stream), 0)
		if got := CostOf(u, nil, ""); got.Unknown != 1 || got.Turns == 0 {
			t.Errorf("%s: %+v costs %+v", name, u, got)
		}
	}
	_, u = read([]byte(step(`,"cost":0`)), 0)
	if got := CostOf(u, map[string]config.Price{"OPENCODE": {Input: 1e6, CacheRead: 1e6, CacheWrite: 1e6, Output: 1e6}}, "OPENCODE"); got != (Cost{Runs: 1, Tokens: Tokens{1, 4, 5, 5}, USD: 15, Turns: 1}) {
		t.Errorf("by a price of the config: %+v", got)
	}
	if _, u := read([]byte(begin+call+step(`,"cost":1,"reason":"tool-calls"`)+begin+byProvider+step(`,"cost":2,"reason":"stop"`)), 0); u.Partial || *u.USD != 3 {
		t.Errorf("two steps: %+v", u)
	}
}

// However many models and messages an agent names, and whatever numbers, what is kept is bounded.
func TestUsageIsBounded(t *testing.T) {
	var lines strings.Builder
	for i := range 1000 {
		for range 2 { // an event per block
			fmt.Fprintf(&lines, `{"type":"assistant","message":{"id":"m%d","model":"model%d","usage":{"input_tokens":1}}}`+"\n", i, i)
		}
	}
	_, u := read([]byte(lines.String()), 0)
	var sum Tokens
	for _, n := range u.Models {
		sum = sum.plus(n)
	}
	if len(u.Models) > maxModels+1 || sum.Input != 1000 {
		t.Errorf("%d models have %+v", len(u.Models), sum)
	}
	_, u = read([]byte(`{"type":"result","subtype":"success","total_cost_usd":1e300,"num_turns":-1,"usage":{"input_tokens":9223372036854775807,"output_tokens":-9}}`), 0)
	if u.USD != nil || u.Turns != 0 || u.Models[""] != (Tokens{Input: maxCount}) {
		t.Errorf("%+v", u)
	}
}
