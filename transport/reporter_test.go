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

// A bench is a workspace and the board beside it: where the workflows are, what the board
// was sent, and what it answers.
type bench struct {
	mu     sync.Mutex
	now    []attempt.News
	heard  []string
	refuse error
}

func (b *bench) look(context.Context) ([]attempt.News, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.now), nil
}

func (b *bench) send(_ context.Context, n attempt.News) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse == nil {
		b.heard = append(b.heard, n.SessionID+"/"+n.Step)
	}
	return b.refuse
}

func (b *bench) sent() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.heard)
}

func (b *bench) refuses(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = err
}

// move records that a session is at a step, and has the reporter know.
func (b *bench) move(r *boardReporter, session, step string) {
	b.mu.Lock()
	b.now = slices.DeleteFunc(b.now, func(n attempt.News) bool { return n.SessionID == session })
	b.now = append(b.now, attempt.News{SessionID: session, Step: step})
	b.mu.Unlock()
	if r != nil {
		r.moved()
	}
}

func (b *bench) reporter() *boardReporter {
	return newBoardReporter(b.look, b.send, slog.New(slog.DiscardHandler))
}

func closed(t *testing.T, r *boardReporter) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return r.close(ctx)
}

func TestNewsIsSentBeforeTheReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bench
		b.move(nil, "old", "1") // an earlier server may not have sent it
		r := b.reporter()
		synctest.Wait()
		b.move(r, "a", "1")
		r.settle(t.Context())
		b.move(r, "b", "1")
		r.settle(t.Context())
		b.move(r, "a", "2")
		r.settle(t.Context())
		if got := b.sent(); !slices.Equal(got, []string{"old/1", "a/1", "b/1", "a/2"}) {
			t.Errorf("sent %v", got)
		}
		noError(t, closed(t, r))
	})
}

// While the board refuses, transitions go on; it gets where each session is then as soon
// as it can.
func TestNewsOfOneSessionIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bench
		b.refuses(errors.New("locked"))
		r := b.reporter()
		synctest.Wait()
		b.move(r, "a", "0")
		r.settle(t.Context()) // it does not wait for a board that refuses
		began := time.Now()
		for i := range 1000 {
			b.move(r, "a", fmt.Sprint(i))
			b.move(r, "b", fmt.Sprint(i))
			r.settle(t.Context())
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("transitions waited %v for a board that refuses", took)
		}
		b.refuses(nil)
		time.Sleep(2 * 5 * time.Second)
		if got := b.sent(); !slices.Equal(got, []string{"a/999", "b/999"}) {
			t.Errorf("sent %v", got)
		}
		noError(t, closed(t, r))
	})
}

// A reply waits for a slow board, but not for long.
func TestNewsDoesNotHoldRepliesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bench
		release := make(chan struct{})
		r := newBoardReporter(b.look, func(ctx context.Context, _ attempt.News) error {
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, slog.New(slog.DiscardHandler))
		b.move(r, "a", "1")
		began := time.Now()
		r.settle(t.Context())
		if took := time.Since(began); took != settleFor {
			t.Errorf("it waited %v, and is to wait %v", took, settleFor)
		}
		close(release)
		noError(t, closed(t, r))
	})
}

// What is left when the server ends is sent once more, and then said to be unsent.
func TestNewsIsFlushedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bench
		b.refuses(errors.New("locked"))
		r := b.reporter()
		b.move(r, "a", "1")
		synctest.Wait()
		if err := closed(t, r); err == nil || !strings.Contains(err.Error(), "1 workflow") {
			t.Errorf("unsent, but: %v", err)
		}

		hung := newBoardReporter(b.look, func(ctx context.Context, _ attempt.News) error { <-ctx.Done(); return ctx.Err() }, slog.New(slog.DiscardHandler))
		hung.moved()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := hung.close(ctx); err == nil || time.Since(began) > time.Second {
			t.Errorf("a board that hangs: %v after %v", err, time.Since(began))
		}
	})
}

// An attempt that was deleted is sent nothing more.
func TestNewsOfADeletedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bench
		b.refuses(fmt.Errorf("reading the attempt: %w", task.ErrNotFound))
		r := b.reporter()
		b.move(r, "a", "1")
		synctest.Wait()
		noError(t, closed(t, r))
	})
}
