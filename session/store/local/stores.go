package local

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/local/sqlite"
)

// Stores returns the stores of a project as files of this machine. It touches no file: each is
// opened by the first call that needs it. With readOnly nothing is created, and a database that does
// not exist is empty.
func Stores(f *state.Folder, readOnly bool, logger *slog.Logger) *store.Stores {
	member := session.NewMember(f, logger)
	db := sqlite.New(sqlite.Options{Path: f.Database(), Make: func() error { return session.MakeState(f) }, ReadOnly: readOnly, Logger: logger})
	changed := func(id string) {
		if !db.Exists() {
			return // nobody follows
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := db.Report(ctx, store.Change{Kind: store.SessionChanged, ID: id}); err != nil && logger != nil {
			logger.Warn("cannot report a change of a session", "session", id, "error", err)
		}
	}
	return &store.Stores{
		Members: member, Database: db, Changes: db.Changes(),
		Records: func(o store.RecordOptions) (store.Records, error) {
			return Open(f, Options{Logger: o.Logger, ReadOnly: readOnly || o.ReadOnly, Member: member, Keys: o.Keys, Head: o.Head, Changed: changed})
		},
		Others: func(context.Context) (bool, error) {
			others, _ := member.Others()
			return len(others) > 0, nil
		},
		Close: func(context.Context) error {
			return errors.Join(db.Close(), member.Leave()) // last: until then no other server takes over what this one owns
		},
	}
}
