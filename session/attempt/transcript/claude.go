package transcript

import (
	"cmp"
	"encoding/json"
	"strings"

	"deepwork/actor/xslices"
)

// A claudeMessage is the message of an event of type assistant or user.
type claudeMessage struct {
	ID      string        `json:"id"`
	Model   string        `json:"model"`
	Content []block       `json:"content"` // in a prompt it may be a text
	Usage   *claudeTokens `json:"usage"`
}

// A block is a part of a message or of a result.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

// claudeEvent reads an event of Claude Code. It reports false for other lines.
func (r *Reader) claudeEvent(e *event, give func(Message)) bool {
	switch e.Type {
	case "assistant", "user":
		if e.Message == nil {
			return false
		}

		if e.Type == "assistant" {
			r.claude.message(e.Message)
		}

		for _, b := range e.Message.Content {
			b.read(e, give)
		}
	case "result":
		if e.Subtype == "" {
			if e.Error.Message != "" { // Gemini
				give(message(Failure, e.Error.Message))
			}
			return e.Error.Message != ""
		}

		r.claude.result(e)
		if e.IsError {
			give(message(Failure, cmp.Or(e.Result, strings.Join(e.Errors, "\n"), e.Subtype)))
		}
	case "rate_limit_event":
		r.rejected = ""
		if e.RateLimit.Status == "rejected" && !e.RateLimit.UsingOverage {
			r.rejected = message(Failure, string(e.line)).Text
		}
	case "system", "stream_event", "tool_progress", "tool_use_summary", "keep_alive":
		// about the session, or a part of a message that follows as a whole
	default:
		return false
	}

	return true
}

// read gives the message of a block. What a user says is the prompt, which is not repeated.
func (b *block) read(e *event, give func(Message)) {
	var m Message
	switch {
	case b.Type == "text" && e.Type == "assistant":
		m = message(Said, b.Text)
	case b.Type == "thinking":
		m = message(Reasoning, b.Thinking)
	case b.Type == "tool_use" || b.Type == "server_tool_use":
		m = message(Call, string(b.Input))
		m.Tool, m.CallID = clip(b.Name), clip(b.ID)
	case strings.HasSuffix(b.Type, "tool_result"):
		m = message(Result, flat(b.Content))
		m.CallID, m.Failed = clip(b.ToolUseID), b.IsError
	default:
		return
	}
	m.Parent = clip(e.Parent)
	if m.Text != "" || m.CallID != "" {
		give(m)
	}
}

// flat returns the text of a result, which is a text or has blocks.
func flat(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}

	var blocks []block
	if json.Unmarshal(content, &blocks) != nil {
		return string(content)
	}
	return strings.Join(xslices.Map(blocks, func(b block) string { return cmp.Or(b.Text, "["+b.Type+"]") }), "\n")
}

// clip limits the length of a name.
func clip(name string) string { return strings.ToValidUTF8(name[:min(len(name), 200)], "?") }

// claudeTokens is what Claude Code reports about a message or a prompt.
type claudeTokens struct {
	Input      int64 `json:"input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	Output     int64 `json:"output_tokens"`
}

func (t *claudeTokens) tokens() Tokens { return tokens(t.Input, t.CacheRead, t.CacheWrite, t.Output) }

// modelUsage is what Claude Code reports about a model.
type modelUsage struct {
	Input      int64 `json:"inputTokens"`
	CacheWrite int64 `json:"cacheCreationInputTokens"`
	CacheRead  int64 `json:"cacheReadInputTokens"`
	Output     int64 `json:"outputTokens"`

	USD float64 `json:"costUSD"`
}

func (u *modelUsage) tokens() Tokens { return tokens(u.Input, u.CacheRead, u.CacheWrite, u.Output) }

// claudeUsage is what a run of Claude Code has reported. It may have several results, one per prompt. The
// cost and the usage of each model are those of the whole run; the turns and the other usage are those of one
// prompt, without subagents. In newer versions (2.1.332) the former are those of the whole conversation,
// including earlier runs, and a result also has what was used since the previous one.
type claudeUsage struct {
	seen, open bool // open: messages follow the last result
	turns      int64
	usd        *float64
	models     map[string]Tokens // as of the last result
	messages   map[string]Tokens // since the last result, as far as reported
	last       [16]messageUsage  // the last messages; each block of one is an event
	next       int
}

type messageUsage struct {
	id     string
	tokens Tokens
}

// message counts a message once, however many events it has.
func (c *claudeUsage) message(m *claudeMessage) {
	c.seen = true
	if m.Usage == nil || m.Usage.tokens() == (Tokens{}) {
		return // for example the report of an error
	}

	c.open = true
	now, before := messageUsage{clip(m.ID), m.Usage.tokens()}, Tokens{}
	i := c.next
	for j, l := range c.last {
		if l.id == now.id && l.id != "" {
			i, before = j, l.tokens
		}
	}
	if i == c.next {
		c.next = (c.next + 1) % len(c.last)
	}
	c.last[i] = now
	add(&c.messages, m.Model, now.tokens.minus(before))
}

func (c *claudeUsage) result(e *event) {
	c.seen, c.open, c.messages = true, false, nil
	c.turns = count(c.turns + count(e.NumTurns))
	var usage claudeTokens
	if e.Since != nil {
		usd := 0.0
		if c.usd != nil {
			usd = *c.usd
		}
		for name, u := range e.Since {
			add(&c.models, name, u.tokens())
			usd += u.USD
		}
		c.usd = dollars(&usd)
		return
	}
	c.usd = dollars(e.USD)
	if e.ModelUsage != nil {
		c.models = map[string]Tokens{}
		for name, u := range e.ModelUsage {
			add(&c.models, name, u.tokens())
		}
	} else if decode(e.Usage, &usage) {
		add(&c.models, "", usage.tokens())
	}
}

func (c *claudeUsage) usage() *Usage {
	u := &Usage{Turns: c.turns, USD: c.usd, Partial: c.open}
	for name, t := range c.models {
		add(&u.Models, name, t)
	}
	for name, t := range c.messages {
		add(&u.Models, name, t)
	}
	return u
}
