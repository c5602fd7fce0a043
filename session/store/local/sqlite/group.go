package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"
)

// groupSize is the most members of a group. It bounds how long the first of them waits for the others.
const groupSize = 64

// serve waits for the turn of this process, and makes the changes of one group.
func (w *writer) serve() {
	since := time.Now()
	end, err := w.turn(&since)
	if err == nil {
		defer end()
	}
	for err == nil {
		group := w.take()
		if len(group) == 0 {
			return // all have given up
		}
		if err = w.begin(group); !busy(err) {
			w.finish(group, err)
			return
		}
		w.giveBack(group)
		err = w.db.pause(w.db.closing, &since, lookPace)
	}
	for group := w.take(); len(group) > 0; group = w.take() { // the database is being closed
		w.finish(group, err)
	}
}

// finish makes the changes of a group whose transaction has begun, unless it could not, and answers
// all members.
func (w *writer) finish(group []*member, err error) {
	if err == nil {
		group = w.each(group)
		err = w.commit(group)
	}
	for _, m := range group {
		if err != nil && !m.failed() {
			m.err = err
		}
		close(m.done)
	}
}

// exec runs a statement that is not a member's.
func (w *writer) exec(statement string) error {
	_, err := w.conn.ExecContext(context.Background(), statement)
	return err
}

// begin begins the transaction of a group.
func (w *writer) begin(group []*member) error {
	if err := w.db.inPlace(); err != nil {
		return err
	}
	if synced := slices.ContainsFunc(group, func(m *member) bool { return m.synced }); synced != w.sync {
		level := "NORMAL"
		if synced {
			level = "FULL"
		}
		if err := w.exec("PRAGMA synchronous = " + level); err != nil {
			return err
		}
		w.sync = synced
	}
	err := w.exec("BEGIN IMMEDIATE")
	if err == nil {
		w.compiled.phase = inside
	}
	return err
}

// each runs the members of a group, and returns those that have run. Each has a savepoint, so that one
// that fails undoes its own changes only. After some errors, such as that of a full disk, SQLite rolls
// the whole transaction back: the members that have run share the failure then, and the others wait
// again.
func (w *writer) each(group []*member) []*member {
	for i, m := range group {
		if len(group) == 1 {
			w.try(m)
		} else if m.err = w.exec("SAVEPOINT member"); m.err == nil {
			w.try(m)
			w.release(m)
		}
		if w.compiled.phase != lost {
			continue
		}
		if !m.failed() {
			m.err = errLost // it has overlooked the error
		}
		for _, earlier := range group[:i] {
			if !earlier.failed() {
				earlier.err = fmt.Errorf("nothing was changed, since another change in the same transaction failed: %w", cmp.Or(m.err, errLost))
			}
		}
		w.giveBack(group[i+1:])
		return group[:i+1]
	}
	return group
}

// try runs a member.
func (w *writer) try(m *member) {
	defer func() {
		if p := recover(); p != nil {
			m.panicked = fmt.Sprintf("%v\n%s", p, debug.Stack())
		}
	}()
	m.err = m.change(w.conn)
}

// release ends the savepoint of a member, with its changes or without. If that fails, the transaction
// is lost.
func (w *writer) release(m *member) {
	if w.compiled.phase == lost {
		return
	}
	var err error
	if m.failed() {
		err = w.exec("ROLLBACK TO member")
	}
	if err == nil {
		err = w.exec("RELEASE member")
	}
	if err != nil {
		m.err = cmp.Or(m.err, err)
		w.exec("ROLLBACK") // SQLite reports it to the connection, which is then in the phase lost
	}
}

// commit commits the transaction, or rolls it back if that fails or if all members have failed.
func (w *writer) commit(group []*member) (err error) {
	if w.compiled.phase == inside && slices.ContainsFunc(group, func(m *member) bool { return !m.failed() }) {
		if err = w.exec("COMMIT"); err == nil {
			w.compiled.phase = outside
		}
	}
	left := w.compiled.phase == inside
	w.compiled.phase = outside
	if left {
		w.exec("ROLLBACK") // if it fails, SQLite has rolled back already
	}
	return err
}

func (m *member) failed() bool { return m.err != nil || m.panicked != nil }
