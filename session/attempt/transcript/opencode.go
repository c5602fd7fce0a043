package transcript

import (
	"cmp"
	"encoding/json"
)

// An openCodePart is the part of a message in an event of OpenCode.
type openCodePart struct {
	Text   string `json:"text"` // text, reasoning
	Tool   string `json:"tool"` // tool_use of a finished call
	CallID string `json:"callID"`
	Meta   struct {
		ByProvider bool `json:"providerExecuted"`
	} `json:"metadata"`
	State struct {
		Status string          `json:"status"`
		Input  json.RawMessage `json:"input"`
		Output string          `json:"output"`
		Error  string          `json:"error"`
	} `json:"state"`

	Reason string   `json:"reason"` // step_finish: why the model ended its answer
	USD    *float64 `json:"cost"`
	Tokens struct {
		Input     int64 `json:"input"`
		Output    int64 `json:"output"`
		Reasoning int64 `json:"reasoning"` // at the price of output
		Cache     struct {
			Read  int64 `json:"read"`
			Write int64 `json:"write"`
		} `json:"cache"`
	} `json:"tokens"`
}

// openCodeEvent reads an event of OpenCode's run --format json. It reports false for other lines.
func (r *Reader) openCodeEvent(e *event, give func(Message)) bool {
	o, p := &r.openCode, e.Part
	if e.OpenCodeID == "" || p == nil && e.Type != "error" {
		return false
	}
	switch e.Type {
	case "step_start":
		o.missed = o.missed || o.answering // the model was asked again
		o.seen = true
		o.open = true
		o.answering = true
		o.called = false
	case "step_finish":
		o.step(p)
	case "text":
		give(message(Said, p.Text))
	case "reasoning":
		give(message(Reasoning, p.Text))
	case "tool_use":
		o.called = o.called || !p.Meta.ByProvider
		o.missed = o.missed || p.Tool == "task" // a subagent, which reports nothing
		call, result := message(Call, string(p.State.Input)), message(Result, cmp.Or(p.State.Error, p.State.Output))
		call.Tool, call.CallID = clip(p.Tool), clip(p.CallID)
		result.CallID, result.Failed = call.CallID, p.State.Status == "error"
		give(call)
		give(result)
	case "error":
		var of struct {
			Error struct {
				Name string
				Data struct{ Message string }
			}
		}
		decode(e.line, &of)
		give(message(Failure, cmp.Or(of.Error.Data.Message, of.Error.Name, string(e.line))))
		r.failure = message(Failure, string(e.line)).Text
	default:
		return false
	}

	return true
}

// openCodeUsage is what a run of OpenCode has reported, step by step. A step is an answer of the model.
type openCodeUsage struct {
	seen      bool
	open      bool // the model is being asked
	answering bool // and a step has begun
	called    bool // the step has called a tool of OpenCode, which then asks the model again for any reason
	missed    bool // some use was not reported by any step
	turns     int64
	tokens    Tokens
	usd       float64
	unpriced  bool // the cost of a step is unknown; OpenCode reports 0
}

func (o *openCodeUsage) step(p *openCodePart) {
	t := tokens(p.Tokens.Input, p.Tokens.Cache.Read, p.Tokens.Cache.Write,
		count(p.Tokens.Output)+count(p.Tokens.Reasoning))

	// After these reasons OpenCode asks the model again, and reports the next step only once it begins to
	// answer.
	o.seen = true
	o.open = p.Reason == "tool-calls" || p.Reason == "unknown"
	o.answering = false
	o.turns, o.tokens = count(o.turns+1), o.tokens.plus(t)
	usd := dollars(p.USD)
	if usd == nil || *usd == 0 {
		o.unpriced = true
		o.missed = o.missed || t == Tokens{} // the model's provider reports nothing
		return
	}
	o.usd += *usd
}

func (o *openCodeUsage) usage() *Usage {
	u := &Usage{Turns: o.turns, Partial: o.open || o.called || o.missed}
	if o.turns > 0 {
		add(&u.Models, "", o.tokens)
		if !o.unpriced {
			u.USD = dollars(new(o.usd))
		}
	}
	return u
}
