package source

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"strings"
	"time"

	"deepwork/catalog/jsontext"
)

// Progress is the progress of a remote run.
type Progress struct {
	Value   *float64 `json:"value" jsonschema:"progress as the source counts it"`
	Total   *float64 `json:"total" jsonschema:"value at the end"`
	Message string   `json:"message" jsonschema:"the source's words, at most 2,000 characters"`
	Asks    string   `json:"asks,omitempty" jsonschema:"what it asks a person, who answers there"`
}

// State is the state of a remote run at a source.
type State string

// The states that a source reports; "" means none. Other names are mapped: canceled and aborted; complete,
// success, succeeded, done and finished; error, failure, timeout and timed_out, which are Failed. Every other
// name is Running: callers keep asking until the run's timeout.
const (
	Running   State = "running"
	Completed State = "completed"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// An Answer is the answer of a source about a remote run.
type Answer struct {
	ExecutionID string // the source's, or ""
	State       State
	Progress    *Progress
	Output      json.RawMessage // the result, as JSON, byte for byte; nil means none
	Error       string          // what the source reported as wrong; at most 8,000 characters
	Pause       time.Duration   // how long the source wants no requests; 0 means as configured
}

// syncAnswer returns the answer of a synchronous workflow: its result.
func (r *reply) syncAnswer() *Answer { return &Answer{State: Completed, Output: shallow(r.value())} }

// answer reads a source's answer about an asynchronous run. Anything but an object is output without a state.
func (r *reply) answer() *Answer {
	value := r.unwrapped()
	if jsontext.Kind(value) != "object" {
		return &Answer{Output: shallow(value)}
	}

	var in struct {
		ExecutionID                                     json.RawMessage `json:"execution_id"`
		ExecutionID2                                    json.RawMessage `json:"executionId"`
		Status, Progress, Total, Message, Output, Error json.RawMessage
	}
	if json.Unmarshal(value, &in) != nil {
		return &Answer{Output: shallow(value)}
	}
	a := &Answer{
		ExecutionID: plain(cmp.Or(identifier(in.ExecutionID), identifier(in.ExecutionID2))),
		Progress:    progressOf(in.Progress, in.Total, in.Message),
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

// identifier reads an id: a text, or a number as written.
func identifier(raw json.RawMessage) string {
	var s string
	switch jsontext.Kind(raw) {
	case "string":
		json.Unmarshal(raw, &s)
	case "number":
		s = strings.TrimSpace(string(raw))
	}

	if len(s) > maxID {
		return "" // too long for later use
	}
	return s
}

// plain distinguishes a source's own id from that of a task.
func plain(id string) string {
	if strings.HasPrefix(id, taskID) || strings.HasPrefix(id, plainID) {
		return plainID + id
	}
	return id
}

// errorText returns the text of an error: a text, an object with a message, or JSON.
func errorText(raw json.RawMessage) string {
	var s string
	if jsontext.Kind(raw) == "string" && json.Unmarshal(raw, &s) == nil {
		return jsontext.Clip(s, maxErrorText)
	}

	if jsontext.Kind(raw) == "object" {
		var in struct{ Message, Error json.RawMessage }
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

// progressOf reads a progress: a number, with a separate total or out of 1 or 100; a text; or an object with
// progress, total and message.
func progressOf(raw, total, message json.RawMessage) *Progress {
	if jsontext.Kind(raw) == "object" {
		var in struct{ Progress, Total, Message json.RawMessage }
		if json.Unmarshal(raw, &in) != nil || jsontext.Kind(in.Progress) == "object" {
			return nil
		}
		if raw = in.Progress; jsontext.IsNull(raw) {
			raw = in.Message
		}
		total, message = in.Total, in.Message
	}
	p := &Progress{Value: number(raw)}
	textOf(message, &p.Message)
	textOf(raw, &p.Message)
	p.Message = jsontext.Clip(p.Message, maxMessageText)
	if p.Value == nil {
		if jsontext.Kind(raw) != "string" || p.Message == "" {
			return nil
		}
		return p
	}
	switch v := *p.Value; {
	case number(total) != nil:
		p.Total = number(total)
	case v >= 0 && v <= 1:
		p.Total = new(1.0)
	case v > 1 && v <= 100:
		p.Total = new(100.0)
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
