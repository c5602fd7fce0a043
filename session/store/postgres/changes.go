package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"deepwork/actor/wait"
	"deepwork/session/store"
)

// One goroutine appends the changes of this process to the feed: at once while there are few, else
// those of 50 ms in one statement. Positions are given out under a lock, so that one that can be read
// has no earlier one that comes later. The changes that a process did not append before it died are
// replaced by a row of the kind lost, which resets all followers.
const (
	feedRate  = 20 // statements per second, and at once
	feedPoll  = 500 * time.Millisecond
	feedBatch = 1000   // rows that Since reads
	feedKept  = 10_000 // rows, and changes that wait for the database
	lostKind  = "lost"
)

// Under the lock of the feed of a project.
const (
	appendText = `WITH held AS MATERIALIZED (SELECT pg_advisory_xact_lock(hashtextextended('deepwork changes ' || $2, $1)))
		INSERT INTO @changes (scope, kind, id) SELECT $1, c.kind, c.id FROM held, unnest($3::text[], $4::text[]) WITH ORDINALITY c (kind, id, n) ORDER BY c.n`
	lostText = `WITH dead AS (UPDATE @members SET reported = true WHERE scope = $1 AND NOT reported AND expires < clock_timestamp() RETURNING id),
		held AS MATERIALIZED (SELECT id, pg_advisory_xact_lock(hashtextextended('deepwork changes ' || $2, $1)) FROM dead)
		INSERT INTO @changes (scope, kind, id) SELECT $1, 'lost', id FROM held`
	pruneText = `DELETE FROM @changes WHERE scope = $1 AND position < (SELECT max(position) FROM @changes WHERE scope = $1) AND
		(at < clock_timestamp() - interval '1 hour' OR position < (SELECT position FROM @changes WHERE scope = $1 ORDER BY position DESC OFFSET 10000 LIMIT 1))`
)

type feed struct {
	wake chan struct{} // capacity 1

	mu      sync.Mutex // guards the following fields
	pending []store.Change
	free    time.Time     // when the next statement may be sent
	done    chan struct{} // closed when those that are pending now were sent
	begun   bool

	pruned time.Time // for the goroutine
}

func (f *feed) init() { f.wake, f.done = make(chan struct{}, 1), make(chan struct{}) }

func (f *feed) knock() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Append implements store.Changes. If there are few changes, it waits until others can read this one,
// for at most a second.
func (s *Store) Append(c store.Change) {
	f := &s.feed
	f.mu.Lock()
	if !slices.Contains(f.pending[max(0, len(f.pending)-20):], c) {
		f.pending = append(f.pending, c)
	}
	if !f.begun && s.closing.Err() == nil {
		f.begun = true
		s.finished.Go(s.feedAll)
	}
	few, done := !time.Now().Before(f.free), f.done
	f.mu.Unlock()
	f.knock()
	if few {
		late := time.NewTimer(time.Second)
		defer late.Stop()
		select {
		case <-done:
		case <-late.C:
		case <-s.closing.Done():
		}
	}
}

// feedAll appends what is pending until the store is closed, and then the rest.
func (s *Store) feedAll() {
	f := &s.feed
	const each, burst = time.Second / feedRate, time.Second
	var next time.Time // if the statements of the last second had been sent at equal distances
	for ending := false; !ending; {
		select {
		case <-f.wake:
		case <-s.closing.Done():
			ending = true
		}
		f.mu.Lock()
		pause := time.Until(f.free)
		f.mu.Unlock()
		if !ending && pause > 0 {
			wait.For(s.closing, pause)
		}
		f.mu.Lock()
		batch, done := f.pending, f.done
		if next = next.Add(each); next.Before(time.Now()) {
			next = time.Now()
		}
		f.pending, f.done, f.free = nil, make(chan struct{}), next.Add(-burst)
		f.mu.Unlock()
		if err := s.feedThese(batch); err != nil && !ending {
			s.o.Logger.Warn("cannot tell others of changes yet", "changes", len(batch), "error", err)
			f.mu.Lock()
			if f.pending = append(batch, f.pending...); len(f.pending) > feedKept {
				f.pending = []store.Change{{Kind: lostKind, ID: s.id}}
			}
			f.free = time.Now().Add(time.Second)
			f.mu.Unlock()
			f.knock()
		}
		close(done)
		if len(batch) > 0 {
			s.hint()
		}
	}
}

func (s *Store) feedThese(batch []store.Change) error {
	if len(batch) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	scope := s.scope.Load()
	if scope == 0 {
		var err error
		if scope, err = s.connect(ctx); err != nil {
			return err
		}
	}
	kinds, ids := make([]string, len(batch)), make([]string, len(batch))
	for i, c := range batch {
		kinds[i], ids[i] = c.Kind, c.ID
	}
	_, err := s.exec(ctx, appendText, scope, s.schema, kinds, ids)
	if err == nil && time.Since(s.feed.pruned) > time.Minute {
		s.feed.pruned = time.Now()
		_, err = s.exec(ctx, pruneText, scope)
	}
	return s.explain(err)
}

// Since implements store.Changes.
func (s *Store) Since(ctx context.Context, position string) (store.News, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	news, err := s.since(ctx, position, feedBatch)
	if err != nil {
		return store.News{}, fmt.Errorf("reading the feed of changes: %w", err)
	}
	return news, nil
}

func (s *Store) since(ctx context.Context, position string, limit int) (news store.News, err error) {
	scope, err := s.connect(ctx)
	if err != nil {
		return news, err
	}
	var first, last int64
	err = s.again(ctx, func() error {
		_, err := s.first(ctx, `SELECT coalesce(min(position), 0), coalesce(max(position), 0) FROM @changes WHERE scope = $1`, []any{scope}, &first, &last)
		return err
	})
	if err != nil {
		return news, err
	}
	at, perr := strconv.ParseInt(position, 10, 64)
	if perr != nil || at < first || at > last {
		return store.News{Reset: true, Next: fmt.Sprint(last)}, nil
	}
	if news.Next = fmt.Sprint(at); at == last {
		return news, nil
	}
	type entry struct {
		position int64
		store.Change
	}
	entries, err := list(ctx, s, func(rows *sql.Rows, e *entry) error { return rows.Scan(&e.position, &e.Kind, &e.ID) },
		`SELECT position, kind, id FROM @changes WHERE scope = $1 AND position > $2 ORDER BY position LIMIT $3`, scope, at, limit)
	for _, e := range entries {
		if news.Next = fmt.Sprint(e.position); e.Kind == lostKind {
			news.Reset = true
		} else {
			news.Changes = append(news.Changes, e.Change)
		}
	}
	return news, err
}

// Wait implements store.Changes. It asks the database at each hint, and twice a second.
func (s *Store) Wait(ctx context.Context, position string) error {
	for {
		hint := s.hinted()
		news, err := s.since(ctx, position, 1)
		if err != nil || news.Next != position {
			return err
		}
		if err := wait.Until(ctx, feedPoll, hint); err != nil {
			return err
		}
		if _, err := s.exec(ctx, lostText, s.scope.Load(), s.schema); err != nil && !passing(err) {
			return s.explain(err)
		}
	}
}
