package actor

import (
	"context"
	"log/slog"
	"time"
)

// A Behavior is what an actor does. One goroutine calls it, one message at a
// time, so its fields need no lock.
//
// A refusal that belongs to the domain travels in a reply and returns nil. An
// error from Receive means that the state can no longer be trusted: the asker of
// this message and those still waiting for an answer get it, wrapped, and the
// actor restarts from its durable state. A panic is treated alike.
//
// ctx lives as long as the actor's System and is cancelled when the deadline of
// a stop has passed; it is not the asker's, who may be gone while the message
// still has to be handled.
//
// Receive must not wait for its own actor: asking itself, or stopping itself,
// blocks until that call's context ends.
type Behavior[M any] interface {
	Receive(ctx context.Context, m M) error
}

// A Starter is a Behavior that loads durable state. Start is called on the
// actor's goroutine before the first message of each incarnation. Its error
// fails, unchanged, whatever waits in the mailbox, and ends the incarnation; it
// is not a crash, and the next message tries again.
type Starter interface {
	Start(ctx context.Context) error
}

// A Stopper is a Behavior that has something to do at the end. Stop is called on
// the actor's goroutine when an incarnation ends in order (it was stopped, or
// passivated), never after a crash. Replies still open when it returns are
// failed with [ErrStopped].
type Stopper interface {
	Stop(ctx context.Context)
}

// Options configure an actor, or each actor of a Registry. The zero value of a
// field is its default.
type Options struct {
	// Name says in logs and errors which actor it is; an actor of a Registry is
	// called Name/key.
	Name string
	// Mailbox is how many messages wait before senders do; default 64.
	Mailbox int
	// Logger is where crashes are logged; default the System's.
	Logger *slog.Logger
	// Restarts is how many crashes within Within are answered by a restart; one
	// more stops the actor, alone. Default 5; negative: none.
	Restarts int
	// Within is the window in which crashes are counted; default 1 minute.
	Within time.Duration
	// Idle is how long an actor may have nothing to do before it is passivated;
	// 0: it never is. An ask that was taken and not yet answered is something to do.
	Idle time.Duration
}

// The defaults of Options.
const (
	defaultName     = "actor"
	defaultMailbox  = 64
	defaultRestarts = 5
	defaultWithin   = time.Minute
)

// withDefaults returns a copy with the defaults filled in.
func (o Options) withDefaults(logger *slog.Logger) Options {
	if o.Name == "" {
		o.Name = defaultName
	}
	if o.Mailbox <= 0 {
		o.Mailbox = defaultMailbox
	}
	if o.Logger == nil {
		o.Logger = logger
	}
	if o.Restarts == 0 {
		o.Restarts = defaultRestarts
	}
	if o.Within <= 0 {
		o.Within = defaultWithin
	}
	return o
}
