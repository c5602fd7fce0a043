// Package store has the interfaces of what keeps the state of a project, and the values and errors that they
// share. Package sqlstore is their one implementation, in SQL for two databases: package sqlite embeds one in
// the process, package postgres reaches one that several machines share. Package backend chooses the Stores
// of a project, and package transfer copies a project from one to another.
//
// To add a kind of record, add its interface here with a method of Database, its statements to sqlstore, its
// tables to the schema of each database, and a suite to storetest.
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

// A Database holds the stores of a project. It is opened by the first call that needs it. Its methods may be called from any goroutine.
type Database interface {
	Sessions() Sessions
	Board() Board
	Executions() Executions
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
