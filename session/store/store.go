// Package store has the interfaces through which the state of a project is kept, and the values and errors
// that they share. Package sqlstore implements them, in SQL for two databases: package sqlite embeds one in
// the process, and package postgres connects to one that several machines share. Package backend chooses the
// Stores of a project, and package transfer copies a project from one to another.
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

	// ErrPending reports that it is unknown whether a call was carried out, or will be.
	ErrPending = errors.New("the store has not answered in time, and the call may still be carried out")
)

// A Database holds the stores of a project. The first call opens it. Its methods may be called from any
// goroutine.
type Database interface {
	Sessions() Sessions
	Board() Board
	RemoteRuns() RemoteRuns
	LongCalls() LongCalls
	Work() Work
	Schedules() Schedules
	Changes() Changes
	// Where returns the database's location, for messages.
	Where() string
	// Open opens the database now, and creates it if necessary, so that the caller gets the error.
	Open(ctx context.Context) error
	// Exists reports whether the database was created, so that readers need not create it.
	Exists() bool
	// Close waits for calls in progress; later ones fail.
	Close() error
}

// The kinds of changes.
const (
	SessionChanged   = "session"
	RemoteRunChanged = "execution"
	TaskChanged      = "task"
	TaskDeleted      = "task_deleted" // reported in addition, for places that have files of the task
	AttemptChanged   = "attempt"
	ScheduleChanged  = "schedule"
	WorkChanged      = "work" // ID is that of WorkRow.ID; progress is not reported, but for remote runs as theirs
)

// A Change reports that something was created, changed or removed.
type Change struct {
	Kind string // one of the constants
	ID   string
}

// News has the changes since a position.
type News struct {
	Changes []Change // in the order in which they were committed; duplicates are possible
	// Reset means that there may have been other changes, too, and the follower must reload everything. It is
	// set at the first call, and if the position no longer exists.
	Reset bool
	Next  string // the position for the next call
}

// Changes is the feed of changes by any process in the database of a project, for web pages, commands and
// calls that wait. A transaction adds its changes: they are in the feed once it is committed, and never if it
// is not. Followers never miss a change, in whatever order transactions begin and commit. The feed keeps the
// changes of the last hour, at most 10,000; a follower that is further behind gets a Reset.
type Changes interface {
	// Since returns the changes after a position; "" is the position of a new follower. Without changes, Next
	// is the position. It does not create a missing database, which has no changes.
	Since(ctx context.Context, position string) (News, error)
	// Wait returns once Since would return something after a position, or with an error when ctx ends.
	Wait(ctx context.Context, position string) error
}
