package actor

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The reasons why a message is not answered; test for them with [errors.Is].
var (
	// ErrStopped says that the actor, or its System, is stopped or stopping, so
	// the message was not accepted, or that it stopped before it had answered.
	ErrStopped = errors.New("stopped")

	// ErrTooManyRestarts says that the actor crashed more often than
	// Options.Restarts allows within Options.Within. One made by Spawn stays
	// stopped; a key of a Registry may be asked again once the window has passed.
	ErrTooManyRestarts = errors.New("too many restarts")

	// ErrBusy says that an actor was not passivated, because it owes an answer.
	ErrBusy = errors.New("asks are taken and not yet answered")
)

// errGone is how a cell that has left its registry's map tells the registry to
// look again. It never reaches a caller.
var errGone = errors.New("gone")

// errNoReason stands in for the nil of a Reply.Fail(nil).
var errNoReason = errors.New("failed without a reason")

// A PanicError is what askers get when a Behavior panicked: the asker of the
// message that did it, and those whose asks were taken and not yet answered.
// The panic has been logged, with its stack.
type PanicError struct {
	Actor string // its name
	Value any    // what recover returned
	Stack []byte // of the actor's goroutine, as debug.Stack gives it
}

// Error names the actor and the value, not the stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("actor %s panicked: %v", e.Actor, e.Value)
}

// Unwrap returns the value where it is an error, else nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// stoppedError is ErrStopped with the actor's name.
func stoppedError(name string) error {
	return fmt.Errorf("actor %s: %w", name, ErrStopped)
}

// crashError wraps what Receive returned for those who wait for an answer.
func crashError(name string, err error) error {
	return fmt.Errorf("actor %s failed and lost its state in memory: %w", name, err)
}

// restartsError is ErrTooManyRestarts with the actor's name and its last crash.
func restartsError(name string, restarts int, within time.Duration, last error) error {
	return fmt.Errorf("actor %s: %w: more than %d within %v; the last crash: %w",
		name, ErrTooManyRestarts, max(restarts, 0), within, last)
}

// busyError is ErrBusy with the actor's name and how many there are.
func busyError(name string, open int) error {
	return fmt.Errorf("actor %s: not passivated, %d %w", name, open, ErrBusy)
}

// overError says that the context was over before anything was tried.
func overError(ctx context.Context, name string) error {
	return fmt.Errorf("actor %s: message not delivered: %w", name, ctx.Err())
}

// fullError says that the context ended while the mailbox had no room.
func fullError(ctx context.Context, name string, size int) error {
	return fmt.Errorf("actor %s: its mailbox was full (%d messages), message not delivered: %w",
		name, size, ctx.Err())
}
