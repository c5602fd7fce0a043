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
	Changes []Change // in the order in which they were committed; duplicates are possible
	// Reset means that there may have been other changes, too: the follower must reload everything.
	// It is set at the first call, and if the position no longer exists.
	Reset bool
	Next  string // the position for the next call
}

// Changes is the feed of changes by any process in the database of a project, for web pages, commands
// and calls that wait. A transaction adds the changes that it makes: they are in the feed once it is
// committed, and never if it is not. A change is never passed over, in whatever order transactions begin
// and commit. The feed keeps the changes of the last hour, 10,000 at most; a follower that is further
// behind gets a Reset.
type Changes interface {
	// Since returns the changes after a position; "" is the position of a new follower. If there are
	// none, Next is the position. The database is not created if it does not exist yet: it has no
	// changes then.
	Since(ctx context.Context, position string) (News, error)
	// Wait returns when Since returns something after a position, or with an error when ctx ends.
	Wait(ctx context.Context, position string) error
}
