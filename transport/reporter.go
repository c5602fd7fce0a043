package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session/attempt"
)

const (
	// maxNews is how many sessions may have news that was not sent yet; a workspace has
	// one or a few. Beyond that the oldest are dropped: their next transition is sent.
	maxNews = 256
	// settleFor is how long a reply waits for the board to get what the call moved: an
	// agent that ends on that reply has its server killed with it.
	settleFor = 2 * time.Second
	// sendTimeout bounds one attempt to send news.
	sendTimeout = 10 * time.Second
)

// A boardReporter sends the news of a workspace's workflows to the board. Transitions
// do not wait for it: it keeps the newest of each session, and one goroutine sends it,
// again and again while the board refuses.
type boardReporter struct {
	tell func(context.Context, attempt.News) error
	past func(context.Context) ([]attempt.News, error) // what was recorded before, oldest first; may be nil
	log  *slog.Logger

	ctx    context.Context // of the goroutine; ends with the context of close
	cancel context.CancelFunc
	wake   wait.Signal
	ending context.Context // ends with the call of close
	end    context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	pending []report // one per session, the one that moved last at the end
	last    uint64
	changed chan struct{} // closed, and made again, when pending or failing changes
	failing bool          // the board refused last
}

// A report is news with its number.
type report struct {
	attempt.News
	number uint64
}

func newBoardReporter(tell func(context.Context, attempt.News) error, past func(context.Context) ([]attempt.News, error), log *slog.Logger) *boardReporter {
	n := &boardReporter{tell: tell, past: past, log: log, wake: wait.NewSignal(), changed: make(chan struct{})}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.ending, n.end = context.WithCancel(n.ctx)
	n.wg.Go(n.run)
	return n
}

// put takes news. It does not block.
func (n *boardReporter) put(news attempt.News) {
	n.mu.Lock()
	n.last++
	n.pending = slices.DeleteFunc(n.pending, func(r report) bool { return r.SessionID == news.SessionID })
	n.pending = append(n.pending, report{news, n.last})
	if over := len(n.pending) - maxNews; over > 0 {
		n.pending = slices.Delete(n.pending, 0, over)
	}
	n.mu.Unlock()
	n.wake.Wake()
}

// settle waits until all earlier news is sent, the board refuses, settleFor is over, or
// ctx ends.
func (n *boardReporter) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleFor)
	defer cancel()
	n.mu.Lock()
	until := n.last
	for !n.failing && slices.ContainsFunc(n.pending, func(r report) bool { return r.number <= until }) {
		changed := n.changed
		n.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		n.mu.Lock()
	}
	n.mu.Unlock()
}

// close sends what is left, each once, and ends the goroutine. It waits until ctx ends;
// the error says what was not sent.
func (n *boardReporter) close(ctx context.Context) error {
	n.end()
	defer context.AfterFunc(ctx, n.cancel)()
	n.wg.Wait()
	n.cancel()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.pending) > 0 {
		return fmt.Errorf("the task board was not told where %d workflows stand", len(n.pending))
	}
	return nil
}

// run sends news until close, and then what is left, each once.
func (n *boardReporter) run() {
	n.recall()
	pause := wait.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	for {
		ending := n.ending.Err() != nil
		r, ok := n.first()
		switch {
		case !ok && ending:
			return
		case !ok:
			select {
			case <-n.wake:
			case <-n.ending.Done():
			}
		case n.deliver(r):
			pause.Reset()
		case ending:
			return
		default:
			_ = pause.Wait(n.ending) // then the rest is sent
		}
	}
}

// recall puts the news of the workspace's earlier servers, which may have been killed
// before they sent it, in front of what has come meanwhile.
func (n *boardReporter) recall() {
	if n.past == nil {
		return
	}
	past, err := n.past(n.ctx)
	if err != nil {
		n.log.Warn("cannot tell the task board of the workflows that were in this workspace before", "error", err)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var old []report
	for _, news := range past {
		if !slices.ContainsFunc(n.pending, func(r report) bool { return r.SessionID == news.SessionID }) {
			old = append(old, report{News: news})
		}
	}
	n.pending = append(old, n.pending...)
}

func (n *boardReporter) first() (report, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.pending) == 0 {
		return report{}, false
	}
	return n.pending[0], true
}

// deliver sends a report. It reports false if that is to be tried again.
func (n *boardReporter) deliver(r report) bool {
	ctx, cancel := context.WithTimeout(n.ctx, sendTimeout)
	defer cancel()
	err := n.tell(ctx, r.News)
	sent := err == nil
	if err != nil {
		sent = errors.Is(err, task.ErrNotFound)
		if sent {
			n.log.Warn("the task board does not know this workspace's attempt any more", "workflow_session", r.SessionID, "error", err)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !sent && !n.failing {
		n.log.Error("the task board cannot be told where a workflow stands; trying again until it can", "workflow_session", r.SessionID, "error", err)
	}
	n.failing = !sent
	if sent {
		n.pending = slices.DeleteFunc(n.pending, func(p report) bool { return p.SessionID == r.SessionID && p.number == r.number })
	}
	close(n.changed)
	n.changed = make(chan struct{})
	return sent
}
