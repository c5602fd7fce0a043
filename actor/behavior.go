// Package actor runs typed actors: all mutable state is owned by one goroutine and reached only by
// messages.
//
// An actor is a [Behavior] behind a bounded mailbox. [Spawn] starts one that lives as long as its
// [System]; a [Registry] has one per key, in memory only while it is busy. Messages are sent with
// Tell, or with [Ask], which waits for an answer; both return when the caller's context ends.
//
// An incarnation is one life of a Behavior. If Receive panics or returns an error, its state is
// dropped and the next incarnation starts from durable state. The mailbox outlives incarnations, so
// an accepted message is handled exactly once, unless no incarnation can be created: then its asker
// gets the error.
package actor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// A Behavior handles the messages of an actor. It is called by one goroutine, one message at a time, so its
// fields need no lock.
//
// For a refusal that belongs to the domain, answer with a reply and return nil. An error from Receive, other
// than [ErrRest], means that the state can no longer be trusted: it is returned, wrapped, to the asker of
// this message and to those whose asks are still open, and the actor restarts from its durable state. A panic
// is treated alike.
//
// ctx lives as long as the actor's System and is cancelled when the deadline of a stop has passed. It is not
// the asker's context, which may end while the message still has to be handled.
//
// Receive must not wait for its own actor: asking or stopping itself blocks until the context of that call
// ends.
type Behavior[M any] interface {
	Receive(ctx context.Context, m M) error
}

// A Starter is a Behavior that loads durable state. Start is called on the actor's goroutine before
// the first message of each incarnation. If it fails, all messages in the mailbox fail with its
// error, unchanged, and the incarnation ends. That is not a crash; the next message tries again.
type Starter interface {
	Start(ctx context.Context) error
}

// A Stopper is a Behavior that cleans up when it ends. Stop is called on the actor's goroutine when
// an incarnation ends in order (stopped or passivated), never after a crash. Replies still open
// when it returns fail with [ErrStopped].
type Stopper interface {
	Stop(ctx context.Context)
}

// Options configures an actor, or each actor of a Registry. The zero value of a field means its
// default.
type Options struct {
	// Name identifies the actor in logs and errors; an actor of a Registry is called Name/key.
	Name string
	// Mailbox is the number of messages that the mailbox holds before senders block; default 64.
	Mailbox int
	// Logger receives crashes; default the System's.
	Logger *slog.Logger
	// Restarts is the number of restarts allowed within Within; one more crash stops this actor.
	// Default 5; negative means none.
	Restarts int
	// Within is the window in which crashes are counted; default 1 minute.
	Within time.Duration
	// Idle is how long an actor may be idle before it is passivated; 0 means never. An actor with
	// an unanswered ask is not idle.
	Idle time.Duration
}

// withDefaults returns a copy with the defaults filled in.
func (o Options) withDefaults(logger *slog.Logger) Options {
	o.Name = cmp.Or(o.Name, "actor")
	o.Mailbox = cmp.Or(max(o.Mailbox, 0), 64)
	o.Logger = cmp.Or(o.Logger, logger)
	o.Restarts = cmp.Or(o.Restarts, 5)
	o.Within = cmp.Or(max(o.Within, 0), time.Minute)
	return o
}

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
