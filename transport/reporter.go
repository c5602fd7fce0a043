package transport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session/attempt"
	"deepwork/session/state"
	"deepwork/session/store/local"
	"deepwork/session/workflow"
)

const (
	// settleFor is how long a reply waits until the board has the transition of its call: an agent
	// that ends after that reply kills its server with it.
	settleFor = 2 * time.Second
	// sendTimeout bounds one attempt to send news.
	sendTimeout = 10 * time.Second
)

// A boardReporter reports the positions of a workspace's workflows to the board: once at start,
// since an earlier server may have been killed before it could, and after each transition.
// Transitions do not wait for it: one goroutine reads the positions and sends what the board does
// not have, and retries until that succeeds.
type boardReporter struct {
	look func(context.Context) ([]attempt.News, error) // the positions of the workflows, in the order in which they moved
	send func(context.Context, attempt.News) error
	log  *slog.Logger

	ctx    context.Context // of the goroutine; ends with the context of close
	cancel context.CancelFunc
	wake   wait.Signal
	ending context.Context // ends with the call of close
	end    context.CancelFunc
	wg     sync.WaitGroup

	sent []attempt.News // owned by the goroutine

	mu       sync.Mutex
	moves    uint64        // transitions, and the start
	reported uint64        // how many of moves the board has
	unsent   int           // workflows that the last report did not send
	changed  chan struct{} // closed and replaced after each report
}

func newBoardReporter(look func(context.Context) ([]attempt.News, error), send func(context.Context, attempt.News) error, log *slog.Logger) *boardReporter {
	r := &boardReporter{look: look, send: send, log: log, moves: 1, wake: wait.NewSignal(), changed: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.ending, r.end = context.WithCancel(r.ctx)
	r.wg.Go(r.run)
	return r
}

// moved reports a transition that is on disk. It does not block.
func (r *boardReporter) moved() {
	r.mu.Lock()
	r.moves++
	r.mu.Unlock()
	r.wake.Wake()
}

// settle waits until the board has all earlier transitions, a report fails, settleFor elapses, or
// ctx ends.
func (r *boardReporter) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleFor)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	for until := r.moves; r.reported < until && r.unsent == 0; {
		changed := r.changed
		r.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		r.mu.Lock()
		if ctx.Err() != nil {
			return
		}
	}
}

// close sends the rest, once, and ends the goroutine. It waits until ctx ends; the error lists what
// was not sent.
func (r *boardReporter) close(ctx context.Context) error {
	r.end()
	defer context.AfterFunc(ctx, r.cancel)()
	r.wg.Wait()
	r.cancel()
	if r.unsent > 0 {
		return fmt.Errorf("the task board was not notified of the state of %d workflows", r.unsent)
	}
	return nil
}

// run reports after each transition until close, and then once more.
func (r *boardReporter) run() {
	pause := wait.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	for {
		ending := r.ending.Err() != nil
		ok := r.report()
		switch {
		case ending:
			return
		case !ok:
			_ = pause.Wait(r.ending) // then the rest is sent
			continue
		}
		pause.Reset()
		select {
		case <-r.wake:
		case <-r.ending.Done():
		}
	}
}

// report sends what the board does not have. It reports false if it must be retried.
func (r *boardReporter) report() bool {
	r.mu.Lock()
	moves, failing := r.moves, r.unsent > 0
	done := r.reported == moves
	r.mu.Unlock()
	if done {
		return true
	}
	now, err := r.look(r.ctx)
	unsent := 1
	if err == nil {
		var sent []attempt.News
		for _, news := range now {
			if err == nil && !slices.Contains(r.sent, news) {
				err = r.sendOne(news)
			}
			if err == nil {
				sent = append(sent, news)
			}
		}
		r.sent, unsent = sent, len(now)-len(sent)
	}
	if err != nil && !failing {
		r.log.Error("the task board cannot be updated with a workflow's progress; retrying", "error", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unsent = unsent; err == nil {
		r.reported = moves
	}
	close(r.changed)
	r.changed = make(chan struct{})
	return err == nil
}

// sendOne sends news to the board, if the attempt still exists there.
func (r *boardReporter) sendOne(news attempt.News) error {
	ctx, cancel := context.WithTimeout(r.ctx, sendTimeout)
	defer cancel()
	err := r.send(ctx, news)
	if errors.Is(err, task.ErrNotFound) {
		r.log.Warn("the task board does not know this workspace's attempt any more", "workflow_session", news.SessionID, "error", err)
		return nil
	}
	return err
}

// workflowsOf returns the positions of a workspace's workflows according to its sessions on disk, of
// those that were begun for the attempt: for each workflow the session that moved last, nested or not, oldest first. A session that runs
// inside another one of the same workflow is part of its work and is left out.
func workflowsOf(ctx context.Context, f *state.Folder, attemptID string, logger *slog.Logger) (all []attempt.News, err error) {
	if _, err := os.Stat(f.Tmp()); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	stores := local.Stores(f, true, logger) // sessions in a workspace are always files
	defer stores.Close(ctx)                 // read-only
	archive, err := workflow.OpenArchive(f, stores, logger)
	if err != nil {
		return nil, fmt.Errorf("opening the sessions: %w", err)
	}
	defer func() { err = errors.Join(err, archive.Close()) }()
	sessions, err := archive.List(ctx) // newest first
	if err != nil {
		return nil, err
	}
	sessions = slices.DeleteFunc(sessions, func(s workflow.SessionInfo) bool { return s.AttemptID != attemptID })
	byID := map[string]workflow.SessionInfo{}
	for _, s := range sessions {
		byID[s.SessionID] = s
	}
	for _, s := range sessions {
		known := slices.ContainsFunc(all, func(n attempt.News) bool {
			return n.JobName == s.JobName && n.WorkflowName == s.WorkflowName && n.Nested == (s.Parent != "")
		})
		around := byID[s.Parent] // the next session of the workflow that encloses it
		for range sessions {
			if around.JobName == s.JobName && around.WorkflowName == s.WorkflowName {
				break
			}
			around = byID[around.Parent]
		}
		if s.Err == nil && !known && around.JobName == "" {
			all = append(all, attempt.News{JobName: s.JobName, WorkflowName: s.WorkflowName, SessionID: s.SessionID, Status: s.Status, Step: s.Step, Nested: s.Parent != ""})
		}
	}
	slices.Reverse(all)
	return all, nil
}
