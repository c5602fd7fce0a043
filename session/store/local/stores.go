// Package local keeps the stores of a project in files of this machine.
package local

import (
	"context"
	"errors"
	"log/slog"

	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/local/sqlite"
)

// A Database is a database in a file of this machine.
type Database = sqlite.DB

// Open returns the database of a project in its state folder, which its first call opens. The caller closes it.
func Open(f *state.Folder) *Database { return sqlite.New(sqlite.Options{Path: f.Database()}) }

// Stores returns the stores of a project in a database file of this machine. It touches no file: the
// first call that needs it opens it. With readOnly nothing is created, and a database that does
// not exist is empty.
func Stores(f *state.Folder, readOnly bool, logger *slog.Logger) *store.Stores {
	member := session.NewMember(f, logger)
	db := sqlite.New(sqlite.Options{Path: f.Database(), Make: func() error { return session.MakeState(f) }, ReadOnly: readOnly, Logger: logger})
	return &store.Stores{
		Members: member, Database: db,
		Others: func(context.Context) (bool, error) {
			others, _ := member.Others()
			return len(others) > 0, nil
		},
		Close: func(context.Context) error {
			return errors.Join(db.Close(), member.Leave()) // last: until then no other server takes over what this one runs
		},
	}
}
