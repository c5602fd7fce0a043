package gate

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"deepwork/actor/process"
)

// The reasons why Run refuses tasks; test for them with errors.Is.
var (
	// ErrBusy means that too many reviews are waiting.
	ErrBusy = errors.New("too many reviews are waiting")
	// ErrClosed means that the gate is closed or closing.
	ErrClosed = errors.New("the quality gate is closed")
)

// A Code is the reason why a review has no verdict.
type Code string

// The codes of an Error.
const (
	NotStarted     Code = "not_started"     // the reviewer could not be started
	Crashed        Code = "crashed"         // it exited with a nonzero code or by a signal, or reports failure
	TimedOut       Code = "timed_out"       // it did not end in time
	Flooded        Code = "flooded"         // its output was too large
	Cancelled      Code = "cancelled"       // the verdict is no longer needed, or the server stops
	NoVerdict      Code = "no_verdict"      // its output contains no verdict, or an invalid one
	TwoVerdicts    Code = "two_verdicts"    // its output contains more than one
	Contradiction  Code = "contradiction"   // it passed although a criterion failed
	ContentChanged Code = "content_changed" // the files have changed since they were submitted
)

// An Error reports a review without a verdict. Such a review neither passes nor fails a step: the try is void
// (DESIGN "Reviews").
type Error struct {
	Code   Code
	Review string // names the review in the message
	What   string // what is wrong, as the end of a sentence
	Tail   string // the last lines of its output, at most 20 and 2,000 bytes
	From   string // where the reviewer is set; "" means where it was when the session began
	Err    error  // the cause, for the log; may be nil
}

// tailSize and tailLines limit Error.Tail.
const (
	tailSize  = 2000 // bytes
	tailLines = 20
)

// lastLines returns the end of a reviewer's output, clipped for an error message.
func lastLines(s string) string {
	s = process.Tail(s, tailSize)
	at := len(s)
	for range tailLines {
		if at = strings.LastIndexByte(s[:at], '\n'); at < 0 {
			return s
		}
	}
	return s[at+1:]
}

// Error returns a message for the agent that made the call: the fault, that the try does not count, and what to do.
func (e *Error) Error() string {
	text := e.Fault()
	if !strings.HasSuffix(text, "\n") {
		text += " "
	}
	return text + "This try does not count. " + e.remedy()
}

// Fault says what went wrong, with the last lines of the reviewer's output.
func (e *Error) Fault() string {
	var b strings.Builder
	fmt.Fprintf(&b, "The quality review of %s gave no verdict: %s.", e.Review, e.What)
	if e.Tail != "" {
		fmt.Fprintf(&b, " The last lines it wrote:\n    %s\n", strings.ReplaceAll(e.Tail, "\n", "\n    "))
	} else if e.Code != ContentChanged && e.Code != Cancelled && e.Code != NotStarted {
		b.WriteString(" It wrote nothing.")
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// remedy returns what to do about the error.
func (e *Error) remedy() string {
	from := cmp.Or(e.From, "the configuration with which the session began")
	switch e.Code {
	case NotStarted:
		return "Tell the user: the reviewer is set in " + from +
			". Once it is fixed, call finished_step again with the same outputs."
	case TimedOut:
		return "Call finished_step again with the same outputs to have it reviewed once more. If it is too slow " +
			"again, tell the user to raise quality_gate.default_timeout."
	case ContentChanged:
		return "Let everything that writes to the outputs end, then call finished_step again. If that happens again, " +
			"tell the user: the reviewer itself may write to them, such as by a formatter or a build that it runs, " +
			"and must not."
	case Cancelled:
		return "Call finished_step again if the step is still to be finished."
	}
	return "Call finished_step again with the same outputs to have it reviewed once more. If that happens again, the " +
		"reviewer is at fault, not the work: tell the user to run the command by hand and to fix it, or where it " +
		"is set, " + from + "."
}
