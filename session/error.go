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

// An Error is a refused call: it says what was wrong, with which value, and what to do next, in
// words for an agent, with a code for programs. A refused call has changed nothing.
type Error struct {
	Kind    Kind           `json:"type"`
	Code    string         `json:"code"`    // lower_snake_case, stable
	Message string         `json:"message"` // without the kind
	Details map[string]any `json:"details"` // values for programs; may be nil
	Err     error          `json:"-"`       // the cause, for the log; may be nil

	waiting *Waiting
}

// A Waiting says why the caller can only wait, or call again.
type Waiting struct {
	Code         string `json:"code"`
	RetryAfterMS int64  `json:"retry_after_ms"`
}

// Wait records that the caller can only call again after about this time, and returns e.
func (e *Error) Wait(after time.Duration) *Error {
	e.Message = "Waiting: " + e.Message
	e.waiting = &Waiting{e.Code, after.Milliseconds()}
	return e
}

// Waiting returns what Wait has set, or nil.
func (e *Error) Waiting() *Waiting { return e.waiting }

func (e *Error) Error() string { return string(e.Kind) + ": " + e.Message }

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

// Because sets the cause and returns e.
func (e *Error) Because(err error) *Error {
	e.Err = err
	return e
}

// Wrong returns a ToolError.
func Wrong(code, format string, args ...any) *Error {
	return &Error{Kind: ToolError, Code: code, Message: fmt.Sprintf(format, args...)}
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
	return &Error{Kind: StateError, Code: code, Message: fmt.Sprintf(format, args...)}
}

// CodeOf returns the code of the Error in err's chain, or "".
func CodeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}
