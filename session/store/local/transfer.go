package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"deepwork/actor/durable"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store/local/sqlite"
	"deepwork/session/store/sqlstore"
	"deepwork/session/store/transfer"
)

// A File is the database file of a project, as a side of a copy.
type File struct {
	f      *state.Folder
	path   string // of the database
	backup bool   // not in the state folder, so no server uses it
	place  task.Place
	unlock func()
	leave  func(text string) string // removes the place from what sessions say
}

// NewFile returns the database of a project in its state folder.
func NewFile(f *state.Folder) *File { return &File{f: f, path: f.Database()} }

// NewBackup returns a database of a project in a file that is not the project's own: a copy that no server
// uses. Its folder must exist.
func NewBackup(f *state.Folder, path string) *File { return &File{f: f, path: path, backup: true} }

// Where implements transfer.Side.
func (s *File) Where() string { return s.path }

// Hold implements transfer.Side.
func (s *File) Hold(ctx context.Context) (err error) {
	if s.backup {
		own, oerr := os.Stat(s.f.Database())
		if it, err := os.Stat(s.path); s.path == s.f.Database() || err == nil && oerr == nil && os.SameFile(it, own) {
			return fmt.Errorf("%s is the project's own database: name another file for a backup, or files for that one",
				s.path)
		}
	} else if s.unlock, err = session.HoldServers(ctx, s.f); err != nil {
		return err
	}

	s.place, err = session.PlaceOf(s.f)
	s.leave = transfer.Unplaced(s.place)
	return err
}

// Adapt implements transfer.Side: rows and sessions in a file have no place.
func (s *File) Adapt(r transfer.Row) transfer.Row {
	for _, column := range []string{"frame", "body"} {
		if text, has := r.Values[column].(string); has {
			r.Values[column] = s.leave(text)
		}
	}

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
	db := s.database(s.path, true)
	if s.backup && !db.Exists() {
		return nil
	}
	err := db.Transact(ctx, sqlstore.Reading, func(ctx context.Context, q sqlstore.Querier) error {
		return transfer.BoardRows(ctx, q, f)
	})
	return errors.Join(err, db.Close())
}

// Replace implements transfer.Side.
func (s *File) Replace(
	ctx context.Context, fill func(put func(transfer.Row) error, rows func(f func(transfer.Row) error) error) error,
) error {
	path := s.path
	if s.backup { // it gets its name once it is complete
		if fi, err := os.Stat(path + "-wal"); err == nil && fi.Size() > 0 { // SQLite would apply it to the copy
			return fmt.Errorf("%s-wal is the log of another database: move it away, or choose another file", path)
		}
		path += ".part"
		for _, rest := range parts { // left by a killed copy
			if err := os.Remove(path + rest); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	db := s.database(path, false)
	err := db.Transact(ctx, sqlstore.Writing, func(ctx context.Context, q sqlstore.Querier) error {
		if err := transfer.ClearBoard(ctx, q); err != nil {
			return err
		}
		to := transfer.Board{Querier: q}
		return fill(func(r transfer.Row) error { return to.Put(ctx, r) }, func(f func(transfer.Row) error) error {
			return transfer.BoardRows(ctx, q, f)
		})
	})

	err = errors.Join(err, db.Close())
	if s.backup {
		if err == nil {
			err = complete(path)
		}
		if err == nil {
			err = os.Rename(path, s.path)
		}
		if err == nil {
			err = durable.Disk{}.SyncFolder(filepath.Dir(s.path))
		}
		for _, rest := range parts {
			_ = os.Remove(path + rest) // most were renamed or never made
		}
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", s.path, err)
	}

	return nil
}

// parts are the suffixes of a database's files, and of those with which its writers take turns.
var parts = []string{"", "-wal", "-shm", "-turn", "-next"}

// complete checks that a closed database is in one file: SQLite does not report if its log did not fit.
func complete(path string) error {
	fi, err := os.Stat(path + "-wal")
	if errors.Is(err, fs.ErrNotExist) || err == nil && fi.Size() == 0 {
		return nil
	}
	return cmp.Or(err, fmt.Errorf("%w: the log of the copy could not be written into it; make room and copy again",
		task.ErrFull))
}

func (s *File) database(path string, readOnly bool) *sqlite.DB {
	prepare := func() error { return session.MakeState(s.f) }
	if s.backup {
		prepare = func() error {
			_, err := os.Stat(filepath.Dir(s.path))
			return err
		}
	}
	return sqlite.New(sqlite.Options{Path: path, ReadOnly: readOnly, Make: prepare})
}

// Release implements transfer.Side.
func (s *File) Release() {
	if s.unlock != nil {
		s.unlock()
		s.unlock = nil
	}
}

var _ transfer.Side = (*File)(nil)
