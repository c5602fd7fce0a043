package transcript

import (
	"cmp"
	"encoding/json"
	"strings"
)

// A codexItem is an action of Codex at its start, at a change or at its end.
type codexItem struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Status  string `json:"status"`
	Text    string `json:"text"`    // agent_message, reasoning
	Message string `json:"message"` // error
	Query   string `json:"query"`   // web_search

	Command string `json:"command"` // command_execution
	Output  string `json:"aggregated_output"`

	Changes []struct {
		Path string `json:"path"`
		Kind string `json:"kind"`
	} `json:"changes"` // file_change

	Server    string          `json:"server"` // mcp_tool_call
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Result    struct {
		Content json.RawMessage `json:"content"`
	} `json:"result"`
	Error struct {
		Message string `json:"message"`
	} `json:"error"`

	Items []struct {
		Text      string `json:"text"`
		Completed bool   `json:"completed"`
	} `json:"items"` // todo_list
}

// codexEvent reads an event of Codex. It reports false for other lines.
func (r *Reader) codexEvent(e *event, give func(Message)) bool {
	c := &r.codex
	switch e.Type {
	case "thread.started":
		c.seen, c.thread = true, clip(e.ThreadID)
	case "turn.started":
		c.seen, c.open = true, true
		c.turns = count(c.turns + 1)
	case "turn.completed":
		c.completed(e.Usage)
	case "turn.failed", "error":
		text := e.Error.Message
		if e.Type == "error" {
			var of struct{ Message string }
			if json.Unmarshal(e.line, &of) != nil || of.Message == "" {
				return false
			}
			text = of.Message
		}
		m := message(Failure, text)
		if e.Type == "error" || m.Text != c.failure { // a turn fails with the error reported before
			give(m)
		}
		c.seen, c.failure = true, m.Text
	case "item.started", "item.updated", "item.completed":
		if e.Item == nil || e.Item.Type == "" {
			return false
		}
		e.Item.read(e.Type, give)
	default:
		return false
	}

	return true
}

// read gives the message of an item's event: a call when it starts, its result when it ends.
func (i *codexItem) read(event string, give func(Message)) {
	ended := event == "item.completed"
	kind, text := Call, ""
	if ended {
		kind = Result
	}

	tool := i.Type
	switch i.Type {
	case "agent_message", "reasoning", "error":
		if !ended {
			return // it follows as a whole
		}

		kind, text = map[string]Kind{"agent_message": Said, "reasoning": Reasoning, "error": Failure}[i.Type],
			cmp.Or(i.Text, i.Message)
		if text != "" {
			give(message(kind, text))
		}
		return
	case "todo_list": // its changes are all of one list
		if ended {
			return
		}
		for _, t := range i.Items {
			text += map[bool]string{false: "[ ] ", true: "[x] "}[t.Completed] + t.Text + "\n"
		}
		text, event = strings.TrimSuffix(text, "\n"), "item.started"
	case "command_execution":
		text = i.Command
		if ended {
			text = i.Output
		}
	case "file_change":
		for _, c := range i.Changes {
			text += c.Kind + " " + c.Path + "\n"
		}
		text = strings.TrimSuffix(text, "\n")
	case "mcp_tool_call":
		text, tool = string(i.Arguments), i.Server+"."+i.Tool
		if ended {
			text = cmp.Or(i.Error.Message, flat(i.Result.Content))
		}
	case "web_search":
		text = i.Query
	default:
		text = cmp.Or(i.Text, i.Message, i.Query)
	}
	if event == "item.updated" {
		return
	}
	m := message(kind, text)
	m.CallID, m.Failed = clip(i.ID), ended && (i.Status == "failed" || i.Status == "declined")
	if kind == Call {
		m.Tool = clip(tool)
	}
	give(m)
}

// codexUsage is what a run of Codex has reported.
type codexUsage struct {
	seen, open bool // open: a turn has not completed
	thread     string
	turns      int64
	total      *Tokens // of the thread, including earlier runs
	failure    string  // the last error
}

// completed counts a completed turn, which reports the totals of its thread.
func (c *codexUsage) completed(usage json.RawMessage) {
	var u struct {
		Input      int64 `json:"input_tokens"` // all
		CacheRead  int64 `json:"cached_input_tokens"`
		CacheWrite int64 `json:"cache_write_input_tokens"`
		Output     int64 `json:"output_tokens"` // all
	}
	c.seen = true
	if len(usage) > 0 && decode(usage, &u) && u.Input >= 0 {
		c.open = false
		c.total = new(tokens(u.Input-min(u.Input, count(u.CacheRead)+count(u.CacheWrite)), u.CacheRead, u.CacheWrite,
			u.Output))
	}
}

func (c *codexUsage) usage() *Usage {
	u := &Usage{Turns: c.turns, Thread: c.thread, Partial: c.open}
	switch {
	case c.total != nil && c.thread == "":
		u.Partial = true // without the beginning nobody knows which conversation the totals are of
	case c.total != nil:
		u.Models = map[string]Tokens{"": *c.total}
	}
	return u
}
