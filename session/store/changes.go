package store

import "context"

// The kinds of changes.
const (
	SessionChanged   = "session"
	ExecutionChanged = "execution"
	TaskChanged      = "task"
	AttemptChanged   = "attempt"
)

// A Change says that something was created, changed or removed, and not how.
type Change struct {
	Kind string // one of the constants
	ID   string
}

// News are the changes since a position.
type News struct {
	Changes []Change // in order; one may be there more than once
	// Reset means that there may have been other changes, too: the follower loads
	// everything that it shows. The first call has it, and one whose position is gone.
	Reset bool
	Next  string // the position for the next call
}

// Changes is the feed of what any process changes in the stores of a project, for web
// pages and commands that follow it. It is a hint: nothing relies on it but what people
// see.
type Changes interface {
	// Append adds a change, after it is durable. It does not wait for the disk, and what
	// fails is logged.
	Append(c Change)
	// Since returns the changes after a position, many at a time; "" is the position of
	// a new follower.
	Since(ctx context.Context, position string) (News, error)
	// Wait returns when there may be something after a position, or with an error when
	// ctx ends. A process that died may not have appended its last changes; Wait notices
	// that within a second or two, and the next Since has a Reset.
	Wait(ctx context.Context, position string) error
}
