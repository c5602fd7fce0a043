package actor

import (
	"context"
	"errors"
	"fmt"
)

// The reasons why a message is not answered; test for them with [errors.Is].
var (
	// ErrStopped means that the actor or its System is stopped or stopping: the message was not
	// accepted, or the actor stopped before it answered.
	ErrStopped = errors.New("stopped")

	// ErrTooManyRestarts means that the actor crashed more often than Options.Restarts allows
	// within Options.Within. An actor started by Spawn stays stopped; a key of a Registry may be
	// asked again once the window has passed.
	ErrTooManyRestarts = errors.New("too many restarts")
)

// ErrRest is returned by Receive if the incarnation has nothing to keep in memory: it ends in order once its
// mailbox is empty and no ask is open.
var ErrRest = errors.New("the actor rests")

// errGone makes the registry search again, since the cell has left its map. It never reaches a
// caller.
var errGone = errors.New("gone")

// errNoReason replaces the nil of Reply.Fail(nil).
var errNoReason = errors.New("failed without a reason")

// A PanicError is the error of asks to a Behavior that panicked: of the message that caused the
// panic, and of those still open. The panic has been logged with its stack.
type PanicError struct {
	Actor string // the actor's name
	Value any    // what recover returned
	Stack []byte // the goroutine's stack, from debug.Stack
}

// Error names the actor and the value, not the stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("actor %s panicked: %v", e.Actor, e.Value)
}

// Unwrap returns the value if it is an error, else nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// stoppedError is ErrStopped with the actor's name.
func stoppedError(name string) error {
	return fmt.Errorf("actor %s: %w", name, ErrStopped)
}

// overError reports that the context had ended before anything was tried.
func overError(ctx context.Context, name string) error {
	return fmt.Errorf("actor %s: message not delivered: %w", name, ctx.Err())
}
