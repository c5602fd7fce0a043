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
	// maxNews is how many sessions may have news that the board was not told yet;
	// a workspace has one or a few. Past that the oldest are dropped: the next
	// transition of theirs is told.
	maxNews = 256
	// settleFor is how long a reply waits for the board to be told of what the call
	// moved: an agent that ends on that reply has its server killed with it.
	settleFor = 2 * time.Second
	// tellPatience bounds one attempt to tell the board.
	tellPatience = 10 * time.Second
	// tellPause and tellPauseMost are the pauses between such attempts.
	tellPause, tellPauseMost = 100 * time.Millisecond, 5 * time.Second
)

// A boardReporter tells the board what the workflows of a workspace do. Transitions do not
// wait for it: of each session it keeps what is newest, and one goroutine tells it,
// again and again where the board refuses.
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
	pending []report // one a session, the one that moved last at the end
	last    uint64
	changed chan struct{} // closed, and made anew, when pending or failing changes
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

// settle waits until all news of before was told, the board refuses, the time for
// it is over, or ctx ends.
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

// close tells what is left, each once, and ends the goroutine. It waits until ctx
// ends; the error says what the board was not told.
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

// run tells the board until close, and then what is left, each once.
func (n *boardReporter) run() {
	n.recall()
	pause := wait.Backoff{Min: tellPause, Max: tellPauseMost}
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
			_ = pause.Wait(n.ending) // then the rest is told
		}
	}
}

// recall puts what a server before this one may have been killed over in front of
// what has come meanwhile.
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

// deliver tells the board; false: it is to be tried again.
func (n *boardReporter) deliver(r report) bool {
	ctx, cancel := context.WithTimeout(n.ctx, tellPatience)
	defer cancel()
	err := n.tell(ctx, r.News)
	told := err == nil
	if err != nil {
		told = errors.Is(err, task.ErrNotFound)
		if told {
			n.log.Warn("the task board does not know this workspace's attempt any more", "workflow_session", r.SessionID, "error", err)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !told && !n.failing {
		n.log.Error("the task board cannot be told where a workflow stands; trying again until it can", "workflow_session", r.SessionID, "error", err)
	}
	n.failing = !told
	if told {
		n.pending = slices.DeleteFunc(n.pending, func(p report) bool { return p.SessionID == r.SessionID && p.number == r.number })
	}
	close(n.changed)
	n.changed = make(chan struct{})
	return told
}
