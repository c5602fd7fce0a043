// Package store has the interfaces of what keeps the state of a project, and the
// values and errors that they share. Package local keeps it in files, and package
// sqlite below it the board, executions and requests in a database; their statements
// are in package sqlstore.
//
// To add another Database, write its package on sqlstore, and add a line to the backends
// of package storetest, whose suites it has to pass. To add another kind of record to it,
// add its interface here with a method of Database, an implementation in sqlstore, a
// migration in each database, and a suite in storetest.
//
// To add another store of sessions, implement Records, and add it to the
// sessionBackends of storetest. Package backend chooses the Stores of a project, and package
// transfer copies a project from one to another.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The reasons why a record is unavailable.
var (
	ErrNotFound = errors.New("no such record")
	ErrExists   = errors.New("the record exists")

	// ErrUnsynced reports that a write is in place, but perhaps not on disk: it may be missing
	// after a crash.
	ErrUnsynced = errors.New("the record was written, but may not survive a crash")

	// ErrPending reports that a call has not returned by its deadline and continues: whether it
	// will succeed is not known. Later calls about the same record wait for it.
	ErrPending = errors.New("the store has not answered in time, and the call may still be carried out")
)

// A Database holds those stores of a project that are not separate files. It is opened by the first
// call that needs it. Its methods may be called from any goroutine.
type Database interface {
	Board() Board
	Executions() Executions
	Requests() Requests
	Changes() Changes
	// Where returns its location for messages: a path.
	Where() string
	// Open opens it now, and creates it if necessary, so that the caller gets the error.
	Open(ctx context.Context) error
	// Exists reports whether it was created, so that reading need not create it.
	Exists() bool
	// Close waits for calls in progress; later ones fail.
	Close() error
}

// An Info is one record in a list, not yet read.
type Info struct {
	ID      string
	ModTime time.Time
	Size    int64
}

// A DamagedError is a record that does not verify. None of it was overwritten.
type DamagedError struct {
	ID     string // of the session, or a definition's hash
	Path   string // its current path, absolute
	Reason string
	Aside  bool // it was set aside, under a name that contains its id
}

// A ForeignError is a record that is whole and that was not sealed here, as it is: by this
// installation, for this project. Or it was, and an older version was put back. What is in it is anybody's, and must not reach an agent.
// It was not touched.
type ForeignError struct {
	ID     string // of the session, or a definition's hash
	Path   string // absolute
	Reason string // with "it" for the file; has nothing of it that a program does not check
	Older  bool   // it was sealed here, and a newer version of it was written since
}

// Finding says what is wrong with the file; the subject is missing.
func (e *ForeignError) Finding() string {
	if e.Older {
		return "is not as this installation wrote it last: " + e.Reason
	}
	return "was not written by this installation for this project: " + e.Reason
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("the record of %s %s; it is at %s, untouched", e.ID, e.Finding(), e.Path)
}

// Error describes what is damaged, why, and where it is now.
func (e *DamagedError) Error() string {
	where := "it is at " + e.Path
	if e.Aside {
		where = "it was set aside as " + e.Path
	}
	return fmt.Sprintf("the record of %s is damaged: %s; %s", e.ID, e.Reason, where)
}
