package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	states "deepwork/session/workflow/machine"
)

// A kept session is one as the database has it.
type kept struct {
	id, root string
	goal     string // of its row
	body     []byte // what `deepwork sessions show --json` prints
	record   record
	err      error // why it cannot be read
}

// boardFile is the file of the project's database.
func (w *world) boardFile() string { return stateOf(w.root).Database() }

// inFile is the database of a project that has no store of another machine.
func (w *world) inFile() (driver, source string) {
	return "sqlite", "file:" + w.boardFile() + "?mode=ro&_pragma=busy_timeout(10000)"
}

// query reads the database while servers may use it; it calls each after each row was scanned into into.
func (w *world) query(ctx context.Context, query string, each func(), into ...any) error {
	driver, source := w.board()
	if _, err := os.Stat(w.boardFile()); driver == "sqlite" && errors.Is(err, fs.ErrNotExist) {
		return nil // nothing was stored
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		return err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		each()
	}
	return rows.Err()
}

// kept returns all sessions. No server may run.
func (w *world) kept(ctx context.Context) ([]kept, error) {
	if driver, _ := w.board(); driver == "sqlite" {
		if _, err := os.Stat(w.boardFile()); errors.Is(err, fs.ErrNotExist) {
			return nil, nil // nobody has begun one
		}
	}
	parts := map[string][]states.Part{}
	var id, kind, frame string
	var p states.Part
	err := w.query(ctx, "SELECT session_id, kind, key, position, body FROM session_parts ORDER BY session_id, kind, position", func() {
		p.Kind = states.PartKind(kind)
		parts[id] = append(parts[id], states.Part{Kind: p.Kind, Key: p.Key, Position: p.Position, Body: bytes.Clone(p.Body)})
	}, &id, &kind, &p.Key, &p.Position, &p.Body)
	if err != nil {
		return nil, err
	}
	var all []kept
	var k kept
	err = w.query(ctx, "SELECT id, root, goal, frame FROM workflow_sessions ORDER BY id", func() {
		k.body, k.record, k.err = nil, record{}, nil
		s, err := states.Assemble(k.id, []byte(frame), parts[k.id])
		if err == nil {
			k.body, err = s.Encode()
		}
		if err == nil {
			err = json.Unmarshal(k.body, &k.record)
		}
		k.err = err
		all = append(all, k)
	}, &k.id, &k.root, &k.goal, &frame)
	return all, err
}

// exported is the export of a session.
func exported(root, id string) string {
	return filepath.Join(root, ".deepwork", "tmp", "session_"+id+".json")
}

// agree reports whether the export of a session has what the database has.
func (k kept) agree() bool {
	file, err := regularFile(exported(k.root, k.id))
	return err == nil && bytes.Equal(file, append(bytes.Clone(k.body), '\n'))
}

// agrees checks the export of a session that nobody has edited, and that was called since it was last missing
// or behind.
func (w *world) agrees(k kept) {
	if !k.agree() {
		file, err := regularFile(exported(k.root, k.id))
		w.history.fault("an export that differs from its session", "session %s: %v\n%.2000s\nwant\n%.2000s", k.id, err, file, k.body)
	}
}

// whole checks the export of a session that others may be writing: it has some state of that session.
func (w *world) whole(k kept) {
	file, err := regularFile(exported(k.root, k.id))
	var r record
	if err == nil {
		err = json.Unmarshal(file, &r)
	}
	if errors.Is(err, fs.ErrNotExist) { // its root is at another machine
		return
	}
	if err == nil && (r.Session != k.id || r.Revision > k.record.Revision) {
		err = fmt.Errorf("it has revision %d of session %s, which has revision %d", r.Revision, r.Session, k.record.Revision)
	}
	if err != nil {
		w.history.fault("an export that is no state of its session", "session %s: %v: %.2000s", k.id, err, file)
	}
}
