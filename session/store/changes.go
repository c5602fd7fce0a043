package store

import "context"

// The kinds of changes.
const (
	SessionChanged   = "session"
	ExecutionChanged = "execution"
	TaskChanged      = "task"
	AttemptChanged   = "attempt"
)

// A Change reports that something was created, changed or removed.
type Change struct {
	Kind string // one of the constants
	ID   string
}

// News are the changes since a position.
type News struct {
	Changes []Change // in order; duplicates are possible
	// Reset means that there may have been other changes, too: the follower must reload everything.
	// It is set at the first call, and if the position no longer exists.
	Reset bool
	Next  string // the position for the next call
}

// Changes is the feed of changes by any process in the stores of a project, for web pages and
// commands. It is a hint: nothing relies on it except displays.
type Changes interface {
	// Append adds a change, after it is durable. It does not wait for the disk, and logs errors.
	Append(c Change)
	// Since returns a batch of changes after a position; "" is the position of a new follower.
	Since(ctx context.Context, position string) (News, error)
	// Wait returns when there may be changes after a position, or with an error when ctx ends. A
	// process that died may not have appended its last changes; Wait notices that within a second
	// or two, and the next Since returns a Reset.
	Wait(ctx context.Context, position string) error
}
