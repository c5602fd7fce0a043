package session

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"deepwork/session/codes"
)

// Kind is the first word of a refused call's text.
type Kind string

// The kinds of seed 000.
const (
	ToolError  Kind = "ToolError"  // the call was wrong: change the arguments
	StateError Kind = "StateError" // the call was well formed, but is not possible now or there
)

// An Error is a refused call: it says what was wrong, with which value, and what to do next, with a code for
// programs. A refused call has changed nothing.
type Error struct {
	Kind    Kind           `json:"type"`
	Code    string         `json:"code"`           // lower_snake_case, stable
	Message Text           `json:"message"`        // what is wrong, for all audiences
	Steps   []Step         `json:"next,omitempty"` // what to do next, one of them or one after the other
	Details map[string]any `json:"details"`        // values for programs; may be nil
	Retry   *Waiting       `json:"waiting,omitempty"`
	Err     error          `json:"-"` // the cause, for the log; may be nil
}

// A Waiting says why the caller can only wait, or call again.
type Waiting struct {
	Code         string `json:"code"`
	RetryAfterMS int64  `json:"retry_after_ms"`
}

// Wait records that the caller can only call again after about this time, and returns e.
func (e *Error) Wait(after time.Duration) *Error {
	e.Retry = &Waiting{e.Code, after.Milliseconds()}
	return e
}

// Waiting returns what Wait has set, or nil.
func (e *Error) Waiting() *Waiting { return e.Retry }

// Error words the error for agents.
func (e *Error) Error() string {
	text := string(e.Kind) + ": "
	if e.Retry != nil {
		text += "Waiting: "
	}
	return text + e.For(Agents)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// With adds a value for programs and returns e.
func (e *Error) With(key string, value any) *Error {
	if e.Details == nil {
		e.Details = make(map[string]any, 2)
	}
	e.Details[key] = value
	return e
}

// Next adds a call of a tool as a next step, with arguments as names and values, and returns e.
func (e *Error) Next(do, tool string, args ...any) *Error {
	step := Step{Do: do, Tool: tool}
	for i := 0; i < len(args); i += 2 {
		if step.Args == nil {
			step.Args = map[string]any{}
		}
		step.Args[args[i].(string)] = args[i+1]
	}
	e.Steps = append(e.Steps, step)
	return e
}

// Tell adds a sentence that tells only agents what to do next, and returns e.
func (e *Error) Tell(format string, args ...any) *Error {
	e.Steps = append(e.Steps, Step{Told: fmt.Sprintf(format, args...)})
	return e
}

// Worded sets the sentence that tells agents the last step, and returns e.
func (e *Error) Worded(format string, args ...any) *Error {
	e.Steps[len(e.Steps)-1].Told = fmt.Sprintf(format, args...)
	return e
}

// By sets the command with which people do the last step, without "deepwork", and returns e.
func (e *Error) By(command string) *Error {
	e.Steps[len(e.Steps)-1].Command = command
	return e
}

// Add adds a sentence to the message and returns e.
func (e *Error) Add(format string, args ...any) *Error {
	e.Message = append(e.Message, Say(format, args...)...)
	return e
}

// Prefix puts a sentence before the message and returns e.
func (e *Error) Prefix(format string, args ...any) *Error {
	e.Message = append(Say(format, args...), e.Message...)
	return e
}

// Ask adds what only a person can do as a next step, and returns e.
func (e *Error) Ask(format string, args ...any) *Error {
	e.Steps = append(e.Steps, Step{Do: fmt.Sprintf(format, args...)})
	return e
}

// Because sets the cause and returns e.
func (e *Error) Because(err error) *Error {
	e.Err = err
	return e
}

// Wrong returns a ToolError.
func Wrong(code, format string, args ...any) *Error {
	return &Error{Kind: ToolError, Code: code, Message: Say(format, args...)}
}

// BlankRequestID returns an error for a blank request_id: unrelated calls would be taken for repetitions of
// each other.
func BlankRequestID(id string) error {
	if strings.TrimSpace(id) != "" {
		return nil
	}
	return Wrong(codes.BlankRequestID, "request_id is blank. Leave it out, or pass a text that is new for each call.").
		With("argument", "request_id").With("value", id)
}

// NotNow returns a StateError.
func NotNow(code, format string, args ...any) *Error {
	return &Error{Kind: StateError, Code: code, Message: Say(format, args...)}
}

// CodeOf returns the code of the Error in err's chain, or "".
func CodeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}
