// Package store has the interfaces of what keeps the state of a project, and the values and errors that they
// share. Package sqlstore is their one implementation, in SQL for two databases: package sqlite embeds one in
// the process, package postgres reaches one that several machines share. Package backend chooses the Stores
// of a project, and package transfer copies a project from one to another.
//
// To add a kind of record, add its interface here with a method of Database, its statements to sqlstore, its
// tables to the schema of each database, and a suite to the tests of sqlstore.
package store

import (
	"context"
	"errors"
)

// The reasons why a record is unavailable.
var (
	ErrNotFound = errors.New("no such record")
	ErrExists   = errors.New("the record exists")

	// ErrPending reports that whether a call was carried out, or will be, is not known.
	ErrPending = errors.New("the store has not answered in time, and the call may still be carried out")
)

// A Database holds the stores of a project. It is opened by the first call that needs it. Its methods may be
// called from any goroutine.
type Database interface {
	Sessions() Sessions
	Board() Board
	RemoteRuns() RemoteRuns
	LongCalls() LongCalls
	Changes() Changes
	// Where returns its location for messages.
	Where() string
	// Open opens it now, and creates it if necessary, so that the caller gets the error.
	Open(ctx context.Context) error
	// Exists reports whether it was created, so that reading need not create it.
	Exists() bool
	// Close waits for calls in progress; later ones fail.
	Close() error
}

// The kinds of changes.
const (
	SessionChanged   = "session"
	RemoteRunChanged = "execution"
	TaskChanged      = "task"
	TaskDeleted      = "task_deleted" // with it, for places that have something of the task
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
