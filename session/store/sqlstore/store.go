package sqlstore

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
)

// A Store is a Dialect's database as the stores of package store.
type Store struct {
	db     Dialect
	o      Options
	paths  atomic.Pointer[map[string]string] // of the repositories of the config, by their ids, once SyncProjects was called
	lapsed atomic.Int64                      // executions that ended since the last cleanup; see forgetEvery
	pruned atomic.Pointer[time.Time]         // when this process pruned the feed of changes; nil before
}

// New returns the stores of a database. The Logger of o defaults to none, Now to session.Clock.
func New(db Dialect, o Options) *Store {
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

// Changes returns the feed of changes.
func (s *Store) Changes() store.Changes { return changes{s} }

// stamp returns the current time as the database stores it.
func (s *Store) stamp() string { return task.FormatTime(s.o.Now()) }

// A viewer is a Store as somebody sees it; nil sees all of it.
type viewer interface {
	view() (*Store, *session.Caller)
}

func (s *Store) view() (*Store, *session.Caller) { return s, nil }

// read runs f in a transaction on one state of the database.
func read[T any](ctx context.Context, v viewer, doing string, f func(t Tx) T) (T, error) {
	return transact(ctx, v, doing, Reading, f)
}

// look runs f, which reads by one statement.
func look[T any](ctx context.Context, v viewer, doing string, f func(t Tx) T) (T, error) {
	return transact(ctx, v, doing, Looking, f)
}

// write runs f in the one transaction that may change the board now.
func write[T any](ctx context.Context, v viewer, doing string, f func(t Tx) T) (T, error) {
	return transact(ctx, v, doing, Writing, f)
}

// change is write for a function without a result.
func change(ctx context.Context, v viewer, doing string, f func(t Tx)) error {
	_, err := write(ctx, v, doing, func(t Tx) (none struct{}) {
		f(t)
		return none
	})
	return err
}

// Run runs f in a transaction. If f fails, nothing is changed.
func (s *Store) Run(ctx context.Context, doing string, mode Mode, f func(t Tx)) error {
	_, err := transact(ctx, s, doing, mode, func(t Tx) (none struct{}) {
		f(t)
		return none
	})
	return err
}

// statement runs one changing statement, and returns the number of changed rows.
func statement(ctx context.Context, s *Store, doing string, mode Mode, query string, args ...any) (int64, error) {
	return transact(ctx, s, doing, mode, func(t Tx) int64 { return t.Exec(query, args...) })
}

// transact is Transact of the database with a result; the transaction inserts its changes into the feed. It
// returns the error with which f fails.
func transact[T any](ctx context.Context, v viewer, doing string, mode Mode, f func(t Tx) T) (result T, err error) {
	s, who := v.view()
	err = s.db.Transact(ctx, mode, func(ctx context.Context, q Querier) (err error) {
		defer rescue(&err)
		t := Tx{Querier: q, Now: s.stamp(), ctx: ctx, changes: new([]store.Change), where: s.o.Where, nul: s.o.NUL, who: who}
		result = f(t)
		s.publish(t)
		return nil
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
