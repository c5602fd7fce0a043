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
	if got := CostOf(u, nil, nil, ""); *got.USD != 0.011805 || got.Tokens != (Tokens{36, 6000, 900, 120}) || got.Turns != 2 {
		t.Errorf("%+v costs %+v", u, got)
	}
	if u = usageOf(t, "claude_two_prompts"); *u.USD != 0.00787 || u.Turns != 2 || !reflect.DeepEqual(u.Models, map[string]Tokens{"claude-opus-4-8[1m]": {24, 4000, 600, 80}}) {
		t.Errorf("%+v", u)
	}
	u = usageOf(t, "claude_stopped")
	if got := CostOf(u, nil, map[string]config.Price{"claude-sonnet-4-5-20250929": {Input: 1}}, ""); !u.Partial || got.USD != nil || got.Tokens.CacheRead != 2000 {
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
	price := map[string]config.Price{"CODEX": {Input: 1, CacheRead: 0.1, CacheWrite: 1, Output: 10}}
	got := CostOf(second, first.Models, price, "CODEX")
	if got.Tokens != (Tokens{200, 1000, 0, 40}) || math.Abs(*got.USD-0.0007) > 1e-12 {
		t.Errorf("the follow-up has used %+v for %v USD", got.Tokens, *got.USD)
	}
	if got := CostOf(second, first.Models, price, "OTHER"); got.USD != nil || got.Tokens.Input != 200 {
		t.Errorf("without a price: %+v", got)
	}
	if first.Models[""].Input != 200 || second.Models[""].Input != 400 {
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

// The cost of a run of Codex that was stopped before it reported is not known.
func TestStoppedCodex(t *testing.T) {
	if got := CostOf(usageOf(t, "codex_stopped"), nil, map[string]config.Price{"": {Input: 1, Output: 1}}, ""); got.USD != nil || got.Turns != 1 {
		t.Errorf("%+v", got)
	}
}

// The cost of a run of OpenCode is that of its steps. It is not known if the model may have been asked for
// a step that is not reported, if a subagent was at work, if the model's provider reports no tokens, or if
// OpenCode knows no price.
func TestUsageOfOpenCode(t *testing.T) {
	u := usageOf(t, "opencode")
	if got := CostOf(u, nil, nil, ""); math.Abs(*got.USD-0.000036) > 1e-12 || got.Tokens != (Tokens{Input: 2, Output: 2}) || got.Turns != 2 {
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
		if got := CostOf(u, nil, nil, ""); got.USD != nil || got.Turns == 0 {
			t.Errorf("%s: %+v costs %+v", name, u, got)
		}
	}
	_, u = read([]byte(step(`,"cost":0`)), 0)
	if got := CostOf(u, nil, map[string]config.Price{"OPENCODE": {Input: 1e6, CacheRead: 1e6, CacheWrite: 1e6, Output: 1e6}}, "OPENCODE"); *got.USD != 15 || got.Tokens != (Tokens{1, 4, 5, 5}) || got.Turns != 1 {
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
