package transcript

import (
	"cmp"
	"encoding/json"
)

// An openCodePart is what an event of OpenCode is about.
type openCodePart struct {
	Text   string `json:"text"` // text, reasoning
	Tool   string `json:"tool"` // tool_use, of a call that has ended
	CallID string `json:"callID"`
	State  struct {
		Status string          `json:"status"`
		Input  json.RawMessage `json:"input"`
		Output string          `json:"output"`
		Error  string          `json:"error"`
	} `json:"state"`

	USD    *float64 `json:"cost"` // step_finish
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

// openCodeError is what an event of the type error has.
type openCodeError struct {
	Name string `json:"name"`
	Data struct {
		Message string `json:"message"`
	} `json:"data"`
}

// openCodeEvent reads an event of OpenCode's run --format json; it reports false for other lines.
func (r *Reader) openCodeEvent(e *event, give func(Message)) bool {
	o, p := &r.openCode, e.Part
	if e.OpenCodeID == "" || p == nil && e.Type != "error" {
		return false
	}
	switch e.Type {
	case "step_start":
		o.seen, o.open = true, true
	case "step_finish":
		o.step(p)
	case "text":
		give(message(Said, p.Text))
	case "reasoning":
		give(message(Reasoning, p.Text))
	case "tool_use":
		o.subagents = o.subagents || p.Tool == "task"
		call, result := message(Call, string(p.State.Input)), message(Result, cmp.Or(p.State.Error, p.State.Output))
		call.Tool, call.CallID = clip(p.Tool), clip(p.CallID)
		result.CallID, result.Failed = call.CallID, p.State.Status == "error"
		give(call)
		give(result)
	case "error":
		var of struct{ Error openCodeError }
		decode(e.line, &of)
		give(message(Failure, cmp.Or(of.Error.Data.Message, of.Error.Name, string(e.line))))
	default:
		return false
	}
	return true
}

// openCodeUsage is what a run of OpenCode has reported, step by step. It does not report what its
// subagents use.
type openCodeUsage struct {
	seen, open bool // open: a step has not ended
	subagents  bool
	turns      int64
	tokens     Tokens
	usd        float64
	unpriced   bool // the cost of a step is not known, which OpenCode reports as 0
}

func (o *openCodeUsage) step(p *openCodePart) {
	t := tokens(p.Tokens.Input, p.Tokens.Cache.Read, p.Tokens.Cache.Write, count(p.Tokens.Output)+count(p.Tokens.Reasoning))
	o.seen, o.open = true, false
	o.turns, o.tokens = count(o.turns+1), o.tokens.plus(t)
	if usd := dollars(p.USD); usd != nil {
		o.usd += *usd
		o.unpriced = o.unpriced || *usd == 0 && t != Tokens{}
	} else {
		o.unpriced = true
	}
}

func (o *openCodeUsage) usage() *Usage {
	u := &Usage{Turns: o.turns, Partial: o.open || o.subagents}
	if o.turns > 0 {
		add(&u.Models, "", o.tokens)
		if !o.unpriced {
			u.USD = dollars(&o.usd)
		}
	}
	return u
}
