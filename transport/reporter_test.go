package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/catalog/task"
	"deepwork/session/attempt"
)

// A listener is what a boardReporter tells; refuse says what it answers.
type listener struct {
	mu     sync.Mutex
	heard  []string
	refuse func(attempt.News) error
}

func (l *listener) tell(_ context.Context, n attempt.News) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != nil {
		if err := l.refuse(n); err != nil {
			return err
		}
	}
	l.heard = append(l.heard, n.SessionID+"/"+n.Step)
	return nil
}

func (l *listener) told() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.heard)
}

func (l *listener) refuses(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = func(attempt.News) error { return err }
}

func news(session, step string) attempt.News { return attempt.News{SessionID: session, Step: step} }

func closed(t *testing.T, n *boardReporter) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return n.close(ctx)
}

func TestNewsIsToldBeforeTheReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listener{}
		n := newBoardReporter(l.tell, nil, slog.New(slog.DiscardHandler))
		n.put(news("a", "1"))
		n.settle(t.Context())
		n.put(news("b", "1"))
		n.put(news("a", "2"))
		n.settle(t.Context())
		if got := l.told(); !slices.Equal(got, []string{"a/1", "b/1", "a/2"}) {
			t.Errorf("told %v", got)
		}
		if err := closed(t, n); err != nil {
			t.Error(err)
		}
	})
}

// While the board refuses, transitions go on, and of each session only what is
// newest is kept; the board gets that as soon as it can.
func TestNewsOfOneSessionIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listener{}
		l.refuses(errors.New("locked"))
		n := newBoardReporter(l.tell, nil, slog.New(slog.DiscardHandler))
		n.put(news("a", "0"))
		n.settle(t.Context()) // it does not wait for a board that refuses
		began := time.Now()
		for i := range 1000 {
			n.put(news("a", fmt.Sprint(i)))
			n.put(news("b", fmt.Sprint(i)))
			n.settle(t.Context())
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("transitions waited %v for a board that refuses", took)
		}
		l.refuses(nil)
		time.Sleep(2 * 5 * time.Second)
		if got := l.told(); !slices.Equal(got, []string{"a/999", "b/999"}) {
			t.Errorf("told %v", got)
		}
		if err := closed(t, n); err != nil {
			t.Error(err)
		}
	})
}

func TestNewsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listener{}
		l.refuses(errors.New("locked"))
		n := newBoardReporter(l.tell, nil, slog.New(slog.DiscardHandler))
		for i := range maxNews + 10 {
			n.put(news(fmt.Sprint(i), "s"))
		}
		l.refuses(nil)
		if err := closed(t, n); err != nil {
			t.Error(err)
		}
		got := l.told()
		if len(got) != maxNews || got[0] != "10/s" || got[len(got)-1] != fmt.Sprintf("%d/s", maxNews+9) {
			t.Errorf("told %d, from %s to %s", len(got), got[0], got[len(got)-1])
		}
	})
}

// A reply waits for a slow board, but not for long.
func TestNewsDoesNotHoldRepliesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		n := newBoardReporter(func(ctx context.Context, _ attempt.News) error {
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, nil, slog.New(slog.DiscardHandler))
		n.put(news("a", "1"))
		began := time.Now()
		n.settle(t.Context())
		if took := time.Since(began); took != settleFor {
			t.Errorf("it waited %v, and is to wait %v", took, settleFor)
		}
		close(release)
		if err := closed(t, n); err != nil {
			t.Error(err)
		}
	})
}

// What is left when the server ends is told once more, and then said to be untold.
func TestNewsIsFlushedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listener{}
		l.refuses(errors.New("locked"))
		n := newBoardReporter(l.tell, nil, slog.New(slog.DiscardHandler))
		n.put(news("a", "1"))
		synctest.Wait()
		if err := closed(t, n); err == nil || !strings.Contains(err.Error(), "1 workflow") {
			t.Errorf("untold, but: %v", err)
		}

		hung := newBoardReporter(func(ctx context.Context, _ attempt.News) error { <-ctx.Done(); return ctx.Err() }, nil, slog.New(slog.DiscardHandler))
		hung.put(news("a", "1"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := hung.close(ctx); err == nil || time.Since(began) > time.Second {
			t.Errorf("a board that hangs: %v after %v", err, time.Since(began))
		}
	})
}

// An attempt that was deleted is told nothing more.
func TestNewsOfADeletedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listener{}
		l.refuses(fmt.Errorf("reading the attempt: %w", task.ErrNotFound))
		n := newBoardReporter(l.tell, nil, slog.New(slog.DiscardHandler))
		n.put(news("a", "1"))
		synctest.Wait()
		if err := closed(t, n); err != nil {
			t.Error(err)
		}
	})
}

// What a server before this one may not have told comes first, and never after
// what is newer.
func TestNewsOfBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listener{}
		read := make(chan struct{})
		n := newBoardReporter(l.tell, func(context.Context) ([]attempt.News, error) {
			<-read
			return []attempt.News{news("old", "1"), news("a", "1")}, nil
		}, slog.New(slog.DiscardHandler))
		n.put(news("a", "2"))
		close(read)
		n.settle(t.Context())
		if err := closed(t, n); err != nil {
			t.Error(err)
		}
		if got := l.told(); !slices.Equal(got, []string{"old/1", "a/2"}) {
			t.Errorf("told %v", got)
		}
	})
}
