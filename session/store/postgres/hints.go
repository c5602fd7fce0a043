package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/actor/wait"

	"github.com/jackc/pgx/v5"
)

// A hint is a notification that tells the project's other processes to look for changes now. A statement of
// its own sends it after the change, one hint per 50 ms. It is only a hint: it may be lost, and callers that
// wait for one also look from time to time. Through PgBouncer in transaction mode no hints arrive; then this
// process looks at the feed of changes, once for all that wait.
const (
	hintPause   = 50 * time.Millisecond  // between two hints, for senders and for those who look
	listenTime  = 5 * time.Second        // to connect and to hear its own hint, and between two connections
	listenAgain = time.Minute            // if no hints arrive
	pollPause   = 500 * time.Millisecond // between two looks at the feed while no hints can arrive
)

var errUnheard = errors.New("the database passes no notifications on, as behind PgBouncer in transaction mode")

type hints struct {
	unsent        wait.Signal
	sends, listen sync.Once
	arriving      atomic.Bool // hints arrive

	mu        sync.Mutex    // guards the following fields
	next      chan struct{} // closed soon after the next hint
	count     int           // how many channels were closed
	scheduled bool          // next is about to be closed
}

func (h *hints) init() { h.unsent, h.next = wait.NewSignal(), make(chan struct{}) }

// hint sends a hint soon.
func (s *Store) hint() {
	s.hints.sends.Do(func() { s.whileOpen(s.sendHints) })
	s.hints.unsent.Wake()
}

// whileOpen runs f on a goroutine that Close waits for.
func (s *Store) whileOpen(f func()) {
	if s.closing.Err() == nil {
		s.finished.Go(f)
	}
}

func (s *Store) sendHints() {
	for {
		select {
		case <-s.closing.Done():
			return
		case <-s.hints.unsent:
		}

		ctx, cancel := context.WithTimeout(s.closing, listenTime)
		_, _ = s.exec(ctx, `SELECT pg_notify($1, $2)`, s.channel(), fmt.Sprint(s.scope.Load()))
		cancel()
		wait.For(s.closing, hintPause)
	}
}

func (s *Store) channel() string { return "deepwork_" + s.schema }

// hinted returns a channel that is closed soon after the next hint. Call it before looking.
func (s *Store) hinted() <-chan struct{} {
	h := &s.hints
	h.listen.Do(func() { s.whileOpen(s.listen) })
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.next
}

// listen hears hints until the store is closed.
func (s *Store) listen() {
	s.whileOpen(s.poll)
	for s.closing.Err() == nil {
		again := listenTime
		if err := s.hear(); errors.Is(err, errUnheard) {
			s.o.Logger.Debug("changes of other processes are looked for twice a second", "error", err)
			again = listenAgain
		}
		wait.For(s.closing, again)
	}
}

// poll looks for changes while no hints arrive, until the store is closed.
func (s *Store) poll() {
	position := ""
	for wait.For(s.closing, pollPause) == nil {
		if s.hints.arriving.Load() {
			position = "" // changes before hints were missing are unknown
			continue
		}
		if news, err := s.stores.Changes().Since(s.closing, position); err == nil && news.Next != position {
			position = news.Next
			s.hints.arrived()
		}
	}
}

// hear hears hints over a connection of its own until that ends.
func (s *Store) hear() error {
	ctx, cancel := context.WithTimeout(s.closing, listenTime)
	defer cancel()
	scope, err := s.connect(ctx)
	if err != nil {
		return err
	}

	config := s.config.Copy()
	_ = noCancel(ctx, config)
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.Close(ctx)
	}()

	var pid uint32
	if err := c.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		return err
	}
	if pid != c.PgConn().PID() { // a pooler's: it may give the listening connection to others
		return errUnheard
	}

	if _, err := c.Exec(ctx, `LISTEN `+pgx.Identifier{s.channel()}.Sanitize()); err != nil {
		return err
	}

	s.hint()
	defer s.hints.arriving.Store(false)
	for within := ctx; ; {
		said, err := c.WaitForNotification(within)
		if err != nil {
			if ctx.Err() != nil && within == ctx {
				err = errUnheard
			}
			return err
		}
		if said.Payload != fmt.Sprint(scope) {
			continue
		}
		within = s.closing

		s.hints.mu.Lock()
		if !s.hints.scheduled {
			s.hints.scheduled = true
			time.AfterFunc(hintPause, s.hints.arrived)
		}
		s.hints.mu.Unlock()
		s.hints.arriving.Store(true)
	}
}

func (h *hints) arrived() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.next)
	h.next, h.scheduled = make(chan struct{}), false
	h.count++
}
