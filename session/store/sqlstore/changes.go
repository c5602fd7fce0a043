package sqlstore

import (
	"context"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/task"
	"deepwork/session/store"
)

// The feed of changes is a table. A transaction inserts the changes that it makes just before it
// commits, so a change is in the feed if and only if what it is about is in the database. What databases
// offer to be notified of changes only ends the wait for the next look.

const (
	changesKept    = time.Hour
	maxChanges     = 10_000
	pruneEvery     = time.Minute
	lookForChanges = 50 * time.Millisecond // if a look reads only Feed.Version
	changesAtOnce  = 50                    // rows of one statement
)

// A Feed has the statements for the table changes that depend on the database. Each knows on its own in
// which order changes were committed. A position is a text, and "0" is that before all changes.
type Feed struct {
	// State is a query with a position ?1 for the position after all changes, whether the feed still
	// has all changes after ?1, and whether there are any.
	State string
	// After is a query for the kind and id of the changes after the position ?1, in order. It runs in
	// the same transaction as State.
	After string
	// Prune removes the changes that are older than the time ?1, and those beyond the newest ?2.
	Prune string
	// Version returns a number that is another one after each change. If it is nil, State is run at
	// each look.
	Version func(context.Context) (int64, error)
}

// changes is a Store as store.Changes.
type changes struct{ *Store }

// Changes returns the feed of changes.
func (s *Store) Changes() store.Changes { return changes{s} }

// publish inserts the changes of a transaction, at its end, when it waits for nothing any more.
func (s *Store) publish(t Tx) error {
	if len(*t.changes) == 0 {
		return nil
	}
	if err := s.prune(t); err != nil {
		return err
	}
	for some := range slices.Chunk(*t.changes, changesAtOnce) {
		args := make([]any, 0, 3*len(some))
		for _, c := range some {
			args = append(args, c.Kind, c.ID, t.Now)
		}
		if _, err := t.Exec(`INSERT INTO changes (kind, id, at) VALUES (?, ?, ?)`+strings.Repeat(`, (?, ?, ?)`, len(some)-1), args...); err != nil {
			return err
		}
	}
	return nil
}

// prune removes old changes, unless this process has done so within the last minute.
func (s *Store) prune(t Tx) error {
	now := s.o.Now()
	last := s.pruned.Load()
	if !s.pruneDue() || !s.pruned.CompareAndSwap(last, &now) {
		return nil
	}
	_, err := t.Exec(s.o.Feed.Prune, task.FormatTime(now.Add(-changesKept)), maxChanges)
	return err
}

func (s *Store) pruneDue() bool {
	last := s.pruned.Load()
	return last == nil || s.o.Now().Sub(*last).Abs() >= pruneEvery
}

// Since implements store.Changes. It does not create a database.
func (c changes) Since(ctx context.Context, position string) (store.News, error) {
	if !c.db.Exists() {
		return store.News{Reset: position != "0", Next: "0"}, nil
	}
	return read(ctx, c.Store, "reading the feed of changes", func(t Tx) (news store.News, err error) {
		var whole, more bool
		if _, err := t.First(c.o.Feed.State, []any{position}, &news.Next, &whole, &more); err != nil {
			return news, err
		}
		switch {
		case !whole:
			news.Reset = true
		case more:
			news.Changes, err = List[store.Change](t, c.o.Feed.After, position)
		default:
			news.Next = position
		}
		return news, err
	})
}

// Wait implements store.Changes.
func (c changes) Wait(ctx context.Context, position string) error {
	every, version := lookForChanges, c.o.Feed.Version
	if version == nil {
		every = c.o.Poll
	}
	return c.watch(ctx, every, version, func() (bool, error) {
		news, err := c.Since(ctx, position)
		return news.Next != position, err
	})
}
