// Package sqlstore implements store.Board, store.Executions and store.Changes in SQL, for the
// databases of packages sqlite and postgres. Both understand its statements: where PostgreSQL lacks
// a function or a column of SQLite, its schema adds it.
package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync/atomic"
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
	Writing              // the only one that may change the board now
	Swapping             // changes what its own statements guard, and may run beside others
	Single               // as Writing, for one statement, which may be a transaction on its own; it reports no change
	Unsynced             // as Writing, and may be lost with the power until the next one that is not
	Looking              // reads by one statement without a transaction; it names tables and functions with an @, and tables with an alias
)

// reads reports whether a transaction changes nothing.
func (m Mode) reads() bool { return m == Reading || m == Looking }

// A Database runs the transactions of a Store.
type Database interface {
	// Transact waits for its turn until ctx ends, and runs f in a transaction, which it rolls back
	// if f fails or panics. A change that has begun is finished, so that its outcome is known: f
	// has its own context, and has closed its rows when it returns. f may run again if another process
	// was in the way. A transaction may be part of one that others share.
	Transact(ctx context.Context, mode Mode, f func(context.Context, Querier) error) error
	// Exists reports whether the database was created.
	Exists() bool
	// Damage returns what the database itself finds wrong with its storage or its references.
	Damage(t Tx) ([]session.Finding, error)
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
	// Shared says that several machines use the database. Paths of repositories are then those that
	// this process gave to SyncProjects, since each machine has its own.
	Shared bool
	NUL    string        // what the database has for a NUL character, if it cannot store one
	Poll   time.Duration // between two looks of followers, or for changes without Feed.Version; default: 200 ms
	// Hint returns a channel that is closed when it may be time for a look; nil means none.
	Hint  func() <-chan struct{}
	Claim string // ends a query for a row that nobody else is to claim
}

// A Store is a Database as the stores of package store.
type Store struct {
	db     Database
	o      Options
	paths  atomic.Pointer[map[string]string] // of the repositories of the config, by their ids, once SyncProjects was called
	lapsed atomic.Int64                      // executions that ended since the last cleanup; see forgetEvery
	pruned atomic.Pointer[time.Time]         // when this process pruned the feed of changes; nil before
}

// New returns the stores of a database. The Logger of o defaults to none, Now to session.Clock.
func New(db Database, o Options) *Store {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = session.Clock
	}
	if o.Poll == 0 {
		o.Poll = 200 * time.Millisecond
	}
	return &Store{db: db, o: o}
}

// Board returns the task board.
func (s *Store) Board() store.Board { return board{Store: s} }

// Executions returns the executions of workflows at other systems.
func (s *Store) Executions() store.Executions { return executions{s} }

// Sessions returns the sessions of the project.
func (s *Store) Sessions() store.Sessions { return workflows{s} }

// Tx returns the transaction that f of Transact has as q.
func (s *Store) Tx(ctx context.Context, q Querier) Tx {
	return Tx{Querier: q, Now: s.stamp(), ctx: ctx, changes: new([]store.Change), where: s.o.Where, nul: s.o.NUL}
}

// stamp returns the current time as the database stores it.
func (s *Store) stamp() string { return task.FormatTime(s.o.Now()) }

// A viewer is a Store as somebody sees it; nil sees all of it.
type viewer interface {
	view() (*Store, *session.Caller)
}

func (s *Store) view() (*Store, *session.Caller) { return s, nil }

// read runs f in a transaction on one state of the database.
func read[T any](ctx context.Context, v viewer, doing string, f func(t Tx) (T, error)) (T, error) {
	return transact(ctx, v, doing, Reading, f)
}

// look runs f, which reads by one statement.
func look[T any](ctx context.Context, v viewer, doing string, f func(t Tx) (T, error)) (T, error) {
	return transact(ctx, v, doing, Looking, f)
}

// write runs f in the one transaction that may change the database now.
func write[T any](ctx context.Context, v viewer, doing string, f func(t Tx) (T, error)) (T, error) {
	return transact(ctx, v, doing, Writing, f)
}

// change is write for a function without a result.
func change(ctx context.Context, v viewer, doing string, f func(t Tx) error) error {
	_, err := write(ctx, v, doing, func(t Tx) (struct{}, error) { return struct{}{}, f(t) })
	return err
}

// statement runs one changing statement, and returns the number of changed rows.
func statement(ctx context.Context, s *Store, doing string, mode Mode, query string, args ...any) (int64, error) {
	return transact(ctx, s, doing, mode, func(t Tx) (int64, error) { return t.Exec(query, args...) })
}

// transact is Transact of the database with a result; the transaction inserts its changes into the feed.
func transact[T any](ctx context.Context, v viewer, doing string, mode Mode, f func(t Tx) (T, error)) (result T, err error) {
	s, who := v.view()
	var changes []store.Change
	err = s.db.Transact(ctx, mode, func(ctx context.Context, q Querier) (err error) {
		changes = nil
		t := s.Tx(ctx, q)
		t.changes, t.who = &changes, who
		if !mode.reads() {
			t.claim = s.o.Claim
		}
		if result, err = f(t); err != nil {
			return err
		}
		return s.publish(t)
	})
	if err != nil {
		var none T
		if mode.reads() && ctx.Err() != nil {
			err = ctx.Err()
		}
		return none, wrap(doing, err)
	}
	return result, nil
}

func wrap(doing string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}
