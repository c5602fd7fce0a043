package remote

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog/jsontext"
)

// Progress is how far a run is.
type Progress struct {
	Value   *float64 `json:"value" jsonschema:"as the source counts; null: not known"`
	Total   *float64 `json:"total" jsonschema:"what value is at the end; null: not known"`
	Message string   `json:"message" jsonschema:"the source's words, at most 2,000 characters"`
}

// State is where an execution at a source is.
type State string

// The states that a source tells; "" is none told. What a source calls by
// another name is mapped: canceled; success, succeeded, done and finished;
// error, failure, timeout and timed_out, which are Failed. Every other name is
// Running: whoever asks goes on asking, bounded by the run's timeout.
const (
	Running   State = "running"
	Completed State = "completed"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// An Answer is what a source said of an execution.
type Answer struct {
	ExecutionID string // the source's; "" where it gave none
	State       State
	Progress    *Progress
	Output      json.RawMessage // the result, as JSON, to the byte; nil: none
	Error       string          // what the source said went wrong; at most 8,000 characters
}

// A reply is what a tool of a source answered: to the byte, but that bytes which
// are no UTF-8 are replaced, for nobody further on could read them.
type reply struct {
	mcp.ResultBase
	Content    json.RawMessage
	Structured json.RawMessage
	IsError    bool
	fault      string // why it is no answer of a tool; "": it is one
}

// UnmarshalJSON implements json.Unmarshaler. It takes whatever is JSON: an answer
// with a field of a wrong type is a bad answer, not a connection that is lost.
func (r *reply) UnmarshalJSON(data []byte) error {
	data = bytes.ToValidUTF8(data, []byte("\uFFFD"))
	if jsontext.First(data) != '{' {
		r.fault = "it is " + kindOf(data) + ", and is to be an object"
		return nil
	}
	var in struct {
		Content    json.RawMessage `json:"content"`
		Structured json.RawMessage `json:"structuredContent"`
		IsError    json.RawMessage `json:"isError"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	r.Content, r.Structured = in.Content, in.Structured
	r.IsError = bytes.Equal(bytes.TrimSpace(in.IsError), []byte("true"))
	switch {
	case !jsontext.IsNull(in.IsError) && kindOf(in.IsError) != "a boolean":
		r.fault = "its isError is " + kindOf(in.IsError) + ", and is to be a boolean"
	case !jsontext.IsNull(in.Content) && jsontext.First(in.Content) != '[':
		r.fault = "its content is " + kindOf(in.Content) + ", and is to be an array"
	}
	return nil
}

// A block is one of a reply's contents, as far as it matters here.
type block struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func (r *reply) blocks() []block {
	var all []block
	if jsontext.First(r.Content) != '[' || json.Unmarshal(r.Content, &all) != nil {
		return nil
	}
	return all
}

// text joins what the reply says in words.
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

// value is the reply as JSON: its structured content; else its one text, which
// is JSON or becomes a JSON string; else its contents as they are. nil: nothing.
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
		text, _ := jsontext.Encode(blocks[0].Text) // a string always has a JSON form
		return text
	case len(blocks) == 0 && (blocks != nil || jsontext.IsNull(r.Content)):
		return nil
	}
	return bytes.Clone(r.Content)
}

// shallow is JSON as it is, or, where it is nested so deep that those who read it
// further on may fail over it, as a text.
func shallow(value json.RawMessage) json.RawMessage {
	if jsontext.Depth(value) <= maxAnswer {
		return value
	}
	text, _ := jsontext.Encode(string(value)) // a string always has a JSON form
	return text
}

// unwrapped is the reply as JSON, without what frameworks put around the answer
// of a tool: {"result": …}, and in it a text where that is what the tool gave.
func (r *reply) unwrapped() json.RawMessage {
	value := r.value()
	if jsontext.First(value) != '{' {
		return value
	}
	var wrapped map[string]json.RawMessage
	if json.Unmarshal(value, &wrapped) != nil || len(wrapped) != 1 {
		return value
	}
	inner := wrapped["result"]
	var text string
	if jsontext.First(inner) == '"' && json.Unmarshal(inner, &text) == nil && json.Valid([]byte(text)) {
		inner = json.RawMessage(text)
	}
	switch jsontext.First(inner) {
	case '{', '[':
		return inner
	}
	return value
}

// list is the reply of a list tool as JSON. Some frameworks wrap an array as
// {"result": […]}, or send a text for each of its elements.
func (r *reply) list() json.RawMessage {
	value := r.unwrapped()
	blocks := r.blocks()
	if !jsontext.IsNull(r.Structured) || len(blocks) < 2 {
		return value
	}
	var all []json.RawMessage
	for _, b := range blocks {
		if b.Type != "text" || jsontext.First([]byte(b.Text)) != '{' || !json.Valid([]byte(b.Text)) {
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

// syncAnswer is the answer of a synchronous workflow: its result.
func (r *reply) syncAnswer() *Answer { return &Answer{State: Completed, Output: shallow(r.value())} }

// answer reads what a source says of an asynchronous execution. What is no
// object says nothing but itself: it is the output, with no state.
func (r *reply) answer() *Answer {
	value := r.unwrapped()
	if jsontext.First(value) != '{' {
		return &Answer{Output: shallow(value)}
	}
	var in struct {
		ExecutionID  json.RawMessage `json:"execution_id"`
		ExecutionID2 json.RawMessage `json:"executionId"`
		Status       json.RawMessage `json:"status"`
		Progress     json.RawMessage `json:"progress"`
		Total        json.RawMessage `json:"total"`
		Message      json.RawMessage `json:"message"`
		Output       json.RawMessage `json:"output"`
		Error        json.RawMessage `json:"error"`
	}
	if json.Unmarshal(value, &in) != nil {
		return &Answer{Output: shallow(value)}
	}
	a := &Answer{ExecutionID: identifier(in.ExecutionID), Progress: progressOf(in.Progress, in.Total, in.Message)}
	if a.ExecutionID == "" {
		a.ExecutionID = identifier(in.ExecutionID2)
	}
	var status string
	if textOf(in.Status, &status) == "" {
		a.State = stateOf(status)
	}
	if !jsontext.IsNull(in.Output) {
		a.Output = shallow(in.Output)
	}
	if !jsontext.IsNull(in.Error) {
		a.Error = errorText(in.Error)
	}
	return a
}

func stateOf(status string) State {
	switch s := strings.ToLower(strings.TrimSpace(status)); s {
	case "completed", "complete", "success", "succeeded", "done", "finished":
		return Completed
	case "failed", "failure", "error", "timeout", "timed_out":
		return Failed
	case "cancelled", "canceled", "aborted":
		return Cancelled
	}
	return Running
}

// identifier takes an id that is a text, or a number as it is written.
func identifier(raw json.RawMessage) string {
	var s string
	switch {
	case jsontext.IsNull(raw):
	case jsontext.First(raw) == '"':
		json.Unmarshal(raw, &s)
	case strings.IndexByte("0123456789-", jsontext.First(raw)) >= 0:
		s = strings.TrimSpace(string(raw))
	}
	if len(s) > maxID {
		return "" // nobody could ask for it again
	}
	return s
}

// errorText makes words of an error: a text, an object with a message, or JSON.
func errorText(raw json.RawMessage) string {
	var s string
	if jsontext.First(raw) == '"' && json.Unmarshal(raw, &s) == nil {
		return jsontext.Clip(s, maxErrorText)
	}
	if jsontext.First(raw) == '{' {
		var in struct {
			Message json.RawMessage `json:"message"`
			Error   json.RawMessage `json:"error"`
		}
		if json.Unmarshal(raw, &in) == nil {
			for _, m := range []json.RawMessage{in.Message, in.Error} {
				if textOf(m, &s) == "" {
					return jsontext.Clip(s, maxErrorText)
				}
			}
		}
	}
	var compact bytes.Buffer
	if json.Compact(&compact, raw) != nil {
		return jsontext.Clip(string(raw), maxErrorText)
	}
	return jsontext.Clip(compact.String(), maxErrorText)
}

// progressOf reads a progress: a number, with a total beside it, or out of 1 or
// 100; a text; or an object of progress, total and message.
func progressOf(raw, total, message json.RawMessage) *Progress {
	p := &Progress{}
	textOf(message, &p.Message)
	switch {
	case jsontext.IsNull(raw):
		return nil
	case jsontext.First(raw) == '"':
		textOf(raw, &p.Message)
	case jsontext.First(raw) == '{':
		var in struct {
			Progress json.RawMessage `json:"progress"`
			Total    json.RawMessage `json:"total"`
			Message  json.RawMessage `json:"message"`
		}
		if json.Unmarshal(raw, &in) != nil || jsontext.First(in.Progress) == '{' {
			return nil
		}
		if inner := progressOf(in.Progress, in.Total, in.Message); inner != nil {
			return inner
		}
		textOf(in.Message, &p.Message)
	default:
		if p.Value = number(raw); p.Value == nil {
			return nil
		}
		if p.Total = number(total); p.Total == nil {
			switch v := *p.Value; {
			case v >= 0 && v <= 1:
				p.Total = new(1.0)
			case v > 1 && v <= 100:
				p.Total = new(100.0)
			}
		}
	}
	if p.Message = jsontext.Clip(p.Message, maxMessageText); p.Value == nil && p.Message == "" {
		return nil
	}
	return p
}

func number(raw json.RawMessage) *float64 {
	var n float64
	if jsontext.IsNull(raw) || json.Unmarshal(raw, &n) != nil || math.IsInf(n, 0) {
		return nil
	}
	return &n
}
