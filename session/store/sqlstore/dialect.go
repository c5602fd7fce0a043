// Package sqlstore implements the stores of package store in SQL. It is the only place with statements for what they
// keep; nothing in it, or above it, depends on which database that is.
//
// A database is a Dialect: one package, such as sqlite or postgres, and what opens it in package backend. Its
// author has to provide:
//
//   - A schema, as scripts in its folder migrations (Scripts), with the tables and columns that the schema of package
//     sqlite documents, and OtherVersion for those of a version that it does not know. A transaction sees the
//     rows of one
//     project under these names. Statements use the SQL that SQLite and PostgreSQL have in common (ON CONFLICT,
//     RETURNING, FILTER, window functions, recursive queries, IS DISTINCT FROM, string_agg) and five functions of
//     SQLite: max and instr of texts, json_valid, julianday, and unixepoch('subsec'), the clock of the database. What
//     the database lacks of it, its schema adds, or Transact's Querier rewrites. Parameters are ? or ?1. Texts are
//     compared byte by byte.
//   - Transact, with a Mode each: who writes the board is alone in the project, a swap may run beside it, and what was
//     committed is durable. It repeats a transaction that another one was in the way of.
//   - Errors: store.ErrUnavailable, or store.ErrBusy, if nothing was changed and the same call may succeed later;
//     task.ErrFull, ErrDamaged, ErrVersion and ErrClosed with what to do about them.
//   - The fate of a commit: a reply that is lost makes neither an error for what was committed nor a success for what
//     was not. What cannot be found out is store.ErrPending.
//   - Feed: the statements that read the feed of changes in the order of the commits, so that no follower passes over a
//     change that commits late.
//   - Wake-up: a version that changes with each commit (Feed.Version), or a channel that is closed when something may
//     have changed (Options.Hint). It may be late or lost: followers look every Options.Poll anyway.
//   - For store copy, a transfer.Side, and for machines that share the database, what backend.Shared lists: the places
//     where a project is used.
//
// The tests of this package judge it: they run on each of their backends.
package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
)

// A Mode is a kind of transaction.
type Mode int

// The modes of Transact.
const (
	Reading  Mode = iota // sees one state of the database
	Writing              // no other transaction may change the board meanwhile
	Swapping             // changes only what its own statements guard; may run beside others
	Unsynced             // like Writing, but a loss of power may undo it until the next one that is not
	Looking              // one reading statement, without a transaction, which gives each table an alias
)

// reads reports whether a transaction changes nothing.
func (m Mode) reads() bool { return m == Reading || m == Looking }

// A Dialect is a database of one kind, which runs the transactions of a Store.
type Dialect interface {
	// Transact waits for its turn until ctx ends, and runs f in a transaction, which it rolls back if f fails
	// or panics. A change that has begun is finished, so that its outcome is known: f gets a context of its
	// own, and must have closed its rows when it returns. f may run again if another process was in the way.
	// A transaction may be part of one that others share.
	Transact(ctx context.Context, mode Mode, f func(context.Context, Querier) error) error
	// Exists reports whether the database was created.
	Exists() bool
	// Damage returns what the database itself finds wrong with its storage or its references.
	Damage(t Tx) []session.Finding
}

// A Mover is a Dialect that makes a transition of a session with one statement of its own, because each of
// writeSession's costs a round trip. A pipelined batch of those would be one, too. But PgBouncer in transaction
// mode keeps no prepared statements, and then PostgreSQL parses and plans each at every step: measured side by
// side, a transition took 1.8 times the processor time, and a failed one would fail those that share its group.
type Mover interface {
	// MoveSession is WriteSession for a session that belongs to no attempt.
	MoveSession(ctx context.Context, w *store.SessionWrite, now time.Time) (written bool, err error)
}

// A Querier runs statements; parameters are ? or ?1.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Options configure a Store.
type Options struct {
	Where  string // the location of the database, for messages
	Logger *slog.Logger
	Now    func() time.Time
	Feed   Feed
	// Shared means that several machines use the database. Each has its own paths of repositories, so the
	// paths are those that this process gave to SyncProjects.
	Shared bool
	// SkipLocked ends a query that locks its rows, without those that another transaction has locked. It is ""
	// if transactions that write never run beside each other.
	SkipLocked string
	NUL        string        // what replaces a NUL character if the database cannot store one
	Poll       time.Duration // between two looks of followers, or for changes without Feed.Version; default: 200 ms
	// Hint returns a channel that is closed when it may be time for a look. nil means no hints.
	Hint func() <-chan struct{}
}

// A Feed has the statements for the table changes that depend on the database, which know in what order
// changes were committed. A position is a text; "0" precedes all changes.
type Feed struct {
	// State is a query with a position ?1. It returns the position after all changes, whether the feed still
	// has all changes after ?1, and whether there are any.
	State string
	// After is a query for the kind and id of the changes after the position ?1, in order. It runs in the
	// same transaction as State.
	After string
	// Prune removes the changes older than the time ?1, and those beyond the newest ?2.
	Prune string
	// Version returns a number that differs after each change. If it is nil, each look runs State.
	Version func(context.Context) (int64, error)
}

// Scripts returns the migrations embedded in a package, each a script, in the order of their names.
func Scripts(files fs.FS) (scripts []string) {
	names, _ := fs.Glob(files, "migrations/*.sql") // sorted; the pattern is valid
	for _, name := range names {
		script, err := fs.ReadFile(files, name)
		if err != nil {
			panic(err)
		}
		scripts = append(scripts, string(script))
	}
	return scripts
}

// firstVersion is the version of the schema that the first script makes. Nothing migrates earlier ones, which
// were never released.
const firstVersion = 3

// Latest returns the version to which the last script migrates a schema.
func Latest(scripts []string) int { return firstVersion - 1 + len(scripts) }

// NextScript returns the script that migrates a schema with an earlier version, and the version after that.
// Version 0 is an empty schema.
func NextScript(scripts []string, version int) (script string, next int) {
	next = max(version+1, firstVersion)
	return scripts[next-firstVersion], next
}

// CheckVersion returns OtherVersion for a version that the scripts cannot migrate.
func CheckVersion(scripts []string, version int, aside string) error {
	if version > Latest(scripts) || version > 0 && version < firstVersion {
		return OtherVersion(fmt.Sprint(version), Latest(scripts), aside)
	}
	return nil
}

// OtherVersion returns task.ErrVersion for a schema whose version this program, whose own version is latest,
// can neither use nor migrate. The error says what to do; aside says how to set the database aside.
func OtherVersion(version string, latest int, aside string) error {
	return fmt.Errorf("%w: it has version %s, and this deepwork uses version %d: use the deepwork that wrote it, or "+
		"set the database aside (%s) and import the sessions with `deepwork sessions import --all`",
		task.ErrVersion, version, latest, aside)
}
