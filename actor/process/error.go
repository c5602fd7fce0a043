package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// A Kind is the reason why a run failed.
type Kind string

// The kinds of an Error.
const (
	NotFound      Kind = "not_found"       // the program does not exist
	Start         Kind = "start"           // it could not be started
	Exit          Kind = "exit"            // it exited with a code that is not 0
	Signal        Kind = "signal"          // it was ended by a signal that we did not send
	Timeout       Kind = "timeout"         // the context's deadline passed
	Cancelled     Kind = "cancelled"       // the context was cancelled
	TooMuchOutput Kind = "too_much_output" // more than Spec.StdoutLimit
)

// ErrTooMuchOutput is in the chain of an Error of kind TooMuchOutput.
var ErrTooMuchOutput = errors.New("too much output")

// An Error is the reason why a run did not end with exit code 0. Whether it timed out or was
// cancelled is decided by its context, never by how the child then died.
type Error struct {
	Command  string        // the program, as the Spec names it
	Kind     Kind          // what happened
	ExitCode int           // -1 if unknown
	Signal   string        // such as "SIGSEGV", or ""
	Limit    int           // Spec.StdoutLimit in bytes
	After    time.Duration // how long the child ran
	Tail     string        // the last lines of its standard error, else of its output; at most 2,000 bytes
	Err      error         // the cause: the context's, the system's, ErrTooMuchOutput; may be nil
}

// Error names the program, what happened to it and its last lines.
func (e *Error) Error() string {
	what, after := fmt.Sprintf("it cannot be started: %v", e.Err), e.After.Round(time.Millisecond)
	switch e.Kind {
	case NotFound:
		what = fmt.Sprintf("there is no such program: %v", e.Err)
	case Exit:
		what = fmt.Sprintf("it ended with exit code %d after %v", e.ExitCode, after)
	case Signal:
		what = fmt.Sprintf("%s ended it after %v", e.Signal, after)
	case Timeout:
		what = fmt.Sprintf("it did not end in time and was killed after %v", after)
	case Cancelled:
		what = fmt.Sprintf("cancelled after %v: %v", after, e.Err)
	case TooMuchOutput:
		what = fmt.Sprintf("it wrote more than %d bytes and was killed", e.Limit)
	}
	if e.Tail != "" {
		what += "; its last lines:\n" + e.Tail
	}
	return fmt.Sprintf("running %q: %s", e.Command, what)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ended distinguishes a timeout from a cancellation.
func ended(ctx context.Context, spec *Spec, after time.Duration) *Error {
	e := &Error{Command: spec.Command[0], Kind: Cancelled, ExitCode: -1, After: after, Err: context.Cause(ctx)}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		e.Kind = Timeout
	}
	return e
}

// startError describes why a start failed, without repeating what the message says already.
func startError(spec *Spec, err error) *Error {
	e := &Error{Command: spec.Command[0], Kind: Start, ExitCode: -1, Err: err}
	if lookup, ok := errors.AsType[*exec.Error](err); ok {
		e.Err = lookup.Err
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			e.Kind = NotFound
		}
		return e
	}
	path, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		return e
	}
	switch {
	case path.Path == spec.Dir && spec.Dir != "":
		e.Err = fmt.Errorf("working directory: %w", err)
	case errors.Is(err, fs.ErrNotExist) && exists(spec):
		e.Err = fmt.Errorf("it is there, but what its first line names to run it is not: %w", path.Err)
	case errors.Is(err, fs.ErrNotExist):
		e.Kind, e.Err = NotFound, path.Err
	case errors.Is(err, fs.ErrPermission):
		e.Err = fmt.Errorf("it is not an executable file: %w", path.Err)
	default:
		e.Err = path.Err
	}
	return e
}

// exists reports whether the file that the Spec names exists, in PATH or at its path.
func exists(spec *Spec) bool {
	name := spec.Command[0]
	if !filepath.IsAbs(name) {
		name = filepath.Join(spec.Dir, name)
	}
	_, err := os.Stat(name)
	return err == nil || filepath.Base(name) == spec.Command[0]
}
