package local

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"deepwork/actor/durable"
	"deepwork/actor/presence"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/local/sqlite"
	"deepwork/session/store/sqlstore"
	"deepwork/session/store/transfer"
)

// Files are the files of a project as a side of a copy.
//
// What is copied here goes to a database aside, a board with a table of what will be files. Renaming
// that to state.Folder.Copied is the one step that decides: before it nothing has changed, and after
// it FinishCopy puts everything in place, again and again until it has succeeded once.
type Files struct {
	f      *state.Folder
	o      store.RecordOptions
	place  task.Place
	unlock func()
	aside  *sql.DB // nil unless something is prepared
	tx     *sql.Tx // of aside
	board  transfer.Board
}

// NewFiles returns the files of a project. The caller finishes an earlier copy before.
func NewFiles(f *state.Folder, o store.RecordOptions) *Files { return &Files{f: f, o: o} }

// Where implements transfer.Side.
func (s *Files) Where() string { return fmt.Sprintf("the files in %s and %s", s.f.Tmp(), s.f.Dir) }

// Hold implements transfer.Side.
func (s *Files) Hold(ctx context.Context) (err error) {
	if s.unlock, err = session.HoldServers(ctx, s.f); err == nil {
		s.place, err = session.PlaceOf(s.f)
	}
	if db := s.database(false); err == nil && db.Exists() { // an older version is migrated
		err = errors.Join(db.Open(ctx), db.Close())
	}
	return err
}

// Adapt implements transfer.Side: what lies here has no place.
func (s *Files) Adapt(r transfer.Row) transfer.Row {
	if r.Values["machine_id"] == s.place.MachineID && r.Values["root"] == s.place.Root {
		r.Values["machine_id"], r.Values["machine_name"], r.Values["root"] = "", "", ""
	}
	return r
}

// Rows implements transfer.Side.
func (s *Files) Rows(ctx context.Context, f func(transfer.Row) error) error {
	if s.tx != nil {
		return asideRows(ctx, s.tx, f)
	}
	if db := s.database(true); db.Exists() {
		err := db.Transact(ctx, sqlstore.Reading, func(ctx context.Context, q sqlstore.Querier) error { return transfer.BoardRows(ctx, q, f) })
		if err = errors.Join(err, db.Close()); err != nil {
			return err
		}
	}
	records, err := s.records(true)
	if err != nil {
		return err
	}
	defer records.Close(ctx) // read-only
	return transfer.Records(s.o, func(f func(string, []byte) error) error {
		var all []store.Info
		for info, err := range records.List(ctx) {
			if err != nil {
				return err
			}
			all = append(all, info)
		}
		slices.SortFunc(all, func(a, b store.Info) int { return a.ModTime.Compare(b.ModTime) }) // as they were written
		for _, info := range all {
			body, err := records.Peek(ctx, info.ID)
			if err == nil {
				err = f(info.ID, body)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}, func(hash string) ([]byte, error) { return records.Definition(ctx, hash) }, f)
}

func (s *Files) database(readOnly bool) *sqlite.DB {
	return sqlite.New(sqlite.Options{Path: s.f.Database(), ReadOnly: readOnly, Make: func() error { return session.MakeState(s.f) }})
}

// records opens the sessions for this process, which no server's lock concerns.
func (s *Files) records(readOnly bool) (*Store, error) {
	return Open(s.f, Options{ReadOnly: readOnly, Member: presence.New(presence.Options{Dir: s.f.Servers()})})
}

const asideTable = `CREATE TABLE copied_files ("table" TEXT NOT NULL, name TEXT NOT NULL, number INTEGER NOT NULL, data BLOB NOT NULL)`

// Put implements transfer.Side.
func (s *Files) Put(ctx context.Context, r transfer.Row) (err error) {
	if s.tx == nil {
		if err := s.prepare(ctx); err != nil {
			return fmt.Errorf("preparing the copy in %s: %w", s.f.Dir, err)
		}
	}
	switch name, data, number := "", "", int64(0); r.Table {
	case transfer.Sessions:
		name, data = r.Values["id"].(string), r.Values["body"].(string)
		number = s.o.Head([]byte(data)).Number
		if err = checkID(name); err != nil {
			return err
		}
		_, err = s.tx.ExecContext(ctx, `INSERT INTO copied_files VALUES (?, ?, ?, ?)`, r.Table, name, number, []byte(data))
	case transfer.Definitions:
		_, err = s.tx.ExecContext(ctx, `INSERT INTO copied_files VALUES (?, ?, 0, ?)`, r.Table, r.Values["hash"], []byte(r.Values["data"].(string)))
	default:
		err = s.board.Put(ctx, r)
	}
	return err
}

func (s *Files) copying() string { return filepath.Join(s.f.Dir, "copying.db") }

// prepare begins the database aside.
func (s *Files) prepare(ctx context.Context) error {
	if err := errors.Join(removeDatabase(s.copying()), session.MakeState(s.f)); err != nil {
		return err
	}
	db, err := sqlite.Open(ctx, sqlite.Options{Path: s.copying()}) // with the tables of a board
	if err == nil {
		err = db.Close()
	}
	if err == nil {
		s.aside, err = openAside(ctx, s.copying())
	}
	if err == nil {
		s.tx, err = s.aside.BeginTx(ctx, nil)
	}
	if err == nil {
		s.board = transfer.Board{Querier: s.tx}
		_, err = s.tx.ExecContext(ctx, asideTable)
	}
	return err
}

// openAside opens a database that consists of one file: without a write-ahead log it can be renamed.
func openAside(ctx context.Context, path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", sqlite.Source(path, "rw")+"&_pragma=synchronous(3)&_pragma=foreign_keys(1)")
	if err == nil {
		db.SetMaxOpenConns(1)
		_, err = db.ExecContext(ctx, "PRAGMA journal_mode = DELETE")
	}
	return db, err
}

func asideRows(ctx context.Context, q sqlstore.Querier, f func(transfer.Row) error) error {
	if err := transfer.BoardRows(ctx, q, f); err != nil {
		return err
	}
	return asideFiles(ctx, q, func(table, name string, _ int64, data []byte) error {
		if table == transfer.Sessions {
			return f(transfer.Row{Table: table, Values: map[string]any{"id": name, "body": string(data)}})
		}
		return f(transfer.Row{Table: table, Values: map[string]any{"hash": name, "data": string(data)}})
	})
}

func asideFiles(ctx context.Context, q sqlstore.Querier, f func(table, name string, number int64, data []byte) error) error {
	rows, err := q.QueryContext(ctx, `SELECT "table", name, number, data FROM copied_files`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var table, name string
		var number int64
		var data []byte
		if err := rows.Scan(&table, &name, &number, &data); err != nil {
			return err
		}
		if err := f(table, name, number, data); err != nil {
			return err
		}
	}
	return rows.Err()
}

// step is called with the name of each step of a commit; tests end the process there.
var step = func(string) {}

// Commit implements transfer.Side.
func (s *Files) Commit(ctx context.Context, verify func() error) error {
	if s.tx == nil { // nothing was put
		return verify()
	}
	err := verify()
	if err == nil {
		err = s.tx.Commit()
	}
	step("prepared")
	s.tx = nil
	if err = errors.Join(err, s.aside.Close()); err != nil {
		return err
	}
	if err := (durable.Disk{}).Move(s.copying(), s.f.Copied()); err != nil {
		return err
	}
	if err := (durable.Disk{}).SyncFolder(s.f.Dir); err != nil {
		return fmt.Errorf("the copy may be complete, or there may be nothing after a loss of power: %w", err)
	}
	step("decided")
	if err := s.finish(ctx); err != nil {
		return fmt.Errorf("everything was copied, but is not in place yet; correct the cause, and the next command on the project completes it: %w", err)
	}
	return verify()
}

// Release implements transfer.Side.
func (s *Files) Release() {
	if s.tx != nil {
		_ = errors.Join(s.tx.Rollback(), s.aside.Close(), removeDatabase(s.copying()))
		s.tx = nil
	}
	if s.unlock != nil {
		s.unlock()
		s.unlock = nil
	}
}

// FinishCopy puts what a copy has left aside in place, if its process was killed before it did so. It
// costs one stat if there is nothing. With readOnly it returns an error instead.
func FinishCopy(ctx context.Context, f *state.Folder, readOnly bool) error {
	if _, err := os.Lstat(f.Copied()); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err == nil && readOnly {
		err = errors.New("run deepwork store status, or start a server, which completes it")
		return fmt.Errorf("a copy into this project is not in place yet (%s): %w", f.Copied(), err)
	}
	s := NewFiles(f, store.RecordOptions{})
	defer s.Release()
	err := s.Hold(ctx)
	if err == nil {
		err = s.finish(ctx)
	}
	if err != nil {
		return fmt.Errorf("completing the copy into this project (%s): %w", f.Copied(), err)
	}
	return nil
}

// finish puts what is aside in place. It may have been interrupted before.
func (s *Files) finish(ctx context.Context) error {
	if _, err := os.Lstat(s.f.Copied()); errors.Is(err, fs.ErrNotExist) {
		return nil // another process has done so
	}
	aside, err := openAside(ctx, s.f.Copied())
	if err != nil {
		return err
	}
	err = errors.Join(s.files(ctx, aside), s.rows(ctx, aside), aside.Close())
	for _, name := range []string{indexName, activeName} { // made again from the records
		err = errors.Join(err, os.RemoveAll(filepath.Join(s.f.Servers(), name)))
	}
	step("in place")
	if err == nil {
		err = removeDatabase(s.f.Copied())
	}
	if err == nil { // it must not return after a loss of power, when there is newer work
		err = durable.Disk{}.SyncFolder(s.f.Dir)
	}
	return err
}

func (s *Files) files(ctx context.Context, aside *sql.DB) error {
	records, err := s.records(false)
	if err != nil {
		return err
	}
	defer records.member.Leave()
	defer records.Close(ctx)
	return asideFiles(ctx, aside, func(table, name string, number int64, data []byte) error {
		if table == transfer.Definitions {
			return records.PutDefinition(ctx, name, data)
		}
		if err := records.NoteNewest(ctx, name, number); err != nil {
			return err
		}
		if _, err := records.Peek(ctx, name); !errors.Is(err, store.ErrNotFound) {
			return err // it was put before an interruption
		}
		defer step("session")
		return records.Create(ctx, name, data)
	})
}

func (s *Files) rows(ctx context.Context, aside *sql.DB) error {
	db := s.database(false)
	err := db.Transact(ctx, sqlstore.Writing, func(ctx context.Context, q sqlstore.Querier) error {
		if err := transfer.ClearBoard(ctx, q); err != nil {
			return err
		}
		to := transfer.Board{Querier: q}
		return transfer.BoardRows(ctx, aside, func(r transfer.Row) error { return to.Put(ctx, r) })
	})
	return errors.Join(err, db.Close())
}

// removeDatabase removes a database with what SQLite may have left of it.
func removeDatabase(path string) error {
	for _, suffix := range []string{"-journal", "-wal", "-shm", ""} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

var _ transfer.Side = (*Files)(nil)
