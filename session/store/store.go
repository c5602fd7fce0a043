// Package store has the interfaces of what keeps the state of a project, and the
// values and errors that they share. Package local keeps it in files, and package
// sqlite below it the board, executions and requests in a database.
//
// To add another Database, write its package beside those, add a line to the backends
// of package storetest, whose suites it has to pass, and choose it where transport
// and cmd/deepwork call sqlite.New. To add another kind of record to it, add its
// interface here with a method of Database, a migration and an implementation in each
// database, and a suite in storetest.
//
// To add another store of sessions, implement Sessions, Definitions, RequestIDs and
// Changes, add it to the sessionBackends of storetest, and choose it in openRecords of
// package workflow.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The reasons why a record cannot be had.
var (
	ErrNotFound = errors.New("no such record")
	ErrExists   = errors.New("the record exists")

	// ErrUnsynced says that a write has taken its place, but that this may not be
	// on disk: whether it is there after a crash is not known.
	ErrUnsynced = errors.New("the record was written, but may not survive a crash")

	// ErrPending says that a call has not returned by its deadline and goes on: whether
	// it will do what it was to do is not known. Later calls about the same record wait
	// for it.
	ErrPending = errors.New("the disk has not answered in time, and the call may still be carried out")
)

// A Database is what one process has of a project's stores that are not files of
// their own. It is opened at the first call that needs it. Its methods may be called
// from any goroutine.
type Database interface {
	Board() Board
	Executions() Executions
	Requests() Requests
	// Where says what it is, in messages: a path.
	Where() string
	// Open opens it now, and makes it if it is not there, so that the caller learns
	// whether that works.
	Open(ctx context.Context) error
	// Exists reports whether it has been made, so that reading need not make it.
	Exists() bool
	// Close waits for the calls that are under way; later ones fail.
	Close() error
}

// An Info is one record in a list, not yet read.
type Info struct {
	ID      string
	ModTime time.Time
	Size    int64
}

// A DamagedError is a record that does not verify. Nothing of it was overwritten.
type DamagedError struct {
	ID     string // of the session, or a definition's hash
	Path   string // where it is now, absolute
	Reason string
	Aside  bool // it was set aside, under a name with its id in it
}

// Error says what is damaged, why, and where it is now.
func (e *DamagedError) Error() string {
	where := "it stands at " + e.Path
	if e.Aside {
		where = "it was set aside as " + e.Path
	}
	return fmt.Sprintf("the record of %s is damaged: %s; %s", e.ID, e.Reason, where)
}
