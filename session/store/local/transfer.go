package local

import (
	"context"
	"errors"
	"fmt"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store/local/sqlite"
	"deepwork/session/store/sqlstore"
	"deepwork/session/store/transfer"
)

// A File is the database of a project in a file as a side of a copy.
type File struct {
	f      *state.Folder
	path   string // of the database
	place  task.Place
	unlock func()
}

// NewFile returns the database of a project in its state folder.
func NewFile(f *state.Folder) *File { return &File{f: f, path: f.Database()} }

// Where implements transfer.Side.
func (s *File) Where() string { return s.path }

// Hold implements transfer.Side.
func (s *File) Hold(ctx context.Context) (err error) {
	if s.unlock, err = session.HoldServers(ctx, s.f); err == nil {
		s.place, err = session.PlaceOf(s.f)
	}
	return err
}

// Adapt implements transfer.Side: what lies here has no place.
func (s *File) Adapt(r transfer.Row) transfer.Row {
	folder := "root"
	if r.Table == "workflow_sessions" {
		folder = "place"
	}
	if r.Values["machine_id"] == s.place.MachineID && r.Values[folder] == s.place.Root {
		r.Values["machine_id"], r.Values[folder] = "", ""
		for _, name := range []string{"machine_name", "machine"} {
			if _, has := r.Values[name]; has {
				r.Values[name] = ""
			}
		}
	}
	return r
}

// Rows implements transfer.Side.
func (s *File) Rows(ctx context.Context, f func(transfer.Row) error) error {
	db := s.database(true)
	if !db.Exists() {
		return nil
	}
	err := db.Transact(ctx, sqlstore.Reading, func(ctx context.Context, q sqlstore.Querier) error { return transfer.BoardRows(ctx, q, f) })
	return errors.Join(err, db.Close())
}

// Replace implements transfer.Side.
func (s *File) Replace(ctx context.Context, fill func(put func(transfer.Row) error, rows func(f func(transfer.Row) error) error) error) error {
	db := s.database(false)
	err := db.Transact(ctx, sqlstore.Writing, func(ctx context.Context, q sqlstore.Querier) error {
		if err := transfer.ClearBoard(ctx, q); err != nil {
			return err
		}
		to := transfer.Board{Querier: q}
		return fill(func(r transfer.Row) error { return to.Put(ctx, r) }, func(f func(transfer.Row) error) error { return transfer.BoardRows(ctx, q, f) })
	})
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", s.path, err)
	}
	return nil
}

func (s *File) database(readOnly bool) *sqlite.DB {
	return sqlite.New(sqlite.Options{Path: s.path, ReadOnly: readOnly, Make: func() error { return session.MakeState(s.f) }})
}

// Release implements transfer.Side.
func (s *File) Release() {
	if s.unlock != nil {
		s.unlock()
		s.unlock = nil
	}
}

var _ transfer.Side = (*File)(nil)
