package sqlstore

import (
	"context"
	"slices"
	"strings"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session/store"
)

// The feed of changes is a table. A transaction inserts its changes just before it commits, so a change is in
// the feed if and only if the changed data is in the database. Notifications that databases offer only end
// the wait for the next look.

const (
	changesKept    = time.Hour
	maxChanges     = 10_000
	pruneEvery     = time.Minute
	lookForChanges = 50 * time.Millisecond // if a look only reads Feed.Version
	changesAtOnce  = 50                    // rows per statement
)

// changes is a Store in its role as store.Changes.
type changes struct{ *Store }

// publish inserts the changes of a transaction at its end, when it no longer waits for anything.
func (s *Store) publish(t Tx) {
	if len(*t.changes) == 0 {
		return
	}

	s.prune(t)
	for some := range slices.Chunk(*t.changes, changesAtOnce) {
		args := make([]any, 0, 3*len(some))
		for _, c := range some {
			args = append(args, c.Kind, c.ID, t.Now)
		}
		t.Exec(`INSERT INTO changes (kind, id, at) VALUES (?, ?, ?)`+
			strings.Repeat(`, (?, ?, ?)`, len(some)-1), args...)
	}
}

// prune removes old changes, unless this process has done so within the last minute.
func (s *Store) prune(t Tx) {
	now := s.o.Now()
	last := s.pruned.Load()
	if s.pruneDue() && s.pruned.CompareAndSwap(last, &now) {
		t.Exec(s.o.Feed.Prune, task.FormatTime(now.Add(-changesKept)), maxChanges)
	}
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
	return read(ctx, c.Store, "reading the feed of changes", func(t Tx) (news store.News) {
		var whole, more bool
		t.First(c.o.Feed.State, []any{position}, &news.Next, &whole, &more)
		switch {
		case !whole:
			news.Reset = true
		case more:
			news.Changes = List[store.Change](t, c.o.Feed.After, position)
		default:
			news.Next = position
		}
		return news
	})
}

// Wait implements store.Changes. It reads the version at each hint and from time to time, and looks whenever that has
// changed or is unknown. Its error may be the cause of the end of ctx.
func (c changes) Wait(ctx context.Context, position string) error {
	every, version := lookForChanges, c.o.Feed.Version
	if version == nil {
		every = c.o.Poll
	}
	var seen int64 = -1
	for {
		var hint <-chan struct{}
		if c.o.Hint != nil {
			hint = c.o.Hint()
		}

		now := seen + 1
		if version != nil {
			var err error
			if now, err = version(ctx); err != nil {
				return err
			}
		}
		if now != seen {
			if news, err := c.Since(ctx, position); err != nil || news.Next != position {
				return err
			}
			seen = now
		}

		if err := wait.Until(ctx, every, hint); err != nil {
			return err
		}
	}
}
