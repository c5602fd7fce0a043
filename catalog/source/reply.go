package source

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog/jsontext"
)

// A reply is the result of a source's tool, byte for byte, except that invalid UTF-8 is replaced.
type reply struct {
	mcp.ResultBase
	Content    json.RawMessage
	Structured json.RawMessage
	IsError    bool
	task       *sourceTask // set if the reply is a task instead of a result
	fault      string      // why it is neither, or ""
}

// UnmarshalJSON implements json.Unmarshaler. It accepts all JSON: a field of a wrong type is an error in the
// reply, not in the connection.
func (r *reply) UnmarshalJSON(data []byte) error {
	if !utf8.Valid(data) {
		data = bytes.ToValidUTF8(data, []byte("\uFFFD"))
	}
	if jsontext.Kind(data) != "object" {
		r.fault = "it is " + kindOf(data) + "; expected an object"
		return nil
	}

	var in struct {
		Content, StructuredContent, IsError json.RawMessage
		ResultType, TaskID                  any
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	if _, ok := in.TaskID.(string); in.ResultType == "task" || ok && in.Content == nil {
		r.task = &sourceTask{}
		if err := json.Unmarshal(data, r.task); err != nil || r.task.TaskID == "" {
			r.task, r.fault = nil, "it is a task without an id, or is not written as one"
		}
		return nil
	}
	if in.ResultType != nil && in.ResultType != "complete" {
		r.fault = fmt.Sprintf("it is of the kind %.40q, which this server does not know", fmt.Sprint(in.ResultType))
	}
	r.Content, r.Structured = in.Content, in.StructuredContent
	r.IsError = bytes.Equal(bytes.TrimSpace(in.IsError), []byte("true"))
	switch {
	case !jsontext.IsNull(in.IsError) && jsontext.Kind(in.IsError) != "boolean":
		r.fault = "its isError is " + kindOf(in.IsError) + "; expected a boolean"
	case !jsontext.IsNull(in.Content) && jsontext.Kind(in.Content) != "array":
		r.fault = "its content is " + kindOf(in.Content) + "; expected an array"
	}

	return nil
}

// A block is one content block of a reply.
type block struct{ Type, Text string }

func (r *reply) blocks() []block {
	var all []block
	if jsontext.Kind(r.Content) != "array" || json.Unmarshal(r.Content, &all) != nil {
		return nil
	}
	return all
}

// text returns the texts of the reply.
func (r *reply) text() string {
	var parts []string
	for _, b := range r.blocks() {
		if b.Type == "text" && strings.TrimSpace(b.Text) != "" {
			parts = append(parts, strings.TrimSpace(b.Text))
		}
	}
	if len(parts) == 0 && !jsontext.IsNull(r.Structured) {
		return errorText(r.Structured)
	}
	return jsontext.Clip(strings.Join(parts, "\n"), maxErrorText)
}

// value returns the reply as JSON: its structured content; else its only text, which is JSON or becomes a
// JSON string; else its contents; else nil.
func (r *reply) value() json.RawMessage {
	if !jsontext.IsNull(r.Structured) {
		return r.Structured
	}

	blocks := r.blocks()
	switch {
	case len(blocks) == 1 && blocks[0].Type == "text":
		if text := []byte(strings.TrimSpace(blocks[0].Text)); json.Valid(text) {
			return text
		}
		return jsontext.Quote(blocks[0].Text)
	case len(blocks) == 0 && (blocks != nil || jsontext.IsNull(r.Content)):
		return nil
	}

	return r.Content
}

// shallow returns JSON unchanged, or as a text if it is nested so deep that later readers may fail.
func shallow(value json.RawMessage) json.RawMessage {
	if jsontext.Depth(value) <= maxAnswer {
		return value
	}
	return jsontext.Quote(string(value))
}

// unwrapped returns the reply as JSON, without the wrappers of frameworks: {"result": …}, or the same with
// the JSON as text.
func (r *reply) unwrapped() json.RawMessage {
	value := r.value()
	if jsontext.Kind(value) != "object" {
		return value
	}

	var wrapped map[string]json.RawMessage
	if json.Unmarshal(value, &wrapped) != nil || len(wrapped) != 1 {
		return value
	}
	inner := wrapped["result"]

	var text string
	if jsontext.Kind(inner) == "string" && json.Unmarshal(inner, &text) == nil && json.Valid([]byte(text)) {
		inner = json.RawMessage(text)
	}
	if kind := jsontext.Kind(inner); kind == "object" || kind == "array" {
		return inner
	}

	return value
}

// list returns the reply of a list tool as JSON. Some frameworks wrap an array as {"result": […]},
// or send each of its elements as a text.
func (r *reply) list() json.RawMessage {
	value := r.unwrapped()
	blocks := r.blocks()
	if !jsontext.IsNull(r.Structured) || len(blocks) < 2 {
		return value
	}

	var all []json.RawMessage
	for _, b := range blocks {
		if b.Type != "text" || jsontext.Kind([]byte(b.Text)) != "object" || !json.Valid([]byte(b.Text)) {
			return value
		}
		all = append(all, json.RawMessage(b.Text))
	}
	joined, err := jsontext.Encode(all)
	if err != nil {
		return value
	}
	return joined
}
